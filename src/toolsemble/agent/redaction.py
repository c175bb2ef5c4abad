"""Messages for traces, without the arguments that may contain secrets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from toolsemble.agent.output import FINAL_ANSWER
from toolsemble.call import ToolCall
from toolsemble.models.message import AssistantMessage, Message, ToolMessage
from toolsemble.toolbox.toolbox import Toolbox


def hide_secrets(messages: Iterable[Message], box: Toolbox | None) -> tuple[Message, ...]:
    """Return messages without the arguments of calls that may contain secrets: of tools with secrets, or unknown ones.

    >>> hide_secrets([AssistantMessage("", (ToolCall("login", {"password": "hunter2"}),))], None)[0].calls[0].arguments
    {}
    """
    return tuple(_hide_arguments(each, box) for each in messages)


def _hide_arguments(message: Message, box: Toolbox | None) -> Message:
    if isinstance(message, AssistantMessage) and message.calls:
        return AssistantMessage(message.text, tuple(_hide_in_call(call, box) for call in message.calls))
    if isinstance(message, ToolMessage):
        return ToolMessage(replace(message.reply, call=_hide_in_call(message.call, box)))
    return message


def _hide_in_call(call: ToolCall, box: Toolbox | None) -> ToolCall:
    if call.name == FINAL_ANSWER or (box is not None and call.name in box and not box.has_secrets(call.name)):
        return call
    return ToolCall(call.name, {}, call.id)
