"""From an input type to its schema, and from JSON to an object of it."""

from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from toolsemble import (
    ToolArgumentsError,
    ToolDefinitionError,
    TypedTool,
    read_arguments,
    schema_for,
    tool_specifications_from,
)


@dataclass
class Data:
    city: str
    days: int = 3


@attrs.define
class Attrs:
    city: str
    days: int = 3


class Struct(msgspec.Struct):
    city: str
    days: int = 3


class Named(NamedTuple):
    city: str
    days: int = 3


class Model(pydantic.BaseModel):
    city: str
    days: int = 3


class Dict(TypedDict):
    city: str
    days: int


KINDS = [Data, Attrs, Struct, Named, Model, Dict]


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_what_models_are_shown(kind):
    class Plan(TypedTool[kind]):
        name = "plan"
        description = "Plans"

        def run(self, input):
            return ""

    assert schema_for(kind) == tool_specifications_from(Plan)[0].parameters


def test_schema_can_be_changed_by_the_caller():
    schema_for(Data)["properties"].clear()
    assert list(schema_for(Data)["properties"]) == ["city", "days"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments", ['{"city": "Rome", "days": 5}', {"city": "Rome", "days": 5}, "{city: 'Rome', days: '5'}"]
)
def test_arguments_become_an_object(kind, arguments):
    assert read_arguments(kind, arguments) == kind(city="Rome", days=5)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{}", "Missing required parameter(s) for 'Data': city"),
        ("[1]", "Expected a JSON object for 'Data' but received: ARRAY"),
        ('{"city": 5', "Invalid JSON input for 'Data': "),
        ('{"city": "Rome", "days": "many"}', "Invalid arguments for 'Data': days: expected an integer"),
    ],
)
def test_error_is_the_same_as_for_a_call(arguments, problem):
    with pytest.raises(ToolArgumentsError) as error:
        read_arguments(Data, arguments)
    assert str(error.value).startswith(problem)


def test_repairs_can_be_switched_off():
    with pytest.raises(ToolArgumentsError, match="days: expected an integer"):
        read_arguments(Data, {"city": "Rome", "days": "5"}, repair=False)


@pytest.mark.parametrize("kind", [int, str, list[int], None, "Data"])
def test_type_without_fields_is_refused(kind):
    with pytest.raises(ToolDefinitionError, match="has no fields; use a dataclass"):
        schema_for(kind)
    with pytest.raises(ToolDefinitionError, match="has no fields; use a dataclass"):
        read_arguments(kind, "{}")
