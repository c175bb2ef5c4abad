"""The JSON form of dataclasses, which follows from the types of their fields."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

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
from toolsemble.serialization import result_from_fields, result_to_fields
from toolsemble.shape import to_json_value

_DECISIONS: dict[str, type] = {"continue": Continue, "edit": Edit, "reject": ExitEarly}
_MAX_SHOWN = 80
# The module of some events imports these only for type checkers.
_NAMES = {"AssistantMessage": AssistantMessage, "Message": Message, "TokenUsage": TokenUsage}


class Codec(NamedTuple):
    """The writer and the reader of values of one type; the second argument of the reader is the place of the value."""

    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


@cache
def _codec_for(hint: Any) -> Codec:
    """Return the codec for the type of a field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _OWN_CODECS:
        return _OWN_CODECS[hint]
    if origin in {Union, UnionType}:
        return _optional_codec(arguments)
    if origin in {tuple, list}:
        return _sequence_codec(origin, _codec_for(arguments[0]))
    if origin is Literal:
        return Codec(to_json_value, _checked("one of " + ", ".join(map(repr, arguments)), lambda v: v in arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return Codec(to_json_value, _checked("an object", lambda value: isinstance(value, dict)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Codec(lambda value: value.value, lambda value, place: _read_enum(hint, value, place))
    inner: Any = hint if origin is None else origin
    return fields_codec(inner) if has_fields(inner) else _ANY


@cache
def fields_codec(kind: Any) -> Codec:
    """Return the codec of a dataclass.

    >>> from toolsemble.agent.budget import Usage
    >>> fields_codec(Usage).read({"input_tokens": 7}, "usage").input_tokens
    7
    """
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

    return Codec(write, read)


def has_fields(kind: Any) -> bool:
    """Return whether a type is a dataclass."""
    return is_dataclass(kind)


def _optional_codec(options: tuple[Any, ...]) -> Codec:
    """Return the codec of a union: of a type and None, or else of any JSON value."""
    others = [option for option in options if option is not NoneType]
    inner = _codec_for(others[0]) if len(others) == 1 else _ANY
    return Codec(
        lambda value: None if value is None else inner.write(value),
        lambda value, place: None if value is None else inner.read(value, place),
    )


def _sequence_codec(kind: Any, item: Codec) -> Codec:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"{place}: expected an array, got {show(value)}")  # noqa: TRY004 - the text is wrong
        return kind(item.read(each, f"{place}[{index}]") for index, each in enumerate(value))

    return Codec(lambda value: [item.write(each) for each in value], read)


def _checked(expected: str, fits: Callable[[Any], bool]) -> Callable[[Any, str], Any]:
    """Return a reader that returns a value unchanged, or raises if it does not fit."""

    def read(value: Any, place: str) -> Any:
        if not fits(value):
            raise ValueError(f"{place}: expected {expected}, got {show(value)}")
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
        raise TypeError(f"the id of a call must be a str or null, not {show(call.id)}")
    return call


def _write_reply(reply: ToolReply) -> dict[str, Any]:
    texts = {"limit": reply.limit, "more": reply.more, "note": reply.note}
    ran = {} if reply.arguments is None else {"arguments": to_json_value(reply.arguments)}
    return {"call": write_call(reply.call), "result": _write_result(reply.result), **texts, **ran}


def _read_reply(values: Any) -> ToolReply:
    call, result = _read_call(values["call"]), _read_result(values["result"])
    return ToolReply(call, result, values["limit"], values["more"], values["note"], arguments=_read_arguments(values))


def _read_arguments(values: Any) -> dict[str, Any] | None:
    arguments = values.get("arguments")
    if not isinstance(arguments, (dict, NoneType)):
        raise TypeError(f"the arguments of a reply must be an object, not {show(arguments)}")
    return arguments


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
    return {"decision": name, **fields_codec(kind).write(decision)}


def _read_decision(values: Any, place: str) -> Any:
    _check_object(values, place)
    name = _checked("continue, edit or reject", lambda given: given in [*_DECISIONS])(
        values.get("decision"), _join(place, "decision")
    )
    return fields_codec(_DECISIONS[name]).read(values, place)


def _write_float(value: Any) -> float | None:
    """Return a finite number; None for anything else, such as the progress that a tool reported as NaN."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _write_text(value: Any) -> str:
    """Return a text; a tool may report its progress with anything."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def _check_object(values: Any, place: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{place}: expected an object, got {show(values)}")  # noqa: TRY004 - the text is wrong


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def show(value: Any) -> str:
    """Return a value for an error message, shortened."""
    return f"{value!r:.{_MAX_SHOWN}}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_ANY = Codec(to_json_value, lambda value, _: value)
_MESSAGE = Codec(
    lambda message: json.loads(message_to_json(message)),
    _read_own(lambda values: message_from_json(json.dumps(values))),
)
_OWN_CODECS: dict[Any, Codec] = {
    Any: _ANY,
    str: Codec(_write_text, _checked("a str", lambda value: isinstance(value, str))),
    bool: Codec(bool, _checked("true or false", lambda value: isinstance(value, bool))),
    int: Codec(int, _checked("an int", lambda value: type(value) is int)),
    float: Codec(_write_float, _checked("a number", _is_number)),
    ToolCall: Codec(write_call, _read_own(_read_call)),
    ToolReply: Codec(_write_reply, _read_own(_read_reply)),
    ToolResult: Codec(_write_result, _read_own(_read_result)),
    AssistantMessage: _MESSAGE,
    Message: _MESSAGE,
    Transcript: Codec(
        lambda messages: json.loads(messages_to_json(messages)),
        _read_own(lambda values: messages_from_json(json.dumps(values))),
    ),
    ReviewDecision: Codec(_write_decision, _read_decision),
}
