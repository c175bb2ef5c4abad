"""The events of a run, as :meth:`Agent.stream` yields them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeAlias

from toolsemble import events
from toolsemble._vocabulary.call import ToolCall
from toolsemble.agent._result import AgentResult, OutputT_co, ToolCallRecord
from toolsemble.events import ModelRetried
from toolsemble.models._chat import ArgumentsDelta, CallDelta, PromptProgress, TextDelta, ThoughtDelta
from toolsemble.models._message import AssistantMessage
from toolsemble.review._request import ReviewRequest

__all__ = [
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
]


@dataclass(frozen=True, slots=True)
class CallRequested:
    """The model has requested a call, which runs next.

    >>> CallRequested(ToolCall("now")).call.name
    'now'
    """

    call: ToolCall
    """The complete call, as the model wrote it; it has an id, also if the provider gave it none."""
    arguments: dict[str, Any] | None = None
    """The arguments for people, as JSON values with secrets masked; None: those of the call, which has no secrets."""
    kind: ClassVar[Literal["call_requested"]] = "call_requested"


@dataclass(frozen=True, slots=True)
class CallReplied:
    """A call has its reply; the events of parallel calls come in the order in which the calls end.

    >>> from toolsemble import ToolReply, ToolResult
    >>> reply = ToolReply(ToolCall("now"), ToolResult.success("noon"))
    >>> CallReplied(ToolCallRecord(reply.call, reply)).record.reply.text
    'noon'
    """

    record: ToolCallRecord
    """The call and its reply."""
    kind: ClassVar[Literal["call_replied"]] = "call_replied"


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The model has replied, and its calls have their replies.

    >>> TurnEnded(AssistantMessage("Rome")).tool_calls
    ()
    """

    message: AssistantMessage
    """The model's reply."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """Its calls, in request order."""
    replayed: bool = False
    """Whether the turn comes from the journal of a run that continues; it had no other events."""
    kind: ClassVar[Literal["turn_ended"]] = "turn_ended"


@dataclass(frozen=True, slots=True)
class Final(Generic[OutputT_co]):
    """The run has ended with a result; the last event.

    >>> Final(AgentResult("Rome")).result.text
    'Rome'
    """

    result: AgentResult[OutputT_co]
    """The result of the run."""
    kind: ClassVar[Literal["final"]] = "final"


@dataclass(frozen=True, slots=True)
class RunParked:
    """The run is in a journal, and waits for a person; the last event here. It continues after the answer.

    >>> RunParked("order-7").kind
    'parked'
    """

    run_id: str
    """The id of the run."""
    pending: tuple[ReviewRequest, ...] = ()
    """The requests that wait for a decision; empty if a call of unknown outcome has to be settled."""
    kind: ClassVar[Literal["parked"]] = "parked"


@dataclass(frozen=True, slots=True)
class RunInterrupted:
    """The process is ending; the last event here. The run is queued in its journal, and continues elsewhere or later.

    >>> RunInterrupted("order-7").kind
    'interrupted'
    """

    run_id: str
    """The id of the run."""
    kind: ClassVar[Literal["interrupted"]] = "interrupted"


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The run was cancelled in its journal, and is not continued; the last event.

    >>> RunCancelled("order-7").kind
    'cancelled'
    """

    run_id: str
    """The id of the run."""
    kind: ClassVar[Literal["cancelled"]] = "cancelled"


RunStop: TypeAlias = RunParked | RunInterrupted | RunCancelled
"""The last event of a journaled run that ends here without an answer, and has not failed."""

Event: TypeAlias = (
    TextDelta
    | ThoughtDelta
    | PromptProgress
    | CallDelta
    | ArgumentsDelta
    | CallRequested
    | CallReplied
    | TurnEnded
    | Final[OutputT_co]
    | RunParked
    | RunInterrupted
    | RunCancelled
    | events.Event
)
"""Any event of a stream; each has a ``kind``, for serialization.

A call that the model makes is reported as requested and replied to; only calls inside it as started and finished.
"""
