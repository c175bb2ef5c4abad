"""The counts of calls as OpenTelemetry metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolsemble.runtime.extras import import_extra
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.runtime.text import preview
from toolsemble.telemetry.names import Names

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_ROLE = 100  # how many characters of a role are shown
_NOBODY = "unknown"
_MOST_KNOWN = 2_000


class OpenTelemetryMetrics:
    """Metrics that are OpenTelemetry instruments: for ``Toolbox(metrics=...)``, where no spans are wanted.

    Calls are ``toolsemble.tool.executions`` and ``gen_ai.execute_tool.duration``; a counter is
    ``toolsemble.tool.<name>``, a value ``toolsemble.tool.<name>.value``.

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
        """Make the instruments; refuse to go on without the package.

        :param meter_provider: who makes them; by default the one of the process
        """
        meters = import_extra("opentelemetry.metrics", extra="otel", user="OpenTelemetryMetrics")
        self._meter = meters.get_meter("toolsemble", meter_provider=meter_provider)
        self._names = Names()
        self._lock = fork_safe_lock(self)
        self._instruments: dict[str, Any] = {}
        self._known: dict[tuple[str, str, str], dict[str, str]] = {}
        self._executions = self._meter.create_counter(
            "toolsemble.tool.executions", "{call}", "Calls of tools, by how they ended"
        )
        self._durations = self._meter.create_histogram(
            "gen_ai.execute_tool.duration",
            "s",
            "How long calls of tools took, without the time of reviewers",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

    def increment_success(self, tool_name: str, agent_role: str) -> None:
        """Count a call that succeeded."""
        self._executions.add(1, self._attributes(tool_name, agent_role, "success"))

    def increment_failure(self, tool_name: str, agent_role: str) -> None:
        """Count a call that gave a failed result."""
        self._executions.add(1, self._attributes(tool_name, agent_role, "failure"))

    def increment_error(self, tool_name: str, agent_role: str) -> None:
        """Count a call whose tool raised an exception."""
        self._executions.add(1, self._attributes(tool_name, agent_role, "error"))

    def record_duration(self, tool_name: str, agent_role: str, seconds: float) -> None:
        """Take down how long a call took."""
        self._durations.record(seconds, self._attributes(tool_name, agent_role))

    def increment_counter(self, name: str, tool_name: str, agent_role: str, amount: int = 1) -> None:
        """Add to a counter of the tool's own."""
        known = f"toolsemble.tool.{self._names.of(name)}"
        if known == "toolsemble.tool.executions":
            known = "toolsemble.tool.executions.own"  # of another kind than ours
        self._instrument(known, self._meter.create_counter).add(amount, self._attributes(tool_name, agent_role))

    def record_value(self, name: str, tool_name: str, agent_role: str, value: float) -> None:
        """Take down a value of the tool's own."""
        known = f"toolsemble.tool.{self._names.of(name)}.value"
        self._instrument(known, self._meter.create_histogram).record(value, self._attributes(tool_name, agent_role))

    def _instrument(self, name: str, create: Callable[[str], Any]) -> Any:
        made = self._instruments.get(name)
        if made is None:
            with self._lock:
                made = self._instruments.setdefault(name, create(name))
        return made

    def _attributes(self, tool_name: str, agent_role: str, outcome: str = "") -> dict[str, str]:
        """Give the attributes of a count: they are the same for all calls of a tool."""
        key = tool_name, agent_role, outcome
        known = self._known.get(key)
        if known is None:
            known = _written(*key)
            if len(self._known) < _MOST_KNOWN:  # roles may be made of what models write
                self._known[key] = known
        return known


def _written(tool_name: str, agent_role: str, outcome: str) -> dict[str, str]:
    attributes = {"gen_ai.tool.name": tool_name}
    if outcome:
        attributes["outcome"] = outcome
    if agent_role != _NOBODY:
        attributes["gen_ai.agent.name"] = preview(agent_role, _ROLE)
    return attributes
