"""Tests of the program in a child process: at a terminal, in a pipe, and interrupted."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from helpers.terminal import PROGRAM, WAIT, Person, child, forget_modules, write_bot
from toolsemble._cli import main
from toolsemble._cli.app import app
from toolsemble._cli.options import Exit

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
SLEEPY = """
started = []

@tool
def nap() -> str:
    "Sleep for long; nothing can wake it."
    open(os.path.join(os.path.dirname(__file__), "asleep"), "w").close()
    time.sleep(60)
    return "awake"

@tool
async def rest() -> str:
    "Rest for long, until somebody calls."
    open(os.path.join(os.path.dirname(__file__), "asleep"), "w").close()
    await asyncio.sleep(60)
    return "rested"
"""


@pytest.fixture
def person():
    sitting = Person()
    yield sitting
    sitting.leaves()


@pytest.fixture
def bot(tmp_path):
    def bot(script):
        return write_bot(tmp_path, script, more=SLEEPY)

    return bot


def test_pipe_gets_plain_text_answer(bot):
    path = bot('add_1_2(), "It is \\x1b[31mthree."')
    code, out, err = child("ask", "-", "-m", "bot:model", "-t", path, stdin="What?", cwd=Path(path).parent)
    assert (code, out) == (0, "It is \\x1b[31mthree.\n")
    assert err.startswith('add {"a":1,"b":2}\n  -> 3\n1 call, ')
    assert "\x1b" not in err


def test_colors_can_be_forced_into_a_pipe(bot):
    path = bot('add_1_2(), "Three."')
    code, out, err = child("ask", "q", "-m", f"{path}:model", "-t", path, env={"FORCE_COLOR": "1"})
    assert (code, out) == (0, "Three.\n")
    assert err.startswith("\x1b[1;36madd\x1b[0m ")


def test_ascii_output_accepts_any_text(bot):
    path = bot('"caf\\u00e9 \\U0001f600"')
    code, out, _ = child("ask", "q", "-m", f"{path}:model", env={"PYTHONIOENCODING": "ascii"})
    assert (code, out) == (0, "caf\\xe9 \\U0001f600\n")


@pytest.mark.parametrize("tool", ["nap", "rest"])
def test_ctrl_c_ends_run_despite_busy_tools(bot, person, tool):
    path = bot(f'ToolCall("{tool}"), "Never."')
    started = person.starts("ask", "q", "-m", f"{path}:model", "-t", path)
    ends = time.monotonic() + WAIT
    while not Path(path).with_name("asleep").exists():
        assert time.monotonic() < ends
        time.sleep(0.01)
    person.types("\x03")
    assert started.wait(30) == 130
    text = person.plain()
    assert "interrupted after 1 call, " in text
    assert "Traceback" not in text


def test_ctrl_c_during_approval_ends_run(bot, person):
    path = bot('ToolCall("delete", {"path": "x"}), "Never."')
    started = person.starts("ask", "q", "-m", f"{path}:model", "-t", path)
    person.until("[c]ontinue")
    person.types("\x03")
    assert started.wait(30) == 130
    assert "Traceback" not in person.plain()


def test_approval_uses_terminal_when_stdout_is_redirected(bot, person, tmp_path):
    path = bot('ToolCall("delete", {"path": "x"}), "Done."')
    with (tmp_path / "answer.txt").open("w", encoding="utf-8") as answer:
        started = subprocess.Popen(
            [*PROGRAM, "ask", "q", "-m", f"{path}:model", "-t", path],
            stdin=person.slave,
            stdout=answer,
            stderr=person.slave,
        )
        person.until("[c]ontinue")
        person.types("c\n")
        assert started.wait(WAIT) == 0
    assert (tmp_path / "answer.txt").read_text() == "Done.\n"
    assert "  ok delete: approved\n  -> deleted x\n" in person.plain()


@pytest.mark.parametrize(("given", "colored"), [([], True), (["--no-color"], False)])
def test_approval_prompt_respects_color_settings(bot, person, given, colored):
    path = bot('ToolCall("delete", {"path": "x"}), "Done."')
    started = person.starts(*given, "ask", "q", "-m", f"{path}:model", "-t", path)
    person.until("[c]ontinue")
    assert bool(re.search(r"\x1b\[[0-9;]*m", person.seen)) is colored
    person.types("c\n")
    assert started.wait(WAIT) == 0


def test_chat_supports_line_editing(bot, person):
    path = bot("lambda messages: f'You said: {messages[-1].text}', lambda messages: f'And: {messages[-1].text}'")
    started = person.starts("chat", "-m", f"{path}:model")
    person.until("> ")
    person.types("hellp\x7fo\n")
    person.until("You said: hello")
    person.until("> ")
    person.interrupts("> ")
    person.types("\x1b[A\n")  # the line before
    person.until("And: hello")
    person.until("> ")
    person.types("\x04")
    assert started.wait(WAIT) == 0
    assert "Traceback" not in person.plain()


def test_json_lines_are_flushed_and_can_be_interrupted(bot):
    path = bot('ToolCall("rest"), "Never."')
    with subprocess.Popen(
        [*PROGRAM, "ask", "q", "-m", f"{path}:model", "-t", path, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as run:
        while json.loads(run.stdout.readline())["kind"] != "call_requested":
            pass
        run.send_signal(signal.SIGINT)
        lines = [json.loads(line) for line in run.stdout]
        assert run.wait(WAIT) == 130
    assert lines[-1]["kind"] == "interrupted"
    assert [each["text"] for each in lines[-1]["tool_calls"]] == [
        "Error: The run ended before this call did: it was cancelled"
    ]


def test_closed_pipe_ends_run_quietly(bot):
    path = bot('"word " * 200_000')
    with subprocess.Popen(
        [*PROGRAM, "ask", "q", "-m", f"{path}:model", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        run.stdout.readline()
        run.stdout.close()
        assert run.stderr.read() == b""
        assert run.wait(WAIT) == 141


def test_cli_page_shows_real_output(tmp_path, monkeypatch, capsys):
    def written(*words):
        return main(words), *capsys.readouterr()

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", sys.path[:])
    shown = re.findall(r"^\$ toolsemble call (.+)\n((?:[^$`].*\n)+)", PAGE, re.MULTILINE)
    assert len(shown) == 3
    for words, expected in shown:
        assert written("call", *shlex.split(words)) == (0, expected, "")
    words, expected = re.search(r"^\$ toolsemble (ask .+)\n(file_read(?:.*\n)+?)```", PAGE, re.MULTILINE).groups()
    calls = 'ToolCall("file_read", {"path": "tea.txt"}), ToolCall("calculator", {"input": "12 * 4.80"})'
    path = write_bot(tmp_path, f'{calls}, "12 boxes cost 57.60 euros."')
    code, out, err = written(*shlex.split(words), "--model", f"{path}:model")
    forget_modules(tmp_path)
    *steps, answer, spent = expected.splitlines(keepends=True)
    assert (code, out) == (0, answer)
    assert re.sub(r"[\d.]+ s,", "N s,", err) == "".join(steps) + re.sub(r"[\d.]+ s,", "N s,", spent)


@pytest.fixture
def shop(tmp_path):
    """Return the folder of the quickstart, and its sessions: the input and the output."""
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    (tmp_path / "shop.py").write_text(re.search(r"^```python\n(.+?)^```", page, re.DOTALL | re.MULTILINE)[1])
    shown = "".join(re.findall(r"^```console\n(.+?)^```", page, re.DOTALL | re.MULTILINE))
    return tmp_path, re.findall(r"^\$ toolsemble ((?:call|ask) .+)\n((?:[^$\n].*\n|\n)+)", shown, re.MULTILINE)


def test_quickstart_shows_real_output(shop):
    folder, (*calls, (question, expected), _) = shop
    assert len(calls) == 2
    for words, written in calls:
        assert "".join(child(*shlex.split(words), cwd=folder)[1:]) == written
    *steps, answer, spent = expected.splitlines(keepends=True)
    write_bot(folder, make_script(expected))
    code, out, err = child(*shlex.split(question), "--model", "bot.py:model", cwd=folder)
    assert (code, out) == (0, answer)
    assert mask_figures(err) == mask_figures("".join([*steps, spent]))


def test_quickstart_shows_approval_prompt(shop, person):
    folder, (*_, (question, expected)) = shop
    file = folder / "shop.py"
    file.write_text(file.read_text().replace("@tool\ndef order", "@tool(requires_approval=True)\ndef order"))
    write_bot(folder, make_script(expected))
    started = person.starts("--no-color", *shlex.split(question), "--model", "bot.py:model", cwd=folder)
    person.until("> ")
    person.types("c\n")
    assert started.wait(WAIT) == 0
    assert mask_figures(person.plain()) == mask_figures(expected)


def make_script(session):
    """Return the script of a model that says what a session shows: the call of its first line, and its answer."""
    call, *_, answer, _ = session.splitlines()
    name, _, arguments = call.partition(" ")
    return f"ToolCall({name!r}, {arguments!r}), {answer!r}"


def mask_figures(text):
    """Return a text without what differs from run to run: ids, times and tokens."""
    return re.sub(r"\b(?:[0-9a-f]{16}|\d[\d,.:]*(?= s\b| tokens\b| out\b|\)))", "N", text)


def test_cli_page_lists_every_command_and_exit_code():
    for name in (*app.commands, *(f"models {name}" for name in app.commands["models"].commands)):
        assert re.search(rf"^\| `{name}\b", PAGE, re.MULTILINE), name
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == [int(code) for code in Exit]


def test_program_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, function = project["scripts"]["toolsemble"].partition(":")
    code = f"import sys; sys.argv = ['toolsemble', 'version']; from {module} import {function}; {function}()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT, check=True)
    assert run.stdout.startswith("toolsemble ")
