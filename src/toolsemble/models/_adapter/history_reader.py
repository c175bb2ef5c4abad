"""Code shared by the readers of histories in other formats: validation with paths, media, calls and replies."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble._vocabulary.media_url import guess_media_type
from toolsemble._vocabulary.result import Content, FileContent, ImageContent, Media, TextContent, ToolResult
from toolsemble.models._adapter.wire import field
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, Transcript, UserMessage

_ERROR = "Error: "
_NOT_FINISHED = "The call did not finish"
PDF = "application/pdf"
"""The default media type of a file, which every provider with file support accepts."""


class HistoryReader:
    """A conversation parsed message by message; every call must get its reply."""

    def __init__(self, *, answer_open_calls: bool = False) -> None:
        """Start an empty conversation.

        :param answer_open_calls: whether to answer a call without a reply as failed instead of raising: a browser sends
            such calls after it left a run
        """
        self._answer_open_calls = answer_open_calls
        self._messages: list[Message] = []
        self._open: dict[str | None, tuple[str, ToolCall]] = {}
        self._has_replies = False

    def add(self, place: str, message: Message) -> None:
        """Add a message that is not a reply."""
        self._close_calls()
        self._messages.append(message)
        self._has_replies = False
        for index, call in enumerate(message.calls if isinstance(message, AssistantMessage) else ()):
            self._open_call(f"{place}, call {index}", call)

    def add_call(self, place: str, call: ToolCall) -> None:
        """Add a call to the last message if it is an assistant message, else a message with this call."""
        last = self._messages[-1] if self._messages else None
        if not isinstance(last, AssistantMessage) or self._has_replies:
            self.add(place, AssistantMessage())
            last = AssistantMessage()
        self._messages[-1] = replace(last, calls=(*last.calls, call))
        self._open_call(place, call)

    def add_reply(self, place: str, call_id: str | None, result: ToolResult) -> None:
        """Add the reply to a call; raise unless it directly follows the call."""
        if call_id not in self._open:
            raise ValueError(f"{place}: it answers the call {call_id!r:.80}, which was not made just before it")
        _, call = self._open.pop(call_id)
        self._messages.append(ToolMessage(ToolReply(call, result)))
        self._has_replies = True

    def finish(self) -> Transcript:
        """Return the conversation; raise if a call has no reply."""
        self._close_calls()
        return Transcript(self._messages)

    def _open_call(self, place: str, call: ToolCall) -> None:
        if call.id in self._open:
            raise ValueError(f"{place}: two calls have the id {call.id!r:.80}")
        self._open[call.id] = place, call

    def _close_calls(self) -> None:
        for call_id, (place, call) in list(self._open.items()):
            if not self._answer_open_calls:
                raise ValueError(
                    f"{place}: the call {call_id!r:.80} of '{call.name:.64}' has no reply; add one after it"
                )
            self.add_reply(place, call_id, ToolResult.failure(_NOT_FINISHED))


def iterate_items(value: object, place: str, expected: str = "a list") -> Iterator[tuple[str, Any]]:
    """Yield a list's items with their paths; raise if it is not a list.

    >>> list(iterate_items(["a"], "messages"))
    [('messages[0]', 'a')]
    """
    # SDK objects are iterable too.
    if isinstance(value, (str, bytes, Mapping)) or hasattr(value, "to_dict") or not isinstance(value, Iterable):
        raise ValueError(f"{place}: expected {expected}, got {describe(value)}")
    for index, item in enumerate(value):
        yield f"{place}[{index}]", item


def read_text(value: object, place: str) -> str:
    """Return a text; raise for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{place}: expected a str, got {describe(value)}")
    return value


def read_call(make: Any, source: object, place: str) -> ToolCall:
    """Return the call parsed by a function such as ``ToolCall.from_openai``; raise if it is invalid or has no id."""
    try:
        call: ToolCall = make(source)
    except TypeError as problem:
        raise ValueError(f"{place}: {problem}") from None
    if not call.name or not call.id:
        raise ValueError(f"{place}: a call needs a name and an id, got {describe(source)}")
    return call


def read_data_url(url: object, place: str) -> ImageContent:
    """Return the image in a data URL; other URLs are not fetched.

    >>> read_data_url("data:image/png;base64,aGk=", "url")
    ImageContent(<2 bytes>, mime_type='image/png')
    """
    head, comma, data = read_text(url, place).partition(",")
    scheme, _, rest = head.partition(":")
    mime_type, _, encoding = rest.rpartition(";")
    if not comma or scheme != "data" or encoding != "base64":
        raise ValueError(
            f"{place}: expected an image as data:image/png;base64,…, got {url!r:.80}; images are not fetched from URLs"
        )
    return read_image(data, mime_type, place)


def read_image_url(url: object, place: str) -> ImageContent:
    """Return the image for a URL without fetching it; decode a data URL.

    >>> read_image_url("https://example.com/map.png", "url")
    ImageContent(url='https://example.com/map.png', mime_type='image/png')
    """
    address = read_text(url, place)
    if address[:5].lower() == "data:":
        return read_data_url(address, place)
    try:
        return ImageContent.from_url(address)
    except ValueError as problem:
        raise ValueError(f"{place}: {problem}") from None


def read_file_url(url: object, name: str, place: str) -> FileContent:
    """Return the file for a URL without fetching it; decode a data URL.

    :param name: the name of the file; empty for the last part of the URL

    >>> read_file_url("https://example.com/a", "", "url")
    FileContent(url='https://example.com/a', mime_type='application/pdf', name='a')
    """
    address = read_text(url, place)
    known = None if address[:5].lower() == "data:" else guess_media_type(address) or PDF
    try:
        return FileContent.from_url(address, known, name or None)
    except ValueError as problem:
        raise ValueError(f"{place}: {problem}") from None


def read_image(data: object, mime_type: object, place: str) -> ImageContent:
    """Return an image of base64 text."""
    if not isinstance(mime_type, str) or not mime_type.startswith("image/"):
        raise ValueError(f"{place}: expected the media type of an image, got {describe(mime_type)}")
    return ImageContent(read_base64(data, place), mime_type)


def read_base64(data: object, place: str) -> bytes:
    """Return the bytes of base64 text."""
    try:
        return b64decode(read_text(data, place), validate=True)
    except binascii.Error as problem:
        raise ValueError(f"{place}: this is not base64: {problem}") from None


def make_result(text: str, contents: Iterable[Content] = (), *, is_error: bool | None = None) -> ToolResult:
    """Return the result of a call from its reply text.

    :param is_error: whether the call failed; None if the format does not say: a text that begins with ``Error:``, as
        written by this library, is a failure's message

    >>> make_result("Error: no such city"), make_result("sunny")
    (ToolResult.failure('no such city'), ToolResult.success('sunny'))
    """
    message = text.removeprefix(_ERROR)
    has_failed = message != text and bool(message) if is_error is None else is_error
    return ToolResult.failure(message) if has_failed else ToolResult.success(text, contents=contents)


def make_result_of(parts: Iterable[Content], *, is_error: bool | None = None) -> ToolResult:
    """Return the result of a call with these contents; the first text is the result's, as written by this library.

    :param is_error: as in :func:`make_result`; a failure has only texts

    >>> make_result_of([TextContent("a map"), ImageContent(b"...", "image/png")]).contents
    (ImageContent(<3 bytes>, mime_type='image/png'),)
    """
    first, *rest = [*parts] or [TextContent("")]
    if not isinstance(first, TextContent):
        first, rest = TextContent(""), [first, *rest]
    result = make_result(first.text, rest, is_error=is_error)
    return result if result.is_success else make_result("\n".join(_texts([first, *rest])), is_error=is_error)


def make_prompt(parts: Iterable[Content]) -> UserMessage:
    r"""Return the user message with these contents; texts are joined by newlines.

    >>> make_prompt([TextContent("What"), TextContent("is it?")]).text
    'What\nis it?'
    """
    every = list(parts)
    media: list[Media] = [part for part in every if not isinstance(part, TextContent)]
    return UserMessage("\n".join(_texts(every)), tuple(media))


def _texts(parts: Iterable[Content]) -> Iterator[str]:
    return (part.text for part in parts if isinstance(part, TextContent))


def to_values(source: object, place: str) -> dict[str, Any]:
    """Return an SDK's object, or a mapping, as a new dict of JSON values."""
    if hasattr(source, "to_dict"):
        source = source.to_dict(mode="json", exclude_none=True, warnings=False)
    if not isinstance(source, Mapping):
        raise ValueError(f"{place}: expected an object, got {describe(source)}")
    try:
        values: dict[str, Any] = json.loads(json.dumps(dict(source), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as problem:
        raise ValueError(f"{place}: it must consist of JSON values: {problem}") from None
    return values


def describe(value: object) -> str:
    """Return a short description of an unexpected value.

    >>> describe({"role": "user"}), describe(None), describe(7)
    ("an object with the keys 'role'", 'None', '7')
    """
    if isinstance(value, Mapping):
        return f"an object with the keys {', '.join(map(repr, value))[:80] or '(none)'}"
    return f"{value!r:.80}"


def unsupported(place: str, source: object, expected: str) -> ValueError:
    """Return the error for a part with an unsupported type."""
    kind = field(source, "type")
    got = describe(source) if kind is None else f"the type {kind!r:.80}"
    return ValueError(f"{place}: expected {expected}, got {got}")
