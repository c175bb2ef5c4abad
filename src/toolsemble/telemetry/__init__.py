"""Sinks that are ready to use: a run's trace in a file, a line for each event on the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.lazy import loader

if TYPE_CHECKING:
    from toolsemble.telemetry.console import ConsoleSink
    from toolsemble.telemetry.trace import CallTrace, Trace, TraceFile, Unreadable, read_trace

__all__ = ["CallTrace", "ConsoleSink", "Trace", "TraceFile", "Unreadable", "read_trace"]

__getattr__ = loader(
    globals(),
    {
        "console": ("ConsoleSink",),
        "trace": ("CallTrace", "Trace", "TraceFile", "Unreadable", "read_trace"),
    },
)
