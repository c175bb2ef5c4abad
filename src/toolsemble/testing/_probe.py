"""Single calls of a fuzzed tool, and the detection of crashes."""

from __future__ import annotations

import json
import math
import os
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import Inner, Layer, ToolDefinition
from toolsemble._engine.work.body import TimedOutError, Work
from toolsemble._runtime.sinks import Sink
from toolsemble._runtime.text import describe_with_class
from toolsemble._runtime.threads import ThreadPerJob, wait_until
from toolsemble._schema.result_shape import to_result
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ReviewTimeoutError, ToolArgumentsError, ToolExecutionError
from toolsemble.events import CallFinished
from toolsemble.review import ReviewHandler

Kind: TypeAlias = Literal["exception", "raised", "result", "hang"]

_DECLARED = (ToolArgumentsError, ToolExecutionError, ReviewTimeoutError, TimedOutError, GeneratorExit)
_ATTEMPTS = 300  # attempts to simplify a crash
_HANG_ATTEMPTS = 8  # the same for hangs, where each attempt waits for the timeout
_CANDIDATES = 20  # calls that are checked for valid arguments


@dataclass(frozen=True, slots=True)
class Crash:
    """A crash of a tool, with the simplest call that causes it.

    >>> Crash(ToolCall("weather", {"city": ""}), "exception", "IndexError: string index out of range").count
    1
    """

    call: ToolCall
    """The simplified call."""
    kind: Kind
    """An undeclared exception, an exception that escaped the call path, a result that is not JSON, or a hang."""
    error: str
    """The error message."""
    count: int = 1
    """The number of calls with this crash."""
    original: ToolCall | None = None
    """The first such call."""
    traceback: str = ""
    """The traceback; empty without an exception."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A crash in a single call."""

    kind: Kind
    error: str
    error_type: str = ""
    """The class of the exception; empty for none."""
    place: str = ""
    """The line that raised it."""
    traceback: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for findings of the same crash."""
        return self.kind, self.error_type, self.place


class Probe(Layer, Sink):
    """A layer and sink that calls a tool and observes its body."""

    inline = True  # events arrive in the thread of the call

    def __init__(
        self,
        tool: object,
        name: str,
        timeout: float,
        declared: tuple[type[BaseException], ...],
        review: ReviewHandler,
        deps: Any = None,
    ) -> None:
        self._boxes = {
            repair: Toolbox([tool], review=review, sinks=[self], repair=repair).around(layer=lambda _: self)
            for repair in (True, False)
        }
        self._name = name
        self._deps = deps
        self._timeout = timeout
        self._declared = (*_DECLARED, *declared)
        self._threads = ThreadPerJob(daemon=True)
        self._number = 0
        self.mark = f"fuzz-{os.urandom(4).hex()}-"
        """The prefix of the ids of its calls."""
        # By call id, because a hung call may continue for a long time.
        self._raised: dict[str, list[tuple[Kind, BaseException]]] = {}
        self._ended: dict[str, CallFinished] = {}

    def run(self, given: Any, *, repair: bool = True) -> Finding | str:
        """Make a call; return the crash, or the outcome."""
        self._number += 1
        call_id = f"{self.mark}{self._number}"
        self._raised[call_id] = []
        call = _create_call(self._name, given, call_id)
        ends = time.monotonic() + self._timeout
        future: Future[Any] = self._threads.submit(partial(self._boxes[repair].execute, call, deps=self._deps))
        try:
            if not wait_until(future, ends):
                return Finding("hang", f"no end after {self._timeout:g} s")
            reply = future.result()
        except KeyboardInterrupt:
            if not future.done():
                raise  # from the user, not from the tool
            return _create_finding("raised", KeyboardInterrupt())
        except BaseException as error:  # any exception that escapes the call path is a crash
            return _create_finding("raised", error)
        finally:
            raised, ended = self._raised.pop(call_id), self._ended.pop(call_id, None)
        crashed = [each for each in raised if not isinstance(each[1], self._declared) or each[0] == "result"]
        if crashed:
            return _create_finding(*crashed[0])
        if not raised and ended is not None and ended.outcome == "error":
            return Finding("exception", f"{ended.error_type}: {ended.error}", ended.error_type)
        return "failure" if reply.is_error else "success"

    def minimize(self, found: Sequence[tuple[Finding, Any]]) -> Crash:
        """Return equal findings as a crash with the simplest call that causes it."""
        finding = found[0][0]

        def recurs(given: Any, *, repair: bool) -> bool:
            outcome = self.run(given, repair=repair) if isinstance(given, (str, dict)) else ""
            return isinstance(outcome, Finding) and outcome.key == finding.key

        shortest = sorted((given for _, given in found), key=lambda each: len(_create_call(self._name, each).json))
        # Prefer valid arguments: others depend on how they are repaired.
        patient = finding.kind != "hang"
        plain = [each for each in shortest[:_CANDIDATES] if recurs(each, repair=False)] if patient else []
        attempts = _ATTEMPTS if patient else _HANG_ATTEMPTS
        least = shrink((plain or shortest)[0], lambda simpler: recurs(simpler, repair=not plain), attempts)
        call, original = _create_call(self._name, least), _create_call(self._name, found[0][1])
        return Crash(call, finding.kind, finding.error, len(found), original, finding.traceback)

    def emit(self, event: Any) -> None:
        """Record the end of a call, where failures outside the body are visible."""
        if isinstance(event, CallFinished) and event.call_id in self._raised:
            self._ended[event.call_id] = event

    def around(
        self,
        definition: ToolDefinition,  # there is one tool
        value: Any,
        context: ToolContext,
        inner: Inner,
    ) -> Generator[Work, Any, Any]:
        """Record a body's exceptions and invalid results."""
        raised = self._raised.get(context.call_id.split(".")[0], [])
        try:
            returned = yield from inner(context)
        except BaseException as error:
            raised.append(("exception", error))
            raise
        try:
            to_result(returned)
        except ToolExecutionError as error:
            raised.append(("result", error))
        return returned


def _create_call(name: str, given: Any, id: str | None = None) -> ToolCall:
    return ToolCall(name, given if isinstance(given, (str, dict)) else json.dumps(given), id)


def _create_finding(kind: Kind, error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    name = type(error).__name__
    text = "".join(traceback.format_exception(error))
    return Finding(kind, describe_with_class(error), name, place, text)


_SHORT_TEXT = 40  # up to this length, each character is removed on its own


def shrink(value: Any, happens: Callable[[Any], bool], attempts: int) -> Any:
    """Return the simplest value, found in a number of attempts, for which ``happens`` is still true.

    >>> shrink({"path": "a/b/../c", "mode": "x", "sizes": [3, 4]}, lambda value: ".." in value.get("path", ""), 200)
    {'path': '..'}
    """
    left = attempts
    found = True
    while found:
        found = False
        for simpler in _simplify(value):
            if left <= 0:
                return value
            left -= 1
            if happens(simpler):
                value, found = simpler, True
                break
    return value


def _simplify(value: Any) -> Iterator[Any]:
    """Yield values that are simpler in one place, the largest simplifications first."""
    if isinstance(value, dict):
        yield from ({name: each for name, each in value.items() if name != key} for key in value)
        yield from ({**value, key: simpler} for key, each in value.items() for simpler in _simplify(each))
    elif isinstance(value, list):
        yield from _unwrap(value) if len(value) == 1 else ()
        yield from (value[:index] + value[index + 1 :] for index in range(len(value)))
        for index, each in enumerate(value):
            yield from ([*value[:index], simpler, *value[index + 1 :]] for simpler in _simplify(each))
    elif isinstance(value, str):
        yield from _shorten(value)
    elif isinstance(value, bool):
        yield from ([False] if value else [])
    elif isinstance(value, int):
        yield from _shrink_int(value)
    elif isinstance(value, float) and math.isfinite(value):
        # An int counts as simpler than a float, never the other way round.
        yield int(value)


def _unwrap(value: list[Any]) -> Iterator[Any]:
    """Yield what is in a list of one item: what is in the innermost of such lists, and the item."""
    inner: Any = value
    while isinstance(inner, list) and len(inner) == 1:
        inner = inner[0]
    yield inner
    if inner is not value[0]:
        yield value[0]


def _shrink_int(value: int) -> Iterator[int]:
    if value:
        yield 0
    if value < 0:
        yield -value
        yield from (-each for each in _shrink_int(-value) if each)
    elif value > 1:
        yield value >> value.bit_length() // 2  # half of the digits
        step = value // 2
        while step:
            yield value - step
            step //= 2


def _shorten(text: str) -> Iterator[str]:
    half = len(text) // 2
    if text:
        yield ""
    if half:
        yield text[:half]
        yield text[half:]
        if len(text) <= _SHORT_TEXT:
            yield from (text[:index] + text[index + 1 :] for index in range(len(text)))
        else:
            yield text[:-1]
    if plain := "a" * len(text):
        yield from ([plain] if text != plain else [])
