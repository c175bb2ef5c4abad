"""Parts of a conversation that several providers take in the same form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.models._adapter.calls import collect_calls, sanitize_name
from toolsemble.models._message import Message, SystemMessage


def system_texts(messages: Iterable[Message]) -> list[str]:
    """Return the texts of the system messages, from anywhere in the conversation.

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
