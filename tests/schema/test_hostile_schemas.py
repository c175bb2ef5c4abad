"""Harmful schemas and documents: rejected at definition, with one error."""

import copy
import functools
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from helpers.columns import column
from toolsemble import SchemaTool, Toolbox, ToolCall, ToolDefinitionError, ToolSpecification
from toolsemble._vocabulary.provider_list import PROVIDERS
from toolsemble.builtin import HttpTool

pytestmark = pytest.mark.slow


def make_tool(schema):
    return SchemaTool("probe", "Probes", lambda _: "ran", schema)


def with_property(value, **others):
    return {"type": "object", "properties": {"v": value}, **others}


def reply_text(schema, arguments):
    return Toolbox([make_tool(schema)]).execute(ToolCall("probe", arguments)).text


def definition_error(schema):
    with pytest.raises(ToolDefinitionError) as caught:
        make_tool(schema)
    return str(caught.value)


def make_choices(keyword, levels, leaf):
    definitions = {f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return with_property({"$ref": "#/$defs/d0"}, **{"$defs": {**definitions, f"d{levels}": leaf}})


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
@pytest.mark.parametrize("levels", [12, 22, 200])
def test_nested_choices_are_rejected_with_the_path(keyword, levels):
    problem = definition_error(make_choices(keyword, levels, {"type": "integer"}))
    assert problem.startswith("Tool 'probe': the schema is too large: $.$defs.d")
    assert "its choices multiply to more than 5000 ways to check a value" in problem


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
@pytest.mark.parametrize(
    ("count", "problem"),
    [
        (1, "v[0]: expected an integer"),
        (1000, "$: does not fit, and is too long to say where; send less"),
        (20_000, "$: nested too deeply or too long to be checked; send less"),
    ],
)
def test_schemas_below_the_limit_are_checked_quickly(keyword, count, problem):
    schema = make_choices(keyword, 10, {"type": "array", "items": {"type": "integer"}})
    assert reply_text(schema, {"v": ["x"] * count}) == f"Error: Invalid arguments for 'probe': {problem}"


def test_choices_that_multiply_through_properties_are_rejected():
    schema = {"type": "integer"}
    for _ in range(20):
        part = {"type": "object", "properties": {"a": schema}}
        schema = {"anyOf": [part, part]}
    assert "too large" in definition_error(with_property(schema))


TREE = {
    "t": {
        "anyOf": [
            {"type": "object", "properties": {"n": {"$ref": "#/$defs/t"}}},
            {"type": "object", "properties": {"n": {"$ref": "#/$defs/t"}, "q": {"type": "string"}}, "required": ["q"]},
            {"type": "integer"},
        ]
    }
}


def nested(depth, inner):
    return functools.reduce(lambda value, _: {"n": value}, range(depth), inner)


def test_depth_is_limited_if_every_level_multiplies_choices():
    schema = with_property({"$ref": "#/$defs/t"}, **{"$defs": TREE})
    assert reply_text(schema, {"v": nested(5, 1)}) == "ran"
    assert reply_text(schema, {"v": nested(5, "x")}).endswith("v.n.n.n.n.n: expected an object or an integer")
    for value in (nested(60, 1), nested(60, "x")):
        assert reply_text(schema, {"v": value}).endswith("$: nested too deeply or too long to be checked; send less")


def test_recursive_choice_with_too_many_options_is_rejected():
    option = {"type": "object", "properties": {"n": {"$ref": "#/$defs/t"}}}
    assert "too large: $" in definition_error(
        with_property({"$ref": "#/$defs/t"}, **{"$defs": {"t": {"anyOf": [option] * 50}}})
    )


@pytest.mark.parametrize(
    "tree",
    [
        {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/t"}}]},
        {"type": "object", "properties": {"left": {"$ref": "#/$defs/t"}, "right": {"$ref": "#/$defs/t"}}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/t"}},
        {"type": "object", "patternProperties": {"^x": {"$ref": "#/$defs/t"}}, "propertyNames": {"maxLength": 9}},
        {"type": "array", "prefixItems": [{"type": "integer"}, {"$ref": "#/$defs/t"}], "items": {"type": "string"}},
        {"type": "array", "contains": {"type": "integer"}, "unevaluatedItems": {"$ref": "#/$defs/t"}},
        {
            "anyOf": [
                {"type": "object", "properties": {word: {"$ref": "#/$defs/t"}}, "required": [word]}
                for word in ("and", "or", "not")
            ]
        },
        {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": word}, "inner": {"$ref": "#/$defs/t"}},
                    "required": ["kind"],
                }
                for word in ("and", "or", "not")
            ]
        },
        {"if": {"type": "array"}, "then": {"items": {"$ref": "#/$defs/t"}}, "else": {"type": "integer"}},
        {"dependentSchemas": {"a": {"properties": {"b": {"$ref": "#/$defs/t"}}}}, "not": {"type": "string"}},
    ],
)
def test_plain_recursive_schemas_have_no_depth_limit(tree):
    schema = with_property({"$ref": "#/$defs/t"}, **{"$defs": {"t": tree}})
    deep = functools.reduce(lambda value, _: [value], range(100), 1)
    assert "nested too deeply or too long to be checked" not in reply_text(schema, {"v": deep})


@pytest.mark.parametrize(
    "options",
    [
        [{"if": {}, "then": {}}],
        [{"if": True, "then": {}}, {"if": {}, "then": {}}],
        [{"if": {"properties": {"a": True}, "required": ["a"]}, "then": {}}] * 2,
        [{"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {}}] * 2,
        [{"if": {"properties": {"a": {"const": "x"}}}, "then": {}}] * 2,
        [{"if": {"properties": {"a": {"const": "x"}}, "required": ["a"]}, "then": {}}] * 2,
        [True, {"type": "object"}],
    ],
)
def test_conditions_that_may_all_apply_are_counted(options):
    assert reply_text({"allOf": options}, {}) == "ran"


def test_self_applying_schema_is_rejected():
    words = {f"n{one}": {"anyOf": [{"$ref": f"#/$defs/n{two}"} for two in range(9)]} for one in range(9)}
    assert "refers to itself for the same value" in definition_error(
        with_property({"$ref": "#/$defs/n0"}, **{"$defs": words})
    )
    assert "refers to itself for the same value" in definition_error({"anyOf": [{"$ref": "#"}, {}]})
    assert reply_text({"anyOf": [{"$ref": "#"}]}, {}) == "ran"


def test_too_many_patterns_and_properties_are_rejected():
    schema = {
        "type": "object",
        "properties": {f"p{number}": {} for number in range(4000)},
        "patternProperties": {f"^{number}": {} for number in range(4000)},
    }
    assert "too many nested schemas" in definition_error(schema)


def test_large_enum_is_accepted():
    values = [f"value{number}" for number in range(100_000)]
    box = Toolbox([make_tool(with_property({"type": "string", "enum": values}))])
    assert box.specifications[0].parameters["properties"]["v"] == {"type": "string", "enum": values}
    assert box.execute(ToolCall("probe", {"v": values[-1]})).text == "ran"
    answer = box.execute(ToolCall("probe", {"v": "other"})).text
    assert answer.startswith("Error: Invalid arguments for 'probe': v: expected one of 'value0', 'value1', ")


def test_many_wrong_items_of_a_long_enum_are_reported_quickly():
    schema = with_property({"type": "array", "items": {"enum": [f"value{number}" for number in range(1000)]}})
    assert reply_text(schema, {"v": [1] * 5000}).startswith(
        "Error: Invalid arguments for 'probe': v[0]: expected one of "
    )


def test_many_key_patterns_are_matched_within_the_budget():
    schema = {"patternProperties": {f"^k{number}$": {} for number in range(400)}, "additionalProperties": False}
    answer = reply_text(schema, {f"x{number}": 1 for number in range(3000)})
    assert "not a parameter of this tool" in answer


def make_shared_schema(levels, leaf=None):
    schema = leaf or {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema, "b": schema}}
    return schema


def make_cyclic_schema():
    schema = with_property({"type": "array"})
    schema["properties"]["v"]["items"] = schema
    return schema


def make_deep_schema(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (lambda: make_shared_schema(40), "the schema is too large: more than 150000 values when it is written out"),
        (lambda: with_property({"const": "x" * 40_000_000}), "the schema is too large: more than 150000 values"),
        (make_cyclic_schema, "the schema contains itself; use $ref for recursion"),
        (lambda: make_deep_schema(10_000), "the schema is too deep: more than 250 levels"),
        (lambda: {"properties": {f"p{number}": {} for number in range(100_000)}}, "the schema is too large"),
        (lambda: {"required": [f"p{number}" for number in range(100_000)]}, "the schema is too large"),
        (lambda: with_property({"minimum": 10**5000}), "the schema is not JSON"),
        (
            lambda: with_property({"enum": []}),
            "$.v: enum is empty, so nothing would fit; list the allowed values, or leave it",
        ),
        (lambda: with_property({"type": "dict"}), "not valid: $.properties.v.type: "),
        (lambda: with_property({"type": "dict"}), "; use 'object'"),
        (lambda: with_property({"type": "float"}), "; use 'number'"),
        (lambda: with_property({"items": [{}, 5]}), "not valid: $.properties.v.items: "),
        (lambda: with_property({"const": "\ud800"}), "the schema is not JSON"),
        (
            lambda: with_property({"$id": "https://example.com/a", "properties": {}}),
            "$.v: $id inside a schema changes what",
        ),
        (
            lambda: with_property({"$ref": "#here"}, **{"$defs": {"a": {"$anchor": "here"}}}),
            "$.v: $ref '#here' does not point to",
        ),
        (
            lambda: with_property({"$ref": "#/x-own/a"}, **{"x-own": {"a": {"properties": []}}}),
            "'#/x-own/a' does not point to",
        ),
        (
            lambda: with_property({"$ref": "#/$defs/a/enum/0"}, **{"$defs": {"a": {"enum": [{}]}}}),
            "does not point to a schema",
        ),
        (lambda: {"$schema": "urn:x\ny"}, "unknown $schema 'urn:x\\ny'"),
        (lambda: with_property({"bad\x1b[2J": 1}), "keyword 'bad\\\\x1b[2J' cannot be enforced"),
    ],
)
def test_harmful_schemas_are_rejected(schema, problem):
    assert problem in definition_error(schema())


@pytest.mark.parametrize("reference", ["#/$defs/a%20b", "#/$defs/a~1b", "#/properties/w"])
def test_references_may_be_escaped(reference):
    schema = with_property({"$ref": reference}, **{"$defs": {"a b": {"type": "integer"}, "a/b": {"type": "integer"}}})
    schema["properties"]["w"] = {"type": "integer"}
    assert reply_text(schema, {"v": 1}) == "ran"
    assert reply_text(schema, {"v": "x"}).endswith("v: expected an integer")
    assert Toolbox([make_tool(schema)]).specifications[0].parameters["properties"]["v"] == {"type": "integer"}


WRONG = [[], None, "text", 5, True, {}, [5], {"a": 5}, [None]]
KEYWORDS = [
    "properties", "patternProperties", "required", "items", "anyOf", "oneOf", "allOf", "not", "$defs", "definitions",
    "type", "enum", "const", "format", "pattern", "minimum", "multipleOf", "minLength", "uniqueItems", "description",
    "additionalProperties", "dependentSchemas", "dependentRequired", "dependencies", "prefixItems", "contains",
    "propertyNames", "$ref", "$id", "$schema", "$anchor", "if", "then", "title", "default", "examples", "readOnly",
]  # fmt: skip


def use_every_view(tool):
    """Look at a tool in every way that a program can."""
    box = Toolbox([tool])
    for each in box.specifications:
        ToolSpecification.from_json(each.to_json())
    for provider in PROVIDERS:
        box.to_provider(provider)
        tool.explain(provider)
    box.to_openai("responses")
    for arguments in ({}, {"v": 1}, {"v": {"a": [None, "x"]}}, {"v": [[]], "w": {}}):
        box.execute(ToolCall("probe", arguments))


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_malformed_keyword_is_a_definition_error(keyword):
    for wrong in WRONG:
        with column(wrong):
            check_node({keyword: wrong})


def check_node(node):
    """Use a schema with a node in any place, unless it is refused as a definition."""
    for schema in (
        node,
        with_property(node),
        with_property({"type": "array", "items": node}),
        with_property({"$ref": "#/$defs/a"}, **{"$defs": {"a": node}}),
        with_property({"anyOf": [node, {"type": "null"}]}),
        with_property({"$ref": "#/x-a"}, **{"x-a": node}),
    ):
        try:
            tool = make_tool(schema)
        except ToolDefinitionError:
            continue
        use_every_view(tool)


def values():
    plain = (
        st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "string", "#/$defs/a", "#", "", "x-"])
    )
    keys = st.sampled_from([*KEYWORDS, "a", "v", "x-own", "else", "maximum", "maxItems", "unevaluatedProperties"])
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
    )


GOOD = with_property(
    {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"$ref": "#/$defs/a"}], "default": "a"},
    required=["v", "w"],
    **{"$defs": {"a": {"type": "array", "items": {"allOf": [{"type": "integer", "minimum": 1}, {"const": 2}]}}}},
)


@st.composite
def mutate(draw, source):
    """Return a document in which some parts are replaced by something else."""
    document = copy.deepcopy(source)
    for _ in range(draw(st.integers(1, 3))):
        node = document
        while True:
            inner = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not inner:
                break
            key = draw(st.sampled_from(inner))
            if isinstance(node[key], (dict, list)) and draw(st.integers(0, 3)):
                node = node[key]
                continue
            node[key] = draw(values())
            break
    return document


FUZZ = settings(
    max_examples=100, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@FUZZ
@given(values() | mutate(GOOD))
def test_schemas_raise_only_definition_errors(schema):
    try:
        tool = make_tool(schema)
    except ToolDefinitionError:
        return
    use_every_view(tool)


DOCUMENT = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://api.example/{v}", "variables": {"v": {"default": "1"}}}],
    "paths": {
        "/a/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "post": {
                "operationId": "add",
                "summary": "Adds",
                "parameters": [{"name": "tags", "in": "query", "style": "form", "schema": {"type": "array"}}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/a"}}}},
            },
        }
    },
    "components": {"schemas": {"a": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/a"}}}}},
}


@FUZZ
@given(mutate(DOCUMENT))
def test_documents_raise_only_definition_errors(document):
    try:
        tools = HttpTool.from_openapi(document, auth="TOKEN")
        box = Toolbox(tools)
    except ToolDefinitionError:
        return
    for provider in PROVIDERS:
        box.to_provider(provider)


@FUZZ
@given(values() | mutate(GOOD))
def test_specifications_raise_only_definition_errors(parameters):
    try:
        specification = ToolSpecification.from_json(
            json.dumps({"name": "probe", "description": "", "parameters": parameters})
        )
    except ToolDefinitionError:
        return
    assert specification.parameters is None or specification.parameters.get("type", "object") == "object"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb\u3164", "a\\u200bb\\u3164"),
        ("città", "città"),
        ("k" * 1000, "k" * 300 + "..."),
    ],
)
@pytest.mark.parametrize("closed", [False, None])
def test_invisible_characters_in_keys_are_escaped(key, shown, closed):
    schema = {
        "properties": {
            "v": {"type": "object", "properties": {}, "additionalProperties": closed is None and {"not": {}}}
        }
    }
    box = Toolbox([make_tool(schema)], repair=False)
    answer = box.execute(ToolCall("probe", {"v": {key: 1}})).text
    assert f"v.{shown}: " in answer
    assert answer.isprintable()
