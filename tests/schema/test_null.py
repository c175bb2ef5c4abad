"""Null in arguments: what is required is missing, everything else does not fit."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, Optional, Union

import pytest
from pydantic import AfterValidator

from toolsemble import SchemaTool, Toolbox, ToolCall, tool


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Node:
    name: str
    inner: Optional[Node] = None


def reject_none(value):
    if value is None:
        raise ValueError("give a number, or leave it out")
    return value


@tool
def draw(
    color: Literal["red", "blue"],
    width: Union[int, str],
    weight: Literal[1, 2] = 1,
    times: int = 1,
    sizes: dict[str, int] = {},  # noqa: B006 - every call gets a copy
    points: list[Point] = [],  # noqa: B006 - as above
    node: Optional[Node] = None,
    share: Annotated[Optional[int], AfterValidator(reject_none)] = 3,
) -> str:
    """Draw something."""
    return "ran"


GOOD = {"color": "red", "width": 1}
SCHEMA = {
    "type": "object",
    "properties": {
        "color": {"type": "string", "enum": ["red", "blue"]},
        "width": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "weight": {"type": ["integer", "null"]},
        "times": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "node": {"$ref": "#/$defs/node"},
    },
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "inner": {"$ref": "#/$defs/node"}},
            "required": ["name"],
        }
    },
    "required": ["color", "width", "weight"],
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"color": None, "width": None}, "Missing required parameter(s) for 'draw': color, width"),
        ({**GOOD, "times": None}, "Invalid arguments for 'draw': times: expected an integer"),
        ({**GOOD, "weight": None}, "Invalid arguments for 'draw': weight: expected one of 1, 2"),
        (
            {"color": "red", "width": None, "times": None},
            "Invalid arguments for 'draw': width: missing; times: expected an integer",
        ),
        ({**GOOD, "sizes": {"a": None}}, "Invalid arguments for 'draw': sizes.a: expected an integer"),
        ({**GOOD, "points": [None]}, "Invalid arguments for 'draw': points[0]: expected an object"),
        (
            {**GOOD, "points": [{"x": None, "y": None}]},
            "Invalid arguments for 'draw': points[0].x: missing; points[0].y: expected an integer",
        ),
        (
            {**GOOD, "node": {"name": "a", "inner": {"name": None}}},
            "Invalid arguments for 'draw': node.inner.name: missing",
        ),
        ({**GOOD, "share": None}, "Invalid arguments for 'draw': share: give a number, or leave it out"),
    ],
)
def test_null_for_declared_type_is_rejected(arguments, message):
    reply = Toolbox([draw], repair=False).execute(ToolCall("draw", arguments))
    assert reply.text == f"Error: {message}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"color": None, "width": None, "weight": 1}, "Missing required parameter(s) for 'paint': color, width"),
        ({**GOOD, "weight": "x"}, "Invalid arguments for 'paint': weight: expected null or an integer"),
        ({**GOOD, "weight": None, "times": None}, "Invalid arguments for 'paint': times: expected an integer"),
        ({**GOOD, "weight": None, "tags": [None]}, "Invalid arguments for 'paint': tags[0]: expected a string"),
        (
            {**GOOD, "weight": None, "node": {"name": "a", "inner": {"name": None, "inner": None}}},
            "Invalid arguments for 'paint': node.inner.name: missing; node.inner.inner: expected an object",
        ),
    ],
)
def test_null_for_handwritten_schema_is_rejected(arguments, message):
    paint = SchemaTool("paint", "Paints", lambda _: "ran", SCHEMA)
    reply = Toolbox([paint], repair=False).execute(ToolCall("paint", arguments))
    assert reply.text == f"Error: {message}"


@pytest.mark.parametrize("arguments", [{**GOOD, "times": None}, {**GOOD, "points": [{"x": 1, "y": None}]}])
def test_repair_replaces_null_with_default(arguments):
    reply = Toolbox([draw]).execute(ToolCall("draw", arguments))
    assert (reply.text, [repair["step"] for repair in reply.result.attributes["repairs"]]) == ("ran", ["null"])
