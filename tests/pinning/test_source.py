"""The identity of a source: stable, and without secrets."""

import pytest

from toolsemble.catalog._pinning.lock_file import identify_program, identify_target, identify_url


@pytest.mark.parametrize(
    ("line", "identity"),
    [
        (["npx", "-y", "@scope/server", "./docs"], "npx -y @scope/server ./docs"),
        (["server", "my docs"], "server 'my docs'"),
        (["server", "--api-key=hunter2"], "server '--api-key=***'"),
        (["server", "--apiKey", "hunter2", "dir"], "server --apiKey '***' dir"),
        (["server", "--token", "--verbose"], "server --token --verbose"),
        (["docker", "run", "-e", "GITHUB_TOKEN=hunter2", "image"], "docker run -e 'GITHUB_TOKEN=***' image"),
        (["docker", "run", "-e", "GITHUB_TOKEN", "image"], "docker run -e GITHUB_TOKEN image"),
        (["proxy", "--header", "Authorization: Bearer hunter2"], "proxy --header 'Authorization: ***'"),
        (["proxy", "--header", "X: Bearer hunter2"], "proxy --header 'X: ***'"),
        (["server", "sk-abcdefghijklmnop1234"], "server '***'"),
        (["server", "postgres://ada:hunter2@db.example:5432/shop?sslkey=hunter2"], "server postgres://db.example:5432/shop"),
        (["server", "--url=https://ada:hunter2@h.example/x"], "server --url=https://h.example/x"),
        (["server", "--keyboard", "de", "--author", "ada"], "server --keyboard de --author ada"),
    ],
)  # fmt: skip
def test_command_lines_have_no_secrets(line, identity):
    shown = identify_program(*line)
    assert shown == f"mcp:{identity}"
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("url", "identity"),
    [
        ("https://tools.example.com/mcp", "https://tools.example.com/mcp"),
        ("https://tools.example.com:8443/mcp/", "https://tools.example.com:8443/mcp"),
        ("http://ada:hunter2@LOCALHOST:80/?key=hunter2#hunter2", "http://localhost"),
        ("http://[::1]:9000/mcp", "http://[::1]:9000/mcp"),
        ("https://ada:hunter2@h.example:port/mcp?key=hunter2", "h.example:port/mcp"),
    ],
)
def test_urls_are_origin_and_path(url, identity):
    assert identify_url(url) == f"mcp:{identity}"


@pytest.mark.parametrize(
    ("target", "identity"),
    [
        ("calculator", "calculator"),
        ("mcp:https://ada:hunter2@h.example/mcp?key=hunter2", "mcp:https://h.example/mcp"),
        ("mcp:server --token hunter2 'my docs'", "mcp:server --token '***' 'my docs'"),
        ("mcp:./mcp.json", "mcp:./mcp.json"),
    ],
)
def test_targets_have_no_secrets(target, identity):
    assert identify_target(target) == identity
