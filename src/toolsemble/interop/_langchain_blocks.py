"""Content blocks of LangChain's messages: texts, images, audio and files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent
from toolsemble._vocabulary.serialization import compact_json, read_content
from toolsemble.interop._adopted import join_parts
from toolsemble.models._adapter.wire import base64_text, describe_omitted

_TYPES: dict[str, type[Any]] = {"image": ImageContent, "audio": AudioContent, "file": FileContent}


def write_blocks(text: str, media: Iterable[Content]) -> list[dict[str, Any]]:
    """Return a text and media as content blocks.

    >>> write_blocks("a map", [ImageContent(b"...", "image/png")])[1]
    {'type': 'image', 'mime_type': 'image/png', 'base64': 'Li4u'}
    """
    return [{"type": "text", "text": text}, *map(_write_block, media)]


def _write_block(content: Any) -> dict[str, Any]:
    if isinstance(content, AudioContent):  # a message with it would become one text with all bytes
        return {"type": "text", "text": describe_omitted(content)}
    kind = next(name for name, each in _TYPES.items() if isinstance(content, each))
    name = {"filename": content.name} if kind == "file" else {}
    source = {"url": content.url} if content.url else {"base64": base64_text(content.data)}
    return {"type": kind, "mime_type": content.mime_type, **source, **name}


def read_blocks(content: Any) -> tuple[str, list[Content]]:
    """Return the text and the media of a message; blocks of other types become JSON text.

    >>> read_blocks([{"type": "text", "text": "a map"}, {"type": "image", "mime_type": "image/png", "base64": "Li4u"}])
    ('a map', [ImageContent(<3 bytes>, mime_type='image/png')])
    """
    if isinstance(content, str):
        return content, []
    return join_parts(map(_read_block, content))


def _read_block(block: Any) -> str | Content:
    if isinstance(block, str):
        return block
    if block.get("type") == "text":
        return str(block.get("text", ""))
    found = _read_media(block)
    return compact_json(block, default=str) if found is None else found


def _read_media(block: dict[str, Any]) -> Content | None:
    """Return the content of a block in one of LangChain's formats; None if it is none of them, or broken."""
    kind = str(block.get("type"))
    if kind == "image_url":
        source = block.get("image_url")
        kind, block = "image", {"url": source.get("url") if isinstance(source, dict) else source}
    if kind not in _TYPES:
        return None
    data = block.get("base64") or (block.get("data") if block.get("source_type", "base64") == "base64" else None)
    name = {"name": str(block.get("filename") or block.get("name") or "file")} if kind == "file" else {}
    try:
        if isinstance(data, str):
            mime_type = block.get("mime_type") or "application/octet-stream"
            return read_content({"type": kind, "data": data, "mime_type": mime_type, **name})  # type: ignore[no-any-return]  # one of the contents
        return _TYPES[kind].from_url(block["url"], block.get("mime_type"))  # type: ignore[no-any-return]  # as above
    except (KeyError, TypeError, ValueError):
        return None
