"""Arguments that nearly fit: each step alone, at every depth, recorded."""

from __future__ import annotations

import dataclasses
import enum
import json
import logging
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

import toolsemble
from toolsemble import (
    InMemoryMetrics,
    SchemaTool,
    Tool,
    Toolbox,
    ToolCall,
    ToolDefinitionError,
    ToolPipeline,
    fan_out,
    map_over,
    tool,
)

STEPS = ["text", "nested", "null", "coerce", "keys", "extra"]


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@dataclasses.dataclass
class Item:
    item_name: str
    price: float = 1.0
    tags: list[str] = dataclasses.field(default_factory=list)


class Model(BaseModel):
    item_name: str
    count: int = 3


@tool
def order(
    customer: str,
    items: list[Item] | None = None,
    count: int = 1,
    gift: bool = False,
    unit: Unit = Unit.CELSIUS,
    order_by: Literal["asc", "desc"] = "asc",
    model: Model | None = None,
    ratio: Annotated[float, Field(ge=0)] = 0.5,
) -> dict:
    """Order things."""
    return {
        "customer": customer,
        "items": items,
        "count": count,
        "gift": gift,
        "unit": unit,
        "order_by": order_by,
        "model": model,
        "ratio": ratio,
    }


def run(arguments, repair=True):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Toolbox([order], repair=repair).execute(ToolCall("order", text))


# step, what is sent, what is changed in the result, the record
CASES = [
    ("text", '```json\n{"customer": "a"}\n```', {"customer": "a"}, "$"),
    ("text", 'Sure! Here it is: {"customer": "a"} Enjoy.', {"customer": "a"}, "$"),
    ("text", "{'customer': 'a', 'gift': True, 'items': None,}", {"customer": "a", "gift": True}, "$"),
    ("text", '{"customer": "two\nlines"}', {"customer": "two\nlines"}, "$"),
    ("text", '{"customer": "a", "count": 2,}', {"customer": "a", "count": 2}, "$"),
    ("text", json.dumps('{"customer": "a"}'), {"customer": "a"}, "$"),
    ("nested", {"customer": "a", "items": '[{"item_name": "x"}]'}, {"items": [{"item_name": "x"}]}, "items"),
    ("nested", {"customer": "a", "model": '{"item_name": "x"}'}, {"model": {"item_name": "x"}}, "model"),
    ("nested", {"customer": "a", "items": [{"item_name": "x", "tags": '["t"]'}]}, {}, "items[0].tags"),
    ("null", {"customer": "a", "count": None}, {"count": 1}, "count"),
    ("null", {"customer": "a", "items": [{"item_name": "x", "price": None}]}, {}, "items[0].price"),
    ("null", {"customer": "a", "items": [{"item_name": "x", "tags": None}]}, {}, "items[0].tags"),
    ("coerce", {"customer": "a", "count": "3"}, {"count": 3}, "count"),
    ("coerce", {"customer": "a", "count": 3.0}, {"count": 3}, "count"),
    ("coerce", {"customer": "a", "count": "3.0"}, {"count": 3}, "count"),
    ("coerce", {"customer": "a", "ratio": "1.5e2"}, {"ratio": 150.0}, "ratio"),
    ("coerce", {"customer": "a", "gift": "True"}, {"gift": True}, "gift"),
    ("coerce", {"customer": "a", "unit": "KELVIN"}, {"unit": "kelvin"}, "unit"),
    ("coerce", {"customer": "a", "order_by": " Desc"}, {"order_by": "desc"}, "order_by"),
    ("coerce", {"customer": "a", "items": {"item_name": "x"}}, {"items": [{"item_name": "x"}]}, "items"),
    ("coerce", {"customer": "a", "items": [{"item_name": "x", "price": "2"}]}, {}, "items[0].price"),
    ("coerce", {"customer": "a", "items": [{"item_name": "x", "tags": "t"}]}, {}, "items[0].tags"),
    ("coerce", {"customer": 5}, {"customer": "5"}, "customer"),
    ("coerce", {"customer": True}, {"customer": "true"}, "customer"),
    ("coerce", {"customer": {"a": [1]}}, {"customer": '{"a":[1]}'}, "customer"),
    ("keys", {"Customer": "a"}, {"customer": "a"}, "customer"),
    ("keys", {"customer": "a", "orderBy": "desc"}, {"order_by": "desc"}, "order_by"),
    ("keys", {"customer": "a", "items": [{"item-name": "x"}]}, {}, "items[0].item_name"),
    ("keys", {"customer": "a", "model": {"itemName": "x"}}, {}, "model.item_name"),
    ("extra", {"customer": "a", "junk": 1}, {"customer": "a"}, "junk"),
    ("extra", {"customer": "a", "items": [{"item_name": "x", "junk": 1}]}, {}, "items[0].junk"),
    ("extra", {"customer": "a", "model": {"item_name": "x", "junk": 1}}, {}, "model.junk"),
]


@pytest.mark.parametrize(("step", "sent", "changed", "path"), CASES)
class TestEachStep:
    def test_step_repairs_at_every_depth_and_is_recorded(self, step, sent, changed, path):
        reply = run(sent)
        assert not reply.is_error
        (repair,) = reply.result.attributes["repairs"]
        assert (repair["step"], repair["path"]) == (step, path)
        assert set(repair) == {"step", "path", "from", "to"}
        got = json.loads(reply.text)
        for key, value in changed.items():
            assert json.dumps(value) in json.dumps(got[key]) or got[key] == value or contains(got[key], value)

    def test_step_works_alone(self, step, sent, changed, path):
        assert not run(sent, repair={step}).is_error

    def test_disabled_step_does_nothing(self, step, sent, changed, path):
        repairs = run(sent, repair=set(STEPS) - {step}).result.attributes.get("repairs", ())
        assert step not in {repair["step"] for repair in repairs}

    def test_repair_off_is_an_error(self, step, sent, changed, path):
        assert run(sent, repair=False).is_error == (sent != {"customer": "a", "count": 3.0})


def contains(got, value):
    if isinstance(value, dict):
        return isinstance(got, dict) and all(contains(got[key], each) for key, each in value.items())
    if isinstance(value, list):
        return len(got) == len(value) and all(map(contains, got, value))
    return got == value


@pytest.mark.parametrize("text", ["none", "true", "5", "null", "[1]", '{"a": 1}', "", " x "])
def test_string_values_are_never_rewritten(text):
    reply = run({"customer": text})
    assert json.loads(reply.text)["customer"] == text
    assert "repairs" not in reply.result.attributes


def test_valid_arguments_are_not_repaired():
    assert "repairs" not in run({"customer": "a", "count": 3, "items": [], "unit": "kelvin"}).result.attributes


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"customer": "a", "count": 1.5}, "count: expected an integer"),
        ({"customer": "a", "items": [{"item_name": "x", "price": "cheap"}]}, "items[0].price: expected a number"),
        ({"customer": "a", "count": "1.5"}, "count: expected an integer"),
        ({"customer": "a", "gift": "maybe"}, "gift: expected true or false"),
        ({"customer": "a", "unit": "rankine"}, "unit: expected one of 'celsius', 'kelvin'"),
        ({"customer": "a", "ratio": -1}, "ratio: expected at least 0.0"),
        ({"customer": "a", "model": {"count": 1}}, "model.item_name: missing"),
        ({"count": "x", "gift": []}, "customer: missing; count: expected an integer; gift: expected true or false"),
    ],
)
def test_ambiguous_values_are_errors_with_path(sent, message):
    assert run(sent).text == f"Error: Invalid arguments for 'order': {message}"


@pytest.mark.parametrize(
    "text",
    [
        '{"customer": "a',
        '{"customer": "a"',
        '{"customer": "a", "items": [{"item_name": "x"}',
        '```json\n{"customer": ',
        "{",
    ],
)
@pytest.mark.parametrize("repair", [True, False])
def test_truncated_arguments_are_never_completed(text, repair):
    reply = run(text, repair=repair)
    assert reply.text == "Error: Invalid JSON input for 'order': the text is cut off; send all of it again"


def test_no_prefix_of_valid_arguments_becomes_a_call():
    whole = json.dumps({"customer": "a b", "items": [{"item_name": "x'y", "tags": ["t"]}], "count": 10})
    for end in range(1, len(whole)):
        assert run(whole[:end]).is_error, whole[:end]


def test_three_mistakes_are_corrected_in_one_retry():
    first = run({"count": "many", "unit": "hot"})
    assert first.text == (
        "Error: Invalid arguments for 'order': customer: missing; count: expected an integer; "
        "unit: expected one of 'celsius', 'kelvin'"
    )
    assert not run({"customer": "a", "count": 3, "unit": "kelvin"}).is_error


def test_repairs_are_counted_and_logged(caplog):
    caplog.set_level(logging.INFO, "toolsemble")
    metrics = InMemoryMetrics()
    Toolbox([order], metrics=metrics).execute(ToolCall("order", {"customer": "a", "count": "3", "junk": 1}))
    assert metrics.counter("repairs", "order") == 2
    assert "order arguments repaired: extra at junk, coerce at count" in caplog.text


class DownMetrics(InMemoryMetrics):
    def increment_counter(self, name, tool_name, agent_role, amount=1):
        raise ConnectionError("no way to count")


def test_failing_metrics_do_not_fail_repaired_call():
    box = Toolbox([order], metrics=DownMetrics())
    assert not box.execute(ToolCall("order", {"customer": "a", "count": "3"})).is_error


def test_unknown_step_is_rejected():
    with pytest.raises(ToolDefinitionError, match="unknown step 'guess'; known are coerce, extra, keys"):
        Toolbox([order], repair={"guess"})


def test_error_length_is_limited():
    @tool
    def total(numbers: list[int], names: dict[str, int]) -> int:
        return 0

    text = json.dumps({"numbers": ["x"] * 1000, "names": {"k" * 5000: "x"}, "other": "y" * 5000})
    reply = Toolbox([total], repair=False).execute(ToolCall("total", text))
    assert len(reply.result.error_message) <= 1000
    assert "numbers[0]: expected an integer; numbers[1]" in reply.text
    assert reply.text.endswith(" more")


@tool
def choose(value: int | list[str] | Item | dict[str, int] | None) -> str:
    """Take one of several."""
    return repr(value)


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (3, "3"),
        (None, "None"),
        ("7", "7"),
        (["a"], "['a']"),
        ({"a": 1}, "{'a': 1}"),
        ({"itemName": "x"}, "Item(item_name='x', price=1.0, tags=[])"),
        ({"item_name": "x", "price": "2"}, "Item(item_name='x', price=2.0, tags=[])"),
        (5.0, "5"),
    ],
)
def test_union_member_with_fewest_repairs_is_used(sent, got):
    assert Toolbox([choose]).execute(ToolCall("choose", {"value": sent})).text == got


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (1.5, "value: expected an integer or an array or an object"),
        ({"item_name": "x", "price": "q"}, "value.price: expected a number"),
    ],
)
def test_error_explains_nearest_union_member(sent, message):
    reply = Toolbox([choose], repair=set(STEPS) - {"coerce"}).execute(ToolCall("choose", {"value": sent}))
    assert reply.text.endswith(message)


@tool
def pay(cents: int, note: str = "", dry_run: bool = True, exclude: list[str] | None = None) -> str:
    """Pay an amount."""
    return f"{cents} {note} {dry_run}".replace("  ", " ")


def call_tool(arguments, repair=True, of=pay):
    return Toolbox([of], repair=repair).execute(ToolCall(of.name, arguments)).text


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("9007199254740993.0", 9007199254740993),
        ("12345678901234567891.0", 12345678901234567891),
        ("-12345678901234567891.00", -12345678901234567891),
        ("1e23", 10**23),
        ("1.5E3", 1500),
        ("123456789012345678915e-1", None),
        ("1e400", None),
    ],
)
def test_integer_keeps_all_digits_or_is_rejected(written, number, repair):
    schema = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
    given = SchemaTool("pay", "Pays", lambda arguments: str(int(arguments["cents"])), schema)
    for text in (f'{{"cents": {written}}}', f'{{"cents": {written}, "note": "x"}}'):
        if number is None:
            assert call_tool(text, repair).startswith("Error: Invalid ")
            assert call_tool(text, repair, given).startswith("Error: Invalid ")
        else:
            assert call_tool(text, repair).split()[0] == str(number)
            assert call_tool(text, repair, given) == str(number)


@pytest.mark.parametrize(
    "text",
    [
        '{"cents": "12345678901234567891.0"}',
        '```json\n{"cents": 12345678901234567891.0}\n```',
        'Here: {"cents": "12345678901234567891.0"}',
        '"{\\"cents\\": 12345678901234567891.0}"',
    ],
)
def test_integers_are_exact_in_every_position(text):
    assert call_tool(text) == "12345678901234567891 True"


def test_imprecise_float_is_not_an_integer():
    assert (
        call_tool("{'cents': 12345678901234567891.0}")
        == "Error: Invalid arguments for 'pay': cents: expected an integer"
    )
    assert call_tool("{'cents': 5, 'note': 12345678901234567891.0}").endswith("note: expected a string")
    assert call_tool("{'cents': 5.0, 'note': 1.5}") == "5 1.5 True"
    assert call_tool('{"cents": 5, "note": 12345678901234567891.0}') == "5 12345678901234567891.0 True"
    long = json.dumps({"note": "x" * 60_000})[:-1] + ', "cents": 12345678901234567891.0}'
    assert call_tool(long).endswith("cents: expected an integer")
    inner = json.dumps({"values": "[12345678901234567891.0]"})

    @tool
    def count(values: list[int]) -> str:
        """Counts."""
        return str(values)

    assert call_tool(inner, of=count) == "[12345678901234567891]"


@pytest.mark.parametrize(
    "sent",
    [
        {"cents": 5, "dryrun": False, "Dry_Run": True},
        {"cents": 5, "dry_run": False, "Dry_Run": True},
        {"cents": 5, "Dry_Run": True, "dry_run": False},
        {"cents": 5, "dry_run": True, "dryRun": 1},
        {"cents": 5, "dry_run": False, "Dry_Run": True, **{f"k{number}": 1 for number in range(1200)}},
    ],
)
@pytest.mark.parametrize("steps", [True, {"extra"}, {"keys", "extra"}])
def test_conflicting_key_spellings_are_rejected(sent, steps):
    assert "not a parameter of this tool" in call_tool(sent, steps)


def test_equal_key_spellings_are_merged():
    assert call_tool({"cents": 5, "dryrun": False, "Dry_Run": False}) == "5 False"
    assert call_tool({"cents": 5, "dry_run": False, "Dry_Run": False}) == "5 False"
    result = Toolbox([pay]).execute(ToolCall("pay", {"Cents": 5, "CENTS": 5})).result
    assert [(each["step"], each["path"]) for each in result.attributes["repairs"]] == [
        ("keys", "cents"),
        ("extra", "CENTS"),
    ]


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        ({"cents": 5, "dry-run": "false"}, "5 False"),
        ({"Cents": "5"}, "5 True"),
        ({"Cents": "5", "DRY_RUN": "FALSE", "Note": 7}, "5 7 False"),
        ({"cents": 5, "Dry_Run": None}, "5 True"),
        ({"cents": 5, "Exclude": '["a"]'}, "5 True"),
    ],
)
def test_key_and_its_value_are_both_repaired(sent, got):
    assert call_tool(sent) == got


@tool(effects="irreversible")
def wipe(path: str, dry_run: bool = True) -> str:
    """Delete everything."""
    return f"wiped {path} {dry_run}"


class TestIrreversible:
    @pytest.mark.parametrize(
        "sent",
        [
            '{"path": "/", "dry_run": false}',
            '```json\n{"path": "/", "dry_run": false}\n```',
            "```\n{'path': '/', 'dry_run': False,}\n```",
            " {'path': '/', 'dry_run': False} ",
            '"{\\"path\\": \\"/\\", \\"dry_run\\": false}"',
            {"Path": "/", "dry-run": "false"},
        ],
    )
    def test_unambiguous_arguments_are_repaired(self, sent):
        assert call_tool(sent, of=wipe) == "wiped / False"

    @pytest.mark.parametrize(
        "sent",
        [
            'Do not run this: {"path": "/", "dry_run": false}',
            '{"path": "/", "dry_run": false} is what I will not do',
            'Never:\n```json\n{"path": "/", "dry_run": false}\n```',
            '```json\n{"path": "/", "dry_run": false}\n``` if you agree',
            '```json\nno: {"path": "/", "dry_run": false}\n```',
            '"not this: {\\"path\\": \\"/\\"}"',
        ],
    )
    def test_text_around_arguments_is_rejected(self, sent):
        assert call_tool(sent, of=wipe).startswith(
            ("Error: Invalid JSON input for 'wipe'", "Error: Expected a JSON object")
        )
        assert not wipe.execute(sent).is_success

    @pytest.mark.parametrize("steps", [True, set(STEPS)])
    def test_unknown_keys_are_rejected(self, steps):
        message = "Error: Invalid arguments for 'wipe': exclude: not a parameter of this tool"
        assert call_tool({"path": "/", "exclude": ["important"]}, steps, wipe) == message
        assert f"Error: {wipe.execute({'path': '/', 'exclude': ['x']}).error_message}" == message

    @pytest.mark.parametrize("path", [["x", "y"], {"a": 1}])
    def test_list_and_object_are_not_coerced_to_string(self, path):
        assert call_tool({"path": path}, of=wipe) == "Error: Invalid arguments for 'wipe': path: expected a string"
        assert call_tool({"path": 7}, of=wipe) == "wiped 7 True"

    def test_string_tool_rejects_additional_keys(self):
        class Shell(Tool):
            name = "shell"
            description = "Runs a command"
            effects = "irreversible"

            def run(self, input):
                return f"ran {input}"

        message = "Error: Invalid arguments for 'shell': "
        assert call_tool({"input": "rm"}, of=Shell()) == "ran rm"
        assert (
            call_tool({"input": "rm", "dry_run": True}, of=Shell()) == f"{message}dry_run: not a parameter of this tool"
        )
        assert call_tool({"input": ["rm"]}, of=Shell()) == f"{message}input: expected a string"
        assert call_tool({"command": "rm"}, of=Shell()) == 'ran {"command":"rm"}'

    def test_pipeline_step_ignores_other_fields_of_previous_result(self):
        @tool
        def find() -> dict:
            """Finds a path."""
            return {"path": "x", "size": 3}

        assert (find | wipe).execute("{}").text == "wiped x True"

    def test_other_tools_still_accept_repairs(self):
        assert call_tool('Sure! {"cents": 5} is what I send') == "5 True"
        assert call_tool({"cents": 5, "why": "because"}) == "5 True"
        assert call_tool({"cents": 5, "note": ["x", "y"]}) == '5 ["x","y"] True'


@tool(effects="irreversible")
def erase(path: str, dry_run: bool = True) -> str:
    return f"erased {path}"


@tool
def look(path: str) -> str:
    return path


@pytest.mark.parametrize(
    ("made", "arguments"),
    [
        (ToolPipeline("made", "", [erase]), {"path": "/", "exclude": ["x"]}),
        (ToolPipeline("made", "", [erase, look]), {"path": "/", "exclude": ["x"]}),
        (ToolPipeline("made", "", [ToolPipeline("inner", "", [look, erase])]), {"path": "/", "exclude": ["x"]}),
        (fan_out(erase, look, name="made"), {"path": "/", "exclude": ["x"]}),
        (toolsemble.choose(bool, erase, look, name="made"), {"path": "/", "exclude": ["x"]}),
        (map_over(erase, name="made"), {"items": [{"path": "/", "exclude": ["x"]}]}),
    ],
)
def test_nothing_is_dropped_for_irreversible_part_of_tool(made, arguments):
    reply = Toolbox([made]).execute(ToolCall("made", arguments))
    assert (reply.is_error, "exclude" in reply.text, "erased" in reply.text) == (True, True, False)


class Place(TypedDict, total=False):
    city: str


class Stay(TypedDict):
    nights: int


class Trip(BaseModel):
    to: Place


@dataclasses.dataclass
class Leg:
    to: Place


@pytest.mark.parametrize(
    ("kind", "sent", "path"),
    [
        (Place, {"city": "Rome", "x": 1}, "at.x"),
        (Place | None, {"city": "Rome", "x": 1}, "at.x"),
        (Place | Stay, {"city": "Rome", "x": 1}, "at.x"),
        (list[Place], [{"city": "Rome"}, {"x": 1}], "at[1].x"),
        (dict[str, Place], {"first": {"x": 1}}, "at.first.x"),
        (Trip, {"to": {"x": 1}}, "at.to.x"),
        (Leg, {"to": {"x": 1}}, "at.to.x"),
    ],
)
def test_an_unknown_key_of_a_typed_dict_is_recorded(kind: Any, sent: Any, path: str):
    def go(at):
        return "gone"

    go.__annotations__ = {"at": kind, "return": str}
    reply = Toolbox([tool("go", "Go.")(go)]).execute(ToolCall("go", {"at": sent}))
    assert reply.text == "gone"
    assert reply.result.attributes["repairs"] == ({"step": "extra", "path": path, "from": 1, "to": None},)
