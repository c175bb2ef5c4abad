"""Habits of Java programmers: methods for names, descriptions first, a class instead of an object."""

import warnings
from dataclasses import dataclass
from typing import Annotated, Any, NewType

import pytest

from toolsemble import (
    MemoryId,
    SchemaTool,
    Tool,
    Toolbox,
    ToolCall,
    ToolDefinitionError,
    ToolParameters,
    ToolPipeline,
    ToolReply,
    ToolResult,
    ToolSpecification,
    TypedTool,
    tool,
    tool_specifications_from,
)

METHOD = "{} is a method; make it an attribute or a @property"


@dataclass
class Route:
    start: str
    stops: int = 0


class NamedByMethod(Tool):
    description = "Says it louder"

    def name(self):
        return "shout"

    def run(self, input):
        return input


class DescribedByMethod(Tool):
    name = "shout"

    def description(self):
        return "Says it louder"

    def run(self, input):
        return input


class PlainByMethods:
    def name(self):
        return "shout"

    def description(self):
        return "Says it louder"

    def execute(self, input):
        return ToolResult.success(input)


class SpecByMethods:
    def __init__(self, **members):
        self.name, self.description = "now", "The time"
        self.parameters_schema = None
        vars(self).update(members)

    def execute(self, arguments):
        return "noon"


class TypedByMethod:
    name = "plan"
    description = "Plans a route"

    def input_type(self):
        return Route

    def execute(self, input):
        return ToolResult.success(input.start)


@pytest.mark.parametrize(
    ("made", "member"),
    [
        (NamedByMethod(), "name"),
        (DescribedByMethod(), "description"),
        (PlainByMethods(), "name"),
        (SpecByMethods(name=lambda: "now"), "name"),
        (SpecByMethods(description=lambda: "now"), "description"),
        (SpecByMethods(parameters_schema=lambda: None), "parameters_schema"),
        (TypedByMethod(), "input_type"),
    ],
)
def test_member_that_is_a_method_is_explained(made, member):
    with pytest.raises(ToolDefinitionError, match=METHOD.format(member)):
        Toolbox([made])


def test_repr_of_a_tool_that_is_named_by_a_method_ends():
    assert repr(NamedByMethod()) == "NamedByMethod(None)"


def test_input_type_of_a_plain_object_is_used():
    class Plan:
        name = "plan"
        description = "Plans a route"
        input_type = Route

        def execute(self, input):
            return ToolResult.success(f"{input.start}, {input.stops} stops")

    box = Toolbox([Plan()])
    assert box.execute(ToolCall("plan", {"start": "Rome"})).text == "Rome, 0 stops"
    assert box.execute(ToolCall("plan", "{}")).text == "Error: Missing required parameter(s) for 'Route': start"


@pytest.mark.parametrize("kind", [int, "text", None])
def test_input_type_of_a_plain_object_that_has_no_fields_is_refused(kind):
    class Plan:
        name = "plan"
        description = "Plans a route"
        input_type = kind

        def execute(self, input):
            return ToolResult.success(input)

    with pytest.raises(ToolDefinitionError, match=r"Tool 'plan': input type .* has no fields; use a dataclass"):
        Toolbox([Plan()])


@pytest.mark.parametrize("sentence", ["Calculate a mathematical expression", "Calculates."])
def test_sentence_as_the_name_hints_at_the_description(sentence):
    @tool(sentence)
    def calculate(expression: str) -> str:
        return expression

    hint = r"Invalid tool name 'Calculate.*'; if it is the description, write @tool\(description=\.\.\.\)"
    with pytest.raises(ToolDefinitionError, match=hint):
        Toolbox([calculate])


def test_capitalized_word_as_the_name_of_an_undescribed_tool_is_warned_of():
    def calculate(expression: str) -> str:
        return expression

    with pytest.warns(UserWarning, match=r"names the tool 'Calculates' instead of 'calculate'; if it is the desc"):
        made = tool("Calculates")(calculate)
    assert made.name == "Calculates"


@pytest.mark.parametrize(
    ("name", "description", "docstring"),
    [
        ("search", None, None),
        ("web_search", None, None),
        ("GetWeather", None, None),
        ("Calculator", "Calculates", None),
        ("Calculator", None, "Calculates."),
        (None, "Calculates", None),
    ],
)
def test_plain_name_is_not_warned_of(name, description, docstring):
    def calculate(expression: str) -> str:
        return expression

    calculate.__doc__ = docstring
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tool(name, description)(calculate).name == (name or "calculate")


@pytest.mark.parametrize("name", ["", " ", "a b", "ä", "x" * 65])
def test_specification_refuses_a_name_that_a_tool_could_not_have(name):
    with pytest.raises(ToolDefinitionError, match="Invalid tool name"):
        ToolSpecification(name, "d")


@pytest.mark.parametrize("name", ["", None, 5, ["city"]])
def test_parameter_needs_a_name(name):
    with pytest.raises(ToolDefinitionError, match="Tool parameters: a name must be a str that is not empty, not"):
        ToolParameters().add(name, "string")


@pytest.mark.parametrize("name", [["city"], None, 5])
def test_required_parameters_are_names(name):
    with pytest.raises(ToolDefinitionError, match=r"require takes names, such as require\('city'\), not"):
        ToolParameters().add("city", "string").require(name)


def test_reply_takes_a_result():
    with pytest.raises(TypeError, match=r"must be a ToolResult, not str; pass ToolResult\.success\(text\)"):
        ToolReply(ToolCall("now"), "noon")


def test_call_needs_a_name():
    with pytest.raises(ValueError, match="ToolCall name is empty; pass the name of a tool"):
        ToolCall("")


class Shout(Tool):
    name = "shout"
    description = "Says it louder"

    def __init__(self, volume):
        self.volume = volume

    def run(self, input):
        return input.upper()


class Plan(TypedTool[Route]):
    name = "plan"
    description = "Plans a route"

    def run(self, input):
        return input.start


class Both(Shout):
    @tool
    def whisper(self, text: str) -> str:
        """Says it quietly."""
        return text.lower()


class PlainShout:
    name = "shout"
    description = "Says it louder"

    def execute(self, input):
        return ToolResult.success(input.upper())


@pytest.mark.parametrize(
    ("kind", "made"), [(Shout, Shout(1)), (Plan, Plan()), (Both, Both(1)), (PlainShout, PlainShout())]
)
def test_class_has_the_specifications_of_its_objects(kind, made):
    assert tool_specifications_from(kind) == tool_specifications_from(made)


class NamedByObject(Tool):
    description = "Has a name of its own"

    def __init__(self, name):
        self.name = name

    def run(self, input):
        return input


@pytest.mark.parametrize("kind", [NamedByObject, SchemaTool, Tool, NamedByMethod])
def test_class_that_only_objects_describe_is_refused(kind):
    with pytest.raises(
        ToolDefinitionError, match=rf"{kind.__name__} cannot be described without an object .*; pass one"
    ):
        tool_specifications_from(kind)


def test_class_without_tools_has_none():
    assert tool_specifications_from(Route) == []


def test_pipeline_class_that_overrides_run_is_refused():
    with pytest.raises(TypeError, match="Search overrides run, which a pipeline never calls; add a step"):

        class Search(ToolPipeline):
            def run(self, input):
                return input


UserId = NewType("UserId", str)


@pytest.mark.parametrize("kind", [int, bytes, list[str], int | None])
def test_memory_id_that_is_not_a_text_is_refused(kind):
    def whoami(user):
        return user

    whoami.__annotations__["user"] = Annotated[kind, MemoryId]
    with pytest.raises(ToolDefinitionError, match=r"parameter 'user': a MemoryId is a str; write Annotated\[str, Mem"):
        Toolbox([tool(whoami)])


@pytest.mark.parametrize("kind", [str, str | None, UserId, Any, object])
def test_memory_id_is_a_text(kind):
    def whoami(user):
        return user

    whoami.__annotations__["user"] = Annotated[kind, MemoryId]
    assert Toolbox([tool(whoami)]).execute(ToolCall("whoami"), memory_id="ada").text == "ada"
