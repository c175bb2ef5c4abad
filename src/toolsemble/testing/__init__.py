"""Test utilities for agents and tools: scripted models and reviewers, recordings, faults, and a fuzzer.

>>> ScriptedModel(["hello"]).requests
[]
"""

from __future__ import annotations

from toolsemble.metrics import InMemoryMetrics
from toolsemble.models.function import FunctionModel
from toolsemble.models.recorded import RecordedModel
from toolsemble.models.scripted import ScriptedModel
from toolsemble.review.automatic import AutoApprove, AutoReject, CallbackReview
from toolsemble.testing.cassette import Cassette
from toolsemble.testing.clock import FixedClock
from toolsemble.testing.faults import Fault, Faults, Injected
from toolsemble.testing.fuzz import FuzzReport, fuzz
from toolsemble.testing.probe import Crash
from toolsemble.testing.reviewer import FakeReviewer
from toolsemble.testing.sink import RecordingSink

__all__ = [
    "AutoApprove",
    "AutoReject",
    "CallbackReview",
    "Cassette",
    "Crash",
    "FakeReviewer",
    "Fault",
    "Faults",
    "FixedClock",
    "FunctionModel",
    "FuzzReport",
    "InMemoryMetrics",
    "Injected",
    "RecordedModel",
    "RecordingSink",
    "ScriptedModel",
    "fuzz",
]
