"""mcp: tools on the official SDK's server, called without a transport."""

import asyncio
import json

from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver.tools import Tool

from peers.task import ARGUMENTS, Call, new_async_search

NAME = "mcp"
DISTRIBUTION = "mcp"
IMPORT = "from mcp.server import MCPServer"
VALIDATES = True


def _server(names: list[str]) -> MCPServer:
    server = MCPServer("bench")
    for name in names:
        server.add_tool(new_async_search(name))
    return server


def define() -> object:
    """Define the tool, and give it in MCP's form, as a server lists it."""
    tool = Tool.from_function(new_async_search())
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Call through the server."""
    server = _server(["search"])

    async def call() -> str:
        return (await server.call_tool("search", json.loads(arguments))).content[0].text

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools on one server."""
    server = _server([f"search_{number}" for number in range(count)])
    return server, list(asyncio.run(server.list_tools()))
