"""Sinks and metrics: a trace file, lines on the console, OpenTelemetry, Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.telemetry.console import ConsoleSink as ConsoleSink
    from toolsemble.telemetry.meters import OpenTelemetryMetrics as OpenTelemetryMetrics
    from toolsemble.telemetry.otel import OpenTelemetry as OpenTelemetry
    from toolsemble.telemetry.prometheus import PrometheusMetrics as PrometheusMetrics
    from toolsemble.telemetry.trace import (
        CallTrace as CallTrace,
        Trace as Trace,
        TraceFile as TraceFile,
        Unreadable as Unreadable,
        read_trace as read_trace,
    )

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "console": ("ConsoleSink",),
        "meters": ("OpenTelemetryMetrics",),
        "otel": ("OpenTelemetry",),
        "prometheus": ("PrometheusMetrics",),
        "trace": ("CallTrace", "Trace", "TraceFile", "Unreadable", "read_trace"),
    },
)
