"""The fuzzer: the crashes it finds, and that the built-in tools have none."""

import dataclasses
import json
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, Literal, NotRequired, Optional, TypedDict

import jsonschema_rs
import pytest

from helpers.sample_tools import Echo, Function, Plain
from toolsemble import (
    ExitEarly,
    ExitEarlyError,
    SchemaTool,
    ToolArgumentsError,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolExecutionError,
    ToolPipeline,
    tool,
)
from toolsemble.builtin import (
    CalculatorTool,
    DateTimeTool,
    FileReadTool,
    FileWriteTool,
    HumanInputTool,
    JsonParserTool,
    ProcessTool,
    SearchHit,
    WebSearchTool,
)
from toolsemble.testing import Crash, FakeReviewer, FuzzReport, fuzz
from toolsemble.testing._fuzz import Arguments
from toolsemble.testing._probe import shrink

pytestmark = pytest.mark.slow


@tool
def initial(name: str) -> str:
    return name[0]


@tool
def share(amount: int, people: int = 1, note: str = "") -> float:
    return amount / people


class Row(TypedDict):
    x: int
    y: NotRequired[str]


@tool
def nested(rows: list[Row], tags: Optional[list[str]] = None) -> int:
    return sum(1 // row["x"] for row in rows)


@tool
async def later(text: str) -> str:
    if "\x00" in text:
        raise RuntimeError("a zero")
    return text


@tool
def endless(count: int) -> Iterator[int]:
    return iter(range(abs(count) % 5))


@tool
def leaving(word: Literal["stay", "leave"]) -> str:
    if word == "leave":
        raise SystemExit(1)
    return word


@tool
def stopping(flag: bool) -> str:
    if flag:
        raise ExitEarlyError("enough")
    return "on"


@tool
def unset(flag: bool) -> str:
    if flag:
        raise ToolConfigurationError("no key")
    return "on"


@tool
def interrupted(flag: bool) -> str:
    if flag:
        raise KeyboardInterrupt
    return "on"


@tool
def late(flag: bool) -> str:
    if flag:
        raise BaseExceptionGroup("late", [SystemExit(1)])
    return "on"


class Picky17(Plain):
    def execute(self, input):
        raise KeyError(17)


# tool, and of each crash: the kind, the error, the simplest call
FOUND = {
    "an empty text": (initial, [("exception", "IndexError: string index out of range", {"name": ""})]),
    "a zero": (share, [("exception", "ZeroDivisionError: division by zero", {"amount": 0, "people": 0})]),
    "a zero deep inside": (
        nested,
        [("exception", "ZeroDivisionError: integer division or modulo by zero", {"rows": [{"x": 0}]})],
    ),
    "an async tool": (later, [("exception", "RuntimeError: a zero", {"text": "\x00"})]),
    "a result that is none": (
        endless,
        [("result", "ToolExecutionError: The tool returned a range_iterator; return a list instead", {"count": 0})],
    ),
    "the end of the program": (leaving, [("raised", "SystemExit: 1", {"word": "leave"})]),
    "the end of the run": (stopping, [("raised", "ExitEarlyError: enough", {"flag": True})]),
    "the wrong setup": (unset, [("raised", "ToolConfigurationError: no key", {"flag": True})]),
    "an interruption that is none": (interrupted, [("raised", "KeyboardInterrupt: KeyboardInterrupt", {"flag": True})]),
    "several at once": (late, [("raised", "BaseExceptionGroup: late (1 sub-exception)", {"flag": True})]),
    "a plain object": (Picky17(), [("exception", "KeyError: 17", {"input": ""})]),
    "a step of a pipeline": (
        ToolPipeline.of(Echo(), initial),
        [("exception", "IndexError: string index out of range", {"input": ""})],
    ),
    "a schema written by hand": (
        SchemaTool(
            "divide",
            "Divides",
            lambda arguments: 1 / arguments["by"],
            {"type": "object", "properties": {"by": {"type": "integer", "maximum": 3}}, "required": ["by"]},
        ),
        [("exception", "ZeroDivisionError: division by zero", {"by": 0})],
    ),
}


def found_crashes(report):
    return [(crash.kind, crash.error, crash.call.arguments) for crash in report.crashes]


@pytest.mark.parametrize(("target", "crashes"), FOUND.values(), ids=FOUND)
def test_crashes_are_found_with_the_simplest_call(target, crashes):
    report = fuzz(target, seed=3)
    assert (report.ok, found_crashes(report)) == (False, crashes)
    assert sum(report.outcomes.values()) == 200


def test_report_shows_how_to_reproduce_a_crash():
    report = fuzz(initial, seed=3)
    with pytest.raises(AssertionError) as caught:
        report.assert_ok()
    first, second, *rest = str(caught.value).splitlines()
    counted = ", ".join(f"{count} {name}" for name, count in report.outcomes.items())
    assert first == f"fuzz of 'initial' with seed=3: {counted}"
    assert second == f"1. IndexError: string index out of range ({report.crashes[0].count}x, exception)"
    assert rest[0] == "   ToolCall('initial', {'name': ''}, id=None)"
    assert rest[-1] == "   IndexError: string index out of range"
    assert report.crashes[0].count == report.outcomes["crash"]
    assert report.crashes[0].traceback.startswith("Traceback")


def test_same_seed_makes_the_same_calls():
    def calls(seed):
        made = []
        report = fuzz(Function(lambda text: made.append(text) or ""), seed=seed)
        return made, report.seed

    assert calls(5) == calls(5)
    assert calls(5) != calls(6)
    first, second = calls(None), calls(None)
    assert calls(first[1]) == first
    assert first[1] != second[1]


@tool
def strict(day: int) -> str:
    if day > 7:
        raise ToolArgumentsError("day: at most 7")
    if day < 0:
        raise ToolExecutionError("no such day")
    return "ok"


def test_errors_for_the_model_are_not_crashes():
    report = fuzz(strict, seed=3)
    report.assert_ok()
    assert set(report.outcomes) == {"success", "failure"}


def test_other_errors_can_be_declared():
    assert fuzz(initial, seed=3, declared=(IndexError,)).ok


def test_gated_tool_runs_unless_the_reviewer_rejects():
    gated = tool(requires_approval=True)(lambda name: name[0])
    gated.name = "gated"
    assert not fuzz(gated, seed=3).ok
    assert fuzz(gated, seed=3, review=FakeReviewer(ExitEarly("no"))).ok


class Unreadable(Echo):
    """A tool whose arguments cannot be read, for a reason that nobody thought of."""

    def _define(self):
        return dataclasses.replace(super()._define(), decode=lambda text, steps: {}[text])


def test_crashes_outside_of_the_body_are_found():
    [crash] = fuzz(Unreadable(), count=20, seed=3).crashes
    assert (crash.kind, crash.error, crash.count) == ("exception", "KeyError: '{}'", 20)


def test_crashes_are_shown_with_valid_arguments():
    @tool
    def doubled(values: list[int]) -> int:
        return 1 // values[0]

    found = found_crashes(fuzz(doubled, seed=3, examples=[{"VALUES": "[0]"}]))
    assert {error: arguments for _, error, arguments in found} == {
        "IndexError: list index out of range": {"values": []},
        "ZeroDivisionError: integer division or modulo by zero": {"values": [0]},
    }


def test_crash_found_only_after_a_repair_is_reported():
    @tool
    def picky(value: str, context: ToolContext) -> str:
        repaired = value == "17"
        if repaired:
            raise LookupError("a number")
        return "ok"

    report = fuzz(picky, seed=3, examples=[{"value": 17}])
    assert [crash.error for crash in report.crashes] == ["LookupError: a number"]


def main_thread_functions():
    """Return the functions that the main thread is in."""
    frames = traceback.walk_stack(sys._current_frames()[threading.main_thread().ident])
    return [frame.f_code.co_name for frame, _ in frames]


def test_ctrl_c_interrupts_the_search():
    over = threading.Event()

    @tool
    def slow(flag: bool) -> str:
        while "wait_until" not in main_thread_functions():  # that is where the search waits for its calls
            over.wait(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)
        return "done"

    try:
        with pytest.raises(KeyboardInterrupt):
            fuzz(slow, seed=3, timeout=60)
    finally:
        over.set()


def test_fuzzing_does_not_log(caplog):
    fuzz(ToolPipeline.of(Echo(), initial), seed=3)
    assert caplog.records == []
    initial.execute('{"name": ""}')
    assert [record.name for record in caplog.records] == ["toolsemble.tool.initial"]


def test_hanging_call_is_found_and_ends_the_search(clock):
    free = threading.Event()

    @tool
    def wait(seconds: int) -> str:
        if seconds > 5:
            clock.advance(0.05)
            free.wait(60)
        return "done"

    try:
        report = fuzz(wait, seed=3, timeout=0.05)
    finally:
        free.set()
    [crash] = report.crashes
    assert (crash.kind, crash.error, crash.count, report.outcomes["crash"]) == ("hang", "no end after 0.05 s", 3, 3)
    assert crash.call.arguments["seconds"] > 5


def test_timeout_error_of_a_tool_is_not_a_hang():
    @tool
    def slow(flag: bool) -> str:
        raise TimeoutError("no answer")

    assert found_crashes(fuzz(slow, seed=3)) == [("exception", "TimeoutError: no answer", {"flag": False})]


def test_examples_guide_the_search():
    @tool
    def parse(expression: str) -> str:
        if expression.startswith("let ") and not expression.endswith(";"):
            raise LookupError("no end")
        return "ok"

    assert fuzz(parse, seed=3).ok
    report = fuzz(parse, seed=1, count=400, examples=[{"expression": "let x = 1;"}])
    assert [(error, [*arguments.values()]) for _, error, arguments in found_crashes(report)] == [
        ("LookupError: no end", ["let "])
    ]
    shouting = Function(lambda text: text[0] if text.endswith("!?") else "")
    assert fuzz(shouting, seed=3, examples=["hello!?"]).ok


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fuzz(object()), ToolDefinitionError, "fuzz takes one tool; object has 0: none"),
        (lambda: fuzz(Two()), ToolDefinitionError, "fuzz takes one tool; Two has 2: one, two"),
        (lambda: fuzz(initial, examples="x"), TypeError, "fuzz examples must be a list of arguments, not str"),
    ],
)
def test_rejects_targets_that_cannot_be_fuzzed(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


class Two:
    @tool
    def one(self) -> str:
        return "1"

    @tool
    def two(self) -> str:
        return "2"


def test_reports_are_compared_by_value():
    crash = Crash(ToolCall("x"), "hang", "no end")
    assert FuzzReport("x", 1, {"crash": 1}, (crash,)) == FuzzReport("x", 1, {"crash": 1}, (crash,))
    assert str(FuzzReport("x", 1, {"success": 2})) == "fuzz of 'x' with seed=1: 2 success"


# -- arguments


SCHEMAS = {
    "numbers": {
        "type": "object",
        "properties": {
            "above": {"type": "integer", "exclusiveMinimum": 10},
            "below": {"type": "integer", "maximum": -10},
            "within": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "narrow": {"type": "number", "minimum": 0.3, "maximum": 0.4},
            "tight": {"type": "integer", "minimum": 41, "maximum": 41},
            "between": {"type": "integer", "minimum": 100, "maximum": 200},
            "steps": {"type": "integer", "multipleOf": 5, "minimum": 3},
            "half": {"type": "number", "multipleOf": 0.5, "minimum": 1, "maximum": 1},
        },
        "required": ["above", "below", "within", "narrow", "tight", "between", "steps", "half"],
    },
    "texts": {
        "type": "object",
        "properties": {
            "long": {"type": "string", "minLength": 30},
            "short": {"type": "string", "maxLength": 2},
            "day": {"type": "string", "format": "date"},
            "code": {"type": "string", "pattern": "^[A-Z]-[0-9]$"},
            "word": {"enum": ["a", "b"]},
            "fixed": {"const": {"a": 1}},
        },
        "required": ["long", "short", "day", "code", "word", "fixed"],
    },
    "lists": {
        "type": "object",
        "properties": {
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
            "few": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
            "set": {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True},
            "map": {"type": "object", "additionalProperties": {"type": "null"}},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "both": {
                "allOf": [
                    {"properties": {"a": {"type": "null"}}, "required": ["a"]},
                    {"required": ["b"], "properties": {"b": {"type": "null"}}},
                    True,
                ]
            },
            "several": {"type": ["string", "integer"]},
        },
        "required": ["pair", "few", "set", "map", "either", "both", "several"],
    },
    "references": {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}, "odd": {"$ref": "#/$defs/a~1b"}},
        "required": ["tree", "odd"],
        "$defs": {
            "a/b": {"type": "integer", "default": 3, "examples": [4]},
            "tree": {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/tree"}, "name": {"type": "string"}},
                "required": ["name"],
            },
        },
    },
    "itself": {"type": "object", "properties": {"inner": {"$ref": "#"}, "any": {}, "true": True}},
}


def make_maker(schema):
    return Arguments(schema, random.Random(3))  # noqa: S311 - not for cryptography


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_valid_arguments_match_the_schema(schema):
    validator = jsonschema_rs.validator_for(schema, offline=True)
    maker = make_maker(schema)
    for _ in range(300):
        validator.validate(maker.generate_valid())
    corners = [each for each in maker.edge_cases(100) if not isinstance(each, str)]
    assert sum(map(validator.is_valid, corners)) > len(corners) / 3


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_many_invalid_arguments_do_not_match_the_schema(schema):
    validator = jsonschema_rs.validator_for(schema, offline=True)
    maker = make_maker(schema)
    made = [maker.generate_invalid() for _ in range(300)]
    assert sum(not validator.is_valid(json.loads(json.dumps(each))) for each in made) > 30
    assert all(isinstance(maker.generate_broken_json(), str) for _ in range(300))


def test_unsatisfiable_schemas_still_generate_arguments():
    odd = {
        "type": "object",
        "properties": {
            "lost": {"$ref": "#/$defs/nothing/at/all"},
            "list": {"$ref": "#/required"},
            "deep": {"$ref": "#/required/0/x"},
            "circle": {"$ref": "#/properties/circle"},
            "none": {"type": "integer", "minimum": 5, "maximum": 3},
            "empty": {"type": "number", "minimum": 5, "maximum": 3},
            "never": {"type": "string", "pattern": "^(?<name>x)\\p{L}$"},
            "unmet": {"type": "string", "pattern": "^zzzzzz$"},
        },
        "required": ["lost", "list", "deep", "circle", "none", "empty", "never", "unmet"],
    }
    maker = make_maker(odd)
    assert all(maker.generate_valid().keys() == odd["properties"].keys() for _ in range(50))


def nest(value, depth):
    return value if depth == 0 else [nest(value, depth - 1)]


@pytest.mark.parametrize(
    ("value", "happens", "least"),
    [
        ({"n": -100}, lambda value: abs(value["n"]) > 7, {"n": 8}),
        ({"n": 12.75}, lambda value: "n" in value and value["n"] > 3, {"n": 4}),
        ({"n": float("inf")}, lambda value: value.get("n") == float("inf"), {"n": float("inf")}),
        ({"flag": True}, lambda value: "flag" in value, {"flag": False}),
        ({"text": "ab" * 60 + "!"}, lambda value: "!" in value.get("text", ""), {"text": "!"}),
        ({"text": "hello"}, lambda value: len(value.get("text", "")) == 5, {"text": "aaaaa"}),
        ({"text": "x" * 99}, lambda value: len(value.get("text", "")) > 70, {"text": "a" * 71}),
        ({"list": [[7]]}, lambda value: value.get("list") not in (None, [], 0), {"list": 1}),
        ({"list": nest("%", 60)}, lambda value: "%" in str(value), {"list": "%"}),
        ({"list": [[3, 4]]}, lambda value: "3" in str(value) and "4" in str(value), {"list": [3, 4]}),
        ({"n": -(10**9)}, lambda value: value["n"] < -100, {"n": -101}),
        ({"n": 10**400}, lambda value: value["n"] > 2**63, {"n": 2**63 + 1}),
        ({"list": [[[7]]]}, lambda value: "7" in str(value), {"list": 7}),
        ("{'a': 1", lambda value: "'" in value, "'"),
    ],
)
def test_shrink_returns_the_smallest_failing_value(value, happens, least):
    def safely(simpler):
        try:
            return happens(simpler)
        except (KeyError, TypeError, AttributeError):
            return False

    assert shrink(value, safely, 2000) == least


def test_shrink_limits_its_attempts():
    tried = []
    assert shrink("abcdef", tried.append, 3) == "abcdef"
    assert len(tried) == 3


# -- the built-in tools stand it


class Search:
    def search(self, query: str, max_results: int) -> list[SearchHit]:
        return [SearchHit(query, "https://example.com/", query)]


SUMS = ["1 + 2 * 3", "sqrt(2) ^ 10", "ln(2) + log(100)", "10 // 3 % 2", "max(1, 2)", "sin(pi / 2)"]
DATES = ["now", "2024-01-31 + 1 month", "convert now to Asia/Kolkata", "epoch 1710504000", "next friday"]
QUERIES: list[dict[str, Any]] = [
    {"json": '{"a": [1, {"b": 2}]}', "json_path": "a[1].b"},
    {"json": '{"a": [1, 2]}', "json_path": "$.a[?@ > 1]"},
]
BUILTIN = {
    "calculator": (lambda base: CalculatorTool(), SUMS),
    "datetime": (lambda base: DateTimeTool(), DATES),
    "json_parser": (lambda base: JsonParserTool(), QUERIES),
    "file_read": (FileReadTool, [{"path": "notes.txt"}, {"path": "folder"}, {"path": "data.bin"}]),
    "file_write": (FileWriteTool, [{"path": "new/a.txt", "content": "hi"}, {"path": "folder", "content": ""}]),
    "web_search": (lambda base: WebSearchTool(Search()), []),
    "human_input": (lambda base: HumanInputTool(), []),
    "process": (lambda base: ProcessTool("cat", "Repeats its input", ["cat"]), []),
}


@pytest.mark.parametrize(("made", "examples"), BUILTIN.values(), ids=BUILTIN)
def test_builtin_tools_pass(tmp_path, made, examples):
    (tmp_path / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "data.bin").write_bytes(b"\x00\xff")
    (tmp_path / "folder").mkdir()
    fuzz(made(tmp_path), count=150, seed=3, examples=examples, timeout=30).assert_ok()


class Stock:
    def __init__(self):
        self.taken = []


@tool
def take(name: str, context: ToolContext[Stock]) -> str:
    context.deps.taken.append(name)
    return name


def test_all_calls_of_a_tool_have_the_deps():
    stock = Stock()
    report = fuzz(take, count=20, seed=1, deps=stock)
    assert report.ok
    assert len(stock.taken) == report.outcomes["success"] > 0


def test_a_tool_that_needs_deps_is_not_fuzzed_without_them():
    with pytest.raises(ToolConfigurationError) as raised:
        fuzz(take)
    assert str(raised.value) == "Tool 'take' needs deps (ToolContext[Stock]); pass deps=…"
