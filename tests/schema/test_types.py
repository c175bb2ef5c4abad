"""Every kind of type: what the model sees, what the body gets, what is refused."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import sys
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    Self,
    TypedDict,
    TypeVar,
    Union,
)

import attrs
import msgspec
import pydantic
import pydantic_core
import pytest
from pydantic import BaseModel, Field

from toolsemble import Param, Toolbox, ToolCall, ToolDefinitionError, tool

T = TypeVar("T")
UserNumber = NewType("UserNumber", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Corner(enum.Enum):
    TOP = (0, 1)
    BOTTOM = (0, -1)


class UserId(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    """A place.

    Attributes:
        x: To the right.
    """

    x: int
    y: int = 0


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)
    twin: Self | None = None


@dataclasses.dataclass
class Wrapped(Generic[T]):
    item: T


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Movie(TypedDict, total=False):
    title: Required[str]
    year: int


class Strict(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = "r"


@attrs.define
class Account:
    owner: str
    _balance: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    tags: list[str] = attrs.field(factory=list)
    label: str = attrs.field(default=attrs.Factory(lambda self: self.owner.upper(), takes_self=True))


class Job(msgspec.Struct, rename="camel"):
    job_name: str
    max_tries: Annotated[int, msgspec.Meta(ge=1, le=3)] = 2
    sub_jobs: list[Job] = msgspec.field(default_factory=list)


INTEGER, STRING = {"type": "integer"}, {"type": "string"}
NULL = {"type": "null"}


def closed(properties, *required):
    return {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


def array(items, description=None):
    return {"type": "array", **({"description": description} if description else {}), "items": items}


def text(description):
    return {"type": "string", "description": description}


POINT = closed({"x": {"type": "integer", "description": "To the right."}, "y": {"type": "integer", "default": 0}}, "x")
CAT = closed({"kind": {"type": "string", "enum": ["cat"]}, "lives": {"type": "integer", "default": 9}}, "kind")
DOG = closed({"kind": {"type": "string", "enum": ["dog"]}, "tricks": array(STRING)}, "kind", "tricks")

# Older releases of pydantic have a pattern for the text of a decimal.
_PATTERNS = [each.get("pattern") for each in pydantic.TypeAdapter(decimal.Decimal).json_schema()["anyOf"]]
DECIMAL = text(f"must match {_PATTERNS[1]}") if _PATTERNS[1] else STRING

# annotation, schema, what is sent, what the body gets, what is refused
TABLE = [
    (str, STRING, "x", "x", None),
    (int, INTEGER, 3, 3, 1.5),
    (float, {"type": "number"}, 1.5, 1.5, "x"),
    (float, {"type": "number"}, 3, 3.0, []),
    (bool, {"type": "boolean"}, True, True, 2),
    (None, NULL, None, None, 1),
    (Any, {}, {"q": [1]}, {"q": [1]}, ...),
    (object, {}, 1, 1, ...),
    (Optional[int], {"anyOf": [INTEGER, NULL]}, None, None, "x"),
    (int | None, {"anyOf": [INTEGER, NULL]}, 3, 3, "x"),
    (Union[int, str], {"anyOf": [INTEGER, STRING]}, "a", "a", ...),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a", "c"),
    (Literal["a", 3], {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [3]}]}, 3, 3, 4),
    (Literal["a", None], {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]}, None, None, "b"),
    (Color, {"type": "string", "enum": ["red", "blue"]}, "red", Color.RED, "green"),
    (Level, {"type": "integer", "enum": [1, 2]}, 2, Level.HIGH, 3),
    (Corner, {"type": "string", "enum": ["TOP", "BOTTOM"]}, "TOP", Corner.TOP, "LEFT"),
    (datetime.date, text("a date, YYYY-MM-DD"), "2024-03-15", datetime.date(2024, 3, 15), "soon"),
    (
        datetime.datetime,
        text("a date and time, such as 2024-03-15T12:30:00Z"),
        "2024-03-15T12:30:00+01:00",
        datetime.datetime.fromisoformat("2024-03-15T12:30:00+01:00"),
        "2024",
    ),
    (datetime.time, text("a time, HH:MM:SS"), "12:30:00", datetime.time(12, 30), "noon"),
    (datetime.timedelta, text("a duration, such as PT1H30M"), "PT90M", datetime.timedelta(minutes=90), "long"),
    (uuid.UUID, text("a UUID"), str(uuid.UUID(int=5)), uuid.UUID(int=5), "5"),
    (decimal.Decimal, {"anyOf": [{"type": "number"}, DECIMAL]}, "1.10", decimal.Decimal("1.10"), "x"),
    (bytes, text("base64"), "aGk=", b"hi", "%"),
    (pathlib.Path, text("a path"), "a/b", pathlib.Path("a/b"), []),
    (ipaddress.IPv4Address, text("an IPv4 address"), "127.0.0.1", ipaddress.IPv4Address("127.0.0.1"), "localhost"),
    (list[int], array(INTEGER), [1, 2], [1, 2], ["x"]),
    (list, array({}), [1, "a"], [1, "a"], ...),
    (tuple[int, ...], array(INTEGER), [1, 2], (1, 2), ["x"]),
    (
        tuple[int, str],
        array({"anyOf": [INTEGER, STRING]}, "in this order: integer, string; exactly 2 items"),
        [1, "a"],
        (1, "a"),
        [1],
    ),
    (set[int], array(INTEGER, "no duplicates"), [1, 1], {1}, ["x"]),
    (frozenset[str], array(STRING, "no duplicates"), ["a"], frozenset("a"), [None]),
    (Sequence[int], array(INTEGER), [1], [1], ["x"]),
    (Iterable[int], array(INTEGER), [1], [1], ["x"]),
    (collections.deque[int], array(INTEGER), [1], collections.deque([1]), ["x"]),
    (dict, {"type": "object", "additionalProperties": True}, {"a": 1}, {"a": 1}, 5),
    (dict[str, int], {"type": "object", "additionalProperties": INTEGER}, {"a": 1}, {"a": 1}, {"a": "x"}),
    (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}, {"a": 1}, {"a": 1}, {"a": []}),
    (dict[int, str], {"type": "object", "additionalProperties": STRING}, {"1": "x"}, {1: "x"}, {"x": "x"}),
    (Point, POINT, {"x": 1}, Point(1), {"y": 1}),
    (list[Point], array(POINT), [{"x": 1, "y": 2}], [Point(1, 2)], [{"x": "q"}]),
    (Optional[Point], {"anyOf": [POINT, NULL]}, {"x": 1}, Point(1), {"x": None}),
    (Cat, CAT, {"kind": "cat"}, Cat(kind="cat"), {"kind": "dog"}),
    (Cat | Dog, {"anyOf": [CAT, DOG]}, {"kind": "dog", "tricks": []}, Dog(kind="dog", tricks=[]), {"kind": "cow"}),
    (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        {"anyOf": [CAT, DOG]},
        {"kind": "cat", "lives": 1},
        Cat(kind="cat", lives=1),
        {"lives": 1},
    ),
    (Movie, closed({"title": STRING, "year": INTEGER}, "title"), {"title": "M"}, {"title": "M"}, {"year": 1931}),
    (Strict, closed({"title": STRING, "year": INTEGER}, "title"), {"title": "M"}, {"title": "M"}, {"year": 1931}),
    (Pair, closed({"left": INTEGER, "right": {**STRING, "default": "r"}}, "left"), {"left": 1}, Pair(1), {"right": ""}),
    (Wrapped[int], closed({"item": INTEGER}, "item"), {"item": 1}, Wrapped(1), {"item": "x"}),
    (Wrapped[Point], closed({"item": POINT}, "item"), {"item": {"x": 1}}, Wrapped(Point(1)), {"item": 5}),
    (UserId, STRING, "u", UserId("u"), None),
    (UserNumber, INTEGER, 5, 5, "x"),
    (Annotated[int, Field(ge=1, le=7)], {"type": "integer", "description": "between 1 and 7"}, 7, 7, 8),
    (Annotated[int, Field(gt=1)], {"type": "integer", "description": "more than 1"}, 2, 2, 1),
    (Annotated[str, Field(min_length=2)], text("at least 2 characters"), "ab", "ab", "a"),
    (Annotated[str, Field(pattern="^a")], text("must match ^a"), "ab", "ab", "b"),
    (Annotated[list[int], Field(max_length=1)], array(INTEGER, "at most 1 items"), [1], [1], [1, 2]),
    (Annotated[list[Annotated[int, "Even"]], "All"], array({**INTEGER, "description": "Even"}, "All"), [2], [2], ["x"]),
]


def tool_of(annotation, default=...):
    got = []

    def function(value):
        got.append(value)
        return "ok"

    function.__annotations__ = {"value": annotation}
    if default is not ...:
        function.__defaults__ = (default,)
    return tool(function), got


@pytest.mark.parametrize(("annotation", "schema", "sent", "arrived", "refused"), TABLE, ids=lambda each: str(each)[:40])
def test_the_model_sees_a_portable_schema_and_the_body_gets_the_declared_type(
    annotation, schema, sent, arrived, refused
):
    function, got = tool_of(annotation)
    box = Toolbox([function])
    assert box.specifications[0].parameters == closed({"value": schema}, "value")
    reply = box.execute(ToolCall("function", json.dumps({"value": sent})))
    assert (reply.text, got) == ("ok", [arrived])
    assert type(got[0]) is type(arrived)
    assert "repairs" not in reply.result.attributes
    if refused is not ...:
        assert box.execute(ToolCall("function", json.dumps({"value": refused}))).is_error
        assert len(got) == 1


ACCOUNT = closed(
    {"owner": STRING, "balance": {"type": "integer", "default": 0}, "tags": array(STRING), "label": STRING}, "owner"
)


def test_attrs_classes_are_made_by_their_own_constructor():
    function, got = tool_of(list[Account])
    box = Toolbox([function])
    assert box.specifications[0].parameters["properties"]["value"] == array(ACCOUNT)
    box.execute(ToolCall("function", {"value": [{"owner": "ada", "balance": 3}]}))
    assert got == [[Account("ada", 3, [], "ADA")]]
    reply = box.execute(ToolCall("function", {"value": [{"owner": "ada", "balance": -3}]}))
    assert reply.text == "Error: Invalid arguments for 'function': value[0]: '_balance' must be >= 0: -3"


def test_msgspec_structs_keep_their_names_and_bounds():
    function, got = tool_of(Job)
    box = Toolbox([function])
    properties = box.specifications[0].parameters["properties"]["value"]["properties"]
    assert properties["maxTries"] == {"type": "integer", "description": "between 1 and 3", "default": 2}
    box.execute(ToolCall("function", {"value": {"jobName": "a", "subJobs": [{"jobName": "b"}]}}))
    assert got == [Job("a", 2, [Job("b")])]
    reply = box.execute(ToolCall("function", {"value": {"jobName": "a", "maxTries": 9}}))
    assert reply.text == "Error: Invalid arguments for 'function': value.maxTries: expected at most 3"


def test_a_recursive_type_is_written_out_to_a_depth_and_open_below():
    function, got = tool_of(Node)
    box = Toolbox([function])
    schema = box.specifications[0].parameters["properties"]["value"]
    for _ in range(3):
        assert schema["type"] == "object"
        deeper = schema["properties"]["children"]["items"] if "properties" in schema else None
        schema = deeper
    assert schema == {"type": "object", "description": "and so on, as above"}
    nested = {"value": 1, "children": [{"value": 2, "children": [{"value": 3, "children": [{"value": 4}]}]}]}
    box.execute(ToolCall("function", {"value": nested}))
    assert got == [Node(1, [Node(2, [Node(3, [Node(4)])])])]
    nested["children"][0]["children"][0]["children"][0]["value"] = "x"
    reply = box.execute(ToolCall("function", {"value": nested}))
    assert reply.text.endswith("value.children[0].children[0].children[0].value: expected an integer")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is newer than this Python")
def test_type_aliases_and_generics_of_the_new_syntax():
    scope = {}
    exec(  # noqa: S102 - older interpreters cannot even read it
        "from dataclasses import dataclass\n"
        "type Names = list[str]\n"
        "type Few[T] = dict[str, T]\n"
        "type Tree = dict[str, Tree] | int\n"
        "@dataclass\n"
        "class Box[T]:\n"
        "    item: T\n",
        scope,
    )
    for annotation, sent, arrived in [
        (scope["Names"], ["a"], ["a"]),
        (scope["Few"][int], {"a": 1}, {"a": 1}),
        (scope["Tree"], {"a": {"b": 1}}, {"a": {"b": 1}}),
        (scope["Box"][int], {"item": 1}, scope["Box"](1)),
    ]:
        function, got = tool_of(annotation)
        Toolbox([function]).execute(ToolCall("function", {"value": sent}))
        assert got == [arrived]


class Handle:
    pass


class Meta(type):
    pass


@pytest.mark.parametrize(
    ("annotation", "named"),
    [
        (Callable[[int], int], "Callable"),
        (Callable, "Callable"),
        (Iterator[int], "Iterator"),
        (type[int], "type"),
        (type, "type"),
        (Handle, "Handle"),
        (list[Handle], "Handle"),
        (Wrapped[Handle], "Handle"),
        (typing.Never, "Never"),
        ("Nowhere", "Nowhere"),
        (list["Nowhere"], "Nowhere"),
    ],
)
def test_what_a_model_cannot_send_is_refused_at_definition_with_the_parameter(annotation, named):
    function, _ = tool_of(annotation)
    with pytest.raises(ToolDefinitionError) as refused:
        Toolbox([function])
    assert "Tool 'function'" in str(refused.value)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(int, "5"), (int, 1.5), (list[int], ["a"]), (Color, "red"), (pathlib.Path, "a"), (Point, {"x": 1}), (str, 5)],
)
def test_a_default_of_another_type_is_refused_at_definition(annotation, default):
    function, _ = tool_of(annotation, default)
    with pytest.raises(ToolDefinitionError, match=r"parameter 'value': the default .* is not of the declared type"):
        Toolbox([function])


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (int, 5, {"type": "integer", "default": 5}),
        (int, None, {"anyOf": [INTEGER, NULL], "default": None}),
        (float, 1, {"type": "number", "default": 1.0}),
        (Color, Color.RED, {"type": "string", "enum": ["red", "blue"], "default": "red"}),
        (datetime.date, datetime.date(2024, 1, 1), {**text("a date, YYYY-MM-DD"), "default": "2024-01-01"}),
        (list[int], [1], {**array(INTEGER), "default": [1]}),
        (Point, Point(1), POINT),
    ],
)
def test_a_good_default_is_shown_and_given_to_the_body(annotation, default, shown):
    function, got = tool_of(annotation, default)
    box = Toolbox([function])
    schema = box.specifications[0].parameters["properties"]["value"]
    assert {**schema, "default": None} == {**shown, "default": None}
    assert schema.get("default") == shown.get("default", schema.get("default"))
    box.execute(ToolCall("function"))
    assert got == [default]


def test_defaults_are_never_shared_between_calls():
    def grow(items: list[int] = [], point: Point = Point(1)) -> str:  # noqa: B006, B008 - the hazard is the test
        items.append(1)
        point.y += 1
        return f"{len(items)} {point.y}"

    box = Toolbox([tool(grow)])
    assert [box.execute(ToolCall("grow")).text for _ in range(3)] == ["1 1"] * 3


def test_param_renames_describes_and_gives_examples():
    def function(
        start: Annotated[str, Param("Where from", name="from", examples=["Rome"])],
        until: Annotated[int, Param(required=False)],
        always: Annotated[int, Param(required=True)] = 3,
    ) -> str:
        return f"{start} {until} {always}"

    box = Toolbox([tool(function)])
    assert box.specifications[0].parameters == closed(
        {
            "from": text("Where from (for example 'Rome')"),
            "until": {"anyOf": [INTEGER, NULL], "default": None},
            "always": INTEGER,
        },
        "from",
        "always",
    )
    assert box.execute(ToolCall("function", {"from": "Bonn", "always": 1})).text == "Bonn None 1"
    assert box.execute(ToolCall("function", {"start": "Bonn"})).text == (
        "Error: Missing required parameter(s) for 'function': from, always"
    )


@pytest.mark.parametrize(
    ("annotation", "described"),
    [
        (Annotated[int, Field(description="field"), "text", Param("param")], "param"),
        (Annotated[int, Field(description="field"), "text"], "text"),
        (Annotated[int, Field(description="field")], "field"),
        (int, "docstring"),
    ],
)
@pytest.mark.parametrize(
    "docstring",
    [
        "Do it.\n\nArgs:\n    value: docstring",
        "Do it.\n\nParameters\n----------\nvalue : int\n    docstring",
        "Do it.\n\n:param value: docstring",
    ],
)
def test_descriptions_have_an_order_of_precedence_in_every_docstring_style(annotation, described, docstring):
    def function(value):
        return value

    function.__annotations__ = {"value": annotation}
    function.__doc__ = docstring
    (specification,) = Toolbox([tool(function)]).specifications
    assert specification.description == "Do it."
    assert specification.parameters["properties"]["value"]["description"] == described


def test_pydantic_fields_as_defaults_are_understood():
    def function(limit: int = Field(5, ge=1, description="At most", alias="max")) -> int:
        return limit

    box = Toolbox([tool(function)])
    shown = {"max": {"type": "integer", "description": "At most (at least 1)", "default": 5}}
    assert box.specifications[0].parameters == closed(shown)
    assert [box.execute(ToolCall("function", arguments)).text for arguments in ({}, {"max": 7})] == ["5", "7"]
    assert box.execute(ToolCall("function", {"max": 0})).is_error


def test_a_validator_may_raise_anything():
    class Odd(BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def check(cls, number):
            raise KeyError("no such number")

    function, _ = tool_of(Odd)
    reply = Toolbox([function]).execute(ToolCall("function", {"value": {"number": 3}}))
    assert reply.text == "Error: Invalid arguments for 'function': 'no such number'"


def test_pydantic_models_with_validators_speak_for_themselves():
    class Even(BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def check(cls, number):
            if number % 2:
                raise ValueError("must be even")
            return number

    function, _ = tool_of(Even)
    reply = Toolbox([function]).execute(ToolCall("function", {"value": {"number": 3}}))
    assert reply.text == "Error: Invalid arguments for 'function': value.number: must be even"


class Street(BaseModel):
    name: str


class House(BaseModel):
    street: Street


def test_models_inside_models_refuse_unknown_keys_and_stay_complete():
    @tool
    def visit(house: House) -> str:
        """Visit."""
        return house.street.name

    box = Toolbox([visit], repair=False)
    assert box.execute(ToolCall("visit", {"house": {"street": {"name": "Elm"}}})).text == "Elm"
    told = box.execute(ToolCall("visit", {"house": {"street": {"name": "Elm", "number": 5}}})).text
    assert told == "Error: Invalid arguments for 'visit': house.street.number: not a parameter of this tool"
    assert House.__pydantic_complete__
    assert Street.__pydantic_complete__
    assert Street.model_validate({"name": "Elm", "number": 5}) == Street(name="Elm")


def test_validators_are_built_with_public_parameters_of_pydantic_only(monkeypatch):
    real = pydantic_core.SchemaValidator
    monkeypatch.setattr(pydantic_core, "SchemaValidator", lambda schema, config=None: real(schema, config))

    @tool
    def visit(house: House, day: int = 1) -> str:
        """Visit."""
        return f"{house.street.name} {day}"

    @tool
    def count(numbers: list[int]) -> int:
        """Count."""
        return sum(numbers)

    box = Toolbox([visit, count])
    assert box.execute(ToolCall("visit", {"house": {"street": {"name": "Elm"}}})).text == "Elm 1"
    assert box.execute(ToolCall("count", {"numbers": [1, 2]})).text == "3"
    assert "numbers[1]: expected an integer" in box.execute(ToolCall("count", {"numbers": [1, "x", "y"]})).text
