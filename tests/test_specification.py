import json
import pickle

import pytest

from toolsemble import ToolDefinitionError, ToolSpecification

PARAMETERS = {"type": "object", "properties": {"città": {"type": "string"}}, "required": ["città"]}


def specification():
    return ToolSpecification("weather", "Das Wetter", PARAMETERS, {"cache": True}, strict=True)


def parameters(schema):
    return json.dumps({"name": "a", "description": "", "parameters": schema})


def test_specification_keeps_its_fields():
    made = specification()
    assert (made.name, made.description, made.strict) == ("weather", "Das Wetter", True)
    assert made.parameters == PARAMETERS
    assert made.metadata == {"cache": True}


def test_specification_without_parameters():
    made = ToolSpecification("now", "The time")
    assert (made.parameters, made.metadata, made.strict) == (None, {}, None)


def test_specification_is_immutable():
    given = {"type": "object", "properties": {}}
    made = ToolSpecification("a", "", given)
    given["type"] = "array"
    made.parameters["properties"]["x"] = {}
    assert made.parameters == {"type": "object", "properties": {}}
    for field in ("name", "description", "parameters", "metadata", "strict"):
        with pytest.raises(AttributeError):
            setattr(made, field, None)


def test_json_round_trips_byte_for_byte():
    text = specification().to_json()
    assert text == (
        '{"name":"weather","description":"Das Wetter","parameters":{"type":"object","properties":'
        '{"città":{"type":"string"}},"required":["città"]},"metadata":{"cache":true},"strict":true}'
    )
    assert ToolSpecification.from_json(text).to_json() == text
    assert ToolSpecification.from_json(text) == specification()
    assert hash(ToolSpecification.from_json(text)) == hash(specification())


def test_specification_can_be_pickled_and_has_a_repr():
    made = ToolSpecification("a", "b")
    assert pickle.loads(pickle.dumps(made)) == made
    assert repr(made) == "ToolSpecification(name='a', description='b', parameters=None, metadata={}, strict=None)"
    assert made != "a"


def test_optional_fields_can_be_omitted():
    assert ToolSpecification.from_json('{"name": "a", "description": "b"}') == ToolSpecification("a", "b")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "must be an object, not list"),
        ('{"description": ""}', "'name' is missing"),
        ('{"name": ""}', "'description' is missing"),
        ('{"name": "a", "description": 5}', "'description' must be str, not int"),
        ('{"name": "a", "description": "", "parameters": []}', "'parameters' must be dict or None, not list"),
        ('{"name": "a", "description": "", "parameters": "x"}', "'parameters' must be dict or None, not str"),
        (parameters({"type": "array"}), "'parameters' must be a schema of type object, not 'array'"),
        (parameters({"type": 5}), "'parameters' must be a schema of type object, not 5"),
        (parameters({"properties": []}), "'parameters.properties' must be an object, not []"),
        (parameters({"properties": {"a": 5}}), "'parameters.properties.a' must be a schema, not 5"),
        (parameters({"required": "a"}), "'parameters.required' must be a list of names, not 'a'"),
        (parameters({"required": [5]}), "'parameters.required' must be a list of names, not [5]"),
        (parameters({"items": 5}), "'parameters.items' must be a schema, not 5"),
        (parameters({"items": {"anyOf": {}}}), "'parameters.items.anyOf' must be a list of schemas, not {}"),
        (parameters({"anyOf": [{"enum": 5}]}), "'parameters.anyOf[0].enum' must be a list of values, not 5"),
        (parameters({"additionalProperties": []}), "'parameters.additionalProperties' must be a schema, not []"),
        (parameters({"additionalProperties": {"description": 5}}), "additionalProperties.description' must be a str"),
        (
            '{"name": "a", "description": "", "metadata": 5}',
            "metadata must be a mapping or None, not 5",
        ),
        ('{"name": "a", "description": "", "strict": 1}', "'strict' must be bool or None, not int"),
        ('{"name": "a", "description": "", "title": "x"}', "unknown field 'title'; known are name, description"),
    ],
)
def test_invalid_json_error_names_the_field(text, problem):
    with pytest.raises(ToolDefinitionError) as refused:
        ToolSpecification.from_json(text)
    assert problem in str(refused.value)


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800"])
def test_rejects_values_that_are_not_json(value):
    with pytest.raises(ToolDefinitionError, match="'parameters' is not JSON"):
        ToolSpecification("a", "b", {"default": value})


def test_accepts_boolean_schemas():
    schema = {"properties": {"a": True, "b": {"type": ["string", "null"]}}, "items": False}
    assert ToolSpecification.from_json(parameters(schema)).parameters == schema
