"""The events of calls, for every way in which a call can be made and can end."""

import asyncio
import contextvars
import gc

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
    fan_out,
    tool,
)
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
from toolsemble.observers.watchers import mute, tell, unwatch, watch
from toolsemble.review import AutoApprove, AutoReject, Continue, Edit, ExitEarly
from toolsemble.testing import CallbackReview, ScriptedModel


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


class Told:
    """A sink that stores events, in the thread of the call."""

    inline = True

    def __init__(self):
        self.events = []

    def emit(self, event):
        self.events.append(event)


@pytest.fixture
def told():
    return Told()


def kinds(told):
    return [(event.kind, event.tool_name) for event in told.events]


def test_a_call_emits_events_from_start_to_end(told):
    box = Toolbox([add], sinks=[told], agent_role="clerk", memory_id="ada")
    box.execute(ToolCall("add", {"a": 2, "b": 3}, "c1"), run_id="r1")
    assert told.events == [
        CallStarted("add", "c1", {"a": 2, "b": 3}),
        CallFinished("add", "c1", "success", ToolResult.success("5", 5)),
    ]
    for event in told.events:
        assert (event.run_id, event.agent_role, event.memory_id, event.parent_id) == ("r1", "clerk", "ada", "")
    started, finished = told.events
    assert started.at <= finished.at
    assert finished.duration >= 0
    assert finished.arguments == {"a": 2, "b": 3}
    assert finished.text == "5"


def test_defaults_and_repairs_are_in_the_events(told):
    Toolbox([add], sinks=[told]).execute(ToolCall("add", {"a": "2"}, "c1"))
    repairs = ({"step": "coerce", "path": "a", "from": "2", "to": 2},)
    assert told.events[:2] == [CallStarted("add", "c1", {"a": 2, "b": 1}), CallRepaired("add", "c1", repairs)]


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"a": 1', '{"a": 1'), ({"a": []}, '{"a":[]}'), ({}, "{}")], ids=["cut", "misfit", "empty"]
)
def test_invalid_arguments_are_in_the_events_unchanged(told, arguments, text):
    Toolbox([add], sinks=[told]).execute(ToolCall("add", arguments, "c1"))
    started, finished = told.events
    assert (started.arguments, finished.arguments, finished.outcome) == (text, text, "failure")


def test_events_of_an_unknown_tool_do_not_use_its_name(told):
    Toolbox([add], sinks=[told]).execute(ToolCall("ad", "{}", "c1"))
    assert kinds(told) == [("call_started", "(unknown)"), ("call_finished", "(unknown)")]


def test_an_exception_is_in_the_event_with_its_class(told):
    def fail(_):
        raise KeyError("city")

    Toolbox([Function(fail)], sinks=[told]).execute(ToolCall("function", {"input": "x"}, "c1"))
    expected = CallFinished(
        "function", "c1", "error", ToolResult.failure("'city'"), error_type="KeyError", error="'city'"
    )
    assert told.events[-1] == expected


@pytest.mark.parametrize("error", [ExitEarlyError("enough"), ToolConfigurationError("no region"), KeyboardInterrupt()])
def test_an_exception_for_the_caller_has_an_event_without_a_result(told, error):
    def fail(_):
        raise error

    with pytest.raises(type(error)):
        Toolbox([Function(fail)], sinks=[told]).execute(ToolCall("function", {"input": "x"}, "c1"))
    finished = told.events[-1]
    assert (finished.outcome, finished.result, finished.error_type) == ("error", None, type(error).__name__)
    assert finished.text.startswith(type(error).__name__)


async def test_a_cancelled_call_emits_its_end(told):
    running = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        running.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(Toolbox([wait], sinks=[told]).aexecute(ToolCall("wait", "{}", "c1")))
    await asyncio.wait_for(running.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(event.kind, getattr(event, "error_type", None)) for event in told.events] == [
        ("call_started", None),
        ("call_finished", "CancelledError"),
    ]


def test_steps_of_a_pipeline_are_calls_inside_the_call(told):
    line = ToolPipeline("line", "Repeats its input twice", [Echo(), Function(str.upper, "shout")])
    Toolbox([line], sinks=[told]).execute(ToolCall("line", {"input": "x"}, "c1"))
    assert [(event.kind, event.tool_name, event.call_id, event.parent_id) for event in told.events] == [
        ("call_started", "line", "c1", ""),
        ("call_started", "echo", "c1.1", "c1"),
        ("call_finished", "echo", "c1.1", "c1"),
        ("call_started", "shout", "c1.2", "c1"),
        ("call_finished", "shout", "c1.2", "c1"),
        ("call_finished", "line", "c1", ""),
    ]
    assert told.events[3].arguments == "x"


def test_branches_emit_events(told):
    both = fan_out(Echo(), Function(str.upper, "shout"), name="both")
    Toolbox([both], sinks=[told]).execute(ToolCall("both", {"input": "x"}, "c1"))
    assert sorted(kinds(told)[1:-1]) == [
        ("call_finished", "echo"),
        ("call_finished", "shout"),
        ("call_started", "echo"),
        ("call_started", "shout"),
    ]


def test_nested_calls_emit_events_with_their_parent(told):
    class Outer(Tool):
        name = "outer"
        description = "Uses another tool"

        def run(self, input):
            return Echo().execute(input)

    Toolbox([Outer()], sinks=[told]).execute(ToolCall("outer", {"input": "x"}, "c1"))
    assert [(event.tool_name, event.parent_id) for event in told.events] == [
        ("outer", ""),
        ("echo", "c1"),
        ("echo", "c1"),
        ("outer", ""),
    ]


def test_a_toolbox_inside_a_tool_tells_its_own_sinks_and_those_around_it(told):
    inner = Told()

    class Outer(Tool):
        name = "outer"
        description = "Uses another box"

        def run(self, input):
            box = Toolbox([Echo()], sinks=[inner, told])
            return box.execute(ToolCall("echo", {"input": input}, "c2")).text

    Toolbox([Outer()], sinks=[told]).execute(ToolCall("outer", {"input": "x"}, "c1"))
    assert kinds(inner) == [("call_started", "echo"), ("call_finished", "echo")]
    assert kinds(told) == [
        ("call_started", "outer"),
        ("call_started", "echo"),
        ("call_finished", "echo"),
        ("call_finished", "outer"),
    ]
    assert inner.events[0].parent_id == "c1"


def test_reviews_emit_events_in_order(told):
    Toolbox([delete], review=AutoApprove(), sinks=[told]).execute(ToolCall("delete", {"path": "a"}, "c1"), run_id="r1")
    assert [event.kind for event in told.events] == [
        "call_started",
        "review_requested",
        "review_decided",
        "call_finished",
    ]
    asked, decided = told.events[1:3]
    assert (type(asked), type(decided), decided.decision) == (ReviewRequested, ReviewDecided, Continue())
    for event in (asked, decided):
        assert (event.tool_name, event.call_id, event.run_id, event.agent_role) == ("delete", "c1", "r1", "unknown")
    assert asked.at == asked.request.asked_at <= decided.at


def test_a_rejected_call_emits_a_failure(told):
    Toolbox([delete], review=AutoReject("no"), sinks=[told]).execute(ToolCall("delete", {"path": "a"}, "c1"))
    assert told.events[-1] == CallFinished("delete", "c1", "failure", ToolResult.failure("Rejected by reviewer: no"))
    assert told.events[-2].decision == ExitEarly("no")


def test_the_end_of_an_edited_call_has_the_edited_arguments(told):
    review = CallbackReview(lambda request: Edit('{"path": "b"}') if request.arguments["path"] == "a" else Continue())
    Toolbox([delete], review=review, sinks=[told]).execute(ToolCall("delete", {"path": "a"}, "c1"))
    assert (told.events[0].arguments, told.events[-1].arguments) == ({"path": "a"}, {"path": "b"})


def test_an_input_that_cannot_be_shown_loses_only_its_arguments(told, caplog):
    class Odd:
        @classmethod
        def __get_pydantic_core_schema__(cls, source, handler):
            return core_schema.no_info_after_validator_function(lambda _: cls(), core_schema.str_schema())

        def __str__(self):
            raise ValueError("no")

    @tool
    def odd(value: Odd) -> str:
        """Take what nobody can show."""
        return "ran"

    assert Toolbox([odd], sinks=[told]).execute(ToolCall("odd", {"value": "x"}, "c1")).text == "ran"
    assert told.events == [
        CallStarted("odd", "c1"),
        CallFinished("odd", "c1", "success", ToolResult.success("ran")),
    ]
    assert "An event of a call of 'odd' was lost" in caplog.text


def test_a_watcher_that_raises_does_not_fail_the_call(caplog):
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


def test_watchers_can_be_switched_off():
    seen = []
    token = mute()
    inner = watch(seen.append)
    tell("a")
    unwatch(inner)
    unwatch(token)
    assert seen == []


def test_a_watch_that_ends_in_another_context_undoes_nothing():
    unwatch(contextvars.copy_context().run(watch, print))
    tell("nobody hears this")


def test_a_dropped_call_emits_its_end(told):
    @tool
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(60)

    box = Toolbox([wait])

    async def drop():
        token = watch(told.emit)
        call = box.aexecute(ToolCall("wait", "{}", "c1"))
        call.send(None)
        unwatch(token)
        token = watch(told.emit)
        call.close()
        unwatch(token)

    asyncio.run(drop())
    gc.collect()
    assert [event.kind for event in told.events] == ["call_started", "call_finished"]


def test_progress_events_have_the_run_id(told):
    @tool
    def scrape(context: ToolContext) -> str:
        """Read pages."""
        context.progress(0.4, "page 4 of 10")
        return "all"

    Toolbox([scrape], sinks=[told]).execute(ToolCall("scrape", "{}", "c1"), run_id="r1")
    assert told.events[1] == CallProgress("scrape", "c1", 0.4, "page 4 of 10")
    assert told.events[1].run_id == "r1"


@pytest.mark.parametrize(
    ("said", "counts"),
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
def test_a_wrong_estimate_of_progress_is_put_right(told, said, counts):
    @tool
    def scrape(context: ToolContext) -> str:
        """Read pages."""
        context.progress(said)
        return "all"

    reply = Toolbox([scrape], sinks=[told]).execute(ToolCall("scrape", "{}", "c1"))
    assert (reply.text, told.events[1]) == ("all", CallProgress("scrape", "c1", counts, ""))


def test_other_layers_tell_events_by_their_context(told):
    token = watch(told.emit)
    tell(CallRetried.of(ToolContext("search", "c1", run_id="r1"), attempt=1, wait=0.5, error="refused"))
    unwatch(token)
    assert told.events == [CallRetried("search", "c1", 1, 0.5, "refused")]
    assert told.events[0].run_id == "r1"


class TestAgents:
    def agent(self, tools, **settings):
        return Agent(ScriptedModel([ToolCall(tools[0].name, {"input": "x"}, "c1"), "done"]), tools, **settings)

    def test_the_sinks_of_an_agent_are_told_of_its_calls(self, told):
        result = self.agent([Echo()], sinks=[told]).run_sync("go")
        assert kinds(told) == [
            ("run_started", ""),
            ("model_replied", ""),
            ("call_started", "echo"),
            ("call_finished", "echo"),
            ("model_replied", ""),
            ("run_finished", ""),
        ]
        assert {event.run_id for event in told.events} == {result.run_id}

    def test_an_agent_with_a_toolbox_tells_the_sinks_of_both_once(self, told):
        other = Told()
        model = ScriptedModel([ToolCall("echo", {"input": "x"}, "c1"), "done"])
        Agent(model, Toolbox([Echo()], sinks=[other, told]), sinks=[told]).run_sync("go")
        assert kinds(other) == [("call_started", "echo"), ("call_finished", "echo")]
        assert [kind for kind in kinds(told) if kind[1]] == kinds(other)

    def test_calls_of_an_agent_inside_another_one_have_the_outer_call_as_parent(self, told):
        inner = self.agent([Echo()]).as_tool("inner", "Does it")
        model = ScriptedModel([ToolCall("inner", {"input": "x"}, "c0"), "done"])
        Agent(model, [inner], sinks=[told]).run_sync("go")
        assert [(event.kind, event.tool_name, event.parent_id) for event in told.events] == [
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

    async def test_a_stream_has_the_calls_inside_of_calls_and_does_not_double_the_others(self):
        line = ToolPipeline("line", "Repeats its input", [Echo()])
        seen = [event async for event in self.agent([line]).stream("go") if hasattr(event, "tool_name")]
        assert seen == [
            CallStarted("echo", "c1.1", "x"),
            CallFinished("echo", "c1.1", "success", ToolResult.success("x")),
        ]

    async def test_a_stream_tells_of_repairs_between_request_and_reply(self):
        model = ScriptedModel([ToolCall("add", {"a": "2"}, "c1"), "done"])
        events = [event async for event in Agent(model, [add]).stream("go")]
        found = [type(e) for e in events if isinstance(e, (CallRequested, CallRepaired, CallReplied, CallStarted))]
        assert found == [CallRequested, CallRepaired, CallReplied]

    def test_a_run_that_fails_has_told_its_calls(self, told):
        def fail(_):
            raise ToolConfigurationError("no region")

        with pytest.raises(ToolConfigurationError):
            self.agent([Function(fail)], sinks=[told]).run_sync("go")
        assert [event.error for event in told.events[-2:]] == ["no region", "no region"]

    def test_what_is_no_sink_is_refused(self):
        with pytest.raises(ValueError, match="Agent sinks must be a list of sinks, not"):
            Agent(ScriptedModel([]), sinks=print)

    def test_flushing_waits_for_the_sinks_of_an_agent(self):
        seen = []
        agent = self.agent([Echo()], sinks=[seen.append])
        agent.run_sync("go")
        assert agent.flush(30)
        assert len(seen) == 6
        assert self.agent([Echo()]).flush(30)


def test_a_failed_result_that_a_tool_gave_is_a_failure_and_one_that_it_raised_an_error(told):
    def fail(text):
        if text == "raise":
            raise ToolExecutionError("no such city")
        return ToolResult.failure("no such city")

    box = Toolbox([Function(fail)], sinks=[told])
    for text in ("give", "raise"):
        box.execute(ToolCall("function", {"input": text}))
    assert [event.outcome for event in told.events if event.kind == "call_finished"] == ["failure", "error"]
