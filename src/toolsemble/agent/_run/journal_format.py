"""Model replies and run results, as stored in a journal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from toolsemble._engine.work.wait import RunInThread
from toolsemble._schema.result_shape import to_json_value
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolArgumentsError, ToolConfigurationError
from toolsemble._vocabulary.place import Place
from toolsemble.agent._budget import Stop, StopReason, Usage
from toolsemble.agent._output import Output
from toolsemble.agent._result import AgentResult, ToolCallRecord, TraceStep
from toolsemble.agent._settings import AgentConfig
from toolsemble.models._chat import ChatReply, TokenUsage
from toolsemble.models._message import Transcript, read_call, write_call

if TYPE_CHECKING:
    from toolsemble._engine.event_codec import EventCodec


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The result of a run, as stored in a journal."""

    text: str
    output: Any
    """The answer as JSON values, if the run had no output type."""
    tool_calls: tuple[ToolCallRecord, ...]
    messages: Transcript
    usage: Usage
    stop_reason: str
    trace: tuple[TraceStep, ...]
    kind: ClassVar[Literal["stored_result"]] = "stored_result"


def write_reply(reply: ChatReply, seconds: float, stop: Stop | None) -> dict[str, Any]:
    """Return a reply as JSON values for a journal."""
    usage = reply.usage
    written: dict[str, Any] = {"text": reply.text, "stop_reason": reply.stop_reason, "seconds": round(seconds, 6)}
    if reply.calls:
        written["calls"] = [write_call(call) for call in reply.calls]
    if usage.total:
        written["usage"] = [usage.input, usage.output, usage.cached, usage.reasoning, usage.cache_write]
    if reply.details is not None:
        written["details"] = dict(reply.details)
    if stop is not None:
        written["stop"] = [stop.name, stop.summary]
    return written


async def record_reply(turn: Place, reply: ChatReply, seconds: float, stop: Stop | None, mark: str) -> None:
    """Record a model reply in the run's journal.

    :param mark: the result of :func:`mark_agent`
    """
    record = partial(turn.run.record_reply, turn.path, {**write_reply(reply, seconds, stop), "agent": mark})
    await RunInThread(record, in_place=turn.run.in_place).ado()


def mark_agent(config: AgentConfig, box: Toolbox) -> str:
    """Return a digest of a turn's model, instructions and tools, which shows whether the agent has changed.

    Functions for instructions or tools count by name; after a slash follows a digest of the tools that such a function
    returned for this turn.
    """
    instructions = [part if isinstance(part, str) else part.name for part in config.instructions]
    source = config.tools
    if isinstance(source, Toolbox) or getattr(source, "lists_all", False):
        return _digest([config.model_name, instructions, _list_tools(box)])
    name = getattr(source, "__name__", type(source).__name__)
    return f"{_digest([config.model_name, instructions, name])}/{_digest(_list_tools(box))}"


def _list_tools(box: Toolbox) -> list[Any]:
    """Return the digest's view of all tools, including tools hidden from the model in this turn."""
    return sorted(([each.name, each.description, each.schema()] for each in box.definitions()), key=itemgetter(0))


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]


def read_reply(data: Mapping[str, Any]) -> ChatReply:
    """Return the reply that :func:`write_reply` wrote.

    >>> from toolsemble import ToolCall
    >>> read_reply(write_reply(ChatReply("Rome", (ToolCall("now"),)), 0.5, None)).calls
    (ToolCall('now', '{}', id=None),)
    """
    calls, usage = tuple(map(read_call, data.get("calls", ()))), TokenUsage(*data.get("usage", ()))
    return ChatReply(data["text"], calls, usage, data["stop_reason"], data.get("details"))


def read_stop(data: Mapping[str, Any]) -> Stop | None:
    """Return the budget that was used up at a model request; None if there was none."""
    return Stop(*data["stop"]) if "stop" in data else None


def write_result(result: AgentResult) -> str:
    """Return a result as JSON text for a journal."""
    stored = StoredResult(
        result.text,
        to_json_value(result.output),
        tuple(result.tool_calls),
        result.messages,
        result.usage,
        result.stop_reason,
        result.trace,
    )
    return json.dumps(_make_codec().write(stored), separators=(",", ":"))


def read_result(text: str, run_id: str, output: Output | None) -> AgentResult:
    """Return the result that :func:`write_result` wrote; parse the answer again with the output type."""
    stored: StoredResult = _make_codec().read(json.loads(text))
    answer = stored.output if output is None else _read_answer(stored, run_id, output)
    reason: StopReason = stored.stop_reason  # type: ignore[assignment]  # as it was written
    calls = list(stored.tool_calls)
    return AgentResult(stored.text, answer, calls, stored.messages, stored.usage, reason, stored.trace, run_id)


def _read_answer(stored: StoredResult, run_id: str, output: Output) -> Any:
    with suppress(ToolArgumentsError):
        return output.read_text(stored.text)
    try:
        return output.read(json.dumps(stored.output))
    except ToolArgumentsError as problem:
        raise ToolConfigurationError(
            f"The recorded answer of run '{run_id}' does not fit the current output type: {problem}"
        ) from problem


@cache
def _make_codec() -> EventCodec:
    from toolsemble._engine.event_codec import EventCodec

    return EventCodec([StoredResult], to_json_value)
