"""``find_tools``: the tool with which a model searches a catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from toolsemble.catalog.conversation import FIND_TOOLS, write_found
from toolsemble.catalog.entry import Entry
from toolsemble.catalog.summary import write_line
from toolsemble.param import Param
from toolsemble.result import ToolResult
from toolsemble.runtime.text import quote_text
from toolsemble.tools.collection import collect_tools
from toolsemble.tools.function import tool

MOST_FOUND = 20
"""The most tools that one search finds, whatever a model asks for."""
_LONGEST_QUERY = 80


def make_search(search: Callable[[str, int], Sequence[Entry]], groups: Sequence[str], limit: int) -> Entry:
    """Return the tool ``find_tools``.

    :param search: returns the tools that fit a query, best first
    :param groups: the names of the groups of tools
    :param limit: how many tools a search finds if the model does not say it

    >>> make_search(lambda query, limit: [], ["crm"], 5).definition.description
    'Find further tools by what they do, and load them, so that they can be called. There are tools for: crm.'
    """
    systems = f" There are tools for: {', '.join(groups)}." if groups else ""
    described = f"Find further tools by what they do, and load them, so that they can be called.{systems}"

    @tool(FIND_TOOLS, described, effects="read")
    def find_tools(
        query: Annotated[str, Param("What the tool should do, in a few words, without names and values")],
        limit: Annotated[int, Param("The most tools to find")] = limit,
    ) -> ToolResult:
        return _write_result(query, search(query, max(1, min(limit, MOST_FOUND))), groups)

    ((found, definition),) = collect_tools(find_tools)
    return Entry(found, definition)


def _write_result(query: str, found: Sequence[Entry], groups: Sequence[str]) -> ToolResult:
    names = [each.name for each in found]
    if not found:
        there = f" There are tools for: {', '.join(groups)}." if groups else ""
        text = f"No tool fits {quote_text(query, _LONGEST_QUERY)}.{there} Try other words, or go on without one."
    else:
        head = "1 tool is loaded now; call it" if len(found) == 1 else f"{len(found)} tools are loaded now; call them"
        text = f"{head} by name:\n{write_found(write_line(each.specification()) for each in found)}"
    return ToolResult.success(text, names, attributes={"found": names})
