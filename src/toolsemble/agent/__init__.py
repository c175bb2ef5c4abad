"""Agents: a loop in which a model calls tools until it can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble._runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.agent._agent import Agent as Agent
    from toolsemble.agent._budget import (
        Limits as Limits,
        Prices as Prices,
        StopReason as StopReason,
        Usage as Usage,
    )
    from toolsemble.agent._event import (
        CallReplied as CallReplied,
        CallRequested as CallRequested,
        Event as Event,
        Final as Final,
        ModelRetried as ModelRetried,
        RunCancelled as RunCancelled,
        RunInterrupted as RunInterrupted,
        RunParked as RunParked,
        RunStop as RunStop,
        TurnEnded as TurnEnded,
        event_from_json as event_from_json,
        event_to_json as event_to_json,
    )
    from toolsemble.agent._history_processors import (
        keep_last_turns as keep_last_turns,
        trim_to_tokens as trim_to_tokens,
    )
    from toolsemble.agent._memory import ConversationMemory as ConversationMemory
    from toolsemble.agent._options import (
        AgentSettings as AgentSettings,
        HistoryProcessor as HistoryProcessor,
        Instructions as Instructions,
        LoopGuard as LoopGuard,
        Retry as Retry,
        RunSettings as RunSettings,
        RunView as RunView,
    )
    from toolsemble.agent._result import (
        AgentResult as AgentResult,
        InnerRun as InnerRun,
        PausedRun as PausedRun,
        PendingCall as PendingCall,
        ToolCallRecord as ToolCallRecord,
        TraceStep as TraceStep,
    )
    from toolsemble.agent._summarize import summarize_earlier as summarize_earlier
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
    from toolsemble.models._chat import (
        ArgumentsDelta as ArgumentsDelta,
        CallDelta as CallDelta,
        PromptProgress as PromptProgress,
        TextDelta as TextDelta,
        ThoughtDelta as ThoughtDelta,
    )

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "_agent": ("Agent",),
        "_budget": (
            "Limits",
            "Prices",
            "StopReason",
            "Usage",
        ),
        "_event": (
            "CallReplied",
            "CallRequested",
            "Event",
            "Final",
            "ModelRetried",
            "RunCancelled",
            "RunInterrupted",
            "RunParked",
            "RunStop",
            "TurnEnded",
            "event_from_json",
            "event_to_json",
        ),
        "_options": (
            "AgentSettings",
            "HistoryProcessor",
            "Instructions",
            "LoopGuard",
            "Retry",
            "RunSettings",
            "RunView",
        ),
        "_memory": ("ConversationMemory",),
        "_history_processors": (
            "keep_last_turns",
            "trim_to_tokens",
        ),
        "_summarize": ("summarize_earlier",),
        "_result": (
            "AgentResult",
            "InnerRun",
            "PausedRun",
            "PendingCall",
            "ToolCallRecord",
            "TraceStep",
        ),
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
        ".models._chat": (
            "ArgumentsDelta",
            "CallDelta",
            "PromptProgress",
            "TextDelta",
            "ThoughtDelta",
        ),
    },
)
