"""The sink, reviewer and clock for tests, and layers around the calls of a toolbox."""

import asyncio
import datetime
import threading

import pytest

from helpers.sample_tools import AsyncEcho, Echo, call
from toolsemble import Continue, Edit, ExitEarly, Toolbox, ToolCall, ToolResult, tool
from toolsemble.events import CallFinished, CallProgress
from toolsemble.review import ReviewRequest
from toolsemble.testing import FakeReviewer, FixedClock, RecordingSink


@tool(requires_approval=True)
def delete(path: str) -> str:
    return f"deleted {path}"


DELETE = ToolCall("delete", {"path": "a.log"})


def test_recording_sink_has_all_events_when_the_call_ends():
    sink = RecordingSink()
    box = Toolbox([Echo(), delete], sinks=[sink], review=FakeReviewer())
    box.execute(call(id="c1"))
    box.execute(DELETE)
    assert sink.kinds == [
        "call_started",
        "call_finished",
        "call_started",
        "review_requested",
        "review_decided",
        "call_finished",
    ]
    assert sink.of("call_finished") == sink.of(CallFinished) == [sink.events[1], sink.events[5]]
    assert sink.of(CallFinished)[0] == CallFinished("echo", "c1", "success", ToolResult.success("hi"))
    sink.clear()
    assert (sink.events, sink.of("call_started")) == ([], [])


def test_recording_sink_waits_for_events_of_another_thread():
    sink = RecordingSink()
    event = CallProgress("scrape", "c1", 0.5)
    teller = threading.Timer(0.01, sink.emit, [event])
    teller.start()
    assert sink.wait(CallProgress, timeout=30) == sink.wait("call_progress") == [event]
    teller.join()


async def test_async_code_waits_for_events_in_a_thread():
    sink = RecordingSink()
    waiting = asyncio.create_task(asyncio.to_thread(sink.wait, "call_finished", 2, 30))
    await Toolbox([AsyncEcho()], sinks=[sink]).aexecute_all([call("async_echo"), call("async_echo")])
    assert [event.text for event in await waiting] == ["hi", "hi"]


def test_recording_sink_timeout_lists_the_recorded_events():
    sink = RecordingSink()
    Toolbox([Echo()], sinks=[sink]).execute(call())
    with pytest.raises(TimeoutError) as caught:
        sink.wait(CallFinished, 2, timeout=0.01)
    assert str(caught.value) == "1 of 2 events 'CallFinished' after 0.01 s; recorded: call_started, call_finished"


# answers, texts of three calls
REVIEWS = {
    "none: it agrees": ((), ["deleted a.log"] * 3),
    "the last one stays": (
        (Continue(), ExitEarly("no")),
        ["deleted a.log", "Error: Rejected by reviewer: no", "Error: Rejected by reviewer: no"],
    ),
    "an edit": ((Edit('{"path": "b.log"}'),), ["deleted b.log"] * 3),
    "a function": (
        (lambda request: ExitEarly(request.arguments["path"]),),
        ["Error: Rejected by reviewer: a.log"] * 3,
    ),
}


@pytest.mark.parametrize(("answers", "texts"), REVIEWS.values(), ids=REVIEWS)
def test_fake_reviewer_returns_its_answers_in_order(answers, texts):
    reviewer = FakeReviewer(*answers)
    box = Toolbox([delete], review=reviewer)
    assert [box.execute(DELETE).text for _ in range(3)] == texts
    assert [request.arguments for request in reviewer.requests] == [{"path": "a.log"}] * 3


@pytest.mark.parametrize("answer", [ValueError("no"), ValueError, "yes", None, Continue], ids=repr)
def test_invalid_answer_rejects_the_call(answer):
    reply = Toolbox([delete], review=FakeReviewer(answer)).execute(DELETE)
    assert reply.text.startswith("Error: Rejected by reviewer")


async def test_fake_reviewer_accepts_async_functions():
    async def decide(request: ReviewRequest):
        return ExitEarly(f"not {request.tool_name}")

    reply = await Toolbox([delete], review=FakeReviewer(decide)).aexecute(DELETE)
    assert reply.text == "Error: Rejected by reviewer: not delete"


def test_fixed_clock_moves_only_when_advanced():
    clock = FixedClock(datetime.datetime(2024, 2, 28, 23, tzinfo=datetime.UTC))
    assert clock() == clock() == datetime.datetime(2024, 2, 28, 23, tzinfo=datetime.UTC)
    clock.advance(hours=1, seconds=30)
    assert (str(clock), clock.time()) == ("2024-02-29T00:00:30+00:00", 1709164830.0)
    clock.advance(-30)
    clock.set("2024-02-29T00:00:00+01:00")
    assert repr(clock) == "FixedClock('2024-02-29T00:00:00+01:00')"


@pytest.mark.parametrize("now", ["2024-02-29T12:00:00", datetime.datetime(2024, 2, 29)])  # noqa: DTZ001 - what is refused
def test_fixed_clock_needs_a_time_zone(now):
    with pytest.raises(ValueError, match="FixedClock needs a time zone: write 2024-02-29T"):
        FixedClock(now)


def test_around_adds_outer_hooks():
    seen = []

    def hook(name, change=None):
        def before(call, context):
            seen.append(f"{name} before {call.arguments['input']}")
            return None if change is None else ToolCall("echo", {"input": change})

        def after(call, result, context):
            seen.append(f"{name} after {result.output}")
            return ToolResult.success(f"{result.output} {name}")

        return {"before_call": before, "after_call": after}

    box = Toolbox([Echo()], **hook("inner"))
    around = box.around(**hook("outer", "changed"))
    assert around.execute(call()).text == "changed inner outer"
    assert seen == ["outer before hi", "inner before changed", "inner after changed", "outer after changed inner"]
    assert box.execute(call()).text == "hi inner"


async def test_outer_hook_with_a_result_skips_the_inner_ones():
    seen = []

    async def answer(call, context):
        return ToolResult.success("from outside")

    box = Toolbox([Echo()], before_call=lambda call, context: seen.append(call)).around(before_call=answer)
    assert ((await box.aexecute(call())).text, seen) == ("from outside", [])


def test_inner_hook_can_return_a_result():
    box = Toolbox([Echo()], before_call=lambda call, context: ToolResult.success("inside"))
    assert box.around(after_call=lambda call, result, context: None).execute(call()).text == "inside"


def test_around_without_hooks_changes_nothing():
    box = Toolbox([Echo()])
    assert (box.around().execute(call()).text, box.around().names) == ("hi", ["echo"])
