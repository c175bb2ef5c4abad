from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

import pydantic
import pytest

from helpers.agent_scripts import TOOLS, add, assert_valid, sum_of, told
from toolsemble import (
    Agent,
    AgentExecutionError,
    BudgetExceededError,
    ImageContent,
    ReturnBehavior,
    ToolCall,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.models import ChatReply, UserMessage
from toolsemble.testing import ScriptedModel


@dataclass
class Person:
    name: str
    age: int = 0


@dataclass
class Defaults:
    name: str = "unnamed"


class Model(pydantic.BaseModel):
    name: str


class Typed(TypedDict):
    name: str


ADA = Person("Ada", 36)
ADA_JSON = '{"name": "Ada", "age": 36}'
ADA_CALL = ToolCall("final_answer", {"name": "Ada", "age": 36})

# the type, what the model says, the output, its text
ANSWERS = [
    (Person, ADA_JSON, ADA, ADA_JSON),
    (Person, '{"name": "Ada"}', Person("Ada"), '{"name": "Ada"}'),
    (Person, f"```json\n{ADA_JSON}\n```", ADA, f"```json\n{ADA_JSON}\n```"),
    (Person, '{"name": "Ada", "age": "36"}', ADA, '{"name": "Ada", "age": "36"}'),
    (Model, '{"name": "Ada"}', Model(name="Ada"), '{"name": "Ada"}'),
    (Typed, '{"name": "Ada"}', {"name": "Ada"}, '{"name": "Ada"}'),
    (int, "42", 42, "42"),
    (int, '{"answer": 42}', 42, "42"),
    (list[int], "[1, 2]", [1, 2], "[1,2]"),
    (list[int], "```json\n[1, 2]\n```", [1, 2], "[1,2]"),
    (list[int], '```\n{"answer": [1, 2]}\n```', [1, 2], "[1,2]"),
    (list[int], "{'answer': [1, 2],}", [1, 2], "[1,2]"),
    (Literal["yes", "no"], "```\nyes\n```", "yes", "yes"),
    (str, "```\nprint()\n```", "```\nprint()\n```", "```\nprint()\n```"),
    (list[Person], f"[{ADA_JSON}]", [ADA], '[{"name":"Ada","age":36}]'),
    (dict[str, int], '{"a": 1}', {"a": 1}, '{"a":1}'),
    (dict[str, int], '{"answer": {"a": 1}}', {"a": 1}, '{"a":1}'),
    (Literal["yes", "no"], "yes", "yes", "yes"),
    (Literal["yes", "no"], '"yes"', "yes", "yes"),
    (bool, "true", True, "true"),
    (str, "plain text", "plain text", "plain text"),
    (str, '{"answer": "inside"}', "inside", "inside"),
    (Person | None, "null", None, "null"),
    (Person | None, ADA_JSON, ADA, '{"name":"Ada","age":36}'),
]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("kind", "given", "output", "text"), ANSWERS)
async def test_json_text_is_parsed_as_output_type(native, kind, given, output, text):
    model = ScriptedModel([given], native_output=native)
    result = await Agent(model, output_type=kind, output_retries=0).run("go")
    assert (result.output, result.text, result.stop_reason) == (output, text, "answer")


@pytest.mark.parametrize("native", [False, True])
async def test_text_of_wrong_type_is_not_coerced(native):
    agent = Agent(ScriptedModel(["'42'"], native_output=native), output_type=int, output_retries=0)
    with pytest.raises(AgentExecutionError, match="The answer did not fit once: Invalid arguments"):
        await agent.run("go")


@pytest.mark.parametrize(
    ("kind", "value", "text"), [(str, "z", "z"), (int, 5, "5"), (list[str], ["z"], '["z"]'), (int | None, None, "null")]
)
async def test_text_of_final_answer_call_is_its_value(kind, value, text):
    def agent():
        return Agent(ScriptedModel([ToolCall("final_answer", {"answer": value})]), output_type=kind)

    result = await agent().run("go")
    assert (result.text, result.output) == (text, value)
    assert (await agent().as_tool("inner", "").aexecute("go")).output == text


class Opaque:
    """Something that JSON cannot hold."""

    def __str__(self):
        raise ValueError("never")


@pytest.mark.parametrize(
    ("kind", "output"), [(Typed, {"name": "Ada"}), (Person, Person("Ada")), (Model, Model(name="Ada"))]
)
def test_unknown_keys_of_an_answer_are_left_out_and_logged(caplog, kind, output):
    model = ScriptedModel([ToolCall("final_answer", {"name": "Ada", "password": "secret"})])
    with caplog.at_level("INFO", "toolsemble.agent"):
        assert Agent(model, output_type=kind).run_sync("Who?").output == output
    logged = [each.message for each in caplog.records if each.name == "toolsemble.agent"]
    assert logged == ["An answer was repaired: extra at password"]


async def test_unserializable_answer_keeps_model_text():
    kind = Annotated[str, pydantic.AfterValidator(lambda _: Opaque())]
    result = await Agent(ScriptedModel(["z"], native_output=True), output_type=kind).run("go")
    assert (type(result.output), result.text) == (Opaque, "z")


async def test_native_output_model_gets_schema():
    model = ScriptedModel([sum_of(1, 2), ADA_JSON], native_output=True)
    result = await Agent(model, [add], output_type=Person).run("go")
    assert (result.output, told(result.messages)) == (ADA, ["3"])
    for request in model.asked:
        assert [each.name for each in request.specifications] == ["add"]
        assert request.tool_choice == "auto"
        assert list(request.output_schema["properties"]) == ["name", "age"]
        assert request.output_schema["type"] == "object"


async def test_other_models_get_final_answer_tool():
    model = ScriptedModel([sum_of(1, 2), ADA_CALL])
    result = await Agent(model, [add], output_type=Person).run("go")
    assert (result.output, result.text, result.stop_reason) == (ADA, ADA_CALL.json, "answer")
    assert (told(result.messages), [record.name for record in result.tool_calls]) == (
        ["3", "Answer accepted"],
        ["add"],
    )
    assert_valid(result.messages)
    for request in model.asked:
        assert [each.name for each in request.specifications] == ["add", "final_answer"]
        assert (request.tool_choice, request.output_schema) == ("required", None)
        assert list(request.specifications[-1].parameters["properties"]) == ["name", "age"]


async def test_calls_beside_final_answer_are_run():
    model = ScriptedModel([[sum_of(1, 2), ADA_CALL, ToolCall("broken"), ADA_CALL]])
    result = await Agent(model, TOOLS, output_type=Person).run("go")
    assert (result.output, result.stop_reason) == (ADA, "answer")
    assert told(result.messages) == ["3", "Answer accepted", "Error: broken", "Error: An answer was already accepted"]


async def test_first_valid_answer_is_used():
    wrong = ToolCall("final_answer", {"age": 1})
    result = await Agent(ScriptedModel([[wrong, ADA_CALL]]), output_type=Person).run("go")
    assert (result.output, told(result.messages)) == (
        ADA,
        ["Error: Missing required parameter(s) for 'Person': name", "Answer accepted"],
    )


@pytest.mark.parametrize("native", [False, True])
async def test_invalid_answer_is_retried_with_history(native):
    model = ScriptedModel(['{"age": 36}', "not at all", ADA_JSON], native_output=native)
    result = await Agent(model, output_type=Person).run("go")
    assert result.output == ADA
    texts = [message.text for message in result.messages]
    assert texts == [
        "go",
        '{"age": 36}',
        "Missing required parameter(s) for 'Person': name. Give the whole answer again.",
        "not at all",
        texts[4],
        ADA_JSON,
    ]
    assert isinstance(result.messages[4], UserMessage)
    assert texts[4].startswith("Invalid JSON input for 'Person'")


async def test_invalid_final_answer_call_is_reported_to_model():
    model = ScriptedModel([ToolCall("final_answer", {"age": 1}), ToolCall("final_answer", "broken"), ADA_CALL])
    result = await Agent(model, [add], output_type=Person).run("go")
    assert result.output == ADA
    assert told(result.messages)[0] == "Error: Missing required parameter(s) for 'Person': name"
    assert result.tool_calls == []


@pytest.mark.parametrize("wrong", ["{}", ToolCall("final_answer")])
async def test_output_retries_are_limited(wrong):
    model = ScriptedModel([wrong] * 9)
    with pytest.raises(AgentExecutionError, match="The answer did not fit 3 times: Missing required") as caught:
        await Agent(model, output_type=Person).run("go")
    assert len(model.requests) == 3
    assert_valid(caught.value.partial.messages)
    result = await Agent(ScriptedModel([ADA_JSON]), output_type=Person).run(
        "go on", history=caught.value.partial.messages
    )
    assert result.output == ADA


async def test_final_answer_is_accepted_after_budget():
    model = ScriptedModel([sum_of(1, 2), sum_of(3, 4), ToolCall("final_answer", {}), ADA_CALL])
    result = await Agent(model, [add], output_type=Person, max_tool_calls=1).run("go")
    assert (result.output, result.stop_reason) == (ADA, "max_iterations")
    assert [[each.name for each in request.specifications] for request in model.asked[2:]] == [["final_answer"]] * 2
    model = ScriptedModel([sum_of(1, 2), sum_of(3, 4), ADA_JSON], native_output=True)
    result = await Agent(model, [add], output_type=Person, max_tool_calls=1).run("go")
    assert (result.output, result.stop_reason) == (ADA, "max_iterations")
    assert [request.tool_choice for request in model.asked] == ["auto", "auto", "none"]


@pytest.mark.parametrize("last", ["", sum_of(5, 6), ChatReply("no idea", (sum_of(5, 6),))])
async def test_missing_answer_after_budget_raises_error(last):
    model = ScriptedModel([sum_of(1, 2), sum_of(3, 4), last])
    with pytest.raises(BudgetExceededError, match="returned no final answer"):
        await Agent(model, [add], output_type=Person, max_tool_calls=1).run("go")


@pytest.mark.parametrize("native", [False, True])
async def test_answer_beside_unrun_calls_is_accepted(native):
    last = ChatReply(ADA_JSON, (sum_of(5, 6),))
    model = ScriptedModel([sum_of(1, 2), sum_of(3, 4), last], native_output=native)
    result = await Agent(model, [add], output_type=Person, max_tool_calls=1).run("go")
    assert (result.output, result.stop_reason, result.usage.tool_calls) == (ADA, "max_iterations", 1)
    assert_valid(result.messages)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("kind", [Person, Defaults, str, Person | None])
@pytest.mark.parametrize("text", ["", " \n"])
async def test_empty_answer_is_invalid_for_every_type(native, kind, text):
    agent = Agent(ScriptedModel([text], native_output=native), output_type=kind, output_retries=0)
    with pytest.raises(AgentExecutionError, match="The answer did not fit once: The answer is empty"):
        await agent.run("go")


async def test_answer_in_last_turn_is_accepted():
    model = ScriptedModel([sum_of(1, 2), [ADA_CALL, sum_of(1, 2)]])
    result = await Agent(model, [add], output_type=Person, max_turns=2, max_tool_calls=1).run("go")
    assert (result.output, result.stop_reason) == (ADA, "answer")
    assert told(result.messages)[2].startswith("STOP: Maximum tool iterations (1) reached.")


class WithExcludedField(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(exclude=True)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("kind", "given", "text", "output"),
    [
        (Person, ADA, '{"name":"Ada","age":36}', ADA),
        (Person, {"name": "Ada"}, '{"name":"Ada"}', Person("Ada")),
        (Person, ADA_JSON, ADA_JSON, ADA),
        (Person, ToolResult.success("Ada, 36", ADA), "Ada, 36", ADA),
        (
            WithExcludedField,
            WithExcludedField(name="Ada", age=36),
            '{"name":"Ada"}',
            WithExcludedField(name="Ada", age=36),
        ),
        (str, "shown", "shown", "shown"),
        (str, {"a": 1}, '{"a":1}', '{"a":1}'),
        (list[int], (1, 2), "[1,2]", [1, 2]),
        (int, 42, "42", 42),
        (int | None, None, "", None),
        (Person | None, None, "", None),
        (int | None, 42, "42", 42),
    ],
)
async def test_valid_immediate_result_becomes_output(native, kind, given, text, output):
    @tool(return_behavior=ReturnBehavior.IMMEDIATE)
    def find() -> object:
        return given

    model = ScriptedModel([ToolCall("find")], native_output=native)
    result = await Agent(model, [find], output_type=kind).run("go")
    assert (result.output, result.text, result.stop_reason) == (output, text, "immediate")


@pytest.mark.parametrize("given", ["shown: Ada", {"age": 1}, "", ToolResult.success("Ada", object())])
async def test_invalid_immediate_result_goes_to_model(given):
    @tool(return_behavior=ReturnBehavior.IMMEDIATE)
    def find() -> object:
        return given

    result = await Agent(ScriptedModel([ToolCall("find"), ADA_CALL]), [find], output_type=Person).run("go")
    assert (result.output, result.stop_reason, len(result.tool_calls)) == (ADA, "answer", 1)
    assert_valid(result.messages)


@pytest.mark.parametrize(("kind", "given"), [(str, None), (int | None, ImageContent(b"...", "image/png"))])
async def test_immediate_result_without_value_goes_to_model(kind, given):
    @tool(return_behavior=ReturnBehavior.IMMEDIATE)
    def find() -> object:
        return given

    answer = ToolCall("final_answer", {"answer": "7"})
    result = await Agent(ScriptedModel([ToolCall("find"), answer]), [find], output_type=kind).run("go")
    assert (result.text, result.stop_reason) == ("7", "answer")


async def test_final_answer_tool_is_unknown_without_output_type():
    result = await Agent(ScriptedModel([ADA_CALL, "x"]), [add]).run("go")
    assert told(result.messages) == ["Error: Unknown tool 'final_answer'. Available tools: add"]


async def test_hostile_answers_are_rejected():
    deep = "[" * 100_000
    model = ScriptedModel([deep, ToolCall("final_answer", deep), "[1]"])
    assert (await Agent(model, output_type=list[int]).run("go")).output == [1]


def test_unsupported_output_type_is_rejected():
    class Odd:
        pass

    with pytest.raises(ToolDefinitionError, match="Agent output_type: "):
        Agent(ScriptedModel([]), output_type=Odd)


async def test_final_answer_name_is_reserved():
    @tool
    def final_answer() -> str:
        return "mine"

    with pytest.raises(ToolDefinitionError, match="The name 'final_answer' is reserved for output_type"):
        Agent(ScriptedModel([]), [final_answer], output_type=Person)
    with pytest.raises(AgentExecutionError, match="The name 'final_answer' is reserved"):
        await Agent(ScriptedModel([]), lambda run: [final_answer], output_type=Person).run("go")
    assert told((await Agent(ScriptedModel([ToolCall("final_answer"), "x"]), [final_answer]).run("go")).messages) == [
        "mine"
    ]
