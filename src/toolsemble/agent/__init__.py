"""Agents: a loop in which a model calls tools until it can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.agent.agent import Agent as Agent
    from toolsemble.agent.budget import Limits as Limits, Prices as Prices, Usage as Usage
    from toolsemble.agent.event import (
        CallReplied as CallReplied,
        CallRequested as CallRequested,
        Event as Event,
        Final as Final,
        ModelRetried as ModelRetried,
        TurnEnded as TurnEnded,
    )
    from toolsemble.agent.event_json import event_from_json as event_from_json, event_to_json as event_to_json
    from toolsemble.agent.loop_guard import LoopGuard as LoopGuard
    from toolsemble.agent.memory import ConversationMemory as ConversationMemory
    from toolsemble.agent.result import (
        AgentResult as AgentResult,
        ToolCallRecord as ToolCallRecord,
        TraceStep as TraceStep,
    )
    from toolsemble.agent.retry import Retry as Retry
    from toolsemble.agent.settings import RunView as RunView
    from toolsemble.events import (
        CacheHit as CacheHit,
        CallAbandoned as CallAbandoned,
        CallFinished as CallFinished,
        CallProgress as CallProgress,
        CallRepaired as CallRepaired,
        CallRetried as CallRetried,
        CallStarted as CallStarted,
        CallTimedOut as CallTimedOut,
        ReviewDecided as ReviewDecided,
        ReviewRequested as ReviewRequested,
    )
    from toolsemble.models.chat import ArgumentsDelta as ArgumentsDelta, CallDelta as CallDelta, TextDelta as TextDelta

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "agent": ("Agent",),
        "budget": ("Limits", "Prices", "Usage"),
        "event": ("CallReplied", "CallRequested", "Event", "Final", "ModelRetried", "TurnEnded"),
        "event_json": ("event_from_json", "event_to_json"),
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
