"""The portable subset: what is left of any JSON Schema, and what the description says instead."""

from datetime import date
from typing import Annotated, Literal

import jsonschema_rs
import pytest
from pydantic import AnyUrl, Field

from toolsemble import SchemaTool, Toolbox, ToolCall, ToolSpecification, tool, tool_specifications_from
from toolsemble._schema.provider_schema import make_portable
from toolsemble._vocabulary.provider_list import PROVIDERS
from toolsemble.models.google import _wire as google

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
def test_only_portable_keywords_are_kept(schema, written):
    got, _ = (
        make_portable(schema if isinstance(schema, dict) else {"anyOf": [schema]}) if schema is not True else ({}, [])
    )
    assert got == written
    assert keywords(got) <= ALLOWED


def test_property_order_and_text_are_deterministic():
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
        "$.age: x-internal dropped",
        "$.tree.next: $ref rewritten: written out",
        "$.tree.next.next: $ref rewritten: written out",
        "$.tree.next.next.next: $ref dropped: nested more than 3 deep",
        "$.kind: oneOf rewritten: anyOf",
        "$.kind: const rewritten: enum",
        "$.kind: type rewritten: anyOf",
        "$.both: allOf rewritten: merged",
        "$.pair: prefixItems moved into the description",
    ]


def test_unknown_provider_error_lists_known_providers():
    with pytest.raises(ValueError, match="Unknown provider 'unknown'; known are openai, anthropic, google"):
        tool("f")(lambda: None).explain("unknown")


def test_explain_supports_every_provider():
    @tool
    def function(level: int = 3) -> str:
        return ""

    for provider in PROVIDERS:
        assert isinstance(function.explain(provider), list)
    assert [note.keyword for note in function.explain("google")] == ["additionalProperties", "default"]
    assert Toolbox([function]).specifications


CONTRADICTIONS = [
    (
        {"type": "array", "items": {"type": "string"}, "enum": ["a", "b"]},
        {"type": "array", "description": "one of 'a', 'b'", "items": {"type": "string"}},
        "$.v: enum moved into the description: one of 'a', 'b'; none is of type array, so no value fits",
    ),
    (
        {"type": "integer", "enum": ["1", "2"]},
        {"type": "integer", "description": "one of '1', '2'"},
        "$.v: enum moved into the description: one of '1', '2'; none is of type integer, so no value fits",
    ),
    (
        {"type": "boolean", "enum": ["true"], "description": "Whether"},
        {"type": "boolean", "description": "Whether (one of 'true')"},
        "$.v: enum moved into the description: one of 'true'; none is of type boolean, so no value fits",
    ),
    (
        {"type": ["array", "null"], "enum": [5]},
        {
            "anyOf": [
                {"type": "array", "description": "one of 5", "items": {}},
                {"type": "null", "description": "one of 5"},
            ]
        },
        "$.v: enum moved into the description: one of 5; none is of type array, so no value fits",
    ),
    (
        {"type": "string", "enum": ["asc", "desc", None]},
        {"type": "string", "enum": ["asc", "desc"]},
        "$.v: enum rewritten: without null, not of type string",
    ),
    (
        {"type": ["string", "integer"], "enum": ["a", None]},
        {"type": "string", "enum": ["a"]},
        "$.v: enum rewritten: without null, not of type string or integer",
    ),
    ({"type": ["string", "null"], "const": None}, {"type": "null"}, "$.v: type rewritten: anyOf"),
    ({"type": "integer", "enum": [1.0, 1, 2]}, {"type": "integer", "enum": [1, 2]}, None),
    ({"type": "number", "enum": [1, 2.5, 1]}, {"type": "number", "enum": [1, 2.5]}, None),
    (
        {"type": "array", "items": {"type": "string"}, "enum": [["a"], ["b"]]},
        {"type": "array", "enum": [["a"], ["b"]], "items": {"type": "string"}},
        None,
    ),
    (
        {"allOf": [{"enum": ["a", "b"]}, {"type": "string", "enum": ["b", "c"]}]},
        {"type": "string", "enum": ["b"]},
        "$.v: allOf rewritten: merged",
    ),
    ({"allOf": [{"type": "string", "title": "A"}, {"type": "string"}]}, {"type": "string"}, None),
    ({"type": "string", "enum": ["a"], "default": "b"}, {"type": "string", "enum": ["a"], "default": "b"}, None),
    ({"type": "string", "items": {}, "properties": {}}, {"type": "string"}, None),
]


@pytest.mark.parametrize(("schema", "written", "note"), CONTRADICTIONS)
def test_shown_enum_matches_validation(schema, written, note):
    made = SchemaTool("t", "", lambda _: "ran", {"properties": {"v": schema}, "required": ["v"]})
    assert Toolbox([made]).specifications[0].parameters["properties"]["v"] == written
    assert note is None or note in map(str, made.explain("anthropic"))


def shown_schemas(box):
    """Return what each provider is sent as the schema of the only tool, in the words of JSON Schema."""
    chat, responses = box.to_openai()[0]["function"]["parameters"], box.to_openai("responses")[0]["parameters"]
    yield from (chat, responses, box.to_anthropic()[0]["input_schema"], box.to_mcp()[0]["inputSchema"])
    yield box.to_bedrock()[0]["toolSpec"]["inputSchema"]["json"]
    yield from (each[0]["function"]["parameters"] for each in (box.to_mistral(), box.to_ollama()))
    yield to_json_schema(box.to_google()[0]["function_declarations"][0]["parameters"])


def to_json_schema(schema):
    if isinstance(schema, list):
        return [to_json_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        {"any_of": "anyOf"}.get(key, key): to_json_schema(value) for key, value in schema.items() if key != "nullable"
    }
    made |= {"type": made["type"].lower()} if isinstance(made.get("type"), str) else {}
    return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") is True else made


PROBES = ["a", "b", "c", "asc", "desc", "1", 1, 2, 1.5, 2.5, 5, True, None, ["a"], ["b"], ["c"], [], {}]


@pytest.mark.parametrize("schema", [each for each, _, _ in CONTRADICTIONS])
def test_valid_values_match_schema_of_every_provider(schema):
    made = SchemaTool("t", "", lambda _: "ran", {"properties": {"v": schema}, "required": ["v"]})
    box = Toolbox([made], repair=False)
    accepted = [each for each in PROBES if box.execute(ToolCall("t", {"v": each})).text == "ran"]
    for shown in shown_schemas(box):
        validator = jsonschema_rs.validator_for(shown)
        assert all(validator.is_valid({"v": each}) for each in accepted)
        listed = shown["properties"]["v"].get("enum", [])
        assert all(each in accepted for each in listed)


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (
            {"properties": {"a": {"type": "string"}}, "required": ["b", "a"]},
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a", "b"]},
        ),
        ({"required": ["b"]}, {"type": "object", "properties": {"b": {}}, "required": ["b"]}),
        (
            {"required": ["b"], "additionalProperties": {"type": "integer"}},
            {
                "type": "object",
                "properties": {"b": {"type": "integer"}},
                "required": ["b"],
                "additionalProperties": {"type": "integer"},
            },
        ),
    ],
)
def test_required_key_without_property_becomes_property(schema, written):
    made = SchemaTool("t", "", lambda _: "ran", schema)
    assert Toolbox([made]).specifications[0].parameters == written
    assert "$: required rewritten: b is a property" in map(str, made.explain("openai"))


def test_specification_may_use_true_schemas_and_type_lists():
    schema = {"type": "object", "properties": {"a": True, "b": {"type": ["string", "null"]}}}
    specification = ToolSpecification("t", "", schema)
    written = google.write_tools([specification])[0]["function_declarations"][0]["parameters"]
    assert written["properties"] == {"a": {}, "b": {"type": "STRING", "nullable": True}}
    assert [str(each) for each in google.adapt(schema)[1]] == [
        "$.b: type rewritten: anyOf",
        "$.b: anyOf rewritten: nullable",
    ]


def test_expanded_schema_depth_is_limited():
    chain = {f"d{level}": {"properties": {"n": {"$ref": f"#/$defs/d{level + 1}"}}} for level in range(500)}
    schema = {"properties": {"v": {"$ref": "#/$defs/d0"}}, "$defs": {**chain, "d500": {"type": "string"}}}
    made = SchemaTool("t", "", lambda _: "ran", schema)
    notes = [str(each) for each in made.explain("google")]
    assert any(each.endswith("dropped: more than 100 levels") for each in notes)
    assert len(list(shown_schemas(Toolbox([made])))) == 8


def test_mcp_keeps_bounds_as_keywords():
    @tool
    def plan(
        days: Annotated[int, Field(ge=1, le=7)],
        code: Annotated[str, Field(pattern="^[A-Z]+$", max_length=3)] = "A",
        when: date | None = None,
        tags: Annotated[list[str], Field(min_length=1, description="The tags")] = ["x"],  # noqa: B006 - it is copied
    ) -> str:
        """Plan a trip."""
        return code

    box = Toolbox([plan])
    shown = box.to_mcp()[0]["inputSchema"]["properties"]
    assert shown == {
        "days": {"type": "integer", "description": "between 1 and 7", "minimum": 1, "maximum": 7},
        "code": {
            "type": "string",
            "description": "at most 3 characters; must match ^[A-Z]+$",
            "default": "A",
            "maxLength": 3,
            "pattern": "^[A-Z]+$",
        },
        "when": {
            "anyOf": [{"type": "string", "description": "a date, YYYY-MM-DD", "format": "date"}, {"type": "null"}],
            "default": None,
        },
        "tags": {
            "type": "array",
            "description": "The tags (at least 1 items)",
            "items": {"type": "string"},
            "default": ["x"],
            "minItems": 1,
        },
    }
    assert "minimum" not in box.to_anthropic()[0]["input_schema"]["properties"]["days"]
    jsonschema_rs.validator_for(box.to_mcp()[0]["inputSchema"])


@tool
def book(
    days: Annotated[int, Field(ge=1, le=7)],
    code: Annotated[str, Field(pattern="^[A-Z]+$", max_length=3)],
    word: Annotated[str, Field(pattern=r"^\bx")],
    tags: Annotated[list[str], Field(min_length=1, max_length=2)],
    kind: Annotated[Literal[1, 2], Field(ge=1)],
    when: date | None = None,
    price: Annotated[float, Field(gt=0, multiple_of=0.5)] = 1.0,
    site: AnyUrl | None = None,
) -> str:
    """Book a trip."""
    return code


def test_strict_mode_of_openai_keeps_the_bounds_that_it_supports_on_request():
    shown = Toolbox([book]).to_openai(strict=True, bounds=True)[0]["function"]["parameters"]["properties"]
    assert shown["days"] == {"type": "integer", "description": "between 1 and 7", "minimum": 1, "maximum": 7}
    assert shown["code"] == {
        "type": "string",
        "description": "at most 3 characters; must match ^[A-Z]+$",
        "pattern": "^[A-Z]+$",
    }
    assert shown["word"] == {"type": "string", "description": r"must match ^\bx"}
    assert (shown["tags"]["minItems"], shown["tags"]["maxItems"]) == (1, 2)
    assert shown["kind"]["enum"] == [1, 2]
    assert "minimum" not in shown["kind"]
    assert shown["when"]["anyOf"][0]["format"] == "date"
    assert shown["price"]["anyOf"][0].items() >= {"exclusiveMinimum": 0, "multipleOf": 0.5}.items()
    assert not any("format" in each for each in shown["site"]["anyOf"])


def test_openai_gets_bounds_as_words_only_by_default():
    for strict in (False, True):
        shown = Toolbox([book]).to_openai(strict=strict)[0]["function"]["parameters"]["properties"]
        assert shown["days"] == {"type": "integer", "description": "between 1 and 7"}
        assert "pattern" not in shown["code"]


def test_openai_without_strict_mode_gets_all_bounds_on_request():
    shown = Toolbox([book]).to_openai("responses", bounds=True)[0]["parameters"]["properties"]
    assert (shown["code"]["maxLength"], shown["code"]["pattern"]) == (3, "^[A-Z]+$")
