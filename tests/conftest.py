"""Fixtures that many tests use."""

import os

import pytest

# The programs that tests start have tools without a description, as the tests do themselves.
os.environ.setdefault("PYTHONWARNINGS", "ignore:Tool ")

pytest.register_assert_rewrite("helpers")

from helpers.stopped_clock import clock, stopped_clock  # noqa: E402 - what it asserts is shown in detail from here on

__all__ = ["clock", "impatient", "stopped_clock"]


@pytest.fixture
def impatient(monkeypatch):
    """Let calls wait for their sinks as long as they do outside of tests."""
    monkeypatch.setattr("toolsemble.observers.sinks.PATIENCE", 0.25)
