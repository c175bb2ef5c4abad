"""Ids, names and arguments of calls, rewritten so that a provider accepts them.

A conversation may come from another provider, or contain malformed calls of a model. A provider rejects the whole
conversation, in this and every later request, if one id, name or argument is invalid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.call import ToolCall, received_call
from toolsemble.models._message import AssistantMessage, Message

UNREADABLE = "unreadable_arguments"
"""The name of the argument that holds the text of a model whose arguments are not a JSON object."""

_MAX_NAME = 64
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_DEPTH = 100
_MAX_DIGITS = 300


class CallIds:
    r"""Valid, unique ids for the calls of a conversation and their replies.

    >>> calls = ToolCall("now"), ToolCall("now", id="c1")
    >>> ids = CallIds([AssistantMessage("", calls)], re.compile(r"c\d+"), "c{}".format)
    >>> [ids.assign(call) for call in calls], [ids.take(call) for call in calls]
    (['c0', 'c1'], ['c0', 'c1'])
    """

    def __init__(self, messages: Iterable[Message], fits: re.Pattern[str], make: Callable[[int], str]) -> None:
        """Collect the ids of a conversation.

        :param messages: the conversation
        :param fits: the ids that the provider accepts
        :param make: returns a valid id for a number; always the same one, so that a provider finds a conversation in
            its cache
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
    """Return the name of a tool with all characters replaced that some provider rejects.

    >>> sanitize_name("search the web!"), sanitize_name("")
    ('search_the_web_', '_')
    """
    return _INVALID.sub("_", name[:_MAX_NAME]) or "_"


def sanitize_arguments(call: ToolCall, deepest: int = _MAX_DEPTH) -> dict[str, Any]:
    """Return the arguments of a call as an object that can be sent, whatever the model wrote.

    :param deepest: the maximum nesting depth that the provider accepts

    >>> sanitize_arguments(ToolCall("now", '{"zone": "CET"}')), sanitize_arguments(ToolCall("now", '{"zone": '))
    ({'zone': 'CET'}, {'unreadable_arguments': '{"zone": '})
    """
    value = _read_arguments(call, deepest)
    return _wrap_arguments(call) if value is None else value


def sanitize_call(call: ToolCall, id: str | None) -> ToolCall:
    """Return a call with this id, and a name and a JSON text of arguments that can be sent.

    >>> sanitize_call(ToolCall("web search", "{"), "c1")
    ToolCall('web_search', '{"unreadable_arguments":"{"}', id='c1')
    """
    text = call.json  # as the model wrote it, so that a provider finds the conversation in its cache
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
