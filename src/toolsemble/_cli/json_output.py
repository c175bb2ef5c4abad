"""Write a run's events as JSON Lines, for programs."""

from __future__ import annotations

import json
from typing import Any

from toolsemble._cli.options import exit_code_for, format_error
from toolsemble._cli.screen import Screen
from toolsemble._schema.result_shape import to_json_value
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.agent._event import CallReplied, CallRequested, Event, Final, ModelRetried, TurnEnded, event_to_values
from toolsemble.agent._result import AgentResult, ToolCallRecord
from toolsemble.events import CallFinished, CallProgress, ReviewDecided, ReviewRequested
from toolsemble.models._chat import TextDelta
from toolsemble.review import Continue, Edit


class JsonOutput:
    """A listener that writes each event as one line of ASCII JSON; the last is final, error or interrupted."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._pieces: list[str] = []

    def take(self, event: Event) -> None:
        """Write an event."""
        if isinstance(event, TextDelta):
            self._pieces.append(event.text)
        elif isinstance(event, (CallRequested, ModelRetried, TurnEnded)):
            self._pieces = []  # it is part of a message now, or was discarded
        self._screen.write(json_line({"kind": event.kind, **_event_fields(event)}))

    def tick(self) -> None:
        """Do nothing: programs need no progress."""

    def end(self, error: BaseException | None, partial: AgentResult) -> str:
        """Write the last line of an unfinished run; return the unfinished reply's text."""
        why = {"kind": "interrupted"} if error is None else _error_fields(error)
        text = "".join(self._pieces).rstrip()
        self._screen.write(json_line({**why, "text": text, **_totals(partial)}))
        return text


def json_line(value: Any) -> str:
    r"""Return a value as one line of ASCII JSON, without control characters.

    >>> json_line({"text": "caf\xe9 \x1b[2J"})
    '{"text":"caf\\u00e9 \\u001b[2J"}'
    """
    return compact_json(value, ensure_ascii=True, default=str, skipkeys=True).replace("\x7f", "\\u007f")


def record_to_json(record: ToolCallRecord) -> dict[str, Any]:
    """Return a call and its reply as JSON values."""
    reply = record.reply
    contents = [{"kind": type(each).__name__, "size": _size(each)} for each in reply.result.contents]
    return {
        "call": _call_fields(record.call),
        "text": reply.text,
        "is_error": reply.is_error,
        "seconds": round(record.duration, 3),
        **({"contents": contents} if contents else {}),
    }


def _event_fields(event: Event) -> dict[str, Any]:
    if isinstance(event, CallRequested):
        return {"call": _call_fields(event.call)}
    if isinstance(event, CallReplied):
        return record_to_json(event.record)
    if isinstance(event, CallFinished):
        return {name: each for name, each in _fields_of(event).items() if name != "result"} | {"text": event.text}
    if isinstance(event, CallProgress):
        return {**_fields_of(event), "message": _to_text(event.message)}
    if isinstance(event, ReviewRequested):
        return {"request": json.loads(event.request.to_json())}
    if isinstance(event, ReviewDecided):
        return {
            "request_id": event.request.id,
            "tool_name": event.request.tool_name,
            **_decision_fields(event.decision),
        }
    if isinstance(event, TurnEnded):
        return {"text": event.message.text, "tool_calls": len(event.tool_calls)}
    if isinstance(event, Final):
        result = event.result
        return {"text": result.text, "stop_reason": result.stop_reason, **_totals(result)}
    return _fields_of(event)


def _fields_of(event: Event) -> dict[str, Any]:
    """Return the fields of an event as JSON values, without its kind."""
    return {name: each for name, each in event_to_values(event).items() if name != "kind"}


def _call_fields(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": _parse_arguments(call.json), "id": call.id}


def _parse_arguments(text: str) -> dict[str, Any] | str:
    """Return arguments as an object; as text if they are not one, or contain NaN or infinity."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    plain = to_json_value(value)
    return plain if isinstance(plain, dict) else text


def _decision_fields(decision: Any) -> dict[str, Any]:
    if isinstance(decision, Continue):
        return {"decision": "continue"}
    if isinstance(decision, Edit):
        return {"decision": "edit", "revised": decision.revised}
    return {"decision": "reject", "reason": decision.reason, "timed_out": decision.timed_out}


def _totals(result: AgentResult) -> dict[str, Any]:
    usage = result.usage
    return {
        "run_id": result.run_id,
        "tool_calls": [record_to_json(record) for record in result.tool_calls],
        "usage": {name: getattr(usage, name) for name in type(usage).__dataclass_fields__},
    }


def _error_fields(error: BaseException) -> dict[str, Any]:
    return {"kind": "error", "message": format_error(error), "exit_code": int(exit_code_for(error))}


def _to_text(message: Any) -> str:
    return message if isinstance(message, str) else ""


def _size(content: Any) -> int:
    return len(content.text if hasattr(content, "text") else content.data)  # 0 for a URL
