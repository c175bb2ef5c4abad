import json

import pytest

from toolsemble import SchemaTool, Toolbox, ToolCall, ToolDefinitionError

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
        "unit": {"enum": ["celsius", "kelvin"]},
        "day": {"type": "string", "format": "date"},
        "spots": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def box_of(parameters, **settings):
    return Toolbox([SchemaTool("weather", "The weather", lambda arguments: arguments, parameters)], **settings)


def told(arguments, parameters=SCHEMA, **settings):
    return box_of(parameters, **settings).execute(ToolCall("weather", arguments)).text


def test_arguments_that_fit_arrive_as_a_dict():
    assert told('{"city": "Rome", "days": 2}') == '{"city":"Rome","days":2}'
    assert told('{"city": "Rome"}', json.dumps(SCHEMA)) == '{"city":"Rome"}'


def test_no_parameters_are_none():
    box = box_of(None)
    assert box.specifications[0].parameters is None
    assert box.execute(ToolCall("weather")).text == "{}"


def test_the_model_sees_the_portable_form():
    assert box_of(SCHEMA).specifications[0].parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "at least 2 characters"},
            "days": {"type": "integer", "description": "between 1 and 7", "default": 3},
            "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
            "day": {"type": "string", "description": "a date, YYYY-MM-DD"},
            "spots": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


MANY = (
    "Invalid arguments for 'weather': city: missing; days: expected at most 7; "
    "unit: expected one of 'celsius', 'kelvin'; day: expected a date, YYYY-MM-DD; spots[0]: expected a number or null"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{}", "Missing required parameter(s) for 'weather': city"),
        ('{"city": null}', "Missing required parameter(s) for 'weather': city"),
        ("[]", "Expected a JSON object for 'weather' but received: ARRAY"),
        (
            "nonsense",
            "Invalid JSON input for 'weather': Expecting value: line 1 column 1 (char 0); send one JSON object",
        ),
        ('{"city": "Ro', "Invalid JSON input for 'weather': the text is cut off; send all of it again"),
        ('{"city": "R"}', "Invalid arguments for 'weather': city: expected at least 2 characters"),
        (
            '{"days": 9, "unit": "f", "day": "soon", "spots": ["x"]}',
            MANY,
        ),
        ('{"city": "Rome", "days": 1.5}', "Invalid arguments for 'weather': days: expected an integer"),
        ('{"city": 5.5}', None),
    ],
)
def test_problems_are_named_all_at_once(arguments, message):
    text = told(arguments)
    assert text == (f"Error: {message}" if message else '{"city":"5.5"}')


def test_extra_keys_are_dropped_where_the_schema_forbids_them_and_pass_where_it_admits_them():
    assert told('{"city": "Rome", "junk": 1}') == '{"city":"Rome"}'
    assert told('{"city": "Rome", "junk": 1}', repair=False) == (
        "Error: Invalid arguments for 'weather': junk: not a parameter of this tool"
    )
    assert told('{"city": "Rome", "junk": 1}', {"properties": {"city": {"type": "string"}}}) == (
        '{"city":"Rome","junk":1}'
    )


def test_a_default_is_an_annotation_neither_checked_nor_filled_in():
    schema = {"properties": {"days": {"type": "integer", "default": "many"}}}
    assert told("{}", schema) == "{}"


def test_repairs_work_by_the_schema():
    reply = box_of(SCHEMA).execute(ToolCall("weather", '{"City": "Rome", "days": "2", "unit": "KELVIN", "spots": 1}'))
    assert reply.text == '{"city":"Rome","days":2,"unit":"kelvin","spots":[1]}'
    assert [repair["step"] for repair in reply.result.attributes["repairs"]] == ["keys", "coerce", "coerce", "coerce"]


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ("date", "2024-02-29", "2024-02-30"),
        ("time", "12:30:00Z", "25:00:00Z"),
        ("date-time", "2024-03-15T12:30:00Z", "2024-03-15"),
        ("duration", "PT1H", "1 hour"),
        ("uuid", "00000000-0000-0000-0000-000000000005", "5"),
        ("email", "ada@example.org", "ada"),
        ("uri", "https://example.org", "not a uri"),
        ("ipv4", "127.0.0.1", "256.0.0.1"),
        ("ipv6", "::1", "::g"),
    ],
)
def test_formats_are_enforced(form, good, bad):
    schema = {"properties": {"value": {"type": "string", "format": form}}}
    assert told(json.dumps({"value": good}), schema) == json.dumps({"value": good}, separators=(",", ":"))
    assert told(json.dumps({"value": bad}), schema).startswith(
        "Error: Invalid arguments for 'weather': value: expected a"
    )


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "the schema is not JSON"),
        ("[" * 100_000, "the schema is not JSON"),
        ("[]", "the schema must be an object, not list"),
        (5, "the schema must be an object, not int"),
        ({"type": "array"}, "the schema must be of type object, not 'array'"),
        ({"properties": {"a": {"type": "strin"}}}, "the schema is not valid"),
        ({"properties": {"a": {"type": "string", "format": "color"}}}, r"\$\.a: format 'color' cannot be enforced"),
        ({"properties": {"a": {"nullable": True}}}, r"\$\.a: keyword 'nullable' cannot be enforced"),
        ({"properties": {"a": {"items": {"minimun": 1}}}}, r"\$\.a\.items: keyword 'minimun' cannot be enforced"),
        ({"properties": {"a": {"anyOf": [{"typ": "x"}]}}}, r"\$\.a\.anyOf\[0\]: keyword 'typ' cannot be enforced"),
        ({"properties": {"a": {"$ref": "https://example.invalid/x"}}}, "the schema is not valid"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "the schema is not valid"),
        ({"properties": {"a": {"pattern": "(?=x)"}}}, "the schema is not valid"),
        ({"$schema": "https://example.invalid/draft"}, "unknown \\$schema"),
        ({"default": object()}, "the schema is not JSON"),
        ({"default": float("nan")}, "the schema is not JSON"),
        ({"anyOf": [{}] * 20_000}, "the schema is too large"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused_at_definition(schema, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        SchemaTool("weather", "", lambda _: None, schema)


def test_a_schema_that_is_too_deep_is_refused():
    schema = {"type": "string"}
    for _ in range(100):
        schema = {"properties": {"a": schema}}
    with pytest.raises(ToolDefinitionError, match="the schema is too deep"):
        SchemaTool("weather", "", lambda _: None, schema)


def test_own_annotations_and_references_inside_are_fine():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "x-order": 1,
        "properties": {"tree": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/tree"}}}},
    }
    assert told('{"tree": {"value": 1, "next": {"value": 2}}}', schema) == '{"tree":{"value":1,"next":{"value":2}}}'
    assert told('{"tree": {"next": {"value": "x"}}}', schema).endswith("tree.next.value: expected an integer")


def test_of_several_options_the_nearest_one_is_explained():
    options = [
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
        {
            "type": "object",
            "properties": {"b": {"type": "object", "not": {}}, "c": {"type": "array"}},
            "required": ["b", "c"],
        },
    ]
    schema = {"properties": {"value": {"anyOf": options}}}
    assert told('{"value": {"a": 2}}', schema).endswith("value.a: expected 1")
    assert told('{"value": 5}', schema).endswith("value: expected an object")


def test_words_of_the_validator_are_used_where_there_are_none_of_ours():
    schema = {"properties": {"value": {"not": {"type": "string"}}, "other": {"type": "string", "pattern": "^a"}}}
    assert told('{"value": "x"}', schema).endswith('value: {"type":"string"} is not allowed for "x"')
    assert told('{"other": "x"}', schema).endswith("other: expected text that matches ^a")


class Spec:
    name = "spec"
    description = "Knows nothing of this library"
    parameters_schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})

    def execute(self, arguments):
        return f"got {arguments['a']}"


class AsyncSpec(Spec):
    parameters_schema = None

    async def execute(self, arguments):
        return f"got {arguments}"


@pytest.mark.parametrize(
    ("source", "arguments", "text"), [(Spec(), '{"a": 1}', "got 1"), (AsyncSpec(), "{}", "got {}")]
)
async def test_any_object_with_the_four_parts_is_taken(source, arguments, text):
    box = Toolbox([source])
    assert box["spec"] is source
    assert (
        box.execute(ToolCall("spec", arguments)).text == (await box.aexecute(ToolCall("spec", arguments))).text == text
    )


def test_its_schema_is_checked_when_the_box_is_built():
    bad = type("Bad", (Spec,), {"parameters_schema": {"type": "nonsense"}})()
    with pytest.raises(ToolDefinitionError, match="Tool at index 0"):
        Toolbox([bad])
