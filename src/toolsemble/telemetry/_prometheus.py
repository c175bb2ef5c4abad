"""Metrics of calls and model requests for Prometheus."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.metrics import Tags
from toolsemble._runtime.sinks import ScopedSink
from toolsemble._runtime.text import preview
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.telemetry._names import DURATION_BUCKETS, MetricNames

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LOGGER = logging.getLogger("toolsemble.metrics")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

_LABELS = ("tool_name", "agent_role")
_MAX_LABEL = 100  # maximum characters of a label
_OTHER = "(other)"  # not a valid tool name


class PrometheusMetrics(ScopedSink):
    """Metrics that a Prometheus server can scrape; instances on the same registry share their collectors.

    Calls are ``toolsemble_tool_executions_total`` by ``outcome``, and ``toolsemble_tool_duration_seconds``. A counter
    is ``toolsemble_tool_<name>_total``, a value ``toolsemble_tool_<name>_value``; invalid characters become
    underscores. Each has the labels ``tool_name`` and ``agent_role``.

    As a sink, ``Agent(..., sinks=[PrometheusMetrics()])``, it counts the calls and also the model requests, as
    ``toolsemble_model_tokens_total`` by ``type``, ``toolsemble_model_duration_seconds`` and
    ``toolsemble_model_cost_total``, each with the label ``model``.

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
        """Register the collectors, or reuse existing ones; raise an error if the package is not installed.

        :param registry: the registry; default: the process's registry
        """
        client = import_extra("prometheus_client", extra="prometheus", user="PrometheusMetrics")
        self._registry = client.REGISTRY if registry is None else registry
        self._collectors = _REGISTRIES.get(client, self._registry)

    @property
    def metrics(self) -> PrometheusMetrics:  # type: ignore[override]  # they cannot be replaced
        """The metrics themselves: as a sink, they also count calls."""
        return self

    def emit(self, event: Any) -> None:
        """Count a model reply; other events are counted as calls."""
        if event.kind == "model_replied":
            self._collectors.add_reply(event)

    def increment_success(self, tool_name: str, agent_role: str) -> None:
        """Count a call that succeeded."""
        self._collectors.executions(tool_name, agent_role, "success").inc()

    def increment_failure(self, tool_name: str, agent_role: str) -> None:
        """Count a call with a failed result."""
        self._collectors.executions(tool_name, agent_role, "failure").inc()

    def increment_error(self, tool_name: str, agent_role: str) -> None:
        """Count a call whose tool raised an exception."""
        self._collectors.executions(tool_name, agent_role, "error").inc()

    def record_duration(self, tool_name: str, agent_role: str, seconds: float) -> None:
        """Record the duration of a call."""
        self._collectors.durations(tool_name, agent_role).observe(seconds)

    def increment_counter(
        self, name: str, tool_name: str, agent_role: str, amount: int = 1, tags: Tags | None = None
    ) -> None:
        """Add to a custom counter of a tool."""
        if amount < 0:
            LOGGER.warning("A counter cannot decrease; ignored %d for %s", amount, preview(name))
            return
        self._collectors.counter(name, tags or {}).tagged(tool_name, agent_role, tags or {}).inc(amount)

    def record_value(self, name: str, tool_name: str, agent_role: str, value: float, tags: Tags | None = None) -> None:
        """Record a custom value of a tool."""
        self._collectors.value(name, tags or {}).tagged(tool_name, agent_role, tags or {}).observe(value)


class _Collectors:
    """The collectors of one registry."""

    def __init__(self, client: Any, registry: CollectorRegistry) -> None:
        self._client = client
        self._lock = fork_safe_lock(self)
        self._registry = ref(registry)  # a strong reference would keep the registry alive
        self._names = MetricNames()
        self._custom: dict[tuple[str, str], _Family] = {}
        about = "Calls of tools by outcome"
        self.executions = self._register(client.Counter, "executions", about, (*_LABELS, "outcome"))
        about, buckets = "Duration of calls of tools, without review time", DURATION_BUCKETS
        self.durations = self._register(client.Histogram, "duration_seconds", about, _LABELS, buckets=buckets)
        about, model = "Tokens of model requests and replies", {"family": "model"}
        self._tokens = self._register(client.Counter, "tokens", about, ("model", "type"), **model)
        about = "Duration of model requests, including retries"
        self._requests = self._register(
            client.Histogram, "duration_seconds", about, ("model",), buckets=buckets, **model
        )
        about = "Price of the tokens, where it is known"
        self._cost = self._register(client.Counter, "cost", about, ("model",), **model)

    def add_reply(self, event: Any) -> None:
        """Count the tokens, duration and price of a model reply."""
        self._requests(event.model).observe(event.duration)
        if event.usage is not None:
            self._tokens(event.model, "input").inc(event.usage.input)
            self._tokens(event.model, "output").inc(event.usage.output)
        if event.cost:
            self._cost(event.model).inc(event.cost)

    def counter(self, name: str, tags: Tags) -> _Family:
        """Return the counter of a name."""
        # The suffix is added to every counter, and would be duplicated.
        clean = self._names.clean(name.removesuffix("_total"))
        return self._get_or_create(self._client.Counter, clean, "", "Custom counter of tools", tuple(tags))

    def value(self, name: str, tags: Tags) -> _Family:
        """Return the summary of the values of a name."""
        clean = self._names.clean(name)
        return self._get_or_create(self._client.Summary, clean, "_value", "Custom value of tools", tuple(tags))

    def _get_or_create(self, kind: Any, name: str, suffix: str, description: str, tags: tuple[str, ...]) -> _Family:
        family = self._custom.get((name, suffix))
        if family is None:
            with self._lock:
                family = self._custom.get((name, suffix)) or self._create(kind, name + suffix, description, tags)
                self._custom[name, suffix] = family
        return family

    def _create(self, kind: Any, name: str, description: str, tags: tuple[str, ...], number: int = 1) -> _Family:
        known = tags[:_MOST_TAGS]
        labels = (*_LABELS, *_name_labels(known))
        try:
            family = self._register(kind, name if number == 1 else f"{name}_{number}", description, labels)
        except ToolDefinitionError:
            # The name is taken by another collector, which must not fail the tool.
            return self._create(kind, name, description, tags, number + 1)
        family.tags = known
        return family

    def _register(
        self, kind: Any, name: str, description: str, labels: tuple[str, ...], family: str = "tool", **more: Any
    ) -> _Family:
        try:
            collector = kind(f"toolsemble_{family}_{name}", description, labels, registry=self._registry(), **more)
        except ValueError as problem:
            raise ToolDefinitionError(
                f"The registry has a foreign collector: {problem}; pass another registry to PrometheusMetrics"
            ) from None
        return _Family(collector, len(labels))


class _Family:
    """A collector with children for labels, up to a maximum number; any more share one child."""

    __slots__ = ("_children", "_collector", "_most", "_rest", "tags")

    def __init__(self, collector: Any, labels: int, most: int = 2_000) -> None:
        self._collector = collector
        self._most = most
        self._rest = (_OTHER,) * min(labels, len(_LABELS))
        self._children: dict[tuple[str, ...], Any] = {}
        self.tags: tuple[str, ...] = ()
        """A custom collector's tags, from its first use; others are dropped."""

    def tagged(self, tool_name: str, agent_role: str, tags: Tags) -> Any:
        """Return the child for a tool, a role and tags."""
        values = [str(tags.get(each, "")) for each in self.tags]
        if values and len(self._children) >= self._most and (tool_name, agent_role, *values) not in self._children:
            values = [_OTHER] * len(values)  # values of tags may be anything
        return self(tool_name, agent_role, *values)

    def __call__(self, *labels: str) -> Any:
        """Return the child for these labels."""
        # Cached here, because the collector takes a lock that a scrape holds.
        child = self._children.get(labels)
        if child is None:
            if len(self._children) >= self._most:
                return self._collector.labels(*self._rest, *labels[len(_LABELS) :])
            child = self._children[labels] = self._collector.labels(*(preview(each, _MAX_LABEL) for each in labels))
        return child


def _name_labels(tags: tuple[str, ...]) -> list[str]:
    """Return the labels of tags: distinct, and not reserved by Prometheus or the library."""
    taken = {*_LABELS, "outcome", "le", "quantile", ""}
    labels: list[str] = []
    for index, tag in enumerate(tags):
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", str(tag)[:_MAX_LABEL]).strip("_")
        if plain in taken or plain[0].isdigit():
            plain = f"tag{index}_{plain}"
        taken.add(plain)
        labels.append(plain)
    return labels


class _Registries:
    """The collectors of all live registries."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._known: WeakKeyDictionary[CollectorRegistry, _Collectors] = WeakKeyDictionary()

    def get(self, client: Any, registry: CollectorRegistry) -> _Collectors:
        """Return the collectors of a registry; create them on first use."""
        with self._lock:
            known = self._known.get(registry)
            if known is None:
                known = self._known[registry] = _Collectors(client, registry)
        return known


_MOST_TAGS = 10
_REGISTRIES = _Registries()
