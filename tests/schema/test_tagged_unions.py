"""Choices between objects that a constant distinguishes, however deep they contain each other."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Literal, NamedTuple, Optional, Union

import jsonschema_rs
import pytest
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from typing_extensions import TypedDict

from helpers.columns import column
from toolsemble import SchemaTool, Toolbox, ToolCall, tool


@dataclasses.dataclass
class All:
    kind: Literal["all"]
    parts: list[Filter]


@dataclasses.dataclass
class Some:
    kind: Literal["any", "some"]
    parts: list[Filter]


@dataclasses.dataclass
class Equals:
    kind: Literal["equals"]
    value: int


Filter = Union[All, Some, Equals]


class Both(BaseModel):
    kind: Literal["all"]
    parts: list[Union[Both, Either, Same, int, None]]


class Either(BaseModel):
    kind: Literal["some"]
    parts: list[Union[Both, Either, Same, int, None]]


class Same(TypedDict):
    kind: Literal["equals"]
    value: int


def make_schema(**names):
    """Write the same choice by hand; the constant comes after the fields that depend on it."""
    nodes = {
        name: {
            "type": "object",
            "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/filter"}}, "kind": tag},
            "required": ["kind", "parts"],
            "additionalProperties": False,
        }
        for name, tag in names.items()
    }
    equals = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "kind": {"const": "equals"}},
        "required": ["kind", "value"],
    }
    options = [{"$ref": f"#/$defs/{name}"} for name in (*names, "equals")]
    return {
        "type": "object",
        "$defs": {**nodes, "equals": equals, "filter": {"oneOf": options}},
        "properties": {"where": {"anyOf": [*options, {"type": "null"}]}},
        "required": ["where"],
    }


@tool
def typed(where: Filter) -> str:
    """Search."""
    return "ran"


@tool
def modeled(where: Union[Both, Either, Same]) -> str:
    """Search."""
    return "ran"


GIVEN = SchemaTool(
    "given", "Searches", lambda _: "ran", make_schema(all={"const": "all"}, some={"enum": ["any", "some"]})
)
BOX = Toolbox([typed, modeled, GIVEN])


def nested(value, depth):
    for level in range(depth):
        value = {"kind": "some" if level % 2 else "all", "parts": [value]}
    return {"where": value}


@pytest.mark.parametrize("name", ["typed", "modeled", "given"])
@pytest.mark.timeout(20)  # read once for each option it would take years
class TestDeepUnions:
    def test_deep_value_is_accepted(self, name):
        assert BOX.execute(ToolCall(name, nested({"kind": "equals", "value": 1}, 40))).text == "ran"

    @pytest.mark.parametrize(
        ("leaf", "problem"),
        [
            ({"kind": "equals", "value": "x"}, "value: expected an integer"),
            ({"kind": "equals"}, "value: missing"),
            ({"kind": "other", "value": 1}, "kind: expected one of 'all', "),
            ({"kind": None, "value": 1}, "kind: missing"),
            ({"value": 1}, "kind: missing"),
        ],
    )
    def test_errors_are_reported_with_their_path(self, name, leaf, problem):
        answer = BOX.execute(ToolCall(name, nested(leaf, 40))).text
        place = f"where{'.parts[0]' * 40}"
        assert answer.startswith(f"Error: Invalid arguments for '{name}': {place}")
        assert problem in answer

    @pytest.mark.parametrize("wrong", [{}, {"kind": "other"}, {"kind": 5}])
    def test_level_without_tag_is_not_validated_further(self, name, wrong):
        value: dict = {"kind": "equals", "value": "x"}
        for _ in range(40):
            value = {**wrong, "parts": [value]}
        answer = BOX.execute(ToolCall(name, {"where": value})).text
        assert (
            answer.startswith(f"Error: Invalid arguments for '{name}': where.kind: ") or "where.kind: missing" in answer
        )


class Kind(enum.Enum):
    A = "a"
    B = "b"


class Renamed(BaseModel):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    kind: Literal["renamed"] = Field(alias="Kind")


class Other(BaseModel):
    kind: Literal["other"] = Field(alias="Kind")


class Numbered(BaseModel):
    kind: Literal[Kind.A, 1]


class Early(BaseModel):
    kind: Literal["early"]

    @model_validator(mode="before")
    @classmethod
    def named(cls, values):
        return {"kind": "early"} if values == {"type": "early"} else values


class Late(BaseModel):
    kind: Literal["late"]


class First(NamedTuple):
    kind: Literal["first"] = "first"
    size: int = 0


class Second(NamedTuple):
    kind: Literal["second"] = "second"
    weight: int = 0


@dataclasses.dataclass
class OfA:
    kind: Literal[Kind.A]


@dataclasses.dataclass
class OfB:
    kind: Literal[Kind.B]


@dataclasses.dataclass
class Same1:
    kind: Literal["same"]
    size: int


@dataclasses.dataclass
class Same2:
    kind: Literal["same"]
    weight: int


def size_tag(value):
    return "big" if isinstance(value, dict) and value.get("size", 0) > 1 else "small"


class Big(BaseModel):
    size: int


class Small(BaseModel):
    size: int


Sized = Annotated[Union[Annotated[Big, Tag("big")], Annotated[Small, Tag("small")]], Discriminator(size_tag)]


@pytest.mark.parametrize(
    ("annotation", "sent", "outcome"),
    [
        (Union[Renamed, Other], {"Kind": "renamed"}, Renamed(Kind="renamed")),
        (Union[Renamed, Other], {"kind": "renamed"}, Renamed(Kind="renamed")),
        (Union[Early, Late], {"type": "early"}, Early(kind="early")),
        (Union[Early, Late], {"kind": "late"}, Late(kind="late")),
        (Union[First, Second], {"weight": 2}, Second(weight=2)),
        (Union[OfA, OfB], {"kind": "b"}, OfB(Kind.B)),
        (list[Numbered], [{"kind": "a"}, {"kind": 1}], [Numbered(kind=Kind.A), Numbered(kind=1)]),
        (Literal[Kind.A, "c"], "c", "c"),
        (Union[Same1, Same2], {"kind": "same", "weight": 2}, Same2("same", 2)),
        (Union[Equals, All, int], 5, 5),
        (Union[Equals, All, int], {"kind": "equals", "value": 5}, Equals("equals", 5)),
        (Optional[Union[Equals, All]], None, None),
        (list[Union[Equals, Same1]], [{"kind": "same", "size": 1}], [Same1("same", 1)]),
        (Sized, {"size": 2}, Big(size=2)),
    ],
)
def test_unions_with_various_tags_are_validated(annotation, sent, outcome):
    got = []

    def take(value):
        got.append(value)

    take.__annotations__ = {"value": annotation}
    reply = Toolbox([tool(take)], repair=False).execute(ToolCall("take", {"value": sent}))
    assert (reply.is_error, got) == (False, [outcome]), reply.text


A, B = (
    {"type": "object", "properties": {"kind": {"const": kind}, "size": {"type": "integer"}}, "required": ["kind"]}
    for kind in "ab"
)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"value": {"oneOf": [A, B]}}},
        {"properties": {"value": {"anyOf": [A, B], "allOf": [{"minProperties": 1}]}}},
        {"properties": {"value": {"anyOf": [A, B]}, "other": {"$ref": "#/properties/value/anyOf/0"}}},
        {"properties": {"value": {"anyOf": [A, B]}}, "$schema": "http://json-schema.org/draft-06/schema#"},
        {"properties": {"value": {"anyOf": [A, B, {"$ref": "#/$defs/c"}]}}, "$defs": {"c": {"type": "integer"}}},
        {"properties": {"value": {"anyOf": [A, B, {"$ref": "#/$defs/c"}]}}, "$defs": {"c": True}},
        {"properties": {"value": {"anyOf": [A, B, {"$ref": "#/$defs/c"}]}}, "$defs": {"c": {"$ref": "#/$defs/c"}}},
        {"properties": {"value": {"anyOf": [A, {**B, "type": ["object", "null"]}]}}},
        {"properties": {"value": {"anyOf": [A, A]}}},
        {"properties": {"value": {"anyOf": [A]}}},
    ],
    ids=["one", "all", "inside", "old", "other", "anything", "endless", "null", "same", "single"],
)
def test_schema_tool_agrees_with_json_schema_validator(schema):
    box = Toolbox([SchemaTool("choose", "Chooses", lambda _: "ran", {"type": "object", **schema})], repair=False)
    for value in ({"kind": "a", "size": 1}, {"kind": "b"}, {"kind": "a", "size": "x"}, {"kind": "c"}, {}, 5, None):
        reply = box.execute(ToolCall("choose", {"value": value}))
        with column(value):
            assert reply.is_error != jsonschema_rs.is_valid({"type": "object", **schema}, {"value": value}), reply.text


@dataclasses.dataclass
class Plain:
    next: Plain | Other | None = None


@dataclasses.dataclass
class Other:
    next: Plain | Other | None = None
    size: int = 0


class Left(BaseModel):
    kind: Literal["left"] = "left"
    next: Annotated[Left | Right, Field(discriminator="kind")] | None = None


class Right(BaseModel):
    kind: Literal["right"] = "right"
    next: Annotated[Left | Right, Field(discriminator="kind")] | None = None


def chain(depth, inner, **fields):
    value = inner
    for _ in range(depth):
        value = {**fields, "next": value}
    return value


def test_untagged_recursive_types_are_read_to_limited_depth():
    @tool
    def walk(value: Plain | Other) -> str:
        """Walk."""
        return "ran"

    box = Toolbox([walk])
    assert box.execute(ToolCall("walk", {"value": chain(6, None)})).text == "ran"
    assert "expected" in box.execute(ToolCall("walk", {"value": chain(6, 5)})).text
    for wrong in (chain(60, 5), chain(60, None)):
        answer = box.execute(ToolCall("walk", {"value": wrong})).text
        assert answer == "Error: Invalid arguments for 'walk': nested too deeply or too long; send less"
    text = '{"value": ' + "[" * 60
    assert "cut off" in box.execute(ToolCall("walk", text)).text


def test_tagged_recursive_types_are_read_to_any_depth():
    @tool
    def walk(value: Left | Right) -> str:
        """Walk."""
        return "ran"

    box = Toolbox([walk])
    assert box.execute(ToolCall("walk", {"value": chain(60, None, kind="right")})).text == "ran"
