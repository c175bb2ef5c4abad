"""The portable subset: what is left of any JSON Schema, and what the description says instead."""

import pytest

from toolsemble import SchemaTool, Toolbox, tool, tool_specifications_from
from toolsemble.schema.emit import portable

ALLOWED = {"type", "properties", "required", "items", "enum", "anyOf", "description", "additionalProperties", "default"}


def keywords(schema):
    if not isinstance(schema, dict):
        return set()
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items")]
    return set(schema).union(*map(keywords, [*inner, schema.get("additionalProperties")]))


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "string", "title": "X", "$comment": "c"}, {"type": "string"}),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"const": 5}, {"type": "integer", "enum": [5]}),
        ({"const": None}, {"type": "null"}),
        (
            {"enum": ["a", 1, None]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}, {"type": "null"}]},
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        (
            {"anyOf": [{"anyOf": [{"type": "string"}]}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "description": "at least 1"}),
        ({"type": "integer", "maximum": 1}, {"type": "integer", "description": "at most 1"}),
        (
            {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9},
            {"type": "integer", "description": "more than 1; less than 9"},
        ),
        ({"type": "integer", "multipleOf": 5}, {"type": "integer", "description": "a multiple of 5"}),
        ({"type": "string", "minLength": 3, "maxLength": 3}, {"type": "string", "description": "exactly 3 characters"}),
        ({"type": "string", "format": "strange"}, {"type": "string", "description": "format strange"}),
        (
            {"type": "string", "format": "date", "description": "The day."},
            {"type": "string", "description": "The day. (a date, YYYY-MM-DD)"},
        ),
        ({"type": "string", "examples": ["a", "b"]}, {"type": "string", "description": "for example 'a', 'b'"}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "array", "uniqueItems": False}, {"type": "array", "items": {}}),
        (
            {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
            {
                "type": "array",
                "description": "in this order: string",
                "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            },
        ),
        (
            {"prefixItems": [{"const": "a"}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, {}], "items": False},
            {
                "type": "array",
                "description": "in this order: 'a', integer or null, anything",
                "items": {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer"}, {"type": "null"}, {}]},
            },
        ),
        ({"type": "object", "minProperties": 1}, {"type": "object", "description": "at least 1 entries"}),
        (
            {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}},
            {"type": "object", "additionalProperties": {"type": "string", "description": "at least 1 characters"}},
        ),
        (True, {}),
        (
            {
                "allOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {"type": "string"}}, "required": ["y"]}],
                "$defs": {"a": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
            },
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "string"}},
                "required": ["x", "y"],
            },
        ),
        ({"$ref": "#/$defs/none"}, {}),
    ],
)
def test_only_the_portable_keywords_are_left(schema, written):
    got, _ = portable(schema if isinstance(schema, dict) else {"anyOf": [schema]}) if schema is not True else ({}, [])
    assert got == written
    assert keywords(got) <= ALLOWED


def test_properties_keep_their_order_and_text_is_the_same_every_time():
    @tool
    def function(zebra: int, apple: str = "x", *, mango: float = 1.0) -> str:
        return ""

    first = tool_specifications_from(function)[0].to_json()
    assert first.index("zebra") < first.index("apple") < first.index("mango")
    assert {tool_specifications_from(function)[0].to_json() for _ in range(5)} == {first}


def test_every_change_is_explained_once():
    schema = {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": 18, "x-internal": 1},
            "tree": {"$ref": "#/$defs/tree"},
            "kind": {"oneOf": [{"const": "a"}, {"type": ["integer", "null"]}]},
            "both": {"allOf": [{"type": "string"}, {"maxLength": 3}]},
            "pair": {"prefixItems": [{"type": "string"}]},
        },
        "$defs": {"tree": {"properties": {"next": {"$ref": "#/$defs/tree"}}}},
    }
    explained = [str(note) for note in SchemaTool("f", "", lambda _: None, schema).explain("mcp")]
    assert explained == [
        "$.age: minimum moved into the description: at least 18",
        "$.age: x-internal dropped",
        "$.tree.next: $ref rewritten: written out",
        "$.tree.next.next: $ref rewritten: written out",
        "$.tree.next.next.next: $ref dropped: nested more than 3 deep",
        "$.kind: oneOf rewritten: anyOf",
        "$.kind: const rewritten: enum",
        "$.kind: type rewritten: anyOf",
        "$.both: allOf rewritten: merged",
        "$.both: maxLength moved into the description: at most 3 characters",
        "$.pair: prefixItems moved into the description",
    ]


def test_an_unknown_provider_is_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match="Unknown provider 'nobody'; known are openai, anthropic, google"):
        tool("f")(lambda: None).explain("nobody")


def test_a_tool_of_a_box_explains_itself_for_every_provider():
    @tool
    def function(level: int = 3) -> str:
        return ""

    for provider in ("openai", "anthropic", "google", "bedrock", "mistral", "ollama", "mcp"):
        assert isinstance(function.explain(provider), list)
    assert [note.keyword for note in function.explain("google")] == ["additionalProperties", "default"]
    assert Toolbox([function]).specifications
