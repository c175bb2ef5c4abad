"""Events of runs as JSON, and back.

The form of an event follows from the types of its fields, so a new event or field needs no code here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from toolsemble.agent.event import Event
from toolsemble.call import ToolCall, ToolReply
from toolsemble.models.chat import TokenUsage
from toolsemble.models.message import (
    AssistantMessage,
    Message,
    message_from_json,
    message_to_json,
    read_call,
    write_call,
)
from toolsemble.models.transcript import Transcript, messages_from_json, messages_to_json
from toolsemble.result import ToolResult
from toolsemble.review.decision import Continue, Edit, ExitEarly, ReviewDecision
from toolsemble.serialization import compact_json, result_from_fields, result_to_fields
from toolsemble.shape import to_json_value

_DECISIONS: dict[str, type] = {"continue": Continue, "edit": Edit, "reject": ExitEarly}
_MAX_SHOWN = 80
# The module of some events imports these only for type checkers.
_NAMES = {"AssistantMessage": AssistantMessage, "Message": Message, "TokenUsage": TokenUsage}


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
            raise ValueError(f"kind: expected one of {', '.join(event_types())}, got {_show(kind)}")  # noqa: TRY301
        event: Event = _fields_codec(event_types()[kind]).read(values, "")
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
    if not isinstance(getattr(event, "kind", None), str):
        raise TypeError(f"Expected an event of Agent.stream, got {_show(event)}")
    return {"kind": event.kind, **(_fields_codec(kind).write(event) if _has_fields(kind) else {})}


@cache
def event_types() -> dict[str, type]:
    """Return the types of events by their ``kind``.

    >>> event_types()["final"].__name__
    'Final'
    """
    kinds = [get_origin(each) or each for each in get_args(Event)]  # an event may be generic
    return {each.kind: each for each in kinds}


class _Codec(NamedTuple):
    """The writer and the reader of values of one type; the second argument of the reader is the place of the value."""

    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


@cache
def _codec_for(hint: Any) -> _Codec:
    """Return the codec for the type of a field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _OWN_CODECS:
        return _OWN_CODECS[hint]
    if origin in {Union, UnionType}:
        return _optional_codec(arguments)
    if origin in {tuple, list}:
        return _sequence_codec(origin, _codec_for(arguments[0]))
    if origin is Literal:
        return _Codec(to_json_value, _checked("one of " + ", ".join(map(repr, arguments)), lambda v: v in arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _Codec(to_json_value, _checked("an object", lambda value: isinstance(value, dict)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _Codec(lambda value: value.value, lambda value, place: _read_enum(hint, value, place))
    inner: Any = hint if origin is None else origin
    return _fields_codec(inner) if _has_fields(inner) else _ANY


@cache
def _fields_codec(kind: Any) -> _Codec:
    """Return the codec of a dataclass."""
    hints = get_type_hints(kind, localns=_NAMES)
    codecs = {each.name: _codec_for(hints[each.name]) for each in fields(kind)}
    required = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]

    def write(value: Any) -> dict[str, Any]:
        return {name: codec.write(getattr(value, name)) for name, codec in codecs.items()}

    def read(values: Any, place: str) -> Any:
        _check_object(values, place)
        for name in required:
            if name not in values:
                raise ValueError(f"{_join(place, name)}: missing")
        found = {name: codec for name, codec in codecs.items() if name in values}
        return kind(**{name: codec.read(values[name], _join(place, name)) for name, codec in found.items()})

    return _Codec(write, read)


def _has_fields(kind: Any) -> bool:
    return is_dataclass(kind)


def _optional_codec(options: tuple[Any, ...]) -> _Codec:
    """Return the codec of a union: of a type and None, or else of any JSON value."""
    others = [option for option in options if option is not NoneType]
    inner = _codec_for(others[0]) if len(others) == 1 else _ANY
    return _Codec(
        lambda value: None if value is None else inner.write(value),
        lambda value, place: None if value is None else inner.read(value, place),
    )


def _sequence_codec(kind: Any, item: _Codec) -> _Codec:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"{place}: expected an array, got {_show(value)}")  # noqa: TRY004 - the text is wrong
        return kind(item.read(each, f"{place}[{index}]") for index, each in enumerate(value))

    return _Codec(lambda value: [item.write(each) for each in value], read)


def _checked(expected: str, fits: Callable[[Any], bool]) -> Callable[[Any, str], Any]:
    """Return a reader that returns a value unchanged, or raises if it does not fit."""

    def read(value: Any, place: str) -> Any:
        if not fits(value):
            raise ValueError(f"{place}: expected {expected}, got {_show(value)}")
        return value

    return read


def _read_enum(kind: type[Enum], value: Any, place: str) -> Enum:
    names = [member.value for member in kind]
    return kind(_checked("one of " + ", ".join(map(repr, names)), lambda given: given in names)(value, place))


def _read_own(read: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    """Return a reader for a type with its own JSON form, whose errors have the place in front."""

    def read_with_place(value: Any, place: str) -> Any:
        try:
            return read(value)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise ValueError(f"{place}: {type(problem).__name__}: {problem}") from problem

    return read_with_place


def _read_call(values: Any) -> ToolCall:
    call = read_call(values)
    if not isinstance(call.id, (str, NoneType)):
        raise TypeError(f"the id of a call must be a str or null, not {_show(call.id)}")
    return call


def _write_reply(reply: ToolReply) -> dict[str, Any]:
    fields_of = {"limit": reply.limit, "more": reply.more, "note": reply.note, "arguments": reply.arguments}
    return {"call": write_call(reply.call), "result": _write_result(reply.result), **fields_of}


def _read_reply(values: Any) -> ToolReply:
    call, result = _read_call(values["call"]), _read_result(values["result"])
    arguments = values.get("arguments")
    if not isinstance(arguments, (dict, NoneType)):
        raise TypeError(f"the arguments of a reply must be an object or null, not {_show(arguments)}")
    return ToolReply(call, result, values["limit"], values["more"], values["note"], arguments=arguments)


def _write_result(result: ToolResult) -> dict[str, Any]:
    return result_to_fields(result, to_json_value)


def _read_result(values: Any) -> ToolResult:
    result = result_from_fields(values)
    if not isinstance(result.text, str):
        raise TypeError("the output and the error message of a result must be texts")
    return result


def _write_decision(decision: ReviewDecision) -> dict[str, Any]:
    name = next(name for name, kind in _DECISIONS.items() if type(decision) is kind)
    kind: Any = type(decision)
    return {"decision": name, **_fields_codec(kind).write(decision)}


def _read_decision(values: Any, place: str) -> Any:
    _check_object(values, place)
    name = _checked("continue, edit or reject", lambda given: given in [*_DECISIONS])(
        values.get("decision"), _join(place, "decision")
    )
    return _fields_codec(_DECISIONS[name]).read(values, place)


def _write_float(value: Any) -> float | None:
    """Return a finite number; None for anything else, such as the progress that a tool reported as NaN."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _write_text(value: Any) -> str:
    """Return a text; a tool may report its progress with anything."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def _check_object(values: Any, place: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{place}: expected an object, got {_show(values)}")  # noqa: TRY004 - the text is wrong


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _show(value: Any) -> str:
    return f"{value!r:.{_MAX_SHOWN}}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_ANY = _Codec(to_json_value, lambda value, _: value)
_MESSAGE = _Codec(
    lambda message: json.loads(message_to_json(message)),
    _read_own(lambda values: message_from_json(json.dumps(values))),
)
_OWN_CODECS: dict[Any, _Codec] = {
    Any: _ANY,
    str: _Codec(_write_text, _checked("a str", lambda value: isinstance(value, str))),
    bool: _Codec(bool, _checked("true or false", lambda value: isinstance(value, bool))),
    int: _Codec(int, _checked("an int", lambda value: type(value) is int)),
    float: _Codec(_write_float, _checked("a number", _is_number)),
    ToolCall: _Codec(write_call, _read_own(_read_call)),
    ToolReply: _Codec(_write_reply, _read_own(_read_reply)),
    ToolResult: _Codec(_write_result, _read_own(_read_result)),
    AssistantMessage: _MESSAGE,
    Message: _MESSAGE,
    Transcript: _Codec(
        lambda messages: json.loads(messages_to_json(messages)),
        _read_own(lambda values: messages_from_json(json.dumps(values))),
    ),
    ReviewDecision: _Codec(_write_decision, _read_decision),
}
