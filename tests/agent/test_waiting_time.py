"""``max_seconds`` counts the time in which a run works, and not the time in which it waits for people."""

import asyncio
from contextlib import suppress

import pytest

from helpers.journal_runs import PAY, answer, clerk, do_until_parked, park, script
from helpers.wait import auntil
from toolsemble import Agent, RunParkedError, ToolCall, ToolContext, ToolPipeline, tool
from toolsemble.agent import ConversationMemory
from toolsemble.models import FunctionModel, ScriptedModel
from toolsemble.review import CallbackReview, Continue, PauseReview, QueueReview, ReviewStore

HOUR = 3600.0


@pytest.fixture
def store(tmp_path):
    with ReviewStore(tmp_path / "reviews.db") as made:
        yield made


def make_pay(left=None, **settings):
    """Return a tool that needs approval, and notes the seconds that it has left."""

    @tool(effects="irreversible", requires_approval=True, approval_timeout=24 * HOUR, **settings)
    async def pay(order: int, context: ToolContext) -> str:
        """Pay an order."""
        if left is not None and context.deadline is not None:
            left.append(context.deadline - asyncio.get_running_loop().time())
        return "paid"

    return pay


def ask_slowly(clock, seconds=HOUR, seen=None):
    """Return a reviewer that takes an hour."""

    def review(request):
        clock.advance(seconds)
        if seen is not None:
            seen.append(request.timeout)
        return Continue()

    return CallbackReview(review)


@pytest.mark.parametrize("journaled", [False, True])
async def test_waiting_for_a_person_takes_no_time_of_the_run(clock, tmp_path, journaled):
    seen, left = [], []
    with park(tmp_path, park_after=None) as runs:
        agent = clerk(
            runs if journaled else None,
            [make_pay(left)],
            PAY,
            PAY,
            "Done.",
            review=ask_slowly(clock, seen=seen),
            max_seconds=6,
        )
        result = await agent.run("Pay order 7", run_id="r1")
        assert (result.text, result.stop_reason) == ("Done.", "answer")
        assert (seen, left) == ([pytest.approx(24 * HOUR)] * 2, [pytest.approx(6)] * 2)
        if journaled:
            assert max(step.elapsed for step in runs.steps("r1")) < 6


@pytest.mark.parametrize("max_seconds", [6, None])
def test_a_parked_question_has_the_deadline_of_its_tool(tmp_path, store, max_seconds):
    with park(tmp_path) as runs:
        agent = clerk(runs, [make_pay()], PAY, "Done.", review=QueueReview(store, poll=0.01), max_seconds=max_seconds)
        do_until_parked(agent)
        (request,) = store.pending()
        assert request.deadline - request.asked_at == pytest.approx(24 * HOUR, abs=5)
        answer(store)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."


async def test_a_body_beside_a_question_takes_time_of_the_run(clock):
    asked, ended = asyncio.Event(), asyncio.Event()

    async def review(request):
        asked.set()
        await ended.wait()
        return Continue()

    @tool
    async def look() -> str:
        """Look."""
        await asked.wait()
        clock.advance(7)
        await asyncio.Event().wait()
        return "never"

    agent = Agent(
        script([PAY, ToolCall("look")], "Best."), [make_pay(), look], review=CallbackReview(review), max_seconds=6
    )
    result = await agent.run("Pay order 7")
    assert (result.text, result.stop_reason) == ("Best.", "max_seconds")


async def test_when_all_calls_of_a_turn_wait_no_time_passes(clock):
    asked, free = [], asyncio.Event()

    async def review(request):
        asked.append(request)
        await free.wait()
        return Continue()

    agent = Agent(script([PAY, PAY], "Done."), [make_pay()], review=CallbackReview(review), max_seconds=6)
    running = asyncio.create_task(agent.run("Pay order 7"))
    await auntil(lambda: len(asked) == 2)
    clock.advance(HOUR)
    await asyncio.sleep(0)
    free.set()
    assert (await running).stop_reason == "answer"


@pytest.mark.parametrize("kind", ["agent", "pipeline", "body", "during"])
async def test_waiting_inside_a_call_takes_no_time_of_the_run_around_it(clock, kind):
    inner = Agent(script(PAY, "Paid."), [make_pay()], review=ask_slowly(clock), max_seconds=5)

    @tool
    async def ask(input: str) -> str:
        """Ask an agent."""
        return (await inner.run(input)).text

    @tool(requires_approval=True, approval_timeout=24 * HOUR)
    def read(input: str) -> str:
        """Read."""
        return input

    @tool(name="ask")
    async def during(input: str, context: ToolContext) -> str:
        """Ask during the call."""
        await context.arequest_approval("Really?", timeout=24 * HOUR)
        return "asked"

    tools = {
        "agent": inner.as_tool("ask", "Asks"),
        "pipeline": ToolPipeline("ask", "Asks", [read]),
        "body": ask,
        "during": during,
    }
    call = ToolCall("ask", {"input": "Pay order 7"})
    agent = Agent(script(call, call, "Done."), [tools[kind]], review=ask_slowly(clock), max_seconds=6)
    result = await agent.run("go")
    assert (result.text, result.stop_reason) == ("Done.", "answer")
    assert [record.reply.is_error for record in result.tool_calls] == [False, False]


async def test_the_timeout_of_a_tool_still_bounds_its_own_questions(clock):
    @tool(timeout=5)
    async def ask(context: ToolContext) -> str:
        """Ask during the call."""
        seen.append((await context.arequest_approval("Really?", timeout=24 * HOUR)).reason)
        return "asked"

    seen = []

    async def review(request):
        clock.advance(request.timeout + 1)
        await asyncio.Event().wait()

    agent = Agent(script(ToolCall("ask"), "Done."), [ask], review=CallbackReview(review), max_seconds=600)
    result = await agent.run("go")
    assert (result.text, result.tool_calls[0].reply.is_error) == ("Done.", True)


def test_the_time_of_a_pause_and_of_the_question_before_it_do_not_count(clock):
    agent = Agent(script(PAY, "Done."), [make_pay()], review=PauseReview(), max_seconds=6)
    paused = agent.run_sync("Pay order 7")
    clock.advance(HOUR)
    result = agent.run_sync(paused.paused, decisions={paused.pending[0].request.id: Continue()})
    assert (result.text, paused.paused.seconds < 6) == ("Done.", True)


async def test_a_model_that_takes_too_long_is_still_stopped(clock):
    async def reply(messages):
        clock.advance(7)
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([PAY, reply, "Best."]), [make_pay()], review=ask_slowly(clock), max_seconds=6)
    assert (await agent.run("Pay order 7")).stop_reason == "max_seconds"


@pytest.mark.parametrize("replies_before", [0, 1])
async def test_the_time_before_a_journaled_run_begins_to_work_does_not_count(clock, tmp_path, replies_before):
    begun, claimed = asyncio.Event(), asyncio.Event()

    def make_deps(run):
        clock.advance(HOUR)
        claimed.set()

    async def take_an_hour(request):
        begun.set()
        await claimed.wait()
        clock.advance(HOUR)
        return "Hello."

    settings = {"memory": ConversationMemory(), "memory_id": "ada"}
    with park(tmp_path) as runs, ReviewStore(tmp_path / "reviews.db") as store:
        settings_here = {"review": QueueReview(store, poll=0.01), "make_deps": make_deps, "max_seconds": 6, **settings}
        replies = ["Hello."] * replies_before
        agent = clerk(runs, [make_pay()], *replies, PAY, "Done.", **settings_here)
        if replies_before:  # by a run that holds the conversation for an hour
            before = asyncio.create_task(Agent(FunctionModel(take_an_hour), **settings).run("Hello"))
            await begun.wait()
        with pytest.raises(RunParkedError):
            await agent.run("Pay order 7", run_id="r1")
        if replies_before:
            assert (await before).text == "Hello."
        answer(store)
        assert (await agent.run("Pay order 7", run_id="r1")).stop_reason == "answer"
        assert max(step.elapsed for step in runs.steps("r1")) < 6


def test_the_time_of_an_agent_inside_counts_over_every_resume(clock, tmp_path):
    @tool(effects="read")
    def work(order: int) -> str:
        """Work for four seconds."""
        clock.advance(4)
        return "worked"

    turn = [ToolCall("work", {"order": 7}), PAY]

    def build():
        inner = Agent(script(turn, turn, "Done."), [work, make_pay()], max_seconds=6).as_tool("ask", "Asks")
        return clerk(runs, [inner], ToolCall("ask", {"input": "Pay"}), "Done.", review=QueueReview(store, poll=0.01))

    with park(tmp_path) as runs, ReviewStore(tmp_path / "reviews.db") as store:
        do_until_parked(build())
        answer(store)
        with suppress(RunParkedError):  # the second question may be asked before the time is over
            build().run_sync("Pay order 7", run_id="r1")
        answer(store)
        result = build().run_sync("Pay order 7", run_id="r1")
    assert result.tool_calls[0].reply.result.attributes["stop_reason"] == "max_seconds"
