"""What a run gives back: the answer, and everything that led to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from toolsemble.agent.budget import Usage
from toolsemble.call import ToolCall, ToolReply
from toolsemble.models.transcript import Transcript


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """One call that the model asked for, and what became of it.

    >>> from toolsemble import ToolResult
    >>> ToolCallRecord(ToolCall("now"), ToolReply(ToolCall("now"), ToolResult.success("noon")), 0.1).name
    'now'
    """

    call: ToolCall
    """What the model asked for."""
    reply: ToolReply
    """What it was told."""
    duration: float = 0.0
    """How many seconds the call took, a review included; 0 when it was not run."""
    started: float = 0.0
    """How many seconds after the beginning of the run it started."""

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One thing that happened in a run.

    >>> TraceStep("model", "ScriptedModel", 0.0, 0.2).kind
    'model'
    """

    kind: Literal["model", "tool", "retry", "stop"]
    """What happened: the model answered, a call was replied to, the model is tried again, a budget was used up."""
    name: str
    """The model's class, the tool's name, or the budget's."""
    started: float
    """How many seconds after the beginning of the run it started."""
    duration: float = 0.0
    """How many seconds it took."""
    detail: str = ""
    """Why the model stopped, how the call ended, or what went wrong."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What came of a run; of one that failed, what was done until then.

    >>> AgentResult("Rome").stop_reason
    'answer'
    """

    text: str = ""
    """The answer; of an ``output_type`` that is no object, the value: a text as it is, anything else as JSON."""
    output: Any = None
    """The answer as an object: of ``output_type``, of the tool whose result ended the run, or else the text."""
    tool_calls: list[ToolCallRecord] = field(default_factory=list)
    """Every call that the model asked for, with its reply."""
    messages: Transcript = field(default_factory=Transcript)
    """The whole conversation, from which the next run can go on."""
    usage: Usage = field(default_factory=Usage)
    """What was spent."""
    stop_reason: str = "answer"
    """Why it ended: "answer", "immediate", the budget that was used up, or "loop" for going in circles; of a run that
    failed, "exit_early", "configuration_error", "error" or "cancelled"."""
    trace: tuple[TraceStep, ...] = ()
    """What happened, in order."""
    run_id: str = ""
    """The id that the calls of the run shared."""

    @property
    def calls(self) -> list[ToolCallRecord]:
        """The same as ``tool_calls``."""
        return self.tool_calls

    def __str__(self) -> str:
        return self.text
