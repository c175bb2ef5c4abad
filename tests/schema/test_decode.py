"""Reading the arguments of a string tool, through a toolbox."""

import functools
import json
import math
from types import MappingProxyType

import pytest
from hypothesis import given, settings, strategies as st

from helpers.sample_tools import Echo, Plain
from toolsemble import Toolbox, ToolCall

BOX = Toolbox([Echo(), Plain()])


def reply_text(arguments, name="echo"):
    return BOX.execute(ToolCall(name, arguments)).text


@pytest.mark.parametrize("name", ["echo", "plain"])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "2 + 2"}', "2 + 2"),
        ('{"input": ""}', ""),
        ('{"input": "none", "other": 1}', "none"),
        ('{"input": "gr\\u00fc\\u00dfe \\ud83d\\ude00"}', "grüße 😀"),
        ('{"input": 5}', "5"),
        ('{"input": 1.50}', "1.5"),
        ('{"input": true}', "true"),
        ('{"input": false}', "false"),
        ('{"input": [1, "ü"]}', '[1,"ü"]'),
        ('{"input": {"a": {"b": null}}}', '{"a":{"b":null}}'),
        ('{"query": "x"}', '{"query": "x"}'),
        ({"query": "x"}, '{"query":"x"}'),
        ({"input": "from a dict"}, "from a dict"),
    ],
)
def test_input_reaches_tool_as_text(name, arguments, text):
    assert reply_text(arguments, name) == text


@pytest.mark.parametrize("arguments", ["", "  \n", "{}", '{"input": null}', '{"input": null, "x": 1}', None])
def test_missing_input_is_reported(arguments):
    assert reply_text(arguments) == "Error: Missing required parameter(s) for 'echo': input"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [("[1]", "ARRAY"), ('"x"', "STRING"), ("5", "NUMBER"), ("1.5", "NUMBER"), ("true", "BOOLEAN"), ("null", "NULL")],
)
def test_non_object_json_is_reported_by_type(arguments, kind):
    assert reply_text(arguments) == f"Error: Expected a JSON object for 'echo' but received: {kind}"


@pytest.mark.parametrize(
    "arguments",
    [
        "not json",
        '{"input": "cut',
        '{"input": NaN}',
        '{"input": [Infinity]}',
        '{"input": 1e999}',
        '{"input": "\\ud800"}',
        '{"input": "\\udc00\\ud800"}',
        '{"input": "a\ud800"}',
        '{"other": "a\ud800"}',
        '{"input": ["\\ud800"]}',
        '{"input": ' + "9" * 5000 + "}",
        '{"input": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "[" * 100_000,
        '{"input":' * 100_000,
        {"input": math.nan},
    ],
)
def test_text_that_is_not_json_is_rejected_with_the_reason(arguments):
    text = reply_text(arguments)
    assert text.startswith("Error: Invalid JSON input for 'echo': ")
    assert len(text) < 300
    assert text.encode()


def test_ten_megabytes_of_input_are_accepted():
    text = "ä" * 10_000_000
    assert reply_text({"input": text}) == text


def test_direct_execute_takes_plain_text():
    assert Echo().execute('{"input": "x"}').output == '{"input": "x"}'
    assert Echo().execute("").output == ""


def test_direct_execute_serializes_other_values():
    assert Echo().execute({"a": [1]}).output == '{"a":[1]}'
    assert Echo().execute({"input": "a"}).output == "a"
    assert Echo().execute(MappingProxyType({"input": [1]})).output == "[1]"
    assert Echo().execute('{"input": "a"}').output == '{"input": "a"}'
    for nothing in ({}, {"input": None}):
        assert Echo().execute(nothing).error_message == "Missing required parameter(s) for 'echo': input"
    assert Echo().execute(None).output == ""
    assert Echo().execute({1, 2}).error_message.startswith("Invalid JSON input for 'echo': ")
    deep = functools.reduce(lambda inner, _: [inner], range(100_000), [])
    assert Echo().execute(deep).error_message == "Invalid JSON input for 'echo': nested too deeply; send fewer levels"


@settings(max_examples=100, deadline=None)
@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_gets_a_reply(text):
    reply = BOX.execute(ToolCall("echo", text))
    assert reply.text.encode()


TEXT = st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_every_json_value_arrives_unchanged(value):
    reply = BOX.execute(ToolCall("echo", json.dumps({"input": value})))
    if value is None:
        assert reply.is_error
    elif isinstance(value, str):
        assert reply.text == value
    else:
        assert json.loads(reply.text) == value
