"""Tests of the listeners of the command line with every kind of event."""

import bisect
import io
import json
import math
import os
import sys
from dataclasses import replace
from functools import reduce
from types import SimpleNamespace
from typing import get_args, get_origin

import pytest

from helpers.terminal import forget_modules, write_bot
from toolsemble import Continue, Edit, ExitEarly, ReviewRequest, ToolCall, ToolReply, ToolResult, agent, events
from toolsemble._cli import main
from toolsemble._cli.ask_command import Setup
from toolsemble._cli.screen import Screen
from toolsemble.agent import (
    AgentResult,
    CallReplied,
    CallRequested,
    Final,
    ModelRetried,
    RunCancelled,
    RunInterrupted,
    RunParked,
    ToolCallRecord,
    TurnEnded,
)
from toolsemble.events import (
    CacheHit,
    CallAbandoned,
    CallFinished,
    CallProgress,
    CallRepaired,
    CallRetried,
    CallStarted,
    CallTimedOut,
    ModelReplied,
    ReviewDecided,
    ReviewRequested,
    RunFinished,
    RunStarted,
)
from toolsemble.models import AssistantMessage
from toolsemble.models._chat import ArgumentsDelta, CallDelta, PromptProgress, TextDelta, ThoughtDelta

pytestmark = pytest.mark.slow

TWICE = 'add_1_2(), "It is three."'
CALL = ToolCall("add", {"a": 1}, id="c1")
RECORD = ToolCallRecord(CALL, ToolReply(CALL, ToolResult.success("3")))
REQUEST = ReviewRequest("Adds", "add", {"a": 1})
REPAIRS = (
    {"step": "text", "path": "$", "from": "{a: 1", "to": {"a": "1"}},
    {"step": "coerce", "path": "a", "from": "1", "to": 1},
)
CIRCLE = []
CIRCLE.append(CIRCLE)

EARLY = {
    "loop": "the model repeated itself",
    "max_cost": "the cost limit was reached",
    "max_iterations": "the call limit was reached (--max-calls)",
    "max_seconds": "the time limit was reached (--max-seconds)",
    "max_tokens": "the token limit was reached (--max-tokens)",
    "max_turns": "the turn limit was reached",
    "of_another_version": "of_another_version",
}

# Each event, and its line for a person if the output is not a terminal.
TOLD = [
    (TextDelta("Hm."), ""),
    (ThoughtDelta("Hm."), ""),
    (PromptProgress(0.5), ""),
    (CallDelta(0, "add", "c1"), ""),
    (ArgumentsDelta(0, "{"), ""),
    (CallRequested(CALL), 'add {"a":1}\n'),
    (CallReplied(RECORD), 'add {"a":1}\n  -> 3\n'),
    (ModelRetried("busy", 2.5), "the model failed; retry in 2.5 s: busy\n"),
    (TurnEnded(AssistantMessage("Hm.")), ""),
    (Final(AgentResult("Three.")), "0.0 s\n"),
    *(
        (Final(AgentResult("Three.", stop_reason=reason)), f"stopped early: {words}\n0.0 s\n")
        for reason, words in EARLY.items()
    ),
    *((kind("order-7"), "") for kind in (RunParked, RunInterrupted, RunCancelled)),  # shown as the run's outcome
    (RunStarted("gpt-5"), ""),
    (ModelReplied(AssistantMessage("Hm.")), ""),
    (RunFinished("answer"), ""),
    (CallStarted("add", "c1", {"a": 1}), ""),
    (CallRepaired("add", "c1", REPAIRS), "  .. add: arguments repaired: the JSON text, a\n"),
    (CallRetried("add", "c1", 1, 0.5, "bu\nsy"), "  .. add: failed; retry in 0.5 s: bu\\nsy\n"),
    (CallRetried("add", "c1", 1, 0.5, ""), "  .. add: failed; retry in 0.5 s\n"),
    (CallProgress("add", "c1", 0.5, "half"), "  .. add 50% half\n"),
    (CallProgress("add", "c1", "odd", None), "  .. add\n"),
    (CallTimedOut("add", "c1", 5.0), "  .. add: took longer than 5 s\n"),
    (CallAbandoned("add", "c1"), "  .. add: still running in the background\n"),
    (CacheHit("add", "c1"), "  .. add: answered from the cache\n"),
    (CallFinished("add", "c1", "success", ToolResult.success("3")), ""),
    (CallFinished("add", "c1", "error", error_type="KeyError", error="'a'"), ""),
    (ReviewRequested(REQUEST), ""),
    (ReviewDecided(REQUEST, Continue()), "  ok add: approved\n"),
    (ReviewDecided(REQUEST, Edit('{"a":2}')), ""),  # shown when it is accepted
    (ReviewDecided(REQUEST, ExitEarly("no")), "  no add: rejected: no\n"),
    (SimpleNamespace(kind="of_another_version", __dataclass_fields__={}), ""),
]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    yield
    forget_modules(tmp_path)


@pytest.fixture
def bot(tmp_path):
    return lambda script="", more="": write_bot(tmp_path, script, more=more)


@pytest.fixture
def run_cli(capsys):
    def run_cli(*words):
        return main(words), *capsys.readouterr()

    return run_cli


def show_event(event, capsys, **setup):
    Setup(**setup).make_listener(Screen(colors=False)).take(event)
    return capsys.readouterr()


def write_json_line(event, capsys):
    return json.loads(show_event(event, capsys, as_json=True).out, parse_constant=pytest.fail)


def test_every_event_is_tested():
    known = {type(event) for event, _ in TOLD}
    named = [getattr(module, name) for module in (events, agent) for name in module.__all__]
    assert known >= {get_origin(each) or each for each in (*get_args(agent.Event), *get_args(events.Event))}
    assert known >= {each for each in named if isinstance(getattr(each, "kind", None), str)} - {agent.PausedRun}


@pytest.mark.parametrize(("event", "expected"), TOLD, ids=lambda each: getattr(each, "kind", ""))
def test_every_event_is_written_as_text(event, expected, capsys, monkeypatch):
    monkeypatch.setattr("toolsemble._cli.text_output.time", SimpleNamespace(monotonic=lambda: 100.0))
    assert show_event(event, capsys).err == expected
    assert show_event(event, capsys, quiet=True).err == ""


def replied(text, id="c1"):
    call = ToolCall("add", {"a": 1}, id=id)
    result = (
        ToolResult.failure(text.removeprefix("Error: ")) if text.startswith("Error: ") else ToolResult.success(text)
    )
    return CallReplied(ToolCallRecord(call, ToolReply(call, result)))


BY_C1 = replace(REQUEST, call_id="c1")
WELL = ReviewDecided(BY_C1, Edit('{"a":2}'))
BADLY = ReviewDecided(BY_C1, Edit('{"a":"x"}'))


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([WELL, replied("3")], '  ok add: approved with {"a":2}\n  -> 3\n'),
        ([WELL, replied("3", None)], '  ok add: approved with {"a":2}\n  -> 3\n'),
        ([WELL, replied("3", "c2")], "  -> 3\n"),
        (
            [BADLY, ReviewRequested(BY_C1), WELL, replied("3")],
            '  .. add: {"a":"x"} does not fit; asked again\n  ok add: approved with {"a":2}\n  -> 3\n',
        ),
        ([BADLY, replied("Error: Rejected by reviewer: no")], "  -> Error: Rejected by reviewer: no\n"),
        ([WELL, replied("Error: no room")], '  ok add: approved with {"a":2}\n  -> Error: no room\n'),
    ],
)
def test_reports_an_edit_when_it_is_accepted(events, told, capsys):
    listener = Setup().make_listener(Screen(colors=False))
    listener.take(CallRequested(CALL))
    for event in events:
        listener.take(event)
    assert capsys.readouterr().err == f'add {{"a":1}}\n{told}'


@pytest.mark.parametrize("event", [event for event, _ in TOLD], ids=lambda each: each.kind)
def test_every_event_is_a_json_line(event, capsys):
    assert write_json_line(event, capsys)["kind"] == event.kind


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (CallFinished("add", "c1", "success", ToolResult.success("3")), {"outcome": "success", "text": "3"}),
        (CallFinished("add", "c1", "error", error_type="KeyError", error="'a'"), {"text": "KeyError: 'a'"}),
        (CallProgress("add", "c1", math.inf, None), {"fraction": None, "message": ""}),
        (CallRepaired("add", "c1", REPAIRS), {"repairs": list(REPAIRS)}),
        (CallStarted("add", "c1", {"a": math.nan, "b": {1}}), {"arguments": {"a": "NaN", "b": [1]}}),
        (CallStarted("add", "c1", CIRCLE), {"arguments": "a list that JSON cannot hold"}),
    ],
)
def test_any_arguments_are_written_as_valid_json(event, fields, capsys):
    line = write_json_line(event, capsys)
    assert {name: line[name] for name in fields} == fields
    assert "result" not in line


def test_repaired_call_is_answered(bot, run_cli):
    path = bot('ToolCall("add", {"a": "1", "b": 2}), "It is three."')
    code, out, err = run_cli("ask", "q", "-m", f"{path}:model", "-t", path)
    assert (code, out) == (0, "It is three.\n")
    assert err.startswith('add {"a":"1","b":2}\n  .. add: arguments repaired: a\n  -> 3\n1 call, ')


INSIDE = """
@tool
def look(at: int) -> int:
    "Look."
    return at

@tool
def twice(at: int) -> int:
    "Look twice."
    box = Toolbox([look])
    return sum(int(box.execute(ToolCall("look", {"at": at})).text) for _ in range(2))
"""


@pytest.mark.parametrize("as_json", [True, False])
def test_nested_calls_do_not_end_run(bot, run_cli, as_json):
    path = bot('ToolCall("twice", {"at": 2}), "Done."', INSIDE)
    code, out, _ = run_cli("ask", "q", "-m", f"{path}:model", "-t", f"{path}:twice", *["--json"] * as_json)
    assert code == 0
    assert ('"kind":"call_finished"' in out) is as_json


def test_chat_continues_when_output_fails(bot, run_cli, monkeypatch):
    def take(self, event):
        raise KeyError("style")

    monkeypatch.setattr("toolsemble._cli.text_output.TextOutput.take", take)
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\n/tools\n"))
    path = bot('"Never told."')
    expected = (1, "", "KeyError: 'style'\nnone; name some with --tools\n")
    assert run_cli("chat", "-q", "-m", f"{path}:model") == expected


def test_chat_ends_when_stdout_is_closed(bot, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\nsecond\n"))
    path = bot('"One.", "Two."')
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["chat", "-q", "-m", f"{path}:model"]) == 141
    assert capsys.readouterr().err == ""


ODD = """
@tool
def odd(context: ToolContext) -> str:
    "Say what is no text."
    context.progress(0.5, None)
    context.progress("half", 5)
    return "done"
"""


def test_invalid_progress_does_not_fail_call(bot, run_cli):
    path = bot("", f"from toolsemble import ToolContext\n{ODD}")
    assert run_cli("call", f"{path}:odd") == (0, "done\n", "")


SAYING = """
from toolsemble import Continue, Edit, ExitEarly
from toolsemble.review import CallbackReview

@tool
def says() -> ToolResult:
    "Fail in the words of a refusal."
    return ToolResult.failure("Rejected by reviewer: not really")

@tool(requires_approval=True)
def gated(times: int) -> ToolResult:
    "Fail likewise, once it is approved."
    return ToolResult.failure("Rejected by reviewer: not really")

def interrupts(request):
    raise KeyboardInterrupt

def fails(request):
    raise ValueError

refusing = Toolbox([gated], review=CallbackReview(lambda request: ExitEarly("no")))
failing = Toolbox([gated], review=CallbackReview(fails))
interrupting = Toolbox([gated], review=CallbackReview(interrupts))
editing = Toolbox([gated], review=CallbackReview(lambda request: Edit('{"times": 2}')))
"""


@pytest.mark.parametrize(
    ("words", "code", "reply"),
    [
        (["says"], 1, "not really"),
        (["gated", "times=1", "--approve", "always"], 1, "not really"),
        (["editing", "times=1"], 1, "not really"),
        (["gated", "times=1", "--approve", "never"], 3, "calls that need approval are rejected (--approve never)"),
        (["refusing", "times=1"], 3, "no"),
        (["failing", "times=1"], 3, "the reviewer failed to answer"),
        (["interrupting", "times=1"], 3, "the prompt was interrupted"),
    ],
)
def test_rejected_call_prints_reason(bot, run_cli, words, code, reply):
    path = bot("", SAYING)
    name, *rest = words
    assert run_cli("call", f"{path}:{name}", *rest) == (code, f"Error: Rejected by reviewer: {reply}\n", "")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_call_without_terminal_explains_approve_option(bot, run_cli, monkeypatch, options):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, out, err = run_cli("call", f"{bot()}:delete", "x", *options)
    assert code == 3
    assert "Rejected by reviewer: standard input is not a terminal, so no reviewer can be asked" in out
    assert err == (
        "toolsemble: 'delete' is rejected: standard input is not a terminal, so no reviewer can be asked; run it in a "
        "terminal, or with --approve always\n"
    )


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("{}", {}),
        (None, {}),
        ("", ""),
        ("[1]", "[1]"),
        ('{"a": ', '{"a": '),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 1e999}', '{"a": 1e999}'),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_are_written_as_json_objects(given, arguments, capsys):
    call = ToolCall("add", given, id="c1")
    expected = {"name": "add", "arguments": arguments, "id": "c1"}
    assert write_json_line(CallRequested(call), capsys)["call"] == expected
    assert (
        write_json_line(CallReplied(ToolCallRecord(call, ToolReply(call, ToolResult.success("3")))), capsys)["call"]
        == expected
    )


def test_calls_have_same_json_form_in_every_command(bot, run_cli):
    path = bot(TWICE)
    _, asked, _ = run_cli("ask", "q", "-m", f"{path}:model", "-t", path, "--json")
    _, called, _ = run_cli("call", f"{path}:add", '{"a": 1, "b": 2}', "--json")
    final = json.loads(asked.splitlines()[-1])
    assert final["tool_calls"][0]["call"]["arguments"] == json.loads(called)["call"]["arguments"] == {"a": 1, "b": 2}


def nested(depth):
    return f'{{"a": {"[" * depth}{"]" * depth}}}'


def find_maximum_depth():
    """Return how deep a text can be for this interpreter to read it."""

    def unreadable(depth):
        try:
            json.loads(nested(depth))
        except RecursionError:
            return True
        return False

    return bisect.bisect_left(range(200_000), True, key=unreadable)


def test_arguments_of_any_depth_can_be_written(capsys):
    limit = find_maximum_depth()
    for depth in range(limit - 40, limit + 2):
        call = ToolCall("add", nested(depth))
        record = ToolCallRecord(call, ToolReply(call, ToolResult.success("3")))
        value = reduce(lambda inner, _: [inner], range(depth), 1)
        for event in (CallRequested(call), Final(AgentResult(tool_calls=[record])), CallStarted("add", "c1", value)):
            assert show_event(event, capsys, as_json=True).out.endswith("}\n")


def test_file_is_not_a_model(bot, run_cli):
    path = bot()
    message = f"toolsemble: {path!r} is a module, not a model: write {path}:NAME for a model in it\n"
    assert run_cli("ask", "q", "-m", path) == (2, "", message)


def test_cached_tokens_and_reasoning_tokens_are_shown(bot, run_cli, tmp_path):
    path = tmp_path / "counted.py"
    path.write_text(
        "from toolsemble.models import ScriptedModel, TokenUsage\n"
        "model = ScriptedModel(['hi'], usage=TokenUsage(2000, 300, 1500, 200))\n"
    )
    _, _, err = run_cli("ask", "q", "-m", f"{path}:model")
    assert "2,000 tokens in (1,500 cached), 300 out (200 reasoning)" in err
