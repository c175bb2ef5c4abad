"""Read from a conversation which tools were found in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from toolsemble.models.message import Message, ToolMessage

FIND_TOOLS = "find_tools"
"""The name of the tool that searches a catalog."""

_BEGIN = "- "
_LINE = re.compile(rf"^{_BEGIN}([a-zA-Z0-9_-]{{1,64}})\(", re.MULTILINE)


def write_found(lines: Iterable[str]) -> str:
    """Return lines about tools as :func:`read_found` reads them; each begins with a name and its parameters.

    >>> write_found(["now(): The time."])
    '- now(): The time.'
    """
    return "\n".join(f"{_BEGIN}{line}" for line in lines)


@dataclass(frozen=True, slots=True)
class Found:
    """The tools that a conversation has found or called."""

    names: tuple[str, ...]
    """Their names, in the order of their first mention; also names that a model has made up."""
    existed: frozenset[str]
    """The names that were those of tools when they were mentioned."""


def read_found(messages: Iterable[Message]) -> Found:
    r"""Return the tools that a conversation has found or called.

    They are read from the texts for the model, because nothing else of a conversation is stored. The search writes a
    line for each tool, and nothing that a tool says of itself can begin a line.

    >>> from toolsemble import ToolCall, ToolReply, ToolResult
    >>> found = ToolResult.success("- now(): The time.\n- day(): The day.")
    >>> read_found([ToolMessage(ToolReply(ToolCall("find_tools"), found))]).names
    ('now', 'day')
    """
    names: dict[str, bool] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            exists = not message.reply.is_error
            if message.call.name != FIND_TOOLS:
                names[message.call.name] = names.get(message.call.name, False) or exists
            elif exists:
                names |= dict.fromkeys(_LINE.findall(message.reply.result.output), True)
    return Found(tuple(names), frozenset(name for name, exists in names.items() if exists))
