"""Calls of a conversation, as a provider takes them: their ids, names and arguments.

A conversation may come from another provider, or from a model that wrote nonsense. A provider that finds an id, a name
or arguments that it does not admit refuses the whole conversation, now and ever after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.models.message import AssistantMessage, Message
from toolsemble.shape import escape_surrogates

UNREADABLE = "unreadable_arguments"
"""The one argument of a call whose own are no JSON object: it holds what the model wrote."""

_LONGEST = 64
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_DEEPEST = 100
_LONGEST_NUMBER = 300


class CallIds:
    r"""Gives each call of a conversation an id that fits and that no other has, and its reply the same one.

    >>> calls = ToolCall("now"), ToolCall("now", id="c1")
    >>> ids = CallIds([AssistantMessage("", calls)], re.compile(r"c\d+"), "c{}".format)
    >>> [ids.of_call(call) for call in calls], [ids.of_reply(call) for call in calls]
    (['c0', 'c1'], ['c0', 'c1'])
    """

    def __init__(self, messages: Iterable[Message], fits: re.Pattern[str], make: Callable[[int], str]) -> None:
        """Look at a conversation.

        :param messages: the conversation
        :param fits: what the provider takes for an id
        :param make: gives an id that fits for each number; the same each time, so that what a provider has cached of
            a conversation is found again
        """
        self._fits = fits
        self._make = make
        self._taken = {call.id for call in calls_of(messages)}
        self._used: set[str] = set()
        self._made = 0
        self._waiting: list[tuple[ToolCall, str]] = []

    def of_call(self, call: ToolCall) -> str:
        """Give the id of the next call."""
        given = call.id
        if given is None or given in self._used or not self._fits.fullmatch(given):
            given = self._new()
        self._used.add(given)
        self._waiting.append((call, given))
        return given

    def of_reply(self, call: ToolCall) -> str:
        """Give the id that the call was given, of equal ones that of the first without a reply."""
        for index, (waiting, given) in enumerate(self._waiting):
            if waiting == call:
                del self._waiting[index]
                return given
        return self._new()  # a reply to nothing, which the provider refuses in its own words

    def _new(self) -> str:
        while True:
            made = self._make(self._made)
            self._made += 1
            if made not in self._taken:
                return made


def calls_of(messages: Iterable[Message]) -> list[ToolCall]:
    """Give all calls of a conversation.

    >>> calls_of([AssistantMessage("", (ToolCall("now"),))])
    [ToolCall('now', '{}', id=None)]
    """
    return [call for message in messages if isinstance(message, AssistantMessage) for call in message.calls]


def fitting_name(name: str) -> str:
    """Give the name of a tool with what no provider takes in a name replaced.

    >>> fitting_name("search the web!"), fitting_name("")
    ('search_the_web_', '_')
    """
    return _UNFIT.sub("_", name[:_LONGEST]) or "_"


def fitting_arguments(call: ToolCall, deepest: int = _DEEPEST) -> dict[str, Any]:
    """Give the arguments of a call as an object that can be sent, whatever the model wrote.

    :param deepest: how many levels of it the provider takes

    >>> fitting_arguments(ToolCall("now", '{"zone": "CET"}')), fitting_arguments(ToolCall("now", '{"zone": '))
    ({'zone': 'CET'}, {'unreadable_arguments': '{"zone": '})
    """
    try:
        value = json.loads(call.json, parse_int=_bounded)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # neither NaN nor half a surrogate pair
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and _is_shallow(value, deepest):
        return value
    return {UNREADABLE: escape_surrogates(call.json)} if call.json.strip() else {}


def _bounded(digits: str) -> int:
    """Give a whole number; refuse one that is too large for a number anywhere but here."""
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError("the number is too long")
    return int(digits)


def _is_shallow(value: Any, deepest: int) -> bool:
    """Whether a value is not nested so deeply that whoever walks it runs out of stack."""
    level = [value]
    for _ in range(deepest):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list)))
        level = [each for values in inner for each in values]
        if not level:
            return True
    return False
