"""Whatever a tool gave back, as a :class:`ToolResult`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from typing import Any

from toolsemble.errors import ToolExecutionError
from toolsemble.result import NO_ATTRIBUTES, AudioContent, FileContent, ImageContent, TextContent, ToolResult

_CONTENTS = (TextContent, ImageContent, AudioContent, FileContent)


def to_result(value: object) -> ToolResult:
    """Give the result for what a tool returned.

    A result stays as it is, text is the output, None the empty output; contents travel beside the text.
    Anything else is written as compact JSON, with the object itself as the structured output.

    >>> to_result("21 °C")
    ToolResult.success('21 °C')
    >>> to_result({"celsius": 21})
    ToolResult.success('{"celsius":21}', structured_output={'celsius': 21})
    """
    if type(value) is str and value.isascii():
        return ToolResult(value, None, None, (), NO_ATTRIBUTES)  # what most tools give, with nothing left to look up
    if isinstance(value, str):
        return ToolResult(escape_surrogates(str.__str__(value)))
    if isinstance(value, ToolResult):
        return _sendable_result(value)
    if value is None:
        return ToolResult()
    if isinstance(value, _CONTENTS):
        return ToolResult(contents=(value,))
    if isinstance(value, (list, tuple)) and any(isinstance(item, _CONTENTS) for item in value):
        return _with_contents(value)
    return ToolResult(_json_text(value), structured_output=value)


def _with_contents(items: Iterable[object]) -> ToolResult:
    """Give a result of texts and contents that a tool returned together."""
    contents = [item for item in items if isinstance(item, _CONTENTS)]
    others = [to_result(item).output for item in items if not isinstance(item, _CONTENTS)]
    return ToolResult("\n".join(others), contents=tuple(contents))


def describe_error(error: BaseException | None) -> str:
    """Give an exception's message, or its class name when it has none.

    >>> describe_error(ValueError("no such city")), describe_error(ValueError())
    ('no such city', 'ValueError')
    """
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot be printed must not hide the failure
        message = ""
    return escape_surrogates(message or type(error).__name__)


def _json_text(value: object) -> str:
    if type(value) not in _PLAIN and isinstance(value, (Iterator, AsyncIterator)):
        # Reading it here could take for ever, and programs would find it used up.
        raise ToolExecutionError(f"The tool returned a {type(value).__name__}; return a list instead")
    import pydantic_core  # noqa: PLC0415 - tools that return text never pay for it

    try:
        return pydantic_core.to_json(value, **_MODES).decode()
    except ValueError as problem:
        try:
            # Half a surrogate pair, as in file names: ASCII JSON can write it as an escape, UTF-8 cannot.
            return json.dumps(pydantic_core.to_jsonable_python(value, **_MODES), separators=(",", ":"))
        except (TypeError, ValueError):
            raise ToolExecutionError(f"The tool returned a value that JSON cannot hold: {problem}") from problem


def _plain(value: Any) -> Any:
    """Give the fields of an attrs or msgspec object, and the text of anything else."""
    kind = type(value)
    fields = getattr(kind, "__struct_fields__", None)
    if fields is None:
        fields = [field.name for field in getattr(kind, "__attrs_attrs__", ())]
    return {name: getattr(value, name) for name in fields} if fields else str(value)


_MODES: dict[str, Any] = {"bytes_mode": "base64", "inf_nan_mode": "strings", "fallback": _plain}
_PLAIN = frozenset({int, float, bool, dict, list, tuple})  # what most tools give, and no iterator


def _sendable_result(result: ToolResult) -> ToolResult:
    output = escape_surrogates(result.output)
    message = result.error_message and escape_surrogates(result.error_message)
    if output is result.output and message is result.error_message:
        return result
    return replace(result, output=output, error_message=message)


def escape_surrogates(text: str) -> str:
    """Give the text with each half of a surrogate pair written as an escape: no provider could be sent it."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
