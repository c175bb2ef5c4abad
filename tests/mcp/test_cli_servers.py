"""MCP servers as targets of the command line."""

import json
import sys
from pathlib import Path

import pytest

from helpers.mcp_servers import PLAIN
from toolsemble import ToolDefinitionError
from toolsemble._cli import main
from toolsemble._cli.targets import load_toolbox, split_targets
from toolsemble.mcp._client.client_thread import end_all

COMMAND = f"mcp:{sys.executable} -u {PLAIN}"


@pytest.fixture(autouse=True)
def _ended():
    yield
    end_all()


def test_a_command_line_is_a_server():
    assert "echo" in load_toolbox([COMMAND]).names


def test_servers_of_a_file_have_their_names_as_prefixes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = {"command": sys.executable, "args": ["-u", PLAIN]}
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"my files": server, "web": server}}))
    names = load_toolbox(["mcp:mcp.json", "calculator"]).names
    assert {"my_files_echo", "web_echo", "calculator"} <= set(names)


def test_a_url_is_a_server():
    with pytest.raises(Exception, match=r"The MCP server '127\.0\.0\.1' cannot be reached"):
        load_toolbox(["mcp:http://127.0.0.1:1/mcp"])


def test_a_command_line_may_contain_commas():
    assert split_targets(["mcp:server --names a,b", "calculator,datetime"]) == [
        "mcp:server --names a,b",
        "calculator",
        "datetime",
    ]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mcp: ", "names no server"),
        ("mcp:'a", "is not a command line"),
        ("mcp:./missing.json", r"'mcp:\./missing\.json': there is no file '\./missing\.json'"),
    ],
)
def test_a_wrong_target_is_refused(target, message):
    with pytest.raises(ToolDefinitionError, match=message):
        load_toolbox([target])


def test_a_tool_of_a_server_is_named_after_the_target(capsys):
    assert main(["call", COMMAND, "echo", "text=hello"]) == 0
    assert capsys.readouterr().out == "hello\n"
    assert main(["call", COMMAND, "ecko", "text=hello"]) != 0
    assert "has several tools; name one of them, after it: echo, note" in capsys.readouterr().err
