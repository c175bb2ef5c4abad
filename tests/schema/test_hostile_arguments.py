"""Arguments from a hostile model, for every kind of tool: rejected with a message, and quickly."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, Optional, Union

import pytest

from helpers.sample_tools import Echo
from toolsemble import SchemaTool, Toolbox, ToolCall, tool

pytestmark = pytest.mark.slow

LONG = "a number has more than 4300 digits; send a smaller one, or put it in quotes where text is expected"
DIGITS = "1" + "0" * 6000


@dataclasses.dataclass
class Point:
    x: int
    label: str = "p"


@tool
def typed(
    text: str,
    limit: int = 3,
    ratio: float = 0.5,
    points: list[Point] = [],  # noqa: B006 - every call gets a copy
    either: Union[int, list[str], Point, None] = None,
    options: dict[str, Any] = {},  # noqa: B006 - as above
) -> str:
    """Take many things."""
    return "ran"


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "label": {"type": "string"}},
    "required": ["x"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "limit": {"type": "integer"},
        "ratio": {"type": "number"},
        "points": {"type": "array", "items": POINT},
        "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}, POINT]},
        "options": {"type": "object", "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}},
    },
    "patternProperties": {"^x-": {"type": "integer"}},
    "required": ["text"],
    "additionalProperties": False,
}
BOX = Toolbox([typed, SchemaTool("given", "Takes many things", lambda _: "ran", SCHEMA), Echo()])


def reply_text(name, arguments):
    reply = BOX.execute(ToolCall(name, arguments))
    assert len(reply.text.encode()) < 1000
    return reply.text.removeprefix("Error: ")


def error_for(name, problem):
    return f"Invalid JSON input for '{name}': {problem}"


@pytest.mark.parametrize("name", ["typed", "given", "echo"])
@pytest.mark.parametrize(
    "text",
    [
        f'{{"text": {DIGITS}}}',
        f'{{"text": "a", "limit": -{DIGITS}}}',
        f'{{"text": "a", "points": [{{"x": {DIGITS}}}]}}',
        f"```json\n{{'text': 'a', 'limit': {DIGITS}}}\n```",
        json.dumps(f'{{"text": "a", "limit": {DIGITS}}}'),
    ],
    ids=["text", "negative", "inside", "fenced", "twice encoded"],
)
def test_number_with_too_many_digits_is_rejected_with_hint(name, text):
    assert reply_text(name, text) == error_for(name, LONG)


@pytest.mark.parametrize("name", ["typed", "given"])
@pytest.mark.parametrize(
    "arguments",
    [{"limit": DIGITS}, {"points": f'[{{"x": {DIGITS}}}]'}, {"points": f"[{{x: {DIGITS}}}]"}],
    ids=["to be coerced", "JSON in a string", "nearly JSON in a string"],
)
def test_string_of_too_many_digits_is_rejected_with_hint(name, arguments):
    assert reply_text(name, {"text": "a", **arguments}) == error_for(name, LONG)


@pytest.mark.parametrize("name", ["typed", "given", "echo"])
def test_nonstandard_number_is_rejected_with_path(name):
    assert reply_text(name, f"{{text: 'a', limit: 0x{'f' * 6000}}}") == error_for(name, f"limit: {LONG}")


def test_too_long_python_int_is_rejected():
    assert typed.execute({"text": 10**6000}).error_message == error_for("typed", f"text: {LONG}")
    assert Echo().execute([1, (2, -(10**6000))]).error_message == error_for("echo", f"[1][1]: {LONG}")


def test_circular_python_arguments_are_rejected():
    endless: list[Any] = [1]
    endless += [endless, endless]
    assert Echo().execute(endless).error_message == error_for("echo", "Circular reference detected")


@pytest.mark.parametrize("name", ["typed", "given"])
@pytest.mark.parametrize("digits", ["1" + "0" * 4299, "-" + "9" * 4000])
def test_valid_number_may_be_sent_as_string(name, digits):
    assert reply_text(name, f'{{"text": "a", "limit": {digits}}}') == "ran"
    assert reply_text(name, {"text": "a", "limit": digits}) == "ran"


NOT_JSON = "is not a JSON value; send a finite number, or leave it out"


@pytest.mark.parametrize("name", ["typed", "given"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"text": "a", "ratio": NaN}', f"ratio: NaN {NOT_JSON}"),
        ('{"text": NaN}', f"text: NaN {NOT_JSON}"),
        ('{"text": "a", "points": [{"x": -Infinity}]}', f"points[0].x: -Infinity {NOT_JSON}"),
        ("{text: 'a', ratio: +Infinity}", f"ratio: Infinity {NOT_JSON}"),
        ('{"text": "a", "limit": 1e400}', "limit: 1e400 is too large; send a number below 1e308"),
        ('{"text": "a", "ratio": "-1e400"}', "ratio: -1e400 is too large; send a number below 1e308"),
        ('{"text": "a", "' + "k" * 5000 + '": NaN}', f"{'k' * 200}: NaN {NOT_JSON}"),
    ],
)
def test_nan_and_infinity_are_rejected_with_path(name, text, problem):
    assert reply_text(name, text) == error_for(name, problem)


def test_nan_is_rejected_without_repairs():
    box = Toolbox([typed], repair=False)
    assert box.execute(ToolCall("typed", '{"text": NaN}')).text == f"Error: {error_for('typed', f'NaN {NOT_JSON}')}"
    assert reply_text("echo", {"input": math.inf}) == error_for("echo", f"Infinity {NOT_JSON}")


@pytest.mark.parametrize("name", ["typed", "given"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"text": "\ud800"}', "half of a surrogate pair (\\ud800) at position 9; send whole characters"),
        ('{"text": "\\ud800"}', "half of a surrogate pair (\\ud800) at position 9; send whole characters"),
        ("\ud800", "Expecting value: line 1 column 1 (char 0); send one JSON object"),
        ('{"text": "a", "\ud800": 1}', ""),
        ('{"text": "a", "\\ud800": 1}', ""),
        ('\ud800 {"text": "a"}', ""),
    ],
)
def test_lone_surrogate_is_rejected_or_dropped(name, text, answer):
    assert reply_text(name, text) == (error_for(name, answer) if answer else "ran")


@pytest.mark.parametrize("name", ["typed", "given"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"text": "a"}{"text": "b"}', "Extra data: line 1 column 14 (char 13)"),
        ('```\n{"text": "a"}\n```\n```\n{"text": "b"}\n```', "Expecting value: line 1 column 1 (char 0)"),
        ("I would rather not.", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_text_that_is_not_one_object_is_reported(name, text, reason):
    assert reply_text(name, text) == error_for(name, f"{reason}; send one JSON object")


@pytest.mark.parametrize("name", ["typed", "given"])
@pytest.mark.parametrize(
    "text",
    [
        '\ufeff{"text": "a"}',
        '{"text": "a"}\0',
        '\u00a0\u2003{"text": "a"}',
        '{"text": "\0\x01"}',
        '{"text": "a", "limit": -0}',
        '{"text": "a", "limit": -0.0}',
        '{"text": "a", "": 1}',
        '{"text": "a", "__proto__": {"x": 1}, "__class__": "Point", "__init__": 1, "constructor": {}}',
        '{"text": "a", "points": [{"x": 1, "__class__": "Point", "__dict__": {}}]}',
        '{"text": "a", "self": 1, "cls": 1, "args": [], "kwargs": {}}',
        '{"te\u200dxt": "a"}',
    ],
)
def test_unusual_characters_and_names_are_accepted(name, text):
    assert reply_text(name, text) == "ran"


@pytest.mark.parametrize("key", ["t\u0435xt", "\uff54\uff45\uff58\uff54"])
def test_lookalike_parameter_name_is_not_matched(key):
    assert reply_text("typed", {key: "a"}) == "Missing required parameter(s) for 'typed': text"


LONG_TEXT = 300_000
MANY = LONG_TEXT // 16


@pytest.mark.parametrize("name", ["typed", "given"])
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"limit": "9" * 40 + "x" * LONG_TEXT}, "limit: expected an integer"),
        ({"points": [{"x": "q"}] * (LONG_TEXT // 14)}, "points[0].x: expected an integer"),
        ({"points": [{"X": 1}] * (LONG_TEXT // 10)}, ": not a parameter of this tool"),
        ({"points": [{"x": 1}, {f"k{number}": 1 for number in range(MANY)}]}, "points[1].k"),
        ({"either": [1] * (LONG_TEXT // 3)}, "]: expected a string"),
        ({"either": [["a"]] * (LONG_TEXT // 7)}, "]: expected a string"),
        ({f"k{number}": number for number in range(MANY)}, ": not a parameter of this tool"),
        ({f"x-{number}": "q" for number in range(MANY)}, "x-"),
    ],
    ids=["digits", "items", "names", "entries", "choice of items", "deeper", "extra", "patterns"],
)
@pytest.mark.timeout(20)  # what is quadratic would take minutes
def test_many_errors_are_reported_quickly(name, arguments, problem):
    answer = reply_text(name, {"text": "a", **arguments})
    assert answer.startswith(f"Invalid arguments for '{name}': ")
    assert problem in answer


@pytest.mark.parametrize(
    ("count", "answer"),
    [
        (4000, "ran"),
        (10_000, "Invalid arguments for 'typed': k5000: not a parameter of this tool; k5001: "),
        (30_000, "Invalid arguments for 'typed': k0: not a parameter of this tool; k1: "),
    ],
)
def test_number_of_repairs_is_limited(count, answer):
    arguments = {"text": "a", **{f"k{number}": 1 for number in range(count)}}
    assert reply_text("typed", arguments).startswith(answer)


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ({"type": "array", "minItems": 200, "items": {"type": "string"}}, [1], "value[0]: expected a string"),
        (
            {"type": "array", "items": {"items": {"type": "string"}}},
            [["a"] * 200, [1]],
            "value[1][0]: expected a string",
        ),
        ({"required": ["k150"], "additionalProperties": {"type": "string"}}, {}, "value.k150: expected a string"),
    ],
    ids=["least items", "deeper", "required"],
)
def test_long_text_reports_first_problem_only(option, value, problem):
    schema = {"type": "object", "properties": {"value": {"anyOf": [{"type": "integer"}, option]}}}
    long = {f"k{number}": "a" if number != 150 else 1 for number in range(5000)} if value == {} else value * 5000
    box = Toolbox([SchemaTool("choose", "Chooses", lambda _: "ran", schema)], repair=False)
    answer = box.execute(ToolCall("choose", {"value": long})).text
    assert answer.startswith(f"Error: Invalid arguments for 'choose': {problem}")


def test_very_many_strings_with_line_breaks_are_not_reported_as_truncated():
    reason = "Invalid control character at: line 1 column 14 (char 13)"
    assert reply_text("echo", '{"input": ["a\n' + '", "a\n' * 30_000 + '"]}') == error_for(
        "echo", f"{reason}; send one JSON object"
    )


@tool
def repeat(
    text: str,
    limit: int = 3,
    sizes: dict[str, int] = {},  # noqa: B006 - every call gets a copy
    point: Optional[Point] = None,
) -> dict[str, Any]:
    """Say what came."""
    return {"text": text, "limit": limit, "sizes": sizes, "point": point}


@pytest.mark.parametrize("name", ["repeat", "schema"])
@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"text": "a", "text": "b"}', {"text": "b"}),
        ('{"text": 5, "text": "b"}', {"text": "b"}),
        ('{"text": "a", "text": "b", "limit": "4"}', {"text": "b", "limit": 4}),
        ('{"text": "a", "limit": "x", "limit": 4}', {"text": "a", "limit": 4}),
        ("{'text': 'a', 'text': 'b'}", {"text": "b"}),
        ('{"text": "a", "sizes": {"x": "q", "x": 1}}', {"text": "a", "sizes": {"x": 1}}),
        ('{"text": "a", "point": {"x": 1, "x": 2}}', {"text": "a", "point": {"x": 2}}),
        (json.dumps({"text": "a", "point": '{"x": 1, "x": 2}'}), {"text": "a", "point": {"x": 2}}),
    ],
)
def test_last_duplicate_key_wins(name, text, read):
    sizes = {"type": "object", "additionalProperties": {"type": "integer"}}
    properties = {"text": STRING, "limit": {"type": "integer"}, "sizes": sizes, "point": POINT}
    schema = SchemaTool("schema", "Says what came", dict, {"type": "object", "properties": properties})
    got = json.loads(Toolbox([repeat, schema]).execute(ToolCall(name, text)).text)
    point = {"point": {"x": 2, "label": "p"}} if name == "repeat" and "point" in read else {}
    assert {key: got[key] for key in read} == {**read, **point}
