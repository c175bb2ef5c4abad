"""Content blocks of LlamaIndex: texts, images, audio and documents."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent
from toolsemble.interop._adopted import join_parts

# LlamaIndex names audio by the suffix of a file.
_SUFFIXES = {"audio/mpeg": "mp3", "audio/x-wav": "wav"}
_AUDIO_TYPES = {"mp3": "audio/mpeg"}


def write_blocks(library: Any, text: str, media: Iterable[Content]) -> list[Any]:
    """Return a text and media as content blocks.

    :param library: the module with the classes of the blocks
    """
    return [library.TextBlock(text=text), *(_write_block(library, each) for each in media)]


def _write_block(library: Any, content: Any) -> Any:
    mime_type = content.mime_type
    if isinstance(content, ImageContent):
        return library.ImageBlock(**_write_source(content, "image"), image_mimetype=mime_type)
    if isinstance(content, AudioContent):
        suffix = _SUFFIXES.get(mime_type, mime_type.partition("/")[2])
        return library.AudioBlock(**_write_source(content, "audio"), format=suffix)
    return library.DocumentBlock(**_write_source(content, "data"), document_mimetype=mime_type, title=content.name)


def _write_source(content: Any, field: str) -> dict[str, Any]:
    """Return the URL, or the data: always in base64, because LlamaIndex decodes bytes that only look like it."""
    return {"url": content.url} if content.url else {field: b64encode(content.data)}


def read_blocks(blocks: Iterable[Any]) -> tuple[str, list[Content]]:
    """Return the text and the media of blocks; those of other types become JSON text."""
    return join_parts(map(_read_block, blocks))


def _read_block(block: Any) -> Any:
    if block.block_type == "text":
        return block.text
    reader = _READERS.get(block.block_type)
    if reader is None:
        return block.model_dump_json()
    try:
        return reader(block)
    except (OSError, TypeError, ValueError):
        return f"[a broken block: {block.block_type}]"


def _read_image(block: Any) -> Content:
    if block.url:
        return ImageContent.from_url(str(block.url), block.image_mimetype)
    return ImageContent(block.resolve_image().read(), block.image_mimetype or "image/png")


def _read_audio(block: Any) -> Content:
    kind = block.format or "wav"
    mime_type = _AUDIO_TYPES.get(kind, f"audio/{kind}")
    if block.url:
        return AudioContent.from_url(str(block.url), mime_type)
    return AudioContent(block.resolve_audio().read(), mime_type)


def _read_document(block: Any) -> Content:
    mime_type = block.document_mimetype or "application/octet-stream"
    if block.url:
        return FileContent.from_url(block.url, mime_type, block.title)
    return FileContent(block.resolve_document().read(), mime_type, name=block.title)


_READERS = {"image": _read_image, "audio": _read_audio, "document": _read_document}
