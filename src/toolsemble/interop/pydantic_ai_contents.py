"""Contents of Pydantic AI's tool returns: texts, images, audio and files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolsemble.result import AudioContent, Content, FileContent, ImageContent
from toolsemble.shape import to_result


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
    texts: list[str] = []
    media: list[Content] = []
    for item in value if isinstance(value, list) else [value]:
        found = _read(messages, item)
        media.append(found) if found is not None else texts.append(to_result(item).output)
    return "\n".join(texts), media


def _read(messages: Any, item: Any) -> Content | None:
    if isinstance(item, messages.BinaryContent):
        kind = item.media_type
        if kind.startswith("image/"):
            return ImageContent(item.data, kind)
        return AudioContent(item.data, kind) if kind.startswith("audio/") else FileContent(item.data, kind, "file")
    urls: dict[Any, Any] = {
        messages.ImageUrl: ImageContent,
        messages.AudioUrl: AudioContent,
        messages.DocumentUrl: FileContent,
    }
    found: Content | None = urls[type(item)].from_url(item.url) if type(item) in urls else None
    return found
