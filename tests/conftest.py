"""Fixtures that many tests use."""

from stopped_clock import clock

__all__ = ["clock"]
