"""Messages that say what a model has to change: flattened arguments, and unions of objects."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from toolsemble import SchemaTool, Toolbox, ToolCall, tool


@dataclass
class Refund:
    name: str
    amount: int


@dataclass
class Circle:
    radius: int


@dataclass
class Square:
    side: int


@dataclass
class Group:
    shapes: list[Circle | Square]


@tool
def refund(args: Refund, note: str = "") -> str:
    return f"{args.amount} to {args.name}"


@tool(effects="irreversible")
def pay(args: Refund) -> str:
    return f"{args.amount} to {args.name}"


@tool
def both(first: Refund, second: Refund) -> str:
    return "both"


@tool
def either(args: Refund | Circle) -> str:
    return "either"


@tool
def draw(shape: Circle | Square) -> str:
    return repr(shape)


@tool
def draw_all(group: Group, title: str) -> str:
    return title


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


NUMBER = {"type": "integer"}
BODY = closed(body=closed(name={"type": "string"}, amount=NUMBER))
SHAPES = closed(shape={"anyOf": [closed(radius=NUMBER), closed(side=NUMBER)]})
KINDS = closed(
    shape={"anyOf": [closed(kind={"const": "circle"}, size=NUMBER), closed(kind={"const": "square"}, size=NUMBER)]}
)
ODD = {"type": "object", "properties": {"args": True}, "required": ["args"]}
TOOLS = [
    *(refund, pay, both, either, draw, draw_all),
    SchemaTool("post", "", str, BODY),
    SchemaTool("sketch", "", str, SHAPES),
    SchemaTool("kinds", "", str, KINDS),
    SchemaTool("odd", "", str, ODD),
    SchemaTool("one_of", "", str, closed(args={"oneOf": [closed(name=NUMBER), True]})),
]


def execute(name, arguments, **settings):
    return Toolbox(TOOLS, **settings).execute(ToolCall(name, arguments))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "refund",
            {"name": "z", "amount": 3},
            "Missing required parameter(s) for 'refund': args; 'name' and 'amount' belong in 'args'",
        ),
        (
            "refund",
            {"name": "z", "other": 3},
            "Missing required parameter(s) for 'refund': args; 'name' belongs in 'args'",
        ),
        (
            "post",
            {"amount": 3, "name": "z"},
            "Missing required parameter(s) for 'post': body; 'amount' and 'name' belong in 'body'",
        ),
        (
            "pay",
            {"name": "z"},
            (
                "Invalid arguments for 'pay': args: missing; name: not a parameter of this tool; "
                "'name' belongs in 'args'"
            ),
        ),
        (
            "either",
            {"radius": 3},
            "Missing required parameter(s) for 'either': args; 'radius' belongs in 'args'",
        ),
        ("one_of", {"name": 3}, "Missing required parameter(s) for 'one_of': args; 'name' belongs in 'args'"),
        ("refund", {"other": 3}, "Missing required parameter(s) for 'refund': args"),
        ("refund", {}, "Missing required parameter(s) for 'refund': args"),
        ("odd", {"name": "z"}, "Missing required parameter(s) for 'odd': args"),
        ("both", {"name": "z"}, "Missing required parameter(s) for 'both': first, second"),
    ],
)
def test_flattened_arguments_are_told_where_they_belong(name, arguments, message):
    assert execute(name, arguments).text == f"Error: {message}"


BELONGS = "Error: Invalid arguments for 'order': amount: not a parameter of this tool; 'amount' belongs in 'args'"
ORDER = {"type": "object", "properties": {"name": {"type": "string"}, "amount": NUMBER}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("arguments", "required", "text"),
    [
        ({"args": {"name": "a"}, "amount": 9}, ["args"], BELONGS),
        ({"args": {"name": "a", "amount": 8}, "amount": 9}, ["args"], BELONGS),
        ({"amount": 9}, [], BELONGS),
        ({"args": {"name": "a", "amount": 9}, "amount": 9}, ["args"], '{"args":{"name":"a","amount":9}}'),
        ({"args": {"name": "a"}, "other": 9}, ["args"], '{"args":{"name":"a"}}'),
    ],
)
def test_a_field_beside_its_object_is_rejected_not_dropped(arguments, required, text):
    schema = closed(args=ORDER) | {"required": required}
    order = SchemaTool("order", "", lambda value: json.dumps(value, separators=(",", ":")), schema)
    assert Toolbox([order]).execute(ToolCall("order", arguments)).text == text


@dataclass
class Point:
    x: int


@dataclass
class Place:
    x: int
    y: int
    z: str = ""


@tool
def go(to: Point | Place) -> str:
    return repr(to)


def test_a_key_of_another_member_of_a_union_is_rejected_not_dropped():
    text = Toolbox([go]).execute(ToolCall("go", {"to": {"x": 1, "z": "a"}})).text
    assert text == (
        "Error: Invalid arguments for 'go': to: expected\n  either to.z: not a parameter of this tool\n"
        "  or to.y: missing"
    )


@pytest.mark.parametrize("arguments", [{"x": 1, "other": 2}, {"x": "1"}])
def test_a_key_of_no_member_of_a_union_is_dropped(arguments):
    assert Toolbox([go]).execute(ToolCall("go", {"to": arguments})).text == "Point(x=1)"


def test_a_tag_decides_which_member_of_a_union_is_meant():
    shapes = [closed(kind={"const": "circle"}, radius=NUMBER), closed(kind={"const": "square"}, side=NUMBER)]
    tools = [SchemaTool("draw_one", "", lambda value: str(value["shape"]), closed(shape={"anyOf": shapes}))]
    arguments = {"shape": {"kind": "circle", "radius": 1, "side": 2}}
    assert Toolbox(tools).execute(ToolCall("draw_one", arguments)).text == "{'kind': 'circle', 'radius': 1}"


def test_hint_names_few_keys_and_escapes_them():
    keys = {f"k{number}\u202e": NUMBER for number in range(9)}
    box = Toolbox([SchemaTool("wide", "", str, closed(args=closed(**keys)))])
    text = box.execute(ToolCall("wide", dict.fromkeys(keys, 1))).text
    assert text.endswith("'k3\\u202e', 'k4\\u202e' and 4 more belong in 'args'")


def test_message_with_a_hint_stays_below_its_limit():
    keys = {f"{number}{'k' * 290}": NUMBER for number in range(9)}
    box = Toolbox([SchemaTool("wide", "", str, closed(args=closed(**keys)))])
    assert len(box.execute(ToolCall("wide", dict.fromkeys(keys, 1))).text) < 1000


@pytest.mark.parametrize("name", ["draw", "sketch"])
@pytest.mark.parametrize("sent", [{}, {"width": 1}])
def test_union_of_objects_is_told_as_either_or_with_a_line_for_each_variant(name, sent):
    first, *lines = execute(name, {"shape": sent}).text.split("\n")
    assert first == f"Error: Invalid arguments for '{name}': shape: expected"
    assert [line.split()[0] for line in lines] == ["either", "or"]
    assert "shape.radius: missing" in lines[0]
    assert "side" not in lines[0]
    assert "shape.side: missing" in lines[1]
    assert all(("shape.width: not a parameter of this tool" in line) == bool(sent) for line in lines)


@pytest.mark.parametrize("name", ["draw", "sketch"])
def test_problems_of_the_nearest_variant_are_told_alone(name):
    message = f"Error: Invalid arguments for '{name}': shape.radius: expected an integer"
    assert execute(name, {"shape": {"radius": "x"}}).text == message


def test_variants_that_differ_at_one_place_are_told_together():
    assert "either" not in execute("kinds", {"shape": {"kind": "cow", "size": 1}}).text


def test_union_inside_a_list_stands_between_the_other_problems():
    text = execute("draw_all", {"group": {"shapes": [{"radius": 1}, {}]}, "title": 5.5}, repair=False).text
    assert text == (
        "Error: Invalid arguments for 'draw_all': group.shapes[1]: expected\n"
        "  either group.shapes[1].radius: missing\n"
        "  or group.shapes[1].side: missing; title: expected a string"
    )


@pytest.mark.parametrize("sent", ['{"radius": 1, "side": 2}', '{"side": 2, "radius": 1}'])
def test_value_with_the_keys_of_both_variants_is_rejected(sent):
    assert execute("draw", f'{{"shape": {sent}}}').text == (
        "Error: Invalid arguments for 'draw': shape: expected\n  either shape.side: not a parameter of this tool\n"
        "  or shape.radius: not a parameter of this tool"
    )
