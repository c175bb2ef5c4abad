"""The body gets what was declared, or does not run: the corners of reading arguments."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import typing
from typing import Annotated, Any, Generic, Literal, Optional, Self, TypeVar, Union

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from toolsemble import (
    MemoryId,
    Param,
    SchemaTool,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolParameters,
    TypedTool,
    tool,
)

T = TypeVar("T")
Names = TypeAliasType("Names", list[str])
Few = TypeAliasType("Few", dict[str, T], type_params=(T,))
Tree = TypeAliasType("Tree", Union[dict[str, "Tree"], int])


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Loose(enum.Enum):
    YES = "yes"

    @classmethod
    def _missing_(cls, value):
        return cls.YES if value == "sure" else None


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Shape(enum.Enum):
    ROUND = (1, 1)
    FLAT = (1, 0)


@dataclasses.dataclass
class Base(Generic[T]):
    value: T


@dataclasses.dataclass
class Whole(Base[int]):
    more: int = 0


@dataclasses.dataclass
class Circle:
    kind: Literal["circle"]
    radius: int


@dataclasses.dataclass
class Square:
    kind: Literal["square"]
    side: int


class Cat(msgspec.Struct, tag="cat"):
    name: str


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Model(BaseModel):
    data: bytes = b""
    ratio: float = 0.5


class Holder(BaseModel):
    circle: Circle


class Closed(BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    size: int = 1


@pydantic.dataclasses.dataclass
class Native:
    size: int


def run(annotation, value, **settings):
    got = []

    def function(value):
        got.append(value)
        return "ran"

    function.__annotations__ = {"value": annotation}
    text = value if isinstance(value, str) else json.dumps({"value": value})
    reply = Toolbox([tool(function)], **settings).execute(ToolCall("function", text))
    steps = [repair["step"] for repair in reply.result.attributes.get("repairs", ())]
    return (got[0], steps) if got else reply.text.removeprefix("Error: Invalid arguments for 'function': ")


@pytest.mark.parametrize(
    ("annotation", "value", "outcome"),
    [
        (Whole, {"value": "x"}, "value.value: expected an integer"),
        (Whole, {"value": 1}, (Whole(1), [])),
        (Base, {"value": "x"}, (Base("x"), [])),
        (Number, True, "value: expected one of 1, 2"),
        (Number, 1.0, (Number.ONE, ["coerce"])),
        (Number, 2, (Number.TWO, [])),
        (Literal[1, 2], True, "value: expected one of 1, 2"),
        (Literal[1, 2], "2", (2, ["coerce"])),
        (Literal[True, None], 1, "value: expected one of true, null"),
        (Loose, "sure", (Loose.YES, [])),
        (Optional[int], 2.0, (2, ["coerce"])),
        (Model, {"data": "aGk="}, (Model(data=b"hi"), [])),
        (Holder, {"circle": {"kind": "circle", "radius": 1, "x": 2}}, (Holder(circle=Circle("circle", 1)), ["extra"])),
        (Native, {"size": 1, "x": 2}, (Native(1), ["extra"])),
        (Closed, {"size": 1, "x": 2}, (Closed(size=1, x=2), [])),
        (Cat | Dog, {"type": "dog", "name": "x"}, (Dog("x"), [])),
        (Cat | Dog, {"type": "cow", "name": "x"}, "value.type: expected one of 'cat'"),
        (
            Annotated[Circle | Square, Field(discriminator="kind")],
            {"kind": "square", "side": 1},
            (Square("square", 1), []),
        ),
        (Circle | Square, {"kind": "square", "side": "x"}, "value.side: expected an integer"),
        (list[str], '["a","b"]', "Error: Expected a JSON object for 'function' but received: ARRAY"),
        (list[str], {"a": 1}, (['{"a":1}'], ["coerce", "coerce"])),
        (list[str], '{"value": "[\\"a\\",\\"b"}', "value: expected an array"),
        (list[str], {"not": "a list"} and "['a', 'b']", (["a", "b"], ["nested"])),
        (list[list[str]], "x", "value: expected an array"),
        (list[list[str]], 5, "value: expected an array"),
        (dict[str, int], "{'a': 1}", ({"a": 1}, ["nested"])),
        (dict[str, int], "{'a': ", "value: expected an object"),
        (str, '{"value": 3.10}', ("3.10", ["coerce"])),
        (str, '{"value": 1e2}', ("1e2", ["coerce"])),
        (int, "٣", "value: expected an integer"),
        (Names, ["a"], (["a"], [])),
        (Few[int], {"a": 1}, ({"a": 1}, [])),
        (Few[int], {"a": "x"}, "value.a: expected an integer"),
        (Tree, {"a": {"b": 1}}, ({"a": {"b": 1}}, [])),
        (typing.LiteralString, "x", ("x", [])),
        (T, {"any": 1}, ({"any": 1}, [])),
        (TypeVar("B", bound=int), "x", "value: expected an integer"),
        (TypeVar("C", int, bool), "x", "value: expected an integer or true or false"),
        (typing.Final[int], "x", "value: expected an integer"),
    ],
    ids=lambda each: str(each)[:50],
)
def test_what_arrives_is_of_the_declared_type_or_nothing_runs(annotation, value, outcome):
    if isinstance(value, str) and not value.startswith(('{"value"', '["')):
        value = {"value": value}
        value = json.dumps(value)
    assert run(annotation, value) == outcome


@pytest.mark.parametrize(
    ("annotation", "text", "repair"),
    [
        (Any, '{"value": NaN}', True),
        (Any, '{"value": NaN}', False),
        (float, '{"value": Infinity}', True),
        (float, '{"value": -Infinity}', False),
        (Model, '{"value": {"ratio": NaN}}', True),
        (str, '{"value": Infinity}', True),
        (str, '{"value": "\\ud800"}', True),
        (int, '{"value": ' + "9" * 5000 + "}", True),
        (Any, '{"value": ' + "[" * 300 + "]" * 300 + "}", True),
    ],
)
def test_what_is_no_json_is_said_to_be_none(annotation, text, repair):
    answer = run(annotation, text, repair=repair)
    assert answer.startswith("Error: Invalid JSON input for 'function': ")
    assert "cut off" not in answer


def test_the_words_nan_and_infinity_are_words_in_a_string():
    assert run(str, {"value": "NaN and Infinity"}["value"] and '{"value": "NaN and Infinity"}') == (
        "NaN and Infinity",
        [],
    )


@pytest.mark.parametrize(
    "text",
    [
        """{'value': '```json {"value": "other"}```'}""",
        '{"value": "```json {\\"value\\": \\"other\\"}```",}',
    ],
)
def test_a_fence_inside_a_string_belongs_to_the_string(text):
    value, steps = run(str, text)
    assert value == '```json {"value": "other"}```'
    assert steps == ["text"]


def test_extra_keys_are_dropped_where_nothing_is_declared():
    @tool
    def now() -> str:
        return "noon"

    assert now.execute('{"zone": "UTC"}').attributes["repairs"][0]["step"] == "extra"


def test_repairs_are_on_record_also_when_the_body_fails():
    @tool
    def boom(number: int) -> str:
        raise ValueError("boom")

    result = boom.execute('{"number": "3"}')
    assert (result.error_message, result.attributes["repairs"][0]["to"]) == ("boom", 3)


def test_near_names_that_could_mean_two_parameters_mean_none():
    @tool
    def function(min_score: int = 0, minScore: int = 0) -> str:  # noqa: N803 - the clash is the test
        return f"{min_score} {minScore}"

    assert function.execute('{"MinScore": 5}').output == "0 0"


@pytest.mark.parametrize("field", [Right, Annotated[str, MemoryId]])
def test_types_that_only_look_like_parameters_are_refused(field):
    @dataclasses.dataclass
    class Bad:
        value: Any

    Bad.__annotations__["value"] = field
    Bad.__dataclass_fields__["value"].type = field
    kind = type(
        "Tool1", (TypedTool,), {"input_type": Bad, "name": "t", "description": "", "run": lambda self, input: ""}
    )
    with pytest.raises(
        ToolDefinitionError, match=r"Right cannot be asked of a model|only a function's parameter is injected"
    ):
        Toolbox([kind()])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda a, b: None, "two parameters are called 'b' for the model"),
        (lambda a, u: None, "parameter 'u' has the name of an injected one"),
    ],
)
def test_names_that_collide_are_refused(make, problem):
    taken = "b" if "two" in problem else "u"
    make.__annotations__ = {"a": Annotated[str, Param(name=taken)], "b": str, "u": Annotated[str, MemoryId]}
    with pytest.raises(ToolDefinitionError, match=problem):
        Toolbox([tool("t")(make)])


class Unreadable(BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    callback: typing.Callable


def test_types_that_only_pydantic_can_judge_are_judged_at_definition():
    def function(value: Unreadable) -> str:
        return ""

    with pytest.raises(
        ToolDefinitionError, match="the types of 'function' cannot be read: Cannot generate a JsonSchema"
    ):
        Toolbox([tool(function)])


def test_self_means_the_class_of_the_method():
    @dataclasses.dataclass
    class Fruit:
        size: int = 0

        @tool
        def eat(self, other: Self) -> int:
            return self.size + other.size

    assert Toolbox([Fruit(1)]).execute(ToolCall("eat", {"other": {"size": 2}})).text == "3"


def test_a_context_inside_another_type_is_not_injected():
    def function(contexts: list[ToolContext]) -> str:
        return ""

    with pytest.raises(ToolDefinitionError, match="parameter 'contexts'"):
        Toolbox([tool(function)])


def test_members_that_are_read_by_name_are_offered_by_name():
    def function(shape: Shape = Shape.FLAT) -> str:
        return shape.name

    box = Toolbox([tool(function)])
    assert box.specifications[0].parameters["properties"]["shape"] == {
        "type": "string",
        "enum": ["ROUND", "FLAT"],
        "default": "FLAT",
    }
    assert [box.execute(ToolCall("function", each)).text for each in ({}, {"shape": "round"})] == ["FLAT", "ROUND"]


def test_an_object_that_is_a_tool_and_has_tools_is_all_of_them():
    class Both(Tool):
        name = "both"
        description = ""

        def run(self, input):
            return input

        @tool
        def extra(self) -> str:
            return "extra"

    assert Toolbox([Both()]).names == ["both", "extra"]


def test_partial_functions_and_callable_objects_can_be_tools():
    class Adder:
        def __call__(self, a: int, b: int = 1) -> int:
            return a + b

    def add(a: int, b: int) -> int:
        return a + b

    box = Toolbox([tool("partial", "")(functools.partial(add, b=5)), tool("object", "")(Adder())])
    assert box.execute(ToolCall("partial", {"a": 1})).text == "6"
    assert box.execute(ToolCall("object", {"a": 1})).text == "2"


class Mid(TypedTool[Base[T]], Generic[T]):
    description = ""


class Leaf(Mid[int]):
    name = "leaf"

    def run(self, input):
        return repr(input)


def test_a_generic_input_type_keeps_its_argument_through_classes_between():
    assert Leaf().execute('{"value": 1}').output == "Base(value=1)"
    assert Leaf().execute('{"value": "x"}').error_message == "Invalid arguments for 'Base': value: expected an integer"


def test_parameters_can_be_written_step_by_step():
    parameters = (
        ToolParameters().add("b", "integer", "A number").add("a", {"type": "string", "minLength": 1}).require("a", "a")
    )
    schema = parameters.build()
    assert schema == {
        "type": "object",
        "properties": {"b": {"type": "integer", "description": "A number"}, "a": {"type": "string", "minLength": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    schema["properties"].clear()
    assert parameters.build()["properties"]
    assert (
        SchemaTool("f", "", lambda arguments: arguments, parameters.build()).execute('{"a": "x"}').output == '{"a":"x"}'
    )
    with pytest.raises(ToolDefinitionError, match="'a' is there already"):
        parameters.add("a", "string")
    with pytest.raises(ToolDefinitionError, match="'c' is not there; add it first"):
        parameters.require("c")


SCHEMAS = [
    (
        {
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        {"b": "3"},
        '{"b":3}',
        {
            "type": "object",
            "description": "give a or b",
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        },
    ),
    (
        {"properties": {"a": {"type": "string"}}, "oneOf": [{"minProperties": 1}, True]},
        {},
        "{}",
        {"type": "object", "properties": {"a": {"type": "string"}}},
    ),
    (
        {
            "properties": {"n": {"type": "integer"}},
            "patternProperties": {"^x_": {"type": "string"}},
            "additionalProperties": False,
        },
        {"n": "3", "x_a": "v", "y": 1},
        '{"n":3,"x_a":"v"}',
        {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False},
    ),
    ({}, {"anything": 1}, '{"anything":1}', {"type": "object"}),
    (
        {"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}},
        {"b": "2"},
        '{"b":2}',
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    ),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}},
        },
        {"pair": ["1", "x"]},
        '{"pair":[1,"x"]}',
        {
            "type": "object",
            "properties": {
                "pair": {
                    "type": "array",
                    "description": "in this order: integer, string",
                    "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                }
            },
        },
    ),
    ({"properties": {"a": {"allOf": [{"type": "integer"}]}}}, {"a": "2"}, '{"a":2}', None),
    ({"properties": {"a": {"$ref": "#/allOf/0"}}, "allOf": [{"title": "x"}]}, {"a": 1}, '{"a":1}', None),
]


@pytest.mark.parametrize(("schema", "sent", "text", "offered"), SCHEMAS)
def test_schemas_of_every_style_are_offered_and_repaired(schema, sent, text, offered):
    box = Toolbox([SchemaTool("f", "", lambda arguments: arguments, schema)])
    assert box.execute(ToolCall("f", sent)).text == text
    if offered is not None:
        assert box.specifications[0].parameters == offered


def test_a_list_of_lists_is_not_wrapped_for_ever():
    schema = {
        "properties": {"x": {"$ref": "#/$defs/L"}},
        "$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}},
    }
    result = SchemaTool("f", "", lambda arguments: arguments, schema).execute({"x": 3})
    assert result.error_message == "Invalid arguments for 'f': x: expected an array"


def test_a_long_list_of_wrong_values_is_answered_with_its_first_problem():
    schema = {"properties": {"v": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}}
    box = Toolbox([SchemaTool("f", "", lambda arguments: arguments, schema)])
    reply = box.execute(ToolCall("f", {"v": ["x"] * 10_000}))
    assert reply.text == "Error: Invalid arguments for 'f': v[0]: expected an integer or null"


class Alpha(BaseModel):
    a: Optional[Alpha] = None
    b: Optional[Beta] = None


class Beta(BaseModel):
    a: Optional[Alpha] = None
    b: Optional[Beta] = None
    c: Optional[Alpha] = None


def test_types_that_contain_each_other_stay_small():
    def function(value: Alpha) -> str:
        return ""

    assert len(Toolbox([tool(function)]).specifications[0].to_json()) < 20_000
