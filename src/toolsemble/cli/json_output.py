"""A run as lines of JSON, one for each thing that happens, for programs."""

from __future__ import annotations

import json
import math
from typing import Any

from toolsemble.agent.event import CallReplied, CallRequested, Event, Final, ModelRetried, TurnEnded
from toolsemble.agent.result import AgentResult, ToolCallRecord
from toolsemble.call import ToolCall
from toolsemble.cli.exit_codes import exit_of, line_of
from toolsemble.cli.screen import Screen
from toolsemble.events import CallFinished, CallProgress, ReviewDecided, ReviewRequested
from toolsemble.models.chat import TextDelta
from toolsemble.review import Continue, Edit

_ROOM = 20  # how many more levels a value can be deep that is written in a line: of the line, and of calls on the way


class Journal:
    """Writes each event of a run as one line of ASCII JSON; the ``kind`` of the last is final, error or interrupted."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._said: list[str] = []

    def take(self, event: Event) -> None:
        """Write what has happened."""
        if isinstance(event, TextDelta):
            self._said.append(event.text)
        elif isinstance(event, (CallRequested, ModelRetried, TurnEnded)):
            self._said = []  # it is in a message now, or does not count
        self._screen.write(json_line({"kind": event.kind, **_fields(event)}))

    def tick(self) -> None:
        """Say nothing: a program does not wait impatiently."""

    def end(self, error: BaseException | None, partial: AgentResult) -> str:
        """Write how far it came, and why not further."""
        why = {"kind": "interrupted"} if error is None else _failure(error)
        said = "".join(self._said).rstrip()
        self._screen.write(json_line({**why, "text": said, **_totals(partial)}))
        return said


def json_line(value: Any) -> str:
    r"""Give a value as one line of ASCII JSON: no terminal is moved by it, and no reader misled.

    >>> json_line({"text": "caf\xe9 \x1b[2J"})
    '{"text":"caf\\u00e9 \\u001b[2J"}'
    """
    return json.dumps(value, separators=(",", ":"), default=str, skipkeys=True).replace("\x7f", "\\u007f")


def written_record(record: ToolCallRecord) -> dict[str, Any]:
    """Give a call and its reply as JSON values."""
    reply = record.reply
    contents = [{"kind": type(each).__name__, "size": _size(each)} for each in reply.result.contents]
    return {
        "call": _call(record.call),
        "text": reply.text,
        "is_error": reply.is_error,
        "seconds": round(record.duration, 3),
        **({"contents": contents} if contents else {}),
    }


def _fields(event: Event) -> dict[str, Any]:
    if isinstance(event, CallRequested):
        return {"call": _call(event.call)}
    if isinstance(event, CallReplied):
        return written_record(event.record)
    if isinstance(event, CallFinished):
        return {name: each for name, each in _plain(event).items() if name != "result"} | {"text": event.text}
    if isinstance(event, CallProgress):
        return {**_plain(event), "fraction": _number(event.fraction), "message": _text(event.message)}
    if isinstance(event, ReviewRequested):
        return {"request": json.loads(event.request.to_json())}
    if isinstance(event, ReviewDecided):
        return {"request_id": event.request.id, "tool_name": event.request.tool_name, **_decided(event.decision)}
    if isinstance(event, TurnEnded):
        return {"text": event.message.text, "tool_calls": len(event.tool_calls)}
    if isinstance(event, Final):
        result = event.result
        return {"text": result.text, "stop_reason": result.stop_reason, **_totals(result)}
    return _plain(event)


def _call(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": _arguments(call.json), "id": call.id}


def _arguments(text: str) -> dict[str, Any] | str:
    """Give arguments as the object that they are; what is none, or holds numbers that JSON has not, as it came."""
    try:
        value = json.loads(text)
        _check(value)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _plain(event: Any) -> dict[str, Any]:
    """Give the fields of an event that holds no objects of ours."""
    return {name: _value(getattr(event, name)) for name in event.__dataclass_fields__ if name != "kind"}


def _value(thing: Any) -> Any:
    """Give what any program may have passed to a tool as a value that JSON has."""
    if isinstance(thing, str):
        return thing
    try:
        value = json.loads(json.dumps(thing, default=str, skipkeys=True), parse_constant=str)
        _check(value)
    except (ValueError, RecursionError):  # it contains itself, or is too deep
        return f"a {type(thing).__name__} that JSON cannot hold"
    return value


def _check(value: Any) -> None:
    """Raise for a value that cannot be written: not only by itself, but also as deep inside of a line as it will be."""
    for _ in range(_ROOM):
        value = [value]
    json.dumps(value, allow_nan=False)


def _decided(decision: Any) -> dict[str, Any]:
    if isinstance(decision, Continue):
        return {"decision": "continue"}
    if isinstance(decision, Edit):
        return {"decision": "edit", "revised": decision.revised}
    return {"decision": "reject", "reason": decision.reason, "timed_out": decision.timed_out}


def _totals(result: AgentResult) -> dict[str, Any]:
    usage = result.usage
    return {
        "run_id": result.run_id,
        "tool_calls": [written_record(record) for record in result.tool_calls],
        "usage": {name: getattr(usage, name) for name in type(usage).__dataclass_fields__},
    }


def _failure(error: BaseException) -> dict[str, Any]:
    return {"kind": "error", "message": line_of(error), "exit_code": int(exit_of(error))}


def _number(fraction: Any) -> float | None:
    """Give a number that JSON can hold, of what any tool may say."""
    return float(fraction) if isinstance(fraction, (int, float)) and math.isfinite(fraction) else None


def _text(message: Any) -> str:
    return message if isinstance(message, str) else ""


def _size(content: Any) -> int:
    return len(content.text if hasattr(content, "text") else content.data)
