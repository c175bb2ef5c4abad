"""The docstring of a class reaches the schema, whatever kind of class it is."""

import numbers
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from toolsemble import Toolbox, ToolCall, TypedTool, tool, tool_specifications_from

X = {"type": "integer"}


@dataclass
class Data:
    """A point on the map.

    Args:
        x: Meters to the east.
    """

    x: int


@attrs.define
class Attrs:
    """A point on the map."""

    x: int


class Struct(msgspec.Struct):
    """A point on the map."""

    x: int


class Dict(TypedDict):
    """A point on the map."""

    x: int


class Named(NamedTuple):
    """A point on the map."""

    x: int


class Model(pydantic.BaseModel):
    """A point on the map."""

    x: int


@dataclass
class BareData:
    x: int


@attrs.define
class BareAttrs:
    x: int


class BareStruct(msgspec.Struct):
    x: int


class BareDict(TypedDict):
    x: int


class BareNamed(NamedTuple):
    x: int


@dataclass
class Inherited(Data):
    y: int = 0


def find_schemas(kind):
    """Return the schema of a type as an input, as a parameter, in a list, and beside a type that needs pydantic."""

    class Locate(TypedTool[kind]):
        name = "locate"
        description = "Locates"

        def run(self, input):
            return ""

    def go(one, many, other): ...

    go.__annotations__ = {"one": kind, "many": list[kind], "other": kind | bytes}
    (whole,), (parts,) = tool_specifications_from(Locate()), tool_specifications_from(tool(go))
    inner = parts.parameters["properties"]
    return [whole.parameters, inner["one"], inner["many"]["items"], inner["other"]["anyOf"][0]]


@pytest.mark.parametrize("kind", [Data, Attrs, Struct, Dict, Named, Model])
def test_docstring_of_a_class_describes_it(kind):
    assert [schema.get("description") for schema in find_schemas(kind)] == ["A point on the map."] * 4


@pytest.mark.parametrize("kind", [BareData, BareAttrs, BareStruct, BareDict, BareNamed, Inherited])
def test_generated_and_inherited_docstrings_describe_nothing(kind):
    assert [schema.get("description") for schema in find_schemas(kind)] == [None] * 4


def test_a_parameters_description_comes_before_its_class_description():
    @tool
    def go(to: Data) -> str:
        """Go.

        Args:
            to: The destination.
        """
        return ""

    (specification,) = tool_specifications_from(go)
    assert specification.parameters["properties"]["to"]["description"] == "The destination."


@pytest.mark.parametrize(
    ("kind", "sent", "text"),
    [
        (numbers.Number, "1.5", "1.5 float"),
        (numbers.Real, "12345678901234567890", "12345678901234567890 int"),
        (numbers.Number, '"1.5"', "1.5 float"),
        (numbers.Integral, "2", "2 int"),
        (numbers.Real, '"many"', "Error: Invalid arguments for 'show': x: expected a number"),
        (numbers.Integral, "1.5", "Error: Invalid arguments for 'show': x: expected an integer"),
    ],
)
def test_abstract_numbers_are_numbers(kind, sent, text):
    def show(x):
        return f"{x} {type(x).__name__}"

    show.__annotations__ = {"x": kind}
    box = Toolbox([tool(show)])
    wanted = "integer" if kind is numbers.Integral else "number"
    assert box.specifications[0].parameters["properties"] == {"x": {"type": wanted}}
    assert box.execute(ToolCall("show", f'{{"x": {sent}}}')).text == text
