"""The command ``toolsemble lock``."""

import json

import pytest

from toolsemble._cli import main
from toolsemble.catalog._pinning.pins import PinnedTool

OLD = '''
from toolsemble import tool

@tool
def read(path: str) -> str:
    """Read a file."""
'''
NEW = '''
from toolsemble import tool

@tool(effects="read")
def read(path: str, lines: int) -> str:
    """Read a file.\\u200b"""

@tool
def send(text: str) -> str:
    """Send a text."""
'''


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.py").write_text(OLD)

    def run(*words):
        return main(["lock", *words]), *capsys.readouterr()

    return run


@pytest.fixture
def changed(run, tmp_path):
    """Pin the old file under the name of the new one."""
    run("old.py")
    file = tmp_path / "toolsemble.lock"
    file.write_text(file.read_text().replace('"old.py"', '"new.py"'))
    (tmp_path / "new.py").write_text(NEW)


def test_pins_and_checks(run):
    assert run("old.py", "calculator") == (0, "", "toolsemble.lock: pinned 2 tools of 2 sources\n")
    assert run("--check", "old.py") == (0, "", "toolsemble.lock: 1 tool of 1 source, unchanged\n")


def test_pins_a_target_with_a_setting_and_a_toolbox(run, tmp_path):
    (tmp_path / "box.py").write_text(f"{OLD}\nfrom toolsemble import Toolbox\nbox = Toolbox([read])\n")
    assert run("box.py", "file_read:.") == (0, "", "toolsemble.lock: pinned 2 tools of 2 sources\n")
    assert list(json.loads((tmp_path / "toolsemble.lock").read_text())["sources"]) == ["box.py", "file_read:."]


def test_shows_what_has_changed(run, changed):
    code, out, err = run("--check", "new.py")
    assert code == 1
    assert out.splitlines() == [
        "new.py",
        "  'read' changed: breaking, weaker, compatible",
        "    compatible: description",
        "      - Read a file.",
        r"      + Read a file.\u200b",
        "    compatible: input.lines: 'lines' was added",
        "    breaking: input.lines: 'lines' is required now",
        "    weaker: annotations.readOnlyHint",
        "      + true",
        "  'send' added: compatible",
    ]
    assert err == "toolsemble.lock differs; review the changes, and pin them with: toolsemble lock new.py\n"


def test_shows_what_it_writes(run, changed):
    code, out, err = run("new.py")
    assert (code, out.splitlines()[0], err) == (0, "new.py", "toolsemble.lock: pinned 2 tools of 1 source\n")
    assert run("--check", "new.py")[0] == 0


def test_writes_changes_as_json(run, changed):
    code, out, _ = run("--check", "--json", "new.py")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [(each["source"], each["tool"], each["kind"], each["effects"]) for each in lines] == [
        ("new.py", "read", "changed", ["breaking", "weaker", "compatible"]),
        ("new.py", "send", "added", ["compatible"]),
    ]
    assert lines[0]["differences"][-1] == {
        "place": "annotations.readOnlyHint",
        "effect": "weaker",
        "before": None,
        "after": True,
        "summary": "",
    }


def test_names_the_file(run, tmp_path):
    assert run("--file", "pins.json", "old.py")[0] == 0
    (tmp_path / "pins.json").write_text((tmp_path / "pins.json").read_text().replace("old.py", "calculator"))
    code, _, err = run("--check", "--file", "pins.json", "calculator")
    assert (code, err.splitlines()[-1].endswith("toolsemble lock calculator --file pins.json")) == (1, True)


def test_checking_without_a_file_fails_with_the_command(run, tmp_path):
    code, out, err = run("--check", "old.py")
    assert (code, out) == (2, "")
    assert err == (
        "toolsemble: There is no lock file 'toolsemble.lock'; review the tools, and pin them with: "
        "toolsemble lock old.py\n"
    )


def test_a_damaged_file_is_not_replaced(run, tmp_path):
    (tmp_path / "toolsemble.lock").write_text("{}")
    code, _, err = run("old.py")
    assert (code, "it is not a lock file" in err) == (2, True)
    assert (tmp_path / "toolsemble.lock").read_text() == "{}"


def test_tools_of_a_server_belong_to_the_server(run, tmp_path, monkeypatch):
    class Remote:
        lock_source = "mcp:server"
        pin = PinnedTool("read")

    remote = Remote()
    monkeypatch.setattr("toolsemble._cli.lock_command.load_tools", lambda target, shown: [remote])
    assert run("started.py", "again") == (0, "", "toolsemble.lock: pinned 1 tool of 1 source\n")
    assert list(json.loads((tmp_path / "toolsemble.lock").read_text())["sources"]) == ["mcp:server"]


def test_needs_a_target(run):
    assert run()[0] == 2
