"""Metrics of calls as OpenTelemetry instruments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.metrics import Tags
from toolsemble._runtime.text import preview
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble.telemetry._names import DURATION_BUCKETS, TOKEN_BUCKETS, MetricNames

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from toolsemble.events import ModelReplied

_MAX_ROLE = 100  # maximum characters of a role
_NO_ROLE = "unknown"
_MOST_KNOWN = 2_000


class OpenTelemetryMetrics:
    """Metrics as OpenTelemetry instruments, for ``Toolbox(metrics=...)`` without spans.

    Calls are ``toolsemble.tool.executions`` and ``gen_ai.execute_tool.duration``; a counter is
    ``toolsemble.tool.<name>``, a value ``toolsemble.tool.<name>.value``. Model requests are
    ``gen_ai.client.token.usage``, ``gen_ai.client.operation.duration`` and ``toolsemble.model.cost``.

    >>> from opentelemetry.sdk.metrics import MeterProvider
    >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    >>> reader = InMemoryMetricReader()
    >>> provider = MeterProvider([reader])
    >>> OpenTelemetryMetrics(provider).increment_counter("pages", "scrape", "unknown", 3)
    >>> metric = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics[0]
    >>> metric.name, metric.data.data_points[0].value
    ('toolsemble.tool.pages', 3)
    >>> provider.shutdown()
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        """Create the instruments; raise an error if the package is not installed.

        :param meter_provider: creates the instruments; by default the provider of the process
        """
        meters = import_extra("opentelemetry.metrics", extra="otel", user="OpenTelemetryMetrics")
        self._meter = meters.get_meter("toolsemble", meter_provider=meter_provider)
        self._names = MetricNames()
        self._lock = fork_safe_lock(self)
        self._instruments: dict[str, Any] = {}
        self._known: dict[tuple[str, str, str], dict[str, str]] = {}
        self._executions = self._meter.create_counter(
            "toolsemble.tool.executions", "{call}", "Calls of tools by outcome"
        )
        self._durations = self._meter.create_histogram(
            "gen_ai.execute_tool.duration",
            "s",
            "Duration of calls of tools, without review time",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )
        self._tokens = self._meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of model requests and replies",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self._requests = self._meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of model requests, including retries",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )
        self._cost = self._meter.create_counter("toolsemble.model.cost", "1", "Price of the tokens, where it is known")

    def record_reply(self, event: ModelReplied) -> None:
        """Record the tokens, the duration and the price of a reply of a model."""
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": preview(event.model, _MAX_ROLE)}
        self._requests.record(event.duration, attributes)
        if event.usage is not None:
            self._tokens.record(event.usage.input, {**attributes, "gen_ai.token.type": "input"})
            self._tokens.record(event.usage.output, {**attributes, "gen_ai.token.type": "output"})
        if event.cost:
            self._cost.add(event.cost, attributes)

    def increment_success(self, tool_name: str, agent_role: str) -> None:
        """Count a call that succeeded."""
        self._executions.add(1, self._attributes(tool_name, agent_role, "success"))

    def increment_failure(self, tool_name: str, agent_role: str) -> None:
        """Count a call with a failed result."""
        self._executions.add(1, self._attributes(tool_name, agent_role, "failure"))

    def increment_error(self, tool_name: str, agent_role: str) -> None:
        """Count a call whose tool raised an exception."""
        self._executions.add(1, self._attributes(tool_name, agent_role, "error"))

    def record_duration(self, tool_name: str, agent_role: str, seconds: float) -> None:
        """Record the duration of a call."""
        self._durations.record(seconds, self._attributes(tool_name, agent_role))

    def increment_counter(
        self, name: str, tool_name: str, agent_role: str, amount: int = 1, tags: Tags | None = None
    ) -> None:
        """Add to a custom counter of a tool."""
        known = f"toolsemble.tool.{self._names.clean(name)}"
        if known == "toolsemble.tool.executions":
            known = "toolsemble.tool.executions.own"  # the built-in counter has other attributes
        self._instrument(known, self._meter.create_counter).add(amount, self._tagged(tool_name, agent_role, tags))

    def record_value(self, name: str, tool_name: str, agent_role: str, value: float, tags: Tags | None = None) -> None:
        """Record a custom value of a tool."""
        known = f"toolsemble.tool.{self._names.clean(name)}.value"
        self._instrument(known, self._meter.create_histogram).record(value, self._tagged(tool_name, agent_role, tags))

    def _instrument(self, name: str, create: Callable[[str], Any]) -> Any:
        instrument = self._instruments.get(name)
        if instrument is None:
            with self._lock:
                instrument = self._instruments.setdefault(name, create(name))
        return instrument

    def _tagged(self, tool_name: str, agent_role: str, tags: Tags | None) -> dict[str, str]:
        """Return the attributes of a custom measurement; tags cannot replace those of the library."""
        known = self._attributes(tool_name, agent_role)
        if not tags:
            return known
        return {preview(str(name), _MAX_ROLE): preview(str(value), _MAX_ROLE) for name, value in tags.items()} | known

    def _attributes(self, tool_name: str, agent_role: str, outcome: str = "") -> dict[str, str]:
        """Return the attributes of a measurement, cached for all calls of a tool."""
        key = tool_name, agent_role, outcome
        known = self._known.get(key)
        if known is None:
            known = _build_attributes(*key)
            if len(self._known) < _MOST_KNOWN:  # roles may contain text of models, so their number is unbounded
                self._known[key] = known
        return known


def _build_attributes(tool_name: str, agent_role: str, outcome: str) -> dict[str, str]:
    attributes = {"gen_ai.tool.name": tool_name}
    if outcome:
        attributes["outcome"] = outcome
    if agent_role != _NO_ROLE:
        attributes["gen_ai.agent.name"] = preview(agent_role, _MAX_ROLE)
    return attributes
