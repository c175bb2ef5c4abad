"""The reviewer at the terminal: each test has a terminal of its own, and a person who reads before they type."""

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
from typing import Annotated, Literal

import pytest
from annotated_types import Le

from helpers.console_person import WAIT, Person
from helpers.wait import LONG, until
from toolsemble import Continue, Edit, ExitEarly, Tool, Toolbox, ToolCall, tool
from toolsemble.review import ConsoleReview, OnTimeout, ReviewRequest, ReviewTiming
from toolsemble.review.question import Question
from toolsemble.runtime.terminal import TERMINAL_LOCK

pytestmark = pytest.mark.slow

NOT_A_TERMINAL = "standard input is not a terminal, so nobody can be asked"
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
    someone.leaves()


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


def appended(text):
    return f"path.write_bytes(path.read_bytes() + {text!r}.encode())"


def queued(count):
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
def test_what_is_typed_is_the_decision(person, typed, decision):
    answer = person.asked(request(scopes=("tool",)))
    person.prompt()
    person.types(typed)
    assert answer.result(WAIT) == decision


def test_always_is_offered_and_taken_only_where_it_can_be_remembered(person):
    answer = person.asked(request(scopes=("arguments",)))
    assert "lways" not in person.prompt()
    person.types("a\n")
    assert "'a' was not understood. Answer c or y, e, x or n." in person.prompt()
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize(
    ("typed", "shown"), [(b"\xff\n", "'\\udcff' was not"), (f"{'n' * 50}\n", f"'{'n' * 40}...' was not understood")]
)
def test_an_answer_that_is_not_understood_is_asked_again(person, typed, shown):
    answer = person.asked(request())
    person.prompt()
    person.types(typed)
    assert shown in person.prompt()
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


def test_an_answer_that_is_not_understood_does_not_extend_the_time(person):
    answer = person.asked(request(timeout=1.0))
    person.prompt()
    person.types("what?\n")
    person.prompt()
    assert answer.result(WAIT) == LATE


def test_the_choices_are_shown_again_after_an_empty_line(person):
    answer = person.asked(request())
    for _ in range(2):
        assert "[c]ontinue  [e]dit  [x] exit early" in person.prompt()
        person.types("\n")
    person.prompt()
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


def test_a_line_may_come_in_pieces(person):
    answer = person.asked(request())
    person.prompt()
    person.types("con\x04")  # hands on what has been typed, without an end of line
    person.until("con")
    person.types("tinue\n")
    assert answer.result(WAIT) == Continue()


def test_a_terminal_that_hangs_up_refuses(person):
    answer = person.asked(request())
    person.prompt()
    person.hangs_up()
    assert answer.result(WAIT) == ENDED


def test_a_terminal_that_has_hung_up_before_refuses(person):
    person.hangs_up()
    assert person.console.review(request()) == ExitEarly(NOT_A_TERMINAL)


def test_a_terminal_that_is_closed_under_the_prompt_refuses(person):
    with os.fdopen(os.dup(person.slave), encoding="utf-8") as stream:
        answer = person.asked(request(), ConsoleReview(stream, person.output))
        person.prompt()
    assert answer.result(WAIT) == ENDED


def test_a_terminal_that_is_closed_before_its_turn_refuses(person):
    first = person.asked(request())
    person.prompt()
    with os.fdopen(os.dup(person.slave), encoding="utf-8") as stream:
        second = person.asked(request(), ConsoleReview(stream, person.output))
        queued(2)
    person.types("c\n")
    assert (first.result(WAIT), second.result(WAIT)) == (Continue(), ENDED)


def test_an_output_that_is_closed_refuses(person):
    person.output.close()
    assert person.console.review(request()) == ENDED


def test_an_interrupt_refuses(person):
    main = threading.main_thread().ident

    def interrupt():
        person.prompt()
        signal.pthread_kill(main, signal.SIGINT)

    done = person.pool.submit(interrupt)
    assert person.console.review(request()) == ExitEarly("the prompt was interrupted")
    done.result(WAIT)


# Who is asked


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream", [io.StringIO("c\n"), closed(), object(), io.BytesIO(b"c\n")], ids=["text", "closed", "strange", "bytes"]
)
def test_an_input_that_is_no_terminal_refuses_at_once(stream, caplog):
    output = io.StringIO()
    with caplog.at_level(logging.WARNING, "toolsemble.review"):
        assert ConsoleReview(stream, output).review(request()) == ExitEarly(NOT_A_TERMINAL)
    assert output.getvalue() == f"toolsemble: {TOLD}\n"
    assert caplog.messages == [TOLD]


@pytest.mark.parametrize("stdin", [None, io.StringIO("c\n"), closed()], ids=["none", "text", "closed"])
def test_a_standard_input_that_is_no_terminal_refuses_with_a_message(stdin, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", stdin)
    assert ConsoleReview().review(request()) == ExitEarly(NOT_A_TERMINAL)
    assert capsys.readouterr() == ("", f"toolsemble: {TOLD}\n")


def test_a_pipe_is_no_terminal(monkeypatch):
    source, target = os.pipe()
    os.write(target, b"c\n")
    with os.fdopen(source) as stream, os.fdopen(target, "w"):
        assert ConsoleReview(stream, io.StringIO()).review(request()) == ExitEarly(NOT_A_TERMINAL)


@pytest.mark.parametrize("stderr", [None, closed()], ids=["none", "closed"])
def test_a_refusal_needs_no_place_to_be_shown(monkeypatch, stderr):
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stderr", stderr)
    assert ConsoleReview().review(request()) == ExitEarly(NOT_A_TERMINAL)


def test_a_question_that_cannot_be_shown_is_refused(person, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    reason = "there is no output to show the question on, so nobody can be asked"
    assert ConsoleReview(person.stream).review(request()) == ExitEarly(reason)


@pytest.mark.parametrize("stdout", ["terminal", "file"])
def test_the_question_goes_to_the_output_that_is_a_terminal(person, monkeypatch, stdout):
    monkeypatch.setattr(sys, "stdin", person.stream)
    monkeypatch.setattr(sys, "stdout", person.output if stdout == "terminal" else io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO() if stdout == "terminal" else person.output)
    answer = person.asked(request(), ConsoleReview())
    person.prompt()
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


# What is shown


def shown(person, asked, typed="c\n"):
    """Return what the person sees before they answer, without colors."""
    answer = person.asked(asked)
    text = person.prompt()
    person.types(typed)
    answer.result(WAIT)
    return ANSI.sub("", text).replace("\r", "")


def test_a_question_tells_everything_there_is_to_know(person):
    asked = ReviewRequest(
        "Deletes files.\n\n    For ever.",
        "delete",
        {"path": "/srv", "limit": 2, "deep": {"a": [1, None]}, "an odd name": True},
        timeout=None,
        prompt="The edit does not fit:\nlimit: expected integer",
        required_role="ops",
        call_id="c1",
        run_id="r1",
        agent_role="janitor",
        repairs=({"step": "coerce", "path": "$.limit", "from": "2", "to": 2},),
        scopes=("tool", "arguments"),
    )
    assert shown(person, asked) == (
        "\n"
        "| May this call run?\n"
        "| Tool             delete\n"
        "| About            Deletes files. For ever.\n"
        "| Agent            janitor\n"
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
        "[c]ontinue  [e]dit  [x] exit early  [a]lways this tool\n"
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
def test_arguments_of_every_kind_are_shown(person, arguments, line):
    assert line in shown(person, request(arguments))


@pytest.mark.parametrize(
    ("timing", "title"),
    [
        (ReviewTiming.DURING_EXECUTION, "A tool asks in the middle of its work:"),
        (ReviewTiming.AFTER_EXECUTION, "Is what came of this call all right?"),
    ],
)
def test_a_question_says_when_it_is_asked(person, timing, title):
    assert title in shown(person, request(timing=timing))


def test_an_answer_in_the_middle_of_the_work_is_written_from_nothing(person):
    asked = person.asked(request("Which one?", timing=ReviewTiming.DURING_EXECUTION))
    person.prompt()
    person.types("e\n")
    assert "Which one?" not in person.until("change): ")
    person.types("the blue one\n")
    assert asked.result(WAIT) == Edit("the blue one")


HOSTILE = "\x1b[2J\x1b]0;title\x07\r\n[c]ontinue\n> \u202eevil\u2066\u061c\u200b\x85\x9b\U000e0041\ufe0f\u3164\ud800\t"


@pytest.mark.parametrize(
    "asked",
    [
        request(HOSTILE),
        request({HOSTILE: HOSTILE}),
        request({"deep": [{HOSTILE: HOSTILE}]}),
        request(call_id=HOSTILE, run_id=HOSTILE, agent_role=HOSTILE, required_role=HOSTILE, prompt=HOSTILE),
        request(repairs=({"step": HOSTILE, "path": HOSTILE, "from": HOSTILE, "to": HOSTILE},)),
        ReviewRequest(HOSTILE, HOSTILE, HOSTILE, timeout=None),
    ],
    ids=["text", "names", "deep", "facts", "repairs", "tool"],
)
@pytest.mark.parametrize("columns", [100, 37])
def test_nothing_a_model_writes_can_leave_its_place(person, asked, columns):
    person.size(columns)
    answer = person.asked(asked)
    seen = [person.until("[c]ontinue  [e]dit")]
    person.until("> ")
    person.types("v\n")
    person.until("v\r\n")
    seen.append(person.until("[c]ontinue  [e]dit"))
    person.until("> ")
    person.types("e\n")
    person.until("e\r\n")
    seen.append(person.until("Instead"))
    person.types("\n")
    person.prompt()
    person.types("c\n")
    assert answer.result(WAIT) == Continue()
    for text in seen:
        *lines, last = ANSI.sub("", text).replace("\r\n", "\n").split("\n")
        assert last.startswith(("[c]ontinue  [e]dit", "Instead"))
        assert all(line.startswith("|") and line.isprintable() and len(line) <= columns for line in lines if line)


def test_a_text_that_a_terminal_would_wrap_keeps_to_its_margin(person):
    person.size(40)
    padded = "x" + " " * 70 + "Tool  read_file " + "漢字" * 20
    lines = shown(person, request({"path": padded, "n" * 30: 1})).split("\n")[1:-2]
    assert all(line.startswith("| ") for line in lines)
    assert all(len(line) + len(re.findall("[漢字]", line)) <= 40 for line in lines)
    assert lines[-2:] == ["|   " + "n" * 30, "|" + " " * 23 + "1"]


def test_a_terminal_that_does_not_know_its_width_gets_the_usual_one(person):
    person.size(0)
    assert max(map(len, shown(person, request("x" * 200)).split("\n"))) == 80


def test_what_is_long_is_cut_and_can_be_viewed(person):
    person.size(500)
    text = "first line\n" + "a" * 5000 + "\x1b[2J"
    answer = person.asked(request({"path": "short", "text": text, "n" * 41: ["b"] * 100}))
    question = person.prompt().replace("\r\n", "\n")
    assert "... (200 of 5,015 characters)" in question
    assert "... (200 of 500 characters)" in question
    assert "... (40 of 41 characters)" in question
    assert question.count("a" * 50) < 10
    assert "[c]ontinue  [e]dit  [x] exit early  [v]iew all" in question
    person.types("view\n")
    everything = person.prompt()
    plain = re.sub(r"\s*\| *", "", ANSI.sub("", everything).replace("\r\n", "\n"))
    assert "first line" + "a" * 5000 + "\\x1b[2J" in plain
    assert plain.count('"b"') == 100
    assert "[v]iew all" in everything
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize(
    ("count", "cut"), [(200, False), (201, True)], ids=["two hundred characters", "one character more"]
)
def test_only_what_was_cut_is_offered_for_viewing(person, count, cut):
    question = shown(person, request("a" * count))
    assert ("[v]iew all" in question, "(200 of 201 characters)" in question) == (cut, cut)


def test_a_great_many_arguments_and_repairs_are_counted(person):
    repairs = tuple({"step": "extra", "path": f"$.r{number}", "from": number, "to": None} for number in range(25))
    answer = person.asked(request({f"a{number}": number for number in range(1021)}, repairs=repairs))
    question = person.prompt()
    assert "... and 1,001 more" in question
    assert "... and 5 more repairs" in question
    person.types("v\n")
    everything = person.prompt()
    assert "a1020" in everything
    assert "$.r24" in everything
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


def test_an_output_without_the_characters_shows_their_codes(person):
    with open(person.slave, "w", encoding="ascii", closefd=False) as output:
        answer = person.asked(request("naïve"), ConsoleReview(person.stream, output))
        assert '"na\\xefve"' in person.prompt()
        person.types("c\n")
        assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize(
    ("settings", "colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_colors_are_used_where_they_are_wanted(person, monkeypatch, settings, colored):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    answer = person.asked(request())
    assert ("\x1b[" in person.prompt()) is colored
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize("colors", [True, False])
def test_who_asks_can_decide_about_colors(person, monkeypatch, colors):
    monkeypatch.setenv("NO_COLOR", "1" if colors else "")
    answer = person.asked(request(), ConsoleReview(person.stream, person.output, colors=colors))
    assert ("\x1b[" in person.prompt()) is colors
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


class File(io.StringIO):
    """Is no terminal, and tells when a prompt has been written to it."""

    def __init__(self):
        super().__init__()
        self.asked = threading.Event()

    def write(self, text):
        super().write(text)
        if text.endswith("> "):
            self.asked.set()


def test_a_file_gets_no_colors(person):
    output = File()
    answer = person.asked(request("x" * 200), ConsoleReview(person.stream, output))
    assert output.asked.wait(WAIT)
    person.types("c\n")
    assert answer.result(WAIT) == Continue()
    assert "\x1b" not in output.getvalue()
    assert max(map(len, output.getvalue().split("\n"))) == 80


# The time that is left


def test_the_countdown_goes_on_beside_what_is_typed(person):
    answer = person.asked(request(timeout=600, asked_at=time.time() - 10))
    assert re.search(r"\n\( 9:\d\d\) > $", person.prompt())
    person.types("con")
    person.until("con")
    first, second = person.until("\x1b8"), person.until("\x1b8")
    assert re.fullmatch(r"\x1b7\r\( 9:\d\d\) > \x1b8", first)
    assert re.fullmatch(r"\x1b7\r\( 9:\d\d\) > \x1b8", second)
    assert first != second
    person.types("tinue\n")
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
def test_the_time_left_is_shown_where_there_is_an_end(person, timeout, clock):
    answer = person.asked(request(timeout=timeout))
    assert re.search(clock, person.prompt())
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


def test_a_simple_terminal_shows_the_time_once(person, monkeypatch, clock):
    monkeypatch.setenv("TERM", "dumb")
    answer = person.pool.submit(Question(person.console, request(timeout=2)).do)
    shown = person.prompt()
    clock.advance(2)
    assert answer.result(WAIT) == ExitEarly("no answer within 2 s", timed_out=True)
    assert (shown + person.until("any more")).count("(0:0") == 1


# Answers that nobody waits for


def test_a_prompt_that_was_abandoned_frees_the_terminal_for_the_next(person, clock):
    late = person.pool.submit(Question(person.console, request("first", timeout=2)).do)
    person.prompt()
    clock.advance(2)
    assert late.result(WAIT) == ExitEarly("no answer within 2 s", timed_out=True)
    person.until("Nobody waits for this answer any more.")
    answer = person.asked(request("second"))
    person.until('"second"')
    person.prompt()
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize("typed", ["", "e\n"], ids=["choosing", "editing"])
def test_a_prompt_used_by_hand_ends_soon_after_its_deadline(person, typed, clock):
    answer = person.asked(request(timeout=60, asked_at=time.time() - 58))
    person.prompt()
    person.types(typed)
    clock.advance(4)
    assert answer.result(WAIT) == LATE
    person.until("Nobody waits for this answer any more.")


def test_a_question_that_is_late_already_is_not_shown(person):
    assert person.console.review(request(timeout=60, asked_at=time.time() - 90)) == LATE
    answer = person.asked(request())
    assert person.prompt().count("May this call run?") == 1
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


async def test_a_prompt_whose_call_is_cancelled_is_withdrawn(person):
    asking = asyncio.create_task(Question(person.console, request()).ado())
    await asyncio.to_thread(person.until, "> ")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.to_thread(person.until, "Nobody waits for this answer any more.")


def test_running_out_of_time_over_the_reason_is_still_a_no(person, clock):
    asked = request(timeout=5, on_timeout=OnTimeout.CONTINUE, asked_at=time.time())
    answer = person.pool.submit(Question(person.console, asked).do)
    person.prompt()
    person.types("x\nbecause it")
    person.until("because it")
    clock.advance(4.5)
    assert answer.result(WAIT) == ExitEarly()


def test_whoever_waits_for_a_turn_gives_up_in_time(person):
    first = person.asked(request("first"))
    person.prompt()
    assert person.console.review(request("second", timeout=60, asked_at=time.time() - 60)) == LATE
    person.types("c\n")
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
def test_an_editor_edits_the_arguments(person, editor, variable, asked, suffix, added, revised):
    editor(f"assert path.suffix == {suffix!r}\n{appended(added)}", variable)
    answer = person.asked(asked)
    person.prompt()
    person.types("e\n")
    assert answer.result(WAIT) == Edit(revised)


def test_the_file_that_is_edited_is_private_and_removed(person, editor, tmp_path):
    note = tmp_path / "note"
    editor(
        f"pathlib.Path({str(note)!r}).write_text(f'{{path.parent}} {{path.parent.stat().st_mode & 0o777:o}}')\n"
        "path.with_suffix('.swp').write_text('left behind')\n" + appended("!")
    )
    answer = person.asked(request())
    person.prompt()
    person.types("edit\n")
    assert answer.result(WAIT) == Edit("old.log!")
    folder, mode = note.read_text().split()
    assert mode == "700"
    assert not os.path.exists(folder)  # noqa: PTH110 - a name, not a path of ours


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("pass", "Nothing was changed."),
        (appended("\n"), "Nothing was changed."),
        (appended("!") + "\nsys.exit(3)", "gave no text: it ended with status 3. Check VISUAL and EDITOR."),
        ("path.unlink()", "gave no text: [Errno 2]"),
        (r"path.write_bytes(b'\xff')", "gave no text: 'utf-8' codec can't decode"),
    ],
)
def test_an_editor_that_gives_no_new_text_leads_back_to_the_choices(person, editor, code, message):
    editor(code)
    answer = person.asked(request())
    person.prompt()
    person.types("e\n")
    assert message in person.prompt()
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize("command", ["/no/such/editor", "'unbalanced"])
def test_an_editor_that_cannot_be_started_leads_back_to_the_choices(person, monkeypatch, command):
    monkeypatch.setenv("EDITOR", command)
    answer = person.asked(request())
    person.prompt()
    person.types("e\n")
    assert f"The editor '{command}' gave no text" in person.prompt()
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


@pytest.mark.parametrize("deaf", [False, True], ids=["ends when told", "has to be killed"])
def test_an_editor_is_ended_when_nobody_waits_any_more(person, editor, deaf):
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    editor(f"{ignore}print('editing', flush=True)\ntime.sleep({LONG})")
    gone = threading.Event()
    answer = person.pool.submit(lambda: ConsoleInTime(person.console, gone).review(request()))
    person.prompt()
    person.types("e\n")
    person.until("editing")
    gone.set()
    assert answer.result(WAIT) == LATE
    person.until("Nobody waits for this answer any more.")


class ConsoleInTime:
    """Asks with a deadline that comes when it is told."""

    def __init__(self, handler, gone):
        self.handler = handler
        self.gone = gone

    def review(self, asked):
        gone = self.gone

        class Late(ReviewRequest):
            deadline = property(lambda _: time.time() - 90 if gone.is_set() else None)

        return self.handler.review(Late(asked.description, asked.tool_name, asked.arguments))


def test_a_terminal_comes_back_from_an_editor_as_it_was_lent(person, editor):
    editor("import tty\ntty.setraw(0)\nprint('raw', flush=True)\nos.read(0, 1)\n" + appended("!") + "\nsys.exit(1)")
    answer = person.asked(request())
    before = termios.tcgetattr(person.slave)
    person.prompt()
    person.types("e\n")
    person.until("raw")
    person.types("q")
    person.prompt()
    assert termios.tcgetattr(person.slave) == before
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


def test_without_an_editor_one_line_replaces_the_text(person, monkeypatch):
    monkeypatch.setenv("EDITOR", " ")
    answer = person.asked(request("first\nsecond"))
    person.prompt()
    person.types("e\n")
    assert "| first\r\n| second" in ANSI.sub("", person.until("in one line (empty for no change): "))
    person.types("third\n")
    assert answer.result(WAIT) == Edit("third")


def edited(person, asked, *typed, check=None):
    """Type what belongs to each prompt, and return the decision."""
    handler = person.console
    answer = person.pool.submit(Question(handler, asked, check).do)
    person.prompt()
    person.types("e\n")
    for place, text in typed:
        person.until(place)
        if text and place != "> ":
            person.until("Instead (empty keeps it): ")
        person.types(text)
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


def test_arguments_are_edited_one_at_a_time_and_an_empty_line_keeps_a_value(person):
    decision = edited(
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
def test_a_value_is_checked_when_it_is_entered(person, name, wrong, problem, right, value):
    typed = [(f"{name}: ", f"{wrong}\n"), (f"{problem}. Enter another value", f"{right}\n")]
    decision = edited(person, request({name: ORDER[name]}), *typed)
    assert json.loads(decision.revised) == {name: value}


def test_a_text_stays_a_text_and_can_be_empty(person):
    decision = edited(person, request({"a": "x", "b": "y"}), ("a: ", "5\n"), ("b: ", '""\n'))
    assert json.loads(decision.revised) == {"a": "5", "b": ""}


def test_long_values_are_cut(person):
    edited(person, request({"a": "x" * 1000}), ("x... (1,002 characters)", "y\n"))


def test_more_than_one_line_is_not_taken_for_a_value(person):
    decision = edited(person, request({"a": "x"}), ("a: ", "b\nc\n"), ("Set EDITOR", "d\n"))
    assert json.loads(decision.revised) == {"a": "d"}


def test_arguments_that_are_all_kept_lead_back_to_the_choices(person):
    typed = [("a: 1", "\n"), ("Nothing was changed.", ""), ("> ", "c\n")]
    assert edited(person, request({"a": 1}), *typed) == Continue()


def test_a_tool_checks_its_arguments_while_they_are_edited(person):
    @tool(requires_approval=True)
    def order(boxes: Annotated[int, Le(10)], name: Literal["tea", "rice"] = "tea") -> str:
        return f"{boxes} of {name}"

    box = Toolbox([order], review=person.console)
    reply = person.pool.submit(box.execute, ToolCall("order", {"boxes": 5}))
    person.prompt()
    person.types("e\n")
    for place, typed in [
        ("boxes: 5", "500\n"),
        ("Invalid arguments for 'order': boxes: ", "7\n"),
        ('name: "tea"', "salt\n"),
        ("Invalid arguments for 'order': name: ", "rice\n"),
    ]:
        person.until(place)
        person.until("Instead (empty keeps it): ")
        person.types(typed)
    assert reply.result(WAIT).text == "7 of rice"


def test_values_that_fit_only_together_are_entered_one_after_the_other(person):
    def check(text):
        values = json.loads(text)
        return "" if float(values["start"]) < float(values["end"]) else "start must be before end"

    typed = [
        ("start: 1", "8\n"),
        ("start must be before end. Enter another value, or the same one again", "8\n"),
        ("end: 5", "9\n"),
    ]
    decision = edited(person, request({"start": 1, "end": 5}), *typed, check=check)
    assert json.loads(decision.revised) == {"start": 8, "end": 9}


def test_an_edit_that_does_not_fit_is_no_decision(person, editor):
    editor(appended("!"))
    typed = [("The edit does not fit: not JSON", ""), ("> ", "c\n")]
    assert edited(person, request({"a": 1}), *typed, check=lambda _: "not JSON") == Continue()


@pytest.mark.parametrize(
    "typed", ["a" * 4095 + "\n", "first\nsecond\n", "first\nsecond"], ids=["cut by the terminal", "lines", "more"]
)
def test_more_than_one_line_is_not_taken_for_an_edit(person, typed):
    answer = person.asked(request())
    person.prompt()
    person.types("e\n")
    person.until("no change): ")
    person.types(typed)
    person.until("Set EDITOR to edit longer texts.")
    person.prompt()
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


# Several at once


def test_what_was_typed_before_the_question_answers_nothing(person):
    person.types("c\nc\nc")
    person.until("c\r\nc\r\nc")
    answer = person.asked(request())
    person.prompt()
    person.types("x\nno\n")
    assert answer.result(WAIT) == ExitEarly("no")


def test_a_hasty_second_answer_does_not_approve_the_next_call(person):
    first, second = person.asked(request()), person.asked(request())
    queued(2)
    person.prompt()
    person.types("c\nc\n")
    person.prompt()
    person.types("x\nno\n")
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


def test_prompts_of_many_toolboxes_never_interleave_and_each_gets_its_answer(person):
    wrappers = [lambda handler: handler, Wrapped, AsyncWrapped, lambda handler: Wrapped(AsyncWrapped(handler))]
    boxes = [
        Toolbox([Wipe(f"t{n}")], review=wrappers[n % 4](ConsoleReview(person.stream, person.output))) for n in range(10)
    ]
    calls = [
        person.pool.submit(box.execute, ToolCall(f"t{n}", json.dumps({"input": f"disk{n}"})))
        for n, box in enumerate(boxes)
    ]
    queued(10)
    expected = {}
    for _ in calls:
        question = person.prompt()
        (number,) = re.findall(r"t(\d)\x1b", question)
        assert question.count("May this call run?") == question.count("[c]ontinue") == 1
        assert f'"disk{number}"' in question
        person.types(f"x\nnot {number}\n" if int(number) % 2 else "c\n")
        expected[int(number)] = (
            f"Error: Rejected by reviewer: not {number}" if int(number) % 2 else f"t{number} wiped disk{number}"
        )
    assert {n: call.result(WAIT).text for n, call in enumerate(calls)} == expected
    assert "(8 more waiting)" in person.seen


def test_a_forked_process_has_a_terminal_of_its_own(person):
    answer = person.asked(request())
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
    person.types("c\n")
    assert answer.result(WAIT) == Continue()


# Where terminals cannot be controlled


@pytest.fixture
def windows(monkeypatch):
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
def test_without_control_of_the_terminal_lines_are_read_plainly(person, windows, typed, decision):
    answer = person.asked(request())
    person.prompt()
    person.types(typed)
    assert answer.result(WAIT) == decision


def test_without_control_of_the_terminal_an_editor_still_edits(person, windows, editor):
    editor(appended("!"))
    answer = person.asked(request())
    person.prompt()
    person.types("e\n")
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
from toolsemble.review.question import Question
asked = ReviewRequest("Deletes a file", "delete", "old.log", timeout=3)
print(Question(ConsoleReview(), asked).do().reason, flush=True)
"""


@contextmanager
def running(program, person):
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
def test_a_program_in_a_terminal_asks_and_goes_on(person, typed, text):
    with running(PROGRAM, person) as program:
        person.prompt()
        person.types(typed)
        person.until(f"{text}\r\n")
        person.prompt()
        person.types("c\n")
        person.until("wiped b\r\n")
        assert program.wait(WAIT) == 0


def test_a_program_that_ends_leaves_no_editor_behind(person, editor, tmp_path):
    told = tmp_path / "told"
    editor(
        f"""
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which the terminal sends when the program has ended
signal.signal(signal.SIGTERM, lambda *_: sys.exit(pathlib.Path({str(told)!r}).touch()))
print('editing', flush=True)
while True:
    time.sleep(0.01)
"""
    )
    with running(LATE_PROGRAM, person) as program:
        person.prompt()
        person.types("e\n")
        person.until("editing")
        os.kill(program.pid, signal.SIGUSR1)
        person.until("no answer within 3 s")
        assert program.wait(WAIT) == 0
        until(told.exists)
