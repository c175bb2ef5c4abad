"""A browser's request: its messages and attachments, validated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from toolsemble._runtime.urls import UrlRefusedError, host_of, is_public
from toolsemble._vocabulary.media_url import check_url, file_name_of, guess_media_type, read_data_url
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, Media
from toolsemble.models._adapter.history_reader import HistoryReader, describe, iterate_items, read_base64, read_text
from toolsemble.models._message import Transcript, UserMessage


@dataclass(frozen=True, slots=True)
class UiRequest:
    """A browser's request; everything in it is untrusted client input.

    >>> from toolsemble.agent.streams import read_vercel
    >>> parts = [{"type": "text", "text": "Where is Rome?"}]
    >>> request = read_vercel({"id": "chat_1", "messages": [{"id": "m1", "role": "user", "parts": parts}]})
    >>> request.thread_id, request.prompt.text, len(request.history)
    ('chat_1', 'Where is Rome?', 0)
    """

    thread_id: str
    """The conversation id. Prefix it with the user's id for a ``memory_id``: a client can send any id."""
    prompt: UserMessage
    """The new question: the last message."""
    history: Transcript = field(default_factory=Transcript)
    """The messages before it; ignore them if the server has its own memory."""
    run_id: str = ""
    """The run id of an AG-UI client; empty for the Vercel AI SDK."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """All messages, in the client's format."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The whole request."""


def load_body(body: object) -> dict[str, Any]:
    """Return a request body as a dict: from JSON text, a mapping, or a pydantic object.

    >>> load_body(b'{"id": "chat_1"}')
    {'id': 'chat_1'}
    """
    if hasattr(body, "model_dump"):
        body = body.model_dump(mode="json", by_alias=True)
    if isinstance(body, (str, bytes, bytearray)):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError) as problem:
            raise ValueError(f"The request is not JSON: {problem}") from None
    if not isinstance(body, Mapping):
        raise ValueError(f"The request: expected an object, got {describe(body)}")
    return dict(body)


def read_messages(body: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the messages of a request with their places."""
    items = list(iterate_items(body.get("messages"), "messages"))
    for place, message in items:
        if not isinstance(message, Mapping):
            raise ValueError(f"{place}: expected an object, got {describe(message)}")
    return items


def read_id(body: Mapping[str, Any], name: str) -> str:
    """Return an id of a request; raise unless it is a non-empty str."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}: expected a non-empty str, got {describe(value)}")
    return value


def split_prompt(reader: HistoryReader) -> tuple[UserMessage, Transcript]:
    """Return the last message, which must be a user message with content, and the conversation before it."""
    messages = list(reader.finish())
    prompt = messages.pop() if messages else None
    if not isinstance(prompt, UserMessage):
        raise ValueError("messages: the last message must be one of the user, with the question")
    if not prompt.text.strip() and not prompt.contents:
        raise ValueError("messages: the last message is empty; it needs a text or a file")
    return prompt, Transcript(messages)


_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
# The last label of a name is not a number: some programs read 127.1 and 0x7f.1 as addresses.
_NAME = re.compile(r"(?:[a-z0-9_-]+\.)+[a-z][a-z0-9-]*")
_LOCAL = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
_MAX_NAME = 255


def read_attachment_data(data: object, media_type: object, name: object, place: str) -> Media:
    """Return an attachment of base64 text; raise ``ValueError`` if it is not one.

    >>> read_attachment_data("aGk=", "application/pdf", "a/report.pdf", "file")
    FileContent(<2 bytes>, mime_type='application/pdf', name='report.pdf')
    """
    return _build(_read_media_type(media_type, place), _read_name(name, place), place, data=read_base64(data, place))


def read_attachment_url(url: object, media_type: object, name: object, place: str) -> Media:
    """Return the attachment at a URL, which the provider fetches; the data of a ``data:`` URL is decoded.

    Only public hosts are accepted: a client could make a model server read addresses in its internal network.

    :param media_type: the media type; None: guessed from the extension

    >>> read_attachment_url("https://example.com/map.png", None, None, "file")
    ImageContent(url='https://example.com/map.png', mime_type='image/png')
    >>> read_attachment_url("http://10.0.0.5/map.png", None, None, "file")
    Traceback (most recent call last):
    ...
    ValueError: file: expected the URL of a public host, got the host '10.0.0.5'
    """
    address, known = read_text(url, place), _read_name(name, place)
    if address[:5].lower() == "data:":
        data, kind = read_data_url(place, address)
        return _build(_read_media_type(kind, place), known, place, data=data)
    check_url(place, address)
    _check_host(address, place)
    found = guess_media_type(address) if media_type is None else media_type
    return _build(_read_media_type(found, place), known or file_name_of(address), place, data=b"", url=address)


def _build(media_type: str, name: str, place: str, **source: Any) -> Media:
    family = media_type.partition("/")[0]
    if family == "video":
        raise ValueError(f"{place}: expected an image, audio or a file, got the media type {media_type!r:.80}")
    if not (source["data"] or source.get("url")):
        raise ValueError(f"{place}: expected data, got none")
    if family == "image":
        return ImageContent(mime_type=media_type, **source)
    if family == "audio":
        return AudioContent(mime_type=media_type, **source)
    return FileContent(mime_type=media_type, name=name or "file", **source)


def _read_media_type(media_type: object, place: str) -> str:
    """Return a media type in lower case, without parameters."""
    if isinstance(media_type, str):
        plain = media_type.partition(";")[0].strip().lower()
        if _MEDIA_TYPE.fullmatch(plain):
            return plain
    raise ValueError(f"{place}: expected a media type, such as 'image/png', got {describe(media_type)}")


def _read_name(name: object, place: str) -> str:
    """Return a file name without directories; empty for None."""
    if name is None:
        return ""
    plain = PurePosixPath(PureWindowsPath(read_text(name, place)).as_posix()).name
    return "".join(each for each in plain if each.isprintable())[:_MAX_NAME]


def _check_host(url: str, place: str) -> None:
    """Raise ``ValueError`` for a non-public address, and for a local network name."""
    try:
        host = host_of(url)
    except UrlRefusedError as problem:
        raise ValueError(f"{place}: {problem}") from None
    plain = host.removesuffix(".")
    if not (is_public(host) or (_NAME.fullmatch(plain) and not plain.endswith(_LOCAL))):
        raise ValueError(f"{place}: expected the URL of a public host, got the host {host!r:.80}")
