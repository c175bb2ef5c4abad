"""Tests of the commands, run in this process: their output and exit codes."""

import io
import itertools
import json
import os
import pty
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import toolsemble
from helpers.terminal import Person, forget_modules, write_bot
from toolsemble import AgentExecutionError, BudgetExceededError, ExitEarlyError, Tool, ToolDefinitionError, builtin
from toolsemble._cli import main, program
from toolsemble._cli.options import Exit, exit_code_for, format_error
from toolsemble._cli.screen import Screen
from toolsemble._cli.targets import BUILT_INS
from toolsemble._runtime.extras import install_command
from toolsemble._runtime.terminal import OutputStream
from toolsemble._runtime.text import escape_line, escape_prose
from toolsemble.agent import ConversationMemory

pytestmark = pytest.mark.slow

SPENT = re.compile(r"\d+\.\d s")
TWICE = 'add_1_2(), "It is three."'


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path):
    """Leave nothing of what a command loads, and have Ctrl-C as a program has it."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)
    forget_modules(tmp_path)


@pytest.fixture
def bot(tmp_path):
    return lambda script="", more="": write_bot(tmp_path, script, more=more)


@pytest.fixture
def run_cli(capsys):
    """Run a command here; give its exit code, output and errors, in which times are left out."""

    def run_cli(*words):
        code = main(words)
        out, err = capsys.readouterr()
        return code, out, SPENT.sub("N s", err)

    return run_cli


@pytest.fixture
def person(monkeypatch):
    """Sit down at a terminal that this process believes is its own."""
    monkeypatch.setenv("TERM", "xterm")
    sitting = Person()
    yield sitting
    sitting.leaves()


def read_kinds(out):
    return [json.loads(line)["kind"] for line in out.splitlines()]


# --- asking


def test_answer_goes_to_stdout_and_calls_to_stderr(bot, run_cli):
    path = bot(TWICE)
    assert run_cli("ask", "What is", "1 + 2?", "-m", f"{path}:model", "-t", path) == (
        0,
        "It is three.\n",
        'add {"a":1,"b":2}\n  -> 3\n1 call, N s, 2,000 tokens in, 40 out\n',
    )


def test_quiet_prints_only_the_answer(bot, run_cli):
    path = bot(TWICE)
    assert run_cli("ask", "q", "-q", "-m", f"{path}:model", "-t", path) == (0, "It is three.\n", "")


def test_question_can_be_read_from_stdin(bot, run_cli, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("What is it?\n"))
    path = bot("lambda messages: messages[-1].text.upper()")
    assert run_cli("ask", "-", "-q", "-m", f"{path}:model") == (0, "WHAT IS IT?\n", "")


SYSTEM = "lambda messages: repr((messages[0].role, messages[0].text))"


def test_instructions_come_from_option_and_file(bot, run_cli, monkeypatch, tmp_path):
    path, file = bot(f"{SYSTEM}, {SYSTEM}, {SYSTEM}, 'done'"), tmp_path / "system.txt"
    file.write_text("Be kind, Zoë.", encoding="utf-8")
    asked = ("ask", "q", "-q", "-m", f"{path}:model")
    assert run_cli(*asked, "--system", "Be brief.")[1] == "('system', 'Be brief.')\n"
    assert run_cli(*asked, "--system-file", str(file))[1] == "('system', 'Be kind, Zoë.')\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    options = ("--system-file", str(file), "--system", "Be brief.")
    path = bot(SYSTEM)
    assert run_cli("chat", "-q", "-m", f"{path}:model", *options)[1] == ("('system', 'Be brief.\\n\\nBe kind, Zoë.')\n")


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_unreadable_system_file_is_reported(bot, run_cli, tmp_path, content):
    file = tmp_path / "system.txt"
    if content is not None:
        file.write_bytes(content)
    code, out, err = run_cli("ask", "q", "-m", f"{bot('1')}:model", "--system-file", str(file))
    assert (code, out) == (2, "")
    assert f"--system-file {str(file)!r} cannot be read: " in err


def test_output_shows_parallel_calls_long_results_and_progress(bot, run_cli):
    calls = '(ToolCall("add", {"a": "x"}), ToolCall("many", {"input": "9"}))'
    path = bot(f'ChatReply("I look.", {calls}), "Done."')
    code, out, err = run_cli("ask", "q", "-m", f"{path}:model", "-t", path)
    assert (code, out) == (0, "Done.\n")
    assert err.splitlines()[:4] == [
        "I look.",
        'add {"a":"x"}',
        'many {"input":"9"}',
        "  add -> Error: Invalid arguments for 'add': a: expected an integer; b: missing",
    ]
    assert "  .. many 50% half of it\n" in err
    shown = [f"     line {number}" for number in range(1, 6)]
    assert err.splitlines()[-9:-1] == ["  many -> line 0", *shown, "     ... 3 more lines", "     and a ImageContent"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_prints_of_modules_and_tools_go_to_stderr(bot, run_cli, options):
    loud = '\nprint("Loading")\n@tool\ndef loud() -> str:\n    "Prints."\n    print("Working")\n    return "well"\n'
    path = bot('ToolCall("loud"), "Done."', more=loud)
    for printed, *words in (
        ("Loading", "tools", path),
        ("Working", "call", f"{path}:loud"),
        ("Working", "ask", "q", "-m", f"{path}:model", "-t", f"{path}:loud"),
    ):
        code, out, err = run_cli(*words, *options)
        assert (code, printed in out, printed in err) == (0, False, True)


def test_immediate_result_is_the_answer(bot, run_cli):
    path = bot('ToolCall("show", {"text": "hello"})')
    assert run_cli("ask", "q", "-q", "-m", f"{path}:model", "-t", path) == (0, "shown: hello\n", "")


@pytest.mark.parametrize(
    ("approve", "expected"),
    [
        ("always", "  ok delete: approved\n  -> deleted old.log\n"),
        (
            "never",
            (
                "  no delete: rejected: calls that need approval are rejected (--approve never)\n"
                "  -> Error: Rejected by reviewer: calls that need approval are rejected (--approve never)\n"
            ),
        ),
        (
            "ask",
            (
                "toolsemble: 'delete' is rejected: standard input is not a terminal, so no reviewer can be asked; run "
                "it in a terminal, or with --approve always\n"
                "  no delete: rejected: standard input is not a terminal, so no reviewer can be asked\n"
                "  -> Error: Rejected by reviewer: standard input is not a terminal, so no reviewer can be asked\n"
            ),
        ),
    ],
)
def test_approve_option_decides_reviews(bot, run_cli, monkeypatch, approve, expected):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    path = bot('ToolCall("delete", {"path": "old.log"}), "Done."')
    code, out, err = run_cli("ask", "q", "-m", f"{path}:model", "-t", path, "--approve", approve)
    assert (code, out) == (0, "Done.\n")
    assert err == f'delete {{"path":"old.log"}}\n{expected}1 call, N s, 2,000 tokens in, 40 out\n'


def test_exhausted_budget_has_its_own_exit_code(bot, run_cli):
    path = bot(TWICE)
    code, out, err = run_cli("ask", "q", "-m", f"{path}:model", "-t", path, "--max-calls", "0")
    assert (code, out) == (3, "It is three.\n")
    assert err.startswith('add {"a":1,"b":2}\n  -> STOP: Maximum tool iterations (0) reached.')
    assert "stopped early: the call limit was reached (--max-calls)\n" in err


@pytest.mark.parametrize(
    ("script", "code", "line"),
    [
        ('ModelError("no such model")', 1, "toolsemble: no such model\n"),
        ('add_1_2(), ""', 3, "Maximum tool iterations (0) reached, and the model returned no final answer\n"),
    ],
)
def test_failed_run_prints_one_error_line(bot, run_cli, script, code, line):
    path = bot(script)
    ended, out, err = run_cli("ask", "q", "-m", f"{path}:model", "-t", path, "--max-calls", "0")
    assert (ended, out) == (code, "")
    assert re.search(r"^failed after (1 call, )?N s", err, re.MULTILINE)
    assert err.endswith(line)


def test_retry_of_the_model_is_shown(bot, run_cli):
    path = bot('ModelError("busy", retryable=True, retry_after=0), "Here."')
    code, out, err = run_cli("ask", "q", "-m", f"{path}:model")
    assert (code, out) == (0, "Here.\n")
    assert "the model failed; retry in N s: busy\n" in err


def test_interrupted_run_keeps_its_output(bot, run_cli):
    path = bot("add_1_2(), interrupted")
    code, out, err = run_cli("ask", "q", "-m", f"{path}:model", "-t", path)
    assert (code, out) == (130, "")
    assert err.endswith("  -> 3\ninterrupted after 1 call, N s, 1,000 tokens in, 20 out\n")


def test_text_of_interrupted_answer_is_kept(bot, run_cli, tmp_path):
    path = bot("", SLOW_MODEL)
    memory = str(tmp_path / "talk.db")
    assert run_cli("ask", "q", "-m", f"{path}:model", "-q", "--memory", memory) == (130, "Half an\n", "")
    kept = ConversationMemory(memory)
    assert [message.text for message in kept.load("default")] == ["q", "Half an (interrupted)"]
    kept.close()
    again = write_bot(tmp_path, 'lambda messages: " / ".join(message.text for message in messages)', "again.py")
    assert run_cli("ask", "Go on.", "-m", f"{again}:model", "-q", "--memory", memory) == (
        0,
        "q / Half an (interrupted) / Go on.\n",
        "",
    )


SLOW_MODEL = """
class Slow(FunctionModel):
    async def stream(self, request):
        async for chunk in super().stream(request):
            if chunk.text == "answer":
                signal.raise_signal(signal.SIGINT)
                await asyncio.sleep(60)
            yield chunk

model = Slow(lambda request: "Half an answer")
"""


def test_events_are_json_lines(bot, run_cli):
    calls = '[add_1_2(), ToolCall("delete", {"path": "x"}), ToolCall("many", {"input": "1"})]'
    path = bot(f'ModelError("busy", retryable=True, retry_after=0), {calls}, "caf\\u00e9 \\x1b[2J"')
    code, out, err = run_cli("ask", "q", "-m", f"{path}:model", "-t", path, "--approve", "always", "--json")
    assert (code, err) == (0, "")
    assert out.isascii()
    assert out.isprintable() is False
    assert "\x1b" not in out
    lines = [json.loads(line) for line in out.splitlines()]
    assert {line["kind"] for line in lines} == {
        "model_retried",
        "call_delta",
        "arguments_delta",
        "call_requested",
        "call_progress",
        "review_requested",
        "review_decided",
        "call_replied",
        "turn_ended",
        "text_delta",
        "final",
    }
    assert [line["fraction"] for line in lines if line["kind"] == "call_progress"] == [0.5, None, None]
    final = lines[-1]
    assert (final["text"], final["stop_reason"]) == ("café \x1b[2J", "answer")
    assert [(each["call"]["name"], each["text"]) for each in final["tool_calls"]] == [
        ("add", "3"),
        ("delete", "deleted x"),
        ("many", "line 0"),
    ]
    assert final["tool_calls"][2]["contents"] == [{"kind": "ImageContent", "size": 3}]
    assert final["usage"]["input_tokens"] == 2000


@pytest.mark.parametrize(
    ("approve", "decided"),
    [
        ("always", {"decision": "continue"}),
        (
            "never",
            {
                "decision": "reject",
                "reason": "calls that need approval are rejected (--approve never)",
                "timed_out": False,
            },
        ),
    ],
)
def test_review_decisions_are_json_lines(bot, run_cli, approve, decided):
    path = bot('ToolCall("delete", {"path": "x"}), "Done."')
    _, out, _ = run_cli("ask", "q", "-m", f"{path}:model", "-t", path, "--approve", approve, "--json")
    line = next(json.loads(line) for line in out.splitlines() if "review_decided" in line)
    assert {name: line[name] for name in decided} == decided


@pytest.mark.parametrize(
    ("script", "code", "last"),
    [
        ('ModelError("down")', 1, {"kind": "error", "message": "down", "exit_code": 1}),
        ("interrupted", 130, {"kind": "interrupted", "text": ""}),
    ],
)
def test_last_json_line_is_the_outcome(bot, run_cli, script, code, last):
    path = bot(script)
    ended, out, _ = run_cli("ask", "q", "-m", f"{path}:model", "--json")
    line = json.loads(out.splitlines()[-1])
    assert ended == code
    assert {name: line[name] for name in last} == last
    assert line["usage"]["model_calls"] == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["ask", " "], "The question is missing: write it after 'ask', or '-' to read it from standard input"),
        (["ask"], "Missing argument 'QUESTION...'. See 'toolsemble ask --help'."),
        (["ask", "q", "-m", "unknown:nothing"], "Unknown model 'unknown:nothing'; known providers: "),
        (["ask", "q", "-m", "unknown"], "Unknown model 'unknown'; known providers: "),
        (["ask", "q", "-m", "nothing.py"], "There is no file 'nothing.py'"),
        (["ask", "q", "-m", "shell.py:"], "'shell.py:' has nothing after the colon"),
        (["ask", "q", "-m", "os:path"], "'os:path' is a module, not a model: write os:path.NAME for a model in it"),
        (["ask", "q", "-m", "math:pi"], "3.141592653589793 is not a ChatModel"),
        (["ask", "q", "-t", "calclator"], "There is no tool or module 'calclator'. Did you mean 'calculator'?"),
        (["nothing"], "No such command 'nothing'. See 'toolsemble --help'."),
        (["tools", "--provider", "unknown"], "Invalid value for '-p' / '--provider'"),
        (["--show-completion", "cmd"], "Completion does not support the shell 'cmd'; use one of bash, zsh, fish"),
    ],
)
def test_usage_error_is_reported_in_one_line(run_cli, words, line):
    code, out, err = run_cli(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"toolsemble: {line}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["ask", " "], 2, "The question is missing: write it after 'ask', or '-' to read it from standard input"),
        (["ask", "q", "-m", "unknown:x"], 2, "Unknown model 'unknown:x'; known providers: "),
        (["ask", "q", "-t", "calclator"], 2, "There is no tool or module 'calclator'. Did you mean 'calculator'?"),
        (["ask", "q", "-m", "BOT:model", "--memory", "BOT/x"], 2, "The conversation memory 'BOT/x' cannot be used: "),
        (["ask", "q", "--nothing"], 2, "No such option"),
        (["ask"], 2, "Missing argument 'QUESTION...'. See 'toolsemble ask --help'."),
        (["chat", "-m", "unknown:x"], 2, "Unknown model 'unknown:x'; known providers: "),
        (["chat", "-t", "calclator"], 2, "There is no tool or module 'calclator'. Did you mean 'calculator'?"),
        (["chat", "--max-calls", "x"], 2, "Invalid value for '--max-calls': 'x' is not a valid integer"),
    ],
)
def test_error_before_run_is_a_json_line(bot, run_cli, words, code, message):
    path = bot()
    ended, out, err = run_cli(*(word.replace("BOT", path) for word in words), "--json")
    line = json.loads(out)
    assert (ended, line["kind"], line["exit_code"]) == (code, "error", code)
    assert line["message"].startswith(message.replace("BOT", path))
    assert (line["text"], line["tool_calls"], line["usage"]["model_calls"]) == ("", [], 0)
    assert err == f"toolsemble: {line['message']}\n"


def test_ctrl_c_before_run_is_a_json_line(bot, run_cli):
    path = bot("", "signal.raise_signal(signal.SIGINT)")
    code, out, _ = run_cli("ask", "q", "-m", f"{path}:model", "--json")
    assert (code, read_kinds(out)) == (130, ["interrupted"])


def test_other_commands_write_no_events(run_cli):
    assert run_cli("tools", "--json", "--nothing")[:2] == (2, "")


def test_debug_prints_escaped_traceback(bot, run_cli):
    path = bot('ValueError("\\x1b[2J")')
    for words in (["--debug", "ask"], ["ask", "--debug"]):
        code, _, err = run_cli(*words, "q", "-m", f"{path}:model")
        assert code == 1
        assert "Traceback (most recent call last)" in err
        assert err.endswith("toolsemble: \\x1b[2J\n") or "used up" in err
        assert "\x1b" not in err


def test_log_about_the_chosen_model_is_shown(run_cli, monkeypatch):
    import logging

    from toolsemble._cli import ask_command as model_option
    from toolsemble.testing import ScriptedModel

    def chosen(_):
        logging.getLogger("toolsemble.models._environment").info("Taking local, as there is no key")
        return ScriptedModel(["Hello."])

    monkeypatch.setattr(model_option, "model_of", chosen)
    code, out, err = run_cli("ask", "hi")
    assert (code, out, err) == (0, "Hello.\n", "Taking local, as there is no key\nN s\n")


# --- at a terminal


def test_terminal_streams_text_and_asks_for_approval(bot, person):
    calls = 'ChatReply("I look.", (ToolCall("delete", {"path": "a\\x1b[2J"}), add_1_2()), TokenUsage(1, 1))'
    path = bot(f'{calls}, "Done \\x1b[31m.\\nBye."')
    actor = person.answers(("[c]ontinue", "c\n"))
    assert person.runs(["ask", "q", "-m", f"{path}:model", "-t", path]) == 0
    actor.join(60)
    text = person.plain()
    assert text.startswith('I look.\ndelete {"path":"a\\u001b[2J"}\nadd {"a":1,"b":2}\n')
    assert "  ok delete: approved\n  delete -> deleted a\\x1b[2J\n" in text
    assert "  add -> 3\n" in text
    assert SPENT.sub("N s", text).endswith("Done \\x1b[31m.\nBye.\n2 calls, N s, 1,001 tokens in, 21 out\n")
    assert "\x1b[1;36mdelete\x1b[0m" in person.seen


def test_edit_is_shown(bot, person, monkeypatch):
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    path = bot('ToolCall("delete", {"path": "a"}), "Done."')
    actor = person.answers(("[c]ontinue", "e\n"), ("Instead", "b\n"))
    assert person.runs(["ask", "q", "-m", f"{path}:model", "-t", path]) == 0
    actor.join(60)
    assert '  ok delete: approved with {"path": "b"}\n  -> deleted b\n' in person.plain()


def test_edits_are_json_lines(bot, person, monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    path = bot('ToolCall("delete", {"path": "a"}), "Done."')
    actor = person.answers(("[c]ontinue", "e\n"), ("Instead", "b\n"))
    assert person.runs(["ask", "q", "-m", f"{path}:model", "-t", path, "--json"]) == 0
    actor.join(60)
    line = next(line for line in person.plain().splitlines() if '"review_decided"' in line)
    assert json.loads(line)["revised"] == '{"path": "b"}'


def test_status_line_is_shown_and_then_cleared(bot, person, monkeypatch):
    monkeypatch.setattr("toolsemble._cli.text_output.time", SimpleNamespace(monotonic=lambda: 1000.0))
    path = bot("", PATIENT_MODEL)
    assert person.runs(["ask", "q", "-m", f"{path}:model", "-t", path]) == 0
    text = person.plain()
    assert "0 s thinking" in person.seen
    assert 's add {"a":' in person.seen
    assert text.startswith('add {"a":1,"b":2}\n  -> 3\nDone.\n')


PATIENT_MODEL = """
class Patient(ScriptedModel):
    async def stream(self, request):
        async for chunk in super().stream(request):
            await asyncio.sleep(0.25)
            yield chunk

model = Patient([add_1_2(), "Done."])
"""


def test_result_lines_fit_narrow_terminal(bot, monkeypatch, person):
    long = '@tool\ndef show_long() -> str:\n    "Long."\n    return "x" * 500\n'
    path = bot('ToolCall("show_long"), "Done."', long)
    assert person.runs(["ask", "q", "-m", f"{path}:model", "-t", f"{path}:show_long"]) == 0
    assert f"  -> {'x' * 92}...\n" in person.plain()


def test_immediate_result_is_shown_at_terminal(bot, person):
    path = bot('ToolCall("show", {"text": "hello"})')
    assert person.runs(["ask", "q", "-q", "-m", f"{path}:model", "-t", path]) == 0
    assert person.plain() == "shown: hello\n"


@pytest.mark.parametrize(
    ("given", "colored"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
)
def test_color_settings_are_respected(person, monkeypatch, given, colored):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert person.runs(["tools", "calculator"]) == 0
    person.plain()
    assert ("\x1b[" in person.seen) is colored


@pytest.mark.parametrize("columns", [1, 20])
def test_table_is_complete_in_narrow_terminal(monkeypatch, columns):
    monkeypatch.setenv("TERM", "xterm")
    sitting = Person(columns)
    assert sitting.runs(["tools", "calculator", "--no-color"]) == 0
    assert {"tool", "parameters", "calculator", "expression"} <= set(sitting.plain().split())
    sitting.leaves()


def test_no_color_option_takes_precedence(person, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert person.runs(["tools", "--no-color"]) == 0
    assert "calculator" in person.plain()
    assert "\x1b[" not in person.seen


# --- conversations


def test_chat_answers_piped_lines(bot, run_cli, monkeypatch):
    echo = "lambda messages: ' / '.join(message.text for message in messages)"
    path = bot(f'{echo}, {echo}, "Slash.", {echo}')
    lines = ["hello", "", "bye", "/tools", "/hlep", "/help", "//slash", "/new", "again", "/quit", "never read"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    code, out, err = run_cli("chat", "-q", "-m", f"{path}:model", "-t", f"{path}:add")
    assert (code, out) == (0, "hello\nhello / hello / bye\nSlash.\nagain\n")
    assert err.startswith("add\nThere is no command /hlep; did you mean /help?\n/help   list the commands\n")
    assert err.endswith("//text  send a text that begins with a slash\nNew conversation.\n")


def test_chat_continues_after_failure_and_exits_with_error(bot, run_cli, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\nsecond\n/tools\n"))
    path = bot('ModelError("down"), "Up."')
    code, out, err = run_cli("chat", "-q", "-m", f"{path}:model")
    assert (code, out, err) == (1, "Up.\n", "down\nnone; name some with --tools\n")


def test_exhausted_budget_in_chat_sets_exit_code(bot, run_cli, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\nsecond\n"))
    path = bot(f'{TWICE}, "Fine."')
    assert run_cli("chat", "-q", "-m", f"{path}:model", "-t", path, "--max-calls", "0")[0] == 3


def test_ctrl_c_ends_piped_chat(bot, run_cli, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\nsecond\n"))
    path = bot('interrupted, "Never."')
    assert run_cli("chat", "-q", "-m", f"{path}:model") == (130, "", "")


def test_ctrl_c_stops_answer_but_not_chat(bot, person):
    path = bot("interrupted, lambda messages: ' / '.join(message.text for message in messages)")
    actor = person.answers(
        ("> ", "hello\n"), ("interrupted after", ""), ("> ", "go on\n"), ("tokens in", ""), ("> ", "/quit\n")
    )
    assert person.runs(["chat", "-m", f"{path}:model"]) == 0
    actor.join(60)
    assert "hello / (interrupted) / go on\n" in person.plain()


def test_end_of_input_ends_chat(bot, person):
    actor = person.answers(("> ", "\x04"))
    assert person.runs(["chat", "-m", f"{bot()}:model"]) == 0
    actor.join(60)
    assert person.plain().startswith("/help lists the commands; Ctrl-C stops an answer.\n> ")


def test_ctrl_c_at_prompt_clears_line(bot, person, monkeypatch):
    exceptions = iter([KeyboardInterrupt, EOFError])

    def interrupted(prompt):
        raise next(exceptions)

    monkeypatch.setattr("builtins.input", interrupted)
    assert person.runs(["chat", "-m", f"{bot()}:model"]) == 0


# --- looking at tools


def test_built_in_tools_are_listed_with_settings(run_cli):
    code, out, err = run_cli("tools")
    assert (code, err) == (0, "")
    assert [line.split("\t")[0] for line in out.splitlines()] == [entry.form for entry in BUILT_INS.values()]


def test_built_in_tool_with_missing_packages_names_extra(run_cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "whenever", None)
    _, out, _ = run_cli("tools")
    assert f"datetime\tnot available: DateTimeTool needs the package 'whenever': {install_command('datetime')}" in out
    assert "datetime" not in run_cli("tools", "--json")[1]


def test_tools_of_a_file_are_listed_with_parameters(bot, run_cli):
    assert run_cli("tools", bot()) == (
        0,
        (
            "add\ta: integer, b: integer\tAdd two numbers.\ndelete\tpath: string\tDelete a file.\n"
            "many\tinput: string\tGives many lines.\nshow\ttext: string\tShow a text.\n"
        ),
        "",
    )


def test_every_parameter_type_is_shown_in_one_line(tmp_path, run_cli):
    file = tmp_path / "kinds.py"
    file.write_text(
        "from typing import Any, Literal\nfrom toolsemble import tool\n@tool\ndef find(which: Literal['a', 'b'], "
        "tags: list[str], what: Any, size: int | str = 3, other: list = None) -> str:\n    return ''\n"
    )
    _, out, _ = run_cli("tools", str(file))
    assert out == 'find\twhich: "a"|"b", tags: string[], what: any, [size: integer|string], [other: any[]|null]\t\n'


def test_specifications_and_provider_formats_are_json(bot, run_cli):
    path = bot()
    lines = run_cli("tools", path, "--json")[1].splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["add", "delete", "many", "show"]
    wire = json.loads(run_cli("tools", f"{path}:add", "--provider", "openai")[1])
    assert wire[0]["function"]["name"] == "add"
    assert json.loads(run_cli("tools", f"{path}:add", "--provider", "openai", "--json")[1]) == wire
    assert {each["function"]["name"] for each in json.loads(run_cli("tools", "-p", "openai")[1])} == set(BUILT_INS)


def test_a_budget_shows_what_tools_cost_and_what_a_catalog_shows(bot, run_cli):
    code, out, err = run_cli("tools", bot(), "--budget", "150")
    assert code == 0
    assert [line.split("\t")[:3] for line in out.splitlines()] == [
        [name, "other", "hidden"] for name in ("add", "delete", "many", "show")
    ]
    assert all(int(cell) > 20 for line in out.splitlines() for cell in line.split("\t")[3:])
    assert err.startswith("4 tools have ")
    assert "the budget is 150: 4 are hidden; find_tools takes " in err


def test_a_budget_for_many_tools_shows_the_first_of_each_kind_at_a_terminal(tmp_path, run_cli, person):
    path = tmp_path / "many.py"
    path.write_text(
        "from toolsemble import SchemaTool\n"
        "tools = [SchemaTool(f'tool_{number}', 'Does it.', str, {}) for number in range(30)]\n"
    )
    words = ["tools", f"{path}:tools", "--budget", "200", "--provider", "openai"]
    assert person.runs(words) == 0
    person.until("and 20 hidden; --all lists them")
    assert person.seen.count("tool_") == 10
    assert person.runs([*words, "--all"]) == 0
    person.until("tool_29")
    assert run_cli(*words)[1].count("tool_") == 30


def test_a_budget_can_be_counted_for_one_provider(run_cli):
    line = json.loads(run_cli("tools", "calculator", "--budget", "200", "--provider", "google", "--json")[1])
    assert (line["tool"], line["group"], line["state"]) == ("calculator", "other", "shortened")
    assert line["shown"] < line["tokens"]["google"]


def test_built_in_tools_have_a_budget_too(run_cli):
    _, out, err = run_cli("tools", "--budget", "100000")
    assert [line.split("\t")[0] for line in out.splitlines()] == list(BUILT_INS)
    assert "everything is shown" in err


def test_a_budget_that_cannot_work_is_reported(run_cli):
    code, _, err = run_cli("tools", "--budget", "20")
    assert code != 0
    assert "Catalog budget 20 cannot hold find_tools" in err
    assert run_cli("tools", "--budget", "0")[0] == 2


def test_explain_lists_what_provider_drops(run_cli):
    code, out, _ = run_cli("explain", "file_read", "--provider", "google")
    assert code == 0
    assert "file_read\tgoogle\t$.offset\tminimum\tmoved into the description: at least 0\n" in out
    line = json.loads(run_cli("explain", "file_read", "--provider", "google", "--json")[1].splitlines()[0])
    assert line == {
        "tool": "file_read",
        "provider": "google",
        "path": "$.offset",
        "keyword": "minimum",
        "action": "moved",
        "detail": "at least 0",
    }
    assert {row.split("\t")[1] for row in run_cli("explain", "file_read")[1].splitlines()} >= {"google", "openai"}
    assert run_cli("explain", "calculator", "-p", "mcp") == (
        0,
        "",
        "Nothing is lost: mcp gets the tool as it is declared.\n",
    )


# --- calling by hand


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["calculator", "2 + 2"], (0, "4\n", "")),
        (["calculator", "2", "+", "2"], (0, "4\n", "")),
        (["calculator", '{"input": "2 + 2"}'], (0, "4\n", "")),
        (["calculator", "input=2 + 2"], (0, "4\n", "")),
        (["BOT:add", "a=1", "b=2"], (0, "3\n", "")),
        (["BOT:add", '{"a": 1, "b": 2}'], (0, "3\n", "")),
        (["BOT:add", "--approve", "never", "b=2"], (1, "Error: Missing required parameter(s) for 'add': a\n", "")),
        (["BOT:add"], (1, "Error: Missing required parameter(s) for 'add': a, b\n", "")),
        (["BOT:show", "a=b"], (0, "shown: a=b\n", "")),
        (["BOT:show", "text=a=b"], (0, "shown: a=b\n", "")),
        (["BOT:show", "\x1b[2J\u202e"], (0, "shown: \\x1b[2J\\u202e\n", "")),
        (["BOT:delete", "path=x", "--approve", "always"], (0, "deleted x\n", "")),
        (
            ["BOT:delete", "path=x", "--approve", "never"],
            (3, "Error: Rejected by reviewer: calls that need approval are rejected (--approve never)\n", ""),
        ),
        (["BOT:add", "1", "2"], (2, "", "toolsemble: Arguments are JSON text or pairs such as a=value, not '1 2'\n")),
        (
            ["BOT:add", "a=1", "b=2", "a=3"],
            (2, "", "toolsemble: duplicate argument 'a'; give it once, or write JSON\n"),
        ),
        (["BOT:show", "a=1", "a=2"], (0, "shown: a=1 a=2\n", "")),
        (["BOT:many", "2"], (0, "line 0\nline 1\n", "and a ImageContent, which is available to programs only\n")),
    ],
)
def test_call_runs_a_tool(bot, run_cli, words, expected):
    path = bot()
    assert run_cli("call", *(word.replace("BOT", path) for word in words)) == expected


def test_call_reads_stdin_and_prints_json(bot, run_cli, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"a": 1, "b": 2}'))
    code, out, _ = run_cli("call", f"{bot()}:add", "-", "--json")
    reply = json.loads(out)
    assert (code, reply["text"], reply["is_error"], reply["call"]["name"]) == (0, "3", False, "add")


def test_call_with_several_tools_is_ambiguous(bot, run_cli):
    path = bot()
    code, _, err = run_cli("call", path)
    assert code == 2
    assert err.endswith("NAME: add, delete, many, show\n")


def test_call_shows_progress_at_terminal(bot, person):
    assert person.runs(["call", f"{bot()}:many", "1"]) == 0
    assert person.plain().startswith("line 0\n")
    assert "50% half of it" in person.seen


LEAVING = "@tool\ndef leave() -> str:\n    raise {}\n"


@pytest.mark.parametrize(("error", "line"), [("SystemExit(7)", "SystemExit: 7"), ("GeneratorExit", "GeneratorExit")])
def test_system_exit_in_tool_fails_only_the_command(bot, run_cli, error, line):
    path = bot('ToolCall("leave"), ToolCall("leave")', LEAVING.format(error))
    assert run_cli("call", f"{path}:leave") == (1, "", f"toolsemble: {line}\n")
    run = ("ask", "q", "-m", f"{path}:model", "-t", f"{path}:leave")
    code, _, err = run_cli(*run)
    assert (code, err.splitlines()[-1]) == (1, f"toolsemble: {line}")
    code, out, _ = run_cli(*run, "--json")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["kind"], last["message"], len(last["tool_calls"])) == (1, "error", line, 1)
    assert "Traceback" in run_cli("--debug", "call", f"{path}:leave")[2]


def test_call_can_be_interrupted(tmp_path, run_cli):
    file = tmp_path / "stop.py"
    file.write_text(
        "import signal\nfrom toolsemble import tool\n\n@tool\ndef stop() -> None:\n"
        "    signal.raise_signal(signal.SIGINT)\n"
    )
    assert run_cli("call", str(file))[0] == 130


# --- the program itself


def test_help_version_and_completion_are_printed(run_cli):
    assert run_cli("--version") == (0, f"toolsemble {toolsemble.__version__}\n", "")
    assert run_cli("version")[1].startswith(f"toolsemble {toolsemble.__version__} (Python ")
    code, out, _ = run_cli()
    assert code == 0
    assert out == run_cli("--help")[1]
    for shell in ("bash", "zsh", "fish"):
        assert "_TOOLSEMBLE_COMPLETE" in run_cli("--show-completion", shell)[1]


def test_every_built_in_tool_with_a_name_of_its_own_is_a_target():
    exported = [getattr(builtin, name) for name in builtin.__all__]
    tools = [each for each in exported if isinstance(each, type) and issubclass(each, Tool)]
    named = {each.name for each in tools if isinstance(getattr(each, "name", None), str)}
    assert named == BUILT_INS.keys()


def test_completion_is_installed_once(run_cli, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    (tmp_path / ".bashrc").write_text("alias ll='ls -l'")
    assert run_cli("--install-completion", "auto")[1].startswith("Added one line to ")
    assert run_cli("--install-completion", "bash")[1].startswith("Already installed in ")
    hook = 'eval "$(toolsemble --show-completion bash)"'
    assert (tmp_path / ".bashrc").read_text() == f"alias ll='ls -l'\n{hook}\n"
    assert run_cli("--install-completion", "fish")[0] == 0
    assert (tmp_path / ".config/fish/config.fish").read_text() == "toolsemble --show-completion fish | source\n"


def test_shell_completes_commands_and_tools(capsys, monkeypatch):
    monkeypatch.setenv("_TOOLSEMBLE_COMPLETE", "bash_complete")
    for words, expected in {
        "toolsemble ex": ["plain,explain"],
        "toolsemble ask -t calculator,file": ["plain,calculator,file_read:", "plain,calculator,file_write:"],
    }.items():
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        with pytest.raises(SystemExit):
            main([])
        assert capsys.readouterr().out.split() == expected


def test_missing_extra_is_named(monkeypatch, run_cli):
    for name in [name for name in sys.modules if name.split(".")[0] == "click" or name == "toolsemble._cli.app"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "click", None)
    message = f"toolsemble: the command line needs the package 'click': {install_command('cli')}\n"
    assert run_cli("version") == (2, "", message)


def test_broken_installation_raises_import_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "toolsemble._cli.app", None)
    with pytest.raises(ModuleNotFoundError):
        main(["version"])


def test_missing_rich_is_named(person, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert person.runs(["tools"]) == 2
    assert f"A table needs the package 'rich.console': {install_command('cli')}" in person.plain()


@pytest.mark.parametrize(
    ("command", "user"),
    [(["serve", "calculator"], "toolsemble serve"), (["lock", "--config", "gateway.toml"], "A gateway")],
)
def test_commands_for_mcp_name_the_extra_that_is_missing(run_cli, monkeypatch, command, user):
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert run_cli(*command) == (2, "", f"toolsemble: {user} needs the package 'mcp': {install_command('mcp')}\n")


def test_program_exits_with_code_of_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["toolsemble", "nothing"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("toolsemble", run_name="__main__")
    assert ended.value.code == 2


def test_undecodable_bytes_do_not_end_chat(bot, monkeypatch, capsys):
    path = bot("lambda messages: messages[-1].text, lambda messages: messages[-1].text")
    monkeypatch.setattr(sys, "argv", ["toolsemble", "chat", "-q", "-m", f"{path}:model"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\nRome\n"), encoding="utf-8"))
    with pytest.raises(SystemExit) as ended:
        program()
    assert (ended.value.code, *capsys.readouterr()) == (0, "caf\\udce9\nRome\n", "")


def test_interrupt_during_startup_prints_nothing(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("toolsemble._cli.main", interrupted)
    with pytest.raises(SystemExit) as ended:
        program(lambda code: None)
    assert (ended.value.code, *capsys.readouterr()) == (130, "", "")


def test_interrupted_program_does_not_wait_for_running_tool(bot, monkeypatch, capsys):
    path = bot("interrupted")
    monkeypatch.setattr(sys, "argv", ["toolsemble", "ask", "q", "-m", f"{path}:model"])
    left, free = [], threading.Event()
    worker = threading.Thread(target=free.wait, args=(60,))
    worker.start()
    try:
        with pytest.raises(SystemExit) as ended:
            program(left.append)
    finally:
        free.set()
        worker.join()
    assert (left, ended.value.code) == ([130], 130)


def test_interrupt_in_command_has_exit_code_130(monkeypatch, run_cli):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("platform.python_version", interrupted)
    assert run_cli("version")[0] == 130


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ToolDefinitionError("a\n b"), Exit.USAGE_ERROR, "a; b"),
        (ExitEarlyError("enough"), Exit.STOPPED, "enough"),
        (BudgetExceededError("25"), Exit.STOPPED, "25"),
        (AgentExecutionError(""), Exit.FAILED, "AgentExecutionError"),
        (KeyError("x"), Exit.FAILED, "KeyError: 'x'"),
        (FileNotFoundError(2, "No such file", "x"), Exit.FAILED, "[Errno 2] No such file: 'x'"),
    ],
)
def test_every_error_has_exit_code_and_message(error, code, line):
    assert (exit_code_for(error), format_error(error)) == (code, line)


# --- what is shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("café\t☕\n", "café\t☕\n"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\r\nb\rc\x08\x7f\x9b2J", "a\nb\\rc\\x08\\x7f\\x9b2J"),
        ("\u202eevil\u2066 \u2028\ud800", "\\u202eevil\\u2066 \\u2028\\ud800"),
        (
            "👩\u200d👧 क\u200cष ❤\ufe0f\u200d🔥\xa01\ufe0f\u20e3",
            "👩\u200d👧 क\u200cष ❤\ufe0f\u200d🔥\xa01\ufe0f\u20e3",
        ),
        ("pass\u200dword 1\ufe0f é\u200d\u200dé", "pass\\u200dword 1\\ufe0f é\\u200d\\u200dé"),
        ("é\ufe0f\ufe0f\ufe00\U000e0100 \u3164\u200dé", "é\ufe0f\\ufe0f\\ufe00\\U000e0100 \\u3164\\u200dé"),
        ("\U000e0041\u034f\U0001f3f4", "\\U000e0041\\u034f\U0001f3f4"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert escape_prose(text) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [("abc", 3, "abc"), ("abcd", 3, "..."), ("a\nb", None, "a\\nb"), ("\n\n\n", 5, "\\n..."), ("a\tb", 9, "a\\tb")],
)
def test_escape_line_limits_length(text, limit, shown):
    assert escape_line(text, limit) == shown


def test_characters_outside_of_the_encoding_are_escaped():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    OutputStream(stream).write("café")
    assert stream.buffer.getvalue() == b"caf\\xe9"
    assert OutputStream(stream).width == 80
    stream.close()
    assert OutputStream(stream).is_terminal is False


def test_closed_terminal_has_default_width():
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor has no path
        gone = OutputStream(stream)
    os.close(master)
    assert (gone.is_terminal, gone.width) == (True, 80)


def test_writes_to_suspended_screen_appear_afterwards(person):
    with person.sits():
        screen = Screen(colors=False)
        screen.show_status("working")
        screen.answer("half a line", end="")
        with screen.suspend(), screen.suspend():
            person.until("half a line\r\n")
            screen.report("later")
            screen.show_status("never shown")
            sys.stdout.write("[question]\n")
            sys.stdout.flush()
        screen.show_status("working")
        screen.show_status("working")
        screen.clear_status()
        screen.clear_status()
    assert person.plain() == "half a line\n[question]\nlater\n"


@pytest.mark.parametrize(
    "words", [["tools"], ["--help"], ["ask", "--help"], ["version"], ["ask", "--json"], ["chat", "--json", "-t", "x"]]
)
def test_closed_output_is_detected_in_this_process(monkeypatch, words):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(words) == 141


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_program_runs_without_standard_streams(monkeypatch, bot, name):
    monkeypatch.setattr(sys, name, None)
    assert main(["call", "calculator", "1 + 1"]) == 0
    assert getattr(sys, name) is None
    if name == "stdin":
        assert main(["ask", "-", "-m", f"{bot()}:model"]) == 2
        assert main(["chat", "-m", f"{bot()}:model"]) == 0


def test_long_answer_is_printed_whole(bot, run_cli):
    path = bot('"word " * 20_000')
    code, out, _ = run_cli("ask", "q", "-q", "-m", f"{path}:model")
    assert (code, len(out)) == (0, 100_001)


def test_help_loads_neither_rich_nor_asyncio_nor_the_library():
    program = "import sys; from toolsemble._cli import main; main(sys.argv[1:]); print(*sys.modules, sep='\\n')"
    for words in (["--help"], ["version"], ["ask", "--help"]):
        run = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
        loaded = set(run.stdout.splitlines())
        assert not loaded & {
            "rich",
            "asyncio",
            "pydantic",
            "pydantic_core",
            "toolsemble._tools.toolbox.toolbox",
            "typer",
        }
        assert "click" in loaded


def test_piped_progress_is_printed_at_intervals(bot, run_cli, monkeypatch):
    path = bot('ToolCall("many", {"input": "1"}), "Done."')
    clock = itertools.count(time.monotonic(), 2)
    monkeypatch.setattr("toolsemble._cli.text_output.time", SimpleNamespace(monotonic=lambda: next(clock)))
    _, _, err = run_cli("ask", "q", "-m", f"{path}:model", "-t", path)
    assert "  .. many 50% half of it\n  .. many more\n  .. many\n" in err


def test_several_targets_can_be_shown(run_cli):
    code, out, _ = run_cli("tools", "calculator, json_parser", "--json")
    assert (code, [json.loads(line)["name"] for line in out.splitlines()]) == (0, ["calculator", "json_parser"])
    assert run_cli("explain", "calculator,json_parser", "--json")[0] == 0
    assert run_cli("tools", ",")[0] == Exit.USAGE_ERROR


# --- files


SHOW = (
    "lambda messages: ' '.join(f'{type(each).__name__}:{each.mime_type}:{getattr(each, \"name\", \"\")}' "
    "for each in messages[-1].contents)"
)
FILES = {
    "a.pdf": (b"%PDF-1.7", "FileContent:application/pdf:a.pdf"),
    "a.txt": (b"\x89PNG\r\n\x1a\nxyz", "ImageContent:image/png:"),
    "a.jpg": (b"\xff\xd8\xff\xe0", "ImageContent:image/jpeg:"),
    "b.gif": (b"GIF89a..", "ImageContent:image/gif:"),
    "a.webp": (b"RIFF....WEBPVP8", "ImageContent:image/webp:"),
    "talk": (b"RIFF....WAVEfmt", "AudioContent:audio/wav:"),
    "song.bin": (b"ID3\x03", "AudioContent:audio/mpeg:"),
    "data.csv": (b"a;b", "FileContent:text/csv:data.csv"),
    "Makefile": (b"all:\n", "FileContent:text/plain:Makefile"),
    "notes.md": (b"# Hi", "FileContent:text/markdown:notes.md"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_asked_about_by_what_is_in_it(bot, run_cli, tmp_path, name):
    data, shown = FILES[name]
    (tmp_path / name).write_bytes(data)
    path = bot(SHOW)
    assert run_cli("ask", "What?", "-q", "-m", f"{path}:model", "--file", str(tmp_path / name)) == (0, f"{shown}\n", "")


def test_several_files_and_urls_are_asked_about_at_once(bot, run_cli, tmp_path):
    (tmp_path / "a.md").write_text("# Hi")
    urls = [f"https://example.com/{name}" for name in ("a.png", "a.mp3", "a.pdf")]
    options = [option for each in (str(tmp_path / "a.md"), *urls) for option in ("-f", each)]
    path = bot(SHOW)
    _, out, _ = run_cli("ask", "What?", "-q", "-m", f"{path}:model", *options)
    assert out == (
        "FileContent:text/markdown:a.md ImageContent:image/png: AudioContent:audio/mpeg: "
        "FileContent:application/pdf:a.pdf\n"
    )


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("missing.pdf", None, "--file: '{}' cannot be read: No such file or directory"),
        ("empty.pdf", b"", "--file: '{}' is empty"),
        ("odd", b"\x00\x01", "--file: the type of '{}' is unknown; give it an extension, such as .pdf, .png"),
        ("odd2", b"\xff\x01", "--file: the type of '{}' is unknown"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_before_the_model_is_asked(bot, run_cli, tmp_path, name, data, message):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    path = bot("lambda messages: 1 / 0")
    code, out, err = run_cli("ask", "What?", "-m", f"{path}:model", "-f", str(tmp_path / name))
    assert (code, out) == (2, "")
    assert message.format(tmp_path / name) in err


def test_a_file_that_is_too_large_is_refused(bot, run_cli, tmp_path, monkeypatch):
    monkeypatch.setattr("toolsemble._cli.ask_command.MAX_BYTES", 3_000_000)
    (tmp_path / "a.txt").write_bytes(b"a" * 3_000_001)
    code, _, err = run_cli("ask", "What?", "-m", f"{bot(SHOW)}:model", "-f", str(tmp_path / "a.txt"))
    assert (code, "has more than 3 MB; pass a part of it" in err) == (2, True)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///etc/passwd", "--file: FileContent needs an http, https or data URL"),
        ("https://example.com/report", "--file: FileContent cannot guess the media type"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(bot, run_cli, url, message):
    code, _, err = run_cli("ask", "What?", "-m", f"{bot(SHOW)}:model", "-f", url)
    assert (code, message in err) == (2, True)


# --- Markdown and progress

ANSWER = "# Rome\n\nIt is **sunny** in [Rome](https://example.com).\n\n- one\n- two\n\n```\na  =  1\n\nb = 2\n```\n"


def test_chat_renders_markdown_at_a_terminal(bot, person):
    path = bot(f"{ANSWER!r}")
    actor = person.answers(("> ", "hello\n"), (" out", ""), ("> ", "\x04"))
    assert person.runs(["chat", "-m", f"{path}:model"]) == 0
    actor.join(60)
    text = person.plain()
    assert re.search(r"^\W*Rome\W*$", text, re.MULTILINE)  # earlier versions of rich draw a frame around it
    assert "It is sunny in Rome (https://example.com)." in text
    assert " • one\n • two\n" in text
    assert "a  =  1" in text
    assert not {"**", "```", "# Rome"} & {mark for mark in ("**", "```", "# Rome") if mark in text}


def test_piped_chat_writes_markdown_as_it_is(bot, run_cli, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    assert run_cli("chat", "-q", "-m", f"{bot(repr(ANSWER))}:model") == (0, ANSWER, "")


def test_control_characters_in_markdown_are_escaped(bot, person):
    actor = person.answers(("> ", "hello\n"), (" out", ""), ("> ", "\x04"))
    assert person.runs(["chat", "-m", f"{bot(repr('a **b** ' + chr(27) + '[2J'))}:model"]) == 0
    actor.join(60)
    assert "\\x1b[2J" in person.plain()
    assert "\x1b[2J" not in person.seen


READING_MODEL = """
from toolsemble.models import PromptProgress, ThoughtDelta

class Reader(ScriptedModel):
    async def stream(self, request):
        for chunk in (PromptProgress(0.42), ThoughtDelta("All roads")):
            yield chunk
            await asyncio.sleep(0.25)
        async for chunk in super().stream(request):
            yield chunk

model = Reader(["Done."])
"""


def test_status_line_shows_how_much_of_the_prompt_is_read_and_the_thoughts(bot, person):
    assert person.runs(["ask", "q", "-m", f"{bot('', READING_MODEL)}:model"]) == 0
    person.plain()
    assert "s reading the prompt, 42%" in person.seen
    assert "s thinking: All roads" in person.seen
