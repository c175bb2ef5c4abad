"""The wire format of Amazon Bedrock's Converse."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from toolsemble._vocabulary.result import Media
from toolsemble.models._adapter import wire
from toolsemble.models._adapter.dialect import adapt

IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
"""The formats of images, by media type."""
_OFFICE = "application/vnd.openxmlformats-officedocument."
DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    f"{_OFFICE}wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    f"{_OFFICE}spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
"""The formats of documents, by media type."""
VIDEOS = {
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/mpeg": "mpeg",
    "video/x-flv": "flv",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
"""The formats of videos, by media type."""
AUDIO = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/mp4": "m4a",
    "audio/webm": "webm",
}
"""The formats of audio in prompts, by media type."""
_NOT_IN_A_NAME = re.compile(r"[^0-9A-Za-z()\[\]-]+")
_LONGEST_NAME = 200


def write_tools(offers: Iterable[wire.Offer]) -> list[dict[str, Any]]:
    """Return the ``tools`` of the ``toolConfig`` argument.

    >>> from toolsemble import ToolSpecification
    >>> write_tools([ToolSpecification("now", "The time")])[0]["toolSpec"]["inputSchema"]
    {'json': {'type': 'object', 'properties': {}}}
    """
    return [{"toolSpec": _specification(offer)} for offer in offers]


def _specification(offer: wire.Offer) -> dict[str, Any]:
    strict = bool(offer.strict)
    schema, _ = adapt(wire.parameters_of(offer), strict=strict)
    # An empty description is rejected.
    described = {"description": offer.description} if offer.description else {}
    tool = {"name": offer.name, **described, "inputSchema": {"json": schema}}
    return {**tool, **({"strict": True} if strict else {}), **wire.settings_for("bedrock", offer)}


def read_call(source: object) -> wire.Call:
    """Return the name, arguments and id of a ``toolUse``, or of the content block around it.

    >>> read_call({"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Rome"}}})
    ('weather', {'city': 'Rome'}, 't1')
    """
    use = wire.field(source, "toolUse") or source
    if wire.field(use, "toolUseId", "name") is None:
        raise wire.unexpected_source(source, "a Bedrock toolUse, or the content block around it")
    return wire.make_call(wire.field(use, "name"), wire.field(use, "input"), wire.field(use, "toolUseId"))


def write_reply(answer: wire.Answer) -> dict[str, Any]:
    """Return the ``toolResult`` block, for the content of a user message.

    >>> from types import SimpleNamespace
    >>> answer = SimpleNamespace(call_id="c1", name="now", text="noon", is_error=False, contents=())
    >>> write_reply(answer)
    {'toolResult': {'toolUseId': 'c1', 'status': 'success', 'content': [{'text': 'noon'}]}}
    """
    # Blank text and empty content are rejected.
    content = wire.write_blocks(answer, _text, _block) or [_text("(no output)")]
    status = "error" if answer.is_error else "success"
    return {"toolResult": {"toolUseId": answer.call_id or "", "status": status, "content": content}}


def write_prompt(text: str, contents: Iterable[Media] = ()) -> list[dict[str, Any]]:
    """Return the content blocks of a user message; blank text has no block.

    >>> write_prompt("hello")
    [{'text': 'hello'}]
    """
    shown = [_prompt_block(content) for content in contents]
    if not text.strip() and any("document" in block for block in shown):
        text = "Read this."  # a document without a text is rejected
    return [_text(text), *shown] if text.strip() else shown


def _prompt_block(content: Media) -> dict[str, Any]:
    kind = wire.media_type(content)
    if kind in AUDIO and content.data:
        return {"audio": {"format": AUDIO[kind], "source": {"bytes": content.data}}}
    return _block(content) or _text(wire.write_as_text(content) or wire.describe_omitted(content))


def _text(text: str) -> dict[str, Any]:
    return {"text": text}


def _block(content: Media) -> dict[str, Any] | None:
    kind, source = wire.media_type(content), {"bytes": content.data}
    if not content.data:
        return None
    if kind in IMAGES:
        return {"image": {"format": IMAGES[kind], "source": source}}
    if kind in VIDEOS:
        return {"video": {"format": VIDEOS[kind], "source": source}}
    if kind in DOCUMENTS:
        return {"document": {"format": DOCUMENTS[kind], "name": _name(content), "source": source}}
    return None


def _name(content: Media) -> str:
    """Return the file's name in the characters that Bedrock allows, which do not include a dot."""
    return _NOT_IN_A_NAME.sub(" ", PurePath(wire.file_name(content)).stem).strip()[:_LONGEST_NAME] or "document"
