"""fastmcp: tools on a server, called without a transport."""

import asyncio
import json

from fastmcp import FastMCP
from fastmcp.tools import Tool

from peers.task import ARGUMENTS, Call, new_async_search

NAME = "fastmcp"
DISTRIBUTION = "fastmcp"
IMPORT = "from fastmcp import FastMCP"
VALIDATES = True


def _server(names: list[str]) -> FastMCP:
    server = FastMCP("bench")
    for name in names:
        server.add_tool(Tool.from_function(new_async_search(name)))
    return server


def define() -> object:
    """Define the tool, and give it in MCP's form."""
    return Tool.from_function(new_async_search()).to_mcp_tool()


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Call through the server."""
    server = _server(["search"])

    async def call() -> str:
        return (await server.call_tool("search", json.loads(arguments))).content[0].text

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools on one server."""
    server = _server([f"search_{number}" for number in range(count)])
    return server, [tool.to_mcp_tool() for tool in asyncio.run(server.list_tools())]
