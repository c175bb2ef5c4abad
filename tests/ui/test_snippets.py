"""Snippets: what is copied makes the call that it shows, whatever the arguments are."""

import json
import shlex
import subprocess
import sys
from types import ModuleType

import pytest

from toolsemble import SchemaTool, Toolbox, tool
from toolsemble._cli.targets import load_toolbox
from toolsemble._ui.routes.playground import as_command, as_curl, as_python, find_import, view_providers

NASTY = 'it\'s "quoted" $(reboot) `id` \\ \x1b[31m\x7f\u202e\n<b>'


@tool
def echo(text: str, times: int = 1) -> str:
    """Repeat a text."""
    return text * times


def test_python_runs_and_prints_the_reply(tmp_path):
    (tmp_path / "shop.py").write_text(
        "from toolsemble import tool\n\n@tool\ndef echo(text: str) -> str:\n    '''Echo.'''\n    return repr(text)\n"
    )
    box = load_toolbox([str(tmp_path / "shop.py")])
    program = as_python("echo", {"text": NASTY}, box["echo"])
    assert "from shop import echo" in program
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{NASTY!r}\n"


def test_python_without_a_module_uses_the_toolbox_of_the_program():
    program = as_python("echo", {"text": "a", "times": 2}, SchemaTool("echo", "Echo.", str))
    names = {"box": Toolbox([echo]), "printed": []}
    exec(program.replace("print(", "printed.append("), names)  # noqa: S102 - the program is the test
    assert names["printed"] == ["aa"]


def test_a_tool_is_imported_by_the_name_that_its_module_has():
    assert find_import(echo) == (__name__, "echo")
    module = ModuleType("9 lives.py")
    module.spare = SchemaTool("spare", "Spare.", str)
    module._hidden = echo
    try:
        sys.modules["9 lives.py"] = module
        type(module.spare).__module__, kept = "9 lives.py", type(module.spare).__module__
        assert find_import(module.spare) is None
    finally:
        SchemaTool.__module__ = kept
        del sys.modules["9 lives.py"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("shop.py", ["shop.py:echo"]),
        ("my shop.py:tools", ["my shop.py:echo"]),
        ("shop", ["shop:echo"]),
        ("shop:tools", ["shop:echo"]),
        ("echo:DIR", ["echo:DIR"]),
        ("mcp:npx server", ["mcp:npx server", "echo"]),
    ],
)
def test_a_command_is_one_line_that_a_shell_reads_as_the_call(target, words):
    command = as_command(target, "echo", {"text": NASTY})
    assert command.isascii()
    assert command.isprintable()
    *before, arguments = shlex.split(command)
    assert before == ["toolsemble", "call", *words]
    assert json.loads(arguments) == {"text": NASTY}


def test_curl_sends_the_call_with_the_token_of_the_shell():
    command = as_curl("http://127.0.0.1:7771/api?x=1&y", {"tool": "echo", "arguments": {"text": NASTY}})
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:2] == ["curl", "http://127.0.0.1:7771/api?x=1&y"]
    assert "Authorization: Bearer $TOOLSEMBLE_TOKEN" in words
    assert json.loads(words[-1]) == {"tool": "echo", "arguments": {"text": NASTY}}
    assert "-H 'Authorization: Bearer it'\"'\"'s'" in as_curl("http://localhost", {}, token="it's")  # noqa: S106 - not one


def test_each_provider_shows_the_tool_and_what_is_lost():
    views = {view.provider: view for view in view_providers(echo)}
    assert list(views) == ["openai", "anthropic", "google", "mistral", "bedrock", "ollama", "mcp"]
    assert views["anthropic"].tools == Toolbox([echo]).to_anthropic()
    assert views["google"].notes == tuple(echo.explain("google"))
    assert all(view.problem == "" for view in views.values())


def test_a_provider_that_cannot_take_a_tool_says_why():
    (view,) = view_providers(echo, ["unknown"])
    assert (view.tools, view.notes) == ([], ())
    assert view.problem.startswith("Unknown provider 'unknown'")
