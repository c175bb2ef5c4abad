"""Conversations in the form that providers accept: ids, names, arguments and contents.

A conversation may come from another provider, or contain malformed calls of a model. A provider rejects the whole
conversation, in this and every later request, if one id, name or argument is invalid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.call import ToolCall, received_call
from toolsemble._vocabulary.errors import ModelError
from toolsemble._vocabulary.media_url import hide_query
from toolsemble._vocabulary.result import Media
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.models._adapter.wire import describe_omitted, media_type, write_as_text
from toolsemble.models._message import AssistantMessage, Message, SystemMessage, UserMessage

UNREADABLE = "unreadable_arguments"
"""The name of the argument that holds the text of a model whose arguments are not a JSON object."""

_MAX_NAME = 64
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_DEPTH = 100
_MAX_DIGITS = 300


class CallIds:
    """Valid, unique ids for the calls of a conversation and their replies."""

    def __init__(self, messages: Iterable[Message], fits: re.Pattern[str], make: Callable[[int], str]) -> None:
        """Collect the ids of a conversation.

        :param messages: the conversation
        :param fits: the ids that the provider accepts
        :param make: returns a valid id for a number; deterministic, so that a provider's cache matches a conversation
        """
        self._fits = fits
        self._make = make
        self._taken = {call.id for call in collect_calls(messages)}
        self._used: set[str] = set()
        self._number = 0
        self._waiting: list[tuple[ToolCall, str]] = []

    def assign(self, call: ToolCall) -> str:
        """Return the id of the next call."""
        call_id = call.id
        if call_id is None or call_id in self._used or not self._fits.fullmatch(call_id):
            call_id = self._create()
        self._used.add(call_id)
        self._waiting.append((call, call_id))
        return call_id

    def take(self, call: ToolCall) -> str:
        """Return the id of the first equal call that has no reply yet."""
        for index, (waiting, call_id) in enumerate(self._waiting):
            if waiting == call:
                del self._waiting[index]
                return call_id
        return self._create()  # a reply without a call; the provider reports it

    def _create(self) -> str:
        while True:
            call_id = self._make(self._number)
            self._number += 1
            if call_id not in self._taken:
                return call_id


def collect_calls(messages: Iterable[Message]) -> list[ToolCall]:
    """Return all calls of a conversation.

    >>> collect_calls([AssistantMessage("", (ToolCall("now"),))])
    [ToolCall('now', '{}', id=None)]
    """
    return [call for message in messages if isinstance(message, AssistantMessage) for call in message.calls]


def sanitize_name(name: str) -> str:
    """Return a tool's name, replacing every character that some provider rejects.

    >>> sanitize_name("search the web!"), sanitize_name("")
    ('search_the_web_', '_')
    """
    return _INVALID.sub("_", name[:_MAX_NAME]) or "_"


def sanitize_arguments(call: ToolCall, deepest: int = _MAX_DEPTH) -> dict[str, Any]:
    """Return a call's arguments as a valid object, whatever the model wrote.

    :param deepest: the maximum nesting depth that the provider accepts

    >>> sanitize_arguments(ToolCall("now", '{"zone": "CET"}')), sanitize_arguments(ToolCall("now", '{"zone": '))
    ({'zone': 'CET'}, {'unreadable_arguments': '{"zone": '})
    """
    value = _read_arguments(call, deepest)
    return _wrap_arguments(call) if value is None else value


def sanitize_call(call: ToolCall, id: str | None) -> ToolCall:
    """Return a call with this id and a valid name and arguments.

    >>> sanitize_call(ToolCall("web search", "{"), "c1")
    ToolCall('web_search', '{"unreadable_arguments":"{"}', id='c1')
    """
    text = call.json  # as the model wrote it, so that the provider's cache matches
    if _read_arguments(call, _MAX_DEPTH) is None:
        text = json.dumps(_wrap_arguments(call), ensure_ascii=False, separators=(",", ":"))
    return received_call(sanitize_name(call.name), text, id)


def _wrap_arguments(call: ToolCall) -> dict[str, Any]:
    return {UNREADABLE: escape_surrogates(call.json)} if call.json.strip() else {}


def _read_arguments(call: ToolCall, deepest: int) -> dict[str, Any] | None:
    """Return the arguments; None if they are not an object that other JSON parsers accept."""
    try:
        value = json.loads(call.json, parse_int=_parse_int)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # raises for NaN and lone surrogates
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _is_shallow(value, deepest) else None


def _parse_int(digits: str) -> int:
    """Return an int; raise ``ValueError`` if it has too many digits for other JSON parsers."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError("the number is too long")
    return int(digits)


def _is_shallow(value: Any, deepest: int) -> bool:
    """Return whether a value is nested no deeper than this."""
    level = [value]
    for _ in range(deepest):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list)))
        level = [each for values in inner for each in values]
        if not level:
            return True
    return False


MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Inputs:
    """The contents that a provider accepts in prompts, besides texts and text files.

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
    """The media types accepted as bytes."""
    urls: frozenset[str] = frozenset()
    """The media types accepted by URL; ``image/*`` stands for images of any or an unknown type."""
    max_bytes: int = 50 * MEGABYTE
    """The maximum size of all contents in a conversation, in base64 bytes."""
    advice: str = ""
    """The advice for contents that it does not accept."""

    def check(self, messages: Iterable[Message]) -> None:
        """Raise a :class:`~toolsemble.ModelError` if the provider does not accept a prompt's content."""
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


def system_texts(messages: Iterable[Message]) -> list[str]:
    """Return the texts of all system messages in the conversation.

    >>> system_texts([SystemMessage("You are brief."), SystemMessage(" ")])
    ['You are brief.']
    """
    texts = (message.text for message in messages if isinstance(message, SystemMessage))
    return [escape_surrogates(text) for text in texts if text.strip()]


def merge_turns(turns: Iterable[tuple[str, list[Any]]]) -> list[dict[str, Any]]:
    """Return messages of a role and blocks; consecutive ones of the same role are merged, empty ones omitted.

    >>> merge_turns([("user", [1]), ("user", [2]), ("assistant", [])])
    [{'role': 'user', 'content': [1, 2]}]
    """
    merged: list[dict[str, Any]] = []
    for role, blocks in turns:
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        elif blocks:
            merged.append({"role": role, "content": blocks})
    return merged


def removed_tools(messages: Iterable[Message]) -> list[ToolSpecification]:
    """Return a tool for each name that was called; some providers reject calls in a request without tools.

    >>> removed_tools([])
    []
    """
    names = dict.fromkeys(sanitize_name(call.name) for call in collect_calls(messages))
    return [ToolSpecification(name, "Not available any more") for name in names]
