"""Comparisons of runs: which calls belong together, where the runs diverge, and what changed."""

import pytest

from toolsemble import Agent, ToolCall, tool
from toolsemble._ui.routes.runs import DiffLine, Pair, compare_runs, diff_calls, diff_texts
from toolsemble._vocabulary.result import ToolResult
from toolsemble.events import CallFinished, CallStarted
from toolsemble.telemetry import RunHistory
from toolsemble.testing import ScriptedModel


@tool
def search(query: str) -> str:
    """Search."""
    return f"found\n{query}\nhere"


@tool
def pay(order: int) -> str:
    """Pay."""
    if order < 0:
        raise ValueError("no such order")
    return f"paid {order}"


@pytest.fixture
def history(tmp_path):
    with RunHistory(tmp_path / "history.db") as made:
        yield made


def run(history, run_id, *replies, prompt="Pay."):
    Agent(ScriptedModel([*replies]), [search, pay], sinks=[history]).run_sync(prompt, run_id=run_id)


def changes(comparison):
    return [
        (each.change, *(side.tool_name if side else None for side in (each.first, each.second)))
        for each in comparison.pairs
    ]


def test_equal_runs_do_not_diverge(history):
    for run_id in "ab":
        run(history, run_id, ToolCall("search", {"query": "x"}), ToolCall("pay", {"order": 7}), "Done.")
    found = compare_runs(history, "a", "b")
    assert changes(found) == [("same", "search", "search"), ("same", "pay", "pay")]
    assert (found.divergence, found.prompt, found.answer, found.is_cut) == (None, (), (), False)
    assert (found.first.run_id, found.second.run_id) == ("a", "b")


def test_the_first_difference_is_found(history):
    run(history, "a", ToolCall("search", {"query": "x"}), ToolCall("pay", {"order": 7}), "Done.")
    run(history, "b", ToolCall("search", {"query": "x"}), ToolCall("pay", {"order": -8}), "Not\ndone.", prompt="Pay!")
    found = compare_runs(history, "a", "b")
    assert changes(found) == [("same", "search", "search"), ("changed", "pay", "pay")]
    assert found.divergence == 1
    assert [each.text for each in found.prompt] == ["Pay.", "Pay!"]
    assert [(each.mark, each.text) for each in found.answer] == [("-", "Done."), ("+", "Not"), ("+", "done.")]
    diff = diff_calls(history, found.pairs[1])
    assert DiffLine("-", '  "order": 7') in diff.arguments
    assert diff.text == (DiffLine("-", "paid 7"), DiffLine("+", "Error: no such order"))


def test_calls_of_the_same_tool_are_aligned(history):
    run(history, "a", ToolCall("search", {"query": "x"}), ToolCall("pay", {"order": 7}), "Done.")
    run(
        history,
        "b",
        ToolCall("pay", {"order": 1}),
        ToolCall("search", {"query": "y"}),
        ToolCall("pay", {"order": 7}),
        "Done.",
    )
    found = compare_runs(history, "a", "b")
    assert changes(found) == [("added", None, "pay"), ("changed", "search", "search"), ("same", "pay", "pay")]
    assert diff_calls(history, found.pairs[0]).text == (DiffLine("+", "paid 1"),)
    assert diff_calls(history, found.pairs[1]).text[1:3] == (DiffLine("-", "x"), DiffLine("+", "y"))


def test_a_run_that_ended_earlier_lacks_calls(history):
    run(history, "a", ToolCall("search", {"query": "x"}), ToolCall("pay", {"order": 7}), "Done.")
    run(history, "b", ToolCall("search", {"query": "x"}), "Done.")
    assert changes(compare_runs(history, "a", "b")) == [("same", "search", "search"), ("removed", "pay", None)]


def test_a_difference_beyond_the_preview_is_a_difference(history):
    for run_id in "ab":
        text = "x" * 5000 + run_id
        history.emit_all(
            [
                CallStarted("t", "c", {}, run_id=run_id),
                CallFinished("t", "c", "success", ToolResult.success(text), {}, run_id=run_id),
            ]
        )
    assert changes(compare_runs(history, "a", "b")) == [("changed", "t", "t")]


def test_runs_of_thousands_of_calls_are_aligned_by_their_order(history):
    for run_id, shift in (("a", 0), ("b", 1)):
        events = []
        for index in range(600 + shift):
            name = "pay" if (index + shift) % 3 else "search"
            events.append(CallStarted(name, f"{index}", {"i": index}, run_id=run_id))
        history.emit_all(events)
    found = compare_runs(history, "a", "b")
    assert {each.change for each in found.pairs} == {"same", "added", "removed"}
    assert sum(each.first is not None for each in found.pairs) == 600
    assert sum(each.second is not None for each in found.pairs) == 601
    assert compare_runs(history, "a", "b", max_calls=10).is_cut


def test_an_agent_inside_a_call_does_not_count_as_the_run(history):
    for run_id, text in (("a", "one"), ("b", "two")):
        inner = Agent(ScriptedModel([text]), [])
        model = ScriptedModel([ToolCall("ask", {"input": text}), "Done."])
        Agent(model, [inner.as_tool("ask", "Ask.")], sinks=[history]).run_sync("Go.", run_id=run_id)
    found = compare_runs(history, "a", "b")
    assert (found.prompt, found.answer, changes(found)) == ((), (), [("changed", "ask", "ask")])


def test_an_unknown_run_is_refused(history):
    run(history, "a", "Done.")
    with pytest.raises(LookupError, match="the history has no run 'b'"):
        compare_runs(history, "a", "b")


def test_a_call_that_has_not_ended_is_compared_by_its_arguments(history):
    history.emit_all([CallStarted("pay", "c", {"order": 1}, run_id="a"), CallStarted("pay", "c", "x", run_id="b")])
    found = compare_runs(history, "a", "b")
    diff = diff_calls(history, found.pairs[0])
    assert diff.text == ()
    assert diff.arguments[-1] == DiffLine("+", "x")
    history.forget(0)
    assert diff_calls(history, Pair("changed", found.pairs[0].first, None)).text == ()


def test_equal_texts_have_no_lines():
    assert diff_texts("a", "a") == ()
    assert diff_texts("", "a") == (DiffLine("+", "a"),)
    assert len(diff_texts("x\n" * 9000, "y" * 9000)) == 2001
