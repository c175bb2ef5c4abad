import asyncio
from contextlib import aclosing

import pytest

from helpers.agent_scripts import add, sum_of
from toolsemble import Agent, AgentExecutionError, ConversationMemory, Toolbox, ToolDefinitionError
from toolsemble.agent import RunView
from toolsemble.models import (
    AssistantMessage,
    SystemMessage,
    UserMessage,
    message_from_json,
    message_to_json,
)
from toolsemble.review import AutoApprove
from toolsemble.testing import ScriptedModel


def systems(model):
    """Return the system text of each request; None for a request without one."""
    return [m[0].text if isinstance(m[0], SystemMessage) else None for m in model.requests]


def brief():
    return "Be brief."


async def name_user(run):
    await asyncio.sleep(0)
    return f"The user is {run.memory_id}."


def count_turns(run: RunView) -> str:
    return f"Turn {run.turn}, {len(run.messages)} messages."


@pytest.mark.parametrize(
    ("instructions", "text"),
    [
        ("  You are ACME's bot.\n", "  You are ACME's bot.\n"),
        (brief, "Be brief."),
        (name_user, "The user is ada."),
        (["One.", brief, name_user, "Four."], "One.\n\nBe brief.\n\nThe user is ada.\n\nFour."),
        (("One.", "", " ", lambda: None, lambda: ""), "One."),
        (lambda run=None: f"{run}", "None"),
        ("", None),
        ([], None),
        (None, None),
        ("a \ud800 b", "a \\ud800 b"),
        (lambda: "a \ud800 b", "a \\ud800 b"),
    ],
)
async def test_instructions_are_the_system_prompt(instructions, text):
    model = ScriptedModel(["hi"])
    await Agent(model, instructions=instructions).run("hello", memory_id="ada")
    assert systems(model) == [text]


async def test_instructions_come_after_role_goal_and_background():
    model = ScriptedModel(["hi"])
    await Agent(model, role="a clerk", goal="help", background="It rains.", instructions="Be brief.").run("hello")
    assert systems(model) == ["You are a clerk.\nYour goal: help\nBackground: It rains.\n\nBe brief."]


async def test_instructions_of_a_run_are_added_for_that_run():
    model = ScriptedModel(["one", "two", "three"])
    agent = Agent(model, instructions="Be brief.")
    await agent.run("a", instructions="Answer in French.")
    await agent.run("b", instructions=[brief, lambda run: f"{run.turn}"])
    await agent.run("c", instructions=None)
    assert systems(model) == ["Be brief.\n\nAnswer in French.", "Be brief.\n\nBe brief.\n\n0", "Be brief."]


async def test_a_function_is_called_before_each_request_with_the_run():
    model = ScriptedModel([sum_of(1, 2), "3"])
    result = await Agent(model, [add], instructions=count_turns).run("go")
    assert systems(model) == ["Turn 0, 1 messages.", "Turn 1, 4 messages."]
    assert result.messages[0] == SystemMessage("Turn 1, 4 messages.")


async def test_a_function_sees_the_deps_and_the_parameters_of_the_run():
    model = ScriptedModel(["hi"])
    agent = Agent(model, instructions=lambda run: f"{run.deps} {run.parameters['x']} {run.question.text}")
    await agent.run("hello", deps="shop", parameters={"x": 1})
    assert systems(model) == ["shop 1 hello"]


@pytest.mark.parametrize("path", [None, "talks.db"])
async def test_instructions_that_come_and_go_do_not_disturb_the_memory(path, tmp_path):
    memory = ConversationMemory(path and tmp_path / path, max_messages=4)
    model = ScriptedModel([sum_of(1, 2), sum_of(3, 4), "7", "on"])
    agent = Agent(model, [add], memory=memory, instructions=lambda run: "Odd." if run.turn % 2 else None)
    result = await agent.run("a", memory_id="ada")
    assert systems(model) == [None, "Odd.", None]
    assert [message.role for message in result.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert memory.load("ada") == result.messages
    await agent.run("b", memory_id="ada")
    assert [message.text for message in memory.load("ada")][-2:] == ["b", "on"]
    memory.close()


async def test_a_failing_function_fails_the_run():
    with pytest.raises(AgentExecutionError, match="'x'"):
        await Agent(ScriptedModel(["hi"]), instructions=lambda run: run.parameters["x"]).run("hello")


async def test_a_function_that_returns_no_text_fails_the_run():
    with pytest.raises(
        AgentExecutionError, match="The instructions function <lambda> must return a str or None, not 7"
    ):
        await Agent(ScriptedModel(["hi"]), instructions=lambda: 7).run("hello")


@pytest.mark.parametrize("instructions", [7, ["a", 7], str, {"a": "b"}, lambda a, b: "x"])
def test_invalid_instructions_are_refused(instructions):
    with pytest.raises(ToolDefinitionError, match="Agent instructions"):
        Agent(ScriptedModel([]), instructions=instructions)
    with pytest.raises(ToolDefinitionError, match="Agent instructions"):
        Agent(ScriptedModel([])).run_sync("hello", instructions=instructions)


def test_a_function_with_an_unknown_signature_is_called_without_the_run():
    model = ScriptedModel(["hi"])
    texts = iter(["Be brief."])
    Agent(model, instructions=texts.__next__).run_sync("hello")
    assert systems(model) == ["Be brief."]


async def test_a_conversation_that_continues_gets_the_new_instructions_in_place_of_the_old_ones():
    days = iter(["Monday", "Tuesday"])
    model = ScriptedModel(["one", "two", "three", "four"])
    agent = Agent(model, instructions=lambda: next(days))
    first = await agent.run([SystemMessage("Be brief."), UserMessage("a")])
    second = await agent.run("b", history=first.messages)
    await Agent(model, role="a clerk").run("c", history=list(second.messages))
    await Agent(model).run("d", history=second.messages)
    assert systems(model) == [
        "Monday\n\nBe brief.",
        "Tuesday\n\nBe brief.",
        "You are a clerk.\n\nBe brief.",
        "Tuesday\n\nBe brief.",
    ]


async def test_a_conversation_that_was_written_as_json_continues_in_the_same_way():
    model = ScriptedModel(["one", "two"])
    first = await Agent(model, instructions="Old.").run([SystemMessage("Be brief."), UserMessage("a")])
    stored = [message_from_json(message_to_json(message)) for message in first.messages]
    await Agent(model, instructions="New.").run("b", history=stored)
    assert systems(model) == ["Old.\n\nBe brief.", "New.\n\nBe brief."]


async def test_a_system_message_in_the_middle_of_a_history_is_kept():
    model = ScriptedModel(["hi"])
    said = [UserMessage("a"), AssistantMessage("b"), SystemMessage("Be brief.")]
    await Agent(model, instructions="x").run("c", history=said)
    assert model.requests == [[SystemMessage("x"), *said, UserMessage("c")]]


async def test_a_stream_has_the_same_instructions_as_a_run():
    model = ScriptedModel(["hi"])
    async with aclosing(Agent(model, instructions=[brief]).stream("hello", instructions="x")) as events:
        assert [event.kind async for event in events][-1] == "final"
    assert systems(model) == ["Be brief.\n\nx"]


async def test_an_error_in_a_function_names_the_function():
    def explain():
        raise ValueError("no text")

    with pytest.raises(AgentExecutionError, match=r"The instructions function explain failed: .*no text"):
        await Agent(ScriptedModel(["x"]), instructions=explain).run("go")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"instructions": b"x"}, "Agent instructions must be a str, a function, or a list of them, not b'x'$"),
        ({"instructions": lambda a, b: ""}, r"must take no parameters, or \(run\)$"),
        ({"history_processors": [lambda: None]}, r"must take \(messages\), or \(messages, run\)$"),
        ({"review": AutoApprove}, r"not <class '.*AutoApprove'>; pass AutoApprove\(\)$"),
    ],
)
def test_a_wrong_setting_is_explained(settings, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        Agent(ScriptedModel(["x"]), **settings)


def test_a_toolbox_with_the_class_of_a_reviewer_is_explained():
    with pytest.raises(ToolDefinitionError, match=r"; pass AutoApprove\(\)$"):
        Toolbox([], review=AutoApprove)


@pytest.mark.parametrize("name", ["system_prompt", "system"])
def test_another_name_of_the_instructions_is_explained(name):
    with pytest.raises(TypeError, match=f"An Agent has no setting '{name}'; did you mean instructions\\?"):
        Agent(ScriptedModel(["x"]), **{name: "Be brief."})


@pytest.mark.parametrize("role", ["a bot", "You are a bot", "you are  a bot."])
async def test_a_role_may_be_a_sentence(role):
    model = ScriptedModel(["x"])
    await Agent(model, role=role).run("go")
    assert systems(model) == ["You are a bot."]
