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
from toolsemble._schema.argument_problems import find_ref_target
from toolsemble._schema.repair import STEPS, Repairs

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
        (Number, True, "value: expected one of 1 (ONE), 2 (TWO)"),
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
def test_body_gets_declared_type_or_does_not_run(annotation, value, outcome):
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


def test_nan_and_infinity_are_allowed_in_strings():
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
def test_code_fence_inside_string_is_kept(text):
    value, steps = run(str, text)
    assert value == '```json {"value": "other"}```'
    assert steps == ["text"]


def test_undeclared_extra_keys_are_dropped():
    @tool
    def now() -> str:
        return "noon"

    assert now.execute('{"zone": "UTC"}').attributes["repairs"][0]["step"] == "extra"


def test_repairs_are_recorded_when_body_fails():
    @tool
    def boom(number: int) -> str:
        raise ValueError("boom")

    result = boom.execute('{"number": "3"}')
    assert (result.error_message, result.attributes["repairs"][0]["to"]) == ("boom", 3)


def test_ambiguous_parameter_names_are_not_matched():
    @tool
    def function(min_score: int = 0, minScore: int = 0) -> str:  # noqa: N803 - the clash is the test
        return f"{min_score} {minScore}"

    assert function.execute('{"MinScore": 5}').output == "0 0"


@pytest.mark.parametrize("field", [Right, Annotated[str, MemoryId]])
def test_injected_types_in_fields_are_rejected(field):
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
def test_colliding_names_are_rejected(make, problem):
    taken = "b" if "two" in problem else "u"
    make.__annotations__ = {"a": Annotated[str, Param(name=taken)], "b": str, "u": Annotated[str, MemoryId]}
    with pytest.raises(ToolDefinitionError, match=problem):
        Toolbox([tool("t")(make)])


class Unreadable(BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    callback: typing.Callable


def test_pydantic_only_types_are_checked_at_definition():
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


def test_context_inside_another_type_is_not_injected():
    def function(contexts: list[ToolContext]) -> str:
        return ""

    with pytest.raises(ToolDefinitionError, match="parameter 'contexts'"):
        Toolbox([tool(function)])


def test_enum_members_are_offered_by_name():
    def function(shape: Shape = Shape.FLAT) -> str:
        return shape.name

    box = Toolbox([tool(function)])
    assert box.specifications[0].parameters["properties"]["shape"] == {
        "type": "string",
        "enum": ["ROUND", "FLAT"],
        "default": "FLAT",
    }
    assert [box.execute(ToolCall("function", each)).text for each in ({}, {"shape": "round"})] == ["FLAT", "ROUND"]


def test_tool_with_tool_methods_provides_all_tools():
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


def test_generic_input_type_is_inherited():
    assert Leaf().execute('{"value": 1}').output == "Base(value=1)"
    assert Leaf().execute('{"value": "x"}').error_message == "Invalid arguments for 'Base': value: expected an integer"


def test_tool_parameters_builder():
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
def test_schema_styles_are_offered_and_repaired(schema, sent, text, offered):
    box = Toolbox([SchemaTool("f", "", lambda arguments: arguments, schema)])
    assert box.execute(ToolCall("f", sent)).text == text
    if offered is not None:
        assert box.specifications[0].parameters == offered


def test_recursive_list_is_not_wrapped_endlessly():
    schema = {
        "properties": {"x": {"$ref": "#/$defs/L"}},
        "$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}},
    }
    result = SchemaTool("f", "", lambda arguments: arguments, schema).execute({"x": 3})
    assert result.error_message == "Invalid arguments for 'f': x: expected an array"


def test_long_invalid_list_reports_first_problem():
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


def test_mutually_recursive_types_have_small_schema():
    def function(value: Alpha) -> str:
        return ""

    assert len(Toolbox([tool(function)]).specifications[0].to_json()) < 20_000


class Text(enum.StrEnum):
    A = "a"
    B = "b"


def test_string_enums_become_members():
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
def test_unusual_annotations_are_supported(annotation, sent, arrived):
    assert run(annotation, {"value": sent}["value"] if False else json.dumps({"value": sent})) == (arrived, [])


def test_generic_pydantic_model_keeps_its_argument():
    class Box(BaseModel, Generic[T]):
        item: T

    assert run(Box[int], json.dumps({"value": {"item": "x"}})) == "value.item: expected an integer"


def test_pydantic_default_factory_is_used():
    def function(value: Annotated[int, Field(default_factory=lambda: 7)]) -> int:
        return value

    assert tool(function).execute("{}").output == "7"


@dataclasses.dataclass(eq=False)
class Mutable:
    items: list = dataclasses.field(default_factory=list)


def test_hashable_mutable_defaults_are_copied():
    @tool
    def function(value: Mutable = Mutable()) -> int:  # noqa: B008 - the hazard is the test
        value.items.append(1)
        return len(value.items)

    assert [function.execute("{}").output for _ in range(3)] == ["1"] * 3


def test_unknown_name_in_alias_is_rejected():
    with pytest.raises(ToolDefinitionError, match="'Nowhere' cannot be sent by a model; define or import it"):
        run(TypeAliasType("Bad", list["Nowhere"]), "{}")


def test_unassigned_closure_variable_is_allowed():
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


def test_computed_attrs_fields_are_not_parameters():
    value, _ = run(Computed, json.dumps({"value": {"size": 2}}))
    assert value.double == 4


def test_repair_stops_at_cyclic_and_dangling_references():
    schema = {"properties": {"a": {"type": "object"}}, "allOf": [True, {"$ref": "#/properties/a/type/x"}]}
    mended = Repairs(schema, frozenset(["coerce"]))
    assert mended.repair({"a": 1}, {"$ref": "#/loop"} | schema) == {"a": 1}
    circle = {"loop": {"$ref": "#/loop"}}
    assert Repairs(circle, STEPS).repair("x", {"$ref": "#/loop"}) == "x"
    assert find_ref_target({"anyOf": [{"type": "string"}]}, "#/anyOf/0") == {"type": "string"}
    assert find_ref_target({"a": "x"}, "#/a/b/c") == {}


def test_too_large_value_is_not_repaired():
    value = [[{"x": str(n)} for n in range(3000)]]
    answer = run(list[list[dict[str, int] | int]], json.dumps({"value": value}))
    assert "expected an integer" in answer


def test_unparsable_docstring_is_used_whole(monkeypatch):
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


def test_reviewer_can_edit_typed_arguments():
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


def test_manually_bound_method_is_a_tool():
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


class TestValidValuesAreNotRepaired:
    def test_in_union_of_lists(self):
        def function(x: list[int] | list[str], n: int = 0) -> str:
            return repr(x)

        assert call(function, {"x": ["1"]}) == call(function, {"x": ["1"], "n": "3"}) == "['1']"

    def test_with_before_validator(self):
        def function(x: Annotated[list[str], pydantic.BeforeValidator(split_commas)], n: int = 0) -> str:
            return repr(x)

        assert call(function, {"x": "a,b", "n": "3"}) == "['a', 'b']"

    def test_with_alias_choices(self):
        class Place(BaseModel):
            city: str = Field(validation_alias=pydantic.AliasChoices("city", "town"))
            n: int = 0

        kind = type(
            "T", (TypedTool,), {"input_type": Place, "name": "t", "description": "", "run": lambda _, i: i.city}
        )
        assert kind().execute({"town": "Rome", "n": "3"}).output == "Rome"

    def test_beside_long_list(self):
        def function(x: list[int], n: int) -> int:
            return n

        assert call(function, {"x": [1] * 6000, "n": "3"}) == "3"

    def test_under_additional_key(self):
        schema = {"properties": {"user_id": {"type": "string"}, "n": {"type": "integer"}}}
        result = SchemaTool("f", "", lambda arguments: arguments, schema).execute({"userId": "5", "n": "1"})
        assert result.output == '{"userId":"5","n":1}'


def split_commas(value):
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
        ({"number": True}, "value.number: expected one of 1 (ONE), 2 (TWO)"),
        ({"number": 2}, (Strictly(number=Number.TWO), [])),
        ({"number": 2.0}, (Strictly(number=Number.TWO), ["coerce"])),
    ],
)
def test_model_fields_are_validated_like_parameters(sent, outcome):
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
def test_near_values_are_matched_only_if_unambiguous(annotation, sent, outcome):
    assert run(annotation, json.dumps({"value": sent})) == outcome


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, annotated_types.Ge(1.5)],
        Annotated[list[int], annotated_types.MinLen(-1)],
        Annotated[int, Field(default_factory=lambda data: data)],
    ],
)
def test_invalid_constraints_are_rejected_at_definition(annotation):
    with pytest.raises(ToolDefinitionError):
        run(annotation, "{}")


def test_non_json_defaults_are_not_shown():
    def function(a: float = float("inf"), b: str = "\ud800") -> str:
        return f"{a}"

    box = Toolbox([tool(function)])
    assert box.specifications[0].parameters["properties"] == {"a": {"type": "number"}, "b": {"type": "string"}}
    assert box.execute(ToolCall("function")).text == "inf"


def test_input_type_that_is_not_an_object_is_rejected():
    kind = type("T", (TypedTool,), {"input_type": pydantic.RootModel[list[int]], "name": "t", "description": ""})
    kind.run = lambda self, input: ""
    kind.__abstractmethods__ = frozenset()
    with pytest.raises(ToolDefinitionError, match="is not an object with fields"):
        Toolbox([kind()])


def test_tool_as_class_attribute_is_not_a_method():
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
def test_constructors_set_computed_defaults(kind, made):
    assert run(kind, json.dumps({"value": {}})) == (made, [])


def test_recursive_all_of_schemas_are_expanded():
    node = {
        "type": "object",
        "properties": {"child": {"description": "c", "allOf": [{"$ref": "#/definitions/N"}, True]}},
    }
    schema = {"properties": {"n": {"$ref": "#/definitions/N"}}, "definitions": {"N": node}}
    (specification,) = Toolbox([SchemaTool("f", "", lambda arguments: arguments, schema)]).specifications
    assert "child" in specification.to_json()


def test_key_patterns_take_linear_time():
    schema = {
        "patternProperties": {"^(a+)+$": {}, "^s_": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
    }
    result = SchemaTool("f", "", lambda arguments: arguments, schema).execute({"a" * 40 + "!": "1", "s_a": "5"})
    assert result.output == '{"' + "a" * 40 + '!":1,"s_a":"5"}'


def test_large_expansions_keep_references():
    kind = int
    for level in range(12):
        kind = dataclasses.make_dataclass(f"L{level}", [("a", kind), ("b", kind)])
    assert len(Toolbox([make_tool(kind)]).specifications[0].to_json()) < 2_000_000


def make_tool(kind):
    def function(value):
        return ""

    function.__annotations__ = {"value": kind}
    return tool(function)


def test_non_json_text_in_braces_is_a_string():
    assert run(int, '"hello {name}"') == "Error: Expected a JSON object for 'function' but received: STRING"
    assert "cut off" in run(int, json.dumps('{"value": '))


class Twice(enum.Enum):
    A = "a"
    B = "a"  # noqa: PIE796 - the second name is the test
    C = "c"


def test_enum_aliases_are_offered_once():
    def function(value: Twice) -> str:
        return ""

    assert Toolbox([tool(function)]).specifications[0].parameters["properties"]["value"]["enum"] == ["a", "c"]


def test_copied_call_keeps_its_provider_format():
    asked = ToolCall.from_openai({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
    for clone in (copy.copy(asked), pickle.loads(pickle.dumps(asked))):
        assert ToolReply(clone, ToolResult.success("x")).to_openai()["type"] == "function_call_output"
