"""Events as JSON values, and back: the one codec of streams and trace files.

The form of an event follows from the types of its fields, so a new event or field needs no code here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import result_from_fields, result_to_fields
from toolsemble.models import _message as conversation
from toolsemble.models._chat import TokenUsage
from toolsemble.review._request import Continue, Edit, ExitEarly, ReviewDecision

_DECISIONS: dict[str, type] = {"continue": Continue, "edit": Edit, "reject": ExitEarly}
_MAX_SHOWN = 80
# The module of some events imports these only for type checkers.
_NAMES = {"AssistantMessage": conversation.AssistantMessage, "Message": conversation.Message, "TokenUsage": TokenUsage}


class _Codec(NamedTuple):
    """The writer and the reader of values of one type; the reader's second argument is the value's place."""

    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


class EventCodec:
    """The writer and the reader of events.

    >>> from toolsemble.events import CacheHit
    >>> EventCodec([CacheHit], str).read({"kind": "cache_hit", "tool_name": "search", "call_id": "call_1"}).tool_name
    'search'
    """

    def __init__(self, kinds: Iterable[Any], convert: Callable[[Any], Any]) -> None:
        """Set the types of events.

        :param kinds: the types of events that can be read
        :param convert: converts a value of any other type, such as a call's argument, to a JSON value
        """
        origins = [get_origin(each) or each for each in kinds]  # an event may be generic
        self.kinds: dict[str, Any] = {each.kind: each for each in origins}
        self._convert = convert
        self._any = _Codec(convert, lambda value, _: value)
        self._lock = fork_safe_lock(self)
        self._fields: dict[Any, _Codec] = {}
        self._unfinished: dict[Any, _Codec] = {}  # for dataclasses whose codec is under construction; needs the lock
        self._known: dict[Any, _Codec] = {
            **_OWN_CODECS,
            Any: self._any,
            ToolReply: _Codec(self._write_reply, _read_own(_read_reply)),
            ToolResult: _Codec(self._write_result, _read_own(_read_result)),
            ReviewDecision: _Codec(self._write_decision, self._read_decision),
        }

    def write(self, event: Any) -> dict[str, Any]:
        """Return an event as JSON values, with its kind first."""
        kind: Any = type(event)
        return {"kind": event.kind, **(self._fields_codec(kind).write(event) if is_dataclass(kind) else {})}

    def read(self, values: Any) -> Any:
        """Return the event that :meth:`write` wrote; raise ``ValueError`` with the place for other values."""
        kind = values.get("kind") if isinstance(values, dict) else None
        if not isinstance(kind, str) or kind not in self.kinds:
            raise ValueError(f"kind: expected one of {', '.join(self.kinds)}, got {_show(kind)}")
        return self._fields_codec(self.kinds[kind]).read(values, "")

    def _codec_for(self, hint: Any) -> _Codec:
        """Return the codec for the type of a field."""
        found = self._known.get(hint)
        if found is None:
            found = self._known[hint] = self._make_codec(hint, get_origin(hint), get_args(hint))
        return found

    def _make_codec(self, hint: Any, origin: Any, arguments: tuple[Any, ...]) -> _Codec:
        if origin in {Union, UnionType}:
            return self._optional_codec(arguments)
        if origin in {tuple, list}:
            return _sequence_codec(origin, self._codec_for(arguments[0]))
        if origin is Literal:
            expected = "one of " + ", ".join(map(repr, arguments))
            return _Codec(self._convert, _make_check(expected, lambda value: value in arguments))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return _Codec(self._convert, _make_check("an object", lambda value: isinstance(value, dict)))
        if isinstance(hint, type) and issubclass(hint, Enum):
            return _Codec(lambda value: value.value, lambda value, place: _read_enum(hint, value, place))
        inner: Any = hint if origin is None else origin
        return self._fields_codec(inner) if is_dataclass(inner) else self._any

    def _fields_codec(self, kind: Any) -> _Codec:
        found = self._fields.get(kind)
        if found is None:
            with self._lock:  # a thread never sees an unfinished codec
                found = self._fields.get(kind) or self._unfinished.get(kind) or self._add_fields_codec(kind)
        return found

    def _add_fields_codec(self, kind: Any) -> _Codec:
        self._unfinished[kind] = _Codec(partial(self._write_later, kind), partial(self._read_later, kind))
        try:
            found = self._fields[kind] = self._make_fields_codec(kind)
        finally:
            del self._unfinished[kind]
        return found

    def _write_later(self, kind: Any, value: Any) -> Any:
        """Write an object of a recursive dataclass, with the codec that is finished by now."""
        return self._fields_codec(kind).write(value)

    def _read_later(self, kind: Any, value: Any, place: str) -> Any:
        return self._fields_codec(kind).read(value, place)

    def _make_fields_codec(self, kind: Any) -> _Codec:
        """Return the codec of a dataclass."""
        hints = get_type_hints(kind, localns=_NAMES)
        written = [each for each in fields(kind) if each.metadata.get("is_written", True)]
        codecs = {each.name: self._codec_for(hints[each.name]) for each in written}
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

    def _optional_codec(self, options: tuple[Any, ...]) -> _Codec:
        """Return the codec of a union: an optional type, or else any JSON value."""
        others = [option for option in options if option is not NoneType]
        inner = self._codec_for(others[0]) if len(others) == 1 else self._any
        return _Codec(
            lambda value: None if value is None else inner.write(value),
            lambda value, place: None if value is None else inner.read(value, place),
        )

    def _write_result(self, result: ToolResult) -> dict[str, Any]:
        return result_to_fields(result, self._convert)

    def _write_reply(self, reply: ToolReply) -> dict[str, Any]:
        texts = {"limit": reply.limit, "more": reply.more, "note": reply.note}
        ran = {} if reply.arguments is None else {"arguments": self._convert(reply.arguments)}
        return {"call": conversation.write_call(reply.call), "result": self._write_result(reply.result), **texts, **ran}

    def _write_decision(self, decision: ReviewDecision) -> dict[str, Any]:
        name = next(name for name, kind in _DECISIONS.items() if type(decision) is kind)
        return {"decision": name, **self._fields_codec(type(decision)).write(decision)}

    def _read_decision(self, values: Any, place: str) -> Any:
        _check_object(values, place)
        name = _make_check("continue, edit or reject", lambda given: given in [*_DECISIONS])(
            values.get("decision"), _join(place, "decision")
        )
        return self._fields_codec(_DECISIONS[name]).read(values, place)


def _sequence_codec(kind: Any, item: _Codec) -> _Codec:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"{place}: expected an array, got {_show(value)}")
        return kind(item.read(each, f"{place}[{index}]") for index, each in enumerate(value))

    return _Codec(lambda value: [item.write(each) for each in value], read)


def _make_check(expected: str, fits: Callable[[Any], bool]) -> Callable[[Any, str], Any]:
    """Return a reader that returns a value unchanged, or raises if it does not fit."""

    def read(value: Any, place: str) -> Any:
        if not fits(value):
            raise ValueError(f"{place}: expected {expected}, got {_show(value)}")
        return value

    return read


def _read_enum(kind: type[Enum], value: Any, place: str) -> Enum:
    names = [member.value for member in kind]
    return kind(_make_check("one of " + ", ".join(map(repr, names)), lambda given: given in names)(value, place))


def _read_own(read: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    """Return a reader for a type with its own JSON form, whose errors begin with the place."""

    def read_with_place(value: Any, place: str) -> Any:
        try:
            return read(value)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise ValueError(f"{place}: {type(problem).__name__}: {problem}") from problem

    return read_with_place


def _read_call(values: Any) -> ToolCall:
    call = conversation.read_call(values)
    if not isinstance(call.id, (str, NoneType)):
        raise TypeError(f"the id of a call must be a str or null, not {_show(call.id)}")
    return call


def _read_reply(values: Any) -> ToolReply:
    call, result = _read_call(values["call"]), _read_result(values["result"])
    arguments = values.get("arguments")
    if not isinstance(arguments, (dict, NoneType)):
        raise TypeError(f"the arguments of a reply must be an object, not {_show(arguments)}")
    return ToolReply(call, result, values["limit"], values["more"], values["note"], arguments=arguments)


def _read_result(values: Any) -> ToolResult:
    result = result_from_fields(values)
    if not isinstance(result.text, str):
        raise TypeError("the output and the error message of a result must be texts")
    return result


def _write_float(value: Any) -> float | None:
    """Return a finite number; None for anything else, such as the progress that a tool reported as NaN."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _write_text(value: Any) -> str:
    """Return a text; a tool may report its progress with anything."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def _check_object(values: Any, place: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{place}: expected an object, got {_show(values)}")


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _show(value: Any) -> str:
    return f"{value!r:.{_MAX_SHOWN}}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_MESSAGE = _Codec(
    lambda message: json.loads(conversation.message_to_json(message)),
    _read_own(lambda values: conversation.message_from_json(json.dumps(values))),
)
_OWN_CODECS: dict[Any, _Codec] = {
    str: _Codec(_write_text, _make_check("a str", lambda value: isinstance(value, str))),
    bool: _Codec(bool, _make_check("true or false", lambda value: isinstance(value, bool))),
    int: _Codec(int, _make_check("an int", lambda value: type(value) is int)),
    float: _Codec(_write_float, _make_check("a number", _is_number)),
    ToolCall: _Codec(conversation.write_call, _read_own(_read_call)),
    conversation.AssistantMessage: _MESSAGE,
    conversation.Message: _MESSAGE,
    conversation.Transcript: _Codec(
        lambda messages: json.loads(conversation.messages_to_json(messages)),
        _read_own(lambda values: conversation.messages_from_json(json.dumps(values))),
    ),
}
