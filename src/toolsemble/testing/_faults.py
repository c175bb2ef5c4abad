"""Fault injection: latency, errors, and malformed results of tools."""

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

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import Inner, Layer, ToolDefinition
from toolsemble._engine.work.body import Work, check_time_left
from toolsemble._schema.result_shape import to_result
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolDefinitionError

Malformed: TypeAlias = Literal["empty", "cut", "garbage", "huge", "object"]
"""None; the first half of the text; control characters; a million characters; an object that is not JSON."""

_HUGE = 1_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the calls that it affects.

    >>> Fault("search", error=TimeoutError, probability=2)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Fault 'search': probability must be a number from 0 to 1, not 2
    """

    tools: str = "*"
    """The affected tools: a name, or a pattern such as ``"file_*"``."""
    latency: float = field(default=0.0, kw_only=True)
    """Seconds to wait before the tool runs; they count toward its timeout."""
    error: BaseException | type[BaseException] | None = field(default=None, kw_only=True)
    """The exception to raise instead of running the tool, or None."""
    malformed: Malformed | Callable[[Any], Any] | None = field(default=None, kw_only=True)
    """The replacement of the result, a function that returns one, or None."""
    probability: float = field(default=1.0, kw_only=True)
    """The probability for each call."""
    nth: int | Iterable[int] | None = field(default=None, kw_only=True)
    """The numbers of the affected calls of a tool, from 1; None: all. Each retry counts as a call."""

    def __post_init__(self) -> None:
        for wrong, what, value in (
            (not isinstance(self.tools, str), "tools must be a str", self.tools),
            (
                not _is_within(self.latency, threading.TIMEOUT_MAX),
                "latency must be a number of seconds >= 0",
                self.latency,
            ),
            (not _is_within(self.probability, 1), "probability must be a number from 0 to 1", self.probability),
            (not _is_malformed(self.malformed), f"malformed must be one of {_KINDS}, or a function", self.malformed),
            (not _is_error(self.error), "error must be an exception", self.error),
        ):
            if wrong:
                raise ToolDefinitionError(f"Fault {self.tools!r}: {what}, not {value!r:.80}")
        if self.nth is not None:
            object.__setattr__(self, "nth", _check_numbers(self.tools, self.nth))
        if not self.latency and self.error is None and self.malformed is None:
            raise ToolDefinitionError(f"Fault {self.tools!r}: it has no effect; set latency, error or malformed")

    def happens(self, tool: str, number: int, seed: str) -> bool:
        """Return whether it affects a call of a tool; deterministic for a number and a seed."""
        if not fnmatchcase(tool, self.tools) or (isinstance(self.nth, frozenset) and number not in self.nth):
            return False
        # A generator for each call, so that the order of concurrent calls does not matter.
        return random.Random(f"{seed}/{tool}/{number}").random() < self.probability  # noqa: S311 - not for cryptography


@dataclass(frozen=True, slots=True)
class Injected:
    """An injected fault.

    >>> Injected("search", 2, Fault(error=TimeoutError)).number
    2
    """

    tool_name: str
    """The name of the tool."""
    number: int
    """The number of the call, from 1."""
    fault: Fault
    """The fault."""


class Faults:
    """A set of faults that can be injected into the tools of a box, deterministically.

    Faults are injected at a tool's body, inside its limits: a timeout ends latency, and retries run the body again. If
    several faults match a call, their latencies add up, then the first error is raised.

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
        """Set the faults.

        :param seed: decides which calls are affected by a fault with a probability
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
        """The faults injected so far, in order."""
        with self._lock:
            return list(self._injected)

    def around(self, box: Toolbox) -> Toolbox:
        """Return a box of the same tools with the faults injected, also into the steps of pipelines."""
        layer = _FaultLayer(self)
        fits = [each.tools for each in self._faults]
        return box.around(layer=lambda part: layer if any(fnmatchcase(part.name, each) for each in fits) else None)

    def next(self, tool: str) -> list[Fault]:
        """Return the faults of the next call of a tool, and record them."""
        with self._lock:
            self._numbers[tool] += 1
            number = self._numbers[tool]
            seeded = [(each, f"{self._seed}/{index}") for index, each in enumerate(self._faults)]
            found = [fault for fault, seed in seeded if fault.happens(tool, number, seed)]
            self._injected += [Injected(tool, number, fault) for fault in found]
        return found


class _FaultLayer(Layer):
    """The innermost layer of a tool, which injects the faults."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def around(
        self,
        definition: ToolDefinition,
        value: Any,
        context: ToolContext,
        inner: Inner,
    ) -> Generator[Work, Any, Any]:
        """Wait, raise an error, or replace the result of the body."""
        found = self._faults.next(definition.name)
        if latency := sum(fault.latency for fault in found):
            yield _Delay(latency, context)
        for fault in found:
            if fault.error is not None:
                # Without this, an exception that is raised repeatedly would collect tracebacks.
                raise fault.error if isinstance(fault.error, type) else fault.error.with_traceback(None)
        returned = yield from inner(context)
        for fault in found:
            if fault.malformed is not None:
                replace = fault.malformed if callable(fault.malformed) else _REPLACEMENTS[fault.malformed]
                returned = replace(returned)
        return returned


class _Delay:
    """A wait that ends at the deadline of the call."""

    def __init__(self, seconds: float, context: ToolContext) -> None:
        self._seconds = seconds
        self._context = context

    def do(self) -> None:
        """Wait in this thread."""
        time.sleep(self._remaining())
        check_time_left(self._context)

    async def ado(self) -> None:
        """Wait without blocking the event loop."""
        await asyncio.sleep(self._remaining())
        check_time_left(self._context)

    def _remaining(self) -> float:
        most = check_time_left(self._context)
        return self._seconds if most is None else min(self._seconds, most)


def _cut(returned: Any) -> str:
    text = to_result(returned).text
    return text[: len(text) // 2]


def _make_cyclic(_: Any) -> Any:
    value: list[Any] = []
    value.append(value)
    return value


_REPLACEMENTS: dict[str, Callable[[Any], Any]] = {
    "empty": lambda _: None,
    "cut": _cut,
    "garbage": lambda _: "\x00\x1b[2J\u202e\ufffd\ud800{{<script>",
    "huge": lambda _: "x" * _HUGE,
    "object": _make_cyclic,
}
_KINDS = ", ".join(map(repr, get_args(Malformed)))


def _is_malformed(value: object) -> bool:
    return value is None or callable(value) or (isinstance(value, str) and value in _REPLACEMENTS)


def _is_error(value: object) -> bool:
    kind = value if isinstance(value, type) else type(value)
    return value is None or issubclass(kind, BaseException)


def _is_within(value: object, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most


def _check_numbers(tools: str, nth: Any) -> frozenset[int]:
    numbers = [nth] if isinstance(nth, int) else list(nth) if isinstance(nth, Iterable) else [None]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 1 for each in numbers):
        raise ToolDefinitionError(f"Fault {tools!r}: nth must be integers >= 1, not {nth!r:.80}")
    return frozenset(numbers)
