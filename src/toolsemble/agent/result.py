"""The result of a run: the answer, the calls, the messages and the usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from toolsemble.agent.budget import Usage
from toolsemble.call import ToolCall, ToolReply
from toolsemble.models.transcript import Transcript


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """A call that the model requested, and its reply.

    >>> from toolsemble import ToolResult
    >>> ToolCallRecord(ToolCall("now"), ToolReply(ToolCall("now"), ToolResult.success("noon")), 0.1).name
    'now'
    """

    call: ToolCall
    """The requested call."""
    reply: ToolReply
    """The reply to the model."""
    duration: float = 0.0
    """The seconds that the call took, including a review; 0 if it was not run."""
    started: float = 0.0
    """The seconds from the start of the run to the start of the call."""

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that ran, as JSON values: read, repaired, as hooks and reviewers changed them, secrets masked.

        For a call that was refused, those that were read; if they could not be read, those that were requested.

        >>> reply = ToolReply(ToolCall("pay", '{"amount": "5"}'), ToolResult.success("paid"), arguments={"amount": 5})
        >>> record = ToolCallRecord(reply.call, reply)
        >>> record.arguments, record.call.arguments
        ({'amount': 5}, {'amount': '5'})
        """
        return self.call.arguments if self.reply.arguments is None else self.reply.arguments


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One event in the trace of a run.

    >>> TraceStep("model", "ScriptedModel", 0.0, 0.2).kind
    'model'
    """

    kind: Literal["model", "tool", "retry", "stop"]
    """What happened: the model replied, a call was replied to, the model is retried, or a budget was used up."""
    name: str
    """The model's class, the tool's name, or the budget's."""
    started: float
    """The seconds from the start of the run to the start of this event."""
    duration: float = 0.0
    """The seconds that it took."""
    detail: str = ""
    """The model's stop reason, the outcome of the call, or the error."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """The result of a run; for a failed run, the work so far.

    >>> AgentResult("Rome").stop_reason
    'answer'
    """

    text: str = ""
    """The answer; if ``output_type`` is not an object, the value: a str as it is, anything else as JSON."""
    output: Any = None
    """The answer as an object: of ``output_type``, of the tool whose result ended the run, or else the text."""
    tool_calls: list[ToolCallRecord] = field(default_factory=list)
    """All calls that the model requested, with their replies."""
    messages: Transcript = field(default_factory=Transcript)
    """The whole conversation, with which another run can continue."""
    usage: Usage = field(default_factory=Usage)
    """The usage of the run."""
    stop_reason: str = "answer"
    """Why the run ended: "answer", "immediate", the name of a used-up budget, or "loop" for repetition; for a failed
    run, "exit_early", "configuration_error", "error" or "cancelled"."""
    trace: tuple[TraceStep, ...] = ()
    """What happened, in order."""
    run_id: str = ""
    """The id that the calls of the run share."""

    @property
    def calls(self) -> list[ToolCallRecord]:
        """The same as ``tool_calls``."""
        return self.tool_calls

    def __str__(self) -> str:
        return self.text
