"""A run with tools that require approval needs a reviewer."""

import asyncio

import pytest

from toolsemble import Agent, Toolbox, ToolCall, ToolConfigurationError, ToolPipeline, fan_out, map_over, tool
from toolsemble.review import AutoApprove, Continue
from toolsemble.testing import FakeReviewer, ScriptedModel

MESSAGE = "Tool 'pay' requires approval but no ReviewHandler is configured; pass review=…"


@tool(requires_approval=True)
def pay(amount: int) -> str:
    return f"paid {amount}"


@tool(requires_approval=lambda arguments, _: arguments["amount"] > 100)
def pay_some(amount: int) -> str:
    return f"paid {amount}"


@tool
def double(amount: int) -> int:
    return amount * 2


def make_model(name="pay"):
    return ScriptedModel([ToolCall(name, {"amount": 5}), "done"])


def stream(agent):
    async def follow():
        return [event async for event in agent.stream("go")]

    return asyncio.run(follow())


@pytest.mark.parametrize(
    "tools",
    [
        [double, pay],
        Toolbox([pay]),
        lambda _: [pay],
        lambda _: Toolbox([pay]),
        [double | pay],
        [ToolPipeline("p", "", [double | pay, double])],
        [fan_out(pay, double)],
        [map_over(pay)],
    ],
)
@pytest.mark.parametrize(
    "run", [lambda agent: agent.run_sync("go"), lambda agent: asyncio.run(agent.run("go")), stream]
)
def test_raises_before_the_model_is_asked_without_a_reviewer(run, tools):
    model = make_model()
    with pytest.raises(ToolConfigurationError) as raised:
        run(Agent(model, tools))
    assert str(raised.value) == MESSAGE
    assert model.requests == []
    assert raised.value.partial.stop_reason == "configuration_error"


def test_raises_for_a_name_in_approve():
    model = make_model("double")
    with pytest.raises(ToolConfigurationError, match="'double' requires approval but no ReviewHandler is configured; "):
        Agent(model, Toolbox([double], approve=["dou*"])).run_sync("go")
    assert model.requests == []


@pytest.mark.parametrize(
    ("tools", "settings"),
    [
        ([pay], {"review": AutoApprove()}),
        (Toolbox([pay], review=AutoApprove()), {}),
        (lambda _: [pay], {"review": AutoApprove()}),
        (Toolbox([pay]), {"review": AutoApprove()}),
    ],
)
def test_runs_with_a_reviewer_of_the_agent_or_of_its_toolbox(tools, settings):
    assert Agent(make_model(), tools, **settings).run_sync("go").tool_calls[0].reply.text == "paid 5"


def test_tool_with_a_condition_is_found_at_the_call_that_needs_approval():
    agent = Agent(
        ScriptedModel([ToolCall("pay_some", {"amount": 5}), ToolCall("pay_some", {"amount": 500})]), [pay_some]
    )
    with pytest.raises(ToolConfigurationError) as raised:
        agent.run_sync("go")
    assert str(raised.value) == "Tool 'pay_some' requires approval but no ReviewHandler is configured"
    assert raised.value.partial.tool_calls[0].reply.text == "paid 5"


def test_tools_that_come_later_are_checked_when_they_come():
    model = make_model("double")
    with pytest.raises(ToolConfigurationError, match="pass review=…"):
        Agent(model, lambda view: [pay, double] if view.turn else [double]).run_sync("go")
    assert len(model.requests) == 1


def test_agent_inside_a_run_uses_the_reviewer_of_that_run():
    inner = Agent(make_model(), [pay]).as_tool("clerk", "Pays")
    call, review = ToolCall("clerk", {"input": "pay"}), FakeReviewer(Continue())
    assert Agent(ScriptedModel([call, "ok"]), [inner], review=review).run_sync("go").tool_calls[0].reply.text == "done"
    assert [request.tool_name for request in review.requests] == ["pay"]
    with pytest.raises(ToolConfigurationError, match="pass review=…"):
        Agent(ScriptedModel([call, "ok"]), [Agent(make_model(), [pay]).as_tool("clerk", "Pays")]).run_sync("go")


def test_toolbox_used_by_hand_raises_at_the_call():
    box = Toolbox([pay])
    with pytest.raises(ToolConfigurationError) as raised:
        box.execute(ToolCall("pay", {"amount": 5}))
    assert str(raised.value) == "Tool 'pay' requires approval but no ReviewHandler is configured"
