"""The result of a run: the answer, the calls, the messages and the usage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from toolsemble.agent.budget import StopReason, Usage
from toolsemble.call import ToolCall, ToolReply
from toolsemble.models.transcript import Transcript
from toolsemble.runtime.text import escape_line, escape_prose

_MAX_ARGUMENTS = 100
_MAX_RESULT = 100

# Type checkers read a plain ``AgentResult`` as ``AgentResult[Any]``; Python has such defaults since 3.13 only.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    OutputT_co = DefaultedTypeVar("OutputT_co", covariant=True, default=Any)
else:
    OutputT_co = TypeVar("OutputT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """A call that the model requested, and its reply.

    >>> from toolsemble import ToolResult
    >>> ToolCallRecord(ToolCall("now"), ToolReply(ToolCall("now"), ToolResult.success("noon")), 0.1).name
    'now'
    """

    call: ToolCall
    """The requested call; in events of a stream it has an id, also if the provider gave it none."""
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

        For a call that was refused, those that were read; if they could not be read, or if the call did not run or
        end, those that were requested. What may be a secret is never shown: such arguments of a tool with secrets are
        masked if they can be read, and else left out, as those for an unknown name beside such a tool are.

        >>> reply = ToolReply(ToolCall("pay", '{"amount": "5"}'), ToolResult.success("paid"), arguments={"amount": 5})
        >>> record = ToolCallRecord(reply.call, reply)
        >>> record.arguments, record.call.arguments
        ({'amount': 5}, {'amount': '5'})
        """
        return self.call.arguments if self.reply.arguments is None else self.reply.arguments


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One event in the trace of a run.

    >>> TraceStep("model", "gpt-5-mini", 0.0, 0.2).kind
    'model'
    """

    kind: Literal["model", "tool", "retry", "stop"]
    """What happened: the model replied, a call was replied to, the model is retried, or a budget was used up."""
    name: str
    """The name of the model, its class if it has no name, the tool's name, or the budget's."""
    started: float
    """The seconds from the start of the run to the start of this event."""
    duration: float = 0.0
    """The seconds that it took."""
    detail: str = ""
    """The model's stop reason, the outcome of the call, or the error."""


@dataclass(frozen=True, slots=True)
class AgentResult(Generic[OutputT_co]):
    """The result of a run; for a failed run, the work so far. Print it to see what happened.

    >>> from toolsemble import ToolResult
    >>> call = ToolCall("weather", {"city": "Rome"})
    >>> record = ToolCallRecord(call, ToolReply(call, ToolResult.success("sunny")))
    >>> print(AgentResult("Take sunglasses.", tool_calls=[record]))
    Take sunglasses.
    <BLANKLINE>
    weather(city="Rome") -> sunny
    stopped: answer; 0 model calls, 1 tool call, 0 tokens
    """

    text: str = ""
    """The answer; if ``output_type`` is not an object, the value: a str as it is, anything else as JSON."""
    output: OutputT_co = None  # type: ignore[assignment]  # only the work so far of a failed run has no output
    """The answer as an object: of ``output_type``, or else the text. A tool that ends a run without ``output_type`` by
    its ``return_behavior`` can return any object."""
    tool_calls: list[ToolCallRecord] = field(default_factory=list)
    """All calls that the model requested, with their replies."""
    messages: Transcript = field(default_factory=Transcript)
    """The whole conversation, with which another run can continue."""
    usage: Usage = field(default_factory=Usage)
    """The usage of the run."""
    stop_reason: StopReason = "answer"
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
        return _summarize(self)


def _summarize(result: AgentResult) -> str:
    """Return the answer, the calls, why the run stopped, and its usage, in a few lines."""
    lines = [escape_prose(result.text), ""] if result.text else []
    lines += map(_describe_call, result.tool_calls)
    calls = f"{_count(result.usage.model_calls, 'model call')}, {_count(len(result.tool_calls), 'tool call')}"
    return "\n".join([*lines, f"stopped: {result.stop_reason}; {calls}, {_describe_tokens(result.usage)}"])


def _describe_call(record: ToolCallRecord) -> str:
    arguments = escape_line(_describe_arguments(record.arguments), _MAX_ARGUMENTS)
    return f"{escape_line(record.name)}({arguments}) -> {escape_line(record.reply.text, _MAX_RESULT)}"


def _describe_arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False, default=repr)}" for name, value in arguments.items()
    )


def _describe_tokens(usage: Usage) -> str:
    total = _count(usage.total_tokens, "token")
    parts = f" ({usage.input_tokens:,} in, {usage.output_tokens:,} out)" if usage.total_tokens else ""
    cost = f", cost {usage.cost:.4g}" if usage.cost else ""
    return f"{total}{parts}{cost}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
