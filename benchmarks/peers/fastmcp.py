"""fastmcp: tools on a server, called without a transport."""

import asyncio
import json

from fastmcp import FastMCP
from fastmcp.tools import Tool

from peers.task import ARGUMENTS, AsyncSearch, Call, Search, gathered, new_async_search, numbered

NAME = "fastmcp"
DISTRIBUTION = "fastmcp"
IMPORT = "from fastmcp import FastMCP"
VALIDATES = True


def _server(*searches: Search | AsyncSearch) -> FastMCP:
    server = FastMCP("bench")
    for search in searches:
        server.add_tool(Tool.from_function(search))
    return server


def define() -> object:
    """Define the tool, and give it in MCP's form."""
    return Tool.from_function(new_async_search()).to_mcp_tool()


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Call through the server."""
    return _called(_server(new_async_search()), "search", arguments)


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools on one server."""
    server = _server(*(new_async_search(name) for name in numbered(count)))
    return server, [tool.to_mcp_tool() for tool in asyncio.run(server.list_tools())]


def make_look_up(count: int) -> Call:
    """Call one of many through the server."""
    server, _ = many(count)
    return _called(server, f"search_{count - 1}", ARGUMENTS)


def make_parallel(search: AsyncSearch, count: int) -> Call:
    """Gather calls through the server, which answers requests concurrently."""
    return gathered(_called(_server(search), "search", ARGUMENTS), count)


def make_blocking(search: Search, count: int) -> Call:
    """Gather calls through the server, which runs blocking tools in threads."""
    return gathered(_called(_server(search), "search", ARGUMENTS), count)


def _called(server: FastMCP, name: str, arguments: str) -> Call:
    async def call() -> str:
        return (await server.call_tool(name, json.loads(arguments))).content[0].text

    return call
