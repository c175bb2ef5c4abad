import asyncio
import threading

import pytest

from helpers.agent_scripts import TOOLS, add, assert_valid, sum_of, told
from helpers.wait import auntil
from toolsemble import Agent, BudgetExceededError, Prices, ToolCall, ToolDefinitionError, tool
from toolsemble.agent import ModelRetried
from toolsemble.models import AssistantMessage, ChatReply, TextDelta, TokenUsage, ToolMessage, UserMessage
from toolsemble.testing import FunctionModel, RecordingSink, ScriptedModel

END = "You must provide your best final answer now based on information gathered so far."


def stop(limit):
    return f"STOP: {limit} reached. {END}"


CALLS = "Maximum tool iterations ({})"

# settings, script, the replies to the model, stop reason, how many calls were run
ENDS = {
    "calls": (
        {"max_tool_calls": 2},
        [sum_of(1, 2), sum_of(3, 4), sum_of(5, 6), "best"],
        ["3", "7", stop("Maximum tool iterations (2)")],
        "max_iterations",
        2,
    ),
    "calls in the middle of a reply": (
        {"max_tool_calls": 1},
        [[sum_of(1, 2), sum_of(3, 4), sum_of(5, 6)], "best"],
        ["3", stop("Maximum tool iterations (1)"), stop("Maximum tool iterations (1)")],
        "max_iterations",
        1,
    ),
    "no calls at all": (
        {"max_tool_calls": 0},
        [sum_of(1, 2), "best"],
        [stop("Maximum tool iterations (0)")],
        "max_iterations",
        0,
    ),
    "failing and unknown calls count": (
        {"max_tool_calls": 2},
        [[ToolCall("broken"), ToolCall("nothing")], sum_of(1, 2), "best"],
        None,
        "max_iterations",
        2,
    ),
    "an answer in time": ({"max_tool_calls": 1}, [sum_of(1, 2), "best"], ["3"], "answer", 1),
    "turns": (
        {"max_turns": 2},
        [sum_of(1, 2), [sum_of(3, 4), sum_of(5, 6)], "best"],
        ["3", stop("Maximum turns (2)"), stop("Maximum turns (2)")],
        "max_turns",
        1,
    ),
    "an answer in the last turn": ({"max_turns": 2}, [sum_of(1, 2), "best"], ["3"], "answer", 1),
    "tokens": (
        {"max_tokens": 30},
        [sum_of(1, 2), sum_of(3, 4), "best"],
        ["3", stop("Maximum tokens (30)")],
        "max_tokens",
        1,
    ),
    "cost": (
        {"max_cost": 0.00008, "prices": Prices(input=2, output=4, cached=1)},
        [sum_of(1, 2), sum_of(3, 4), sum_of(5, 6), "best"],
        ["3", "7", stop("Maximum cost (8e-05)")],
        "max_cost",
        2,
    ),
    "time that is up before the first answer": (
        {"max_seconds": 1e-9},
        [ChatReply("best", (sum_of(1, 2),))],
        [stop("Maximum time (1e-09 s)")],
        "max_seconds",
        0,
    ),
}


def make_agent(model, **settings):
    return Agent(model, TOOLS, **settings)


async def by_run(agent):
    return await agent.run("go")


async def by_stream(agent):
    return [event async for event in agent.stream("go")][-1].result


@pytest.mark.parametrize("way", [by_run, by_stream])
@pytest.mark.parametrize(("settings", "script", "replies", "reason", "run"), ENDS.values(), ids=ENDS)
async def test_exhausted_budget_ends_run_with_answer(way, settings, script, replies, reason, run):
    model = ScriptedModel(script, usage=TokenUsage(10, 5, 4))
    result = await way(make_agent(model, **settings))
    assert (result.text, result.stop_reason, result.usage.tool_calls) == ("best", reason, run)
    assert_valid(result.messages)
    if replies is not None:
        assert told(result.messages) == replies
        assert [record.reply.text for record in result.tool_calls] == replies
    if reason != "answer":
        assert [request.tool_choice for request in model.asked][-1] == "none"
        assert [each.name for each in model.asked[-1].specifications] == [each.name for each in TOOLS]
        assert [step.name for step in result.trace if step.kind == "stop"] == [reason]
    before = model.asked if reason == "answer" else model.asked[:-1]
    assert all(request.tool_choice == "auto" for request in before)


async def test_default_budget_is_25_calls():
    ran = []

    @tool
    def count(number: int) -> int:
        ran.append(number)
        return number

    model = ScriptedModel([*(ToolCall("count", {"number": n}) for n in range(26)), "best"])
    result = await Agent(model, [count]).run("go")
    assert ran == list(range(25))
    assert told(result.messages)[-1] == (
        "STOP: Maximum tool iterations (25) reached. You must provide your best final answer now based on information "
        "gathered so far."
    )
    assert (result.text, result.stop_reason) == ("best", "max_iterations")


@pytest.mark.parametrize(
    "last", ["", "  \n", sum_of(1, 2), [sum_of(1, 2), sum_of(3, 4)], ChatReply(" ", (sum_of(1, 2),))]
)
@pytest.mark.parametrize(
    ("setting", "reason", "limit"),
    [("max_tool_calls", "max_iterations", CALLS.format(1)), ("max_turns", "max_turns", "Maximum turns (1)")],
)
async def test_missing_final_answer_raises_error(last, setting, reason, limit):
    model = ScriptedModel([[sum_of(1, 2), sum_of(3, 4)], last, "never asked"])
    with pytest.raises(BudgetExceededError) as caught:
        await make_agent(model, **{setting: 1}).run("go")
    assert str(caught.value) == f"{limit} reached, and the model returned no final answer"
    partial = caught.value.partial
    assert partial.stop_reason == reason
    assert_valid(partial.messages)
    result = await make_agent(model).run("go on", history=partial.messages)
    assert result.text == "never asked"


async def test_empty_final_answer_is_retried_once_without_tools():
    model = ScriptedModel(["", "best"])
    result = await make_agent(model, max_turns=1).run("go")
    assert (result.text, result.stop_reason, model.asked[-1].tool_choice) == ("best", "max_turns", "none")
    with pytest.raises(BudgetExceededError, match="returned no final answer"):
        await make_agent(ScriptedModel(["", "", "never asked"]), max_turns=1).run("go")


async def test_text_beside_unrun_calls_is_the_answer():
    model = ScriptedModel([sum_of(1, 2), sum_of(3, 4), ChatReply("best", (sum_of(5, 6),))])
    result = await make_agent(model, max_tool_calls=1).run("go")
    assert (result.text, told(result.messages)) == ("best", ["3", stop(CALLS.format(1)), stop(CALLS.format(1))])


async def test_immediate_call_beyond_the_budget_is_not_run():
    model = ScriptedModel([[sum_of(1, 2), ToolCall("finish_with", {"text": "x"})], "best"])
    assert (await make_agent(model, max_tool_calls=1).run("go")).stop_reason == "max_iterations"


async def test_each_run_has_its_own_budget():
    agent = make_agent(ScriptedModel([sum_of(1, 2), "one", sum_of(3, 4), "two"]), max_tool_calls=1)
    assert [(await agent.run("go")).stop_reason for _ in range(2)] == ["answer", "answer"]


async def test_calls_beyond_budget_are_answered_but_not_run():
    model = ScriptedModel([[sum_of(1, n) for n in range(20_000)], "best"])
    result = await make_agent(model).run("go")
    assert (result.usage.tool_calls, len(result.tool_calls)) == (25, 20_000)
    assert_valid(result.messages)


async def test_max_seconds_cancels_running_calls(clock):
    cancelled, blocks, released = asyncio.Event(), threading.Event(), threading.Event()
    sink = RecordingSink()

    @tool
    async def forever() -> str:
        await auntil(lambda: sink.of("call_finished") and blocks.is_set())
        clock.advance(0.5)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    @tool
    def blocking() -> str:
        blocks.set()
        released.wait(30)
        return "too late"

    model = ScriptedModel([[sum_of(1, 2), ToolCall("forever"), ToolCall("blocking")], "best"])
    result = await Agent(model, [add, forever, blocking], max_seconds=0.5, sinks=[sink]).run("go")
    released.set()
    assert (result.text, result.stop_reason) == ("best", "max_seconds")
    assert told(result.messages) == ["3", *[stop("Maximum time (0.5 s)")] * 2]
    assert cancelled.is_set()
    assert model.asked[-1].tool_choice == "none"


class SlowModel(ScriptedModel):
    """Says a word and then thinks until its time is up, each time that it may call tools."""

    def __init__(self, script, left=asyncio.CancelledError, clock=None):
        super().__init__(script)
        self.left = left
        self.clock = clock

    async def reply(self, request):
        if request.tool_choice != "auto":
            return await super().reply(request)
        self.asked.append(request)
        if self.clock is not None:
            self.clock.advance(0.2)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise self.left from error

    async def stream(self, request):
        if request.tool_choice == "auto":
            yield TextDelta("Well")
        async for chunk in super().stream(request):
            yield chunk


@pytest.mark.parametrize("left", [asyncio.CancelledError, TimeoutError, ValueError])
@pytest.mark.parametrize("sinks", [[], [print]])
@pytest.mark.parametrize("way", [by_run, by_stream])
async def test_max_seconds_cancels_model_request(way, sinks, left, clock):
    model = SlowModel(["best"], left, clock)
    result = await way(Agent(model, [add], max_seconds=0.2, sinks=sinks))
    assert (result.text, result.stop_reason) == ("best", "max_seconds")
    assert result.messages == [UserMessage("go"), AssistantMessage("best")]
    assert [request.tool_choice for request in model.asked] == ["auto", "none"]
    assert [(step.kind, step.name, step.detail) for step in result.trace] == [
        ("model", "SlowModel", "out of time"),
        ("stop", "max_seconds", "Maximum time (0.2 s)"),
        ("model", "SlowModel", "stop"),
    ]
    assert result.usage.model_seconds >= result.trace[0].duration > 0


async def test_stream_reports_discarded_text_of_cancelled_model(clock):
    events = [event async for event in Agent(SlowModel(["best"], clock=clock), max_seconds=0.2).stream("go")]
    retried = ModelRetried("Maximum time (0.2 s) reached", 0.0, "Well")
    assert events[:-2] == [TextDelta("Well"), retried, TextDelta("best")]


async def test_empty_answer_after_timeout_ends_run(clock):
    with pytest.raises(BudgetExceededError, match="Maximum time") as caught:
        await Agent(SlowModel([""], clock=clock), max_seconds=0.2).run("go")
    assert (caught.value.partial.stop_reason, caught.value.partial.messages) == ("max_seconds", [UserMessage("go")])


async def test_cancellation_before_deadline_is_reraised():
    model = SlowModel(["best"])
    task = asyncio.create_task(Agent(model, max_seconds=60).run("go"))
    async with asyncio.timeout(30):
        while not model.asked:
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await asyncio.wait_for(task, 30)
    assert caught.value.partial.stop_reason == "cancelled"


@pytest.mark.parametrize("way", ["stream", "iterate"])
async def test_max_seconds_starts_with_first_event(clock, way):
    seen = []

    @tool
    def look() -> str:
        seen.append(look.context.deadline)
        return "seen"

    events = getattr(Agent(ScriptedModel([ToolCall("look"), "done"]), [look], max_seconds=60), way)("go")
    clock.advance(1000)
    began = clock.monotonic()
    result = [event async for event in events][-1].result
    assert (result.stop_reason, told(result.messages)) == ("answer", ["seen"])
    assert seen[0] == began + 60
    assert 0 <= result.tool_calls[0].started < 60


async def test_max_seconds_includes_consumer_time(clock):
    turns = Agent(ScriptedModel([sum_of(1, 2), "best"]), [add], max_seconds=60).iterate("go")
    await anext(turns)
    clock.advance(1000)
    assert [event async for event in turns][-1].result.stop_reason == "max_seconds"


async def test_tools_see_run_deadline():
    seen = []

    @tool
    def look() -> str:
        seen.append(look.context.deadline)
        return "seen"

    await Agent(ScriptedModel([ToolCall("look"), "x"]), [look], max_seconds=60).run("go")
    await Agent(ScriptedModel([ToolCall("look"), "x"]), [look]).run("go")
    assert seen[0] is not None
    assert seen[1] is None


async def test_token_cost_is_reported():
    model = ScriptedModel(["hi"], usage=TokenUsage(1_000_000, 500_000, 250_000))
    assert (await Agent(model, prices=Prices(input=2, output=8, cached=1)).run("go")).usage.cost == 5.75
    model = ScriptedModel(["hi"], usage=TokenUsage(1_000_000, 500_000, 250_000))
    assert (await Agent(model, prices=Prices(input=2, output=8)).run("go")).usage.cost == 6


# --- agents inside agents


def make_inner_tool(model, **settings):
    return Agent(model, TOOLS, **settings).as_tool("inner", "Does a part of the work")


INNER = ToolCall("inner", {"input": "a part"})


async def test_agent_tool_has_one_input():
    worker = make_inner_tool(ScriptedModel([sum_of(1, 2), "three"]))
    model = ScriptedModel([INNER, lambda messages: f"It is {messages[-1].text}"])
    result = await Agent(model, [worker]).run("go")
    (specification,) = model.asked[0].specifications
    assert (specification.name, specification.description) == ("inner", "Does a part of the work")
    assert list(specification.parameters["properties"]) == ["input"]
    assert result.text == "It is three"
    attributes = result.tool_calls[0].reply.result.attributes
    assert (attributes["stop_reason"], told(attributes["result"].messages)) == ("answer", ["3"])


async def test_nested_usage_counts_in_outer_run():
    worker = make_inner_tool(ScriptedModel([sum_of(1, 2), "three"], usage=TokenUsage(100, 10)), prices=Prices(1, 1))
    model = ScriptedModel([INNER, "done"], usage=TokenUsage(1, 1))
    usage = (await Agent(model, [worker], prices=Prices(2, 2)).run("go")).usage
    assert (usage.input_tokens, usage.output_tokens, usage.model_calls, usage.tool_calls) == (202, 22, 4, 2)
    assert usage.cost == pytest.approx((220 * 1 + 4 * 2) / 1_000_000)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_tokens": 150}, "max_tokens"),
        ({"max_cost": 0.00015, "prices": Prices(1, 1)}, "max_cost"),
    ],
)
async def test_budget_applies_to_nested_agents(settings, reason):
    told_inside = ScriptedModel([sum_of(1, 2), sum_of(3, 4), "never asked"], usage=TokenUsage(100, 0))
    model = ScriptedModel([INNER, "done"])
    result = await Agent(model, [make_inner_tool(told_inside)], **settings).run("go")
    (reply,) = told(result.messages)
    assert reply.startswith("Error: Maximum ")
    assert reply.endswith(" reached in the enclosing run, so this agent's model is not called")
    assert (len(told_inside.asked), result.usage.tool_calls, result.stop_reason) == (2, 2, reason)
    assert model.asked[-1].tool_choice == "none"


async def test_nested_calls_count_in_outer_run():
    def worker():
        inside = FunctionModel(lambda request: sum_of(1, 2) if request.tool_choice == "auto" else "best inside")
        return make_inner_tool(inside, max_tool_calls=10, loop_guard=None)

    outside = FunctionModel(lambda request: INNER if request.tool_choice == "auto" else "best outside")
    result = await Agent(outside, [worker()], max_tool_calls=15).run("go")
    assert (result.text, result.stop_reason, result.usage.tool_calls) == ("best outside", "max_iterations", 15)
    first, second = (record.reply.result.attributes["result"] for record in result.tool_calls[:2])
    assert (told(first.messages), told(second.messages)) == (
        ["3"] * 10 + [stop("Maximum tool iterations (10)")],
        ["3"] * 3 + [stop("Maximum tool iterations (15)")],
    )
    assert told(result.messages) == ["best inside", "best inside", stop("Maximum tool iterations (15)")]


async def test_concurrent_agents_share_remaining_calls():
    inside = FunctionModel(lambda request: [sum_of(1, 2)] * 3 if request.tool_choice == "auto" else "best")
    agent = Agent(ScriptedModel([[INNER] * 4, "done"]), [make_inner_tool(inside)], max_tool_calls=10)
    result = await agent.run("go")
    assert (result.usage.tool_calls, result.stop_reason) == (10, "answer")
    assert told(result.messages) == ["best"] * 4


async def test_max_seconds_applies_to_nested_agents():
    seen = []

    @tool
    def look() -> str:
        seen.append(look.context.deadline)
        return "seen"

    def worker(**settings):
        return Agent(ScriptedModel([ToolCall("look"), "x"]), [look], **settings).as_tool("inner", "Looks")

    for outer, within in ((60, None), (60, 1000), (1000, 60), (None, 60)):
        await Agent(ScriptedModel([INNER, "x"]), [worker(max_seconds=within)], max_seconds=outer).run("go")
    start = seen[0] - 60
    assert all(abs(deadline - start - 60) < 30 for deadline in seen)


@pytest.mark.parametrize(("outer", "within"), [(0.5, None), (0.5, 30)])
async def test_outer_max_seconds_cancels_nested_calls(outer, within):
    @tool
    async def forever() -> str:
        await asyncio.Event().wait()
        return "never"

    worker = Agent(ScriptedModel([ToolCall("forever"), "best inside"]), [forever], max_seconds=within)
    model = ScriptedModel([INNER, "best outside"])
    result = await asyncio.wait_for(Agent(model, [worker.as_tool("inner", "")], max_seconds=outer).run("go"), 30)
    assert (result.text, result.stop_reason) == ("best outside", "max_seconds")
    assert_valid(result.messages)


async def test_agent_nesting_depth_is_limited():
    def worker(depth):
        if depth == 0:
            return add
        model = FunctionModel(lambda request: request.messages[-1].text if isinstance(request.messages[-1], ToolMessage)
                              else ToolCall(request.specifications[0].name, {"input": "x"}))  # fmt: skip
        return Agent(model, [worker(depth - 1)], max_depth=3 if depth == 6 else 9).as_tool(f"level_{depth}", "")

    result = await worker(6).aexecute("go")
    assert result.text == "Error: Agents are nested more than 3 deep (max_depth)"
    assert (await worker(4).aexecute("go")).text.startswith("Error: Missing required parameter(s) for 'add'")


async def test_nested_agents_inherit_reviewer_parameters_and_ids():
    seen = []

    @tool
    def look() -> str:
        context = look.context
        seen.append((context.run_id, context.memory_id, context.parameters["user"], context.agent_role))
        return "seen"

    class Reviewer:
        def review(self, request):
            seen.append(request.tool_name)

    worker = Agent(ScriptedModel([[ToolCall("look"), ToolCall("delete", {"path": "x"})], "x"]), [look, *TOOLS])
    outer = Agent(ScriptedModel([INNER, "x"]), [worker.as_tool("inner", "")], review=Reviewer(), role="boss")
    result = await outer.run("go", memory_id="m", parameters={"user": "ada"})
    assert sorted(seen, key=str) == sorted([(result.run_id, "m", "ada", "boss"), "delete"], key=str)


async def test_nested_agent_failure_is_reported_to_model():
    worker = make_inner_tool(ScriptedModel([ValueError("broken inside")]))
    result = await Agent(ScriptedModel([INNER, "sorry"]), [worker]).run("go")
    assert told(result.messages) == ["Error: broken inside"]


async def test_agent_run_in_blocking_tool_is_nested():
    worker = Agent(ScriptedModel(["done"], usage=TokenUsage(100, 0)))

    @tool
    def delegate() -> str:
        return worker.run_sync("go").text

    result = await Agent(ScriptedModel([ToolCall("delegate"), "x"]), [delegate]).run("go")
    assert (told(result.messages), result.usage.input_tokens) == (["done"], 100)


async def test_agent_tool_accepts_tool_settings():
    gated = Agent(ScriptedModel(["x"])).as_tool("inner", "", requires_approval=True)
    assert gated.requires_approval is True
    with pytest.raises(TypeError, match="A tool has no setting 'colour'"):
        Agent(ScriptedModel(["x"])).as_tool("inner", "", colour="red")


async def test_nested_agent_in_own_loop_ends_with_outer_deadline(clock):
    ended: asyncio.Queue = asyncio.Queue()
    loop = asyncio.get_running_loop()

    @tool
    async def forever() -> str:
        clock.advance(0.3)
        await asyncio.Event().wait()
        return "never"

    @tool
    def delegate() -> str:
        try:
            Agent(ScriptedModel([ToolCall("forever"), "never asked"]), [forever], max_seconds=50).run_sync("go")
        except BudgetExceededError as error:
            loop.call_soon_threadsafe(ended.put_nowait, error.partial)
            raise
        return "never"

    await Agent(ScriptedModel([ToolCall("delegate"), "x"]), [delegate], max_seconds=0.3).run("go")
    result = await asyncio.wait_for(ended.get(), 30)
    assert (result.stop_reason, told(result.messages)) == ("max_seconds", [stop("Maximum time (0.3 s)")])


@pytest.mark.parametrize("prices", [{"input": 2, "output": 8}, 3])
def test_prices_of_wrong_type_are_rejected_at_creation(prices):
    with pytest.raises(ToolDefinitionError, match="Agent prices must be Prices, such as"):
        Agent(ScriptedModel(["never asked"]), prices=prices)


@pytest.mark.parametrize("wrong", [-1, float("nan"), "2", True])
@pytest.mark.parametrize("name", ["input", "output", "cached"])
def test_negative_prices_are_rejected(name, wrong):
    with pytest.raises(ToolDefinitionError, match=f"Prices {name} must be a number >= 0"):
        Prices(**{"input": 2, "output": 8, name: wrong})
