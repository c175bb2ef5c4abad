"""What tests of agents and tools need: models that say what they are told to say.

>>> ScriptedModel(["hello"]).requests
[]
"""

from __future__ import annotations

from toolsemble.metrics import InMemoryMetrics
from toolsemble.models.function import FunctionModel
from toolsemble.models.recorded import RecordedModel
from toolsemble.models.scripted import ScriptedModel
from toolsemble.review.automatic import AutoApprove, AutoReject, CallbackReview

__all__ = [
    "AutoApprove",
    "AutoReject",
    "CallbackReview",
    "FunctionModel",
    "InMemoryMetrics",
    "RecordedModel",
    "ScriptedModel",
]
