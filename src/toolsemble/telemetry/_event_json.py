"""The JSON form of events in trace files."""

from __future__ import annotations

from typing import Any, get_args

from toolsemble._engine.event_codec import EventCodec
from toolsemble._schema.display import to_display_or_repr
from toolsemble.events import CallProgress, Event, ModelReplied, ReviewDecided, ReviewRequested, RunEvent

_CODEC = EventCodec(get_args(Event), to_display_or_repr)
_MESSAGES = ("messages", "message", "text")  # the fields with messages in a run's events
_NO_MESSAGE = {"role": "assistant", "text": "", "calls": []}
_OLD_DECISIONS = {"continue": "continue", "edit": "edit", "exit_early": "reject"}


def write_event(event: Any, *, messages: bool = True) -> dict[str, Any]:
    """Return an event as JSON values, with its kind first.

    :param messages: whether the messages of a run are included

    >>> from toolsemble.events import CallAbandoned
    >>> write_event(CallAbandoned("search", "call_1", at=0.0))["kind"]
    'call_abandoned'
    """
    values = _CODEC.write(event)
    if isinstance(event, ReviewRequested):
        return values | {"at": event.at}  # every line has its time
    if isinstance(event, RunEvent) and not messages:
        return {name: each for name, each in values.items() if name not in _MESSAGES}
    return values


def read_event(values: Any) -> Event:
    """Return an event written by :func:`write_event`, in any version; raise ``ValueError`` otherwise.

    >>> read_event({"kind": "call_abandoned", "tool_name": "search", "call_id": "call_1"}).tool_name
    'search'
    """
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind == ModelReplied.kind:
        values = {"message": _NO_MESSAGE, **values}
    if kind == CallProgress.kind:
        values = {**values, **_upgrade_progress(values)}
    if kind == ReviewDecided.kind:
        values = {**values, "decision": _upgrade_decision(values.get("decision"))}
    event: Event = _CODEC.read(values)
    return event


def _upgrade_progress(values: dict[str, Any]) -> dict[str, Any]:
    """Return a call's progress in the current form; earlier versions did not validate it."""
    fraction = values.get("fraction")
    return {
        "fraction": fraction if isinstance(fraction, (int, float)) else None,
        "message": str(values.get("message", "")),
    }


def _upgrade_decision(values: Any) -> Any:
    """Return a decision in the current form; earlier versions had a ``name`` in it."""
    if not isinstance(values, dict) or values.get("name") not in [*_OLD_DECISIONS]:
        return values
    return {**values, "decision": _OLD_DECISIONS[values["name"]]}
