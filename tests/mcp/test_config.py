"""Clients from the configuration files of other programs."""

import json
import sys

import pytest

from helpers.mcp_servers import PLAIN
from toolsemble import Toolbox, ToolCall, ToolConfigurationError
from toolsemble.mcp import MCPClient


@pytest.fixture
def write(tmp_path):
    def write(text):
        file = tmp_path / "mcp.json"
        file.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return file

    return write


def test_each_server_of_a_file_is_a_client(write, monkeypatch):
    monkeypatch.setenv("PLAIN_TOKEN", "t")
    servers = {
        "plain": {
            "command": sys.executable,
            "args": [PLAIN, "${MODE_OF_PLAIN:-}"],
            "env": {"TOKEN": "${PLAIN_TOKEN}", "NUMBER": 5},
        },
        "web": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${env:PLAIN_TOKEN}"}},
        "old": {"type": "sse", "url": "https://example.com/sse"},
        "off": {"command": "x", "disabled": True},
    }
    clients = MCPClient.from_config(write({"mcpServers": servers}), only="environment")
    assert {name: client.name for name, client in clients.items()} == {name: name for name in ("plain", "web", "old")}
    with clients["plain"] as client:
        names = json.loads(Toolbox([*client]).execute(ToolCall("environment", {})).text)
    assert {"TOKEN", "NUMBER"} <= set(names)


def test_the_file_of_vs_code_may_have_comments(write):
    text = (
        '{"servers": {"a": {"type": "stdio", "command": "x"}, /* more */ "b": {"type": "http", "url": "http://b/"}},}'
    )
    assert list(MCPClient.from_config(write(text))) == ["a", "b"]


def test_settings_that_are_not_used_are_logged(write, caplog):
    file = write({"servers": {"a": {"command": "x", "envFile": ".env", "disabledTools": ["delete"]}}})
    assert list(MCPClient.from_config(file)) == ["a"]
    assert f"{str(file)!r}, server 'a': ignored settings: disabledTools, envFile" in caplog.text


def test_a_file_may_have_both_lists_of_servers(write):
    file = write({"servers": {"b": {"command": "x"}}, "mcpServers": {"a": {"command": "x"}}})
    assert list(MCPClient.from_config(file)) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON: line 1: Unclosed 'object'"),
        ("", "is not JSON: line 1: No JSON data found"),
        ("[" * 10**5, "is not JSON: line 1: Maximum nesting level exceeded"),
        ("[]", "has no object 'mcpServers' or 'servers'"),
        ({"mcpServers": 5}, "has no object 'mcpServers' or 'servers'"),
        ({"mcpServers": {}, "servers": 5}, "has no object 'mcpServers' or 'servers'"),
        (
            {"mcpServers": {"a": {"command": "x"}}, "servers": {"a": {"command": "y"}}},
            "has a duplicate server 'a' in 'mcpServers' and 'servers'; remove one",
        ),
        ({"mcpServers": {"a": 5}}, "server 'a' must be an object, not int"),
        ({"mcpServers": {"a": {}}}, "server 'a' needs either a 'command' or a 'url'"),
        ({"mcpServers": {"a": {"command": "x", "url": "http://x"}}}, "needs either a 'command' or a 'url'"),
        ({"mcpServers": {"a": {"command": 5}}}, "'command' must be a str, not int"),
        ({"mcpServers": {"a": {"command": "x", "type": "http"}}}, "has the unknown type 'http'"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "'args' must be a list of str"),
        ({"mcpServers": {"a": {"command": "x", "env": ["y"]}}}, "'env' must map names to texts"),
        (
            {"mcpServers": {"a": {"command": "${NOT_SET_HERE}"}}},
            "the environment variable NOT_SET_HERE is not set; set it, or write ${NOT_SET_HERE:-default}",
        ),
        ({"mcpServers": {"a": {"command": "${input:key}"}}}, "'${input:key}' is not supported; write ${NAME}"),
        (" " * 2**21, "is larger than 1048576 bytes"),
    ],
)
def test_a_wrong_file_is_refused(write, text, message):
    with pytest.raises(ToolConfigurationError) as raised:
        MCPClient.from_config(write(text))
    assert message in str(raised.value)


def test_a_mistake_is_named_with_its_line_and_without_the_secrets_before_it(write):
    text = '{"mcpServers": {\n"a": {"command": "x", "env": {"KEY": "hunter2"}}\n"b": {"command": "y"}}}'
    with pytest.raises(ToolConfigurationError, match="is not JSON: line 3: Expected 'comma'") as raised:
        MCPClient.from_config(write(text))
    assert "hunter2" not in str(raised.value)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "mcp.json").write_bytes(b"\xff")
    with pytest.raises(ToolConfigurationError, match=r"is not JSON: .*can't decode byte"):
        MCPClient.from_config(tmp_path / "mcp.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ToolConfigurationError, match=r"nothing.json' cannot be read: No such file"):
        MCPClient.from_config(tmp_path / "nothing.json")


def test_values_of_variables_are_not_expanded_again(write, monkeypatch):
    monkeypatch.setenv("OUTER", "${INNER}")
    (client,) = MCPClient.from_config(write({"mcpServers": {"a": {"url": "http://x/${OUTER}"}}})).values()
    assert client.name == "a"
