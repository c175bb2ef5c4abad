"""Each provider's tools, calls and replies, checked with its official SDK."""

import base64
import copy
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import anthropic
import google.genai
import httpx
import mcp.types
import ollama
import pytest
from anthropic.types import ToolResultBlockParam, ToolUseBlock
from google.genai import types as gemini
from hypothesis import given, settings, strategies as st
from mistralai.client import models as mistral_models
from openai.types.chat import (
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionToolMessageParam,
)
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from openai.types.responses.response_input_param import FunctionCallOutput

from helpers.columns import column
from helpers.sdk_checks import (
    CHECK_TOOL,
    check,
    check_bedrock_reply,
    check_converse,
    check_google,
    check_mcp_tool,
    check_model,
)
from toolsemble import AudioContent, FileContent, ImageContent, TextContent
from toolsemble._vocabulary.provider_list import PROVIDERS, load_wire_format
from toolsemble._vocabulary.specification import Note
from toolsemble.mcp import _wire as to_mcp
from toolsemble.models import _ollama as to_ollama
from toolsemble.models.anthropic import _wire as to_anthropic
from toolsemble.models.bedrock import _wire as to_bedrock
from toolsemble.models.google import _wire as to_google
from toolsemble.models.mistral import _wire as to_mistral
from toolsemble.models.openai import _wire as to_openai

pytestmark = pytest.mark.slow

WIRE_FORMATS = [load_wire_format(name) for name in PROVIDERS]
STRICT_FORMATS = [load_wire_format(each.name) for each in PROVIDERS.values() if each.has_strict]


def provider_name(provider):
    *_, package, module = provider.__name__.split(".")
    return (package if module == "_wire" else module).strip("_")


each_provider = pytest.mark.parametrize("provider", WIRE_FORMATS, ids=provider_name)


@dataclass(frozen=True)
class Tool:
    parameters: dict | None = None
    strict: bool | None = None
    name: str = "weather"
    description: str = "The weather in a city"
    metadata: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    text: str = "21 °C"
    contents: tuple = ()
    is_error: bool = False
    call_id: str | None = "call_1"
    name: str = "weather"


def make_parameters(part, **more):
    """Return the parameters of a tool that takes one parameter x."""
    return {"type": "object", "properties": {"x": part}, **more}


NULL = {"type": "null"}
STRING = {"type": "string"}
INTEGER = {"type": "integer"}
POINT = {"type": "object", "properties": {"a": INTEGER, "b": STRING}, "required": ["a"]}

CLOSED = {
    "nothing": {"type": "object", "properties": {}},
    "a bare object": {"type": "object"},
    "string": make_parameters(STRING, required=["x"]),
    "integer": make_parameters(INTEGER, required=["x"]),
    "number": make_parameters({"type": "number"}, required=["x"]),
    "boolean": make_parameters({"type": "boolean"}, required=["x"]),
    "null": make_parameters(NULL, required=["x"]),
    "optional": make_parameters({"type": "string", "description": "The place"}),
    "nullable": make_parameters({"anyOf": [STRING, NULL], "description": "The place"}),
    "default": make_parameters({"type": "integer", "default": 5, "description": "How many"}),
    "default of null": make_parameters({"anyOf": [INTEGER, NULL], "default": None}),
    "array": make_parameters({"type": "array", "items": STRING}, required=["x"]),
    "array of objects": make_parameters({"type": "array", "items": POINT}),
    "object": make_parameters(POINT, required=["x"]),
    "object in object": make_parameters({"type": "object", "properties": {"y": POINT}, "additionalProperties": False}),
    "closed empty object": make_parameters({"type": "object", "additionalProperties": False}),
    "enum of strings": make_parameters({"type": "string", "enum": ["a", "b"]}),
    "enum with an empty string": make_parameters({"type": "string", "enum": ["", "b"]}),
    "enum of integers": make_parameters({"type": "integer", "enum": [1, 2, 3]}),
    "enum of booleans": make_parameters({"type": "boolean", "enum": [True]}),
    "enum of strings without a type": make_parameters({"enum": ["a", "b"]}),
    "enum of numbers without a type": make_parameters({"enum": [1.5, 2.5]}),
    "mixed enum without a type": make_parameters({"enum": ["a", 1, None], "description": "Which"}),
    "mixed enum": make_parameters(
        {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}, NULL]}
    ),
    "any of several": make_parameters({"anyOf": [STRING, POINT, {"type": "array", "items": INTEGER}]}),
    "unicode": {
        "type": "object",
        "properties": {"città": {"type": "string", "enum": ["Żagań", "東京"], "description": "Où ?"}},
        "required": ["città"],
        "additionalProperties": False,
    },
}
OPEN = {
    "anything": make_parameters({}),
    "described anything": make_parameters({"description": "Whatever it is"}),
    "array of anything": make_parameters({"type": "array"}),
    "array of any items": make_parameters({"type": "array", "items": {}}),
    "object of anything": make_parameters({"type": "object"}),
    "dict of integers": make_parameters({"type": "object", "additionalProperties": INTEGER}),
    "open object": make_parameters({**POINT, "additionalProperties": True}),
    "enum of arrays": make_parameters({"enum": [[1], [2]]}),
    "open arguments": {"type": "object", "properties": {}, "additionalProperties": True},
}
SCHEMAS = CLOSED | OPEN


def cases(schemas):
    return pytest.mark.parametrize("parameters", list(schemas.values()), ids=list(schemas))


# The tools argument


@cases(SCHEMAS | {"none": None})
def test_sdk_accepts_tool_unchanged(parameters):
    for provider in WIRE_FORMATS:
        with column(provider_name(provider)):
            (tool,) = provider.write_tools([Tool(parameters)])
            CHECK_TOOL[provider](tool)


@cases(SCHEMAS | {"none": None})
def test_sdk_accepts_tool_for_openai_responses(parameters):
    (tool,) = to_openai.write_tools([Tool(parameters)], "responses")
    check(FunctionToolParam, tool)
    assert tool["strict"] is False


@cases(CLOSED | {"none": None})
def test_sdk_accepts_strict_tool(parameters):
    for provider in STRICT_FORMATS:
        with column(provider_name(provider)):
            (tool,) = provider.write_tools([Tool(parameters, strict=True)])
            CHECK_TOOL[provider](tool)
            assert '"strict": true' in json.dumps(tool)


@cases(CLOSED)
def test_anthropic_strict_schema_matches_sdk(parameters):
    schema, _ = to_anthropic.adapt(parameters, strict=True)
    for part in walk_schema(schema):
        if "enum" in part:
            part.pop("type", None)  # the SDK sends none beside values
    assert anthropic.transform_schema(schema) == schema


@pytest.mark.parametrize(
    ("offered", "asked", "strict"),
    [(None, None, False), (True, None, True), (False, None, False), (True, False, False), (None, True, True)],
)
def test_openai_strict_is_set_by_caller_or_tool(offered, asked, strict):
    offers = [Tool(CLOSED["string"], strict=offered)]
    (chat,) = to_openai.write_tools(offers, strict=asked)
    (responses,) = to_openai.write_tools(offers, "responses", strict=asked)
    assert chat["function"].get("strict", False) is strict
    assert responses["strict"] is strict


@pytest.mark.parametrize(
    "write", [lambda api: to_openai.write_tools([Tool()], api), lambda api: to_openai.write_reply(Reply(), api)]
)
def test_unknown_openai_api_is_rejected(write):
    with pytest.raises(ValueError, match="OpenAI's api is 'chat' or 'responses', not 'assistants'"):
        write("assistants")


@pytest.mark.parametrize("strict", [False, True])
def test_tool_without_parameters_gets_an_empty_object(strict):
    closed = {"additionalProperties": False, "required": []} if strict else {}
    (tool,) = to_openai.write_tools([Tool()], strict=strict)
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}, **closed}


def test_google_functions_are_in_one_tool():
    (tool,) = to_google.write_tools([Tool(name="a"), Tool(CLOSED["string"], name="b")])
    assert [declaration["name"] for declaration in tool["function_declarations"]] == ["a", "b"]
    assert ["parameters" in declaration for declaration in tool["function_declarations"]] == [False, True]
    assert to_google.write_tools([]) == []


def test_bedrock_omits_empty_description():
    (tool,) = to_bedrock.write_tools([Tool(description="")])
    assert "description" not in tool["toolSpec"]


def test_mcp_title_and_hints_come_from_metadata():
    metadata = {"title": "Weather", "readOnlyHint": True, "openWorldHint": "yes", "internal": 1}
    (tool,) = to_mcp.write_tools([Tool(metadata=metadata)])
    check_mcp_tool(tool)
    assert (tool["title"], tool["annotations"]) == ("Weather", {"readOnlyHint": True})


# What an SDK sends


def make_recording_transport(reply):
    """Return a transport that answers every request alike, and the list of what was sent through it."""
    bodies = []

    def answer(request):
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json=reply)

    return httpx.MockTransport(answer), bodies


@cases(SCHEMAS)
def test_google_sdk_sends_complete_schema_and_reply(parameters):
    tools = to_google.write_tools([Tool(parameters)])
    reply = to_google.write_reply(Reply(contents=(ImageContent(b"\xff\xfe", "image/png"),)))
    transport, bodies = make_recording_transport({"candidates": []})
    with httpx.Client(transport=transport) as http:
        client = google.genai.Client(api_key="x", http_options=gemini.HttpOptions(httpx_client=http))
        client.models.generate_content(model="m", contents=[reply], config={"tools": tools})
    sent = json.loads(json.dumps(bodies[0]["tools"][0]["functionDeclarations"]).replace('"anyOf"', '"any_of"'))
    assert sent == tools[0]["function_declarations"]
    (part,) = bodies[0]["contents"][0]["parts"][0]["functionResponse"]["parts"]
    assert base64.urlsafe_b64decode(part["inline_data"]["data"]) == b"\xff\xfe"


@cases(SCHEMAS)
def test_ollama_sdk_sends_complete_schema_and_reply(parameters):
    tools = to_ollama.write_tools([Tool(parameters)])
    reply = to_ollama.write_reply(Reply(contents=(ImageContent(b"\xff\xfe", "image/png"),)))
    transport, bodies = make_recording_transport({"message": {"role": "assistant"}})
    with ollama.Client(transport=transport) as client:
        client.chat(model="m", messages=[reply], tools=tools)
    assert bodies[0]["tools"] == tools
    assert bodies[0]["messages"] == [reply]


# Schemas


STRICT_KEYWORDS = {
    "type", "properties", "required", "items", "enum", "anyOf", "description", "additionalProperties",
}  # fmt: skip


def strict_problems(schema):
    """Return every rule of OpenAI's strict mode that a schema breaks."""
    if schema.get("type") != "object" or "anyOf" in schema:
        yield "the root is no object"
    for part in walk_schema(schema):
        for rule, broken in STRICT_RULES.items():
            if broken(part):
                yield f"{rule}: {part}"


STRICT_RULES = {
    "a keyword that is not admitted": lambda part: part.keys() - STRICT_KEYWORDS,
    "no type": lambda part: "type" not in part and "anyOf" not in part,
    "an open object": lambda part: part.get("type") == "object" and part.get("additionalProperties") is not False,
    "an optional property": lambda part: part.get("type") == "object" and {*part["required"]} != {*part["properties"]},
    "an array without items": lambda part: part.get("type") == "array" and "items" not in part,
    "a value that is no scalar": lambda part: any(isinstance(value, list | dict) for value in part.get("enum", ())),
}


def walk_schema(schema):
    yield schema
    items = [schema["items"]] if "items" in schema else []
    for part in [*schema.get("anyOf", ()), *items, *schema.get("properties", {}).values()]:
        yield from walk_schema(part)


def admits_null(schema):
    return schema.get("type") == "null" or any(map(admits_null, schema.get("anyOf", ())))


@cases(CLOSED)
def test_openai_strict_schema_follows_every_rule(parameters):
    schema, _ = to_openai.adapt(parameters, strict=True)
    assert list(strict_problems(schema)) == []
    for name in parameters.get("properties", {}):
        assert name in parameters.get("required", ()) or admits_null(schema["properties"][name])


@cases(OPEN | {"no type": {}, "a string": STRING, "options": {"anyOf": [POINT, POINT]}})
def test_strict_mode_rejects_unsupported_schema_with_path(parameters):
    for provider in STRICT_FORMATS:
        problem = r"^\$[^ ]*: strict mode needs .+, or go without strict mode$"
        with column(provider_name(provider)), pytest.raises(ValueError, match=problem):
            provider.adapt(parameters, strict=True)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        (
            make_parameters({"type": "array", "items": {"type": "object"}}),
            r"\$.x\[\]: .* every key of an object by name",
        ),
        (make_parameters({"anyOf": [STRING, {}]}), r"\$.x: .* needs a type, and this admits anything"),
        (make_parameters({"type": "array"}), r"\$.x: .* the type of an array's items"),
        (STRING, r"\$: .* an object with named properties for the parameters"),
    ],
)
def test_explain_lists_unsupported_strict_features(parameters, problem):
    with pytest.raises(ValueError, match=problem):
        to_openai.adapt(parameters, strict=True)


def nested(levels):
    return make_parameters(nested(levels - 1)) if levels > 1 else make_parameters(STRING)


def properties(names):
    return {"type": "object", "properties": dict.fromkeys(names, STRING)}


@pytest.mark.parametrize(
    ("largest", "too_large", "limit"),
    [
        (nested(10), nested(11), "10 levels of objects, not 11"),
        (properties(map(str, range(5000))), properties(map(str, range(5001))), "5000 properties, not 5001"),
        (
            make_parameters({"enum": list(range(1000))}),
            make_parameters({"enum": list(range(1001))}),
            "1000 allowed values, not 1001",
        ),
        (
            make_parameters({"enum": [f"{number:059}" for number in range(251)]}),
            make_parameters({"enum": [f"{number:060}" for number in range(251)]}),
            "15000 characters in an enum of more than 250 values, not 15060",
        ),
        (
            properties(["x" * 60_000, "y" * 60_000]),
            properties(["x" * 60_000, "y" * 60_001]),
            "120000 characters of names and allowed values, not 120001",
        ),
    ],
    ids=["levels", "properties", "values", "one enum", "characters"],
)
def test_openai_strict_refuses_a_schema_over_its_limits(largest, too_large, limit):
    to_openai.adapt(largest, strict=True)
    with pytest.raises(ValueError, match=f"strict mode allows at most {limit}; split the tool"):
        to_openai.adapt(too_large, strict=True)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (STRING, {"anyOf": [STRING, NULL]}),
        ({"anyOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER, NULL]}),
        ({"anyOf": [STRING, NULL]}, {"anyOf": [STRING, NULL]}),
        (NULL, NULL),
        ({"type": "null", "enum": [None]}, {"type": "null", "enum": [None]}),
        (
            {"type": "string", "enum": ["a"], "default": "a", "description": "Which"},
            {"anyOf": [{"type": "string", "enum": ["a"]}, NULL], "description": 'Which (default: "a")'},
        ),
        (
            {"enum": ["a", 1, None]},
            {
                "anyOf": [
                    {"type": "string", "enum": ["a"]},
                    {"type": "integer", "enum": [1]},
                    {"type": "null", "enum": [None]},
                ]
            },
        ),
    ],
)
def test_openai_strict_makes_optional_parameters_nullable(part, expected):
    schema, _ = to_openai.adapt(make_parameters(part), strict=True)
    assert schema == make_parameters(expected, required=["x"], additionalProperties=False)


@pytest.mark.parametrize(
    ("part", "expected", "notes"),
    [
        ({"anyOf": [STRING, NULL]}, {"type": "STRING", "nullable": True}, ["anyOf rewritten: nullable"]),
        (
            {"anyOf": [{"type": "string", "description": "a name"}, NULL], "description": "Who"},
            {"type": "STRING", "nullable": True, "description": "Who (a name)"},
            ["anyOf rewritten: nullable"],
        ),
        (
            {"anyOf": [{"type": "string", "description": "a name"}, {"type": "null", "description": "all"}]},
            {"type": "STRING", "nullable": True, "description": "a name (null: all)"},
            ["anyOf rewritten: nullable"],
        ),
        (
            {"anyOf": [STRING, INTEGER, NULL]},
            {"any_of": [{"type": "STRING"}, {"type": "INTEGER"}], "nullable": True},
            ["anyOf rewritten: nullable"],
        ),
        ({"anyOf": [NULL]}, {"any_of": [{"type": "NULL"}]}, []),
        ({"enum": ["a"]}, {"type": "STRING", "enum": ["a"]}, []),
        (
            {"enum": ["a", 1, None], "description": "Which"},
            {
                "any_of": [{"type": "STRING"}, {"type": "INTEGER"}],
                "nullable": True,
                "description": 'Which (one of "a", 1, null)',
            },
            ['enum moved into the description: one of "a", 1, null', "anyOf rewritten: nullable"],
        ),
        (
            {"type": "string", "enum": ["", "b"]},
            {"type": "STRING", "description": 'one of "", "b"'},
            ['enum moved into the description: one of "", "b"'],
        ),
        (
            {"enum": [1.5], "default": 1.5},
            {"type": "NUMBER", "description": "default: 1.5 (one of 1.5)"},
            ["default moved into the description: default: 1.5", "enum moved into the description: one of 1.5"],
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"type": "OBJECT", "description": 'other keys: {"type":"integer"}'},
            ['additionalProperties moved into the description: other keys: {"type":"integer"}'],
        ),
        (
            {"type": "object", "additionalProperties": True},
            {"type": "OBJECT", "description": "other keys: anything"},
            ["additionalProperties moved into the description: other keys: anything"],
        ),
        (
            {"type": "object", "properties": {}, "additionalProperties": False},
            {"type": "OBJECT", "properties": {}},
            ["additionalProperties dropped"],
        ),
        ({"type": "array"}, {"type": "ARRAY", "items": {}}, []),
        ({}, {}, []),
    ],
)
def test_google_describes_unsupported_keywords(part, expected, notes):
    schema, changes = to_google.adapt(make_parameters(part, required=["x"]))
    assert schema == {"type": "OBJECT", "properties": {"x": expected}, "required": ["x"]}
    assert [str(note) for note in changes] == [f"$.x: {note}" for note in notes]


@pytest.mark.parametrize(
    ("part", "expected", "notes"),
    [
        ({"anyOf": [STRING, NULL]}, {"type": ["string", "null"]}, ["anyOf rewritten: type"]),
        (
            {"anyOf": [{"type": "string", "enum": ["a"]}, STRING], "description": "Which"},
            {"type": "string", "description": 'Which (any of: [{"type":"string","enum":["a"]},{"type":"string"}])'},
            ['anyOf moved into the description: any of: [{"type":"string","enum":["a"]},{"type":"string"}]'],
        ),
        (
            {"anyOf": [STRING, {}]},
            {"description": 'any of: [{"type":"string"},{}]'},
            ['anyOf moved into the description: any of: [{"type":"string"},{}]'],
        ),
        (
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "additionalProperties": False},
            {
                "type": "object",
                "description": 'properties: {"a":{"type":"integer"}}; required: ["a"]; other properties: false',
            },
            [
                'properties moved into the description: properties: {"a":{"type":"integer"}}',
                'required moved into the description: required: ["a"]',
                "additionalProperties moved into the description: other properties: false",
            ],
        ),
        (
            {"type": "integer", "default": 5},
            {"type": "integer", "description": "default: 5"},
            ["default moved into the description: default: 5"],
        ),
        ({"type": "array", "items": POINT}, {"type": "array", "items": POINT}, []),
    ],
)
def test_ollama_describes_keywords_dropped_by_sdk(part, expected, notes):
    schema, changes = to_ollama.adapt(make_parameters(part))
    assert schema == make_parameters(expected)
    assert [str(note) for note in changes] == [f"$.x: {note}" for note in notes]


def test_ollama_notes_the_root_keywords_it_drops():
    schema, notes = to_ollama.adapt({**CLOSED["nothing"], "additionalProperties": False})
    assert schema == CLOSED["nothing"]
    assert notes == [Note("$", "additionalProperties", "dropped")]


def test_notes_contain_path_at_every_depth():
    deep = {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer", "default": 1}}}
    _, notes = to_google.adapt(make_parameters({"anyOf": [deep, NULL]}))
    assert [(note.path, note.keyword) for note in notes] == [
        ("$.x", "anyOf"),
        ("$.x[]", "additionalProperties"),
        ("$.x[].*", "default"),
    ]


@each_provider
@pytest.mark.parametrize("parameters", [{}, {"type": "object"}])
def test_arguments_are_offered_as_an_object_with_properties(provider, parameters):
    schema, notes = provider.adapt(parameters)
    assert (schema["type"].lower(), schema["properties"], notes) == ("object", {}, [])


@cases(SCHEMAS)
def test_providers_that_accept_any_schema_get_it_unchanged(parameters):
    for provider in (to_anthropic, to_bedrock, to_mistral, to_mcp):
        with column(provider_name(provider)):
            assert provider.adapt(parameters) == ({"properties": {}, **parameters}, [])


def test_openai_gets_arrays_with_items():
    assert to_openai.adapt(OPEN["array of anything"]) == (OPEN["array of any items"], [])


names = st.text(min_size=1, max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
typed_values = st.one_of(
    st.builds(lambda values: {"type": "string", "enum": values}, st.lists(st.text(), min_size=1)),
    st.builds(lambda values: {"type": "integer", "enum": values}, st.lists(st.integers(), min_size=1)),
    st.builds(lambda values: {"enum": values}, st.lists(scalars | st.lists(scalars), min_size=1)),
)
simple = st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda kind: {"type": kind})


@st.composite
def objects(draw, inner):
    members = draw(st.dictionaries(names, inner, max_size=4))
    schema = {"type": "object", "properties": members}
    if members and draw(st.booleans()):
        schema["required"] = draw(st.lists(st.sampled_from(list(members)), unique=True))
    return schema | draw(st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": True}]))


def containers(inner):
    return st.one_of(
        objects(inner),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda value: {"type": "object", "additionalProperties": value}, inner),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda schema, text: {**schema, "description": text}, inner, st.text()),
        st.builds(lambda schema, value: {**schema, "default": value}, inner, scalars | st.lists(scalars)),
    )


schemas = st.recursive(
    st.one_of(simple, typed_values, st.sampled_from([{}, {"type": "array"}, {"type": "object"}])), containers
)


@settings(deadline=None)
@given(parameters=objects(schemas) | schemas)
def test_every_portable_schema_is_adapted_without_mutation(parameters):
    before = copy.deepcopy(parameters)
    for provider in WIRE_FORMATS:
        adapted, notes = provider.adapt(parameters)
        assert all(isinstance(note, Note) for note in notes)
        assert adapted is not parameters
    assert parameters == before


@settings(deadline=None)
@given(parameters=objects(schemas))
def test_every_tool_is_accepted_by_every_sdk(parameters):
    for provider, check_tool in CHECK_TOOL.items():
        (tool,) = provider.write_tools([Tool(parameters)])
        check_tool(tool)


@settings(deadline=None)
@given(parameters=objects(schemas) | schemas)
def test_openai_strict_returns_strict_schema_or_reason(parameters):
    before = copy.deepcopy(parameters)
    try:
        adapted, _ = to_openai.adapt(parameters, strict=True)
    except ValueError as refused:
        assert str(refused).startswith("$")  # noqa: PT017 - either outcome is right
    else:
        assert list(strict_problems(adapted)) == []
    assert parameters == before


@settings(deadline=None)
@given(parameters=objects(schemas))
def test_adapted_schema_shares_nothing_with_input(parameters):
    before = copy.deepcopy(parameters)
    for provider in WIRE_FORMATS:
        clear_all(provider.adapt(parameters)[0])
    assert parameters == before


def clear_all(value):
    if isinstance(value, list | dict):
        for each in list(value.values() if isinstance(value, dict) else value):
            clear_all(each)
        value.clear()


# Calls


ARGUMENTS = {"city": "Rome"}
TEXT = '{"city": "Rome"}'
FUNCTION = {"name": "weather", "arguments": TEXT}

CALLS = [
    (
        to_openai,
        ChatCompletionMessageFunctionToolCall(id="c1", type="function", function=FUNCTION),
        ("weather", TEXT, "c1"),
    ),
    (
        to_openai,
        ResponseFunctionToolCall(type="function_call", id="fc_1", call_id="c1", **FUNCTION),
        ("weather", TEXT, "c1"),
    ),
    (
        to_anthropic,
        ToolUseBlock(type="tool_use", id="c1", name="weather", input=ARGUMENTS),
        ("weather", ARGUMENTS, "c1"),
    ),
    (to_google, gemini.FunctionCall(name="weather", args=ARGUMENTS, id="c1"), ("weather", ARGUMENTS, "c1")),
    (to_google, gemini.FunctionCall(name="weather"), ("weather", None, None)),
    (
        to_google,
        gemini.Part(function_call=gemini.FunctionCall(name="weather", args=ARGUMENTS)),
        ("weather", ARGUMENTS, None),
    ),
    (to_mistral, mistral_models.ToolCall(id="c1", function=FUNCTION), ("weather", TEXT, "c1")),
    (
        to_mistral,
        mistral_models.ToolCall(function={"name": "weather", "arguments": ARGUMENTS}),
        ("weather", ARGUMENTS, None),
    ),
    (
        to_ollama,
        ollama.Message.ToolCall(function={"name": "weather", "arguments": ARGUMENTS}),
        ("weather", ARGUMENTS, None),
    ),
    (to_mcp, mcp.types.CallToolRequestParams(name="weather", arguments=ARGUMENTS), ("weather", ARGUMENTS, None)),
    (
        to_mcp,
        mcp.types.CallToolRequest(method="tools/call", params={"name": "weather"}),
        ("weather", None, None),
    ),
]
CALL_IDS = [f"{provider_name(provider)} {type(call).__name__}" for provider, call, _ in CALLS]


@pytest.mark.parametrize(("provider", "call", "expected"), CALLS, ids=CALL_IDS)
def test_sdk_call_and_dict_are_read_alike(provider, call, expected):
    assert provider.read_call(call) == expected
    assert provider.read_call(call.model_dump()) == expected
    assert provider.read_call(call.model_dump(by_alias=True, exclude_none=True)) == expected


def test_bedrock_calls_are_read_with_and_without_block():
    use = {"toolUseId": "c1", "name": "weather", "input": ARGUMENTS}
    check_converse(messages=[{"role": "assistant", "content": [{"toolUse": use}]}])
    assert to_bedrock.read_call(use) == to_bedrock.read_call({"toolUse": use}) == ("weather", ARGUMENTS, "c1")


def make_call(provider, **arguments):
    """Return a call in a provider's shape, with a field for the arguments or none."""
    if provider in {to_openai, to_mistral, to_ollama}:
        return {"id": "c1", "function": {"name": "weather", **arguments}}
    key = {to_google: "args", to_mcp: "arguments"}.get(provider, "input")
    call = {"type": "tool_use", "toolUseId": "c1", "id": "c1", "name": "weather"}
    return {**call, key: arguments["arguments"]} if arguments else call


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, None),
        ({"arguments": None}, None),
        ({"arguments": ""}, ""),
        ({"arguments": '{"city": "Ro'}, '{"city": "Ro'),
        ({"arguments": TEXT}, TEXT),
        ({"arguments": ARGUMENTS}, ARGUMENTS),
        ({"arguments": MappingProxyType(ARGUMENTS)}, ARGUMENTS),
        ({"arguments": [1, 2]}, "[1, 2]"),
        ({"arguments": 7}, "7"),
        ({"arguments": {1}}, '"{1}"'),
    ],
)
def test_call_is_read_with_any_arguments(given, read):
    for provider in WIRE_FORMATS:
        name, arguments, call_id = provider.read_call(make_call(provider, **given))
        assert (provider, name, arguments, call_id) == (provider, "weather", read, "c1")


@pytest.mark.parametrize(
    ("provider", "call"),
    [
        (to_openai, {"id": 1, "function": {"name": None}}),
        (to_openai, {"type": "function_call", "call_id": 1}),
        (to_anthropic, {"type": "tool_use", "id": 1}),
        (to_google, {"function_call": {"id": 1}}),
        (to_bedrock, {"toolUse": {"toolUseId": 1}}),
        (to_mistral, {"function": {}, "id": 1}),
        (to_ollama, {"function": {}, "id": 1}),
    ],
)
def test_call_without_a_name_has_an_empty_name(provider, call):
    assert provider.read_call(call) == ("", None, "1")


@each_provider
@pytest.mark.parametrize(
    ("source", "came"),
    [
        (None, "NoneType"),
        ("weather", "str"),
        ([], "list"),
        ({}, r"a dict with the keys \(none\)"),
        ({"role": "user", "content": "hi"}, "a dict with the keys 'role', 'content'"),
        (TextContent("weather"), "TextContent"),
    ],
)
def test_non_call_object_is_rejected_with_expected_type(provider, source, came):
    with pytest.raises(TypeError, match=rf"^Expected an? \w+ .*, got {came}$"):
        provider.read_call(source)


# Replies


PNG = ImageContent(b"\xff\xfe", "image/png")
WAV = AudioContent(b"123", "audio/wav")
PDF = FileContent(b"%PDF", "application/pdf", "my report: 1.pdf")
NOTES = FileContent("à".encode(), "text/plain; charset=utf-8", "notes.txt")
ZIP = FileContent(b"PK", "application/zip", "a.zip")
VIDEO = FileContent(b"mp4", "video/mp4", "a.mp4")
MANY = (TextContent("more"), PNG, WAV, PDF, NOTES, ZIP, VIDEO)

CHECK_REPLY = {
    to_openai: functools.partial(check, ChatCompletionToolMessageParam),
    to_anthropic: functools.partial(check, ToolResultBlockParam),
    to_google: functools.partial(check_google, gemini.Part),
    to_bedrock: check_bedrock_reply,
    to_mistral: functools.partial(check_model, mistral_models.ToolMessage),
    to_ollama: lambda reply: ollama.Message.model_validate(
        {**reply, "images": [{"value": image} for image in reply.get("images", ())]}
    ),
    to_mcp: functools.partial(check_model, mcp.types.CallToolResult),
}
REPLIES = {
    "text": Reply(),
    "nothing": Reply(""),
    "blank": Reply(" ", (TextContent(" "),)),
    "error": Reply("Error: no such city", is_error=True),
    "contents": Reply(contents=MANY),
    "contents without text": Reply("", MANY),
    "error with contents": Reply("Error: half of it", MANY, is_error=True),
}
each_reply = pytest.mark.parametrize("reply", list(REPLIES.values()), ids=list(REPLIES))


@each_reply
def test_sdk_accepts_reply_unchanged(reply):
    for provider in WIRE_FORMATS:
        with column(provider_name(provider)):
            CHECK_REPLY[provider](provider.write_reply(reply))


@each_reply
def test_sdk_accepts_reply_for_openai_responses(reply):
    check(FunctionCallOutput, to_openai.write_reply(reply, "responses"))


def test_openai_chat_describes_media_as_text():
    assert to_openai.write_reply(Reply(contents=MANY)) == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": (
            "21 °C\nmore\n[image/png, 2 bytes, not shown]\n[audio/wav, 3 bytes, not shown]\n"
            "[my report: 1.pdf, application/pdf, 4 bytes, not shown]\n"
            "[notes.txt, text/plain; charset=utf-8, 2 bytes, not shown]\n"
            "[a.zip, application/zip, 2 bytes, not shown]\n[a.mp4, video/mp4, 3 bytes, not shown]"
        ),
    }


def text_block(text):
    return {"type": "text", "text": text}


NOT_SHOWN = {
    WAV: "[audio/wav, 3 bytes, not shown]",
    PDF: "[my report: 1.pdf, application/pdf, 4 bytes, not shown]",
    NOTES: "[notes.txt, text/plain; charset=utf-8, 2 bytes, not shown]",
    ZIP: "[a.zip, application/zip, 2 bytes, not shown]",
    VIDEO: "[a.mp4, video/mp4, 3 bytes, not shown]",
    PNG: "[image/png, 2 bytes, not shown]",
}


def test_openai_responses_get_images_and_files():
    def text_item(text):
        return {"type": "input_text", "text": text}

    assert to_openai.write_reply(Reply(contents=MANY), "responses") == {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [
            text_item("21 °C"),
            text_item("more"),
            {"type": "input_image", "image_url": "data:image/png;base64,//4="},
            text_item(NOT_SHOWN[WAV]),
            {
                "type": "input_file",
                "filename": "my report: 1.pdf",
                "file_data": "data:application/pdf;base64,JVBERg==",
            },
            {"type": "input_file", "filename": "notes.txt", "file_data": "data:text/plain;base64,w6A="},
            text_item(NOT_SHOWN[ZIP]),
            text_item(NOT_SHOWN[VIDEO]),
        ],
    }


def test_anthropic_gets_images_and_documents():
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    assert to_anthropic.write_reply(Reply(contents=MANY)) == {
        "type": "tool_result",
        "tool_use_id": "call_1",
        "content": [
            text_block("21 °C"),
            text_block("more"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "//4="}},
            text_block(NOT_SHOWN[WAV]),
            {"type": "document", "source": pdf, "title": "my report: 1.pdf"},
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "à"},
                "title": "notes.txt",
            },
            text_block(NOT_SHOWN[ZIP]),
            text_block(NOT_SHOWN[VIDEO]),
        ],
    }


def test_anthropic_error_contains_text_only():
    assert to_anthropic.write_reply(Reply("Error: no", (PNG,), is_error=True)) == {
        "type": "tool_result",
        "tool_use_id": "call_1",
        "content": [text_block("Error: no"), text_block(NOT_SHOWN[PNG])],
        "is_error": True,
    }


def test_google_gets_media_beside_the_response():
    assert to_google.write_reply(Reply(contents=MANY)) == {
        "function_response": {
            "id": "call_1",
            "name": "weather",
            "response": {"output": "\n".join(["21 °C", "more", NOT_SHOWN[WAV], NOT_SHOWN[ZIP], NOT_SHOWN[VIDEO]])},
            "parts": [
                {"inline_data": {"mime_type": "image/png", "data": b"\xff\xfe"}},
                {"inline_data": {"mime_type": "application/pdf", "data": b"%PDF"}},
                {"inline_data": {"mime_type": "text/plain", "data": "à".encode()}},
            ],
        }
    }


def test_bedrock_gets_images_documents_and_videos():
    assert to_bedrock.write_reply(Reply(contents=MANY))["toolResult"]["content"] == [
        {"text": "21 °C"},
        {"text": "more"},
        {"image": {"format": "png", "source": {"bytes": b"\xff\xfe"}}},
        {"text": NOT_SHOWN[WAV]},
        {"document": {"format": "pdf", "name": "my report 1", "source": {"bytes": b"%PDF"}}},
        {"document": {"format": "txt", "name": "notes", "source": {"bytes": "à".encode()}}},
        {"text": NOT_SHOWN[ZIP]},
        {"video": {"format": "mp4", "source": {"bytes": b"mp4"}}},
    ]


@pytest.mark.parametrize(("name", "kept"), [("", "application"), ("東京.pdf", "document"), ("x" * 300, "x" * 200)])
def test_bedrock_document_names_are_sanitized(name, kept):
    (_, block) = to_bedrock.write_reply(Reply(contents=(FileContent(b"1", "application/pdf", name),)))["toolResult"][
        "content"
    ]
    assert block["document"]["name"] == kept


@pytest.mark.parametrize(("text", "sent"), [("", "(no output)"), (" \n", "(no output)"), ("x", "x")])
def test_bedrock_blank_text_is_replaced(text, sent):
    assert to_bedrock.write_reply(Reply(text))["toolResult"]["content"] == [{"text": sent}]


def test_empty_file_is_described():
    empty = (ImageContent(b"", "image/png"),)
    content = to_bedrock.write_reply(Reply(contents=empty))["toolResult"]["content"]
    assert content == [{"text": "21 °C"}, {"text": "[image/png, 0 bytes, not shown]"}]


def test_mistral_gets_images():
    assert to_mistral.write_reply(Reply(contents=(PNG, PDF))) == {
        "role": "tool",
        "tool_call_id": "call_1",
        "name": "weather",
        "content": [
            text_block("21 °C"),
            {"type": "image_url", "image_url": "data:image/png;base64,//4="},
            text_block(NOT_SHOWN[PDF]),
        ],
    }


def test_ollama_gets_images_beside_the_text():
    assert to_ollama.write_reply(Reply(contents=(PNG, PDF))) == {
        "role": "tool",
        "tool_name": "weather",
        "content": f"21 °C\n{NOT_SHOWN[PDF]}",
        "images": ["//4="],
    }


def test_mcp_gets_all_content_types():
    assert to_mcp.write_reply(Reply(contents=MANY)) == {
        "content": [
            text_block("21 °C"),
            text_block("more"),
            {"type": "image", "data": "//4=", "mimeType": "image/png"},
            {"type": "audio", "data": "MTIz", "mimeType": "audio/wav"},
            resource("my%20report%3A%201.pdf", "application/pdf", blob="JVBERg=="),
            resource("notes.txt", "text/plain", text="à"),
            resource("a.zip", "application/zip", blob="UEs="),
            resource("a.mp4", "video/mp4", blob="bXA0"),
        ],
        "isError": False,
    }


def resource(name, kind, **held):
    return {"type": "resource", "resource": {"uri": f"file:///{name}", "mimeType": kind, **held}}


def test_text_that_is_not_utf8_is_sent_as_bytes():
    latin = FileContent("à".encode("latin-1"), "text/plain", "notes.txt")
    (_, block) = to_mcp.write_reply(Reply(contents=(latin,)))["content"]
    assert block == resource("notes.txt", "text/plain", blob="4A==")


@pytest.mark.parametrize(
    ("provider", "flag"),
    [
        (to_anthropic, lambda reply: reply.get("is_error", False)),
        (to_google, lambda reply: "error" in reply["function_response"]["response"]),
        (to_bedrock, lambda reply: reply["toolResult"]["status"] == "error"),
        (to_mcp, lambda reply: reply["isError"]),
    ],
    ids=["anthropic", "google", "bedrock", "mcp"],
)
def test_error_flag_is_set_where_supported(provider, flag):
    assert flag(provider.write_reply(REPLIES["error"])) is True
    assert flag(provider.write_reply(REPLIES["text"])) is False


@each_provider
def test_error_message_is_in_reply(provider):
    assert "Error: no such city" in str(provider.write_reply(REPLIES["error"]))


@pytest.mark.parametrize("spelling", ["image/jpg", "IMAGE/JPEG", "image/jpeg; q=1"])
def test_media_types_are_normalized(spelling):
    (_, block) = to_anthropic.write_reply(Reply(contents=(ImageContent(b"1", spelling),)))["content"]
    assert block["source"]["media_type"] == "image/jpeg"


@pytest.mark.parametrize(
    ("provider", "place"),
    [
        (to_openai, lambda reply: reply["tool_call_id"]),
        (to_anthropic, lambda reply: reply["tool_use_id"]),
        (to_google, lambda reply: reply["function_response"].get("id", "")),
        (to_bedrock, lambda reply: reply["toolResult"]["toolUseId"]),
        (to_mistral, lambda reply: reply.get("tool_call_id", "")),
    ],
    ids=["openai", "anthropic", "google", "bedrock", "mistral"],
)
def test_reply_has_call_id(provider, place):
    assert place(provider.write_reply(Reply())) == "call_1"
    assert place(provider.write_reply(Reply(call_id=None))) == ""
