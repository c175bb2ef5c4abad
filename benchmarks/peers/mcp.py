"""mcp: tools on the official SDK's server, called without a transport."""

import asyncio
import json

from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver.tools import Tool

from peers.task import ARGUMENTS, AsyncSearch, Call, Search, gathered, new_async_search, numbered

NAME = "mcp"
DISTRIBUTION = "mcp"
IMPORT = "from mcp.server import MCPServer"
VALIDATES = True


def _server(*searches: Search | AsyncSearch) -> MCPServer:
    server = MCPServer("bench")
    for search in searches:
        server.add_tool(search)
    return server


def define() -> object:
    """Define the tool, and give it in MCP's form, as a server lists it."""
    tool = Tool.from_function(new_async_search())
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Call through the server."""
    return _called(_server(new_async_search()), "search", arguments)


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools on one server."""
    server = _server(*(new_async_search(name) for name in numbered(count)))
    return server, list(asyncio.run(server.list_tools()))


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


def _called(server: MCPServer, name: str, arguments: str) -> Call:
    async def call() -> str:
        return (await server.call_tool(name, json.loads(arguments))).content[0].text

    return call
