"""Fixtures that many tests use."""

import pytest

from helpers.stopped_clock import clock, stopped_clock

__all__ = ["clock", "impatient", "stopped_clock"]


@pytest.fixture
def impatient(monkeypatch):
    """Let calls wait for their sinks as long as they do outside of tests."""
    monkeypatch.setattr("toolsemble.observers.sinks.PATIENCE", 0.25)
