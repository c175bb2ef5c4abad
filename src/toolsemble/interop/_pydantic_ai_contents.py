"""Contents of Pydantic AI's tool returns: texts, images, audio and files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolsemble._schema.shape import to_result
from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent
from toolsemble.interop._adopted import join_parts, read_media


def write_contents(messages: Any, media: Iterable[Content]) -> list[Any]:
    """Return media as objects of ``pydantic_ai.messages``."""
    return [_write(messages, content) for content in media]


def _write(messages: Any, content: Any) -> Any:
    if not content.url:
        return messages.BinaryContent(content.data, media_type=content.mime_type)
    kinds = {ImageContent: messages.ImageUrl, AudioContent: messages.AudioUrl, FileContent: messages.DocumentUrl}
    return kinds[type(content)](content.url)


def read_contents(messages: Any, value: Any) -> tuple[str, list[Content]]:
    """Return the text and the media of the return value of a tool; other values become JSON text."""
    return join_parts(_read(messages, each) for each in (value if isinstance(value, list) else [value]))


def _read(messages: Any, item: Any) -> str | Content:
    if isinstance(item, messages.BinaryContent):
        return read_media(item.data, item.media_type)
    urls: dict[Any, Any] = {
        messages.ImageUrl: ImageContent,
        messages.AudioUrl: AudioContent,
        messages.DocumentUrl: FileContent,
    }
    found: str | Content = urls[type(item)].from_url(item.url) if type(item) in urls else to_result(item).output
    return found
