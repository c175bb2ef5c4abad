"""The wire format of Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolsemble._vocabulary.result import Media
from toolsemble.models._adapter import wire
from toolsemble.models._adapter.dialect import adapt

IMAGES = {"image/png", "image/jpeg", "image/webp", "image/gif"}
"""The types of images."""


def write_tools(offers: Iterable[wire.Offer]) -> list[dict[str, Any]]:
    """Return the ``tools`` argument.

    >>> from toolsemble import ToolSpecification
    >>> write_tools([ToolSpecification("now", "The time")])
    [{'name': 'now', 'description': 'The time', 'input_schema': {'type': 'object', 'properties': {}}}]
    """
    return [_tool(offer) for offer in offers]


def _tool(offer: wire.Offer) -> dict[str, Any]:
    strict = bool(offer.strict)
    schema, _ = adapt(wire.parameters_of(offer), strict=strict)
    tool = {"name": offer.name, "description": offer.description, "input_schema": schema}
    return {**tool, **({"strict": True} if strict else {}), **wire.settings_for("anthropic", offer)}


def read_call(source: object) -> wire.Call:
    """Return the name, arguments and id of a ``tool_use`` block.

    >>> read_call({"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}})
    ('weather', {'city': 'Rome'}, 'toolu_1')
    """
    if wire.field(source, "type") != "tool_use":
        raise wire.unexpected_source(source, "an Anthropic tool_use block")
    return wire.make_call(wire.field(source, "name"), wire.field(source, "input"), wire.field(source, "id"))


def write_reply(answer: wire.Answer) -> dict[str, Any]:
    """Return the ``tool_result`` block, for the content of a user message.

    >>> from types import SimpleNamespace
    >>> answer = SimpleNamespace(call_id="c1", name="now", text="noon", is_error=False, contents=())
    >>> write_reply(answer)
    {'type': 'tool_result', 'tool_use_id': 'c1', 'content': 'noon'}
    """
    # A result with is_error may contain text only.
    write_media = (lambda _: None) if answer.is_error else _block
    content = wire.write_blocks(answer, _text, write_media) if answer.contents else ""
    block = {"type": "tool_result", "tool_use_id": answer.call_id or "", "content": content or answer.text}
    return {**block, "is_error": True} if answer.is_error else block


def write_prompt(text: str, contents: Iterable[Media] = ()) -> list[dict[str, Any]]:
    """Return the content blocks of a user message; blank text has no block.

    >>> write_prompt("hello")
    [{'type': 'text', 'text': 'hello'}]
    """
    # Images and documents come first, as Anthropic recommends.
    written = [
        _block(content) or _text(wire.write_as_text(content) or wire.describe_omitted(content)) for content in contents
    ]
    return [*written, _text(text)] if text.strip() else written


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _block(content: Media) -> dict[str, Any] | None:
    kind, text = wire.media_type(content), wire.decode_text(content)
    if kind in IMAGES or (content.url and kind.startswith("image/")):
        return {"type": "image", "source": _source(content)}
    if kind == "application/pdf":
        return {"type": "document", "source": _source(content), "title": wire.file_name(content)}
    if text and text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "source": source, "title": wire.file_name(content)}
    return None


def _source(content: Media) -> dict[str, Any]:
    if content.url:
        return {"type": "url", "url": content.url}
    return {"type": "base64", "media_type": wire.media_type(content), "data": wire.base64_text(content.data)}
