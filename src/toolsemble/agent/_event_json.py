"""Events of runs as JSON, and back."""

from __future__ import annotations

import json
from typing import Any, get_args

from toolsemble._engine.event_codec import EventCodec
from toolsemble._schema.shape import to_json_value
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.agent._event import Event

_CODEC = EventCodec(get_args(Event), to_json_value)


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
        event: Event = _CODEC.read(json.loads(text))
    except (ValueError, TypeError, RecursionError) as problem:
        raise ValueError(f"This is not an event: {problem}") from problem
    return event


def event_to_values(event: Event) -> dict[str, Any]:
    """Return an event as JSON values.

    >>> from toolsemble.agent import ModelRetried
    >>> event_to_values(ModelRetried("Too many requests", 2.5))["seconds"]
    2.5
    """
    if not isinstance(getattr(event, "kind", None), str):
        raise TypeError(f"Expected an event of Agent.stream, got {event!r:.80}")
    return _CODEC.write(event)
