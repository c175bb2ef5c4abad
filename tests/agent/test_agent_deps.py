"""The deps of runs: where they come from, what is entered and left with a run, and which type they must have."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NewType, Protocol, TypedDict

import pytest

from toolsemble import (
    Agent,
    AgentExecutionError,
    Continue,
    RunJournal,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from toolsemble.agent import RunView, Usage
from toolsemble.models import UserMessage
from toolsemble.review import PauseReview
from toolsemble.telemetry import RunHistory
from toolsemble.testing import ScriptedModel


@dataclass
class Shop:
    name: str = "mine"


@tool
def find_order(context: ToolContext[Shop]) -> str:
    """Say in which shop the order is."""
    return context.deps.name


def make_agent(*replies, tools=(find_order,), **settings):
    return Agent(ScriptedModel(list(replies) or [ToolCall("find_order"), "Done."]), tools, **settings)


def found(result):
    return [record.reply.text for record in result.tool_calls]


def make(run: RunView) -> Shop:
    return Shop("made")


async def make_async(run: RunView) -> Shop:
    return Shop("made async")


@contextmanager
def manage(run: RunView) -> Iterator[Shop]:
    yield Shop("managed")


@asynccontextmanager
async def manage_async(run: RunView) -> AsyncIterator[Shop]:
    yield Shop("managed async")


class Maker:
    def __call__(self, run):
        return Shop("of an object")

    def method(self, run):
        return Shop("of a method")


SOURCES = [
    ({"deps": Shop("fixed")}, "fixed"),
    ({"make_deps": make}, "made"),
    ({"make_deps": make_async}, "made async"),
    ({"make_deps": manage}, "managed"),
    ({"make_deps": manage_async}, "managed async"),
    ({"make_deps": lambda run: manage(run=run)}, "managed"),
    ({"make_deps": lambda run: make_async(run=run)}, "made async"),
    ({"make_deps": partial(manage_async)}, "managed async"),
    ({"make_deps": Maker()}, "of an object"),
    ({"make_deps": Maker().method}, "of a method"),
    ({"make_deps": make, "deps_type": Shop}, "made"),
]


@pytest.mark.parametrize(("settings", "name"), SOURCES)
async def test_a_run_without_deps_has_its_agents_deps(settings, name):
    assert found(await make_agent(**settings).run("go")) == [name]
    assert found(await make_agent(**settings).run("go", deps=Shop("given"))) == ["given"]
    assert found(make_agent(**settings).run_sync("go")) == [name]


async def test_streams_and_iterations_have_the_deps_of_their_agent():
    events = [event async for event in make_agent(make_deps=manage_async).stream("go")]
    assert found(events[-1].result) == ["managed async"]
    events = [event async for event in make_agent(deps=Shop()).iterate("go")]
    assert found(events[-1].result) == ["mine"]


class Recorder:
    """Context managers that record when they are entered and left, and with which exception."""

    def __init__(self):
        self.events = []

    @contextmanager
    def sync(self, run):
        self.events.append("enter")
        try:
            yield Shop()
        except BaseException as error:
            self.events.append(type(error).__name__)
            raise
        finally:
            self.events.append("leave")

    @asynccontextmanager
    async def async_(self, run):
        with self.sync(run) as shop:
            yield shop
            await asyncio.sleep(0)


@pytest.fixture(params=["sync", "async_"])
def recorder(request):
    made = Recorder()
    made.make_deps = getattr(made, request.param)
    return made


async def test_a_context_manager_is_entered_and_left_with_each_run(recorder):
    agent = make_agent("One.", "Two.", tools=(), make_deps=recorder.make_deps)
    await agent.run("go")
    assert recorder.events == ["enter", "leave"]
    await agent.run("go")
    assert recorder.events == ["enter", "leave"] * 2


async def test_a_context_manager_sees_the_error_that_ends_its_run(recorder):
    with pytest.raises(AgentExecutionError) as raised:
        await make_agent(RuntimeError("no model"), tools=(), make_deps=recorder.make_deps).run("go")
    assert "no model" in str(raised.value)
    assert recorder.events == ["enter", "AgentExecutionError", "leave"]


async def test_a_context_manager_that_swallows_the_error_does_not_end_the_run_well():
    @contextmanager
    def swallow(run):
        with suppress(Exception):
            yield Shop()

    with pytest.raises(AgentExecutionError, match="no model"):
        await make_agent(RuntimeError("no model"), tools=(), make_deps=swallow).run("go")


async def test_a_context_manager_is_left_when_its_run_is_cancelled(recorder):
    started = asyncio.Event()

    @tool
    async def wait(context: ToolContext[Shop]) -> None:
        """Wait for ever."""
        started.set()
        await asyncio.Event().wait()

    agent = make_agent(ToolCall("wait"), "Done.", tools=[wait], make_deps=recorder.make_deps)
    task = asyncio.create_task(agent.run("go"))
    await asyncio.wait_for(started.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recorder.events == ["enter", "CancelledError", "leave"]


async def test_a_context_manager_is_left_when_the_consumer_of_a_stream_stops(recorder):
    agent = make_agent("A long answer.", tools=(), make_deps=recorder.make_deps)
    async with aclosing(agent.stream("go")) as events:
        async for _ in events:
            break
    assert recorder.events == ["enter", "CancelledError", "leave"]


async def test_a_run_that_is_cancelled_while_its_deps_are_made_leaves_what_was_entered():
    entered, go_on, events = threading.Event(), threading.Event(), []

    @contextmanager
    def manage_slowly(run):
        entered.set()
        go_on.wait(10)
        try:
            yield Shop()
        finally:
            events.append("left")

    task = asyncio.create_task(make_agent(make_deps=manage_slowly).run("go"))
    await asyncio.to_thread(entered.wait, 10)
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert (events, raised.value.partial.stop_reason) == (["left"], "cancelled")


async def test_a_run_that_pauses_leaves_its_context_manager_and_enters_it_again_when_it_continues(recorder):
    @tool(requires_approval=True)
    def pay(context: ToolContext[Shop]) -> str:
        """Pay."""
        return f"paid {context.deps.name}"

    agent = make_agent(ToolCall("pay"), "Done.", tools=[pay], make_deps=recorder.make_deps, review=PauseReview())
    paused = (await agent.run("go")).paused
    assert recorder.events == ["enter", "leave"]
    result = await agent.run(paused, decisions={paused.pending[0].id: Continue()})
    assert (found(result), recorder.events) == (["paid mine"], ["enter", "leave"] * 2)


@contextmanager
def refuse_to_commit(run: RunView) -> Iterator[Shop]:
    yield Shop()
    raise OSError("the commit was refused")


@pytest.mark.parametrize("has_journal", [False, True])
async def test_sinks_are_told_that_a_run_failed_because_its_deps_could_not_be_left(tmp_path, has_journal):
    history, journal = RunHistory(tmp_path / "history.db"), RunJournal(tmp_path / "runs.db") if has_journal else None
    agent = make_agent(make_deps=refuse_to_commit, sinks=[history], journal=journal, name="clerk")
    with pytest.raises(AgentExecutionError, match="make_deps failed: OSError: the commit was refused") as failed:
        await agent.run("Where?", run_id="r1")
    told = history.run("r1")
    assert told is not None
    assert (told.state, told.stop_reason, told.answer) == ("failed", "error", "")
    assert told.error.endswith(str(failed.value))
    assert found(failed.value.partial) == ["mine"]


async def test_a_paused_run_is_not_lost_if_its_deps_cannot_be_left(caplog):
    @tool(requires_approval=True)
    def pay(context: ToolContext[Shop]) -> str:
        """Pay."""
        return context.deps.name

    agent = make_agent(ToolCall("pay"), tools=[pay], make_deps=refuse_to_commit, review=PauseReview())
    result = await agent.run("Pay")
    assert (result.stop_reason, [each.call.name for each in result.pending]) == ("paused", ["pay"])
    assert "make_deps failed at the end of a run: the commit was refused" in caplog.text


async def test_what_is_sync_does_not_block_the_event_loop_and_keeps_its_context_variables():
    variable, threads = ContextVar("variable", default="before"), []

    @contextmanager
    def manage_variable(run):
        threads.append(threading.current_thread())
        token = variable.set("inside")
        yield Shop()
        threads.append(threading.current_thread())
        assert variable.get() == "inside"
        variable.reset(token)

    @tool
    async def look(context: ToolContext[Shop]) -> str:
        """Return the variable."""
        return variable.get()

    result = await make_agent(ToolCall("look"), "Done.", tools=[look], make_deps=manage_variable).run("go")
    assert found(result) == ["before"]
    assert threading.main_thread() not in threads
    assert len(threads) == 2


async def test_an_async_context_manager_runs_in_the_task_of_its_run():
    variable, tasks = ContextVar("variable", default="before"), []

    @asynccontextmanager
    async def manage_variable(run):
        tasks.append(asyncio.current_task())
        variable.set("inside")
        yield Shop()
        tasks.append(asyncio.current_task())

    @tool
    async def look(context: ToolContext[Shop]) -> str:
        """Return the variable."""
        return variable.get()

    result = await make_agent(ToolCall("look"), "Done.", tools=[look], make_deps=manage_variable).run("go")
    assert (found(result), tasks) == (["inside"], [asyncio.current_task()] * 2)


async def test_the_view_for_make_deps_has_what_the_run_was_started_with():
    views = []
    agent = make_agent(make_deps=lambda run: views.append(run) or Shop(), role="a clerk", memory_id="ada")
    await agent.run("go", run_id="r1", parameters={"tenant": "t1"})
    (view,) = views
    assert (view.run_id, view.memory_id, dict(view.parameters)) == ("r1", "ada", {"tenant": "t1"})
    assert (view.usage, view.turn, view.deps, view.role) == (Usage(), 0, None, "a clerk")
    assert [message for message in view.messages if message.role != "system"] == [UserMessage("go")]
    assert view.question == UserMessage("go")


class Door:
    """An object that can be entered, and that is the deps itself."""

    def __init__(self):
        self.entered = 0

    def __enter__(self):
        self.entered += 1
        return self

    def __exit__(self, *_):
        self.entered += 1


async def test_only_what_a_decorator_of_contextlib_made_is_entered():
    door = Door()
    views = []
    agent = make_agent("Done.", tools=lambda run: views.append(run.deps) or [], make_deps=lambda run: door)
    await agent.run("go")
    assert (views, door.entered) == ([door], 0)


async def test_a_value_of_the_type_is_used_as_it_is():
    made = manage(None)
    views = []
    agent = make_agent(
        "Done.", tools=lambda run: views.append(run.deps) or [], make_deps=lambda run: made, deps_type=type(made)
    )
    await agent.run("go")
    assert views == [made]


class Named(Protocol):
    name: str


class Options(TypedDict):
    name: str


Number = NewType("Number", int)


@contextmanager
def manage_text(run) -> Iterator[str]:
    yield "a text"


@asynccontextmanager
async def manage_text_async(run) -> AsyncIterator[str]:
    yield "a text"


def make_text(run) -> Shop:
    return "a text"  # type: ignore[return-value]


@contextmanager
def manage_wrongly(run) -> Iterator[Shop]:
    yield "a text"


class Other:
    def __repr__(self):
        return "a password"


WRONG = [
    ({"deps_type": Shop}, "a text", "must be a Shop, not a str"),
    ({"deps_type": Shop | int}, "a text", "must be a Shop | int, not a str"),
    ({"deps_type": dict[str, int]}, [], r"must be a dict\[str, int\], not a list"),
    ({"deps_type": Options}, [], "must be an Options, not a list"),
    ({"deps_type": Number}, "a text", "must be a Number, not a str"),
    ({"deps_type": Shop}, Other(), "must be a Shop, not an Other$"),
    ({"make_deps": make}, 3, "must be a Shop, not an int"),
    ({"make_deps": manage_text}, 3, "must be a str, not an int"),
    ({"make_deps": partial(manage_text_async)}, 3, "must be a str, not an int"),
    ({"make_deps": Shop}, 3, "must be a Shop, not an int"),
    ({"make_deps": make_text}, None, "must be a Shop, not a str"),
    ({"make_deps": manage_wrongly}, None, "must be a Shop, not a str"),
    ({"make_deps": lambda run: None, "deps_type": Shop}, None, "must be a Shop, not None"),
]


@pytest.mark.parametrize(("settings", "deps", "message"), WRONG)
async def test_deps_of_another_type_end_a_run_before_the_model_is_asked(settings, deps, message):
    model = ScriptedModel(["Done."])
    with pytest.raises(ToolConfigurationError, match=message) as raised:
        await Agent(model, **settings).run("go", deps=deps)
    assert (model.requests, raised.value.partial.stop_reason) == ([], "configuration_error")


@pytest.mark.parametrize(
    ("kind", "deps"),
    [
        (Shop, Shop()),
        (Shop | None, None),
        (Any, 3),
        (object, 3),
        (Named, Shop()),
        (Options, {"name": "x"}),
        (Number, 3),
        (dict[str, int], {}),
    ],
)
async def test_deps_of_the_type_are_accepted(kind, deps):
    assert (await Agent(ScriptedModel(["Done."]), deps_type=kind).run("go", deps=deps)).text == "Done."


def test_deps_of_an_agent_are_checked_when_it_is_built():
    with pytest.raises(ToolConfigurationError, match="must be a Shop, not an int"):
        make_agent(deps=3, deps_type=Shop)
    with pytest.raises(ToolDefinitionError, match="deps or make_deps, not both"):
        make_agent(deps=Shop(), make_deps=make)
    for kind, given in (("Shop", "a str"), (Shop(), "a Shop"), (make, "a function")):
        with pytest.raises(ToolDefinitionError, match=f"deps_type must be a type, not {given}$"):
            make_agent(deps_type=kind)
    for called in (manage(None), manage_async(None)):
        with pytest.raises(ToolDefinitionError, match="not the context manager that it returns"):
            make_agent(make_deps=called)
    with pytest.raises(ToolDefinitionError, match="Agent make_deps must be a function of a RunView, not 3"):
        make_agent(make_deps=3)
    with pytest.raises(ToolDefinitionError, match="must take one argument, the RunView of its run"):
        make_agent(make_deps=lambda: 3)


@pytest.mark.parametrize("settings", [{"tools": [find_order]}, {"tools": [], "deps_type": Shop}])
async def test_a_run_without_the_deps_that_its_agent_needs_is_refused(settings):
    with pytest.raises(ToolConfigurationError, match="The run of this agent has no deps, but its"):
        await make_agent("Done.", **settings).run("go")


class TestMakeDepsThatFails:
    async def test_ends_the_run_before_the_model_is_asked(self):
        def fail(run):
            raise ConnectionError("no database")

        model = ScriptedModel(["Done."])
        with pytest.raises(AgentExecutionError) as raised:
            await Agent(model, make_deps=fail).run("go")
        assert str(raised.value) == "make_deps failed: ConnectionError: no database"
        assert isinstance(raised.value.__cause__, ConnectionError)
        assert (model.requests, raised.value.partial.stop_reason) == ([], "error")

    async def test_at_the_end_fails_the_run(self):
        @contextmanager
        def commit(run):
            yield Shop()
            raise ConnectionError("no commit")

        with pytest.raises(AgentExecutionError, match="make_deps failed: ConnectionError: no commit"):
            await make_agent(make_deps=commit).run("go")

    async def test_after_an_error_of_the_run_does_not_hide_it(self, caplog):
        @contextmanager
        def rollback(run):
            try:
                yield Shop()
            finally:
                raise ConnectionError("no rollback")

        with pytest.raises(AgentExecutionError, match="no model"):
            await make_agent(RuntimeError("no model"), make_deps=rollback).run("go")
        assert [record.getMessage() for record in caplog.records if record.name == "toolsemble.agent"] == [
            "make_deps failed at the end of a run: no rollback"
        ]


class TestNestedAgents:
    def nest(self, **settings):
        inner = make_agent(**settings).as_tool("clerk", "Finds orders")
        return make_agent(ToolCall("clerk", {"input": "go"}), "Done.", tools=[inner])

    async def test_an_agent_inside_inherits_the_deps_of_the_run_around_it(self):
        result = await self.nest().run("go", deps=Shop("outer"))
        assert found(result.tool_calls[0].reply.result.attributes["result"]) == ["outer"]

    @pytest.mark.parametrize(("settings", "name"), SOURCES[:5])
    async def test_an_agent_inside_uses_its_own_deps(self, settings, name):
        for outer in (None, Shop("outer")):
            result = await self.nest(**settings).run("go", deps=outer)
            assert found(result.tool_calls[0].reply.result.attributes["result"]) == [name]

    async def test_make_deps_of_an_agent_inside_sees_the_deps_around_it(self):
        result = await self.nest(make_deps=lambda run: Shop(f"inside {run.deps.name}")).run("go", deps=Shop("outer"))
        assert found(result.tool_calls[0].reply.result.attributes["result"]) == ["inside outer"]

    async def test_inherited_deps_must_have_the_type_of_the_agent_inside(self):
        with pytest.raises(ToolConfigurationError, match="must be a Shop, not a str"):
            await self.nest(deps_type=Shop).run("go", deps="a text")


def test_an_agent_can_be_subscripted_with_and_without_the_type_of_its_deps():
    assert Agent[Shop] == Agent[Shop, Any]
    assert Agent[Shop, int].__args__ == (Shop, int)

    class Clerk(Agent[str, Shop]):
        """An agent of one's own."""

    def takes(agent: Agent[Shop], other: Agent[str, Shop], clerk: Clerk) -> Agent: ...

    assert takes.__annotations__["agent"] == Agent[Shop, Any]
    with pytest.raises(TypeError, match="Too many"):
        Agent[str, int, int]
