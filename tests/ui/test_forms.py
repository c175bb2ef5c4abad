"""Forms: every value can be shown and comes back as it was, and untouched values are absent."""

import json
import math
import re

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from toolsemble import Toolbox, tool
from toolsemble._runtime.text import HIDDEN
from toolsemble._ui.forms import MISSING, build_form, expand_field, read_form, to_json_text, to_json_values

NAMES = st.text(max_size=8) | st.sampled_from(
    ["kind", "name", "a/b", "~", "<img src=x onerror=1>", "\u202e", "$ref", ""]
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12)
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
TREE = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}
PAYMENT = {
    "type": "object",
    "properties": {
        "order": {"type": "integer", "description": "The order.", "minimum": 1},
        "to": {
            "anyOf": [
                {"type": "object", "properties": {"kind": {"enum": ["card"]}, "number": {"type": "string"}}},
                {"type": "object", "properties": {"kind": {"enum": ["bank"]}, "iban": {"type": "string"}}},
            ]
        },
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}},
        "level": {"enum": ["low", "high"]},
        "express": {"type": "boolean"},
    },
    "required": ["order", "to"],
    "additionalProperties": False,
}


@st.composite
def objects(draw, inner):
    """Return a schema of an object, and a value of it that has some of the keys."""
    parts = draw(st.dictionaries(NAMES, inner, max_size=4))
    required = draw(st.lists(st.sampled_from([*parts]), unique=True)) if parts else []
    present = {name: value for name, (_, value) in parts.items() if name in required or draw(st.booleans())}
    more = draw(st.sampled_from([None, False, True, {"type": "integer"}]))
    extra = draw(st.dictionaries(NAMES, st.integers(), max_size=2)) if more in (True, {"type": "integer"}) else {}
    schema = {"type": "object", "properties": {name: each for name, (each, _) in parts.items()}, "required": required}
    return schema | ({} if more is None else {"additionalProperties": more}), extra | present


@st.composite
def unions(draw, inner):
    options = draw(st.lists(inner, min_size=1, max_size=3))
    null = [({"type": "null"}, None)] if draw(st.booleans()) else []
    keyword = draw(st.sampled_from(["anyOf", "oneOf"]))
    return {keyword: [schema for schema, _ in [*options, *null]]}, draw(st.sampled_from([*options, *null]))[1]


@st.composite
def choices(draw):
    values = draw(st.lists(JSON, min_size=1, max_size=4, unique_by=json.dumps))
    return {"enum": values}, draw(st.sampled_from(values))


LEAF_SCHEMAS = st.one_of(
    st.tuples(st.just({"type": "string"}), st.text()),
    st.tuples(st.just({"type": "integer"}), st.integers() | st.integers().map(lambda value: value * 2**60)),
    st.tuples(st.just({"type": "number"}), st.floats(allow_nan=False, allow_infinity=False) | st.integers()),
    st.tuples(st.just({"type": "boolean"}), st.booleans()),
    st.tuples(st.just({"type": "null"}), st.none()),
    st.tuples(st.just({"type": ["string", "integer", "null"]}), st.text() | st.integers() | st.none()),
    st.tuples(st.sampled_from([{}, True, {"type": "what"}]), JSON),
    JSON.map(lambda value: ({"const": value}, value)),
    choices(),
)
SCHEMAS = st.recursive(
    LEAF_SCHEMAS,
    lambda inner: st.one_of(
        objects(inner),
        unions(inner),
        inner.map(lambda pair: ({"type": "array", "items": pair[0]}, [pair[1]] * 2)),
        st.tuples(inner, inner).map(lambda pair: ({"prefixItems": [pair[0][0], pair[1][0]]}, [pair[0][1]])),
        inner.map(lambda pair: ({"allOf": [pair[0]], "title": "All"}, pair[1])),
        inner.map(lambda pair: ({"additionalProperties": pair[0]}, {"any key": pair[1]})),
    ),
    max_leaves=8,
)


def by_name(form):
    return {each.name: each for each in form.fields}


def same(first, second):
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS)
def test_a_value_of_any_schema_comes_back_as_it_was(pair):
    schema, value = pair
    form = build_form(schema, value)
    assert same(read_form(form), value)
    assert same(read_form(json.loads(to_json_text(form))), value)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS, JSON)
def test_a_value_that_does_not_fit_comes_back_as_it_was(pair, value):
    assert same(read_form(build_form(pair[0], value)), value)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(objects(SCHEMAS))
def test_untouched_fields_are_absent(pair):
    schema, _ = pair
    value = read_form(build_form(schema))
    optional = schema["properties"].keys() - {*schema["required"]}
    assert not value.keys() & optional


@settings(max_examples=100, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_only_a_field_that_differs_is_marked_as_changed(first, second):
    schema = {"properties": {"a": first[0], "b": second[0]}}
    before = {"a": first[1], "b": second[1]}
    assert not build_form(schema, before, before=before).changed
    form = build_form(schema, {"a": first[1], "b": "another value"}, before=before)
    fields = by_name(form)
    assert not fields["a"].changed
    assert fields["b"].changed is not same(second[1], "another value")


def test_an_empty_form_has_the_kinds_of_the_schema():
    fields = by_name(build_form(PAYMENT))
    assert {name: (each.kind, each.state) for name, each in fields.items()} == {
        "order": ("integer", "unset"),
        "to": ("union", "unset"),
        "note": ("text", "unset"),
        "tags": ("array", "unset"),
        "level": ("choice", "unset"),
        "express": ("boolean", "unset"),
    }
    assert fields["note"].nullable
    assert fields["order"].required
    assert fields["order"].description == "The order."
    assert fields["order"].limits == {"minimum": 1}
    assert fields["note"].default == "null"
    assert [each.label for each in fields["level"].options] == ["low", "high"]
    assert [each.label for each in fields["to"].options] == ["card", "bank"]
    assert fields["tags"].item.kind == "text"


def test_a_page_fills_in_a_form_without_knowing_the_schema():
    form = to_json_values(build_form(PAYMENT))
    fields = {each["name"]: each for each in form["fields"]}
    fields["order"] |= {"state": "value", "text": "9007199254740993"}
    fields["to"] |= {"state": "value", "chosen": 1}
    bank = {each["name"]: each for each in fields["to"]["fields"][1]["fields"]}
    bank["kind"]["state"] = "value"
    bank["iban"] |= {"state": "value", "text": ""}
    fields["note"]["state"] = "null"
    fields["tags"] |= {"state": "value", "fields": [fields["tags"]["item"] | {"state": "value", "text": "a"}]}
    fields["level"] |= {"state": "value", "text": fields["level"]["options"][1]["text"]}
    fields["express"] |= {"state": "value", "text": "false"}
    assert read_form(form) == {
        "order": 9007199254740993,
        "to": {"kind": "bank", "iban": ""},
        "note": None,
        "tags": ["a"],
        "level": "high",
        "express": False,
    }


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        ({"kind": "card", "number": "1"}, 0),
        ({"kind": "bank", "iban": "x"}, 1),
        ({"kind": "bank", "number": "1"}, 1),  # the constant counts more than the keys
        ({"iban": 5}, 1),
        ({}, 0),
    ],
)
def test_a_union_shows_the_option_that_fits(value, chosen):
    assert by_name(build_form(PAYMENT, {"to": value}))["to"].chosen == chosen


def test_a_union_shows_the_option_with_the_most_keys_if_none_is_valid():
    options = [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}, "c": {}}}]
    form = build_form({"oneOf": [{"type": "string"}, *options]}, {"b": 1, "c": 2})
    assert form.chosen == 2
    assert form.fields[2].fields[0].kind == "json"


def test_a_union_in_a_union_has_the_options_of_both():
    inner = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    form = build_form({"anyOf": [inner, {"type": "string", "title": "Words"}]})
    assert ([each.label for each in form.options], form.nullable) == (["integer", "Words"], True)


def test_null_among_the_values_of_a_choice_is_no_value_to_choose():
    form = build_form({"enum": ["low", None, "high"]})
    assert (form.kind, [each.label for each in form.options], form.nullable) == ("choice", ["low", "high"], True)


def test_a_value_of_another_type_is_shown_as_json():
    field = by_name(build_form(PAYMENT, {"order": {"id": 7}}))["order"]
    assert (field.kind, field.text) == ("json", '{"id":7}')
    assert build_form({"anyOf": [{"type": "string"}, {"type": "integer"}]}, [1]).kind == "json"


def test_keys_that_are_not_declared_are_kept():
    schema = {"properties": {"a": {}}, "patternProperties": {"^x-": {"type": "boolean"}, "(": {}}}
    fields = by_name(build_form(schema, {"a": 1, "x-b": True, "c": "d"}))
    assert [(each.kind, each.is_extra) for each in fields.values()] == [
        ("json", False),
        ("boolean", True),
        ("json", True),
    ]


def test_an_object_of_any_keys_has_a_new_one():
    form = build_form({"type": "object", "additionalProperties": {"type": "integer"}}, {"b": 1})
    assert (form.item.kind, form.item.is_extra, form.fields[0].is_extra) == ("integer", True, True)
    assert build_form({"type": "object"}).item.kind == "json"
    assert build_form(PAYMENT).item is None
    assert build_form(None).item is None


def test_a_tuple_has_a_field_for_each_place():
    schema = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}
    form = build_form(schema, ["a"])
    assert [(each.kind, each.state) for each in form.fields] == [("text", "value"), ("integer", "unset")]
    assert form.item is None
    assert read_form(form) == ["a"]


def test_recursion_is_cut_and_expands_on_demand():
    fields = by_name(build_form(TREE))
    assert fields["children"].item.is_cut
    assert fields["next"].is_cut
    assert fields["next"].nullable
    inside = expand_field(TREE, fields["next"].place)
    assert [each.name for each in inside.fields] == ["name", "children", "next"]
    assert by_name(inside)["next"].is_cut


def test_recursion_is_shown_as_deep_as_the_value():
    value = {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]}
    form = build_form(TREE, value)
    assert form.fields[1].fields[0].fields[1].fields[0].fields[0].text == "c"
    assert read_form(form) == value


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"properties": 5, "enum": "x", "items": 3, "required": None, "anyOf": 7},
        {"type": "array", "prefixItems": 1, "items": True},
    ],
    ids=str,
)
def test_a_schema_without_an_end_or_sense_has_a_form(schema):
    assert read_form(build_form(schema, {"a": 1})) == {"a": 1}
    assert len(to_json_text(build_form(schema))) < 100_000


def test_combined_schemas_are_one_form():
    part = {"properties": {"b": {"type": "integer"}}, "required": ["b"], "title": "Part"}
    schema = {"allOf": [part, {"required": ["c"]}], "properties": {"a": {"type": "string"}}, "required": ["a"]}
    form = build_form(schema, {"a": "x", "b": 1})
    assert {each.name: (each.kind, each.required) for each in form.fields} == {
        "a": ("text", True),
        "b": ("integer", True),
    }
    assert form.label == "Part"


def test_deep_schemas_are_cut_and_expand_at_their_place():
    schema = {"type": "string"}
    for _ in range(6):
        schema = {"type": "object", "properties": {"in": schema}}
    form, levels = build_form(schema), 0
    while not form.is_cut:
        form, levels = form.fields[0], levels + 1
    assert levels == 3
    assert expand_field(schema, form.place).fields[0].name == "in"
    with pytest.raises(LookupError, match="there is no 'out'"):
        expand_field(schema, "#/properties/out")


def test_one_of_several_types_expands():
    schema = {"properties": {"a": {"type": ["object", "string"], "properties": {"b": {"type": "boolean"}}}}}
    assert expand_field(schema, "#/properties/a/type/0").fields[0].kind == "boolean"


@pytest.mark.slow
def test_a_schema_with_many_options_has_a_bounded_form():
    option = {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(40)}}
    union = {"anyOf": [option] * 40}
    schema = {"type": "object", "properties": {f"u{index}": union for index in range(40)}}
    form = build_form(schema)
    assert len(to_json_text(form)) < 3_000_000
    assert form.fields[-1].is_cut
    value = {f"u{index}": {"p1": "x"} for index in range(40)}
    assert read_form(build_form(schema, value)) == value


def test_long_lists_are_shown_as_json():
    numbers = {"type": "array", "items": {"type": "integer"}}
    form = build_form(numbers, [*range(1000)])
    assert form.kind == "json"
    assert read_form(form) == [*range(1000)]
    assert build_form({"type": "object"}, dict.fromkeys(map(str, range(1000)), 1)).kind == "json"


def test_secrets_are_never_in_a_form():
    schema = {
        "properties": {
            "key": {"type": "string", "format": "password", "default": "hunter2"},
            "pin": {"anyOf": [{"type": "string", "format": "password"}, {"type": "null"}]},
            "old": {"type": "string", "writeOnly": True},
        }
    }
    value = {"key": "hunter2", "pin": "hunter2", "old": "hunter2"}
    form = build_form(schema, value, before=value, keep_hidden=True)
    assert "hunter2" not in to_json_text(form)
    assert [each.secret for each in form.fields] == [True, True, True]
    assert read_form(form) == {}


def test_a_masked_secret_means_unchanged_only_for_a_waiting_call():
    schema = {"properties": {"key": {"type": "string", "format": "password"}, "n": {"type": "integer"}}}
    value = {"key": HIDDEN, "n": 1}
    assert read_form(build_form(schema, value, keep_hidden=True)) == value
    assert read_form(build_form(schema, value)) == {"n": 1}
    assert read_form(build_form(schema, {"key": None}, keep_hidden=True)) == {"key": None}


def test_changed_fields_have_the_value_before():
    fields = by_name(build_form(PAYMENT, {"order": 8, "note": "new"}, before={"order": 7, "tags": ["a"]}))
    assert (fields["order"].changed, fields["order"].before) == (True, "7")
    assert (fields["note"].changed, fields["note"].before) == (True, None)
    assert (fields["tags"].changed, fields["tags"].before) == (True, None)
    assert not fields["to"].changed
    assert read_form(build_form(PAYMENT, before={"order": 7})) == {"order": 7}
    inside = build_form({"type": "array", "items": {"type": "integer"}}, [1, 3, 4], before=[1, 2]).fields
    assert [each.changed for each in inside] == [False, True, True]


def test_a_number_that_cannot_be_read_stays_text():
    field = {"name": "n", "kind": "integer", "state": "value"}
    form = {"kind": "object", "state": "value", "fields": [field | {"text": "seven"}]}
    assert read_form(form) == {"n": "seven"}
    form["fields"][0]["text"] = "  "
    assert read_form(form) == {}
    form["fields"][0]["text"] = "NaN"
    assert read_form(form) == {"n": "NaN"}


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ([], "the form: expected a field, an object, not []"),
        ({}, "the form: state must be unset, null or value, not None"),
        ({"state": "value", "kind": "text"}, "the form: text must be a str, not None"),
        ({"state": "value", "kind": "file", "text": ""}, "the form: unknown kind 'file'"),
        ({"state": "value", "kind": "object", "fields": 1}, "the form: fields must be an array, not 1"),
        ({"state": "value", "kind": "object", "fields": [{}]}, "field 0 must have a name, a str, not None"),
        ({"state": "value", "kind": "union", "chosen": True, "fields": [{}]}, "chosen must be the index of an option"),
        ({"state": "value", "kind": "union", "chosen": 4, "fields": [{}]}, "chosen must be the index of an option"),
        ({"state": "value", "kind": "array", "fields": [3]}, "/0: expected a field, an object, not 3"),
    ],
)
def test_what_is_not_a_form_is_refused(form, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        read_form(form)


def test_a_key_that_is_there_twice_is_refused():
    field = {"name": "a", "kind": "text", "state": "value", "text": "x"}
    with pytest.raises(ValueError, match="duplicate key 'a'"):
        read_form({"kind": "object", "state": "value", "fields": [field, field]})
    assert read_form({"kind": "object", "state": "value", "fields": [field, field | {"state": "unset"}]}) == {"a": "x"}


def test_a_form_that_is_nested_too_deeply_is_refused():
    form = {"kind": "text", "state": "null"}
    for _ in range(100_000):
        form = {"kind": "array", "state": "value", "fields": [form]}
    with pytest.raises(ValueError, match="nested too deeply"):
        read_form(form)


def test_nothing_is_set_in_an_unset_form():
    assert read_form({"state": "unset"}) is MISSING
    assert read_form({"state": "value", "kind": "union"}) is MISSING
    assert repr(MISSING) == "MISSING"


def test_arguments_of_a_tool_are_accepted_as_the_form_has_them():
    @tool
    def pay(order: int, note: str | None = None, tags: list[str] = [], amounts: dict[str, float] = {}) -> str:  # noqa: B006 - never changed
        """Pay."""
        return json.dumps([order, note, tags, amounts])

    box = Toolbox([pay])
    form = build_form(box.specifications[0].parameters, {"order": 7, "amounts": {"a": 1.5}})
    assert box["pay"].execute(read_form(form)).output == '[7, null, [], {"a": 1.5}]'


def test_json_values_of_records_are_what_json_has():
    assert to_json_values({1: (math.inf, {"a"}, "b")}) == {"1": [None, "{'a'}", "b"]}
    assert json.loads(to_json_text({"\ud800": "\u202e"})) == {"\ud800": "\u202e"}
