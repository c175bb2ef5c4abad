"""The wire format of the Model Context Protocol (MCP)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from toolsemble._vocabulary.result import AudioContent, ImageContent, Media
from toolsemble._vocabulary.serialization import compact_json
from toolsemble._vocabulary.specification import Note
from toolsemble.models._adapter import wire
from toolsemble.models._adapter.dialect import Schema, ensure_object

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def write_tools(offers: Iterable[wire.Offer]) -> list[dict[str, Any]]:
    """Return a list result's ``tools``; title and hints come from the metadata.

    >>> from toolsemble import ToolSpecification
    >>> write_tools([ToolSpecification("now", "The time", metadata={"readOnlyHint": True})])[0]["annotations"]
    {'readOnlyHint': True}
    """
    return [_tool(offer) for offer in offers]


def _tool(offer: wire.Offer) -> dict[str, Any]:
    schema, _ = adapt(wire.parameters_of(offer))
    metadata = offer.metadata
    title = {"title": metadata["title"]} if isinstance(metadata.get("title"), str) else {}
    hints = {hint: metadata[hint] for hint in _HINTS if isinstance(metadata.get(hint), bool)}
    tool = {"name": offer.name, **title, "description": offer.description, "inputSchema": schema}
    return {**tool, **({"annotations": hints} if hints else {}), **write_settings(metadata)}


def write_settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's metadata keys for MCP, such as ``_meta``; none for a remote tool's origin record.

    >>> write_settings({"mcp": {"_meta": {"example.com/team": "web"}}})
    {'_meta': {'example.com/team': 'web'}}
    >>> write_settings({"mcp": {"server": "files", "name": "read", "title": "Read"}})
    {}
    """
    settings = metadata.get("mcp")
    return dict(settings) if isinstance(settings, Mapping) and "server" not in settings else {}


def adapt(parameters: Schema) -> tuple[Schema, list[Note]]:
    """Return the schema for MCP, without notes, because nothing changes.

    >>> adapt({"type": "object", "properties": {"city": {"type": "string"}}})
    ({'type': 'object', 'properties': {'city': {'type': 'string'}}}, [])
    """
    return ensure_object(parameters), []


def read_call(source: object) -> wire.Call:
    """Return the name, arguments and id of a ``tools/call`` request, or of its params.

    >>> read_call({"method": "tools/call", "id": 7, "params": {"name": "weather", "arguments": {"city": "Rome"}}})
    ('weather', {'city': 'Rome'}, '7')
    """
    params = wire.field(source, "params") or source
    name = wire.field(params, "name")
    if not isinstance(name, str):
        raise wire.unexpected_source(source, "an MCP tools/call request, or its params")
    return wire.make_call(name, wire.field(params, "arguments"), wire.field(source, "id"))


def write_reply(answer: wire.Answer) -> dict[str, Any]:
    """Return the result of the ``tools/call`` request.

    >>> from types import SimpleNamespace
    >>> answer = SimpleNamespace(call_id="c1", name="now", text="noon", is_error=False, contents=())
    >>> write_reply(answer)
    {'content': [{'type': 'text', 'text': 'noon'}], 'isError': False}
    """
    written = {"content": wire.write_blocks(answer, _text, _block) or [_text(answer.text)], "isError": answer.is_error}
    structured = None if answer.is_error else _find_structured(answer)
    return written if structured is None else {**written, "structuredContent": structured}


def _find_structured(answer: Any) -> dict[str, Any] | None:
    """Return a reply's value as an object; None if it has none, or its text is limited."""
    result = getattr(answer, "result", None)
    if result is None or result.structured_output is None or answer.limit is not None:
        return None
    try:
        value = json.loads(compact_json(result.structured_output, allow_nan=False))
    except (TypeError, ValueError):
        value = _read_object(result.output)  # a value of the program's own type, whose text is its JSON
    return value if isinstance(value, dict) or value is None else {"result": value}


def _read_object(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _block(content: Media) -> dict[str, Any]:
    kind = wire.media_type(content)
    if content.url:
        return {"type": "resource_link", "uri": content.url, "name": wire.file_name(content), "mimeType": kind}
    data = wire.base64_text(content.data)
    if isinstance(content, ImageContent | AudioContent):
        name = "image" if isinstance(content, ImageContent) else "audio"
        return {"type": name, "data": data, "mimeType": kind}
    text = wire.decode_text(content)
    held = {"blob": data} if text is None else {"text": text}
    uri = f"file:///{quote(wire.file_name(content))}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, **held}}
