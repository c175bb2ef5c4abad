"""The page about the gateway has every key of ``toolsemble.toml``, and its example can be read."""

import re
from pathlib import Path

from toolsemble.mcp._gateway.config_file import Table, read_gateway

PAGE = (Path(__file__).parents[2] / "docs/mcp-gateway.md").read_text(encoding="utf-8")


def test_the_page_has_every_key(monkeypatch, tmp_path):
    known = set()
    read = Table._take

    def take(table, key):
        known.add(key)
        return read(table, key)

    monkeypatch.setattr(Table, "_take", take)
    for name in ("ISSUES_TOKEN", "ADAS_TOKEN"):
        monkeypatch.setenv(name, "a token that is long enough")
    file = tmp_path / "toolsemble.toml"
    file.write_text(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])
    assert [each.name for each in read_gateway(file).servers] == ["files", "issues"]
    assert len(known) > 50
    assert [key for key in sorted(known) if not re.search(rf"`{key}`|\[+(http\.)?{key}\b", PAGE)] == []


def test_secrets_of_a_file_are_not_shown(tmp_path):
    file = tmp_path / "toolsemble.toml"
    file.write_text('[servers.a]\nurl = "https://example.com/mcp"\ntoken = "hunter2"\nheaders = {K = "hunter2"}\n')
    assert "hunter2" not in repr(read_gateway(file))
