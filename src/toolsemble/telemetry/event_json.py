"""The JSON form of events in trace files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from toolsemble import events
from toolsemble.events import Event, ModelReplied, ReviewDecided, ReviewRequested, RunEvent
from toolsemble.result import ToolResult
from toolsemble.review import Continue, Edit, ExitEarly, ReviewDecision, ReviewRequest
from toolsemble.schema.display import to_display_or_repr
from toolsemble.serialization import result_from_fields, result_to_fields

_EVENTS: dict[str, type[Any]] = {
    each.kind: each
    for each in (
        events.CallStarted,
        events.CallRepaired,
        events.CallRetried,
        events.CallProgress,
        events.CallTimedOut,
        events.CallAbandoned,
        events.CacheHit,
        events.CallFinished,
        events.RunStarted,
        events.ModelReplied,
        events.ModelRetried,
        events.RunFinished,
    )
}
_DECISIONS: dict[str, Callable[..., ReviewDecision]] = {
    "continue": Continue,
    "edit": Edit,
    "exit_early": ExitEarly,
}
_MESSAGES = ("messages", "message", "text")  # the fields of a run's events that have messages


def write_event(event: Any, *, messages: bool = True) -> dict[str, Any]:
    """Return an event as JSON values, with its kind first.

    :param messages: whether the messages of a run are included

    >>> write_event(events.CallAbandoned("search", "call_1", at=0.0))["kind"]
    'call_abandoned'
    """
    values: dict[str, Any] = {"kind": event.kind}
    if isinstance(event, (ReviewRequested, ReviewDecided)):
        values |= {"request": json.loads(event.request.to_json()), "at": event.at}
        if isinstance(event, ReviewDecided):
            values |= {"decision": _write_decision(event.decision)}
        return values
    present = {each.name: getattr(event, each.name) for each in fields(event)}
    if isinstance(event, RunEvent):
        shown = {name: each for name, each in present.items() if messages or name not in _MESSAGES}
        return values | {name: _WRITERS.get(name, _write_value)(each) for name, each in shown.items()}
    return values | {name: _write_value(each) for name, each in present.items()}


def read_event(values: dict[str, Any]) -> Event:
    """Return the event that :func:`write_event` wrote; raise ValueError, TypeError or KeyError for anything else.

    >>> read_event({"kind": "call_abandoned", "tool_name": "search", "call_id": "call_1"}).tool_name
    'search'
    """
    kind = values.pop("kind")
    if kind == ReviewRequested.kind:
        return ReviewRequested(_read_request(values))
    if kind == ReviewDecided.kind:
        decision = dict(values["decision"])
        return ReviewDecided(_read_request(values), _DECISIONS[decision.pop("name")](**decision), at=values["at"])
    if kind == ModelReplied.kind:
        values.setdefault("message", {"role": "assistant", "text": "", "calls": []})
    readers = _RUN_READERS if issubclass(_EVENTS[kind], RunEvent) else _CALL_READERS
    for name in readers.keys() & values:
        values[name] = readers[name](values[name])
    event: Event = _EVENTS[kind](**values)
    return event


def _write_value(value: Any) -> Any:
    return result_to_fields(value, to_display_or_repr) if isinstance(value, ToolResult) else to_display_or_repr(value)


def _write_decision(decision: ReviewDecision) -> dict[str, Any]:
    name = next(name for name, kind in _DECISIONS.items() if isinstance(decision, kind))  # type: ignore[arg-type]  # classes
    return {"name": name, **{each.name: getattr(decision, each.name) for each in fields(decision)}}


def _read_request(values: Mapping[str, Any]) -> ReviewRequest:
    return ReviewRequest.from_json(json.dumps(values["request"]))


def _write_message(message: Any) -> Any:
    from toolsemble.models.message import message_to_json  # noqa: PLC0415 - a toolbox without an agent has no messages

    return json.loads(message_to_json(message))


def _read_message(values: Any) -> Any:
    from toolsemble.models.message import message_from_json  # noqa: PLC0415 - as above

    return message_from_json(json.dumps(values))


def _read_usage(values: Any) -> Any:
    from toolsemble.models.chat import TokenUsage  # noqa: PLC0415 - as above

    return None if values is None else TokenUsage(**values)


_WRITERS: dict[str, Callable[[Any], Any]] = {
    "message": _write_message,
    "messages": lambda messages: [_write_message(each) for each in messages],
    "usage": lambda usage: None if usage is None else asdict(usage),
}
_RUN_READERS: dict[str, Callable[[Any], Any]] = {
    "message": _read_message,
    "messages": lambda messages: tuple(_read_message(each) for each in messages),
    "tools": tuple,
    "usage": _read_usage,
}
_CALL_READERS: dict[str, Callable[[Any], Any]] = {
    "repairs": tuple,
    "result": lambda values: None if values is None else result_from_fields(values),
}
