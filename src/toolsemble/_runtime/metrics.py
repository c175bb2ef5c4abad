"""Metrics: counters and durations of calls."""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from toolsemble._runtime.threads import fork_safe_lock

Outcome: TypeAlias = Literal["success", "failure", "error", "cancelled"]
"""How a call ended: a result, a failed result, an exception of the tool, or a cancellation from outside."""
Tags: TypeAlias = Mapping[str, str]
"""The tags of a custom counter or value: few names, each with few different values."""


@runtime_checkable
class ToolMetrics(Protocol):
    """The protocol of a metrics backend.

    A ``failure`` is a failed result, an ``error`` an exception that the tool raised. A cancelled call is neither:
    it increments the counter "cancellations".

    >>> isinstance(InMemoryMetrics(), ToolMetrics)
    True
    """

    def increment_success(self, tool_name: str, agent_role: str) -> None:
        """Count a call that succeeded."""
        ...

    def increment_failure(self, tool_name: str, agent_role: str) -> None:
        """Count a call that returned a failed result."""
        ...

    def increment_error(self, tool_name: str, agent_role: str) -> None:
        """Count a call whose tool raised an exception."""
        ...

    def record_duration(self, tool_name: str, agent_role: str, seconds: float) -> None:
        """Record the duration of a call."""
        ...

    def increment_counter(
        self, name: str, tool_name: str, agent_role: str, amount: int = 1, tags: Tags | None = None
    ) -> None:
        """Add to a custom counter of the tool; tags, a mapping of names to texts, split it."""
        ...

    def record_value(self, name: str, tool_name: str, agent_role: str, value: float, tags: Tags | None = None) -> None:
        """Record a custom value of the tool; tags, as for counters."""
        ...


class SilentMetrics:
    """Metrics that record nothing: the default.

    >>> SilentMetrics().increment_success("weather", "unknown")
    """

    __slots__ = ()

    def increment_success(self, tool_name: str, agent_role: str) -> None:
        """Do nothing."""

    def increment_failure(self, tool_name: str, agent_role: str) -> None:
        """Do nothing."""

    def increment_error(self, tool_name: str, agent_role: str) -> None:
        """Do nothing."""

    def record_duration(self, tool_name: str, agent_role: str, seconds: float) -> None:
        """Do nothing."""

    def increment_counter(
        self, name: str, tool_name: str, agent_role: str, amount: int = 1, tags: Tags | None = None
    ) -> None:
        """Do nothing."""

    def record_value(self, name: str, tool_name: str, agent_role: str, value: float, tags: Tags | None = None) -> None:
        """Do nothing."""


_Tagged: TypeAlias = frozenset[tuple[str, str]]


def _freeze(tags: Tags | None) -> _Tagged:
    return frozenset((tags or {}).items())


class InMemoryMetrics:
    """Metrics in memory that can be read, for tests and small programs; thread-safe.

    >>> from toolsemble import Tool, Toolbox, ToolCall
    >>> class Echo(Tool):
    ...     name = "echo"
    ...     description = "Repeats its input"
    ...     def run(self, input):
    ...         return input
    >>> metrics = InMemoryMetrics()
    >>> reply = Toolbox([Echo()], metrics=metrics).execute(ToolCall("echo", {"input": "hi"}))
    >>> metrics.count("echo", "success"), len(metrics.durations("echo"))
    (1, 1)
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._outcomes: Counter[tuple[str, str, str]] = Counter()
        self._durations: defaultdict[str, list[float]] = defaultdict(list)
        self._counters: Counter[tuple[str, str, str, _Tagged]] = Counter()
        self._values: defaultdict[tuple[str, str], list[tuple[_Tagged, float]]] = defaultdict(list)

    def increment_success(self, tool_name: str, agent_role: str) -> None:
        """Count a call that succeeded."""
        self._increment(self._outcomes, ("success", tool_name, agent_role))

    def increment_failure(self, tool_name: str, agent_role: str) -> None:
        """Count a call that returned a failed result."""
        self._increment(self._outcomes, ("failure", tool_name, agent_role))

    def increment_error(self, tool_name: str, agent_role: str) -> None:
        """Count a call whose tool raised an exception."""
        self._increment(self._outcomes, ("error", tool_name, agent_role))

    def record_duration(
        self, tool_name: str, agent_role: str, seconds: float
    ) -> None:  # durations are stored by tool only
        """Record the duration of a call."""
        with self._lock:
            self._durations[tool_name].append(seconds)

    def increment_counter(
        self, name: str, tool_name: str, agent_role: str, amount: int = 1, tags: Tags | None = None
    ) -> None:
        """Add to a custom counter of the tool."""
        with self._lock:
            self._counters[name, tool_name, agent_role, _freeze(tags)] += amount

    def record_value(
        self,
        name: str,
        tool_name: str,
        agent_role: str,
        value: float,
        tags: Tags | None = None,
    ) -> None:
        """Record a custom value of the tool."""
        with self._lock:
            self._values[name, tool_name].append((_freeze(tags), value))

    def count(self, tool_name: str, outcome: Outcome, agent_role: str | None = None) -> int:
        """Return the number of calls of a tool with an outcome, for one role or for all."""
        if outcome == "cancelled":
            return self.counter("cancellations", tool_name, agent_role)
        return self._sum(self._outcomes, outcome, tool_name, agent_role)

    def durations(self, tool_name: str) -> list[float]:
        """Return the duration of each call of a tool in seconds, in the order in which the calls ended."""
        with self._lock:
            return list(self._durations.get(tool_name, ()))

    def counter(self, name: str, tool_name: str, agent_role: str | None = None, tags: Tags | None = None) -> int:
        """Return the value of a custom counter, for one role or for all; with tags, of parts with at least these."""
        wanted = _freeze(tags)
        with self._lock:
            return sum(
                amount
                for (what, tool, role, tagged), amount in self._counters.items()
                if (what, tool) == (name, tool_name) and agent_role in (None, role) and wanted <= tagged
            )

    def values(self, name: str, tool_name: str, tags: Tags | None = None) -> list[float]:
        """Return the values that a tool recorded under a name; with tags, only values that have at least these."""
        wanted = _freeze(tags)
        with self._lock:
            return [value for tagged, value in self._values.get((name, tool_name), ()) if wanted <= tagged]

    def _increment(self, counts: Counter[tuple[str, str, str]], key: tuple[str, str, str], amount: int = 1) -> None:
        with self._lock:
            counts[key] += amount

    def _sum(self, counts: Counter[tuple[str, str, str]], name: str, tool_name: str, agent_role: str | None) -> int:
        with self._lock:
            if agent_role is not None:
                return counts[name, tool_name, agent_role]
            return sum(n for (what, tool, _), n in counts.items() if (what, tool) == (name, tool_name))


class CombinedMetrics:
    """Metrics that forward to several others; if one raises, the rest are still called.

    Backends whose methods do not take tags are called without them.
    """

    __slots__ = ("parts",)

    def __init__(self, *parts: ToolMetrics) -> None:
        self.parts = parts
        """The metrics to forward to."""

    def increment_success(self, tool_name: str, agent_role: str) -> None:
        """Count a call that succeeded."""
        self._call_each(lambda part: part.increment_success(tool_name, agent_role))

    def increment_failure(self, tool_name: str, agent_role: str) -> None:
        """Count a call that returned a failed result."""
        self._call_each(lambda part: part.increment_failure(tool_name, agent_role))

    def increment_error(self, tool_name: str, agent_role: str) -> None:
        """Count a call whose tool raised an exception."""
        self._call_each(lambda part: part.increment_error(tool_name, agent_role))

    def record_duration(self, tool_name: str, agent_role: str, seconds: float) -> None:
        """Record the duration of a call."""
        self._call_each(lambda part: part.record_duration(tool_name, agent_role, seconds))

    def increment_counter(
        self, name: str, tool_name: str, agent_role: str, amount: int = 1, tags: Tags | None = None
    ) -> None:
        """Add to a custom counter of the tool."""
        self._call_each(lambda part: _call(part.increment_counter, name, tool_name, agent_role, amount, tags))

    def record_value(self, name: str, tool_name: str, agent_role: str, value: float, tags: Tags | None = None) -> None:
        """Record a custom value of the tool."""
        self._call_each(lambda part: _call(part.record_value, name, tool_name, agent_role, value, tags))

    def _call_each(self, call: Callable[[ToolMetrics], None]) -> None:
        with ExitStack() as stack:  # calls all, then raises the exception of one that failed
            for part in reversed(self.parts):
                stack.callback(call, part)


def accept_tags(metrics: ToolMetrics) -> ToolMetrics:
    """Return metrics whose methods take tags; methods without tags are called without them.

    >>> metrics = InMemoryMetrics()
    >>> accept_tags(metrics) is metrics
    True
    """
    takes_tags = _takes_tags(metrics.increment_counter) and _takes_tags(metrics.record_value)
    return metrics if takes_tags else CombinedMetrics(metrics)


def _call(method: Callable[..., object], name: str, tool_name: str, agent_role: str, amount: Any, tags: Any) -> None:
    """Call a method for a custom metric; without tags, if its signature predates them."""
    if tags and _takes_tags(method):
        method(name, tool_name, agent_role, amount, tags=tags)
    else:
        method(name, tool_name, agent_role, amount)


def _takes_tags(method: Callable[..., object]) -> bool:
    try:
        inspect.signature(method).bind("name", "tool", "role", 1, tags={})
    except TypeError:
        return False
    except ValueError:
        return True  # its signature is unknown
    return True


def combine_metrics(known: ToolMetrics, added: ToolMetrics) -> ToolMetrics:
    """Return metrics that record in both; without duplicates, so that nothing is counted twice.

    >>> metrics = InMemoryMetrics()
    >>> combine_metrics(metrics, metrics) is metrics
    True
    """
    if known is added or isinstance(known, SilentMetrics):
        return added
    parts = known.parts if isinstance(known, CombinedMetrics) else (known,)
    return known if any(part is added for part in parts) else CombinedMetrics(*parts, added)
