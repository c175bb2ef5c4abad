"""The list of a server's tools, bounded in pages and number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolsemble.errors import ToolConfigurationError
from toolsemble.mcp.client.options import Options
from toolsemble.mcp.client.screen import Screen

_MAX_PAGES = 100


@dataclass(frozen=True, slots=True)
class RemoteDefinition:
    """A tool as its server defines it."""

    name: str
    """The server's own name."""
    title: str | None
    description: str | None
    input_schema: dict[str, Any]
    """The whole schema, as it was sent."""
    output_schema: Any
    """As it was sent; None if there is none."""
    hints: dict[str, Any]
    """The annotations, as they were sent."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All tools of a server, in its order."""

    tools: tuple[RemoteDefinition, ...]


async def list_tools(client: Any, screen: Screen, options: Options) -> Listing:
    """Return the tools that are wanted; raise ToolConfigurationError if the server has too many tools or pages."""
    found: dict[str, RemoteDefinition] = {}
    count, cursor = 0, None
    if client.server_capabilities.tools is None:
        return Listing(())
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        count += len(page.tools)
        if count > options.max_tools:
            raise ToolConfigurationError(
                f"it has more than {options.max_tools} tools (max_tools); let it offer fewer, or allow more"
            )
        for tool in page.tools:
            if options.takes(tool.name):
                found.setdefault(tool.name, _define(tool, screen))
        cursor = page.next_cursor
        if cursor is None:
            return Listing(tuple(found.values()))
    raise ToolConfigurationError(f"its list of tools has more than {_MAX_PAGES} pages")


def _define(tool: Any, screen: Screen) -> RemoteDefinition:
    hints = {} if tool.annotations is None else tool.annotations.model_dump(by_alias=True, exclude_none=True)
    title = tool.title or hints.pop("title", None)
    output_schema = screen.output_schemas.get(tool.name)
    return RemoteDefinition(tool.name, title, tool.description, tool.input_schema, output_schema, hints)
