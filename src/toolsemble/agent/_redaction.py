"""What people may see of calls: secrets are masked, and arguments that cannot be read are left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall, received_call
from toolsemble.agent._output import FINAL_ANSWER
from toolsemble.models._chat import ArgumentsDelta, CallDelta, Chunk
from toolsemble.models._message import AssistantMessage, Message, ToolMessage


def show_arguments(call: ToolCall, box: Toolbox) -> dict[str, Any] | None:
    """Return the arguments of a model's call as people may see them; None: as they were requested.

    >>> show_arguments(ToolCall("now"), Toolbox([])) is None
    True
    """
    return None if call.name == FINAL_ANSWER else box.show_arguments(call)


def hide_secrets(messages: Iterable[Message], box: Toolbox | None) -> tuple[Message, ...]:
    """Return messages with the secrets in calls masked; calls of unknown tools are without arguments.

    >>> hide_secrets([AssistantMessage("", (ToolCall("login", {"password": "hunter2"}),))], None)[0].calls[0].arguments
    {}
    """
    return tuple(_hide_arguments(each, box) for each in messages)


class ArgumentsMarker:
    """Marks the pieces of arguments in a streamed reply that may contain secrets.

    >>> marker = ArgumentsMarker(Toolbox([]))
    >>> marker.mark(CallDelta(0, "now")).name, marker.mark(ArgumentsDelta(0, "{}")).secret
    ('now', False)
    """

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self._harmless: set[int] = set()

    def mark(self, chunk: Chunk) -> Chunk:
        """Return a piece of a reply, marked if it may contain a secret."""
        if isinstance(chunk, CallDelta):
            self._harmless.discard(chunk.index)
            if chunk.name == FINAL_ANSWER or not self._box.has_secrets(chunk.name):
                self._harmless.add(chunk.index)
        elif isinstance(chunk, ArgumentsDelta) and chunk.index not in self._harmless:
            return ArgumentsDelta(chunk.index, chunk.text, secret=True)
        return chunk


def _hide_arguments(message: Message, box: Toolbox | None) -> Message:
    if isinstance(message, AssistantMessage) and message.calls:
        return AssistantMessage(message.text, tuple(_hide_in_call(call, box) for call in message.calls))
    if isinstance(message, ToolMessage):
        return ToolMessage(replace(message.reply, call=_hide_in_call(message.call, box)))
    return message


def _hide_in_call(call: ToolCall, box: Toolbox | None) -> ToolCall:
    if call.name == FINAL_ANSWER:
        return call
    # An earlier toolbox may have had the tool that this one does not know.
    arguments = {} if box is None or call.name not in box else show_arguments(call, box)
    return call if arguments is None else received_call(call.name, arguments, call.id)
