"""Serialization of results and contents as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from toolsemble.result import AudioContent, Content, FileContent, ImageContent, TextContent, ToolResult


def write_result(result: ToolResult) -> str:
    """Return a result as JSON text; raise ``ValueError`` if a part of it cannot be restored from JSON.

    >>> write_result(ToolResult.success("21 C", {"celsius": 21}))
    '{"output":"21 C","error":null,"payload":{"celsius":21},"contents":[],"attributes":{}}'
    """
    return json.dumps(
        {
            "output": result.output,
            "error": result.error_message,
            "payload": _check_round_trip("structured output", result.structured_output),
            "contents": [write_content(content) for content in result.contents],
            "attributes": _check_round_trip("attributes", dict(result.attributes)),
        },
        separators=(",", ":"),
    )


def read_result(text: str) -> ToolResult:
    """Return the result that :func:`write_result` wrote; raise ``ValueError`` for other text.

    >>> read_result(write_result(ToolResult.failure("no such city")))
    ToolResult.failure('no such city')
    """
    try:
        fields = json.loads(text)
        return ToolResult(
            fields["output"],
            fields["error"],
            fields["payload"],
            tuple(map(read_content, fields["contents"])),
            MappingProxyType(fields["attributes"]),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"Not a serialized result: {text!r:.80} ({type(problem).__name__}: {problem})") from problem


def without_retries(result: ToolResult) -> ToolResult:
    """Return a result without the attribute ``retries``, which describes the call and not its outcome.

    >>> without_retries(ToolResult.success("sunny", attributes={"retries": 2, "station": 7})).attributes["station"]
    7
    """
    if result.attributes.keys().isdisjoint(_OF_ONE_CALL):
        return result
    facts = {name: value for name, value in result.attributes.items() if name not in _OF_ONE_CALL}
    return replace(result, attributes=MappingProxyType(facts))


def write_content(content: Content) -> dict[str, Any]:
    """Return a content as JSON values, for :func:`read_content`.

    >>> write_content(TextContent("a footnote"))
    {'kind': 'TextContent', 'text': 'a footnote'}
    """
    kind = type(content).__name__
    if isinstance(content, TextContent):
        return {"kind": kind, "text": content.text}
    name = {"name": content.name} if isinstance(content, FileContent) else {}
    data = base64.b64encode(content.data).decode()
    return {"kind": kind, "data": data, "mime_type": content.mime_type, **name}


def read_content(fields: Mapping[str, Any]) -> Any:
    """Return the content that :func:`write_content` wrote.

    >>> read_content({"kind": "TextContent", "text": "a footnote"})
    TextContent(text='a footnote')
    """
    return _read(_CONTENTS[fields["kind"]], fields, "kind")


def type_name(content: Content) -> str:
    """Return the type name of a content in files that people read.

    >>> type_name(TextContent("a footnote"))
    'text'
    """
    return next(name for name, kind in _TYPES.items() if isinstance(content, kind))


def read_typed_content(fields: Mapping[str, Any]) -> Any:
    """Return the content for a :func:`type_name` and its fields, with data in base64.

    >>> read_typed_content({"type": "text", "text": "a footnote"})
    TextContent(text='a footnote')
    """
    return _read(_TYPES[fields["type"]], fields, "type")


def _read(kind: Any, fields: Mapping[str, Any], type_key: str) -> Any:
    values = {name: value for name, value in fields.items() if name != type_key}
    if "data" in values:
        values["data"] = base64.b64decode(values["data"])
    return kind(**values)


def _check_round_trip(what: str, value: Any) -> Any:
    """Return a value that JSON restores unchanged; raise ``ValueError`` for others."""
    try:
        if _is_plain(value):
            return value
    except RecursionError:
        pass
    raise ValueError(f"its {what} cannot be restored from JSON unchanged")


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _is_plain(each) for key, each in value.items())
    if kind is list:
        return all(map(_is_plain, value))
    return kind in _SCALARS


_OF_ONE_CALL = {"retries"}
_SCALARS = (str, int, float, bool, type(None))
_CONTENTS: dict[str, Any] = {kind.__name__: kind for kind in (TextContent, ImageContent, AudioContent, FileContent)}
_TYPES: dict[str, Any] = {"text": TextContent, "image": ImageContent, "audio": AudioContent, "file": FileContent}
