"""The grammar of a step, with arguments that fit."""

from __future__ import annotations

import json

import pytest

from toolsemble.models._local.grammar import MAX_LENGTH, dump_json, forbid_same_start, format_opening, step_grammar


def read_rules(schema) -> dict[str, str]:
    """Return the rules that a schema adds, and the expression of its arguments."""
    lines = dict(line.split(" ::= ", 1) for line in step_grammar({"t": schema}).splitlines())
    root = lines["root"].removeprefix('"{\\"name\\": \\"t\\", \\"arguments\\": " ').removesuffix(' "}"')
    return {"root": root, **{name: body for name, body in lines.items() if name[0] == "r" and name[1:].isdigit()}}


FREE = {"root": "object"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, {"root": '"{}"'}),
        ({"type": "object"}, FREE),
        ({"type": "object", "additionalProperties": False}, {"root": '"{}"'}),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"r0": 'string ": " integer', "r1": '"{" (r0 (", " r0)*)? "}"', "root": "r1"},
        ),
        (
            {"type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "string"}}, "required": ["a"]},
            {"r0": '"\\"b\\": " number', "r1": '"\\"a\\": " string', "r2": '"{" r1 (", " r0)? "}"', "root": "r2"},
        ),
        (
            {"properties": {"a": {"type": "boolean"}, "b": {"type": "null"}}},
            {
                "r0": '"\\"a\\": " boolean',
                "r1": '"\\"b\\": " null',
                "r2": '(", " r1)?',
                "r3": '(", " r0)? r2',
                "r4": '"{" (r0 r2 | r1)? "}"',
                "root": "r4",
            },
        ),
    ],
)
def test_required_members_come_first_in_order(schema, expected):
    assert read_rules(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, "value"),
        ({}, "value"),
        ({"type": "string"}, "string"),
        ({"type": "string", "minLength": 1}, "text"),
        ({"type": "string", "description": "JSON text of it"}, "(object | array | string)"),
        ({"type": "string", "format": "date"}, '"\\"" date "\\""'),
        ({"type": "integer"}, "integer"),
        ({"type": "integer", "minimum": 0}, "natural"),
        ({"const": 'a"b'}, '"\\"a\\\\\\"b\\""'),
        ({"enum": ["x", 3, None]}, '("\\"x\\"" | "3" | "null")'),
        ({"type": ["string", "null"]}, "(string | null)"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "(integer | null)"),
        ({"oneOf": [{"type": "integer"}, {"const": "all"}]}, '(integer | "\\"all\\"")'),
        ({"allOf": [{"type": "integer"}]}, "integer"),
        ({"type": "array"}, '("[" (value (", " value){0,})? "]")'),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, '("[" string (", " string){1,} "]")'),
        ({"type": "array", "items": {"type": "null"}, "maxItems": 3}, '("[" (null (", " null){0,2})? "]")'),
        ({"type": "array", "items": {"type": "null"}, "maxItems": 99}, '("[" (null (", " null){0,})? "]")'),
        ({"type": "array", "maxItems": 0}, '"[]"'),
        ({"type": "array", "prefixItems": [{"type": "string"}, True]}, '("[" string ", " value "]")'),
    ],
)
def test_value_is_restricted_to_its_type(schema, expected):
    found = read_rules({"type": "object", "properties": {"a": schema}, "required": ["a"]})
    member = found[found[found["root"]].split()[1]].removeprefix('"\\"a\\": " ')
    assert (f"({found[member]})" if member in found else member) == expected


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "weird"},
        {"type": 7},
        {"type": "object", "properties": {"a": False}},
        {"type": "object", "properties": 7},
        {"type": "object", "properties": {"a": {"$ref": "other.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/type/deeper"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]}, "b": {"$ref": "#/$defs/a"}},
        },
        {"type": "object", "properties": {"a": {"enum": []}}},
        {"type": "object", "properties": {"a": {"allOf": [{}, {}]}}},
        {"type": "object", "properties": {"a": {"allOf": [{}], "minLength": 1}}},
        {"type": "object", "properties": {"a": {"type": "array", "minItems": 17}}},
        {"type": "object", "properties": {"a": {"type": "array", "minItems": 3, "maxItems": 2}}},
        {"type": "object", "properties": {"a": {}}, "required": ["b"]},
        {"type": "object", "properties": {"a": {"enum": ["x" * MAX_LENGTH]}}},
        {"type": "object", "properties": {f"p{number}": {} for number in range(1000)}},
    ],
)
def test_unsupported_schema_allows_any_arguments(schema):
    assert read_rules(schema) == FREE


def test_too_deep_schema_allows_any_arguments():
    schema: dict = {"type": "string"}
    for _ in range(10_000):
        schema = {"type": "array", "items": schema}
    assert read_rules({"type": "object", "properties": {"a": schema}}) == FREE


def test_recursive_type_is_a_recursive_rule():
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/a~1b"}}}
    assert read_rules({"$ref": "#/$defs/a~1b", "$defs": {"a/b": tree}}) == {
        "root": "r0",
        "r0": "r3",
        "r1": '"\\"left\\": " r0',
        "r2": '(", " r1)?',
        "r3": '"{" (r1)? "}"',
    }


def test_unsupported_tool_does_not_affect_others():
    good = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    grammar = step_grammar({"bad": {"type": "object", "properties": {"x": good, "y": False}}, "good": good})
    assert grammar.splitlines()[0] == (
        'root ::= "{\\"name\\": \\"bad\\", \\"arguments\\": " object "}" | '
        '"{\\"name\\": \\"good\\", \\"arguments\\": " r1 "}"'
    )


@pytest.mark.parametrize("name", ['x" | "y', "a\\", "a\nroot ::= [a-z]", "\u2028", "\ud800", "]#%{}"])
def test_names_are_escaped_in_grammar(name):
    schema = {"type": "object", "properties": {name: {"enum": [name]}}, "required": [name]}
    lines = step_grammar({"t": schema}).split("\n")
    assert all(" ::= " in line for line in lines)
    assert {line.split(" ::= ")[0] for line in lines if line.startswith("r")} == {"root", "r0", "r1", "r2"}


def test_prompt_and_grammar_use_same_separators():
    assert (
        format_opening("a") + dump_json({"b": [1, 2], "c": "ü"}) == '{"name": "a", "arguments": {"b": [1, 2], "c": "ü"}'
    )
    assert json.loads(dump_json("\ud800")) == "\ud800"
    assert dump_json("\ud800").isascii()


def test_plan_starts_with_called_tool_and_ends_with_answer():
    grammar = step_grammar({"a": None, "z": None}, "z", "plan")
    lines = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    assert lines["tool"] == '"\\"a\\""'
    assert lines["root"].replace("\\", "") == (
        '"{"plan": ["a"" (", " tool){0,3} ", "z"], "name": "a", "arguments": " "{}" "}" | '
        '"{"plan": ["z"], "name": "z", "arguments": " "{}" "}"'
    )
    assert "tool ::=" not in step_grammar({"z": None}, "z", "plan")


def test_later_call_has_note_of_limited_length():
    grammar = step_grammar({"a": None, "z": None}, "z", "note")
    assert grammar.splitlines()[0].replace("\\", "") == (
        'root ::= "{"note": "" note "", "name": "a", "arguments": " "{}" "}" | "{"name": "z", "arguments": " "{}" "}"'
    )
    assert 'note ::= [^"=\\\\\\x00-\\x1F\\x7F]{1,160}' in grammar.splitlines()


ONE = {"type": "object", "properties": {"input": {"type": "string"}, "more": {"type": "string"}}, "required": ["input"]}


@pytest.mark.parametrize(
    ("before", "letters"),
    [("total * 2", "tT"), ("40 g * 3", "4"), ("Price", "pP"), ("(a)", None), ("é", None), ("", None)],
)
def test_same_start_of_text_can_be_forbidden(before, letters):
    grammar = step_grammar({"compute": forbid_same_start(ONE, {"input": before})})
    rule = f'"\\"" [^{letters}"\\\\\\x00-\\x1F\\x7F] char* "\\""'
    assert any(line.endswith(rule) for line in grammar.splitlines()) is (letters is not None)


@pytest.mark.parametrize(
    ("schema", "before"),
    [
        (None, {}),
        ({**ONE, "required": ["input", "more"]}, {"input": "a", "more": "b"}),
        ({**ONE, "required": []}, {"input": "a"}),
        ({"properties": {"input": {"type": "integer"}}, "required": ["input"]}, {"input": 1}),
        ({"properties": {"input": True}, "required": ["input"]}, {"input": "a"}),
        ({"required": ["input"]}, {"input": "a"}),
        (ONE, {"more": "a"}),
        (ONE, "no object"),
    ],
)
def test_same_start_of_other_arguments_is_allowed(schema, before):
    assert forbid_same_start(schema, before) == schema
