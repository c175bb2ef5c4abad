"""The prompt of a run, and the conversation that it starts with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, Media
from toolsemble.models._message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage

Prompt: TypeAlias = str | Media | Message | Sequence[str | Media | Message]
"""The prompt of a run: a text, texts with images, audio and files, or messages."""

_MEDIA = (ImageContent, AudioContent, FileContent)
_MESSAGES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)


def to_messages(prompt: Prompt) -> list[Message]:
    """Return a prompt as messages; raise TypeError if it is not valid.

    >>> to_messages(["What is this?", ImageContent(b"...", "image/png")])
    [UserMessage(text='What is this?', contents=(ImageContent(<3 bytes>, mime_type='image/png'),))]
    """
    if isinstance(prompt, _MESSAGES):
        return [prompt]
    parts = [prompt] if isinstance(prompt, (str, *_MEDIA)) else prompt
    if isinstance(parts, Sequence):
        messages = [part for part in parts if isinstance(part, _MESSAGES)]
        if len(messages) == len(parts):
            return messages
        texts = [part for part in parts if isinstance(part, str)]
        contents = tuple(part for part in parts if isinstance(part, _MEDIA))
        if len(texts) + len(contents) == len(parts):
            return [UserMessage(escape_surrogates("\n".join(texts)), contents)]
    raise TypeError(f"A prompt must be a str, a list of str, images, audio and files, or messages, not {prompt!r:.80}")


def check_question(prompt: Sequence[Message], *, has_earlier: bool) -> None:
    """Raise :class:`ToolConfigurationError` if there is nothing to answer.

    :param has_earlier: whether there are messages before the prompt

    >>> check_question([], has_earlier=False)
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: There is nothing to answer; pass a prompt, or a history that ends with one
    """
    has_nothing = all(message.role == "system" for message in prompt) and not has_earlier
    if has_nothing or any(map(is_blank, prompt)):
        raise ToolConfigurationError("There is nothing to answer; pass a prompt, or a history that ends with one")


def is_blank(message: Message) -> bool:
    """Whether a user message is empty, which providers refuse.

    >>> is_blank(UserMessage(" ")), is_blank(UserMessage("hello"))
    (True, False)
    """
    return isinstance(message, UserMessage) and not message.text.strip() and not message.contents
