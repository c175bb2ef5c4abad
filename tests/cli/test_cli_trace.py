"""The command ``toolsemble trace``."""

import re

import pytest

from toolsemble import Agent, Continue, Edit, ExitEarly, Toolbox, ToolCall, tool
from toolsemble._cli.app import run
from toolsemble._vocabulary.errors import AgentExecutionError, ModelError
from toolsemble.agent import Prices, Retry
from toolsemble.models import ChatReply, TokenUsage
from toolsemble.telemetry import TraceFile
from toolsemble.testing import FakeReviewer, ScriptedModel


@tool
def shout(text: str) -> str:
    """Shout."""
    return text.upper()


@tool(requires_approval=True)
def order(boxes: int) -> str:
    """Order."""
    return f"{boxes} ordered"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


def lines(capsys, *arguments):
    assert run(["trace", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def hide_times(line):
    return re.sub(r"[\d.]+ m?s\b", "T", line)


def test_a_run_is_a_tree_of_turns_and_calls(path, capsys):
    inner = Agent(ScriptedModel([ToolCall("shout", {"text": "low"}), "said"]), [shout]).as_tool("inner", "Asks")
    model = ScriptedModel([ToolCall("inner", {"input": "go"}), "Done"])
    Agent(model, [inner], sinks=[TraceFile(path, messages=True)]).run_sync("Say it\nloud", run_id="run-one")
    assert list(map(hide_times, lines(capsys, path))) == [
        "run run-one of ScriptedModel",
        "├─ user: Say it\\nloud",
        "├─ turn 1: T, 0 + 0 tokens, calls inner",
        '├─ inner "go": success in T',
        "│  ├─ run run-one of ScriptedModel",
        "│  │  ├─ user: go",
        "│  │  ├─ turn 1: T, 0 + 0 tokens, calls shout",
        '│  │  ├─ shout {"text": "low"}: success in T',
        "│  │  │  └─ LOW",
        "│  │  ├─ turn 2: T, 0 + 0 tokens",
        "│  │  │  └─ said",
        "│  │  └─ end: answer after T, 0 tokens",
        "│  └─ said",
        "├─ turn 2: T, 0 + 0 tokens",
        "│  └─ Done",
        "└─ end: answer after T, 0 tokens",
    ]


def test_messages_are_missing_unless_they_were_recorded(path, capsys):
    Agent(ScriptedModel(["Secret answer"]), sinks=[TraceFile(path)]).run_sync("Secret question", run_id="r")
    shown = "\n".join(lines(capsys, path))
    assert "run r of ScriptedModel" in shown
    assert "Secret" not in shown
    assert "Secret" not in path.read_text()


def test_tokens_and_cost_are_shown(path, capsys):
    model = ScriptedModel([ChatReply("Rome", usage=TokenUsage(1000, 500))])
    Agent(model, prices=Prices(1000, 2000), sinks=[TraceFile(path)]).run_sync("Where?")
    turn, end = lines(capsys, path)[1:]
    assert turn.endswith("1000 + 500 tokens, cost 2")
    assert end.endswith("1500 tokens, cost 2")


def test_one_run_can_be_selected(path, capsys):
    for name in ("first", "second"):
        Agent(ScriptedModel(["Done"]), sinks=[TraceFile(path)]).run_sync("go", run_id=name)
    assert lines(capsys, path, "--run", "second")[0] == "run second of ScriptedModel"
    assert run(["trace", str(path), "--run", "third"]) == 2
    assert "There is no run 'third'" in capsys.readouterr().err


def test_calls_without_an_agent_and_reviews_are_shown(path, capsys):
    reviewer = FakeReviewer(Continue(), Edit('{"boxes": 1}'), ExitEarly("too many"))
    box = Toolbox([shout, order], review=reviewer, sinks=[TraceFile(path)])
    box.execute(ToolCall("shout", {"text": "hi"}))
    for boxes in (3, 4, 5):
        box.execute(ToolCall("order", {"boxes": boxes}))
    assert list(map(hide_times, lines(capsys, path))) == [
        'shout {"text": "hi"}: success in T',
        "└─ HI",
        'order {"boxes": 3}: success in T',
        "├─ reviewer: approved",
        "└─ 3 ordered",
        'order {"boxes": 1}: success in T',
        '├─ reviewer: approved with {"boxes": 1}',
        "└─ 1 ordered",
        'order {"boxes": 5}: failure in T',
        "├─ reviewer: rejected: too many",
        "└─ Error: Rejected by reviewer: too many",
    ]


def test_a_failed_run_shows_its_error_and_its_retries(path, capsys):
    model = ScriptedModel([ModelError("busy", retryable=True), ValueError("broken")])
    agent = Agent(model, sinks=[TraceFile(path)], retry=Retry(2, wait=0))
    with pytest.raises(AgentExecutionError):
        agent.run_sync("go")
    shown = lines(capsys, path)
    assert shown[1] == "├─ model retried: busy"
    assert shown[2].startswith("└─ end: error (toolsemble.AgentExecutionError) after ")
    assert shown[3] == "   └─ broken"


def test_long_texts_are_cut_unless_all_is_wanted(path, capsys):
    Toolbox([shout], sinks=[TraceFile(path)]).execute(ToolCall("shout", {"text": "x" * 500}))
    assert max(map(len, lines(capsys, path))) < 160
    assert "└─ " + "X" * 500 in lines(capsys, path, "--full")


def test_control_characters_cannot_reach_the_terminal(path, capsys):
    Toolbox([shout], sinks=[TraceFile(path)]).execute(ToolCall("shout", {"text": "\x1b[2Jhello"}, "c\x1b[2J"))
    assert "\x1b" not in "\n".join(lines(capsys, path))


def test_an_unfinished_call_is_shown_as_such(path, capsys):
    path.write_text('{"kind":"call_started","tool_name":"shout","call_id":"c1","arguments":{}}\nnot json\n')
    assert lines(capsys, path) == ["shout {}: not finished"]
    run(["trace", str(path)])
    assert "line 2 is not an event" in capsys.readouterr().err


def test_a_missing_file_is_an_error_that_says_how_to_write_one(tmp_path, capsys):
    assert run(["trace", str(tmp_path / "none.jsonl")]) == 2
    assert "write one with sinks=[TraceFile(" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"\xff\x00\xfe\n\x1b[2J", b'{"kind": "other"}\n', b"[1]\n5\n"])
def test_file_without_an_event_fails(path, capsys, content):
    path.write_bytes(content)
    assert run(["trace", str(path)]) == 1
    shown = capsys.readouterr()
    assert f"{path} has no events; write some with sinks=[TraceFile(" in shown.err
    assert "\x1b[2J" not in shown.err
