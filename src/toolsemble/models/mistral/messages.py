"""A conversation, as Mistral takes it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.models.adapter.calls import CallIds, fitting_arguments, fitting_name
from toolsemble.models.adapter.kept import restored
from toolsemble.models.message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from toolsemble.providers.mistral import write_prompt, write_reply
from toolsemble.shape import escape_surrogates

PROVIDER = "mistral"
"""The key under which a message's details are Mistral's."""

_ID = re.compile(r"[a-zA-Z0-9]{9}")
# Mistral refuses a person who speaks right after a tool: the model has to have its say in between.
_BRIDGE = {"role": "assistant", "content": "OK."}


def written_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Give the conversation; what the model is told of itself comes first, the only place where Mistral takes it.

    >>> written_messages([UserMessage("hello"), SystemMessage("You are brief.")])
    [{'role': 'system', 'content': 'You are brief.'}, {'role': 'user', 'content': 'hello'}]
    """
    ids = CallIds(messages, _ID, "call{:05d}".format)
    texts = (message.text for message in messages if isinstance(message, SystemMessage))
    system = escape_surrogates("\n\n".join(text for text in texts if text.strip()))
    written: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        for said in _said(message, ids):
            if said["role"] == "user" and written and written[-1]["role"] == "tool":
                written.append(_BRIDGE)
            written.append(said)
    return written


def _said(message: Message, ids: CallIds) -> list[dict[str, Any]]:
    """Give what is said in a message: one thing, or nothing."""
    if isinstance(message, AssistantMessage):
        return _assistant(message, [_call(call, ids.of_call(call)) for call in message.calls])
    if isinstance(message, ToolMessage):
        own = {"tool_call_id": ids.of_reply(message.call), "name": fitting_name(message.call.name)}
        return [{**write_reply(message.reply), **own}]
    if isinstance(message, UserMessage):
        return [{"role": "user", "content": write_prompt(escape_surrogates(message.text), message.images)}]
    return []


def _assistant(message: AssistantMessage, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    blocks = restored(PROVIDER, message, [])
    plain = all(block["type"] == "text" for block in blocks)
    content = "".join(block["text"] for block in blocks) if plain else blocks
    if not content and not calls:
        return []
    return [{"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}]


def _call(call: ToolCall, id: str) -> dict[str, Any]:
    arguments = json.dumps(fitting_arguments(call), ensure_ascii=False, separators=(",", ":"))
    return {"id": id, "function": {"name": fitting_name(call.name), "arguments": arguments}}
