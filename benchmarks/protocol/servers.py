"""A server of each library with the same tools: `servers.py LIBRARY [--http PORT] [--tools COUNT]`.

The tool `cpu_seconds` says how much CPU time the server has used, so that a client can measure it.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Literal

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer"},
        "min_score": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "order": {"type": "string", "enum": ["asc", "desc"]},
    },
    "required": ["query", "limit", "min_score", "tags", "order"],
    "additionalProperties": False,  # as the others derive it from the function
}


async def search(query: str, limit: int, min_score: float, tags: list[str], order: Literal["asc", "desc"]) -> str:
    """Search for pages."""
    return f"{limit} results for {query} above {min_score}: {len(tags)}, {order}"


async def cpu_seconds() -> str:
    """Return the CPU time of this process."""
    return repr(time.process_time())


def names(count: int) -> list[str]:
    """Return the names of as many search tools."""
    return ["search", *(f"search_{number}" for number in range(1, count))]


def serve_sdk(options: argparse.Namespace) -> None:
    """Serve with the official SDK's low-level server, which checks nothing."""
    import anyio
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    described = {"description": "Search for pages.", "input_schema": SCHEMA}
    found = [types.Tool(name=name, **described) for name in names(options.tools)]
    found.append(types.Tool(name="cpu_seconds", description="CPU time.", input_schema={"type": "object"}))
    schemas = {each.name: each.input_schema for each in found}

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=found)

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        body = cpu_seconds if params.name == "cpu_seconds" else search
        text = await body(**(params.arguments or {}))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server: Server[Any] = Server(
        "bench", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=schemas.get
    )
    if options.http:
        run_app(server.streamable_http_app(), options.http)
        return

    async def run() -> None:
        async with stdio_server() as streams:
            await server.run(*streams, server.create_initialization_options())

    anyio.run(run)


def serve_fastmcp(options: argparse.Namespace) -> None:
    """Serve with FastMCP."""
    from fastmcp import FastMCP
    from fastmcp.tools import Tool

    server = FastMCP("bench")
    for name in names(options.tools):
        server.add_tool(Tool.from_function(search, name=name))
    server.add_tool(Tool.from_function(cpu_seconds))
    if options.http:
        run_app(server.http_app(), options.http)
    else:
        server.run(transport="stdio", show_banner=False)


def serve_toolsemble(options: argparse.Namespace) -> None:
    """Serve a toolbox."""
    from toolsemble import Toolbox, tool
    from toolsemble.mcp import asgi, serve

    box = Toolbox([*(tool(name=name)(search) for name in names(options.tools)), tool(cpu_seconds)])
    if options.http:
        run_app(asgi(box), options.http)
    else:
        serve(box)


def run_app(app: Any, port: int) -> None:
    """Run an application with the settings that all have in common."""
    import uvicorn

    uvicorn.run(app, port=port, log_level="error", ws="none", timeout_keep_alive=600)


SERVERS = {"sdk": serve_sdk, "fastmcp": serve_fastmcp, "toolsemble": serve_toolsemble}
ARGUMENTS = json.loads(
    '{"query": "weather in Rome", "limit": 5, "min_score": 0.5, "tags": ["news", "local"], "order": "asc"}'
)


def main() -> None:
    """Serve until the client is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=SERVERS)
    parser.add_argument("--http", type=int, default=0)
    parser.add_argument("--tools", type=int, default=1)
    options = parser.parse_args()
    SERVERS[options.library](options)


if __name__ == "__main__":
    main()
