"""Random types, values and texts: what a schema admits is accepted, and nothing crashes or hangs."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import random
from typing import Annotated, Any, Literal, Optional

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import Field

from toolsemble import Toolbox, ToolCall, tool

pytestmark = pytest.mark.slow


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    label: str = "p"


LEAVES = st.sampled_from(
    [str, int, float, bool, None, Color, Point, Literal["a", 1], Annotated[int, Field(ge=0, le=9)]]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda kind: list[kind]),
        inner.map(lambda kind: Optional[kind]),
        inner.map(lambda kind: dict[str, kind]),
        inner.map(lambda kind: tuple[kind, ...]),
        st.tuples(inner, inner).map(lambda kinds: kinds[0] | kinds[1] if None not in kinds else Optional[kinds[0]]),
    ),
    max_leaves=4,
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 12)
    | st.floats(-9, 9)
    | st.sampled_from(["a", "red", "x", "5", "true"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "label", "k", "X"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def make_box(kind, **options):
    def function(value):
        return "ran"

    function.__annotations__ = {"value": kind}
    return Toolbox([tool(function)], **options)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TYPES, JSON)
def test_full_schema_matches_accepted_values(kind, value):
    box = make_box(kind, repair=False)
    arguments = {"value": value}
    schema = box._entries["function"].definition.schema()
    admitted = jsonschema_rs.validator_for(schema, offline=True).is_valid(arguments)
    accepted = not box.execute(ToolCall("function", json.dumps(arguments))).is_error
    assert admitted == accepted


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TYPES, JSON)
def test_accepted_values_match_portable_schema(kind, value):
    box = make_box(kind, repair=False)
    arguments = {"value": value}
    if not box.execute(ToolCall("function", json.dumps(arguments))).is_error:
        assert jsonschema_rs.is_valid(box.specifications[0].parameters, arguments)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TYPES, JSON)
def test_repairs_never_crash_or_reject_valid_calls(kind, value):
    text = json.dumps({"value": value})
    plain = make_box(kind, repair=False).execute(ToolCall("function", text))
    helped = make_box(kind).execute(ToolCall("function", text))
    if not plain.is_error:
        assert not helped.is_error
    assert len(helped.text) <= 1100


@tool
def wide(
    query: str,
    limit: int = 3,
    tags: list[str] = [],  # noqa: B006 - every call gets a copy
    when: Optional[datetime.date] = None,
    options: dict[str, Any] = {},  # noqa: B006 - as above
    points: list[Point] = [],  # noqa: B006 - as above
) -> str:
    """Take many things."""
    return "ran"


WIDE = Toolbox([wide])
GOOD = json.dumps({"query": "a 'b' c", "limit": 3, "tags": ["x"], "when": "2024-01-01", "points": [{"x": 1}]})
PIECES = ["{", "}", "[", "]", '"', "'", ",", ":", "\\", "\n", "```", "null", "None", "NaN", "1e9", "\ud800", "\0", "é"]


def mutate(chance, text):
    """Return a text with some pieces in the place of others; without the help of hypothesis, which takes far longer."""
    for _ in range(chance.randint(1, 4)):
        at, cut = chance.randint(0, len(text)), chance.randint(0, 5)
        text = text[:at] + chance.choice(PIECES) + text[at + cut :]
    return text


def check_answer(text):
    reply = WIDE.execute(ToolCall("wide", text))
    assert reply.text == "ran" or reply.text.startswith("Error: "), text
    assert len(reply.text) < 1000, text
    assert reply.text.encode()


@pytest.mark.parametrize("seed", range(10))
def test_mutated_texts_get_a_reply(seed):
    chance = random.Random(seed)  # noqa: S311 - the same texts each time
    for _ in range(300):
        check_answer(mutate(chance, GOOD))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_gets_a_reply(text):
    check_answer(text)


MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"query": "x" * MEGABYTE}),
        json.dumps({"query": "x", "tags": ["a"] * (MEGABYTE // 5)}),
        json.dumps({"query": "x", "tags": [1] * (MEGABYTE // 3)}),
        json.dumps({"query": "x", "points": [{"x": "q"}] * (MEGABYTE // 14)}),
        json.dumps({"query": "x", "options": {str(n): n for n in range(MEGABYTE // 16)}}),
        json.dumps({"query": "x"} | {str(n): n for n in range(MEGABYTE // 16)}),
        "{" * MEGABYTE,
        '{"query": "' + '\\"' * (MEGABYTE // 2),
        "'" * MEGABYTE,
        "```" * (MEGABYTE // 3),
        '{"a":' * (MEGABYTE // 5),
        "{'query': 'x', }" + " " * MEGABYTE,
        '{"query": "x", "limit": ' + "9" * MEGABYTE + "}",
    ],
    ids=range(13),
)
@pytest.mark.timeout(20)  # what is quadratic would take minutes
def test_megabyte_of_anything_gets_a_reply(text):
    reply = WIDE.execute(ToolCall("wide", text))
    assert reply.text == "ran" or reply.text.startswith("Error: ")
