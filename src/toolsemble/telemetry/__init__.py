"""Sinks and metrics: a trace file, lines on the console, OpenTelemetry, Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import loader

if TYPE_CHECKING:
    from toolsemble.telemetry.console import ConsoleSink
    from toolsemble.telemetry.meters import OpenTelemetryMetrics
    from toolsemble.telemetry.otel import OpenTelemetry
    from toolsemble.telemetry.prometheus import PrometheusMetrics
    from toolsemble.telemetry.trace import CallTrace, Trace, TraceFile, Unreadable, read_trace

__all__ = [
    "CallTrace",
    "ConsoleSink",
    "OpenTelemetry",
    "OpenTelemetryMetrics",
    "PrometheusMetrics",
    "Trace",
    "TraceFile",
    "Unreadable",
    "read_trace",
]

__getattr__ = loader(
    globals(),
    {
        "console": ("ConsoleSink",),
        "meters": ("OpenTelemetryMetrics",),
        "otel": ("OpenTelemetry",),
        "prometheus": ("PrometheusMetrics",),
        "trace": ("CallTrace", "Trace", "TraceFile", "Unreadable", "read_trace"),
    },
)
