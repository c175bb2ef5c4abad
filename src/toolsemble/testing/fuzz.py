"""A tool called with whatever its schema lets a model think of, to find what it does not stand."""

from __future__ import annotations

import json
import logging
import os
import random
import traceback
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from toolsemble.call import ToolCall
from toolsemble.collection import collected
from toolsemble.context import ToolContext
from toolsemble.deadline import TimedOutError
from toolsemble.definition import ToolDefinition, mapped
from toolsemble.errors import ReviewTimeoutError, ToolArgumentsError, ToolDefinitionError, ToolExecutionError
from toolsemble.events import CallFinished
from toolsemble.policy import Inner
from toolsemble.review import ReviewHandler
from toolsemble.review.automatic import AutoApprove
from toolsemble.shape import described, shaped
from toolsemble.testing.arguments import Arguments
from toolsemble.testing.shrink import shrunk
from toolsemble.toolbox import Toolbox
from toolsemble.work import Work
from toolsemble.workers import ThreadPerJob

Kind: TypeAlias = Literal["exception", "raised", "result", "hang"]

_DECLARED = (ToolArgumentsError, ToolExecutionError, ReviewTimeoutError, TimedOutError, GeneratorExit)
_MOST_HANGS = 3  # each takes all of its time, and leaves a thread behind
_ATTEMPTS = 300  # how often a crash is tried to be had with less
_PATIENT_ATTEMPTS = 8  # the same, where each attempt takes all of its time
_CANDIDATES = 20  # how many calls are looked at for one that fits as it is
_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Crash:
    """Something that a tool does not stand, with the simplest call that was found to show it.

    >>> Crash(ToolCall("weather", {"city": ""}), "exception", "IndexError: string index out of range").count
    1
    """

    call: ToolCall
    """The call, as simple as it could be made."""
    kind: Kind
    """An exception that no model should be told, one that left the call path, a result that is none, or no end."""
    error: str
    """What went wrong."""
    count: int = 1
    """How many calls went wrong in this way."""
    original: ToolCall | None = None
    """The first of them."""
    traceback: str = ""
    """Where an exception came from; empty when there was none."""


@dataclass(frozen=True, slots=True)
class FuzzReport:
    """What came of many calls.

    >>> FuzzReport("weather", 7, {"success": 200}).ok
    True
    """

    tool_name: str
    """The tool."""
    seed: int
    """What the same calls can be made with again."""
    outcomes: Mapping[str, int]
    """How many calls gave a ``success``, a ``failure`` that the model is told, and a ``crash``."""
    crashes: tuple[Crash, ...] = ()
    """What the tool does not stand, each thing once."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.crashes

    def assert_ok(self) -> None:
        """Raise an ``AssertionError`` that tells all that was found, if there is something."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        lines = [f"fuzz of '{self.tool_name}' with seed={self.seed}: {counted}"]
        for number, crash in enumerate(self.crashes, 1):
            lines.append(f"{number}. {crash.error} ({crash.count}x, {crash.kind})\n   {crash.call!r:.{_SHOWN}}")
            lines += [f"   {line}" for line in crash.traceback.splitlines()[-3:]]
        return "\n".join(lines)


def fuzz(
    tool: object,
    *,
    count: int = 200,
    seed: int | None = None,
    examples: Iterable[Mapping[str, Any] | str] = (),
    timeout: float = 5.0,
    declared: tuple[type[BaseException], ...] = (),
    review: ReviewHandler | None = None,
) -> FuzzReport:
    """Call a tool many times, with arguments that its schema admits and with some that it nearly does.

    The tool really runs, so give it a place where it can do no harm. A crash is an exception other than those that are
    meant for the model, an exception that leaves the call path, a result that JSON cannot hold, and a call that does
    not end; a failed result is none.

    :param tool: one tool, of any kind that a toolbox takes
    :param count: how many calls are made, beside those that are needed to make a crash simple
    :param seed: makes the same calls again; a new one for None, which the report tells
    :param examples: arguments that make sense, for tools whose schema says little; for a string tool, its inputs
    :param timeout: how many seconds a call may take; its thread goes on when it takes more
    :param declared: further exceptions that are meant for the model
    :param review: who approves calls; somebody who always does for None

    >>> from toolsemble import tool
    >>> @tool
    ... def initial(name: str) -> str:
    ...     return name[0]
    >>> report = fuzz(initial, seed=1)
    >>> [(crash.error, crash.call.arguments) for crash in report.crashes]
    [('IndexError: string index out of range', {'name': ''})]
    """
    target, definition = _target(tool)
    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    probe = _Probe(target, definition.name, timeout, declared, AutoApprove() if review is None else review)
    maker = Arguments(definition.schema(), random.Random(seed), _checked_examples(examples))  # noqa: S311 - no secret
    corners = maker.corners(count // 2)
    outcomes: Counter[str] = Counter()
    found: dict[tuple[str, ...], list[tuple[_Finding, Any]]] = {}
    hangs = 0
    with _quiet(definition, probe.mark):
        for number in range(count):
            given = corners[number] if number < len(corners) else maker.any()
            outcome = probe.tried(given)
            outcomes[outcome if isinstance(outcome, str) else "crash"] += 1
            if isinstance(outcome, _Finding):
                found.setdefault(outcome.key, []).append((outcome, given))
                hangs += outcome.kind == "hang"
            if hangs >= _MOST_HANGS:
                break
        crashes = tuple(map(probe.crash, found.values()))
    return FuzzReport(definition.name, seed, dict(outcomes), crashes)


@dataclass(frozen=True, slots=True)
class _Finding:
    """What went wrong in one call."""

    kind: Kind
    error: str
    error_type: str = ""
    place: str = ""
    traceback: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What two findings have in common that are the same thing."""
        return self.kind, self.error_type, self.place


class _Probe:
    """Calls a tool through the one path, and looks at what happens inside."""

    inline = True  # as a sink: told in the thread of the call

    def __init__(
        self, tool: object, name: str, timeout: float, declared: tuple[type[BaseException], ...], review: ReviewHandler
    ) -> None:
        self._boxes = {
            repair: Toolbox([tool], review=review, sinks=[self], repair=repair).around(layer=lambda _: self)
            for repair in (True, False)
        }
        self._name = name
        self._timeout = timeout
        self._declared = (*_DECLARED, *declared)
        self._threads = ThreadPerJob(daemon=True)
        self._number = 0
        self.mark = f"fuzz-{os.urandom(4).hex()}-"
        """How the ids of its calls begin."""
        # By the id of the call: one that hangs may go on for a long time.
        self._raised: dict[str, list[tuple[Kind, BaseException]]] = {}
        self._ended: dict[str, CallFinished] = {}

    def tried(self, given: Any, *, repair: bool = True) -> _Finding | str:
        """Give what went wrong in a call, or how it ended."""
        self._number += 1
        own = f"{self.mark}{self._number}"
        self._raised[own] = []
        call = _call(self._name, given, own)
        future: Future[Any] = self._threads.submit(self._boxes[repair].execute, call)
        try:
            reply = future.result(self._timeout)
        except TimeoutError:
            return _Finding("hang", f"no end after {self._timeout:g} s")
        except KeyboardInterrupt:
            if not future.done():
                raise  # a person's, not the tool's
            return _finding("raised", KeyboardInterrupt())
        except BaseException as error:  # noqa: BLE001 - whatever leaves the call path is what is looked for
            return _finding("raised", error)
        finally:
            raised, ended = self._raised.pop(own), self._ended.pop(own, None)
        crashed = [each for each in raised if not isinstance(each[1], self._declared) or each[0] == "result"]
        if crashed:
            return _finding(*crashed[0])
        if not raised and ended is not None and ended.outcome == "error":
            return _Finding("exception", f"{ended.error_type}: {ended.error}", ended.error_type)
        return "failure" if reply.is_error else "success"

    def crash(self, found: Sequence[tuple[_Finding, Any]]) -> Crash:
        """Give findings that are the same with the simplest call that leads to them."""
        finding = found[0][0]

        def again(given: Any, *, repair: bool) -> bool:
            outcome = self.tried(given, repair=repair) if isinstance(given, (str, dict)) else ""
            return isinstance(outcome, _Finding) and outcome.key == finding.key

        shortest = sorted((given for _, given in found), key=lambda each: len(_call("", each).json))
        # Arguments that fit as they are show it best: others depend on how they are repaired.
        patient = finding.kind != "hang"
        plain = [each for each in shortest[:_CANDIDATES] if again(each, repair=False)] if patient else []
        attempts = _ATTEMPTS if patient else _PATIENT_ATTEMPTS
        least = shrunk((plain or shortest)[0], lambda simpler: again(simpler, repair=not plain), attempts)
        call, original = _call(self._name, least), _call(self._name, found[0][1])
        return Crash(call, finding.kind, finding.error, len(found), original, finding.traceback)

    def emit(self, event: Any) -> None:
        """Take down the end of a call: what goes wrong beside the body is seen only here."""
        if isinstance(event, CallFinished) and event.call_id in self._raised:
            self._ended[event.call_id] = event

    def around(
        self,
        definition: ToolDefinition,  # noqa: ARG002 - one tool, and its parts
        value: Any,  # noqa: ARG002 - as it came
        context: ToolContext,
        inner: Inner,
    ) -> Generator[Work, Any, Any]:
        """Take down what a body raises, and whether what it gives is a result."""
        raised = self._raised.get(context.call_id.split(".")[0], [])
        try:
            returned = yield from inner(context)
        except BaseException as error:
            raised.append(("exception", error))
            raise
        try:
            shaped(returned)
        except ToolExecutionError as error:
            raised.append(("result", error))
        return returned


@contextmanager
def _quiet(definition: ToolDefinition, mark: str) -> Iterator[None]:
    """Keep the calls of a probe out of the log: the report tells what is worth telling."""
    loggers: list[logging.Logger] = []

    def taken(part: ToolDefinition) -> ToolDefinition:
        loggers.append(part.logger)
        return part

    def passes(record: logging.LogRecord) -> bool:
        return not str(getattr(record, "call_id", "")).startswith(mark)

    mapped(definition, taken)
    for logger in loggers:
        logger.addFilter(passes)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(passes)


def _target(tool: object) -> tuple[object, ToolDefinition]:
    found = collected(tool)
    if len(found) != 1:
        names = ", ".join(definition.name for _, definition in found) or "none"
        raise ToolDefinitionError(f"fuzz takes one tool; {type(tool).__name__} has {len(found)}: {names}")
    return found[0]


def _checked_examples(examples: Iterable[Mapping[str, Any] | str]) -> list[dict[str, Any]]:
    if isinstance(examples, (str, Mapping)):
        raise TypeError(f"fuzz examples must be a list of arguments, not {type(examples).__name__}")
    return [{"input": each} if isinstance(each, str) else dict(each) for each in examples]


def _call(name: str, given: Any, id: str | None = None) -> ToolCall:
    return ToolCall(name, given if isinstance(given, (str, dict)) else json.dumps(given), id)


def _finding(kind: Kind, error: BaseException) -> _Finding:
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    name = type(error).__name__
    told = "".join(traceback.format_exception(error))
    return _Finding(kind, f"{name}: {described(error)}", name, place, told)
