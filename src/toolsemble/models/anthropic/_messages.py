"""Conversations in Anthropic's format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.call import ToolCall
from toolsemble.models._adapter.calls import CallIds, sanitize_arguments, sanitize_name
from toolsemble.models._adapter.conversation import merge_turns
from toolsemble.models._adapter.reply_details import Block, restore_blocks
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.anthropic._wire import write_prompt, write_reply

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the conversation; consecutive messages of one role are merged, including the replies to calls.

    >>> write_messages([UserMessage("hello"), UserMessage("there?")])
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'hello'}, {'type': 'text', 'text': 'there?'}]}]
    """
    ids = CallIds(messages, _ID, "call_{}".format)
    return merge_turns(_write_message(message, ids) for message in messages)


def _write_message(message: Message, ids: CallIds) -> tuple[str, list[Block]]:
    if isinstance(message, AssistantMessage):
        calls = [_write_call(call, ids.assign(call)) for call in message.calls]
        return "assistant", restore_blocks("anthropic", message, calls)
    if isinstance(message, ToolMessage):
        return "user", [{**write_reply(message.reply), "tool_use_id": ids.take(message.call)}]
    if isinstance(message, UserMessage):
        return "user", write_prompt(escape_surrogates(message.text), message.contents)
    return "user", []  # a system message, which is sent separately


def _write_call(call: ToolCall, id: str) -> Block:
    return {"type": "tool_use", "id": id, "name": sanitize_name(call.name), "input": sanitize_arguments(call)}
