"""Conversion of return values of tools to results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from typing import Any

from toolsemble.errors import ToolExecutionError
from toolsemble.result import NO_ATTRIBUTES, AudioContent, FileContent, ImageContent, TextContent, ToolResult
from toolsemble.runtime.text import escape_surrogates
from toolsemble.serialization import compact_json

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


def to_json_value(value: object) -> Any:
    """Return a value as JSON holds it, by the rules of :func:`to_result`; raise ValueError or TypeError if it cannot.

    >>> to_json_value({"at": b"noon"})
    {'at': 'bm9vbg=='}
    """
    import pydantic_core  # noqa: PLC0415 - tools that return text do not need it

    return pydantic_core.to_jsonable_python(value, **_MODES)


def _with_contents(items: Iterable[object]) -> ToolResult:
    """Return the result for a list of texts and contents."""
    contents = [item for item in items if isinstance(item, _CONTENTS)]
    others = [to_result(item).output for item in items if not isinstance(item, _CONTENTS)]
    return ToolResult("\n".join(others), contents=tuple(contents))


def _json_text(value: object) -> str:
    if type(value) not in _PLAIN and isinstance(value, (Iterator, AsyncIterator)):
        # Reading it could take forever, and would leave an exhausted iterator for programs.
        raise ToolExecutionError(f"The tool returned a {type(value).__name__}; return a list instead")
    import pydantic_core  # noqa: PLC0415 - tools that return text do not need it

    try:
        return pydantic_core.to_json(value, **_MODES).decode()
    except ValueError as problem:
        try:
            # A lone surrogate, as in file names: ASCII JSON can escape it, UTF-8 cannot encode it.
            return compact_json(pydantic_core.to_jsonable_python(value, **_MODES), ensure_ascii=True)
        except (TypeError, ValueError):
            raise ToolExecutionError(f"The tool returned a value that JSON cannot hold: {problem}") from problem


def _to_plain(value: Any) -> Any:
    """Return the fields of an attrs or msgspec object as a dict, and ``str(value)`` for anything else."""
    kind = type(value)
    fields = getattr(kind, "__struct_fields__", None)
    if fields is None:
        fields = [field.name for field in getattr(kind, "__attrs_attrs__", ())]
    return {name: getattr(value, name) for name in fields} if fields else str(value)


_MODES: dict[str, Any] = {"bytes_mode": "base64", "inf_nan_mode": "strings", "fallback": _to_plain}
_PLAIN = frozenset({int, float, bool, dict, list, tuple})  # common types, none of them an iterator


def _escape_result(result: ToolResult) -> ToolResult:
    output = escape_surrogates(result.output)
    message = result.error_message and escape_surrogates(result.error_message)
    if output is result.output and message is result.error_message:
        return result
    return replace(result, output=output, error_message=message)
