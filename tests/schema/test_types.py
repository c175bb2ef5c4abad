"""Every kind of type: what the model sees, what the body gets, what is refused."""

from __future__ import annotations

import datetime
import json
import pathlib
import sys
import typing
from collections.abc import Callable, Iterator
from typing import (
    Annotated,
)

import pydantic
import pydantic_core
import pytest
from pydantic import BaseModel, Field

from helpers.sample_types import (
    INTEGER,
    NULL,
    POINT,
    STRING,
    TABLE,
    Account,
    Color,
    Job,
    Node,
    Point,
    Wrapped,
    array,
    closed,
    text,
    tool_of,
)
from toolsemble import Param, Toolbox, ToolCall, ToolDefinitionError, tool


@pytest.mark.parametrize(("annotation", "schema", "sent", "arrived", "refused"), TABLE, ids=lambda each: str(each)[:40])
def test_model_sees_portable_schema_and_body_gets_declared_type(annotation, schema, sent, arrived, refused):
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


def test_attrs_classes_use_their_constructor():
    function, got = tool_of(list[Account])
    box = Toolbox([function])
    assert box.specifications[0].parameters["properties"]["value"] == array(ACCOUNT)
    box.execute(ToolCall("function", {"value": [{"owner": "ada", "balance": 3}]}))
    assert got == [[Account("ada", 3, [], "ADA")]]
    reply = box.execute(ToolCall("function", {"value": [{"owner": "ada", "balance": -3}]}))
    assert reply.text == "Error: Invalid arguments for 'function': value[0]: '_balance' must be >= 0: -3"


def test_msgspec_structs_keep_names_and_constraints():
    function, got = tool_of(Job)
    box = Toolbox([function])
    properties = box.specifications[0].parameters["properties"]["value"]["properties"]
    assert properties["maxTries"] == {"type": "integer", "description": "between 1 and 3", "default": 2}
    box.execute(ToolCall("function", {"value": {"jobName": "a", "subJobs": [{"jobName": "b"}]}}))
    assert got == [Job("a", 2, [Job("b")])]
    reply = box.execute(ToolCall("function", {"value": {"jobName": "a", "maxTries": 9}}))
    assert reply.text == "Error: Invalid arguments for 'function': value.maxTries: expected at most 3"


def test_recursive_type_is_expanded_to_limited_depth():
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
def test_type_statement_and_generic_syntax():
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
def test_unsupported_type_is_rejected_at_definition(annotation, named):
    function, _ = tool_of(annotation)
    with pytest.raises(ToolDefinitionError) as refused:
        Toolbox([function])
    assert "Tool 'function'" in str(refused.value)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(int, "5"), (int, 1.5), (list[int], ["a"]), (Color, "red"), (pathlib.Path, "a"), (Point, {"x": 1}), (str, 5)],
)
def test_default_of_wrong_type_is_rejected_at_definition(annotation, default):
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
def test_valid_default_is_shown_and_passed_to_body(annotation, default, shown):
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


def test_param_sets_name_description_and_examples():
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
def test_description_precedence_in_every_docstring_style(annotation, described, docstring):
    def function(value):
        return value

    function.__annotations__ = {"value": annotation}
    function.__doc__ = docstring
    (specification,) = Toolbox([tool(function)]).specifications
    assert specification.description == "Do it."
    assert specification.parameters["properties"]["value"]["description"] == described


def test_pydantic_field_as_default_is_supported():
    def function(limit: int = Field(5, ge=1, description="At most", alias="max")) -> int:
        return limit

    box = Toolbox([tool(function)])
    shown = {"max": {"type": "integer", "description": "At most (at least 1)", "default": 5}}
    assert box.specifications[0].parameters == closed(shown)
    assert [box.execute(ToolCall("function", arguments)).text for arguments in ({}, {"max": 7})] == ["5", "7"]
    assert box.execute(ToolCall("function", {"max": 0})).is_error


def test_validator_may_raise_anything():
    class Odd(BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def check(cls, number):
            raise KeyError("no such number")

    function, _ = tool_of(Odd)
    reply = Toolbox([function]).execute(ToolCall("function", {"value": {"number": 3}}))
    assert reply.text == "Error: Invalid arguments for 'function': 'no such number'"


def test_pydantic_validator_messages_are_reported():
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


def test_nested_models_reject_unknown_keys():
    @tool
    def visit(house: House) -> str:
        """Visit."""
        return house.street.name

    box = Toolbox([visit], repair=False)
    assert box.execute(ToolCall("visit", {"house": {"street": {"name": "Elm"}}})).text == "Elm"
    text = box.execute(ToolCall("visit", {"house": {"street": {"name": "Elm", "number": 5}}})).text
    assert text == "Error: Invalid arguments for 'visit': house.street.number: not a parameter of this tool"
    assert House.__pydantic_complete__
    assert Street.__pydantic_complete__
    assert Street.model_validate({"name": "Elm", "number": 5}) == Street(name="Elm")


def test_validators_use_public_pydantic_parameters_only(monkeypatch):
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
