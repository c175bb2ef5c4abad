"""The counts of calls for Prometheus."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from toolsemble.errors import ToolDefinitionError
from toolsemble.runtime.extras import import_extra
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.runtime.text import preview
from toolsemble.telemetry.names import Names

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LOGGER = logging.getLogger("toolsemble.metrics")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_LABELS = ("tool_name", "agent_role")
_SHOWN = 100  # how many characters of a label are shown
_OTHER = "(other)"  # no tool can have this name


class PrometheusMetrics:
    """Metrics that a Prometheus server can scrape; those on one registry are one.

    Calls are ``toolsemble_tool_executions_total`` by ``outcome``, and ``toolsemble_tool_duration_seconds``. A counter
    is ``toolsemble_tool_<name>_total``, a value ``toolsemble_tool_<name>_value``; characters that such names cannot
    have are underscores. Each has the labels ``tool_name`` and ``agent_role``.

    >>> from prometheus_client import CollectorRegistry
    >>> from toolsemble import Toolbox, ToolCall, tool
    >>> @tool
    ... def shout(text: str) -> str:
    ...     '''Says it louder.'''
    ...     return text.upper()
    >>> registry = CollectorRegistry()
    >>> reply = Toolbox([shout], metrics=PrometheusMetrics(registry)).execute(ToolCall("shout", {"text": "hello"}))
    >>> labels = {"tool_name": "shout", "agent_role": "unknown", "outcome": "success"}
    >>> registry.get_sample_value("toolsemble_tool_executions_total", labels)
    1.0
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register the collectors, or take those that are there; refuse to go on without the package.

        :param registry: where; by default the one of the process
        """
        client = import_extra("prometheus_client", extra="prometheus", user="PrometheusMetrics")
        self._registry = client.REGISTRY if registry is None else registry
        self._shelf = _SHELVES.of(client, self._registry)

    def increment_success(self, tool_name: str, agent_role: str) -> None:
        """Count a call that succeeded."""
        self._shelf.executions(tool_name, agent_role, "success").inc()

    def increment_failure(self, tool_name: str, agent_role: str) -> None:
        """Count a call that gave a failed result."""
        self._shelf.executions(tool_name, agent_role, "failure").inc()

    def increment_error(self, tool_name: str, agent_role: str) -> None:
        """Count a call whose tool raised an exception."""
        self._shelf.executions(tool_name, agent_role, "error").inc()

    def record_duration(self, tool_name: str, agent_role: str, seconds: float) -> None:
        """Take down how long a call took."""
        self._shelf.durations(tool_name, agent_role).observe(seconds)

    def increment_counter(self, name: str, tool_name: str, agent_role: str, amount: int = 1) -> None:
        """Add to a counter of the tool's own."""
        if amount < 0:
            LOGGER.warning("A counter cannot go down, so that %d of %s was left out", amount, preview(name))
            return
        self._shelf.counter(name)(tool_name, agent_role).inc(amount)

    def record_value(self, name: str, tool_name: str, agent_role: str, value: float) -> None:
        """Take down a value of the tool's own."""
        self._shelf.value(name)(tool_name, agent_role).observe(value)


class _Shelf:
    """The collectors of one registry."""

    def __init__(self, client: Any, registry: CollectorRegistry) -> None:
        self._client = client
        self._lock = fork_safe_lock(self)
        self._registry = ref(registry)  # what is kept for a registry must not keep the registry
        self._names = Names()
        self._own: dict[tuple[str, str], _Family] = {}
        about = "Calls of tools, by how they ended"
        self.executions = self._family(client.Counter, "executions", about, (*_LABELS, "outcome"))
        about = "How long calls of tools took, without the time of reviewers"
        self.durations = self._family(client.Histogram, "duration_seconds", about, _LABELS, buckets=_BUCKETS)

    def counter(self, name: str) -> _Family:
        """Give the counter of a name."""
        # The ending is added to every counter, and would stand there twice.
        return self._kept(self._client.Counter, self._names.of(name.removesuffix("_total")), "", "A counter of tools")

    def value(self, name: str) -> _Family:
        """Give the values of a name."""
        return self._kept(self._client.Summary, self._names.of(name), "_value", "Values that tools recorded")

    def _kept(self, kind: Any, name: str, ending: str, about: str) -> _Family:
        made = self._own.get((name, ending))
        if made is None:
            with self._lock:
                made = self._own.get((name, ending)) or self._made(kind, name + ending, about)
                self._own[name, ending] = made
        return made

    def _made(self, kind: Any, name: str, about: str, number: int = 1) -> _Family:
        try:
            return self._family(kind, name if number == 1 else f"{name}_{number}", about, _LABELS)
        except ToolDefinitionError:
            # Taken by a collector of another kind, or of somebody else; a tool that counts must not fail for that.
            return self._made(kind, name, about, number + 1)

    def _family(self, kind: Any, name: str, about: str, labels: tuple[str, ...], **more: Any) -> _Family:
        try:
            collector = kind(f"toolsemble_tool_{name}", about, labels, registry=self._registry(), **more)
        except ValueError as problem:
            raise ToolDefinitionError(
                f"The registry has a collector that is not ours: {problem}; pass another registry to PrometheusMetrics"
            ) from None
        return _Family(collector, len(labels))


class _Family:
    """One collector: gives the part for some labels, up to a number; all further ones are one part."""

    __slots__ = ("_collector", "_most", "_parts", "_rest")

    def __init__(self, collector: Any, labels: int, most: int = 2_000) -> None:
        self._collector = collector
        self._most = most
        self._rest = (_OTHER,) * min(labels, len(_LABELS))
        self._parts: dict[tuple[str, ...], Any] = {}

    def __call__(self, *labels: str) -> Any:
        """Give what counts for these labels."""
        # Kept here, too: asking the collector takes a lock that a scrape holds.
        part = self._parts.get(labels)
        if part is None:
            if len(self._parts) >= self._most:
                return self._collector.labels(*self._rest, *labels[len(_LABELS) :])
            part = self._parts[labels] = self._collector.labels(*(preview(each, _SHOWN) for each in labels))
        return part


class _Shelves:
    """The collectors of all registries, for as long as those live."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._made: WeakKeyDictionary[CollectorRegistry, _Shelf] = WeakKeyDictionary()

    def of(self, client: Any, registry: CollectorRegistry) -> _Shelf:
        """Give the collectors of a registry, which are made once."""
        with self._lock:
            known = self._made.get(registry)
            if known is None:
                known = self._made[registry] = _Shelf(client, registry)
        return known


_SHELVES = _Shelves()
