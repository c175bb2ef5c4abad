"""The reviewer at the terminal: each test has its own terminal, and a person who reads before they type."""

import asyncio
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal

import pytest
from annotated_types import Le

from helpers.console_person import WAIT, Person
from helpers.wait import LONG, until
from toolsemble import Continue, Edit, ExitEarly, SecretStr, Tool, Toolbox, ToolCall, tool
from toolsemble._runtime.terminal import TERMINAL_LOCK
from toolsemble._runtime.text import HIDDEN
from toolsemble.review import ConsoleReview, OnTimeout, ReviewRequest, ReviewTiming
from toolsemble.review._asking.question import Question

pytestmark = pytest.mark.slow

NOT_A_TERMINAL = "standard input is not a terminal, so no reviewer can be asked"
TOLD = f"'delete' is refused: {NOT_A_TERMINAL}; run the program in a terminal, or use another handler"
LATE = ExitEarly("no answer in time", timed_out=True)
ENDED = ExitEarly("the input ended")
ANSI = re.compile(r"\x1b(?:\[[0-9;]*m|[78])")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("VISUAL", "EDITOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def person():
    someone = Person()
    yield someone
    someone.leave()


def request(arguments="old.log", **settings):
    return ReviewRequest("Deletes a file", "delete", arguments, **{"timeout": None, **settings})


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Return a way to set an editor that runs some Python on the file it is given."""

    def chosen(code, variable="EDITOR"):
        script = tmp_path / "my editor.py"
        script.write_text(f"import sys, os, signal, time, pathlib\npath = pathlib.Path(sys.argv[-1])\n{code}\n")
        monkeypatch.setenv(variable, f"{sys.executable} '{script}' --wait")

    return chosen


def append_code(text):
    return f"path.write_bytes(path.read_bytes() + {text!r}.encode())"


def wait_for_queue(count):
    """Wait until a number of prompts are on the terminal or wait for it."""
    ends = time.monotonic() + WAIT
    while len(TERMINAL_LOCK) < count:
        assert time.monotonic() < ends


# What is answered


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("c\n", Continue()),
        ("  Continue \n", Continue()),
        ("C\n", Continue()),
        ("a\n", Continue(always="tool")),
        ("always\n", Continue(always="tool")),
        ("x\ntoo risky\n", ExitEarly("too risky")),
        ("Reject\ntoo risky\n", ExitEarly("too risky")),
        ("EXIT\n\n", ExitEarly()),
        ("exit early\n  not \x16\x1b today \n", ExitEarly("not \\x1b today")),
        ("x\n\x04", ExitEarly()),
        ("y\n", Continue()),
        ("YES\n", Continue()),
        ("n\nnot now\n", ExitEarly("not now")),
        ("No\n\n", ExitEarly()),
        ("foo\nc\n", Continue()),
        ("cc\nx\n\n", ExitEarly()),
        (b"\xff\ny\n", Continue()),
        ("foo\n" * 100, ExitEarly("no answer was understood")),
        ("\n\n  \n\nc\n", Continue()),
        ("\n\n\n\n\nc\n", ExitEarly("no answer was given")),
        ("\x04", ENDED),
        ("c\x04\x04", ENDED),
        ("v\nc\n", Continue()),
        ("e\n\nc\n", Continue()),
        ("é\nc\n", Continue()),
    ],
)
def test_typed_line_is_the_decision(person, typed, decision):
    answer = person.ask(request(scopes=("tool",)))
    person.prompt()
    person.type(typed)
    assert person.result(answer) == decision


def test_always_is_accepted_only_if_it_can_be_remembered(person):
    answer = person.ask(request(scopes=("arguments",)))
    assert "lways" not in person.prompt()
    person.type("a\n")
    assert "'a' was not understood. Answer c or y, e, x or n." in person.prompt()
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize(
    ("typed", "shown"), [(b"\xff\n", "'\\udcff' was not"), (f"{'n' * 50}\n", f"'{'n' * 40}...' was not understood")]
)
def test_asks_again_after_an_unclear_answer(person, typed, shown):
    answer = person.ask(request())
    person.prompt()
    person.type(typed)
    assert shown in person.prompt()
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


def test_unclear_answer_does_not_extend_the_timeout(person, monkeypatch):
    answer = person.ask(request(timeout=3600))
    person.prompt()
    person.type("what?\n")
    person.prompt()
    late = time.time() + 3602
    monkeypatch.setattr("toolsemble.review._console.time", SimpleNamespace(time=lambda: late))
    assert answer.result(WAIT) == LATE


def test_empty_line_shows_the_choices_again(person):
    answer = person.ask(request())
    for _ in range(2):
        assert "[c]ontinue  [e]dit  [x] reject" in person.prompt()
        person.type("\n")
    person.prompt()
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


def test_reads_a_line_in_pieces(person):
    answer = person.ask(request())
    person.prompt()
    person.type("con\x04")  # hands on what has been typed, without an end of line
    person.until("con")
    person.type("tinue\n")
    assert answer.result(WAIT) == Continue()


def test_hangup_during_the_prompt_rejects_the_call(person):
    answer = person.ask(request())
    person.prompt()
    person.hang_up()
    assert answer.result(WAIT) == ENDED


def test_hangup_before_the_prompt_rejects_the_call(person):
    person.hang_up()
    assert person.console.review(request()) == ExitEarly(NOT_A_TERMINAL)


def test_closing_the_input_during_the_prompt_rejects_the_call(person):
    with os.fdopen(os.dup(person.slave), encoding="utf-8") as stream:
        answer = person.ask(request(), ConsoleReview(stream, person.output))
        person.prompt()
    assert answer.result(WAIT) == ENDED


def test_closing_the_input_while_queued_rejects_the_call(person):
    first = person.ask(request())
    person.prompt()
    with os.fdopen(os.dup(person.slave), encoding="utf-8") as stream:
        second = person.ask(request(), ConsoleReview(stream, person.output))
        wait_for_queue(2)
    person.type("c\n")
    assert (first.result(WAIT), second.result(WAIT)) == (Continue(), ENDED)


def test_closed_output_rejects_the_call(person):
    person.output.close()
    assert person.console.review(request()) == ENDED


def test_ctrl_c_rejects_the_call(person):
    main = threading.main_thread().ident

    def interrupt():
        person.prompt()
        signal.pthread_kill(main, signal.SIGINT)

    done = person.pool.submit(interrupt)
    assert person.console.review(request()) == ExitEarly("the prompt was interrupted")
    done.result(WAIT)


# Who is asked


def closed_stream():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream",
    [io.StringIO("c\n"), closed_stream(), object(), io.BytesIO(b"c\n")],
    ids=["text", "closed", "strange", "bytes"],
)
def test_input_without_a_terminal_rejects_at_once(stream, caplog):
    output = io.StringIO()
    with caplog.at_level(logging.WARNING, "toolsemble.review"):
        assert ConsoleReview(stream, output).review(request()) == ExitEarly(NOT_A_TERMINAL)
    assert output.getvalue() == f"toolsemble: {TOLD}\n"
    assert caplog.messages == [TOLD]


@pytest.mark.parametrize("stdin", [None, io.StringIO("c\n"), closed_stream()], ids=["none", "text", "closed"])
def test_stdin_without_a_terminal_rejects_with_a_message(stdin, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", stdin)
    assert ConsoleReview().review(request()) == ExitEarly(NOT_A_TERMINAL)
    assert capsys.readouterr() == ("", f"toolsemble: {TOLD}\n")


def test_pipe_is_not_a_terminal(monkeypatch):
    source, target = os.pipe()
    os.write(target, b"c\n")
    with os.fdopen(source) as stream, os.fdopen(target, "w"):
        assert ConsoleReview(stream, io.StringIO()).review(request()) == ExitEarly(NOT_A_TERMINAL)


@pytest.mark.parametrize("stderr", [None, closed_stream()], ids=["none", "closed"])
def test_rejects_without_stderr(monkeypatch, stderr):
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stderr", stderr)
    assert ConsoleReview().review(request()) == ExitEarly(NOT_A_TERMINAL)


def test_prompt_that_cannot_be_written_is_rejected(person, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    reason = "there is no output stream to show the question on"
    assert ConsoleReview(person.stream).review(request()) == ExitEarly(reason)


@pytest.mark.parametrize("stdout", ["terminal", "file"])
def test_prompt_is_written_to_stdout_or_stderr_if_it_is_a_terminal(person, monkeypatch, stdout):
    monkeypatch.setattr(sys, "stdin", person.stream)
    monkeypatch.setattr(sys, "stdout", person.output if stdout == "terminal" else io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO() if stdout == "terminal" else person.output)
    answer = person.ask(request(), ConsoleReview())
    person.prompt()
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


# What is shown


def show_prompt(person, asked, typed="c\n"):
    """Return what the person sees before they answer, without colors."""
    answer = person.ask(asked)
    text = person.prompt()
    person.type(typed)
    answer.result(WAIT)
    return ANSI.sub("", text).replace("\r", "")


def test_prompt_shows_all_details_of_the_request(person):
    asked = ReviewRequest(
        "Deletes files.\n\n    For ever.",
        "delete",
        {"path": "/srv", "limit": 2, "deep": {"a": [1, None]}, "an odd name": True},
        timeout=None,
        prompt="The edit does not fit:\nlimit: expected integer",
        required_role="ops",
        call_id="c1",
        run_id="r1",
        memory_id="ada",
        agent_role="janitor",
        repairs=({"step": "coerce", "path": "$.limit", "from": "2", "to": 2},),
        scopes=("tool", "arguments"),
    )
    assert show_prompt(person, asked) == (
        "\n"
        "| May this call run?\n"
        "| Tool             delete\n"
        "| About            Deletes files. For ever.\n"
        "| Agent            janitor\n"
        "| Memory           ada\n"
        "| Run              r1\n"
        "| Call             c1\n"
        "| Needs            an answer by role ops\n"
        "| Holds            for this call with these arguments, in the rest of the run\n"
        "| Arguments        \n"
        '|   path           "/srv"\n'
        "|   limit          2\n"
        '|   deep           {"a": [1, null]}\n'
        '|   "an odd name"  true\n'
        '| repaired:        coerce at $.limit: "2" -> 2\n'
        "| Note             The edit does not fit: limit: expected integer\n"
        "[c]ontinue  [e]dit  [x] reject  [a]lways this tool  (y = c, n = x)\n"
        "> "
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("rm old", '| Input  "rm old"\n'),
        ("", '| Input  ""\n'),
        ({}, "| Arguments  none\n"),
        ([1, 2], "| Input  [1, 2]\n"),
        ("a\\nb", '| Input  "a\\\\nb"\n'),
        ("a\nb", '| Input  "a\\nb"\n'),
    ],
)
def test_prompt_shows_arguments_of_every_type(person, arguments, line):
    assert line in show_prompt(person, request(arguments))


@pytest.mark.parametrize(
    ("timing", "title"),
    [
        (ReviewTiming.DURING_EXECUTION, "A tool asks in the middle of its work:"),
        (ReviewTiming.AFTER_EXECUTION, "Is what came of this call all right?"),
    ],
)
def test_prompt_title_names_the_timing(person, timing, title):
    assert title in show_prompt(person, request(timing=timing))


def test_edit_during_execution_starts_empty(person):
    asked = person.ask(request("Which one?", timing=ReviewTiming.DURING_EXECUTION))
    person.prompt()
    person.type("e\n")
    assert "Which one?" not in person.until("change): ")
    person.type("the blue one\n")
    assert asked.result(WAIT) == Edit("the blue one")


HOSTILE = "\x1b[2J\x1b]0;title\x07\r\n[c]ontinue\n> \u202eevil\u2066\u061c\u200b\x85\x9b\U000e0041\ufe0f\u3164\ud800\t"


@pytest.mark.parametrize(
    "asked",
    [
        request(HOSTILE),
        request({HOSTILE: HOSTILE}),
        request({"deep": [{HOSTILE: HOSTILE}]}),
        request(
            call_id=HOSTILE,
            run_id=HOSTILE,
            memory_id=HOSTILE,
            agent_role=HOSTILE,
            required_role=HOSTILE,
            prompt=HOSTILE,
        ),
        request(repairs=({"step": HOSTILE, "path": HOSTILE, "from": HOSTILE, "to": HOSTILE},)),
        ReviewRequest(HOSTILE, HOSTILE, HOSTILE, timeout=None),
    ],
    ids=["text", "names", "deep", "facts", "repairs", "tool"],
)
@pytest.mark.parametrize("columns", [100, 37])
def test_escapes_control_characters_of_the_model(person, asked, columns):
    person.size(columns)
    answer = person.ask(asked)
    seen = [person.until("[c]ontinue  [e]dit")]
    person.until("> ")
    person.type("v\n")
    person.until("v\r\n")
    seen.append(person.until("[c]ontinue  [e]dit"))
    person.until("> ")
    person.type("e\n")
    person.until("e\r\n")
    seen.append(person.until("Instead"))
    person.type("\n")
    person.prompt()
    person.type("c\n")
    assert answer.result(WAIT) == Continue()
    for text in seen:
        *lines, last = ANSI.sub("", text).replace("\r\n", "\n").split("\n")
        assert last.startswith(("[c]ontinue  [e]dit", "Instead"))
        assert all(line.startswith("|") and line.isprintable() and len(line) <= columns for line in lines if line)


def test_wrapped_text_is_indented(person):
    person.size(40)
    padded = "x" + " " * 70 + "Tool  read_file " + "漢字" * 20
    lines = show_prompt(person, request({"path": padded, "n" * 30: 1})).split("\n")[1:-2]
    assert all(line.startswith("| ") for line in lines)
    assert all(len(line) + len(re.findall("[漢字]", line)) <= 40 for line in lines)
    assert lines[-2:] == ["|   " + "n" * 30, "|" + " " * 23 + "1"]


def test_unknown_terminal_width_is_80_columns(person):
    person.size(0)
    assert max(map(len, show_prompt(person, request("x" * 200)).split("\n"))) == 80


def test_long_values_are_truncated_and_can_be_viewed(person):
    person.size(500)
    text = "first line\n" + "a" * 5000 + "\x1b[2J"
    answer = person.ask(request({"path": "short", "text": text, "n" * 41: ["b"] * 100}))
    question = person.prompt().replace("\r\n", "\n")
    assert "... (200 of 5,015 characters)" in question
    assert "... (200 of 500 characters)" in question
    assert "... (40 of 41 characters)" in question
    assert question.count("a" * 50) < 10
    assert "[c]ontinue  [e]dit  [x] reject  [v]iew all" in question
    person.type("view\n")
    everything = person.prompt()
    plain = re.sub(r"\s*\| *", "", ANSI.sub("", everything).replace("\r\n", "\n"))
    assert "first line" + "a" * 5000 + "\\x1b[2J" in plain
    assert plain.count('"b"') == 100
    assert "[v]iew all" in everything
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize(
    ("count", "cut"), [(200, False), (201, True)], ids=["two hundred characters", "one character more"]
)
def test_view_is_offered_only_for_truncated_values(person, count, cut):
    question = show_prompt(person, request("a" * count))
    assert ("[v]iew all" in question, "(200 of 201 characters)" in question) == (cut, cut)


def test_extra_arguments_and_repairs_are_counted(person):
    repairs = tuple({"step": "extra", "path": f"$.r{number}", "from": number, "to": None} for number in range(25))
    answer = person.ask(request({f"a{number}": number for number in range(1021)}, repairs=repairs))
    question = person.prompt()
    assert "... and 1,001 more" in question
    assert "... and 5 more repairs" in question
    person.type("v\n")
    everything = person.prompt()
    assert "a1020" in everything
    assert "$.r24" in everything
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


def test_unencodable_characters_are_escaped(person):
    with open(person.slave, "w", encoding="ascii", closefd=False) as output:
        answer = person.ask(request("naïve"), ConsoleReview(person.stream, output))
        assert '"na\\xefve"' in person.prompt()
        person.type("c\n")
        assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize(
    ("settings", "colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_colors_depend_on_the_environment(person, monkeypatch, settings, colored):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    answer = person.ask(request())
    assert ("\x1b[" in person.prompt()) is colored
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize("colors", [True, False])
def test_colors_argument_overrides_the_environment(person, monkeypatch, colors):
    monkeypatch.setenv("NO_COLOR", "1" if colors else "")
    answer = person.ask(request(), ConsoleReview(person.stream, person.output, colors=colors))
    assert ("\x1b[" in person.prompt()) is colors
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


class File(io.StringIO):
    """Is not a terminal, and signals that a prompt was written to it."""

    def __init__(self):
        super().__init__()
        self.ask = threading.Event()

    def write(self, text):
        super().write(text)
        if text.endswith("> "):
            self.ask.set()


def test_file_output_has_no_colors(person):
    output = File()
    answer = person.ask(request("x" * 200), ConsoleReview(person.stream, output))
    assert output.ask.wait(WAIT)
    person.type("c\n")
    assert answer.result(WAIT) == Continue()
    assert "\x1b" not in output.getvalue()
    assert max(map(len, output.getvalue().split("\n"))) == 80


# The time that is left


def test_countdown_is_updated_while_typing(person):
    answer = person.ask(request(timeout=600, asked_at=time.time() - 10))
    assert re.search(r"\n\( 9:\d\d\) > $", person.prompt())
    person.type("con")
    person.until("con")
    first, second = person.until("\x1b8"), person.until("\x1b8")
    assert re.fullmatch(r"\x1b7\r\( 9:\d\d\) > \x1b8", first)
    assert re.fullmatch(r"\x1b7\r\( 9:\d\d\) > \x1b8", second)
    assert first != second
    person.type("tinue\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize(
    ("timeout", "clock"),
    [
        (5 * 60, r"\n\((5:00|4:5\d)\) > $"),
        (90, r"\n\((1:30|1:2\d)\) > $"),
        (2 * 3600, r"\n\((2:00:00|1:59:5\d)\) > $"),
        (0, r"\n> $"),
        (None, r"\n> $"),
        (float("inf"), r"\n> $"),
    ],
)
def test_remaining_time_is_shown_if_there_is_a_deadline(person, timeout, clock):
    answer = person.ask(request(timeout=timeout))
    assert re.search(clock, person.prompt())
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


def test_dumb_terminal_shows_the_time_once(person, monkeypatch, clock):
    monkeypatch.setenv("TERM", "dumb")
    answer = person.pool.submit(Question(person.console, request(timeout=2)).do)
    shown = person.prompt()
    clock.advance(2)
    assert answer.result(WAIT) == ExitEarly("no answer within 2 s", timed_out=True)
    assert (shown + person.until("has expired")).count("(0:0") == 1


# Answers to abandoned requests


def test_abandoned_prompt_releases_the_terminal(person, clock):
    late = person.pool.submit(Question(person.console, request("first", timeout=2)).do)
    person.prompt()
    clock.advance(2)
    assert late.result(WAIT) == ExitEarly("no answer within 2 s", timed_out=True)
    person.until("This request has expired.")
    answer = person.ask(request("second"))
    person.until('"second"')
    person.prompt()
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize("typed", ["", "e\n"], ids=["choosing", "editing"])
def test_prompt_without_a_toolbox_ends_after_its_deadline(person, typed, clock):
    answer = person.ask(request(timeout=60, asked_at=time.time() - 58))
    person.prompt()
    person.type(typed)
    clock.advance(4)
    assert answer.result(WAIT) == LATE
    person.until("This request has expired.")


def test_expired_request_is_not_shown(person):
    assert person.console.review(request(timeout=60, asked_at=time.time() - 90)) == LATE
    answer = person.ask(request())
    assert person.prompt().count("May this call run?") == 1
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


async def test_cancelled_call_ends_its_prompt(person):
    asking = asyncio.create_task(Question(person.console, request()).ado())
    await asyncio.to_thread(person.until, "> ")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.to_thread(person.until, "This request has expired.")


def test_timeout_while_typing_the_reason_is_a_rejection(person, clock):
    asked = request(timeout=5, on_timeout=OnTimeout.CONTINUE, asked_at=time.time())
    answer = person.pool.submit(Question(person.console, asked).do)
    person.prompt()
    person.type("x\nbecause it")
    person.until("because it")
    clock.advance(4.5)
    assert answer.result(WAIT) == ExitEarly()


def test_queued_request_ends_at_its_deadline(person):
    first = person.ask(request("first"))
    person.prompt()
    assert person.console.review(request("second", timeout=60, asked_at=time.time() - 60)) == LATE
    person.type("c\n")
    assert first.result(WAIT) == Continue()
    assert "second" not in person.seen


# Editing


@pytest.mark.parametrize("variable", ["VISUAL", "EDITOR"])
@pytest.mark.parametrize(
    ("asked", "suffix", "added", "revised"),
    [
        (request("rm old"), ".txt", "er", "rm older"),
        (request("rm old"), ".txt", "er\n", "rm older"),
        (request("rm old"), ".txt", "er\n\n", "rm older\n"),
        (request("rm old\n"), ".txt", "rm b\n", "rm old\nrm b\n"),
        (request("rm old\r\n"), ".txt", "é\r\n", "rm old\r\né\r\n"),
        (request({"path": "a"}), ".json", "\n ", '{\n  "path": "a"\n}\n '),
        (request({"path": "a", "body": "text"}, editable="body"), ".txt", "s", "texts"),
    ],
)
def test_editor_edits_the_arguments(person, editor, variable, asked, suffix, added, revised):
    editor(f"assert path.suffix == {suffix!r}\n{append_code(added)}", variable)
    answer = person.ask(asked)
    person.prompt()
    person.type("e\n")
    assert answer.result(WAIT) == Edit(revised)


def test_edited_file_is_private_and_deleted(person, editor, tmp_path):
    note = tmp_path / "note"
    editor(
        f"pathlib.Path({str(note)!r}).write_text(f'{{path.parent}} {{path.parent.stat().st_mode & 0o777:o}}')\n"
        "path.with_suffix('.swp').write_text('left behind')\n" + append_code("!")
    )
    answer = person.ask(request())
    person.prompt()
    person.type("edit\n")
    assert answer.result(WAIT) == Edit("old.log!")
    folder, mode = note.read_text().split()
    assert mode == "700"
    assert not os.path.exists(folder)  # noqa: PTH110 - a name, not a path of ours


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("pass", "Nothing was changed."),
        (append_code("\n"), "Nothing was changed."),
        (append_code("!") + "\nsys.exit(3)", "returned no text: it ended with status 3. Check VISUAL and EDITOR."),
        ("path.unlink()", "returned no text: [Errno 2]"),
        (r"path.write_bytes(b'\xff')", "returned no text: 'utf-8' codec can't decode"),
    ],
)
def test_unchanged_edit_returns_to_the_choices(person, editor, code, message):
    editor(code)
    answer = person.ask(request())
    person.prompt()
    person.type("e\n")
    assert message in person.prompt()
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize("command", ["/no/such/editor", "'unbalanced"])
def test_editor_start_failure_returns_to_the_choices(person, monkeypatch, command):
    monkeypatch.setenv("EDITOR", command)
    answer = person.ask(request())
    person.prompt()
    person.type("e\n")
    assert f"The editor '{command}' returned no text" in person.prompt()
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize("deaf", [False, True], ids=["ends on SIGTERM", "must be killed"])
def test_editor_is_killed_when_the_request_ends(person, editor, deaf):
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    editor(f"{ignore}print('editing', flush=True)\ntime.sleep({LONG})")
    gone = threading.Event()
    answer = person.pool.submit(lambda: ConsoleInTime(person.console, gone).review(request()))
    person.prompt()
    person.type("e\n")
    person.until("editing")
    gone.set()
    assert answer.result(WAIT) == LATE
    person.until("This request has expired.")


class ConsoleInTime:
    """Asks with a deadline that the test sets."""

    def __init__(self, handler, gone):
        self.handler = handler
        self.gone = gone

    def review(self, asked):
        gone = self.gone

        class Late(ReviewRequest):
            deadline = property(lambda _: time.time() - 90 if gone.is_set() else None)

        return self.handler.review(Late(asked.description, asked.tool_name, asked.arguments))


def test_terminal_settings_are_restored_after_the_editor(person, editor):
    editor("import tty\ntty.setraw(0)\nprint('raw', flush=True)\nos.read(0, 1)\n" + append_code("!") + "\nsys.exit(1)")
    answer = person.ask(request())
    before = termios.tcgetattr(person.slave)
    person.prompt()
    person.type("e\n")
    person.until("raw")
    person.type("q")
    person.prompt()
    assert termios.tcgetattr(person.slave) == before
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


def test_edits_one_line_without_an_editor(person, monkeypatch):
    monkeypatch.setenv("EDITOR", " ")
    answer = person.ask(request("first\nsecond"))
    person.prompt()
    person.type("e\n")
    assert "| first\r\n| second" in ANSI.sub("", person.until("in one line (empty for no change): "))
    person.type("third\n")
    assert answer.result(WAIT) == Edit("third")


def edit_fields(person, asked, *typed, check=None):
    """Type what belongs to each prompt, and return the decision."""
    handler = person.console
    answer = person.pool.submit(Question(handler, asked, check).do)
    person.prompt()
    person.type("e\n")
    for place, text in typed:
        person.until(place)
        if text and place != "> ":
            person.until("Instead (empty keeps it): ")
        person.type(text)
    return answer.result(WAIT)


ORDER = {
    "boxes": 500,
    "note": "tea\x1b",
    "rush": False,
    "to": {"city": "Rome"},
    "tags": ["a"],
    "price": 4.5,
    "by": None,
}


def test_edits_arguments_one_at_a_time(person):
    decision = edit_fields(
        person,
        request(ORDER),
        ("boxes: 500", "5\n"),
        ('note: "tea\\u001b"', "\n"),
        ("rush: false", "true\n"),
        ('to: {"city": "Rome"}', '{"city": "Bonn"}\n'),
        ('tags: ["a"]', "\n"),
        ("price: 4.5", "5\n"),
        ("by: null", "ada\n"),
    )
    assert json.loads(decision.revised) == {
        "boxes": 5, "note": "tea\x1b", "rush": True, "to": {"city": "Bonn"}, "tags": ["a"], "price": 5, "by": "ada",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "wrong", "problem", "right", "value"),
    [
        ("boxes", "many", "boxes: expected an integer", "7", 7),
        ("boxes", "true", "boxes: expected an integer", "7", 7),
        ("rush", "1", "rush: expected true or false", "true", True),
        ("to", "Bonn", "to: expected an object as JSON", "{}", {}),
        ("tags", "{", "tags: expected a list as JSON", "[]", []),
        ("price", "a lot", "price: expected a number", "9", 9),
    ],
)
def test_checks_a_value_when_it_is_entered(person, name, wrong, problem, right, value):
    typed = [(f"{name}: ", f"{wrong}\n"), (f"{problem}. Enter another value", f"{right}\n")]
    decision = edit_fields(person, request({name: ORDER[name]}), *typed)
    assert json.loads(decision.revised) == {name: value}


def test_edits_a_text_as_a_text(person):
    decision = edit_fields(person, request({"a": "x", "b": "y"}), ("a: ", "5\n"), ("b: ", '""\n'))
    assert json.loads(decision.revised) == {"a": "5", "b": ""}


def test_truncates_long_values_of_fields(person):
    edit_fields(person, request({"a": "x" * 1000}), ("x... (1,002 characters)", "y\n"))


def test_rejects_several_lines_as_a_value(person):
    decision = edit_fields(person, request({"a": "x"}), ("a: ", "b\nc\n"), ("Set EDITOR", "d\n"))
    assert json.loads(decision.revised) == {"a": "d"}


def test_a_secret_is_not_shown_when_it_is_typed(person):
    @tool(requires_approval=True)
    def sign_in(user: str, password: SecretStr) -> str:
        return f"{user} {password.get_secret_value() == 'hunter2'}"

    box = Toolbox([sign_in], review=person.console)
    reply = person.pool.submit(box.execute, ToolCall("sign_in", {"user": "ada", "password": "old-one"}))
    before = termios.tcgetattr(person.slave)
    for shown, typed in (("> ", "e\n"), ("user: ", "bob\n"), ("password: ", ""), ("keeps it): ", "hunter2\n")):
        person.until(shown)
        person.type(typed)
    assert reply.result(WAIT).text == "bob True"
    person.output.flush()
    person.ask(request())
    person.prompt()
    assert "bob" in person.seen
    assert "hunter2" not in person.seen
    assert termios.tcgetattr(person.slave) == before
    person.type("c\n")


@pytest.mark.parametrize("is_standard_input", [True, False])
def test_a_secret_is_read_without_termios(person, without_termios, monkeypatch, is_standard_input):
    monkeypatch.setattr("getpass.getpass", lambda prompt: "typed in secret")
    if is_standard_input:
        monkeypatch.setattr(sys, "stdin", person.stream)
    answer = person.ask(request({"password": HIDDEN}))
    for shown, typed in (("> ", "e\n"), ("password: ", ""), ("keeps it): ", "" if is_standard_input else "shown\n")):
        person.until(shown)
        person.type(typed)
    revised = json.loads(answer.result(WAIT).revised)
    assert revised == {"password": "typed in secret" if is_standard_input else "shown"}


def test_unchanged_arguments_show_the_choices_again(person):
    typed = [("a: 1", "\n"), ("Nothing was changed.", ""), ("> ", "c\n")]
    assert edit_fields(person, request({"a": 1}), *typed) == Continue()


def test_tool_checks_each_edited_argument(person):
    @tool(requires_approval=True)
    def order(boxes: Annotated[int, Le(10)], name: Literal["tea", "rice"] = "tea") -> str:
        return f"{boxes} of {name}"

    box = Toolbox([order], review=person.console)
    reply = person.pool.submit(box.execute, ToolCall("order", {"boxes": 5}))
    person.prompt()
    person.type("e\n")
    for place, typed in [
        ("boxes: 5", "500\n"),
        ("Invalid arguments for 'order': boxes: ", "7\n"),
        ('name: "tea"', "salt\n"),
        ("Invalid arguments for 'order': name: ", "rice\n"),
    ]:
        person.until(place)
        person.until("Instead (empty keeps it): ")
        person.type(typed)
    assert reply.result(WAIT).text == "7 of rice"


def test_edits_values_that_depend_on_each_other(person):
    def check(text):
        values = json.loads(text)
        return "" if float(values["start"]) < float(values["end"]) else "start must be before end"

    typed = [
        ("start: 1", "8\n"),
        ("start must be before end. Enter another value; or the same one again to keep it", "8\n"),
        ("end: 5", "9\n"),
    ]
    decision = edit_fields(person, request({"start": 1, "end": 5}), *typed, check=check)
    assert json.loads(decision.revised) == {"start": 8, "end": 9}


def test_invalid_edit_shows_the_choices_again(person, editor):
    editor(append_code("!"))
    typed = [("The edit does not fit: not JSON", ""), ("> ", "c\n")]
    assert edit_fields(person, request({"a": 1}), *typed, check=lambda _: "not JSON") == Continue()


@pytest.mark.parametrize(
    "typed", ["a" * 4095 + "\n", "first\nsecond\n", "first\nsecond"], ids=["cut by the terminal", "lines", "more"]
)
def test_several_lines_are_not_an_edit(person, typed):
    answer = person.ask(request())
    person.prompt()
    person.type("e\n")
    person.until("no change): ")
    person.type(typed)
    person.until("Set EDITOR to edit longer texts.")
    person.prompt()
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


# Several at once


def test_input_typed_before_the_prompt_is_discarded(person):
    person.type("c\nc\nc")
    person.until("c\r\nc\r\nc")
    answer = person.ask(request())
    person.prompt()
    person.type("x\nno\n")
    assert answer.result(WAIT) == ExitEarly("no")


def test_extra_input_does_not_approve_the_next_call(person):
    first, second = person.ask(request()), person.ask(request())
    wait_for_queue(2)
    person.prompt()
    person.type("c\nc\n")
    person.prompt()
    person.type("x\nno\n")
    assert {first.result(WAIT), second.result(WAIT)} == {Continue(), ExitEarly("no")}


class Wipe(Tool):
    description = "Wipes something"
    requires_approval = True

    def __init__(self, name):
        self.name = name

    def run(self, input):
        return f"{self.name} wiped {input}"


class Wrapped:
    def __init__(self, handler):
        self.handler = handler

    def review(self, asked):
        return self.handler.review(asked)


class AsyncWrapped(Wrapped):
    async def review(self, asked):
        return await Question(self.handler, asked).ado()


def test_prompts_of_many_toolboxes_do_not_interleave(person):
    wrappers = [lambda handler: handler, Wrapped, AsyncWrapped, lambda handler: Wrapped(AsyncWrapped(handler))]
    boxes = [
        Toolbox([Wipe(f"t{n}")], review=wrappers[n % 4](ConsoleReview(person.stream, person.output))) for n in range(10)
    ]
    calls = [
        person.pool.submit(box.execute, ToolCall(f"t{n}", json.dumps({"input": f"disk{n}"})))
        for n, box in enumerate(boxes)
    ]
    wait_for_queue(10)
    expected = {}
    for _ in calls:
        question = person.prompt()
        (number,) = re.findall(r"t(\d)\x1b", question)
        assert question.count("May this call run?") == question.count("[c]ontinue") == 1
        assert f'"disk{number}"' in question
        person.type(f"x\nnot {number}\n" if int(number) % 2 else "c\n")
        expected[int(number)] = (
            f"Error: Rejected by reviewer: not {number}" if int(number) % 2 else f"t{number} wiped disk{number}"
        )
    assert {n: call.result(WAIT).text for n, call in enumerate(calls)} == expected
    assert "(8 more waiting)" in person.seen


def test_forked_process_can_prompt(person):
    answer = person.ask(request())
    person.prompt()
    ends = time.monotonic() + WAIT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
        child = os.fork()
    if not child:
        status = 1
        try:
            with TERMINAL_LOCK.acquire(lambda: time.monotonic() > ends):
                status = len(TERMINAL_LOCK) - 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    person.type("c\n")
    assert answer.result(WAIT) == Continue()


# Where terminals cannot be controlled


@pytest.fixture
def without_termios(monkeypatch):
    monkeypatch.setitem(sys.modules, "termios", None)


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("c\n", Continue()),
        ("x\nno\n", ExitEarly("no")),
        ("\x04", ENDED),
        ("e\nnew.log\n", Edit("new.log")),
    ],
)
def test_reads_lines_without_termios(person, without_termios, typed, decision):
    answer = person.ask(request())
    person.prompt()
    person.type(typed)
    assert answer.result(WAIT) == decision


def test_runs_the_editor_without_termios(person, without_termios, editor):
    editor(append_code("!"))
    answer = person.ask(request())
    person.prompt()
    person.type("e\n")
    assert answer.result(WAIT) == Edit("old.log!")


# The whole program

PROGRAM = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from toolsemble import Tool, Toolbox, ToolCall
from toolsemble.review import ConsoleReview

class Wipe(Tool):
    name = "wipe"
    description = "Wipes something"
    requires_approval = True
    def run(self, input):
        return f"wiped {input}"

box = Toolbox([Wipe()], review=ConsoleReview())
for disk in "ab":
    print(box.execute(ToolCall("wipe", {"input": disk})).text, flush=True)
"""


LATE_PROGRAM = """
import fcntl, signal, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from helpers.stopped_clock import stop_time
clock = stop_time(setattr)
signal.signal(signal.SIGUSR1, lambda *_: clock.advance(3))
from toolsemble.review import ConsoleReview, ReviewRequest
from toolsemble.review._asking.question import Question
asked = ReviewRequest("Deletes a file", "delete", "old.log", timeout=3)
print(Question(ConsoleReview(), asked).do().reason, flush=True)
"""


@contextmanager
def run_program(program, person):
    command = [sys.executable, "-c", program]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), person.slave)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, start_new_session=True, env=environment, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("c\n", "wiped a"),
        ("x\nno\n", "Error: Rejected by reviewer: no"),
        ("e\nz\n", "wiped z"),
        ("\x03", "Error: Rejected by reviewer: the prompt was interrupted"),
        ("\x04", "Error: Rejected by reviewer: the input ended"),
    ],
    ids=["continue", "exit", "edit", "interrupt", "end"],
)
def test_program_in_a_terminal_prompts_and_continues(person, typed, text):
    with run_program(PROGRAM, person) as program:
        person.prompt()
        person.type(typed)
        person.until(f"{text}\r\n")
        person.prompt()
        person.type("c\n")
        person.until("wiped b\r\n")
        assert program.wait(WAIT) == 0


def test_editor_is_killed_when_the_program_ends(person, editor, tmp_path):
    terminated = tmp_path / "terminated"
    editor(
        f"""
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which the terminal sends when the program has ended
signal.signal(signal.SIGTERM, lambda *_: sys.exit(pathlib.Path({str(terminated)!r}).touch()))
print('editing', flush=True)
while True:
    time.sleep(0.01)
"""
    )
    with run_program(LATE_PROGRAM, person) as program:
        person.prompt()
        person.type("e\n")
        person.until("editing")
        os.kill(program.pid, signal.SIGUSR1)
        person.until("no answer within 3 s")
        assert program.wait(WAIT) == 0
        until(terminated.exists)
