"""One call of a tool at a time, looked at from inside and outside, and what was found by it."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from toolsemble.call import ToolCall
from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.definition.policy import Inner, Layer
from toolsemble.errors import ReviewTimeoutError, ToolArgumentsError, ToolExecutionError
from toolsemble.events import CallFinished
from toolsemble.review import ReviewHandler
from toolsemble.runtime.concurrency import ThreadPerJob, wait_until
from toolsemble.shape import describe_error, to_result
from toolsemble.testing.shrink import shrunk
from toolsemble.toolbox.toolbox import Toolbox
from toolsemble.work.body import Work
from toolsemble.work.deadline import TimedOutError

Kind: TypeAlias = Literal["exception", "raised", "result", "hang"]

_DECLARED = (ToolArgumentsError, ToolExecutionError, ReviewTimeoutError, TimedOutError, GeneratorExit)
_ATTEMPTS = 300  # how often a crash is tried to be had with less
_PATIENT_ATTEMPTS = 8  # the same, where each attempt takes all of its time
_CANDIDATES = 20  # how many calls are looked at for one that fits as it is


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
class Finding:
    """What went wrong in one call."""

    kind: Kind
    """In which way."""
    error: str
    """What is said of it."""
    error_type: str = ""
    """The class of an exception; empty for none."""
    place: str = ""
    """The line that raised it."""
    traceback: str = ""
    """How it came there."""

    @property
    def key(self) -> tuple[str, ...]:
        """What two findings have in common that are the same thing."""
        return self.kind, self.error_type, self.place


class Probe(Layer):
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

    def tried(self, given: Any, *, repair: bool = True) -> Finding | str:
        """Give what went wrong in a call, or how it ended."""
        self._number += 1
        own = f"{self.mark}{self._number}"
        self._raised[own] = []
        call = _call(self._name, given, own)
        ends = time.monotonic() + self._timeout
        future: Future[Any] = self._threads.submit(self._boxes[repair].execute, call)
        try:
            if not wait_until(future, ends):
                return Finding("hang", f"no end after {self._timeout:g} s")
            reply = future.result()
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
            return Finding("exception", f"{ended.error_type}: {ended.error}", ended.error_type)
        return "failure" if reply.is_error else "success"

    def crash(self, found: Sequence[tuple[Finding, Any]]) -> Crash:
        """Give findings that are the same with the simplest call that leads to them."""
        finding = found[0][0]

        def again(given: Any, *, repair: bool) -> bool:
            outcome = self.tried(given, repair=repair) if isinstance(given, (str, dict)) else ""
            return isinstance(outcome, Finding) and outcome.key == finding.key

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
            to_result(returned)
        except ToolExecutionError as error:
            raised.append(("result", error))
        return returned


def _call(name: str, given: Any, id: str | None = None) -> ToolCall:
    return ToolCall(name, given if isinstance(given, (str, dict)) else json.dumps(given), id)


def _finding(kind: Kind, error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    name = type(error).__name__
    told = "".join(traceback.format_exception(error))
    return Finding(kind, f"{name}: {describe_error(error)}", name, place, told)
