"""Conversion of tools' return values to results."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from types import CoroutineType
from typing import Any, get_args

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble._vocabulary.result import (
    NO_ATTRIBUTES,
    AudioContent,
    FileContent,
    ImageContent,
    TextContent,
    ToolResult,
)
from toolsemble._vocabulary.serialization import compact_json

_CONTENTS = (TextContent, ImageContent, AudioContent, FileContent)


def to_result(value: object) -> ToolResult:
    """Return the result for the return value of a tool.

    A result is returned unchanged, a str is the output, None the empty output, and contents become the contents.
    Any other value becomes compact JSON, with the value itself as the structured output.

    >>> to_result("21 °C")
    ToolResult.success('21 °C')
    >>> to_result({"celsius": 21})
    ToolResult.success('{"celsius":21}', structured_output={'celsius': 21})
    """
    if type(value) is str and value.isascii():
        return ToolResult(value, None, None, (), NO_ATTRIBUTES)  # the common case, without default arguments
    if isinstance(value, str):
        return ToolResult(escape_surrogates(str.__str__(value)))
    if isinstance(value, ToolResult):
        return _escape_result(value)
    if value is None:
        return ToolResult()
    if isinstance(value, _CONTENTS):
        return ToolResult(contents=(value,))
    if isinstance(value, (list, tuple)) and any(isinstance(item, _CONTENTS) for item in value):
        return _with_contents(value)
    return ToolResult(_json_text(value), structured_output=value)


def to_intermediate_result(value: object) -> ToolResult:
    """Return the result of a step whose value JSON cannot hold, and only the next step gets.

    >>> to_intermediate_result(object()).output
    'an object of type object'
    """
    return ToolResult(f"an object of type {_full_name(type(value))}", structured_output=value)


class UnsupportedResultError(ToolExecutionError):
    """A tool returned an object that JSON cannot hold."""


def to_json_value(value: object) -> Any:
    """Return any value as a JSON value: objects as their fields, NaN and infinity as text.

    A value that JSON cannot hold, because it is circular or nested too deeply, becomes a text with the reason.

    >>> to_json_value({"at": float("nan"), "city": TextContent("Rome")})
    {'at': 'NaN', 'city': {'text': 'Rome'}}
    """
    if value is None or type(value) in _JSON_SCALARS:
        return value
    try:
        return to_finite_json(value)
    except (ToolExecutionError, ValueError, RecursionError):
        return f"a {type(value).__name__} that JSON cannot hold"


def to_finite_json(value: object) -> Any:
    """Return a value as JSON values, NaN and infinity as text; raise an exception if JSON cannot hold it.

    >>> to_finite_json({"at": float("nan")})
    {'at': 'NaN'}
    """
    plain = json.loads(_json_text(value), parse_constant=str)
    nested = plain
    for _ in range(_ADDED_LEVELS):
        nested = [nested]
    json.dumps(nested)  # raises if it cannot be nested in another value
    return plain


def is_opaque(kind: Any) -> bool:
    """Return whether a type does not describe the value: results and contents, which are stored beside the text.

    >>> is_opaque(ToolResult | None), is_opaque(int)
    (True, False)
    """
    return any(kind is each for each in (ToolResult, *_CONTENTS)) or any(map(is_opaque, get_args(kind)))


def to_exact_json(value: object) -> Any:
    """Return a value as JSON, by the rules of :func:`to_result`; raise ValueError or TypeError if JSON cannot hold it.

    >>> to_exact_json({"at": b"noon"})
    {'at': 'bm9vbg=='}
    """
    import pydantic_core

    try:
        return pydantic_core.to_jsonable_python(value, **_MODES)
    except _UnsupportedError as found:
        raise TypeError(_explain_unsupported(value, found.value)) from None


def _with_contents(items: Iterable[object]) -> ToolResult:
    """Return the result for a list of texts and contents."""
    contents = [item for item in items if isinstance(item, _CONTENTS)]
    others = [to_result(item).output for item in items if not isinstance(item, _CONTENTS)]
    return ToolResult("\n".join(others), contents=tuple(contents))


def _json_text(value: object) -> str:
    if type(value) not in _PLAIN and isinstance(value, (Iterator, AsyncIterator)):
        # Reading it could take forever, and would leave an exhausted iterator for programs.
        raise ToolExecutionError(f"The tool returned a {type(value).__name__}; return a list instead")
    import pydantic_core

    try:
        return pydantic_core.to_json(value, **_MODES).decode()
    except ValueError as problem:
        try:
            # A lone surrogate, as in file names: ASCII JSON can escape it, UTF-8 cannot encode it.
            return compact_json(pydantic_core.to_jsonable_python(value, **_MODES), ensure_ascii=True)
        except _UnsupportedError as found:
            raise UnsupportedResultError(_explain_unsupported(value, found.value)) from None
        except (TypeError, ValueError):
            raise ToolExecutionError(f"The tool returned a value that JSON cannot hold: {problem}") from problem


def _to_plain(value: Any) -> Any:
    """Return the fields of an attrs or msgspec object as a dict, and an object with its own ``__str__`` as its text.

    Raise :class:`_UnsupportedError` for an object whose text would be its ``repr``, which means nothing to a model.
    """
    kind = type(value)
    fields = getattr(kind, "__struct_fields__", None)
    if fields is None:
        fields = [field.name for field in getattr(kind, "__attrs_attrs__", ())]
    if fields:
        return {name: getattr(value, name) for name in fields}
    if kind.__str__ is object.__str__:  # type: ignore[comparison-overlap]  # it is, for a class without its own __str__
        raise _UnsupportedError(value)
    return str(value)


class _UnsupportedError(Exception):
    """JSON cannot hold the object."""

    def __init__(self, value: object) -> None:
        super().__init__(type(value).__name__)
        self.value = value


def _explain_unsupported(returned: object, part: object) -> str:
    try:
        place = _find_place(returned, part, "$", set())
    except RecursionError:
        place = None
    where = "" if place in (None, "$") else f" at {place}"
    if isinstance(part, CoroutineType):
        return f"The tool returned the coroutine of '{part.__name__}'{where}, which was not awaited; write await"
    return (
        f"The tool returned an object of type {_full_name(type(part))}{where}, which JSON cannot hold; return a dict, "
        "a list, a dataclass or a pydantic model, or a ToolResult with the text for the model"
    )


def _full_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _find_place(value: Any, part: object, place: str, seen: set[int]) -> str | None:
    """Return the path to a part of a value, such as ``$.rows[1]``; None if it is not found."""
    if value is part:
        return place
    if id(value) in seen or len(seen) >= _MOST_SEARCHED:
        return None
    seen.add(id(value))
    if isinstance(value, Mapping):
        inner = [(f"{place}.{key}" if isinstance(key, str) else f"{place}[{key!r:.80}]", value[key]) for key in value]
        inner += [(f"a key of {place}", key) for key in value]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = [(f"{place}[{index}]", each) for index, each in enumerate(value)]
    else:
        inner = [(f"{place}.{name}", each) for name, each in getattr(value, "__dict__", {}).items()]
    return next((found for where, each in inner if (found := _find_place(each, part, where, seen))), None)


_MODES: dict[str, Any] = {"bytes_mode": "base64", "inf_nan_mode": "strings", "fallback": _to_plain}
_MOST_SEARCHED = 10_000
_JSON_SCALARS = frozenset({str, bool, int})
_ADDED_LEVELS = 20  # levels of nesting that an event adds to a value
_PLAIN = frozenset({int, float, bool, dict, list, tuple})  # common types, none of them an iterator


def _escape_result(result: ToolResult) -> ToolResult:
    output = escape_surrogates(result.output)
    message = result.error_message and escape_surrogates(result.error_message)
    if output is result.output and message is result.error_message:
        return result
    return replace(result, output=output, error_message=message)
