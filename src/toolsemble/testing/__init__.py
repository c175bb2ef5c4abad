"""Test utilities for agents and tools: scripted models and reviewers, recordings, faults, and a fuzzer.

>>> ScriptedModel(["hello"]).requests
[]
"""

from __future__ import annotations

from toolsemble._runtime.metrics import InMemoryMetrics
from toolsemble.models._recorded import RecordedModel
from toolsemble.models._scripted import FunctionModel, ScriptedModel
from toolsemble.review._automatic import AutoApprove, AutoReject, CallbackReview
from toolsemble.testing._cassette import Cassette
from toolsemble.testing._faults import Fault, Faults, Injected
from toolsemble.testing._fuzz import FuzzReport, fuzz
from toolsemble.testing._probe import Crash
from toolsemble.testing._stand_ins import FakeReviewer, FixedClock, RecordingSink

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
