"""Schemas that are recognized as plain are valid, so that they may be read at the first call."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from toolsemble._schema.argument_problems import MismatchError
from toolsemble._schema.json_schema import SchemaArguments
from toolsemble._schema.wellformed import DRAFTS, FORMATS
from toolsemble.mcp._client.text_cleaning import PlainArguments, build_arguments, clean_schema, is_plain

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800")
_TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object", "text", None, 5])
_NAMES = st.sampled_from(["a", "b", "city", "password", "$ref", "a\u200bb", "é", ""])
_COUNTS = st.integers(-1, 2_000_000) | st.floats() | st.just(10**30)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": _TYPES,
        "title": _SCALARS,
        "description": _SCALARS,
        "default": _SCALARS,
        "enum": st.lists(_SCALARS, max_size=3),
        "format": st.sampled_from([*sorted(FORMATS), "password", "int64"]),
        "pattern": st.sampled_from(["a+", "("]),
        "minimum": _SCALARS,
        "maximum": st.integers() | st.floats(),
        "minLength": _COUNTS,
        "maxItems": _COUNTS,
        "items": inner,
        "anyOf": st.lists(inner, max_size=3),
        "properties": st.dictionaries(_NAMES, inner, max_size=3),
        "required": st.lists(_NAMES, max_size=3),
        "additionalProperties": st.booleans() | inner,
        "$schema": st.sampled_from([*DRAFTS, f"{DRAFTS[2]}#", "draft"]),
        "$ref": st.just("#/$defs/none"),
    }
    return st.fixed_dictionaries({}, optional=keywords)


_ANY_SCHEMA = st.recursive(st.fixed_dictionaries({"type": _TYPES}), _schemas, max_leaves=6)
_PLAIN_VALUE = st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda name: {"type": name})
_FIELD = (
    _ANY_SCHEMA
    | _PLAIN_VALUE
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "number", "array"])},
        optional={
            "enum": st.lists(_SCALARS, max_size=3),
            "default": _SCALARS,
            "minimum": _SCALARS,
            "minLength": _COUNTS,
            "anyOf": st.lists(_PLAIN_VALUE, max_size=3),
            "items": _PLAIN_VALUE,
        },
    )
)
_TOP = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(_NAMES, _FIELD, max_size=3)},
    optional={"required": st.lists(_NAMES, max_size=3), "$schema": st.sampled_from([*DRAFTS, "draft"])},
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(_TOP)
def test_what_is_plain_can_always_be_used_and_has_no_secret(schema: dict[str, Any]) -> None:
    if is_plain(schema):
        assert SchemaArguments("now", clean_schema(schema)).secret_keys == frozenset()


def test_the_largest_plain_schema_can_be_used() -> None:
    word, text = "w" * 190, "d" * 5000
    item = {"type": "string", "title": text, "description": text}
    option = {"type": "array", "format": "date", "items": item}
    counts = dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), 1_000_000)
    value = {
        **option,
        "title": text,
        "description": text,
        "default": text,
        "anyOf": [option] * 5,
        "minimum": 1,
        "maximum": 2,
        "enum": [f"{word}{number}" for number in range(100)],
        **counts,
    }
    inner = _object_of(value, 10)
    schema = _object_of(inner, 40)
    assert is_plain(schema)
    assert SchemaArguments("now", clean_schema(schema)).validate('{"x0": {}}') == {"x0": {}}
    assert not is_plain(_object_of(inner, 41))
    assert not is_plain(_object_of(_object_of(value, 11), 1))


def _object_of(field: dict[str, Any], count: int) -> dict[str, Any]:
    names = [f"x{number}" for number in range(count)]
    return {"type": "object", "title": "t" * 500, "description": "d" * 5000, "properties": dict.fromkeys(names, field)}


@pytest.mark.parametrize(
    "field",
    [
        {"type": "text"},
        {"pattern": "("},
        {"format": "password"},
        {"enum": []},
        {"enum": ["a\u200bb"]},
        {"$ref": "#/$defs/city"},
        {"minLength": 10**30},
        {"minimum": float("nan")},
        {"enum": ["\ud800"]},
        {"type": "object", "properties": {"deeper": {"type": "object"}}},
        {object(): 1},
    ],
)
def test_what_needs_a_look_is_not_plain(field: dict[Any, Any]) -> None:
    assert not is_plain({"type": "object", "properties": {"city": field}})


def test_a_plain_schema_is_cleaned_and_compiled_at_the_first_use() -> None:
    listed = {"type": "object", "properties": {"city": {"type": "string", "description": "A\u200b city"}}}
    arguments = build_arguments("weather", listed)
    assert isinstance(arguments, PlainArguments)
    assert "schema" not in vars(arguments)
    renamed = copy.copy(arguments)
    renamed.owner = "other"
    assert renamed.schema["properties"]["city"]["description"] == "A city"
    assert "schema" not in vars(arguments)
    with pytest.raises(MismatchError):
        arguments.validate('{"city": 5}')
    assert arguments.validate('{"city": "Rome"}') == {"city": "Rome"}
    with pytest.raises(AttributeError):
        _ = arguments.no_such_thing


def test_a_schema_that_is_not_plain_is_compiled_at_once() -> None:
    arguments = build_arguments("weather", {"type": "object", "properties": {"city": {"pattern": "^[A-Z]"}}})
    assert type(arguments) is SchemaArguments
