"""JSON: the compact form of values, and results and contents as JSON and back."""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from toolsemble._vocabulary.result import (
    ERROR_KINDS,
    AudioContent,
    Content,
    ErrorKind,
    FileContent,
    ImageContent,
    TextContent,
    ToolResult,
)

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # created once: a tool call may need it


def compact_json(value: object, **options: Any) -> str:
    r"""Return a value as JSON without spaces; other options as for ``json.dumps``.

    >>> compact_json({"città": [1, None]}), compact_json("città", ensure_ascii=True)
    ('{"città":[1,null]}', '"citt\\u00e0"')
    """
    if not options:
        return _COMPACT.encode(value)
    return json.dumps(value, separators=(",", ":"), **{"ensure_ascii": False, **options})


def json_type(value: object) -> str:
    """Return the JSON Schema type of a value.

    >>> [json_type(value) for value in ("a", True, 1, 1.5, None, [], {})]
    ['string', 'boolean', 'integer', 'number', 'null', 'array', 'object']
    """
    found = _JSON_TYPES.get(type(value))
    return found or next((name for kind, name in _JSON_TYPES.items() if isinstance(value, kind)), "object")


def write_result(result: ToolResult) -> str:
    """Return a result as JSON text; raise ``ValueError`` if a part of it cannot be restored from JSON.

    >>> write_result(ToolResult("21 C"))
    '{"output":"21 C","error_message":null,"structured_output":null,"contents":[],"attributes":{}}'
    """
    _check_round_trip("structured output", result.structured_output)
    _check_round_trip("attributes", dict(result.attributes))
    return compact_json(result_to_fields(result), ensure_ascii=True)


def read_result(text: str) -> ToolResult:
    """Return the result that :func:`write_result` wrote; raise ``ValueError`` for other text.

    >>> read_result(write_result(ToolResult.failure("no such city")))
    ToolResult.failure('no such city')
    """
    try:
        return result_from_fields(json.loads(text))
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"Not a serialized result: {text!r:.80} ({type(problem).__name__}: {problem})") from problem


def result_to_fields(result: ToolResult, convert: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """Return a result as JSON values, for :func:`result_from_fields`.

    :param convert: returns the structured output, or an attribute, as a JSON value
    """
    return {
        "output": result.output,
        "error_message": result.error_message,
        **({} if result.error_kind is None else {"error_kind": result.error_kind}),
        "structured_output": convert(result.structured_output),
        "contents": [write_content(content) for content in result.contents],
        "attributes": {name: convert(value) for name, value in result.attributes.items()},
    }


def result_from_fields(fields: Mapping[str, Any]) -> ToolResult:
    """Return the result that :func:`result_to_fields` wrote; also from the keys of earlier versions."""
    error, payload = ("error", "payload") if "payload" in fields else ("error_message", "structured_output")
    contents = tuple(map(read_content, fields["contents"]))
    attributes = MappingProxyType(fields["attributes"])
    kind = read_error_kind(fields.get("error_kind"))
    return ToolResult(fields["output"], fields[error], fields[payload], contents, attributes, kind)


def read_error_kind(value: object) -> ErrorKind | None:
    """Return the kind of a recorded failure; None for an unknown value, as in records of other versions.

    >>> read_error_kind("timeout"), read_error_kind("moonphase")
    ('timeout', None)
    """
    return value if isinstance(value, str) and value in ERROR_KINDS else None  # type: ignore[return-value]  # checked


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
    {'type': 'text', 'text': 'a footnote'}
    """
    kind = next(name for name, kind in _TYPES.items() if isinstance(content, kind))
    if isinstance(content, TextContent):
        return {"type": kind, "text": content.text}
    name = {"name": content.name} if isinstance(content, FileContent) else {}
    if content.url:
        return {"type": kind, **name, "mime_type": content.mime_type, "url": content.url}
    data = b2a_base64(content.data, newline=False).decode()
    return {"type": kind, **name, "mime_type": content.mime_type, "data": data}


def read_content(fields: Mapping[str, Any]) -> Any:
    """Return the content that :func:`write_content` wrote; also with the class name, as in earlier versions.

    >>> read_content({"type": "text", "text": "a footnote"})
    TextContent(text='a footnote')
    >>> read_content({"kind": "TextContent", "text": "a footnote"})
    TextContent(text='a footnote')
    """
    values = dict(fields)
    kind = _TYPES[values.pop("type", None) or values.pop("kind").removesuffix("Content").lower()]
    if "data" in values or "url" in values:
        values["data"] = a2b_base64(values.get("data", ""))
    return kind(**values)


def _check_round_trip(what: str, value: Any) -> None:
    """Raise ``ValueError`` for a value that JSON does not restore unchanged."""
    try:
        if _is_plain(value):
            return
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


# bool is a subclass of int, so it comes first.
_JSON_TYPES: dict[type, str] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
_OF_ONE_CALL = {"retries"}
_SCALARS = (str, int, float, bool, type(None))
_TYPES: dict[str, Any] = {"text": TextContent, "image": ImageContent, "audio": AudioContent, "file": FileContent}
