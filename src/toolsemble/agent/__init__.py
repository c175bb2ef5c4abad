"""Agents: a loop in which a model calls tools until it can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import loader

if TYPE_CHECKING:
    from toolsemble.agent.agent import Agent
    from toolsemble.agent.budget import Limits, Prices, Usage
    from toolsemble.agent.event import CallReplied, CallRequested, Event, Final, ModelRetried, TurnEnded
    from toolsemble.agent.loop_guard import LoopGuard
    from toolsemble.agent.memory import ConversationMemory
    from toolsemble.agent.result import AgentResult, ToolCallRecord, TraceStep
    from toolsemble.agent.retry import Retry
    from toolsemble.agent.settings import RunView
    from toolsemble.events import (
        CacheHit,
        CallAbandoned,
        CallFinished,
        CallProgress,
        CallRepaired,
        CallRetried,
        CallStarted,
        CallTimedOut,
        ReviewDecided,
        ReviewRequested,
    )
    from toolsemble.models.chat import ArgumentsDelta, CallDelta, TextDelta

__all__ = [
    "Agent",
    "AgentResult",
    "ArgumentsDelta",
    "CacheHit",
    "CallAbandoned",
    "CallDelta",
    "CallFinished",
    "CallProgress",
    "CallRepaired",
    "CallReplied",
    "CallRequested",
    "CallRetried",
    "CallStarted",
    "CallTimedOut",
    "ConversationMemory",
    "Event",
    "Final",
    "Limits",
    "LoopGuard",
    "ModelRetried",
    "Prices",
    "Retry",
    "ReviewDecided",
    "ReviewRequested",
    "RunView",
    "TextDelta",
    "ToolCallRecord",
    "TraceStep",
    "TurnEnded",
    "Usage",
]

__getattr__ = loader(
    globals(),
    {
        "agent": ("Agent",),
        "budget": ("Limits", "Prices", "Usage"),
        "event": ("CallReplied", "CallRequested", "Event", "Final", "ModelRetried", "TurnEnded"),
        "loop_guard": ("LoopGuard",),
        "memory": ("ConversationMemory",),
        "settings": ("RunView",),
        "result": ("AgentResult", "ToolCallRecord", "TraceStep"),
        "retry": ("Retry",),
        ".events": (
            "CacheHit",
            "CallAbandoned",
            "CallFinished",
            "CallProgress",
            "CallRepaired",
            "CallRetried",
            "CallStarted",
            "CallTimedOut",
            "ReviewDecided",
            "ReviewRequested",
        ),
        ".models.chat": ("ArgumentsDelta", "CallDelta", "TextDelta"),
    },
)
