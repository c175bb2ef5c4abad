"""The displayed form of arguments: every value that the tool gets, with the keys that the model uses."""

import datetime
import enum
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from toolsemble import Continue, Param, ReviewRequest, Toolbox, ToolCall, TypedTool, tool
from toolsemble._schema.display import to_display
from toolsemble._schema.members import names_of
from toolsemble.review import CallbackReview


class Color(enum.Enum):
    RED = "red"


@dataclass
class Plain:
    name: Annotated[str, Param(name="Name")]
    size: int = 3


class Shape(NamedTuple):
    name: str
    size: int = 3


class Row(TypedDict, total=False):
    name: Annotated[str, Param(name="Name")]


@attrs.define
class Attrs:
    name: str
    size: int = 3


class Struct(msgspec.Struct):
    name: str
    size: int = 3


class Hidden(pydantic.BaseModel):
    model_config = {"extra": "allow"}
    name: str = pydantic.Field(alias="Name", exclude=True)
    size: int = 3


class Names(pydantic.RootModel[list[str]]):
    pass


def show_to_reviewer(kind, arguments):
    requests: list[ReviewRequest] = []

    @tool(requires_approval=True)
    def take(value: kind) -> str:
        return "taken"

    handler = CallbackReview(lambda request: requests.append(request) or Continue())
    reply = Toolbox([take], review=handler, repair=False).execute(ToolCall("take", {"value": arguments}))
    # What is shown can be sent back as an edit.
    again = Toolbox([take], review=handler, repair=False).execute(ToolCall("take", requests[0].arguments))
    assert (reply.text, again.text) == ("taken", "taken")
    return requests[0].arguments["value"]


@pytest.mark.parametrize(
    ("kind", "sent", "seen"),
    [
        (int, 3, 3),
        (float, 0.5, 0.5),
        (Decimal, 1.5, "1.5"),
        (bytes, "b2s=", "b2s="),
        (datetime.date, "2024-03-15", "2024-03-15"),
        (PurePosixPath, "a/b", "a/b"),
        (Color, "red", "red"),
        (set[int], [1, 1], [1]),
        (tuple[int, str], [1, "a"], [1, "a"]),
        (dict[int, str], {"1": "a"}, {"1": "a"}),
        (dict[Color, int], {"red": 1}, {"red": 1}),
        (dict[str, list[Plain]], {"a": [{"Name": "x"}]}, {"a": [{"Name": "x", "size": 3}]}),
        (Plain, {"Name": "x"}, {"Name": "x", "size": 3}),
        (Shape, {"name": "x"}, {"name": "x", "size": 3}),
        (Attrs, {"name": "x"}, {"name": "x", "size": 3}),
        (Struct, {"name": "x"}, {"name": "x", "size": 3}),
        (Hidden, {"Name": "x", "more": [1]}, {"Name": "x", "size": 3, "more": [1]}),
        (Names, ["a"], ["a"]),
        (Any, {"a": [None, True]}, {"a": [None, True]}),
        (int | None, None, None),
    ],
)
def test_displayed_arguments_are_json(kind, sent, seen):
    assert show_to_reviewer(kind, sent) == seen


def test_typed_dict_fields_are_shown_by_alias():
    class Take(TypedTool[Row]):
        name, description, requires_approval = "take", "", True

        def run(self, input):
            return input["name"]

    requests = []
    handler = CallbackReview(lambda request: requests.append(request) or Continue())
    assert Toolbox([Take()], review=handler).execute(ToolCall("take", {"Name": "x"})).text == "x"
    assert requests[0].arguments == {"Name": "x"}


def test_type_with_unresolvable_annotations_is_shown_with_its_own_names():
    class Inner:
        pass

    @dataclass
    class Local:
        size: "int"
        other: "Inner | None" = None  # a name that cannot be found from outside

    point = namedtuple("Point", "x y")  # noqa: PYI024 - the untyped form is what is tested
    assert to_display(Local(3)) == {"size": 3, "other": None}
    assert to_display([point(1, 2)]) == [{"x": 1, "y": 2}]


def test_field_names_are_read_once_per_type():
    assert names_of(Plain) == {"name": "Name", "size": "size"}
    assert names_of(Plain) is names_of(Plain)
