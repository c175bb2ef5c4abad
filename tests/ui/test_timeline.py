"""Timelines: rows in the order of a tree, on an axis whose waits are folded."""

from itertools import pairwise

import pytest

from toolsemble import Agent, Toolbox, ToolCall, ToolPipeline, tool
from toolsemble._ui.timeline import build_timeline, fold_waits, locate, place_ticks
from toolsemble.events import (
    CallFinished,
    CallStarted,
    ModelReplied,
    ReviewDecided,
    ReviewRequested,
    RunFinished,
    RunStarted,
)
from toolsemble.models import AssistantMessage
from toolsemble.review import Continue, ReviewRequest
from toolsemble.telemetry import RunHistory
from toolsemble.testing import ScriptedModel


@pytest.fixture
def history(tmp_path):
    with RunHistory(tmp_path / "history.db") as made:
        yield made


def call(name, started, ended, *, parent="", asked=None, answered=None):
    """Return the events of a call, and of a question about it."""
    ids = {"run_id": "r1", "parent_id": parent}
    events = [CallStarted(name, name, {}, at=started, **ids)]
    if asked is not None:
        request = ReviewRequest("", name, {}, call_id=name, run_id="r1", id=f"q {name}", asked_at=asked)
        events += [ReviewRequested(request)]
        events += [] if answered is None else [ReviewDecided(request, Continue(), at=answered)]
    return [*events, *([] if ended is None else [CallFinished(name, name, "success", at=ended, **ids)])]


def reply(at, seconds, turn):
    return ModelReplied(AssistantMessage(""), turn, "m", duration=seconds, run_id="r1", at=at)


def test_long_waits_are_folded(history):
    history.emit_all(
        [
            RunStarted("m", run_id="r1", at=0.0),
            reply(2.0, 2.0, 1),
            *call("pay", 2.0, 7806.0, asked=3.0, answered=7803.0),
            reply(7808.0, 2.0, 2),
            RunFinished("answer", run_id="r1", at=7808.0),
        ]
    )
    timeline = build_timeline(history, "r1")
    assert [(each.kind, each.name, each.level) for each in timeline.rows] == [
        ("turn", "m", 0),
        ("call", "pay", 0),
        ("turn", "m", 0),
    ]
    assert [(each.seconds, each.is_folded, each.is_review) for each in timeline.segments] == [
        (3.0, False, False),
        (7800.0, True, True),
        (5.0, False, False),
    ]
    first, pay, last = timeline.rows
    assert first.start == 0.0
    assert last.end == pytest.approx(1.0)
    assert pay.waits == ((timeline.segments[1].start, timeline.segments[1].end),)
    assert pay.end - pay.start == pytest.approx((1 - 0.03) * 4 / 8 + 0.03)
    assert not timeline.is_cut


def test_a_run_that_waits_is_drawn_until_now(history):
    history.emit_all([RunStarted("m", run_id="r1", at=0.0), reply(1.0, 1.0, 1), *call("pay", 1.0, None, asked=2.0)])
    timeline = build_timeline(history, "r1", now=1000.0)
    assert timeline.segments[-1].ended == 1000.0
    assert timeline.segments[-1].is_review
    assert timeline.rows[-1].ended is None
    assert timeline.rows[-1].end == 1.0
    assert build_timeline(history, "r1").segments[-1].ended == 2.0


def test_calls_are_inside_their_enclosing_calls(history):
    @tool
    def up(text: str) -> str:
        """Write in capitals."""
        return text.upper()

    @tool
    def cut(text: str) -> str:
        """Cut."""
        return text[:2]

    pipeline = ToolPipeline("both", "Both.", [up, cut])
    inner = Agent(ScriptedModel([ToolCall("both", {"text": "abc"}), "AB"]), [pipeline], role="clerk")
    outer = Agent(
        ScriptedModel([ToolCall("ask", {"input": "x"}), "ok"]), [inner.as_tool("ask", "Ask.")], sinks=[history]
    )
    outer.run_sync("Go.", run_id="r1")
    rows = build_timeline(history, "r1").rows
    assert [(each.level, each.kind, each.name) for each in rows] == [
        (0, "turn", "ScriptedModel"),
        (0, "call", "ask"),
        (1, "agent", "clerk"),
        (2, "turn", "ScriptedModel"),
        (2, "call", "both"),
        (3, "call", "up"),
        (3, "call", "cut"),
        (2, "turn", "ScriptedModel"),
        (0, "turn", "ScriptedModel"),
    ]


def test_a_call_inside_an_unrecorded_call_is_shown(history):
    history.emit_all(call("a", 0.0, 1.0, parent="elsewhere"))
    assert [(each.name, each.level) for each in build_timeline(history, "r1").rows] == [("a", 0)]
    assert build_timeline(history, "r2").rows == ()


def test_calls_inside_a_duplicate_id_are_shown_once(history):
    history.emit_all([*call("a", 0.0, 1.0), *call("b", 0.0, 1.0, parent="a"), *call("a", 1.0, 2.0)])
    assert [each.name for each in build_timeline(history, "r1").rows] == ["a", "b", "a"]


def test_an_agent_without_a_role_has_the_name_of_its_model(history):
    history.emit_all([*call("ask", 0.0, None), RunStarted("small", run_id="r1", parent_id="ask", at=0.5)])
    assert [each.name for each in build_timeline(history, "r1").rows] == ["ask", "small"]


def test_a_long_run_is_cut(history):
    @tool
    def x() -> str:
        """X."""
        return "x"

    box = Toolbox([x], sinks=[history])
    for _ in range(3):
        box.execute(ToolCall("x"), run_id="r1")
    timeline = build_timeline(history, "r1", max_rows=2)
    assert (len(timeline.rows), timeline.is_cut) == (2, True)


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        ([], [(100.0, True)]),
        ([(0.0, 100.0)], [(100.0, False)]),
        ([(0.0, 30.0), (20.0, 60.0), (61.0, 100.0)], [(100.0, False)]),
        ([(40.0, 60.0), (5.0, 5.0)], [(40.0, True), (20.0, False), (40.0, True)]),
        ([(-50.0, 10.0), (90.0, 500.0)], [(10.0, False), (80.0, True), (10.0, False)]),
    ],
)
def test_what_is_folded_is_what_nothing_is_done_in(busy, expected):
    segments = fold_waits(busy, [], 0.0, 100.0)
    assert [(each.seconds, each.is_folded) for each in segments] == expected
    assert segments[0].start == 0.0
    assert segments[-1].end == pytest.approx(1.0)
    assert not any(each.is_review for each in segments)


def test_an_axis_without_time_has_no_places():
    assert fold_waits([], [], 5.0, 5.0) == ()
    assert locate((), 3.0) == 0.0
    (segment,) = fold_waits([(0.0, 1.0)], [], 0.0, 1.0)
    assert (locate([segment], -9.0), locate([segment], 9.0)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("busy", "ended", "expected"),
    [
        ([(0.0, 1.0)], 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ([(0.0, 0.009)], 0.009, [0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009]),
        ([(0.0, 40.0)], 40.0, [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]),
        ([(0.0, 1.0), (3601.0, 3602.0)], 3602.0, [0.0, 0.5, 1.0, 3601.5, 3602.0]),
        ([(0.0, 100.0), (3700.0, 3701.0)], 3701.0, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]),
        ([], 100.0, []),
    ],
)
def test_ticks_are_round_and_leave_room_for_their_labels(busy, ended, expected):
    ticks = place_ticks(fold_waits(busy, [], 0.0, ended))
    assert [seconds for _, seconds in ticks] == pytest.approx(expected)
    places = [place for place, _ in ticks]
    assert all(second - first >= 0.1 for first, second in pairwise(places))
