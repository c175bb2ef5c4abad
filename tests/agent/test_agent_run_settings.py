from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from helpers.agent_scripts import add, delete, later, sum_of
from toolsemble import (
    Agent,
    Cache,
    ConversationMemory,
    LoopGuard,
    MemoryId,
    ModelError,
    Prices,
    Retry,
    Tool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolPipeline,
    tool,
)
from toolsemble.models import ChatReply, TokenUsage
from toolsemble.testing import AutoApprove, AutoReject, FunctionModel, ScriptedModel


@dataclass
class Trip:
    city: str


@tool
def whoami(user: Annotated[str, MemoryId]) -> str:
    """The user."""
    return user


# --- settings of a run


async def test_a_run_can_use_another_model_and_other_tools():
    own, other = ScriptedModel(["own"]), ScriptedModel([ToolCall("later", {"text": "x"}), "other"])
    agent = Agent(own, [add])
    result = await agent.run("go", model=other, tools=[later])
    assert (result.text, result.tool_calls[0].reply.text) == ("other", "x")
    assert [each.name for each in other.asked[0].specifications] == ["later"]
    assert (await agent.run("go")).text == "own"
    assert [each.name for each in own.asked[0].specifications] == ["add"]


async def test_the_settings_of_a_run_are_added_to_the_agents_settings():
    model = ScriptedModel(["one", "two"])
    agent = Agent(model, settings={"temperature": 0, "seed": 7})
    await agent.run("go", settings={"temperature": 1, "top_p": 0.5})
    await agent.run("go", settings=None)
    assert [dict(each.settings) for each in model.asked] == [
        {"temperature": 1, "seed": 7, "top_p": 0.5},
        {"temperature": 0, "seed": 7},
    ]


@pytest.mark.parametrize(
    ("settings", "stop_reason"),
    [
        ({"max_tool_calls": 1}, "max_iterations"),
        ({"max_turns": 1}, "max_turns"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"max_cost": 0.001, "prices": Prices(1000, 1000)}, "max_cost"),
        ({"max_turns": None}, "answer"),
        ({}, "answer"),
    ],
)
async def test_a_run_can_have_other_budgets(settings, stop_reason):
    calls = ChatReply("so far", (sum_of(1, 2), sum_of(3, 4)), TokenUsage(5, 5))
    result = await Agent(ScriptedModel([calls, "done"]), [add]).run("go", **settings)
    assert result.stop_reason == stop_reason


async def test_none_in_a_run_means_the_setting_of_the_agent():
    agent = Agent(ScriptedModel([sum_of(1, 2), "done"]), [add], max_turns=1, output_type=str)
    nothing = dict.fromkeys(["model", "tools", "max_turns", "review", "output_type", "retry", "loop_guard", "prices"])
    assert (await agent.run("go", **nothing)).stop_reason == "max_turns"


async def test_the_prices_of_a_run_are_its_own():
    agent = Agent(ScriptedModel([ChatReply("hi", usage=TokenUsage(1_000_000, 0))] * 2), prices=Prices(1, 1))
    assert (await agent.run("go", prices=Prices(5, 5))).usage.cost == 5
    assert (await agent.run("go")).usage.cost == 1


@pytest.mark.parametrize("box", [False, True])
async def test_the_reviewer_of_a_run_takes_the_place_of_the_agents(box):
    tools = Toolbox([delete]) if box else [delete]
    agent = Agent(ScriptedModel([ToolCall("delete", {"path": "x"}), "done"] * 2), tools, review=AutoReject("no"))
    texts = [
        (await agent.run("go", **settings)).tool_calls[0].reply.text for settings in ({"review": AutoApprove()}, {})
    ]
    assert texts == ["deleted x", "Error: Rejected by reviewer: no"]


async def test_a_toolbox_with_a_reviewer_of_its_own_keeps_it():
    box = Toolbox([delete], review=AutoReject("never"))
    agent = Agent(ScriptedModel([ToolCall("delete", {"path": "x"}), "done"]), box)
    result = await agent.run("go", review=AutoApprove())
    assert result.tool_calls[0].reply.text == "Error: Rejected by reviewer: never"


async def test_the_output_type_of_a_run_is_its_own():
    agent = Agent(ScriptedModel([ToolCall("final_answer", {"city": "Rome"}), "Paris"]))
    assert (await agent.run("go", output_type=Trip)).output == Trip("Rome")
    assert (await agent.run("go")).output == "Paris"


@pytest.mark.parametrize("tools", [[tool("final_answer")(lambda: "x")], []])
async def test_the_name_of_the_answering_tool_is_reserved_in_such_a_run(tools):
    agent = Agent(ScriptedModel(["x"]), [tool("final_answer")(lambda: "x")])
    with pytest.raises(ToolDefinitionError, match="The name 'final_answer' is reserved for output_type"):
        await agent.run("go", output_type=Trip, **({"tools": tools} if tools else {}))


async def test_a_run_can_have_its_own_retries_guard_and_correction_limit():
    failing = [ModelError("busy", retryable=True), "hi"]
    assert (await Agent(ScriptedModel(failing), retry=Retry(1)).run("go", retry=Retry(2, wait=0))).text == "hi"
    repeated = [*[sum_of(1, 2)] * 2, "done"]
    result = await Agent(ScriptedModel(repeated), [add], loop_guard=None).run("go", loop_guard=LoopGuard(2, patience=0))
    assert result.stop_reason == "loop"
    wrong = [ToolCall("final_answer", {}), ToolCall("final_answer", {"city": "Rome"})]
    agent = Agent(ScriptedModel(wrong), output_type=Trip, output_retries=0)
    assert (await agent.run("go", output_retries=1)).output == Trip("Rome")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_turns": 0}, "Agent max_turns must be an int >= 1, not 0"),
        ({"max_cost": 1}, "Agent max_cost needs prices"),
        ({"review": 7}, "Agent review must be a ReviewHandler"),
        ({"settings": 7}, "Agent settings must be a mapping"),
        ({"tools": [None]}, "Tool at index 0 is None"),
        ({"history_processors": 7}, "Agent history_processors must be a list of functions"),
    ],
)
async def test_an_invalid_setting_of_a_run_is_refused_before_the_model_is_asked(settings, problem):
    model = ScriptedModel(["x"])
    with pytest.raises(ToolDefinitionError, match=problem):
        await Agent(model).run("go", **settings)
    assert model.requests == []


def test_an_unknown_setting_of_an_agent_is_refused():
    with pytest.raises(
        TypeError,
        match=r"An Agent has no setting 'system_prompt'; did you mean instructions\?",
    ):
        Agent(ScriptedModel([]), system_prompt="x")


# --- the memory id


@pytest.mark.parametrize(
    ("settings", "who"),
    [
        ({"memory": ConversationMemory()}, "its memory needs one"),
        ({"tools": [whoami]}, "its tool 'whoami' needs one"),
        ({"tools": Toolbox([add, whoami])}, "its tool 'whoami' needs one"),
        ({"tools": lambda run: [whoami]}, "its tool 'whoami' needs one"),
        ({"tools": [ToolPipeline.of(add, whoami)]}, "its tool 'whoami' needs one"),
        ({"tools": [Agent(ScriptedModel([]), [whoami]).as_tool("inner", "x")]}, "its tool 'inner' needs one"),
        (
            {"tools": [Agent(ScriptedModel([]), memory=ConversationMemory()).as_tool("inner", "x")]},
            "its tool 'inner' needs one",
        ),
    ],
)
async def test_a_run_without_a_memory_id_is_refused_where_users_would_be_mixed(settings, who):
    model = ScriptedModel(["x", "x"])
    agent = Agent(model, **settings)
    for given in ({}, {"memory_id": None}, {"memory_id": ""}):
        with pytest.raises(ToolConfigurationError, match=rf"has no memory_id, but {who}.*memory_id=\.\.\.") as caught:
            await agent.run("go", **given)
        assert caught.value.partial.stop_reason == "configuration_error"
    assert model.requests == []
    assert (await agent.run("go", memory_id="ada")).text == "x"
    assert (await Agent(model, **settings, memory_id="default").run("go")).text == "x"


async def test_an_inner_agent_with_a_memory_id_of_its_own_needs_no_other():
    inner = Agent(ScriptedModel([ToolCall("whoami"), "done"]), [whoami], memory_id="clerk").as_tool("inner", "x")
    result = await Agent(ScriptedModel([ToolCall("inner", {"input": "go"}), "done"]), [inner]).run("go")
    assert result.tool_calls[0].reply.result.attributes["result"].tool_calls[0].reply.text == "clerk"


def test_a_toolbox_and_a_tool_used_by_hand_need_no_memory_id():
    assert Toolbox([whoami]).execute(ToolCall("whoami")).text == "default"
    inner = Agent(ScriptedModel(["done"]), memory=ConversationMemory()).as_tool("inner", "x")
    assert inner.execute("go").output == "done"


# --- dependencies


class Shop:
    stock = 3


@tool
def stock(context: ToolContext[Shop]) -> int:
    """The stock."""
    return context.deps.stock


class Count(Tool):
    name = "count"
    description = "Counts"

    def run(self, input: str) -> str:
        return str(self.context.deps.stock)


async def test_tools_get_the_dependencies_of_the_run():
    calls = [ToolCall("stock"), ToolCall("count", {"input": ""})]
    agent = Agent(ScriptedModel([calls, "done"]), [stock, Count()])
    result = await agent.run("go", deps=Shop())
    assert [record.reply.text for record in result.tool_calls] == ["3", "3"]


async def test_an_inner_agent_has_the_dependencies_of_the_run_around_it():
    inner = Agent(ScriptedModel([ToolCall("stock"), "done"]), [stock]).as_tool("inner", "x")
    agent = Agent(ScriptedModel([ToolCall("inner", {"input": "go"}), "done"]), [inner])
    result = await agent.run("go", deps=Shop())
    assert result.tool_calls[0].reply.result.attributes["result"].tool_calls[0].reply.text == "3"


async def test_a_run_without_the_dependencies_of_a_tool_is_refused_before_the_model_is_asked():
    model = ScriptedModel(["x"])
    with pytest.raises(
        ToolConfigurationError, match=r"has no deps, but its tool 'stock' needs them; pass run\(..., deps=...\)"
    ):
        await Agent(model, [stock]).run("go")
    assert model.requests == []


@pytest.mark.parametrize("kind", [ToolContext, ToolContext[Any], ToolContext[Shop | None]])
def test_dependencies_that_may_be_none_need_not_be_set(kind):
    def look(context):
        return str(context.deps)

    look.__annotations__["context"] = kind
    agent = Agent(ScriptedModel([ToolCall("look"), "done"]), [tool(look)])
    assert agent.run_sync("go").tool_calls[0].reply.text == "None"


def test_a_tool_can_be_called_by_hand_with_dependencies():
    assert stock.execute({}, ToolContext(deps=Shop())).output == "3"
    assert stock(ToolContext(deps=Shop())) == 3


def test_the_model_does_not_see_the_context():
    assert Toolbox([stock]).specifications[0].parameters is None


def test_a_context_with_dependencies_cannot_be_part_of_another_type():
    def look(contexts: list[ToolContext[Shop]]) -> str:
        return "x"

    with pytest.raises(ToolDefinitionError, match="a ToolContext cannot be part of another type"):
        Toolbox([tool(look)])


def test_a_cached_tool_with_dependencies_needs_a_key():
    def look(context: ToolContext[Shop]) -> int:
        return context.deps.stock

    with pytest.raises(ToolDefinitionError, match="the cache key does not contain what the tool takes from its deps"):
        Toolbox([tool(cache=60, effects="read")(look)])
    Toolbox([tool(cache=Cache(60, key=lambda arguments, context: context.deps.stock), effects="read")(look)])


def test_a_tool_in_a_worker_process_cannot_have_dependencies():
    with pytest.raises(ToolDefinitionError, match=r"isolation='process' cannot be used with ToolContext\[...\]"):
        Toolbox([tool(isolation="process")(stock._function)])


# --- print


async def test_a_result_is_printed_readably():
    usage = TokenUsage(1200, 34)
    calls = ChatReply("", (sum_of(1, 2), ToolCall("add", '{"a": "é\\n'), ToolCall("add", "[1]")), usage)
    agent = Agent(ScriptedModel([calls, ChatReply("3 it is.", usage=usage)]), [add], prices=Prices(1, 1))
    assert str(await agent.run("go")) == (
        "3 it is.\n"
        "\n"
        "add(a=1, b=2) -> 3\n"
        "add() -> Error: Invalid JSON input for 'add': the text is cut off; send all of it again\n"
        "add() -> Error: Expected a JSON object for 'add' but received: ARRAY\n"
        "stopped: answer; 2 model calls, 3 tool calls, 2,468 tokens (2,400 in, 68 out), cost 0.002468"
    )


async def test_long_and_hostile_texts_are_printed_on_one_short_line():
    @tool
    def look(what: str) -> str:
        """Look."""
        return "one\ntwo\x1b[2J " + "x" * 500

    agent = Agent(ScriptedModel([ToolCall("look", {"what": "y" * 500}), ModelError("down")]), [look])
    with pytest.raises(Exception, match="down") as caught:
        await agent.run("go")
    lines = str(caught.value.partial).splitlines()
    assert lines[1] == "stopped: error; 1 model call, 1 tool call, 0 tokens"
    assert lines[0].startswith('look(what="yyy')
    assert "one\\ntwo\\x1b[2J xxx" in lines[0]
    assert len(lines[0]) < 220


async def test_the_trace_has_the_names_of_models():
    class Named(FunctionModel):
        name = "gpt-5-mini"

    result = await Agent(Named(lambda request: "hi")).run("go")
    assert [(step.kind, step.name) for step in result.trace] == [("model", "gpt-5-mini")]
