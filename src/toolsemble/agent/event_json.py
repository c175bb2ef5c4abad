"""Events of runs as JSON, and back.

The form of an event follows from the types of its fields, so a new event or field needs no code here.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_args, get_origin

from toolsemble.agent.event import Event
from toolsemble.agent.json_codec import fields_codec, has_fields, show
from toolsemble.serialization import compact_json


def event_to_json(event: Event) -> str:
    """Return an event of a run as one line of ASCII JSON: its ``kind``, and its fields.

    Objects in results, such as an answer of an ``output_type``, become JSON values. The event of the end of a run
    contains the whole conversation: send it only to programs that may see it, and :func:`~toolsemble.agent.streams.sse`
    to browsers.

    >>> from toolsemble.agent import TextDelta
    >>> event_to_json(TextDelta("Ro"))
    '{"kind":"text_delta","text":"Ro"}'
    """
    return compact_json(event_to_values(event), ensure_ascii=True, allow_nan=False)


def event_from_json(text: str | bytes) -> Event:
    """Return the event that :func:`event_to_json` wrote; raise ``ValueError`` for any other text.

    >>> event_from_json('{"kind":"text_delta","text":"Ro"}')
    TextDelta(text='Ro')
    >>> event_from_json('{"kind":"text_delta","text":7}')
    Traceback (most recent call last):
    ...
    ValueError: This is not an event: text: expected a str, got 7
    """
    try:
        values = json.loads(text)
        kind = values.get("kind") if isinstance(values, dict) else None
        if not isinstance(kind, str) or kind not in event_types():
            raise ValueError(f"kind: expected one of {', '.join(event_types())}, got {show(kind)}")  # noqa: TRY301
        event: Event = fields_codec(event_types()[kind]).read(values, "")
    except (ValueError, TypeError, RecursionError) as problem:
        raise ValueError(f"This is not an event: {problem}") from problem
    return event


def event_to_values(event: Event) -> dict[str, Any]:
    """Return an event as JSON values.

    >>> from toolsemble.agent import ModelRetried
    >>> event_to_values(ModelRetried("Too many requests", 2.5))["seconds"]
    2.5
    """
    kind: Any = type(event)
    return {"kind": event.kind, **(fields_codec(kind).write(event) if has_fields(kind) else {})}


@cache
def event_types() -> dict[str, type]:
    """Return the types of events by their ``kind``.

    >>> event_types()["final"].__name__
    'Final'
    """
    kinds = [get_origin(each) or each for each in get_args(Event)]  # an event may be generic
    return {each.kind: each for each in kinds}
