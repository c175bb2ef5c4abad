"""What those who follow a run are told, as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from toolsemble import events
from toolsemble.agent.result import AgentResult, ToolCallRecord
from toolsemble.call import ToolCall
from toolsemble.models.chat import ArgumentsDelta, CallDelta, TextDelta
from toolsemble.models.message import AssistantMessage


@dataclass(frozen=True, slots=True)
class CallRequested:
    """The model has asked for a call, which is run next.

    >>> CallRequested(ToolCall("now")).call.name
    'now'
    """

    call: ToolCall
    """The whole call."""
    kind: ClassVar[str] = "call_requested"


@dataclass(frozen=True, slots=True)
class CallReplied:
    """A call has its reply; calls that run side by side are told of in the order in which they end.

    >>> from toolsemble import ToolReply, ToolResult
    >>> reply = ToolReply(ToolCall("now"), ToolResult.success("noon"))
    >>> CallReplied(ToolCallRecord(reply.call, reply)).record.reply.text
    'noon'
    """

    record: ToolCallRecord
    """The call and its reply."""
    kind: ClassVar[str] = "call_replied"


@dataclass(frozen=True, slots=True)
class ModelRetried:
    """The model failed, or the time of the run was up, and it is asked again; what it sent before does not count.

    >>> ModelRetried("Too many requests", 2.5).seconds
    2.5
    """

    reason: str
    """What went wrong."""
    seconds: float
    """How long the run waits before it asks again."""
    kind: ClassVar[str] = "model_retried"


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The model has spoken, and its calls have their replies.

    >>> TurnEnded(AssistantMessage("Rome")).tool_calls
    ()
    """

    message: AssistantMessage
    """What the model said."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """Its calls, in the order in which it asked for them."""
    kind: ClassVar[str] = "turn_ended"


@dataclass(frozen=True, slots=True)
class Final:
    """The run has ended well; always the last event.

    >>> Final(AgentResult("Rome")).result.text
    'Rome'
    """

    result: AgentResult
    """What came of it."""
    kind: ClassVar[str] = "final"


Event: TypeAlias = (
    TextDelta
    | CallDelta
    | ArgumentsDelta
    | CallRequested
    | CallReplied
    | ModelRetried
    | TurnEnded
    | Final
    | events.Event
)
"""Anything that a stream gives; each has a ``kind``, for those who write it down.

A call that the model asked for is requested and replied to; only calls inside of it are started and finished.
"""
