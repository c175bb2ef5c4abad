"""FastMCP's client, which uses a server and prints what it got; run in the environment of FastMCP.

`fastmcp_client.py MODE TARGET...`: MODE is "auto" or "legacy"; TARGET is a URL or a command line.
"""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main(mode, *target):
    server = target[0] if target[0].startswith("http") else StdioTransport(target[0], list(target[1:]))
    progress = []

    async def report(done, total, message):
        progress.append(done)

    async def answer(message, response_type, params, context):
        return {"approve": "3" not in message}

    async with Client(server, mode=mode, elicitation_handler=answer, progress_handler=report) as client:
        found = {
            "tools": sorted(each.name for each in await client.list_tools()),
            "sum": (await client.call_tool("add", {"a": 2, "b": 3})).structured_content,
            "wrong": (await client.call_tool("add", {"a": "two"}, raise_on_error=False)).content[0].text,
            "count": (await client.call_tool("count", {"to": 3})).content[0].text,
            "approved": (await client.call_tool("delete", {"number": 1})).content[0].text,
            "rejected": (await client.call_tool("delete", {"number": 3}, raise_on_error=False)).content[0].text,
            "progress": progress,
        }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
