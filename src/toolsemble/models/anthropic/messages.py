"""A conversation, as Anthropic takes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.models.adapter.calls import CallIds, calls_of, fitting_arguments, fitting_name
from toolsemble.models.adapter.kept import Block, restored
from toolsemble.models.message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from toolsemble.providers.anthropic import write_prompt, write_reply
from toolsemble.shape import escape_surrogates

PROVIDER = "anthropic"
"""The key under which a message's details are Anthropic's."""

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def written_system(messages: Iterable[Message]) -> list[Block]:
    """Give what the model is told of itself, wherever it stands in the conversation: there is one place for it.

    >>> written_system([SystemMessage("You are brief.")])
    [{'type': 'text', 'text': 'You are brief.'}]
    """
    texts = (message.text for message in messages if isinstance(message, SystemMessage))
    return [block for text in texts for block in write_prompt(escape_surrogates(text))]


def written_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Give the conversation: the replies to the calls of one message all in the next one, nobody speaking twice.

    >>> written_messages([UserMessage("hello"), UserMessage("there?")])
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'hello'}, {'type': 'text', 'text': 'there?'}]}]
    """
    ids = CallIds(messages, _ID, "call_{}".format)
    written: list[dict[str, Any]] = []
    for message in messages:
        role, blocks = _said(message, ids)
        if written and written[-1]["role"] == role:
            written[-1]["content"] += blocks
        elif blocks:
            written.append({"role": role, "content": blocks})
    return written


def called_names(messages: Iterable[Message]) -> list[str]:
    """Give the names of the tools that were called, each once.

    >>> called_names([AssistantMessage("", (ToolCall("now"), ToolCall("now")))])
    ['now']
    """
    return list(dict.fromkeys(fitting_name(call.name) for call in calls_of(messages)))


def _said(message: Message, ids: CallIds) -> tuple[str, list[Block]]:
    if isinstance(message, AssistantMessage):
        return "assistant", restored(PROVIDER, message, [_use(call, ids.of_call(call)) for call in message.calls])
    if isinstance(message, ToolMessage):
        return "user", [{**write_reply(message.reply), "tool_use_id": ids.of_reply(message.call)}]
    if isinstance(message, UserMessage):
        return "user", write_prompt(escape_surrogates(message.text), message.images)
    return "user", []  # said elsewhere


def _use(call: ToolCall, id: str) -> Block:
    return {"type": "tool_use", "id": id, "name": fitting_name(call.name), "input": fitting_arguments(call)}
