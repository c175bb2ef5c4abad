"""The result of a run: the answer, the calls, the messages and the usage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from toolsemble._runtime.text import escape_line, escape_prose
from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble.agent._budget import Budget, StopReason, Usage
from toolsemble.models._message import AssistantMessage, Transcript
from toolsemble.review._request import ReviewRequest

_MAX_ARGUMENTS = 100
_MAX_RESULT = 100
_MAX_ANSWER = 60
_VERSION = 1  # of the JSON of a paused run

# Type checkers read a plain ``AgentResult`` as ``AgentResult[Any]``; Python has such defaults since 3.13 only.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    from toolsemble._engine.event_codec import EventCodec

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
    """The requested call; in stream events it has an id even if the provider sent none."""
    reply: ToolReply
    """The reply to the model."""
    duration: float = 0.0
    """The seconds that the call took, including a review; 0 if it did not run."""
    started: float = 0.0
    """The seconds from the start of the run to the start of the call."""

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that ran, as JSON values: parsed, repaired, edited by hooks and reviewers, secrets masked.

        For a refused call, the parsed arguments; if they could not be parsed, or if the call did not run or end, the
        requested ones. Possible secrets are never shown: such arguments of a tool with secrets are masked if they can
        be parsed, and otherwise omitted, like the arguments of an unknown tool beside a tool with secrets.

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
    """The kind of event: a model reply, a call's reply, a model retry, or a used-up budget."""
    name: str
    """The name of the model, its class if it has no name, the tool's name, or the budget's."""
    started: float
    """The seconds from the start of the run to the start of this event."""
    duration: float = 0.0
    """The seconds that it took."""
    detail: str = ""
    """The model's stop reason, the outcome of the call, or the error."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for approval.

    >>> PendingCall(ToolCall("pay"), ReviewRequest("Pays", "pay", {"amount": 5}, id="q1")).id
    'q1'
    """

    call: ToolCall
    """The call, as the model requested it."""
    request: ReviewRequest
    """The reviewer's request, with the arguments that would run, secrets masked."""
    path: tuple[str, ...] = ()
    """The names of the enclosing agent tools, outermost first."""

    @property
    def id(self) -> str:
        """The id of the request, the key of its decision."""
        return self.request.id

    @property
    def call_id(self) -> str:
        """The id of the call; generated if the provider sent none."""
        return self.request.call_id

    def list_open(self) -> tuple[PendingCall, ...]:
        """Return the call itself, the only pending one."""
        return (self,)


@dataclass(frozen=True, slots=True)
class InnerRun:
    """A call of an agent as a tool, whose own run is paused.

    >>> message = AssistantMessage("", (ToolCall("pay"),))
    >>> pending = PendingCall(ToolCall("pay"), ReviewRequest("Pays", "pay", {"amount": 5}, id="q1"))
    >>> inner = InnerRun(0, "clerk", "c1", PausedRun("r1", None, Transcript(), message, (pending,)))
    >>> [(each.path, each.id) for each in inner.list_open()]
    [(('clerk',), 'q1')]
    """

    index: int
    """The index of the call in the reply of the model."""
    name: str
    """The name of the tool."""
    call_id: str
    """The id of the call; generated if the provider sent none."""
    run: PausedRun
    """The run of the agent."""
    edited: Mapping[str, Any] | None = None
    """The arguments of the call, if a reviewer changed them."""

    def list_open(self) -> tuple[PendingCall, ...]:
        """Return the pending calls inside this one."""
        return tuple(replace(each, path=(self.name, *each.path)) for each in self.run.pending)


@dataclass(frozen=True, slots=True)
class PausedRun:
    """A run that paused because calls wait for approval; pass it to ``agent.run`` with decisions to resume it.

    As JSON it holds the conversation, the call results and the pending calls, with everything that the model wrote,
    including secrets. The run's deps and parameters are not part of it.

    >>> PausedRun.from_json('{"kind": "paused_run"}')
    Traceback (most recent call last):
    ...
    ValueError: This is not a paused run: run_id: missing
    """

    run_id: str
    """The id that the run's calls share."""
    memory_id: str | None
    """The conversation or user id; None if the run has none."""
    messages: Transcript
    """The conversation up to the model reply with the pending calls."""
    message: AssistantMessage
    """The model reply with the pending calls."""
    pending: tuple[PendingCall, ...]
    """The pending calls, in request order, including calls of nested agents."""
    places: tuple[int, ...] = ()
    """The indexes of the other calls of the reply."""
    done: tuple[ToolCallRecord, ...] = ()
    """The other calls of the reply, with their results."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """The calls of earlier replies."""
    usage: Usage = field(default_factory=Usage)
    """The usage so far."""
    trace: tuple[TraceStep, ...] = ()
    """What happened so far."""
    turns: int = 0
    """The number of replies of the run's own model."""
    seconds: float = 0.0
    """The seconds that the run took, without pauses."""
    stored: int = 0
    """The number of messages already in the memory, without the system message."""
    invalid_answers: int = 0
    """The number of answers that did not fit the ``output_type``."""
    stop: Budget | None = None
    """The budget that is used up; None if there is none."""
    stop_summary: str = ""
    """The used-up budget, in words."""
    inner: tuple[InnerRun, ...] = ()
    """The runs of nested agents with pending calls."""

    kind: ClassVar[Literal["paused_run"]] = "paused_run"

    def list_waiting(self) -> list[tuple[int, PendingCall | InnerRun]]:
        """Return the unfinished calls of the reply, with their indexes; raise ValueError if one is missing."""
        inner = {each.index: each for each in self.inner}
        own = iter([each for each in self.pending if not each.path])
        found: list[tuple[int, PendingCall | InnerRun]] = []
        for index in range(len(self.message.calls)):
            if index in inner or index not in self.places:
                each = inner.get(index) or next(own, None)
                if each is None:
                    raise ValueError("pending: expected the calls of the message that are not done")
                found.append((index, each))
        return found

    def to_json(self) -> str:
        """Return the run as one line of ASCII JSON; objects in results become JSON values."""
        # A model can write NaN; Python parses it.
        return json.dumps({**_make_codec().write(self), "version": _VERSION}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> PausedRun:
        """Return the run that :meth:`to_json` wrote; raise ``ValueError`` for any other text."""
        try:
            values = json.loads(text)
            paused: PausedRun = _make_codec().read(values)
            if values.get("version") != _VERSION:
                raise ValueError(f"version: expected {_VERSION}, got {values.get('version')!r:.80}")  # noqa: TRY301 - reported with its place below
            _check_paused(paused)
        except (ValueError, TypeError, RecursionError) as problem:
            raise ValueError(f"This is not a paused run: {problem}") from problem
        return paused


@cache
def _make_codec() -> EventCodec:
    from toolsemble._engine.event_codec import EventCodec
    from toolsemble._schema.shape import to_json_value

    return EventCodec([PausedRun], to_json_value)


@dataclass(frozen=True, slots=True, repr=False)
class AgentResult(Generic[OutputT_co]):
    """The result of a run; for a failed run, the partial result. Print it to see what happened.

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
    """The answer; if ``output_type`` is not an object, the value: a str verbatim, anything else as JSON."""
    output: OutputT_co = None  # type: ignore[assignment]  # only partial results have no output
    """The answer as an object: of ``output_type``, or else the text. Without ``output_type``, a tool that ends the run
    by its ``return_behavior`` can return any object."""
    tool_calls: list[ToolCallRecord] = field(default_factory=list)
    """All calls that the model requested, with their replies."""
    messages: Transcript = field(default_factory=Transcript)
    """The whole conversation, with which another run can continue."""
    usage: Usage = field(default_factory=Usage)
    """The usage of the run."""
    stop_reason: StopReason = "answer"
    """Why the run ended: "answer", "immediate", the name of a used-up budget, "loop" for repetition, or "paused" for
    calls that wait for approval; for a failed run, "exit_early", "configuration_error", "error" or "cancelled"; for a
    journaled run that stops in this process, "parked", "interrupted" or "taken_over"."""
    trace: tuple[TraceStep, ...] = ()
    """What happened, in order."""
    run_id: str = ""
    """The id that the run's calls share."""
    paused: PausedRun | None = None
    """The run to store and resume, if calls wait for approval."""

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for approval; empty unless ``stop_reason`` is "paused"."""
        return () if self.paused is None else self.paused.pending

    @property
    def calls(self) -> list[ToolCallRecord]:
        """The same as ``tool_calls``."""
        return self.tool_calls

    def __str__(self) -> str:
        return _summarize(self)

    def __repr__(self) -> str:
        return f"<AgentResult '{escape_line(self.text, _MAX_ANSWER)}', {_describe_end(self)}>"

    def _repr_html_(self) -> str:
        from toolsemble._runtime.notebook import format_note, format_table, format_text

        calls = [(each.name, _describe_arguments(each.arguments), each.reply.text) for each in self.tool_calls]
        waiting = [(_name_pending(each), _describe_request(each), each.id) for each in self.pending]
        return (
            (format_text(self.text) if self.text else "")
            + format_table(calls, ("call", "arguments", "result"))
            + format_table(waiting, ("waits for approval", "arguments", "request"))
            + format_note(_describe_end(self))
        )


def _check_paused(paused: PausedRun) -> None:
    """Raise ValueError if the calls of a paused run are inconsistent."""
    calls = paused.message.calls
    if not paused.pending:
        raise ValueError("pending: no call waits")
    if len(paused.places) != len(paused.done) or not set(paused.places) <= set(range(len(calls))):
        raise ValueError("places: expected the index of each call in done")
    waiting = paused.list_waiting()
    if [*_list_open(waiting)] != [*paused.pending] or not all(_is_about(each, calls[index]) for index, each in waiting):
        raise ValueError("pending: expected the calls of the message that are not done")
    if [record.call for record in paused.done] != [calls[index] for index in paused.places]:
        raise ValueError("done: expected the calls of the message at the places")
    for each in paused.pending:
        if (each.request.tool_name, each.request.run_id) != (each.call.name, paused.run_id):
            raise ValueError(f"pending: the request {each.id!r:.80} is not about its call of '{each.call.name:.64}'")
    if len({each.id for each in paused.pending}) < len(paused.pending):
        raise ValueError("pending: two requests have the same id")
    _check_inner(paused)


def _check_inner(paused: PausedRun) -> None:
    places = {index for index, each in paused.list_waiting() if isinstance(each, InnerRun)}
    if len(places) != len(paused.inner) or not places.isdisjoint(paused.places):
        raise ValueError("inner: expected the indexes of calls that are not done")
    for each in paused.inner:
        if each.run.run_id != paused.run_id:
            raise ValueError("inner: expected the run_id of the run around it")
        _check_paused(each.run)


def _list_open(waiting: Iterable[tuple[int, PendingCall | InnerRun]]) -> Iterator[PendingCall]:
    for _, each in waiting:
        yield from each.list_open()


def _is_about(waiting: PendingCall | InnerRun, call: ToolCall) -> bool:
    if isinstance(waiting, PendingCall):
        return waiting.call == call
    return (waiting.name, waiting.call_id) == (call.name, call.id or waiting.call_id)


def _summarize(result: AgentResult) -> str:
    """Return the answer, the calls, why the run stopped, and its usage, in a few lines."""
    lines = [escape_prose(result.text), ""] if result.text else []
    lines += map(_describe_call, result.tool_calls)
    lines += map(_describe_pending, result.pending)
    return "\n".join([*lines, _describe_end(result)])


def _describe_end(result: AgentResult) -> str:
    calls = f"{_count(result.usage.model_calls, 'model call')}, {_count(len(result.tool_calls), 'tool call')}"
    return f"stopped: {result.stop_reason}; {calls}, {_describe_tokens(result.usage)}"


def _describe_call(record: ToolCallRecord) -> str:
    arguments = escape_line(_describe_arguments(record.arguments), _MAX_ARGUMENTS)
    return f"{escape_line(record.name)}({arguments}) -> {escape_line(record.reply.text, _MAX_RESULT)}"


def _describe_pending(pending: PendingCall) -> str:
    name, shown = escape_line(_name_pending(pending)), escape_line(_describe_request(pending), _MAX_ARGUMENTS)
    return f"{name}({shown}) waits for approval, request {pending.id}"


def _name_pending(pending: PendingCall) -> str:
    return "/".join((*pending.path, pending.call.name))


def _describe_request(pending: PendingCall) -> str:
    arguments = pending.request.arguments
    return _describe_arguments(arguments) if isinstance(arguments, Mapping) else str(arguments)


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
