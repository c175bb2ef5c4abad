"""A client of each library that runs commands: `clients.py LIBRARY`, one JSON array on each line of its input.

`["connect", target, legacy]` connects to a command line (a list) or a URL, and lists the tools;
`["calls", count]` makes calls one after the other, `["burst", count]` all at once, and `["list"]` lists the tools.
Each is answered with seconds: `wall`, `cpu` (of the client) and `server` (CPU of the server).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parent.parent)

from protocol.servers import ARGUMENTS


def force_handshake() -> None:
    """Let all clients of this process speak the older version of the protocol; MCPClient has no option for it."""
    from mcp.client import client

    async def shake_hands(session: Any) -> None:
        await session.initialize()

    client.negotiate_auto = shake_hands


class SdkClient:
    """The bare client of the official SDK."""

    async def connect(self, target: Any, *, legacy: bool) -> int:
        """Connect, and return the number of tools."""
        from mcp import Client, StdioServerParameters

        is_url = isinstance(target, str)
        server = target if is_url else StdioServerParameters(command=target[0], args=target[1:])
        self._client = Client(server, mode="legacy" if legacy else "auto", cache=None)
        await self._client.__aenter__()
        return await self.list_tools()

    async def list_tools(self) -> int:
        """List the tools, and return their number."""
        return len((await self._client.list_tools(cache_mode="bypass")).tools)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool, and return the text of its result."""
        return (await self._client.call_tool(name, arguments)).content[0].text

    async def close(self) -> None:
        """Disconnect."""
        await self._client.__aexit__(None, None, None)


class FastMcpClient:
    """FastMCP's client."""

    async def connect(self, target: Any, *, legacy: bool) -> int:
        """Connect, and return the number of tools."""
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        server = target if isinstance(target, str) else StdioTransport(target[0], target[1:], keep_alive=False)
        self._client = Client(server, mode="legacy" if legacy else "auto")
        await self._client.__aenter__()
        return await self.list_tools()

    async def list_tools(self) -> int:
        """List the tools, and return their number."""
        return len(await self._client.list_tools())

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool, and return the text of its result."""
        return (await self._client.call_tool(name, arguments)).content[0].text

    async def close(self) -> None:
        """Disconnect."""
        await self._client.__aexit__(None, None, None)


class ToolsembleClient:
    """`MCPClient`, with its tools in a toolbox."""

    async def connect(self, target: Any, *, legacy: bool) -> int:
        """Connect, and return the number of tools."""
        from toolsemble import Toolbox, ToolCall
        from toolsemble.mcp import MCPClient

        if legacy:
            force_handshake()
        options: Any = {"max_tools": 2000}
        client = MCPClient.http(target, **options) if isinstance(target, str) else MCPClient.stdio(*target, **options)
        self._client = await client.astart()
        self._box, self._make = Toolbox([*client]), ToolCall
        return len(client)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool through the toolbox, and return the text of its result."""
        return (await self._box.aexecute(self._make(name, arguments))).text

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()


CLIENTS = {"sdk": SdkClient, "fastmcp": FastMcpClient, "toolsemble": ToolsembleClient}


class Driver:
    """Runs commands, and measures them."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def connect(self, target: Any, legacy: bool) -> dict[str, float]:  # noqa: FBT001 - a value of a message
        """Connect, and list the tools."""
        wall, cpu = time.perf_counter(), time.process_time()
        count = await self._client.connect(target, legacy=legacy)
        return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "count": count}

    async def calls(self, count: int) -> dict[str, float]:
        """Make calls one after the other."""

        async def work() -> None:
            for _ in range(count):
                check(await self._client.call("search", ARGUMENTS))

        return await self._measure(work)

    async def burst(self, count: int) -> dict[str, float]:
        """Make calls all at once."""

        async def work() -> None:
            for text in await asyncio.gather(*(self._client.call("search", ARGUMENTS) for _ in range(count))):
                check(text)

        return await self._measure(work)

    async def list(self) -> dict[str, float]:
        """List the tools."""
        return await self._measure(self._client.list_tools)

    async def close(self) -> dict[str, float]:
        """Disconnect."""
        await self._client.close()
        return {}

    async def _measure(self, work: Any) -> dict[str, float]:
        server = float(await self._client.call("cpu_seconds", {}))
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"wall": wall, "cpu": cpu, "server": float(await self._client.call("cpu_seconds", {})) - server}


def check(text: str) -> None:
    """Raise if a call did not do its work."""
    if text != "5 results for weather in Rome above 0.5: 2, asc":
        raise AssertionError(text)


async def main() -> None:
    """Answer one line after the other."""
    driver = Driver(CLIENTS[sys.argv[1]]())
    while line := await asyncio.to_thread(sys.stdin.readline):
        order, *arguments = json.loads(line)
        print(json.dumps(await getattr(driver, order)(*arguments)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
