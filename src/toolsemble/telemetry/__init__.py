"""Sinks and metrics: a trace file, a history of runs, lines on the console, OpenTelemetry, Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble._runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble._runtime.sinks import BatchSink as BatchSink, ScopedSink as ScopedSink, Sink as Sink
    from toolsemble.telemetry._console import ConsoleSink as ConsoleSink
    from toolsemble.telemetry._history import RunHistory as RunHistory
    from toolsemble.telemetry._history_records import (
        AgentRun as AgentRun,
        CallSummary as CallSummary,
        HistoryEvent as HistoryEvent,
        ReviewSummary as ReviewSummary,
        RunState as RunState,
        RunSummary as RunSummary,
        TurnSummary as TurnSummary,
    )
    from toolsemble.telemetry._otel import OpenTelemetry as OpenTelemetry, OpenTelemetryMetrics as OpenTelemetryMetrics
    from toolsemble.telemetry._prometheus import PrometheusMetrics as PrometheusMetrics
    from toolsemble.telemetry._trace_file import (
        CallTrace as CallTrace,
        Trace as Trace,
        TraceFile as TraceFile,
        Unreadable as Unreadable,
        read_trace as read_trace,
    )

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "._runtime.sinks": ("BatchSink", "ScopedSink", "Sink"),
        "_console": ("ConsoleSink",),
        "_history": ("RunHistory",),
        "_history_records": (
            "AgentRun",
            "CallSummary",
            "HistoryEvent",
            "ReviewSummary",
            "RunState",
            "RunSummary",
            "TurnSummary",
        ),
        "_otel": ("OpenTelemetry", "OpenTelemetryMetrics"),
        "_prometheus": ("PrometheusMetrics",),
        "_trace_file": ("CallTrace", "Trace", "TraceFile", "Unreadable", "read_trace"),
    },
)
