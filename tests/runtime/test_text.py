"""Untrusted text wherever a person or a log shows it: nothing invisible comes through."""

import io
import logging
import sys

import pytest

from helpers.console_person import WAIT, Person
from helpers.terminal import ANSI, forget_modules, write_bot
from toolsemble import Toolbox, ToolCall, tool
from toolsemble._cli import main
from toolsemble.builtin import FileReadTool
from toolsemble.review import Continue, ReviewRequest
from toolsemble.telemetry import ConsoleSink

# Controls, marks of direction, zero-width characters, tags, variation selectors, fillers, separators, a surrogate.
INVISIBLE = (
    "\x1b\x07\x00\x7f\x85\x9b\r\u061c\u200e\u202e\u2066\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f"
    "\U000e0001\U000e0041\U000e007f\ufe00\ufe0f\U000e0100\u180b\u115f\u3164\uffa0\u2800\u2028\u2029\ufff9\U0001d173"
    "\ud800"
)
HOSTILE = "".join(f"a{each}{each}" for each in INVISIBLE)
SENT = HOSTILE.replace("\ud800", "")  # a lone surrogate is refused before it gets that far


@tool
def echo(text: str, times: int = 1) -> str:
    """Return a text."""
    return text * times


@tool
def fail(text: str) -> str:
    """Raise an error."""
    raise ValueError(text)


def check_shown(text, new_lines=0):
    """Fail if a text that is shown has one of the characters, or more lines than its own."""
    assert "a\\x1b" in text or "a\\u001b" in text
    assert set(text).isdisjoint(INVISIBLE), ascii(set(text) & set(INVISIBLE))
    assert text.count("\n") <= new_lines


@pytest.mark.parametrize("called", [echo, fail])
def test_log_lines_are_escaped(caplog, called):
    caplog.set_level(logging.DEBUG)
    Toolbox([called]).execute(ToolCall(called.name, {"text": SENT}))
    assert caplog.messages
    for line in caplog.messages:
        check_shown(line)


@pytest.mark.parametrize(
    "call",
    [
        ToolCall(SENT, {}),
        ToolCall("echo", {SENT: 1}),
        ToolCall("echo", {"text": "", "times": SENT}),
        ToolCall("echo", f"[{SENT}"),
        ToolCall("echo", f'"{SENT}"'),
    ],
    ids=["tool", "key", "value", "json", "text"],
)
def test_messages_about_a_call_are_escaped(call):
    reply = Toolbox([echo]).execute(call)
    assert reply.is_error
    message = reply.result.error_message
    assert set(message).isdisjoint(INVISIBLE), ascii(message)


def test_messages_about_a_path_are_escaped(tmp_path):
    path = SENT.replace("\x00", "")[:60]
    reply = Toolbox([FileReadTool(tmp_path)]).execute(ToolCall("file_read", {"path": path}))
    check_shown(reply.result.error_message)


def test_lines_of_a_sink_are_escaped():
    stream = io.StringIO()
    box = Toolbox([echo], sinks=[ConsoleSink(stream, limit=1000, times=False)])
    box.execute(ToolCall("echo", {"text": SENT}, SENT))
    for line in stream.getvalue().splitlines():
        check_shown(line)


@pytest.mark.slow
def test_review_prompts_are_escaped():
    person = Person()
    try:
        fields = dict.fromkeys(("call_id", "run_id", "agent_role", "required_role", "prompt"), HOSTILE)
        repairs = ({"step": HOSTILE, "path": HOSTILE, "from": HOSTILE, "to": HOSTILE},)
        asked = ReviewRequest(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, repairs=repairs, timeout=None, **fields)
        answer = person.ask(asked)
        seen = person.prompt()
        person.type("v\n")
        seen += person.prompt()
        person.type("c\n")
        assert answer.result(WAIT) == Continue()
    finally:
        person.leave()
    check_shown(ANSI.sub("", seen).replace("\r\n", "\n"), new_lines=1000)


@pytest.fixture
def bot(tmp_path, monkeypatch):
    """Yield the path of a module whose model and tools write the text."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    calls = 'ChatReply(TEXT, (ToolCall(TEXT, {}), ToolCall("echo", {"text": TEXT}), ToolCall("boom", {})))'
    more = f"""
TEXT = {SENT!a}

@tool
def echo(text: str) -> str:
    "Return a text."
    return text

@tool
def boom() -> str:
    {SENT!a}
    raise ExitEarlyError(TEXT)

model = ScriptedModel([{calls}, TEXT])
talker = ScriptedModel([TEXT])
"""
    yield write_bot(tmp_path, more=more)
    forget_modules(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("call", "{}:echo", "text=" + SENT.replace("\x00", "")),
        ("call", "{}:" + SENT.replace("\x00", "")),
        ("ask", "q", "-m", "{}:talker"),
        ("ask", "q", "-m", "{}:model", "-t", "{}:echo", "-t", "{}:boom"),
        ("ask", "q", "-m", "{}:model", "-t", "{}:echo", "-t", "{}:boom", "--json"),
        ("tools", "{}:boom"),
    ],
    ids=["result", "name", "answer", "run", "json", "description"],
)
def test_command_line_output_is_escaped(bot, capsys, words):
    main([word.format(bot) if "{}" in word else word for word in words])
    out, err = capsys.readouterr()
    check_shown(out + err, new_lines=1000)
