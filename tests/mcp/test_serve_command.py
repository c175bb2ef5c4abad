"""The command ``toolsemble serve``."""

import asyncio
import os
import signal
import socket
import sys

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

from helpers.mcp_server import ERAS, SECONDS, connect, text_of
from toolsemble._cli import main

MODULE = """
from toolsemble import Agent, Toolbox, tool
from toolsemble.testing import ScriptedModel

print("while it loads")

@tool
def delete_file(path: str) -> str:
    print("while it runs")
    return f"deleted {path}"

@tool
def now() -> str:
    return "noon"

box = Toolbox([now])
clerk = Agent(ScriptedModel(["It is noon."]))
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "served_tools.py"
    path.write_text(MODULE)
    return path


def program(*arguments, cwd=None):
    return StdioServerParameters(
        command=sys.executable, args=["-m", "toolsemble", "serve", *map(str, arguments)], cwd=cwd
    )


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_serves_tools_of_several_targets_with_gates(era, module, caplog):
    questions = []

    async def approve(context, params):
        questions.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    started = program("calculator", f"{module}:delete_file", f"{module}:clerk", "--gate", "*delete*")
    async with Client(started, mode=ERAS[era], read_timeout_seconds=SECONDS, elicitation_callback=approve) as client:
        names = [each.name for each in (await client.list_tools()).tools]
        assert names == ["calculator", "delete_file", "clerk"]
        assert text_of(await client.call_tool("calculator", {"input": "6 * 7"})) == "42"
        assert text_of(await client.call_tool("delete_file", {"path": "old.log"})) == "deleted old.log"
        assert text_of(await client.call_tool("clerk", {"input": "What time is it?"})) == "It is noon."
    assert len(questions) == 1
    assert "Failed to parse" not in caplog.text


NEEDY = """
from dataclasses import dataclass

from toolsemble import ToolContext, tool

@dataclass
class Shop:
    name: str

corner = Shop("corner")

def make(run):
    return Shop("made")

@tool
def find_order(order: int, context: ToolContext[Shop]) -> str:
    return f"{order}: {context.deps.name}"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deps", "text"),
    [("corner", "7: corner"), (None, "Error: Tool 'find_order' needs deps (ToolContext[Shop]); pass deps=…")],
)
async def test_serves_tools_with_the_deps_of_the_command(tmp_path, deps, text):
    path = tmp_path / "needy_tools.py"
    path.write_text(NEEDY)
    started = program(f"{path}:find_order", *(["--deps", f"{path}:{deps}"] if deps else []))
    async with Client(started, read_timeout_seconds=SECONDS) as client:
        assert text_of(await client.call_tool("find_order", {"order": 7})) == text


def test_deps_of_a_server_are_an_object(tmp_path, capsys):
    path = tmp_path / "needy_tools.py"
    path.write_text(NEEDY)
    assert main(["serve", f"{path}:find_order", "--deps", f"{path}:make"]) == 2
    assert "a server needs an object, shared by all calls" in capsys.readouterr().err


async def test_serves_a_toolbox_over_http(module):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = ["-m", "toolsemble", "serve", f"{module}:box", "--http", address]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(SECONDS):
            while f"serving now at http://{address}/mcp" not in (line := (await process.stderr.readline()).decode()):
                assert line
            while not await is_open(address):
                await asyncio.sleep(0.05)
        async with connect(f"http://{address}") as client:
            assert text_of(await client.call_tool("now", {})) == "noon"
    finally:
        os.kill(process.pid, signal.SIGINT)
        await process.communicate()
    assert process.returncode in {0, 130}


async def is_open(address):
    try:
        _, writer = await asyncio.open_connection(*address.split(":"))
    except OSError:
        return False
    writer.close()
    return True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}:box", "--gate", "later"], "approve names 'later', but the tools are now"),
        (["calculator", "--http", "0.0.0.0:8000"], "can be reached from other machines: pass allowed_hosts="),
        (["calculator", "--http", "8000"], "http must be an address such as"),
        (["calculator", "--allow-host", "a.com"], "--allow-host is for HTTP"),
        (["calculator", "--http", "0.0.0.0:8000", "--allow-host", "a.com:80"], "names without a scheme or a port"),
        (["calculator", "--gate", "delete"], "approve names 'delete', but the tools are calculator"),
        (["calclator"], "Did you mean 'calculator'?"),
        (["{}:nothing"], "it has no 'nothing'"),
        ([], "Nothing to serve: name a target, or a file with --config"),
    ],
)
def test_reports_what_cannot_be_served(module, capsys, arguments, message):
    assert main(["serve", *(each.format(module) for each in arguments)]) == 2
    assert message in capsys.readouterr().err
