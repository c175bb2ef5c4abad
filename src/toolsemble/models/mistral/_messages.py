"""Conversations in Mistral's format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.call import ToolCall
from toolsemble.models._adapter.calls import CallIds, sanitize_call, sanitize_name
from toolsemble.models._adapter.conversation import system_texts
from toolsemble.models._adapter.reply_details import restore_blocks
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.mistral._wire import write_prompt, write_reply

_ID = re.compile(r"[a-zA-Z0-9]{9}")
# Mistral rejects a user message right after a tool message; a message of the model must be in between.
_BRIDGE = {"role": "assistant", "content": "OK."}


def write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the conversation; system messages come first, the only position that Mistral accepts.

    >>> from toolsemble.models import SystemMessage
    >>> write_messages([UserMessage("hello"), SystemMessage("You are brief.")])
    [{'role': 'system', 'content': 'You are brief.'}, {'role': 'user', 'content': 'hello'}]
    """
    ids = CallIds(messages, _ID, "call{:05d}".format)
    system = "\n\n".join(system_texts(messages))
    written: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        for each in _write_message(message, ids):
            if each["role"] == "user" and written and written[-1]["role"] == "tool":
                written.append(_BRIDGE)
            written.append(each)
    return written


def _write_message(message: Message, ids: CallIds) -> list[dict[str, Any]]:
    """Return a message in Mistral's format: a list of one, or empty."""
    if isinstance(message, AssistantMessage):
        return _write_assistant(message, [_write_call(call, ids.assign(call)) for call in message.calls])
    if isinstance(message, ToolMessage):
        own = {"tool_call_id": ids.take(message.call), "name": sanitize_name(message.call.name)}
        return [{**write_reply(message.reply), **own}]
    if isinstance(message, UserMessage):
        return [{"role": "user", "content": write_prompt(escape_surrogates(message.text), message.contents)}]
    return []


def _write_assistant(message: AssistantMessage, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    blocks = restore_blocks("mistral", message, [])
    plain = all(block["type"] == "text" for block in blocks)
    content = "".join(block["text"] for block in blocks) if plain else blocks
    if not content and not calls:
        return []
    return [{"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}]


def _write_call(call: ToolCall, id: str) -> dict[str, Any]:
    sent = sanitize_call(call, id)
    return {"id": id, "function": {"name": sent.name, "arguments": sent.json}}
