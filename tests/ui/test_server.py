"""The command, its server as a process, and the files that it serves."""

import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest

import toolsemble
from helpers.wait import LONG, until
from toolsemble._cli import main
from toolsemble._cli.ui_targets import load_targets
from toolsemble._ui.interface import Targets
from toolsemble._ui.people import add_person
from toolsemble._ui.server import STATIC, ServerSettings, serve
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError

SHOP = str(Path(__file__).parents[1] / "helpers" / "ui_shop.py")
BOTS = """
from toolsemble import Agent, Toolbox, tool
from toolsemble.testing import ScriptedModel

@tool
def add(a: int, b: int) -> int:
    '''Add two numbers.'''
    return a + b

box = Toolbox([add], review=None)
poet = Agent(ScriptedModel([]), name="poet")
_hidden = Agent(ScriptedModel([]), name="hidden")
dynamic = Agent(ScriptedModel([]), lambda run: [add], name="dynamic")
"""


@pytest.fixture
def bots(tmp_path):
    path = tmp_path / "bots.py"
    path.write_text(BOTS)
    return str(path)


@pytest.fixture
def program(tmp_path):
    """Start the command, and return its process and the link that it prints."""
    started = []

    def start(*words):
        log = (tmp_path / f"ui{len(started)}.log").open("w")
        command = [sys.executable, "-m", "toolsemble", "ui", "--no-open", "--port", "0", *words]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path)
        started.append((process, log))
        until(lambda: "http://" in Path(log.name).read_text() or process.poll() is not None)
        return process, re.search(r"http://[^\s,]+", Path(log.name).read_text())[0]

    yield start
    for process, log in started:
        process.kill()
        process.wait(LONG)
        log.close()


def test_the_command_serves_tools_and_ends_at_a_signal_with_an_open_stream(program, tmp_path):
    process, link = program(SHOP, "--data", "data")
    with httpx.Client(follow_redirects=True, timeout=LONG) as client:
        assert client.get(link).status_code == 200
        base = link.partition("/login")[0]
        me = client.get(f"{base}/api/me").json()
        assert (me["agents"], "refund" in me["tools"]) == (["clerk"], True)
        assert client.get(base).headers.get("server") is None
        with client.stream("GET", f"{base}/api/feed") as stream:
            assert next(stream.iter_lines()) == "id: 0"
            process.send_signal(signal.SIGTERM)
            process.wait(LONG)
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_a_cookie_works_after_a_restart_at_the_same_port(program):
    process, link = program("--data", "data")
    base = link.partition("/login")[0]
    with httpx.Client(follow_redirects=True, timeout=LONG) as client:
        client.get(link)
        process.kill()
        process.wait(LONG)
        program("--data", "data", "--port", base.rpartition(":")[2])
        assert client.get(f"{base}/api/me").status_code == 200


def test_people_sign_in_with_their_tokens(program, capsys, tmp_path):
    people = tmp_path / "people.toml"
    assert main(["ui", "add-person", "ada", "--role", "admin", "--people", str(people)]) == 0
    token, said = capsys.readouterr()
    assert "ada is in" in said
    _, base = program("--people", str(people), "--host", "127.0.0.1", "--allow-host", "desk.example.com")
    sent = {"authorization": f"Bearer {token.strip()}", "host": "desk.example.com"}
    assert httpx.get(f"{base}/api/me", headers=sent, timeout=LONG).json()["person"] == "ada"


def test_a_name_that_cannot_be_one_is_an_error_of_the_command(capsys):
    assert main(["ui", "add-person", "a b"]) == 2
    assert "A person's name is" in capsys.readouterr().err


def test_help_names_the_other_command(capsys):
    assert main(["ui", "--help"]) == 0
    assert "add-person ada" in capsys.readouterr().out
    assert main(["ui", "add-person", "--help"]) == 0


def test_other_machines_need_people(tmp_path):
    with pytest.raises(ToolConfigurationError, match=r"pass --people FILE"):
        serve(ServerSettings(str(tmp_path), host="0.0.0.0"), Targets(), print)  # noqa: S104 - it is refused
    with pytest.raises(ToolConfigurationError, match=r"pass --people FILE"):
        serve(ServerSettings(str(tmp_path), host="desk.example.com"), Targets(), print)


def test_a_port_that_is_taken_is_an_error_with_the_next_step(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ToolConfigurationError, match=rf"Cannot listen on 127.0.0.1:{port}"):
            serve(ServerSettings(str(tmp_path), port), Targets(), print)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_the_browser_is_opened_by_a_private_file(tmp_path, monkeypatch, host):
    opened, said, served = [], [], []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append((url, Path(url[7:]).read_text())))
    monkeypatch.setattr("uvicorn.Server.run", lambda _, sockets: served.append(sockets[0].getsockname()[1]))
    try:
        serve(ServerSettings(str(tmp_path), 0, host), Targets(), said.append)
    except ToolConfigurationError:
        pytest.skip("this machine has no IPv6")
    ((url, text),) = opened
    link = said[0].removeprefix("toolsemble ui: ")
    assert (link in text, "token" in url) == (True, False)
    assert f":{served[0]}/login?token=" in link
    assert not (tmp_path / "ui-open.html").exists()


def test_the_command_without_a_browser_prints_the_link(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("uvicorn.Server.run", lambda _, sockets: None)
    assert main(["ui", SHOP, "--data", str(tmp_path), "--port", "0", "--no-open", "--read-only"]) == 0
    assert "/login?token=" in capsys.readouterr().out


def test_people_get_an_address_without_a_token(tmp_path, monkeypatch, capsys):
    people = tmp_path / "people.toml"
    add_person(people, "ada", [])
    monkeypatch.setattr("uvicorn.Server.run", lambda _, sockets: None)
    assert main(["ui", "--data", str(tmp_path), "--port", "0", "--people", str(people)]) == 0
    said = capsys.readouterr().out
    assert ("token" in said, "proxy with TLS" in said) == (False, True)


def test_targets_are_tools_toolboxes_agents_and_built_ins(bots):
    found = load_targets([f"{bots}, calculator", f"{bots}:poet"])
    assert (found.names, list(found.agents)) == (["add", "calculator"], ["poet", "dynamic"])
    assert found.sources == {"add": bots, "calculator": "calculator"}
    assert found.find("add").list_reviewers() == []
    assert load_targets([]).names == []


def test_two_agents_of_one_name_are_refused(bots, tmp_path):
    other = tmp_path / "others.py"
    other.write_text(BOTS)
    with pytest.raises(ToolDefinitionError, match="Two agents are named 'poet'"):
        load_targets([bots, str(other)])


def test_a_target_without_tools_and_agents_is_refused(tmp_path):
    empty = tmp_path / "empty.py"
    empty.write_text("")
    with pytest.raises(ToolDefinitionError, match="defines no tools"):
        load_targets([str(empty)])


def test_a_missing_package_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["ui"]) == 2
    assert "[ui]" in capsys.readouterr().err


def test_vendored_modules_are_those_that_were_recorded():
    record = json.loads((STATIC / "vendor" / "vendor.json").read_text())
    files = {name: digest for package in record.values() for name, digest in package["files"].items()}
    found = {name: hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() for name in files}
    assert found == files
    others = {path.name for path in (STATIC / "vendor").iterdir()} - files.keys()
    assert others == {"LICENSES.txt", "vendor.json"}
    licenses = (STATIC / "vendor" / "LICENSES.txt").read_text()
    assert all(package in licenses for package in record)
    assert ("The MIT License" in licenses, "Apache License" in licenses) == (True, True)


def test_the_page_makes_nodes_and_never_html():
    own = [path for path in STATIC.rglob("*.mjs") if path.parent.name != "vendor"]
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bsrcdoc\b")
    assert len(own) > 15
    assert [path.name for path in own if forbidden.search(path.read_text())] == []


def test_the_page_names_no_other_origin():
    texts = [path for path in STATIC.rglob("*.*") if path.suffix in {".html", ".css", ".mjs"}]
    named = re.compile(r"(?:src|href|import|from|url)\W{1,3}https?://")
    assert [path.name for path in texts if named.search(path.read_text())] == []


def test_every_module_that_is_imported_exists():
    for path in STATIC.rglob("*.mjs"):
        for name in re.findall(r'from ?"(\.[^"]+)"', path.read_text()):
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"


def test_the_files_are_part_of_the_package_and_small():
    root = Path(toolsemble.__file__).parent
    assert STATIC.is_relative_to(root)
    assert sum(path.stat().st_size for path in STATIC.rglob("*.*")) < 200_000
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert "src/toolsemble/_ui/static/vendor/LICENSES.txt" in project["license-files"]
