"""``find_tools``: the tool with which a model searches a catalog, and the found tools of a conversation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from toolsemble._runtime.text import quote_text
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.function import tool
from toolsemble._vocabulary.param import Param
from toolsemble._vocabulary.result import ToolResult
from toolsemble.catalog._entry import Entry, write_line
from toolsemble.models._message import Message, ToolMessage

FIND_TOOLS = "find_tools"
"""The name of the tool that searches a catalog."""
MOST_FOUND = 20
"""The maximum number of results of a search, whatever a model requests."""
_LONGEST_QUERY = 80
_MOST_NEAR = 3
_IN_VAIN = "Say in other words what the tool should do, or go on without one."
_BEGIN = "- "
_LINE = re.compile(rf"^{_BEGIN}([a-zA-Z0-9_-]{{1,64}})\(", re.MULTILINE)


Search: TypeAlias = Callable[[str, int], Sequence[Entry]]
"""Returns tools for a query, best first, up to a limit."""


def make_find_tools(search: Search, find_nearest: Search, groups: Sequence[str], limit: int) -> Entry:
    """Return the tool ``find_tools``.

    :param search: returns the tools that match a query
    :param find_nearest: returns tools that share words with it, relevant or not
    :param groups: the names of the groups of tools
    :param limit: the default number of results

    >>> none = lambda query, limit: []
    >>> make_find_tools(none, none, ["crm"], 5).definition.description
    'Find further tools by what they do, and load them, so that they can be called. There are tools for: crm.'
    """
    systems = f" There are tools for: {', '.join(groups)}." if groups else ""
    described = f"Find further tools by what they do, and load them, so that they can be called.{systems}"

    @tool(FIND_TOOLS, described, effects="read")
    def find_tools(
        query: Annotated[str, Param("What the tool should do, in a few words, without names and values")],
        limit: Annotated[int, Param("The most tools to find")] = limit,
    ) -> ToolResult:
        found = search(query, max(1, min(limit, MOST_FOUND)))
        return _write_found(found) if found else _write_miss(query, find_nearest(query, _MOST_NEAR), groups)

    ((found, definition),) = collect_tools(find_tools)
    return Entry(found, definition)


def _write_found(found: Sequence[Entry]) -> ToolResult:
    names = [each.name for each in found]
    several = f"{len(found)} tools are loaded now; call by name the one that fits:"
    head = "1 tool is loaded now; call it by name:" if len(found) == 1 else several
    text = "\n".join([head, *(f"{_BEGIN}{write_line(each.specification())}" for each in found)])
    return ToolResult.success(text, names, attributes={"found": names})


def _write_miss(query: str, nearest: Sequence[Entry], groups: Sequence[str]) -> ToolResult:
    """Return the reply when no tool matches; it suggests names, because a model gives up after an empty result."""
    there = f" There are tools for: {', '.join(groups)}." if groups else ""
    names = ", ".join(each.name for each in nearest)
    near = f" Nearest by words: {names}; to load one, search for its name." if names else ""
    text = f"No tool fits {quote_text(query, _LONGEST_QUERY)}.{there}{near} {_IN_VAIN}"
    return ToolResult.success(text, [], attributes={"found": []})


@dataclass(frozen=True, slots=True)
class Found:
    """The tools that a conversation has found or called."""

    names: tuple[str, ...]
    """Their names, in the order of first mention, including names invented by a model."""
    existed: frozenset[str]
    """The names that belonged to tools when they were mentioned."""


def read_found(messages: Iterable[Message]) -> Found:
    r"""Return the tools that a conversation has found or called.

    They are parsed from the model-visible texts, because nothing else of a conversation is stored. The search writes a
    line per tool, and a tool's own texts cannot start a line.

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
