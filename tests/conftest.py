"""Fixtures that many tests use."""

from stopped_clock import clock, stopped_clock

__all__ = ["clock", "stopped_clock"]
