"""Journaled runs and their deps: made in any process, left with the run, and missing without harm."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from typing import Annotated

import pytest

from helpers.journal_runs import PAY, Killed, answer, clerk, do_until_parked, kill, park
from helpers.wait import auntil
from toolsemble import (
    AgentExecutionError,
    ConversationMemory,
    MemoryId,
    RunInterruptedError,
    RunJournal,
    RunParkedError,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    tool,
)
from toolsemble.review import QueueReview


class Shop:
    """The deps of runs, which count how often they are opened and closed."""

    def __init__(self, name="mine"):
        self.name = name
        self.log = []

    @contextmanager
    def open(self, run):
        self.log.append(f"open {run.run_id}")
        try:
            yield self
        except BaseException as error:
            self.log.append(type(error).__name__)
            raise
        finally:
            self.log.append(f"close {run.run_id}")

    @asynccontextmanager
    async def open_async(self, run):
        with self.open(run):
            yield self


@tool
def find_order(context: ToolContext[Shop]) -> str:
    """Say in which shop the order is."""
    return context.deps.name


FIND = ToolCall("find_order")


def list_states(runs):
    return {run.run_id: (run.state, run.error) for run in runs.list()}


def fail(run):
    raise ConnectionError("no database")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["open", "open_async"])
async def test_the_deps_of_an_agent_are_made_in_the_process_that_continues_a_run(runs, kind):
    shop = Shop()
    with pytest.raises(Killed):
        await clerk(runs, [find_order], FIND, Killed, make_deps=getattr(Shop(), kind)).run("Find it", run_id="r1")
    agent = clerk(None, [find_order], FIND, FIND, "Done.", make_deps=getattr(shop, kind))
    await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
    assert (runs.find("r1").text, shop.log) == ("Done.", ["open r1", "close r1"])


async def test_deps_of_a_worker_come_before_the_agents(runs):
    agent = clerk(runs, [find_order], FIND, "Done.", deps=Shop("the agent's"))
    runs.begin("r1", "clerk", "Find it")
    await runs.work({"clerk": agent}, until_idle=True, deps=Shop("the worker's"))
    runs.begin("r2", "clerk", "Find it")
    await runs.work({"clerk": agent}, until_idle=True)
    await agent.run("Find it", run_id="r3", deps=Shop("the run's"))
    found = [
        next(step.data["output"] for step in runs.steps(each) if step.kind == "call") for each in ("r1", "r2", "r3")
    ]
    assert found == ["the worker's", "the agent's", "the run's"]


def test_a_run_that_parks_closes_its_deps_as_if_it_had_ended_and_opens_them_again(tmp_path, store):
    @tool(requires_approval=True, approval_timeout=None)
    def pay(order: int, context: ToolContext[Shop]) -> str:
        """Pay an order."""
        return f"paid {order} in {context.deps.name}"

    shop = Shop()
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01), make_deps=shop.open)
        do_until_parked(agent)
        assert shop.log == ["open r1", "close r1"]
        answer(store)
        result = agent.run_sync("Pay order 7", run_id="r1")
    assert (result.tool_calls[0].reply.text, shop.log) == ("paid 7 in mine", ["open r1", "close r1"] * 2)


async def test_a_run_that_is_interrupted_closes_its_deps_as_if_it_had_ended(runs):
    shop = Shop()

    @tool
    def stop(context: ToolContext[Shop]) -> str:
        """Let the process stop."""
        runs.drain()
        return "stopping"

    with pytest.raises(RunInterruptedError):
        await clerk(runs, [stop], ToolCall("stop"), "Done.", make_deps=shop.open).run("Stop", run_id="r1")
    assert (list_states(runs), shop.log) == ({"r1": ("queued", "")}, ["open r1", "close r1"])


def test_a_finished_run_makes_no_deps(runs):
    shop = Shop()
    agent = clerk(runs, [find_order], FIND, "Done.", make_deps=shop.open)
    agent.run_sync("Find it", run_id="r1")
    assert agent.run_sync("Find it", run_id="r1").text == "Done."
    assert shop.log == ["open r1", "close r1"]


@tool
def greet(user: Annotated[str, MemoryId]) -> str:
    """Greet the user."""
    return f"hello {user}"


@tool(requires_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


LACKING = [
    ({}, [find_order], "Find it", "has no deps"),
    ({"deps_type": Shop}, [], "Find it", "has no deps"),
    ({"make_deps": lambda run: 3, "deps_type": Shop}, [], "Find it", "must be a Shop, not an int"),
    ({}, lambda run: [find_order], "Find it", "has no deps"),
    ({}, [greet], "Find it", "has no memory_id"),
    ({}, [], " ", "There is nothing to answer"),
    ({}, [pay], "Find it", "requires approval"),
]


@pytest.mark.parametrize(("settings", "tools", "prompt", "message"), LACKING)
def test_a_new_run_that_lacks_something_is_not_recorded(runs, settings, tools, prompt, message):
    with pytest.raises(ToolConfigurationError, match=message):
        clerk(runs, tools, "Done.", **settings).run_sync(prompt, run_id="r1")
    assert (runs.list(), runs.steps("r1")) == ([], [])


def test_a_new_run_without_a_prompt_is_not_recorded_with_a_memory_either(runs):
    agent = clerk(runs, [], "Done.", memory=ConversationMemory(), memory_id="ada")
    with pytest.raises(ToolConfigurationError, match="There is nothing to answer"):
        agent.run_sync("", run_id="r1")
    assert runs.list() == []
    assert agent.run_sync("Hello", run_id="r1").text == "Done."


def test_a_new_run_whose_deps_cannot_be_made_is_not_recorded(runs):
    with pytest.raises(AgentExecutionError, match="make_deps failed: ConnectionError: no database"):
        clerk(runs, [find_order], "Done.", make_deps=fail).run_sync("Find it", run_id="r1")
    assert runs.list() == []


def test_a_run_whose_model_fails_stays_recorded(runs):
    with pytest.raises(AgentExecutionError, match="no credit"):
        clerk(runs, [], RuntimeError("no credit"), deps=Shop()).run_sync("Find it", run_id="r1")
    assert list_states(runs) == {"r1": ("failed", "no credit")}


@pytest.mark.parametrize("settings", [{}, {"make_deps": fail}])
def test_a_recorded_run_keeps_its_state_and_its_calls(runs, settings):
    kill(clerk(runs, [find_order], FIND, Killed), deps=Shop())
    before, steps = runs.find("r1"), runs.steps("r1")
    agent = clerk(runs, [find_order], FIND, "Done.", **settings)
    with pytest.raises((ToolConfigurationError, AgentExecutionError), match=r"no deps|no database"):
        agent.run_sync("Refund order 7", run_id="r1")
    assert (runs.find("r1"), runs.steps("r1")) == (before, steps)
    assert agent.run_sync("Refund order 7", run_id="r1", deps=Shop()).text == "Done."


def test_a_failed_run_that_is_resumed_without_deps_stays_as_it_was(runs):
    with pytest.raises(AgentExecutionError):
        clerk(runs, [find_order], RuntimeError("no credit")).run_sync("Find it", run_id="r1", deps=Shop())
    before = runs.find("r1")
    agent = clerk(None, [find_order], "Done.")
    with pytest.raises(ToolConfigurationError, match="has no deps"):
        asyncio.run(runs.resume("r1", agent))
    assert runs.find("r1") == before
    assert asyncio.run(runs.resume("r1", agent, deps=Shop())).text == "Done."


def test_a_waiting_run_keeps_its_question(tmp_path, store):
    @tool(requires_approval=True, approval_timeout=None)
    def pay(order: int, context: ToolContext[Shop]) -> str:
        """Pay an order."""
        return f"paid {order}"

    with park(tmp_path) as runs:
        settings = {"review": QueueReview(store, poll=0.01)}
        with pytest.raises(RunParkedError):
            clerk(runs, [pay], PAY, "Done.", **settings).run_sync("Pay order 7", run_id="r1", deps=Shop())
        before = runs.find("r1")
        answer(store)
        with pytest.raises(AgentExecutionError, match="no database"):
            clerk(runs, [pay], PAY, "Done.", make_deps=fail, **settings).run_sync("Pay order 7", run_id="r1")
        assert runs.find("r1") == before
        result = clerk(runs, [pay], PAY, "Done.", deps=Shop(), **settings).run_sync("Pay order 7", run_id="r1")
    assert result.tool_calls[0].reply.text == "paid 7"


class TestWorker:
    @pytest.mark.parametrize(
        ("settings", "deps", "message"),
        [
            ({}, None, "Agent 'clerk': Tool 'find_order' needs deps (ToolContext[Shop]); pass deps=…"),
            ({"deps_type": Shop}, 3, "The deps of this agent must be a Shop, not an int"),
        ],
    )
    async def test_refuses_to_start_if_an_agent_would_lack_its_deps(self, runs, settings, deps, message):
        runs.begin("r1", "clerk", "Find it")
        before = runs.find("r1")
        agents = {
            "poet": clerk(None, [], "Roses", deps=Shop()),
            "clerk": clerk(None, [find_order], "Done.", **settings),
        }
        with pytest.raises(ToolConfigurationError) as raised:
            await runs.work(agents, until_idle=True, deps=deps)
        assert (str(raised.value), runs.find("r1")) == (message, before)

    async def test_leaves_runs_whose_deps_cannot_be_made_and_does_the_others(self, runs, caplog):
        def make(run):
            return fail(run) if run.run_id == "r1" else Shop()

        with pytest.raises(Killed):
            await clerk(runs, [find_order], FIND, Killed).run("Find it", run_id="r1", deps=Shop())
        before, steps = runs.find("r1"), runs.steps("r1")
        runs.begin("r2", "clerk", "Find it")
        agent = clerk(None, [find_order], FIND, "Done.", make_deps=make)
        await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
        assert (runs.find("r1"), runs.steps("r1"), runs.find("r2").state) == (before, steps, "done")
        logged = [record for record in caplog.records if "r1" in record.getMessage()]
        assert [(each.levelname, each.getMessage(), each.exc_info) for each in logged] == [
            ("WARNING", "Run 'r1' stays running: make_deps failed: ConnectionError: no database", None)
        ]
        await runs.work({"clerk": agent}, until_idle=True, poll=0.01, deps=Shop())
        assert runs.find("r1").state == "done"

    async def test_tries_again_after_pauses_that_grow_and_logs_it_once(self, tmp_path, clock, caplog):
        tried = []

        def make(run):
            tried.append(clock.monotonic())
            return fail(run) if len(tried) < 5 else Shop()

        with RunJournal(tmp_path / "runs.db") as runs:
            runs.begin("r1", "clerk", "Find it")
            agent = clerk(None, [find_order], FIND, "Done.", make_deps=make)
            task = asyncio.create_task(runs.work({"clerk": agent}, poll=0.5))
            with clock.running():
                await auntil(lambda: list_states(runs)["r1"][0] == "done")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        pauses = [after - before for before, after in pairwise(tried)]
        assert all(pause >= least for pause, least in zip(pauses, (1, 2, 4, 8), strict=True))
        assert sum("stays queued" in record.getMessage() for record in caplog.records) == 1

    async def test_tries_again_at_once_when_the_run_has_changed(self, tmp_path, clock):
        tried = []

        def make(run):
            tried.append(run.run_id)
            return fail(run)

        with RunJournal(tmp_path / "runs.db") as runs:
            runs.begin("r1", "clerk", "Find it")
            task = asyncio.create_task(runs.work({"clerk": clerk(None, [], "Done.", make_deps=make)}, poll=0.01))
            await auntil(lambda: len(tried) == 1 and list_states(runs)["r1"][0] == "queued")
            with pytest.raises(Killed):  # in another process, which has the deps
                await clerk(runs, [], Killed).run("Find it", run_id="r1")
            before = clock.monotonic()
            await auntil(lambda: clock.advance(0.001) or len(tried) == 2)
            assert clock.monotonic() - before < 1  # less than the pause
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
