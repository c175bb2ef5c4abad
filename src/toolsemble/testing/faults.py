"""Faults on purpose: what takes long, what raises, and results that are not what they should be."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, get_args

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.definition.policy import Inner, Layer
from toolsemble.errors import ToolDefinitionError
from toolsemble.shape import to_result
from toolsemble.toolbox.toolbox import Toolbox
from toolsemble.work.body import Work
from toolsemble.work.deadline import check_time_left

Malformed: TypeAlias = Literal["empty", "cut", "garbage", "huge", "object"]
"""Nothing; the first half of the text; characters that no text should have; a million of them; what is no JSON."""

_HUGE = 1_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to go wrong, in calls of which tools, and in which of them.

    >>> Fault("search", error=TimeoutError, probability=2)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Fault 'search': probability must be a number from 0 to 1, not 2
    """

    tools: str = "*"
    """The tools that it happens to: a name, or a pattern of names such as ``"file_*"``."""
    latency: float = field(default=0.0, kw_only=True)
    """How many seconds pass before anything else happens; a tool's timeout counts them."""
    error: BaseException | type[BaseException] | None = field(default=None, kw_only=True)
    """What is raised in place of running the tool; None for nothing."""
    malformed: Malformed | Callable[[Any], Any] | None = field(default=None, kw_only=True)
    """What becomes of what the tool returned; or a function that makes something else of it. None for nothing."""
    probability: float = field(default=1.0, kw_only=True)
    """How likely it is for each call."""
    nth: int | Iterable[int] | None = field(default=None, kw_only=True)
    """Which calls of a tool it happens to, from 1 on; None for any. Each attempt of a call that is retried counts."""

    def __post_init__(self) -> None:
        for wrong, what, value in (
            (not isinstance(self.tools, str), "tools must be a pattern of names", self.tools),
            (not _within(self.latency, threading.TIMEOUT_MAX), "latency must be seconds from 0 on", self.latency),
            (not _within(self.probability, 1), "probability must be a number from 0 to 1", self.probability),
            (not _is_malformed(self.malformed), f"malformed is one of {_KINDS}, or a function", self.malformed),
            (not _is_error(self.error), "error must be an exception", self.error),
        ):
            if wrong:
                raise ToolDefinitionError(f"Fault {self.tools!r}: {what}, not {value!r:.80}")
        if self.nth is not None:
            object.__setattr__(self, "nth", _numbers(self.tools, self.nth))
        if not self.latency and self.error is None and self.malformed is None:
            raise ToolDefinitionError(f"Fault {self.tools!r}: nothing goes wrong; give latency, error or malformed")

    def happens(self, tool: str, number: int, seed: str) -> bool:
        """Whether it happens to a call of a tool; for the same number and seed always the same."""
        if not fnmatchcase(tool, self.tools) or (isinstance(self.nth, frozenset) and number not in self.nth):
            return False
        # Not one stream of numbers for all: the order of calls that run side by side must not matter.
        return random.Random(f"{seed}/{tool}/{number}").random() < self.probability  # noqa: S311 - no secret


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that has happened.

    >>> Injected("search", 2, Fault(error=TimeoutError)).number
    2
    """

    tool_name: str
    """The tool."""
    number: int
    """Which of its calls it was, from 1 on."""
    fault: Fault
    """What went wrong."""


class Faults:
    """Has things go wrong in the tools of a box, the same way each time.

    They happen where the body of a tool is, inside of its limits: a timeout cuts latency off, and retries try again.
    Of several that fit a call, all happen: they wait, then the first error is raised.

    >>> from toolsemble import ToolCall, tool
    >>> @tool
    ... def search(query: str) -> str:
    ...     return f"{query}: 3 hits"
    >>> faults = Faults(Fault("search", error=ConnectionError("no network"), nth=2), Fault(malformed="cut", nth=3))
    >>> box = faults.around(Toolbox([search]))
    >>> [box.execute(ToolCall("search", {"query": "rome"})).text for _ in range(4)]
    ['rome: 3 hits', 'Error: no network', 'rome: ', 'rome: 3 hits']
    >>> [(each.tool_name, each.number) for each in faults.injected]
    [('search', 2), ('search', 3)]
    """

    def __init__(self, *faults: Fault, seed: int = 0) -> None:
        """Take down the faults.

        :param seed: decides which calls are hit where a fault is only probable
        """
        for index, fault in enumerate(faults):
            if not isinstance(fault, Fault):
                raise ToolDefinitionError(f"Faults at index {index} must be a Fault, not {fault!r:.80}")
        self._faults = faults
        self._seed = seed
        self._lock = threading.Lock()
        self._numbers: Counter[str] = Counter()
        self._injected: list[Injected] = []

    @property
    def injected(self) -> list[Injected]:
        """What has happened so far, in order."""
        with self._lock:
            return list(self._injected)

    def around(self, box: Toolbox) -> Toolbox:
        """Give a box of the same tools in which the faults happen, also in the steps of pipelines."""
        layer = _FaultLayer(self)
        fits = [each.tools for each in self._faults]
        return box.around(layer=lambda part: layer if any(fnmatchcase(part.name, each) for each in fits) else None)

    def next(self, tool: str) -> list[Fault]:
        """Give what happens to the next call of a tool, and take it down."""
        with self._lock:
            self._numbers[tool] += 1
            number = self._numbers[tool]
            seeded = [(each, f"{self._seed}/{index}") for index, each in enumerate(self._faults)]
            found = [fault for fault, seed in seeded if fault.happens(tool, number, seed)]
            self._injected += [Injected(tool, number, fault) for fault in found]
        return found


class _FaultLayer(Layer):
    """Stands next to the body of a tool, and lets the faults happen."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def around(
        self,
        definition: ToolDefinition,
        value: Any,  # noqa: ARG002 - faults do not look at it
        context: ToolContext,
        inner: Inner,
    ) -> Generator[Work, Any, Any]:
        """Wait, raise, or change what the body gives."""
        found = self._faults.next(definition.name)
        if latency := sum(fault.latency for fault in found):
            yield _Delay(latency, context)
        for fault in found:
            if fault.error is not None:
                # One object may be raised many times, and would take all its tracebacks along.
                raise fault.error if isinstance(fault.error, type) else fault.error.with_traceback(None)
        returned = yield from inner(context)
        for fault in found:
            if fault.malformed is not None:
                made = fault.malformed if callable(fault.malformed) else _MAKERS[fault.malformed]
                returned = made(returned)
        return returned


class _Delay:
    """Wait for some seconds, or until the time of the call is up."""

    def __init__(self, seconds: float, context: ToolContext) -> None:
        self._seconds = seconds
        self._context = context

    def do(self) -> None:
        """Wait in this thread."""
        time.sleep(self._bounded())
        check_time_left(self._context)

    async def ado(self) -> None:
        """Wait without blocking the event loop."""
        await asyncio.sleep(self._bounded())
        check_time_left(self._context)

    def _bounded(self) -> float:
        most = check_time_left(self._context)
        return self._seconds if most is None else min(self._seconds, most)


def _cut(returned: Any) -> str:
    text = to_result(returned).text
    return text[: len(text) // 2]


def _endless(_: Any) -> Any:
    value: list[Any] = []
    value.append(value)
    return value


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "empty": lambda _: None,
    "cut": _cut,
    "garbage": lambda _: "\x00\x1b[2J\u202e\ufffd\ud800{{<script>",
    "huge": lambda _: "x" * _HUGE,
    "object": _endless,
}
_KINDS = ", ".join(map(repr, get_args(Malformed)))


def _is_malformed(value: object) -> bool:
    return value is None or callable(value) or (isinstance(value, str) and value in _MAKERS)


def _is_error(value: object) -> bool:
    kind = value if isinstance(value, type) else type(value)
    return value is None or issubclass(kind, BaseException)


def _within(value: object, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most


def _numbers(tools: str, nth: Any) -> frozenset[int]:
    numbers = [nth] if isinstance(nth, int) else list(nth) if isinstance(nth, Iterable) else [None]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 1 for each in numbers):
        raise ToolDefinitionError(f"Fault {tools!r}: nth must be whole numbers from 1 on, not {nth!r:.80}")
    return frozenset(numbers)
