"""The budgets of a run apply to nested agents."""

import asyncio
import contextvars
import threading
from functools import partial

import pytest

from helpers.agent_scripts import TOOLS, assert_valid, sum_of, told
from toolsemble import Agent, BudgetExceededError, Prices, ToolCall, tool
from toolsemble.agent._budget import Limits
from toolsemble.agent._run.spending import Admission, Spending
from toolsemble.models import ChatReply, ChatRequest, TokenUsage, ToolMessage, UserMessage
from toolsemble.testing import FunctionModel, ScriptedModel

pytestmark = pytest.mark.slow

WAIT = 60
HUNDRED, NO_TOKENS = TokenUsage(90, 10), TokenUsage()


def make_calls(number, name="inner"):
    return [ToolCall(name, {"input": str(place)}) for place in range(number)]


def make_outer_model(number, *, usage=NO_TOKENS):
    """Return a model that asks for agents once, and answers with their replies."""

    def say(request):
        return "done" if isinstance(request.messages[-1], ToolMessage) else make_calls(number)

    return FunctionModel(say, usage=usage)


class Slow:
    """A model that lets others go on before it answers, and knows how many were asked at the same time."""

    def __init__(self, usage=HUNDRED, text="inside"):
        self.usage, self.text = usage, text
        self.asked = self.now = self.most = 0

    async def reply(self, request):
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(20):
            await asyncio.sleep(0)
        self.now -= 1
        return ChatReply(self.text, usage=self.usage)

    async def stream(self, request):
        raise NotImplementedError
        yield


def inner(model, name="inner", **settings):
    return Agent(model, TOOLS, **settings).as_tool(name, "Does a part of the work")


async def by_run(agent):
    return await agent.run("go")


async def by_stream(agent):
    return [event async for event in agent.stream("go")][-1].result


def budget_error(limit):
    return f"Error: {limit} reached in the enclosing run, so this agent's model is not called"


BUDGETS = {
    "tokens": ({"max_tokens": 300}, "max_tokens", "Maximum tokens (300)", 3),
    "tokens that are not used up exactly": ({"max_tokens": 250}, "max_tokens", "Maximum tokens (250)", 3),
    "cost": ({"max_cost": 0.0003, "prices": Prices(1, 1)}, "max_cost", "Maximum cost (0.0003)", 3),
    "turns": ({"max_turns": 5}, "max_turns", "Maximum turns (5)", 4),
}


@pytest.mark.parametrize("way", [by_run, by_stream])
@pytest.mark.parametrize(("settings", "reason", "limit", "asked"), BUDGETS.values(), ids=BUDGETS)
async def test_concurrent_agents_exceed_budget_by_at_most_one_reply(way, settings, reason, limit, asked):
    model = Slow()
    agent = Agent(make_outer_model(200), [inner(model)], max_tool_calls=1000, **settings)
    result = await asyncio.wait_for(way(agent), WAIT)
    assert (result.text, result.stop_reason, model.asked) == ("done", reason, asked)
    assert result.usage.total_tokens == asked * 100
    assert told(result.messages) == ["inside"] * asked + [budget_error(limit)] * (200 - asked)
    assert_valid(result.messages)


async def test_concurrent_agents_share_call_budget():
    def say(request):
        return sum_of(1, 2) if request.tool_choice == "auto" else "best inside"

    agent = Agent(make_outer_model(200), [inner(FunctionModel(say), max_tool_calls=100)], max_tool_calls=40)
    result = await agent.run("go")
    assert (result.usage.tool_calls, result.stop_reason) == (40, "max_iterations")
    assert result.usage.model_calls <= 2 + 40 * 2


@pytest.mark.parametrize("settings", [{}, {"max_tokens": 1_000_000}, {"max_cost": 9, "prices": Prices(1, 1)}])
async def test_agents_within_budget_run_concurrently(settings):
    together = asyncio.Barrier(20)

    async def meet(request):
        await together.wait()
        return "inside"

    agent = Agent(make_outer_model(20), [inner(FunctionModel(meet, usage=HUNDRED))], **settings)
    result = await asyncio.wait_for(agent.run("go"), WAIT)
    assert told(result.messages) == ["inside"] * 20


@pytest.mark.parametrize("setting", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
async def test_reply_length_limit_allows_more_concurrent_agents(setting):
    limited, open_ended = Slow(), Slow()
    for model, settings in ((limited, {setting: 50}), (open_ended, {setting: "many"})):
        agent = Agent(make_outer_model(20), [inner(model, settings=settings)], max_tokens=2050)
        assert (await agent.run("go")).usage.total_tokens == 2000
    assert limited.most > open_ended.most == 1


async def test_longest_reply_limits_concurrent_requests():
    model = Slow()
    agent = Agent(make_outer_model(20, usage=TokenUsage(0, 30_000)), [inner(model)], max_tokens=100_000)
    result = await agent.run("go")
    assert (model.asked, model.most, result.stop_reason) == (20, 2, "answer")


async def test_cost_budget_applies_three_levels_down():
    model, prices = Slow(), Prices(1, 1)

    def level(number, worker):
        return Agent(make_outer_model(number), [worker], max_tool_calls=1000, prices=prices)

    second = level(10, inner(model)).as_tool("inner", "Asks others")
    top = Agent(make_outer_model(10), [second], max_tool_calls=1000, max_cost=0.00045, prices=prices)
    result = await asyncio.wait_for(top.run("go"), WAIT)
    assert (model.asked, result.stop_reason, result.text) == (5, "max_cost", "done")
    assert result.usage.cost == pytest.approx(0.0005)


async def test_budget_of_every_enclosing_run_applies():
    model = Slow()
    middle = Agent(make_outer_model(50), [inner(model)], max_tool_calls=1000, max_tokens=150).as_tool(
        "inner", "Asks others"
    )
    result = await asyncio.wait_for(
        Agent(make_outer_model(3), [middle], max_tool_calls=1000, max_tokens=10_000).run("go"), WAIT
    )
    assert (model.asked, result.stop_reason, told(result.messages)) == (6, "answer", ["done"] * 3)


async def test_final_answer_stays_within_enclosing_budget():
    def script():
        return ScriptedModel([sum_of(1, 2), sum_of(3, 4), "best"], usage=HUNDRED)

    answered = await Agent(make_outer_model(1), [inner(script(), max_tokens=150)], max_tokens=1000).run("go")
    assert (told(answered.messages), answered.stop_reason) == (["best"], "answer")
    failed = await Agent(make_outer_model(1), [inner(script(), max_tokens=150)], max_tokens=200).run("go")
    assert (told(failed.messages), failed.stop_reason) == ([budget_error("Maximum tokens (200)")], "max_tokens")


async def test_refused_model_call_reports_partial_result():
    seen = []
    worker = Agent(ScriptedModel([sum_of(1, 2), sum_of(3, 4), "never said"], usage=HUNDRED), TOOLS)

    @tool
    async def inner(input: str) -> str:
        try:
            await worker.run(input)
        except BudgetExceededError as error:
            seen.append(error)
            raise
        return "never"

    result = await Agent(make_outer_model(1), [inner], max_tokens=150).run("go")
    (error,) = seen
    assert (error.partial.stop_reason, len(told(error.partial.messages))) == ("max_tokens", 2)
    assert told(result.messages) == [f"Error: {error}"]
    assert told(error.partial.messages)[1].startswith("STOP: Maximum tokens (150) reached.")


def test_agents_in_other_threads_and_loops_share_budget_queue():
    worker = Agent(FunctionModel(lambda request: "inside", usage=HUNDRED))

    @tool
    def inner(input: str) -> str:
        return worker.run_sync(input).text

    result = Agent(make_outer_model(50), [inner], max_tool_calls=1000, max_tokens=1000).run_sync("go")
    assert sorted(told(result.messages)) == sorted([budget_error("Maximum tokens (1000)")] * 40 + ["inside"] * 10)
    assert result.usage.total_tokens == 1000


async def test_cancelled_waiter_leaves_queue():
    begun, release = asyncio.Event(), asyncio.Event()

    async def first(request):
        begun.set()
        await release.wait()
        return "first"

    @tool(timeout=0.2)
    async def hasty(input: str) -> str:
        try:
            return (await Agent(ScriptedModel(["never"])).run(input)).text
        finally:
            release.set()

    tools = [inner(FunctionModel(first, usage=HUNDRED), "first"), hasty, inner(Slow(text="last"), "last")]
    asked = [ToolCall(name, {"input": "x"}) for name in ("first", "hasty", "last")]
    result = await asyncio.wait_for(Agent(ScriptedModel([asked, "done"]), tools, max_tokens=300).run("go"), WAIT)
    assert told(result.messages) == ["first", "Error: Tool 'hasty' timed out after 0.2 s", "last"]
    assert begun.is_set()


async def test_waiter_with_closed_loop_is_skipped():
    begun, release = threading.Event(), asyncio.Event()
    here = asyncio.get_running_loop()

    async def first(request):
        begun.set()
        await release.wait()
        return "first"

    @tool
    def lost(input: str) -> str:
        begun.wait(WAIT)
        loop = asyncio.new_event_loop()
        left = loop.create_task(Agent(ScriptedModel(["never"])).run(input))
        for _ in range(50):
            loop.run_until_complete(asyncio.sleep(0))
        assert not left.done()
        left._log_destroy_pending = False  # it is dropped on purpose
        loop.close()
        here.call_soon_threadsafe(release.set)
        return "left behind"

    model = Slow(text="last")
    tools = [inner(FunctionModel(first, usage=HUNDRED), "first"), lost, inner(model, "last")]
    asked = [ToolCall("first", {"input": "x"}), ToolCall("lost", {"input": "x"})]
    script = ScriptedModel([asked, ToolCall("last", {"input": "x"}), "done"])
    result = await asyncio.wait_for(Agent(script, tools, max_tokens=300).run("go"), WAIT)
    assert told(result.messages) == ["first", "left behind", "last"]


async def test_model_that_runs_agents_does_not_deadlock():
    voter = Agent(FunctionModel(lambda request: "yes", usage=HUNDRED))

    async def vote(request):
        votes = await asyncio.gather(*(voter.run("vote") for _ in range(3)))
        return votes[0].text

    result = await asyncio.wait_for(
        Agent(make_outer_model(2), [inner(FunctionModel(vote))], max_tokens=700).run("go"), WAIT
    )
    assert told(result.messages) == ["yes", "yes"]


def test_agent_in_thread_makes_no_request_after_outer_deadline():
    may_go_on, errors = threading.Event(), []
    ended = threading.Event()
    model = ScriptedModel(["never asked"])

    @tool
    def inner(input: str) -> str:
        may_go_on.wait(WAIT)
        try:
            return Agent(model).run_sync(input).text
        except BudgetExceededError as error:
            errors.append(str(error))
            raise
        finally:
            ended.set()

    result = Agent(make_outer_model(1), [inner], max_seconds=0.2).run_sync("go")
    may_go_on.set()
    assert ended.wait(WAIT)
    assert (result.stop_reason, model.asked) == ("max_seconds", [])
    assert errors == [budget_error("Maximum time (0.2 s)").removeprefix("Error: ")]


async def test_request_cancelled_at_admission_releases_reserve():
    outer = Spending(Limits(max_tokens=10), None, None)

    def asking():
        return Admission(Spending(Limits(), None, outer), ChatRequest([UserMessage("go")]))

    async def wait():
        async with asking():
            raise AssertionError

    async def hold():
        async with asking():
            waiting = second()
            while not outer.waiting:
                await asyncio.sleep(0)
        waiting.cancel()  # it has been called already, and does not know it yet
        return waiting

    second = partial(asyncio.create_task, wait(), context=contextvars.copy_context())
    given_up = await asyncio.wait_for(hold(), WAIT)
    with pytest.raises(asyncio.CancelledError):
        await given_up
    async with asyncio.timeout(WAIT), asking():
        assert not outer.waiting
