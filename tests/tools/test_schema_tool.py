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


def make_toolbox(parameters, **settings):
    return Toolbox([SchemaTool("weather", "The weather", lambda arguments: arguments, parameters)], **settings)


def reply_text(arguments, parameters=SCHEMA, **settings):
    return make_toolbox(parameters, **settings).execute(ToolCall("weather", arguments)).text


def test_valid_arguments_arrive_as_a_dict():
    assert reply_text('{"city": "Rome", "days": 2}') == '{"city":"Rome","days":2}'
    assert reply_text('{"city": "Rome"}', json.dumps(SCHEMA)) == '{"city":"Rome"}'


def test_tool_without_schema_has_no_parameters():
    box = make_toolbox(None)
    assert box.specifications[0].parameters is None
    assert box.execute(ToolCall("weather")).text == "{}"


def test_specification_has_the_portable_schema():
    assert make_toolbox(SCHEMA).specifications[0].parameters == {
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
def test_reports_all_problems_at_once(arguments, message):
    text = reply_text(arguments)
    assert text == (f"Error: {message}" if message else '{"city":"5.5"}')


def test_extra_keys_are_dropped_unless_the_schema_allows_them():
    assert reply_text('{"city": "Rome", "junk": 1}') == '{"city":"Rome"}'
    assert reply_text('{"city": "Rome", "junk": 1}', repair=False) == (
        "Error: Invalid arguments for 'weather': junk: not a parameter of this tool"
    )
    assert reply_text('{"city": "Rome", "junk": 1}', {"properties": {"city": {"type": "string"}}}) == (
        '{"city":"Rome","junk":1}'
    )


def test_defaults_are_not_applied():
    schema = {"properties": {"days": {"type": "integer", "default": "many"}}}
    assert reply_text("{}", schema) == "{}"


def test_repairs_follow_the_schema():
    reply = make_toolbox(SCHEMA).execute(
        ToolCall("weather", '{"City": "Rome", "days": "2", "unit": "KELVIN", "spots": 1}')
    )
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
    assert reply_text(json.dumps({"value": good}), schema) == json.dumps({"value": good}, separators=(",", ":"))
    assert reply_text(json.dumps({"value": bad}), schema).startswith(
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
def test_rejects_unenforceable_schema(schema, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        SchemaTool("weather", "", lambda _: None, schema)


def test_rejects_too_deep_schema():
    schema = {"type": "string"}
    for _ in range(100):
        schema = {"properties": {"a": schema}}
    with pytest.raises(ToolDefinitionError, match="the schema is too deep"):
        SchemaTool("weather", "", lambda _: None, schema)


def test_accepts_custom_annotations_and_local_references():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "x-order": 1,
        "properties": {"tree": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/tree"}}}},
    }
    assert (
        reply_text('{"tree": {"value": 1, "next": {"value": 2}}}', schema) == '{"tree":{"value":1,"next":{"value":2}}}'
    )
    assert reply_text('{"tree": {"next": {"value": "x"}}}', schema).endswith("tree.next.value: expected an integer")


def test_explains_the_nearest_option_of_any_of():
    options = [
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
        {
            "type": "object",
            "properties": {"b": {"type": "object", "not": {}}, "c": {"type": "array"}},
            "required": ["b", "c"],
        },
    ]
    schema = {"properties": {"value": {"anyOf": options}}}
    assert reply_text('{"value": {"a": 2}}', schema).endswith("value.a: expected 1")
    assert reply_text('{"value": 5}', schema).endswith("value: expected an object")


def test_falls_back_to_the_validators_message():
    schema = {"properties": {"value": {"not": {"type": "string"}}, "other": {"type": "string", "pattern": "^a"}}}
    assert reply_text('{"value": "x"}', schema).endswith('value: {"type":"string"} is not allowed for "x"')
    assert reply_text('{"other": "x"}', schema).endswith("other: expected text that matches ^a")


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
async def test_accepts_any_object_with_the_four_attributes(source, arguments, text):
    box = Toolbox([source])
    assert box["spec"] is source
    assert (
        box.execute(ToolCall("spec", arguments)).text == (await box.aexecute(ToolCall("spec", arguments))).text == text
    )


def test_schema_is_checked_when_the_toolbox_is_built():
    bad = type("Bad", (Spec,), {"parameters_schema": {"type": "nonsense"}})()
    with pytest.raises(ToolDefinitionError, match="Tool at index 0"):
        Toolbox([bad])
