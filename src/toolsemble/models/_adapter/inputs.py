"""The contents that a model takes in prompts; others are refused before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from toolsemble._vocabulary.errors import ModelError
from toolsemble._vocabulary.media_url import hide_query
from toolsemble._vocabulary.result import Media
from toolsemble.models._adapter.wire import describe_omitted, media_type, write_as_text
from toolsemble.models._message import Message, UserMessage

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Inputs:
    """The contents that a provider takes in prompts, beside texts and text files.

    >>> from toolsemble import ImageContent
    >>> image = ImageContent.from_url("https://example.com/map.png")
    >>> Inputs("Bedrock", frozenset({"image/png"})).check([UserMessage("What is this?", (image,))])
    Traceback (most recent call last):
    ...
    toolsemble.ModelError: Bedrock takes image/png as bytes, not by URL (https://example.com/map.png); download \
it, and pass ImageContent(data, 'image/png')
    """

    provider: str
    """The name in errors."""
    data: frozenset[str]
    """The media types that it takes as bytes."""
    urls: frozenset[str] = frozenset()
    """The media types that it takes by URL; ``image/*`` stands for images of any or an unknown type."""
    max_bytes: int = 50 * MEGABYTE
    """The most bytes of all contents of a conversation, in base64."""
    advice: str = ""
    """What to do instead of a content that it does not take."""

    def check(self, messages: Iterable[Message]) -> None:
        """Raise a :class:`~toolsemble.ModelError` if a prompt has a content that the provider does not take."""
        size = 0
        for content in _contents(messages):
            self._check_type(content)
            size += len(content.data) * 4 // 3
        if size > self.max_bytes:
            raise ModelError(
                f"The contents of the prompts have {size / MEGABYTE:.1f} MB in base64, and {self.provider} takes "
                f"{self.max_bytes / MEGABYTE:g} MB; send fewer or smaller ones"
            )

    def _check_type(self, content: Media) -> None:
        kind = media_type(content)
        if content.url:
            self._check_url(content, kind)
        elif not content.data:
            raise ModelError(f"A content of the prompt is empty: {describe_omitted(content)}")
        elif kind not in self.data and write_as_text(content) is None:
            raise self._refusal(kind)

    def _check_url(self, content: Media, kind: str) -> None:
        if kind in self.urls or (kind.startswith("image/") and "image/*" in self.urls):
            return
        where = hide_query(content.url)
        if "*" in kind and self.urls:
            raise ModelError(f"{self.provider} needs the media type of {where}; pass mime_type= to from_url")
        if not (kind in self.data or "*" in kind or kind.startswith("text/")):
            raise self._refusal(kind)
        name = type(content).__name__
        more = ", name" if name == "FileContent" else ""
        raise ModelError(
            f"{self.provider} takes {kind} as bytes, not by URL ({where}); download it, and pass "
            f"{name}(data, {kind!r}{more})"
        )

    def _refusal(self, kind: str) -> ModelError:
        family = kind.partition("/")[0]
        alike = [each for each in self.data if family in {"image", "audio", "video"} and each.startswith(family)]
        taken = ", ".join([*sorted(alike or self.data), *([] if alike else ["text files"])])
        advice = f"; {self.advice}" if self.advice else ""
        return ModelError(f"{self.provider} takes no {kind} in prompts, but {taken}{advice}")


def _contents(messages: Iterable[Message]) -> Iterator[Media]:
    for message in messages:
        if isinstance(message, UserMessage):
            yield from message.contents
