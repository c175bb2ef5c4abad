"""Tool results of Strands: text, images and documents in blocks, as in Amazon Bedrock's Converse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.result import Content, FileContent, ImageContent, TextContent, ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.interop._adopted import failure, join_parts
from toolsemble.interop._exported import payload_of
from toolsemble.models._adapter.wire import describe_omitted, media_type
from toolsemble.models.bedrock._wire import DOCUMENTS, IMAGES, VIDEOS

_TYPES = {name: kind for kind, name in {**IMAGES, **DOCUMENTS}.items()}


def write_result(reply: ToolReply) -> dict[str, Any]:
    """Return the result of a call; the structured output is where tools of MCP servers have it.

    >>> from toolsemble import ToolCall
    >>> write_result(ToolReply(ToolCall("now", id="c1"), ToolResult.success("noon")))
    {'toolUseId': 'c1', 'status': 'success', 'content': [{'text': 'noon'}]}
    """
    result: dict[str, Any] = _omit_videos(reply).to_bedrock()["toolResult"]
    payload = payload_of(reply)
    return result if payload is None else {**result, "structuredContent": payload}


def _omit_videos(reply: ToolReply) -> ToolReply:
    """Return a reply with a line of text for each video, which results of Strands cannot hold."""
    if not reply.contents:
        return reply
    contents = tuple(map(_omit_video, reply.contents))
    return replace(reply, result=replace(reply.result, contents=contents))


def _omit_video(content: Content) -> Content:
    if isinstance(content, TextContent) or media_type(content) not in VIDEOS:
        return content
    return TextContent(describe_omitted(content))


def read_result(result: Any) -> ToolResult:
    """Return the result of a tool of Strands.

    >>> read_result({"toolUseId": "c1", "status": "error", "content": [{"text": "no such city"}]})
    ToolResult.failure('no such city')
    """
    if not isinstance(result, Mapping) or not isinstance(result.get("content"), list):
        return failure(f"The tool returned no result, but a {type(result).__name__}")
    text, contents = join_parts(map(_read_block, result["content"]))
    if result.get("status") == "error":
        return failure(text)
    return ToolResult.success(text, result.get("structuredContent"), contents=contents)


def _read_block(block: Mapping[str, Any]) -> str | Content:
    """Return the text or the media of a block; blocks of other types become JSON text."""
    if "text" in block:
        return str(block["text"])
    kind = "image" if "image" in block else "document"
    media = block.get(kind) or {}
    data, mime_type = media.get("source", {}).get("bytes"), _TYPES.get(str(media.get("format")))
    if isinstance(data, bytes) and mime_type is not None:
        name = str(media.get("name") or "document")
        return ImageContent(data, mime_type) if kind == "image" else FileContent(data, mime_type, name)
    return compact_json(block.get("json", block), default=str)
