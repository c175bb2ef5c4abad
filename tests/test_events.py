"""The events of calls, for every way in which a call can be made and can end."""

import asyncio
import contextvars
import gc
from typing import get_args

import pytest
from pydantic_core import core_schema

from helpers.sample_tools import Echo, Function
from toolsemble import (
    Agent,
    ExitEarlyError,
    Tool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolExecutionError,
    ToolPipeline,
    ToolResult,
    events,
    fan_out,
    tool,
)
from toolsemble._runtime.watchers import mute, tell, unwatch, watch
from toolsemble.agent import CallReplied, CallRequested
from toolsemble.events import (
    CallFinished,
    CallProgress,
    CallRepaired,
    CallRetried,
    CallStarted,
    ReviewDecided,
    ReviewRequested,
)
from toolsemble.review import AutoApprove, AutoReject, Continue, Edit, ExitEarly
from toolsemble.telemetry import _console
from toolsemble.testing import CallbackReview, ScriptedModel


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


class ListSink:
    """A sink that stores events, in the thread of the call."""

    inline = True

    def __init__(self):
        self.events = []

    def emit(self, event):
        self.events.append(event)


@pytest.fixture
def sink():
    return ListSink()


def event_kinds(sink):
    return [(event.kind, event.tool_name) for event in sink.events]


def test_call_emits_start_and_end(sink):
    box = Toolbox([add], sinks=[sink], agent_role="clerk", memory_id="ada")
    box.execute(ToolCall("add", {"a": 2, "b": 3}, "c1"), run_id="r1")
    assert sink.events == [
        CallStarted("add", "c1", {"a": 2, "b": 3}),
        CallFinished("add", "c1", "success", ToolResult.success("5", 5)),
    ]
    for event in sink.events:
        assert (event.run_id, event.agent_role, event.memory_id, event.parent_id) == ("r1", "clerk", "ada", "")
    started, finished = sink.events
    assert started.at <= finished.at
    assert finished.duration >= 0
    assert finished.arguments == {"a": 2, "b": 3}
    assert finished.text == "5"


def test_defaults_and_repairs_are_in_the_events(sink):
    Toolbox([add], sinks=[sink]).execute(ToolCall("add", {"a": "2"}, "c1"))
    repairs = ({"step": "coerce", "path": "a", "from": "2", "to": 2},)
    assert sink.events[:2] == [CallStarted("add", "c1", {"a": 2, "b": 1}), CallRepaired("add", "c1", repairs)]


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"a": 1', '{"a": 1'), ({"a": []}, '{"a":[]}'), ({}, "{}")], ids=["cut", "misfit", "empty"]
)
def test_invalid_arguments_are_in_the_events_unchanged(sink, arguments, text):
    Toolbox([add], sinks=[sink]).execute(ToolCall("add", arguments, "c1"))
    started, finished = sink.events
    assert (started.arguments, finished.arguments, finished.outcome) == (text, text, "failure")


def test_events_of_an_unknown_tool_do_not_use_its_name(sink):
    Toolbox([add], sinks=[sink]).execute(ToolCall("ad", "{}", "c1"))
    assert event_kinds(sink) == [("call_started", "(unknown)"), ("call_finished", "(unknown)")]


def test_event_has_the_class_of_the_exception(sink):
    def fail(_):
        raise KeyError("city")

    Toolbox([Function(fail)], sinks=[sink]).execute(ToolCall("function", {"input": "x"}, "c1"))
    expected = CallFinished(
        "function", "c1", "error", ToolResult.failure("KeyError: 'city'"), error_type="KeyError", error="'city'"
    )
    assert sink.events[-1] == expected


@pytest.mark.parametrize("error", [ExitEarlyError("enough"), ToolConfigurationError("no region"), KeyboardInterrupt()])
def test_exception_for_the_caller_has_an_event_without_a_result(sink, error):
    def fail(_):
        raise error

    with pytest.raises(type(error)):
        Toolbox([Function(fail)], sinks=[sink]).execute(ToolCall("function", {"input": "x"}, "c1"))
    finished = sink.events[-1]
    assert (finished.outcome, finished.result, finished.error_type) == ("error", None, type(error).__name__)
    assert finished.text.startswith(type(error).__name__)


async def test_cancelled_call_emits_its_end(sink):
    running = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        running.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(Toolbox([wait], sinks=[sink]).aexecute(ToolCall("wait", "{}", "c1")))
    await asyncio.wait_for(running.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(event.kind, getattr(event, "error_type", None)) for event in sink.events] == [
        ("call_started", None),
        ("call_finished", "CancelledError"),
    ]


def test_pipeline_steps_emit_events_with_their_parent(sink):
    line = ToolPipeline("line", "Repeats its input twice", [Echo(), Function(str.upper, "shout")])
    Toolbox([line], sinks=[sink]).execute(ToolCall("line", {"input": "x"}, "c1"))
    assert [(event.kind, event.tool_name, event.call_id, event.parent_id) for event in sink.events] == [
        ("call_started", "line", "c1", ""),
        ("call_started", "echo", "c1.1", "c1"),
        ("call_finished", "echo", "c1.1", "c1"),
        ("call_started", "shout", "c1.2", "c1"),
        ("call_finished", "shout", "c1.2", "c1"),
        ("call_finished", "line", "c1", ""),
    ]
    assert sink.events[3].arguments == "x"


def test_branches_emit_events(sink):
    both = fan_out(Echo(), Function(str.upper, "shout"), name="both")
    Toolbox([both], sinks=[sink]).execute(ToolCall("both", {"input": "x"}, "c1"))
    assert sorted(event_kinds(sink)[1:-1]) == [
        ("call_finished", "echo"),
        ("call_finished", "shout"),
        ("call_started", "echo"),
        ("call_started", "shout"),
    ]


def test_nested_calls_emit_events_with_their_parent(sink):
    class Outer(Tool):
        name = "outer"
        description = "Uses another tool"

        def run(self, input):
            return Echo().execute(input)

    Toolbox([Outer()], sinks=[sink]).execute(ToolCall("outer", {"input": "x"}, "c1"))
    assert [(event.tool_name, event.parent_id) for event in sink.events] == [
        ("outer", ""),
        ("echo", "c1"),
        ("echo", "c1"),
        ("outer", ""),
    ]


def test_nested_toolbox_emits_to_its_own_and_outer_sinks(sink):
    inner = ListSink()

    class Outer(Tool):
        name = "outer"
        description = "Uses another box"

        def run(self, input):
            box = Toolbox([Echo()], sinks=[inner, sink])
            return box.execute(ToolCall("echo", {"input": input}, "c2")).text

    Toolbox([Outer()], sinks=[sink]).execute(ToolCall("outer", {"input": "x"}, "c1"))
    assert event_kinds(inner) == [("call_started", "echo"), ("call_finished", "echo")]
    assert event_kinds(sink) == [
        ("call_started", "outer"),
        ("call_started", "echo"),
        ("call_finished", "echo"),
        ("call_finished", "outer"),
    ]
    assert inner.events[0].parent_id == "c1"


def test_reviews_emit_events_in_order(sink):
    Toolbox([delete], review=AutoApprove(), sinks=[sink]).execute(ToolCall("delete", {"path": "a"}, "c1"), run_id="r1")
    assert [event.kind for event in sink.events] == [
        "call_started",
        "review_requested",
        "review_decided",
        "call_finished",
    ]
    asked, decided = sink.events[1:3]
    assert (type(asked), type(decided), decided.decision) == (ReviewRequested, ReviewDecided, Continue())
    for event in (asked, decided):
        assert (event.tool_name, event.call_id, event.run_id, event.agent_role) == ("delete", "c1", "r1", "unknown")
    assert asked.at == asked.request.asked_at <= decided.at


def test_rejected_call_emits_a_failure(sink):
    Toolbox([delete], review=AutoReject("no"), sinks=[sink]).execute(ToolCall("delete", {"path": "a"}, "c1"))
    assert sink.events[-1] == CallFinished("delete", "c1", "failure", ToolResult.failure("Rejected by reviewer: no"))
    assert sink.events[-2].decision == ExitEarly("no")


def test_finished_event_has_the_edited_arguments(sink):
    review = CallbackReview(lambda request: Edit('{"path": "b"}') if request.arguments["path"] == "a" else Continue())
    Toolbox([delete], review=review, sinks=[sink]).execute(ToolCall("delete", {"path": "a"}, "c1"))
    assert (sink.events[0].arguments, sink.events[-1].arguments) == ({"path": "a"}, {"path": "b"})


def test_event_of_an_opaque_input_has_no_arguments(sink, caplog):
    class Odd:
        @classmethod
        def __get_pydantic_core_schema__(cls, source, handler):
            return core_schema.no_info_after_validator_function(lambda _: cls(), core_schema.str_schema())

        def __str__(self):
            raise ValueError("no")

    @tool
    def odd(value: Odd) -> str:
        """Take what cannot be shown."""
        return "ran"

    assert Toolbox([odd], sinks=[sink]).execute(ToolCall("odd", {"value": "x"}, "c1")).text == "ran"
    assert sink.events == [
        CallStarted("odd", "c1"),
        CallFinished("odd", "c1", "success", ToolResult.success("ran")),
    ]
    assert "An event of a call of 'odd' was lost" in caplog.text


def test_raising_watcher_does_not_fail_the_call(caplog):
    def refuse(event):
        raise ValueError("no")

    token = watch(refuse)
    try:
        assert Echo().execute("x").output == "x"
    finally:
        unwatch(token)
    assert caplog.text.count("An event of a call of 'echo' was lost") == 2


def test_each_watcher_receives_each_event_once_and_in_order():
    seen = []
    first, second = (lambda event: seen.append(("first", event))), (lambda event: seen.append(("second", event)))
    outer = watch(first, first)
    inner = watch(second, first)
    tell("a")
    unwatch(inner)
    tell("b")
    unwatch(outer)
    tell("c")
    assert seen == [("first", "a"), ("second", "a"), ("first", "b")]


def test_unwatch_stops_events():
    seen = []
    token = mute()
    inner = watch(seen.append)
    tell("a")
    unwatch(inner)
    unwatch(token)
    assert seen == []


def test_unwatch_in_another_context_does_nothing():
    unwatch(contextvars.copy_context().run(watch, print))
    tell("not watched")


def test_dropped_call_emits_its_end(sink):
    @tool
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(60)

    box = Toolbox([wait])

    async def drop():
        token = watch(sink.emit)
        call = box.aexecute(ToolCall("wait", "{}", "c1"))
        call.send(None)
        unwatch(token)
        token = watch(sink.emit)
        call.close()
        unwatch(token)

    asyncio.run(drop())
    gc.collect()
    assert [event.kind for event in sink.events] == ["call_started", "call_finished"]


def test_progress_events_have_the_run_id(sink):
    @tool
    def scrape(context: ToolContext) -> str:
        """Read pages."""
        context.progress(0.4, "page 4 of 10")
        return "all"

    Toolbox([scrape], sinks=[sink]).execute(ToolCall("scrape", "{}", "c1"), run_id="r1")
    assert sink.events[1] == CallProgress("scrape", "c1", 0.4, "page 4 of 10")
    assert sink.events[1].run_id == "r1"


@pytest.mark.parametrize(
    ("progress", "counts"),
    [
        (0.4, 0.4),
        (0, 0),
        (1, 1),
        (-3, 0),
        (1.7, 1),
        (float("inf"), 1),
        (float("nan"), None),
        (None, None),
        ("half", None),
        ([], None),
        (10**400, None),
    ],
)
def test_invalid_progress_is_corrected(sink, progress, counts):
    @tool
    def scrape(context: ToolContext) -> str:
        """Read pages."""
        context.progress(progress)
        return "all"

    reply = Toolbox([scrape], sinks=[sink]).execute(ToolCall("scrape", "{}", "c1"))
    assert (reply.text, sink.events[1]) == ("all", CallProgress("scrape", "c1", counts, ""))


def test_events_take_ids_from_their_context(sink):
    token = watch(sink.emit)
    tell(CallRetried.of(ToolContext("search", "c1", run_id="r1"), attempt=1, wait=0.5, error="refused"))
    unwatch(token)
    assert sink.events == [CallRetried("search", "c1", 1, 0.5, "refused")]
    assert sink.events[0].run_id == "r1"


class TestAgents:
    def agent(self, tools, **settings):
        return Agent(ScriptedModel([ToolCall(tools[0].name, {"input": "x"}, "c1"), "done"]), tools, **settings)

    def test_agent_sinks_receive_events_of_its_runs_and_calls(self, sink):
        result = self.agent([Echo()], sinks=[sink]).run_sync("go")
        assert event_kinds(sink) == [
            ("run_started", ""),
            ("model_replied", ""),
            ("call_started", "echo"),
            ("call_finished", "echo"),
            ("model_replied", ""),
            ("run_finished", ""),
        ]
        assert {event.run_id for event in sink.events} == {result.run_id}

    def test_sinks_of_agent_and_toolbox_receive_events_once(self, sink):
        other = ListSink()
        model = ScriptedModel([ToolCall("echo", {"input": "x"}, "c1"), "done"])
        Agent(model, Toolbox([Echo()], sinks=[other, sink]), sinks=[sink]).run_sync("go")
        assert event_kinds(other) == [("call_started", "echo"), ("call_finished", "echo")]
        assert [kind for kind in event_kinds(sink) if kind[1]] == event_kinds(other)

    def test_calls_of_a_nested_agent_have_the_outer_call_as_parent(self, sink):
        inner = self.agent([Echo()]).as_tool("inner", "Does it")
        model = ScriptedModel([ToolCall("inner", {"input": "x"}, "c0"), "done"])
        Agent(model, [inner], sinks=[sink]).run_sync("go")
        assert [(event.kind, event.tool_name, event.parent_id) for event in sink.events] == [
            ("run_started", "", ""),
            ("model_replied", "", ""),
            ("call_started", "inner", ""),
            ("run_started", "", "c0"),
            ("model_replied", "", "c0"),
            ("call_started", "echo", "c0"),
            ("call_finished", "echo", "c0"),
            ("model_replied", "", "c0"),
            ("run_finished", "", "c0"),
            ("call_finished", "inner", ""),
            ("model_replied", "", ""),
            ("run_finished", "", ""),
        ]

    async def test_stream_includes_nested_calls_once(self):
        line = ToolPipeline("line", "Repeats its input", [Echo()])
        seen = [event async for event in self.agent([line]).stream("go") if hasattr(event, "tool_name")]
        assert seen == [
            CallStarted("echo", "c1.1", "x"),
            CallFinished("echo", "c1.1", "success", ToolResult.success("x")),
        ]

    async def test_stream_includes_repairs(self):
        model = ScriptedModel([ToolCall("add", {"a": "2"}, "c1"), "done"])
        events = [event async for event in Agent(model, [add]).stream("go")]
        found = [type(e) for e in events if isinstance(e, (CallRequested, CallRepaired, CallReplied, CallStarted))]
        assert found == [CallRequested, CallRepaired, CallReplied]

    def test_failed_run_emits_its_calls(self, sink):
        def fail(_):
            raise ToolConfigurationError("no region")

        with pytest.raises(ToolConfigurationError):
            self.agent([Function(fail)], sinks=[sink]).run_sync("go")
        assert [event.error for event in sink.events[-2:]] == ["no region", "no region"]

    def test_rejects_invalid_sink(self):
        with pytest.raises(ValueError, match="Agent sinks must be a list of sinks, not"):
            Agent(ScriptedModel([]), sinks=print)

    def test_flush_waits_for_agent_sinks(self):
        seen = []
        agent = self.agent([Echo()], sinks=[seen.append])
        agent.run_sync("go")
        assert agent.flush(30)
        assert len(seen) == 6
        assert self.agent([Echo()]).flush(30)


def test_returned_failure_is_a_failure_and_raised_one_an_error(sink):
    def fail(text):
        if text == "raise":
            raise ToolExecutionError("no such city")
        return ToolResult.failure("no such city")

    box = Toolbox([Function(fail)], sinks=[sink])
    for text in ("give", "raise"):
        box.execute(ToolCall("function", {"input": text}))
    assert [event.outcome for event in sink.events if event.kind == "call_finished"] == ["failure", "error"]


def test_every_event_is_in_the_union_and_described_on_the_console():
    public = [getattr(events, name) for name in events.__all__]
    kinds = {each.kind for each in public if isinstance(each, type) and hasattr(each, "kind")}
    assert {each.kind for each in get_args(events.Event)} == kinds, "add it to the union Event in events.py"
    assert _console._DESCRIPTIONS.keys() == kinds, "describe it in telemetry/_console.py"
