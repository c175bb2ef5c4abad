"""The body gets the declared types, or does not run: edge cases of reading arguments."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import enum
import functools
import json
import pathlib
import pickle
import types
import typing
from typing import Annotated, Any, Generic, Literal, Optional, Self, TypeVar, Union

import annotated_types
import attrs
import docstring_parser
import msgspec
import pydantic
import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from toolsemble import (
    Edit,
    MemoryId,
    Param,
    SchemaTool,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolParameters,
    ToolReply,
    ToolResult,
    TypedTool,
    tool,
)
from toolsemble.schema.pointer import find_ref_target
from toolsemble.schema.repair import STEPS, Repairs

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
        (Cat | Dog, {"type": "cow", "name": "x"}, "value.type: expected one of 'cat', 'dog'"),
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
def test_text_that_is_not_json_is_reported_as_such(annotation, text, repair):
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
        ToolDefinitionError, match=r"Right cannot be sent by a model|only a function's parameter is injected"
    ):
        Toolbox([kind()])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda a, b: None, "two parameters have the key 'b'"),
        (lambda a, u: None, "parameter 'u' has the name of an injected parameter"),
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
    with pytest.raises(ToolDefinitionError, match="'a' already exists"):
        parameters.add("a", "string")
    with pytest.raises(ToolDefinitionError, match="'c' does not exist; add it first"):
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
    ({"properties": {"a": True}}, {"a": 1}, '{"a":1}', {"type": "object", "properties": {"a": {}}}),
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


def test_a_list_of_lists_is_not_wrapped_forever():
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


class Text(enum.StrEnum):
    A = "a"
    B = "b"


def test_enumerations_that_are_text_arrive_as_members():
    value, _ = run(Text, "b" and json.dumps({"value": "b"}))
    assert value is Text.B


@pytest.mark.parametrize(
    ("annotation", "sent", "arrived"),
    [
        (Annotated[int, Field(json_schema_extra={"deprecated": True})], 1, 1),
        (Annotated[dict[str, int], Field(min_length=1)], {"a": 1}, {"a": 1}),
        (Annotated[int, pydantic.AfterValidator(lambda number: number + 1)], 1, 2),
        (list[Annotated[int, Param("Even", examples=[2])]], [2], [2]),
        (tuple[()], [], ()),
        (pydantic.RootModel[list[int]], [1], pydantic.RootModel[list[int]]([1])),
        (typing.Required[int], 1, 1),
        (Annotated[int, Field(default_factory=lambda: 7)], 1, 1),
        (Annotated[str, Field(examples=["a"])], "b", "b"),
        (list[Annotated[int, Field(json_schema_extra={"deprecated": True})]], [1], [1]),
    ],
)
def test_unusual_annotations_work_too(annotation, sent, arrived):
    assert run(annotation, {"value": sent}["value"] if False else json.dumps({"value": sent})) == (arrived, [])


def test_a_generic_pydantic_model_keeps_its_argument():
    class Box(BaseModel, Generic[T]):
        item: T

    assert run(Box[int], json.dumps({"value": {"item": "x"}})) == "value.item: expected an integer"


def test_a_factory_of_pydantics_field_fills_in():
    def function(value: Annotated[int, Field(default_factory=lambda: 7)]) -> int:
        return value

    assert tool(function).execute("{}").output == "7"


@dataclasses.dataclass(eq=False)
class Mutable:
    items: list = dataclasses.field(default_factory=list)


def test_defaults_that_can_be_hashed_and_changed_are_copied_too():
    @tool
    def function(value: Mutable = Mutable()) -> int:  # noqa: B008 - the hazard is the test
        value.items.append(1)
        return len(value.items)

    assert [function.execute("{}").output for _ in range(3)] == ["1"] * 3


def test_a_name_that_an_alias_mentions_must_exist():
    with pytest.raises(ToolDefinitionError, match="'Nowhere' cannot be sent by a model; define or import it"):
        run(TypeAliasType("Bad", list["Nowhere"]), "{}")


def test_a_name_in_the_closure_may_have_no_value_yet():
    def make():
        def function(value: int) -> str:
            return str(later) if False else "ran"

        made = tool(function)
        assert made.execute('{"value": 1}').output == "ran"
        later = 1
        return later

    make()


def test_discriminators_of_models_list_the_tags():
    class A(BaseModel):
        kind: Literal["a"]

    class B(BaseModel):
        kind: Literal["b"]

    answer = run(Annotated[A | B, Field(discriminator="kind")], json.dumps({"value": {"kind": "c"}}))
    assert answer == "value.kind: expected one of 'a', 'b'"


class Keyworded(msgspec.Struct, kw_only=True):
    size: int = 1
    name: str


def test_keyword_only_structs_may_have_required_fields_last():
    assert run(Keyworded, json.dumps({"value": {"name": "x"}})) == (Keyworded(size=1, name="x"), [])
    assert run(Keyworded, json.dumps({"value": {}})) == "value.name: missing"


@attrs.define
class Computed:
    size: int
    double: int = attrs.field(init=False)

    def __attrs_post_init__(self):
        self.double = 2 * self.size


def test_computed_fields_of_attrs_classes_are_not_asked_for():
    value, _ = run(Computed, json.dumps({"value": {"size": 2}}))
    assert value.double == 4


def test_cyclic_and_dangling_references_end_the_repair():
    schema = {"properties": {"a": {"type": "object"}}, "allOf": [True, {"$ref": "#/properties/a/type/x"}]}
    mended = Repairs(schema, frozenset(["coerce"]))
    assert mended.repair({"a": 1}, {"$ref": "#/loop"} | schema) == {"a": 1}
    circle = {"loop": {"$ref": "#/loop"}}
    assert Repairs(circle, STEPS).repair("x", {"$ref": "#/loop"}) == "x"
    assert find_ref_target({"anyOf": [{"type": "string"}]}, "#/anyOf/0") == {"type": "string"}
    assert find_ref_target({"a": "x"}, "#/a/b/c") == {}


def test_a_value_too_large_to_look_through_is_left_to_the_validator():
    value = [[{"x": str(n)} for n in range(3000)]]
    answer = run(list[list[dict[str, int] | int]], json.dumps({"value": value}))
    assert "expected an integer" in answer


def test_docstrings_that_cannot_be_parsed_are_taken_whole(monkeypatch):
    def explode(_):
        raise docstring_parser.ParseError("odd")

    monkeypatch.setattr(docstring_parser, "parse", explode)

    def function() -> str:
        """An odd
        docstring of two lines.
        """

    assert tool(function).description == "An odd\ndocstring of two lines."


class Reviewer:
    def review(self, request):
        self.request = request
        return Edit('{"value": {"kind": "circle", "radius": 3}}')


def test_a_reviewer_sees_typed_arguments_as_data_and_may_edit_them():
    @tool(requires_approval=True)
    def function(value: Circle) -> str:
        return repr(value)

    reviewer = Reviewer()
    call = ToolCall("function", {"value": {"kind": "circle", "radius": "2"}})
    assert (
        Toolbox([function], review=reviewer).execute(call).text
        == ["test_reading", "Circle(kind='circle', radius=3)"][1]
    )
    assert reviewer.request.arguments == {"value": {"kind": "circle", "radius": 2}}


def test_a_method_bound_by_hand_is_the_tool_of_its_object():
    class Greeter:
        name = "ada"

        @tool
        def hello(self) -> str:
            return self.name

    bound = types.MethodType(vars(Greeter)["hello"], Greeter())
    assert Toolbox([bound]).execute(ToolCall("hello")).text == "ada"


def call(function, arguments, **settings):
    reply = Toolbox([tool(function)], **settings).execute(ToolCall(function.__name__, json.dumps(arguments)))
    return reply.text


class TestWhatFitsIsLeftAlone:
    def test_in_a_union_of_lists(self):
        def function(x: list[int] | list[str], n: int = 0) -> str:
            return repr(x)

        assert call(function, {"x": ["1"]}) == call(function, {"x": ["1"], "n": "3"}) == "['1']"

    def test_where_the_author_reads_it(self):
        def function(x: Annotated[list[str], pydantic.BeforeValidator(split)], n: int = 0) -> str:
            return repr(x)

        assert call(function, {"x": "a,b", "n": "3"}) == "['a', 'b']"

    def test_under_another_alias(self):
        class Place(BaseModel):
            city: str = Field(validation_alias=pydantic.AliasChoices("city", "town"))
            n: int = 0

        kind = type(
            "T", (TypedTool,), {"input_type": Place, "name": "t", "description": "", "run": lambda _, i: i.city}
        )
        assert kind().execute({"town": "Rome", "n": "3"}).output == "Rome"

    def test_beside_a_long_list(self):
        def function(x: list[int], n: int) -> int:
            return n

        assert call(function, {"x": [1] * 6000, "n": "3"}) == "3"

    def test_under_a_key_that_the_schema_admits(self):
        schema = {"properties": {"user_id": {"type": "string"}, "n": {"type": "integer"}}}
        result = SchemaTool("f", "", lambda arguments: arguments, schema).execute({"userId": "5", "n": "1"})
        assert result.output == '{"userId":"5","n":1}'


def split(value):
    return value.split(",") if isinstance(value, str) else value


class Strictly(BaseModel):
    when: datetime.datetime = datetime.datetime(2024, 1, 1)  # noqa: DTZ001 - any will do
    digit: Literal[1, 2] = 1
    number: Number = Number.ONE


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [
        ({"when": "2024"}, "value.when: expected a date and time, such as 2024-03-15T12:30:00Z"),
        ({"digit": True}, "value.digit: expected one of 1, 2"),
        ({"number": True}, "value.number: expected one of 1, 2"),
        ({"number": 2}, (Strictly(number=Number.TWO), [])),
        ({"number": 2.0}, (Strictly(number=Number.TWO), ["coerce"])),
    ],
)
def test_models_are_read_as_exactly_as_parameters(sent, outcome):
    assert run(Strictly, json.dumps({"value": sent})) == outcome


def test_self_means_the_class_of_each_object():
    @dataclasses.dataclass
    class Parent:
        x: int = 0

        @tool
        def same(self, other: Self) -> str:
            return type(other).__name__

    @dataclasses.dataclass
    class Child(Parent):
        y: int = 0

    assert Toolbox([Parent()]).execute(ToolCall("same", {"other": {}})).text == "Parent"
    assert Toolbox([Child()]).execute(ToolCall("same", {"other": {"y": 1}})).text == "Child"


@pytest.mark.parametrize(
    ("annotation", "sent", "outcome"),
    [
        (Literal["a", "A"], "A ", ("A", ["coerce"])),
        (Literal["a", "A"], " a", ("a", ["coerce"])),
        (Literal["aa", "Aa"], "AA", "value: expected one of 'aa', 'Aa'"),
        (Literal["None", "this or that"], "x", "value: expected one of 'None', 'this or that'"),
        (list[str], "[draft] notes", (["[draft] notes"], ["coerce"])),
        (Circle | Square, {"kind": "oval"}, "value.kind: expected one of 'circle', 'square'"),
    ],
)
def test_near_values_mean_one_thing_or_nothing(annotation, sent, outcome):
    assert run(annotation, json.dumps({"value": sent})) == outcome


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, annotated_types.Ge(1.5)],
        Annotated[list[int], annotated_types.MinLen(-1)],
        Annotated[int, Field(default_factory=lambda data: data)],
    ],
)
def test_constraints_that_make_no_sense_are_refused_at_definition(annotation):
    with pytest.raises(ToolDefinitionError):
        run(annotation, "{}")


def test_defaults_that_json_cannot_hold_are_not_shown():
    def function(a: float = float("inf"), b: str = "\ud800") -> str:
        return f"{a}"

    box = Toolbox([tool(function)])
    assert box.specifications[0].parameters["properties"] == {"a": {"type": "number"}, "b": {"type": "string"}}
    assert box.execute(ToolCall("function")).text == "inf"


def test_an_input_type_that_is_not_an_object_is_rejected():
    kind = type("T", (TypedTool,), {"input_type": pydantic.RootModel[list[int]], "name": "t", "description": ""})
    kind.run = lambda self, input: ""
    kind.__abstractmethods__ = frozenset()
    with pytest.raises(ToolDefinitionError, match="is not an object with fields"):
        Toolbox([kind()])


def test_a_tool_that_a_class_refers_to_stays_a_tool_of_its_own():
    @tool
    def search(query: str) -> str:
        return query

    class Holder:
        found = search

    assert Holder.found is search
    assert Toolbox([search]).execute(ToolCall("search", {"query": "x"})).text == "x"


@dataclasses.dataclass
class First:
    seed: dataclasses.InitVar[int] = 3
    size: int = 0

    def __post_init__(self, seed):
        self.size = seed


@dataclasses.dataclass
class Second(First):
    more: int = 1


@attrs.define
class Converted:
    path: pathlib.Path = attrs.field(default=".", converter=pathlib.Path)


@pytest.mark.parametrize(("kind", "made"), [(Second, Second()), (Converted, Converted())])
def test_constructors_fill_in_what_only_they_know(kind, made):
    assert run(kind, json.dumps({"value": {}})) == (made, [])


def test_schemas_that_refer_to_themselves_through_all_of_are_written_out_too():
    node = {
        "type": "object",
        "properties": {"child": {"description": "c", "allOf": [{"$ref": "#/definitions/N"}, True]}},
    }
    schema = {"properties": {"n": {"$ref": "#/definitions/N"}}, "definitions": {"N": node}}
    (specification,) = Toolbox([SchemaTool("f", "", lambda arguments: arguments, schema)]).specifications
    assert "child" in specification.to_json()


def test_patterns_of_keys_take_linear_time_and_have_schemas_of_their_own():
    schema = {
        "patternProperties": {"^(a+)+$": {}, "^s_": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
    }
    result = SchemaTool("f", "", lambda arguments: arguments, schema).execute({"a" * 40 + "!": "1", "s_a": "5"})
    assert result.output == '{"' + "a" * 40 + '!":1,"s_a":"5"}'


def test_shapes_that_would_grow_without_bounds_are_written_with_references():
    kind = int
    for level in range(12):
        kind = dataclasses.make_dataclass(f"L{level}", [("a", kind), ("b", kind)])
    assert len(Toolbox([tool_of_kind(kind)]).specifications[0].to_json()) < 2_000_000


def tool_of_kind(kind):
    def function(value):
        return ""

    function.__annotations__ = {"value": kind}
    return tool(function)


def test_text_in_braces_that_is_not_json_is_a_string():
    assert run(int, '"hello {name}"') == "Error: Expected a JSON object for 'function' but received: STRING"
    assert "cut off" in run(int, json.dumps('{"value": '))


class Twice(enum.Enum):
    A = "a"
    B = "a"  # noqa: PIE796 - the second name is the test
    C = "c"


def test_values_that_two_names_share_are_offered_once():
    def function(value: Twice) -> str:
        return ""

    assert Toolbox([tool(function)]).specifications[0].parameters["properties"]["value"]["enum"] == ["a", "c"]


def test_a_call_remembers_where_it_came_from():
    asked = ToolCall.from_openai({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
    for clone in (copy.copy(asked), pickle.loads(pickle.dumps(asked))):
        assert ToolReply(clone, ToolResult.success("x")).to_openai()["type"] == "function_call_output"
