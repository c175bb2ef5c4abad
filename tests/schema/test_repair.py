"""Arguments that nearly fit: each step alone, at every depth, recorded."""

from __future__ import annotations

import dataclasses
import enum
import json
import logging
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

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
    def test_it_mends_at_every_depth_and_is_recorded(self, step, sent, changed, path):
        reply = run(sent)
        assert not reply.is_error
        (repair,) = reply.result.attributes["repairs"]
        assert (repair["step"], repair["path"]) == (step, path)
        assert set(repair) == {"step", "path", "from", "to"}
        got = json.loads(reply.text)
        for key, value in changed.items():
            assert json.dumps(value) in json.dumps(got[key]) or got[key] == value or contains(got[key], value)

    def test_it_works_alone(self, step, sent, changed, path):
        assert not run(sent, repair={step}).is_error

    def test_it_does_nothing_when_it_is_off(self, step, sent, changed, path):
        repairs = run(sent, repair=set(STEPS) - {step}).result.attributes.get("repairs", ())
        assert step not in {repair["step"] for repair in repairs}

    def test_with_repair_off_it_is_an_error(self, step, sent, changed, path):
        assert run(sent, repair=False).is_error == (sent != {"customer": "a", "count": 3.0})


def contains(got, value):
    if isinstance(value, dict):
        return isinstance(got, dict) and all(contains(got[key], each) for key, each in value.items())
    if isinstance(value, list):
        return len(got) == len(value) and all(map(contains, got, value))
    return got == value


@pytest.mark.parametrize("text", ["none", "true", "5", "null", "[1]", '{"a": 1}', "", " x "])
def test_text_for_a_string_is_never_rewritten(text):
    reply = run({"customer": text})
    assert json.loads(reply.text)["customer"] == text
    assert "repairs" not in reply.result.attributes


def test_what_fits_is_not_touched():
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
def test_what_is_not_clear_is_an_error_with_the_path(sent, message):
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
def test_arguments_that_were_cut_off_are_never_completed(text, repair):
    reply = run(text, repair=repair)
    assert reply.text == "Error: Invalid JSON input for 'order': the text is cut off; send all of it again"


def test_no_prefix_of_good_arguments_becomes_a_call():
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


def test_metrics_that_are_down_do_not_disturb_a_repaired_call():
    box = Toolbox([order], metrics=DownMetrics())
    assert not box.execute(ToolCall("order", {"customer": "a", "count": "3"})).is_error


def test_an_unknown_step_is_refused():
    with pytest.raises(ToolDefinitionError, match="unknown step 'guess'; known are coerce, extra, keys"):
        Toolbox([order], repair={"guess"})


def test_errors_are_bounded_however_much_is_wrong():
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
def test_of_several_types_the_one_that_needs_least_is_taken(sent, got):
    assert Toolbox([choose]).execute(ToolCall("choose", {"value": sent})).text == got


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (1.5, "value: expected an integer or an array or an object"),
        ({"item_name": "x", "price": "q"}, "value.price: expected a number"),
    ],
)
def test_of_several_types_the_nearest_one_is_explained(sent, message):
    reply = Toolbox([choose], repair=set(STEPS) - {"coerce"}).execute(ToolCall("choose", {"value": sent}))
    assert reply.text.endswith(message)


@tool
def pay(cents: int, note: str = "", dry_run: bool = True, exclude: list[str] | None = None) -> str:
    """Pay an amount."""
    return f"{cents} {note} {dry_run}".replace("  ", " ")


def pay_with(arguments, repair=True, of=pay):
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
def test_a_whole_number_keeps_all_its_digits_or_is_refused(written, number, repair):
    schema = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
    given = SchemaTool("pay", "Pays", lambda arguments: str(int(arguments["cents"])), schema)
    for text in (f'{{"cents": {written}}}', f'{{"cents": {written}, "note": "x"}}'):
        if number is None:
            assert pay_with(text, repair).startswith("Error: Invalid ")
            assert pay_with(text, repair, given).startswith("Error: Invalid ")
        else:
            assert pay_with(text, repair).split()[0] == str(number)
            assert pay_with(text, repair, given) == str(number)


@pytest.mark.parametrize(
    "text",
    [
        '{"cents": "12345678901234567891.0"}',
        '```json\n{"cents": 12345678901234567891.0}\n```',
        'Here: {"cents": "12345678901234567891.0"}',
        '"{\\"cents\\": 12345678901234567891.0}"',
    ],
)
def test_whole_numbers_are_exact_wherever_they_are_written(text):
    assert pay_with(text) == "12345678901234567891 True"


def test_a_number_of_which_digits_are_not_known_is_refused():
    assert (
        pay_with("{'cents': 12345678901234567891.0}")
        == "Error: Invalid arguments for 'pay': cents: expected an integer"
    )
    assert pay_with("{'cents': 5, 'note': 12345678901234567891.0}").endswith("note: expected a string")
    assert pay_with("{'cents': 5.0, 'note': 1.5}") == "5 1.5 True"
    assert pay_with('{"cents": 5, "note": 12345678901234567891.0}') == "5 12345678901234567891.0 True"
    long = json.dumps({"note": "x" * 60_000})[:-1] + ', "cents": 12345678901234567891.0}'
    assert pay_with(long).endswith("cents: expected an integer")
    inner = json.dumps({"values": "[12345678901234567891.0]"})

    @tool
    def count(values: list[int]) -> str:
        """Counts."""
        return str(values)

    assert pay_with(inner, of=count) == "[12345678901234567891]"


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
def test_two_spellings_of_a_key_that_say_different_things_are_refused(sent, steps):
    assert "not a parameter of this tool" in pay_with(sent, steps)


def test_two_spellings_of_a_key_that_say_the_same_are_one():
    assert pay_with({"cents": 5, "dryrun": False, "Dry_Run": False}) == "5 False"
    assert pay_with({"cents": 5, "dry_run": False, "Dry_Run": False}) == "5 False"
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
def test_a_key_is_repaired_and_then_its_value(sent, got):
    assert pay_with(sent) == got


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
    def test_what_is_clear_is_repaired(self, sent):
        assert pay_with(sent, of=wipe) == "wiped / False"

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
    def test_words_around_the_arguments_are_refused(self, sent):
        assert pay_with(sent, of=wipe).startswith(
            ("Error: Invalid JSON input for 'wipe'", "Error: Expected a JSON object")
        )
        assert not wipe.execute(sent).is_success

    @pytest.mark.parametrize("steps", [True, set(STEPS)])
    def test_keys_that_it_does_not_have_are_refused(self, steps):
        told = "Error: Invalid arguments for 'wipe': exclude: not a parameter of this tool"
        assert pay_with({"path": "/", "exclude": ["important"]}, steps, wipe) == told
        assert f"Error: {wipe.execute({'path': '/', 'exclude': ['x']}).error_message}" == told

    @pytest.mark.parametrize("path", [["x", "y"], {"a": 1}])
    def test_a_list_or_an_object_is_not_a_string(self, path):
        assert pay_with({"path": path}, of=wipe) == "Error: Invalid arguments for 'wipe': path: expected a string"
        assert pay_with({"path": 7}, of=wipe) == "wiped 7 True"

    def test_a_tool_of_one_string_is_sent_nothing_else(self):
        class Shell(Tool):
            name = "shell"
            description = "Runs a command"
            effects = "irreversible"

            def run(self, input):
                return f"ran {input}"

        told = "Error: Invalid arguments for 'shell': "
        assert pay_with({"input": "rm"}, of=Shell()) == "ran rm"
        assert pay_with({"input": "rm", "dry_run": True}, of=Shell()) == f"{told}dry_run: not a parameter of this tool"
        assert pay_with({"input": ["rm"]}, of=Shell()) == f"{told}input: expected a string"
        assert pay_with({"command": "rm"}, of=Shell()) == 'ran {"command":"rm"}'

    def test_a_step_of_a_pipeline_takes_what_it_needs_of_the_result_before(self):
        @tool
        def find() -> dict:
            """Finds a path."""
            return {"path": "x", "size": 3}

        assert (find | wipe).execute("{}").text == "wiped x True"

    def test_other_tools_are_as_forgiving_as_ever(self):
        assert pay_with('Sure! {"cents": 5} is what I send') == "5 True"
        assert pay_with({"cents": 5, "why": "because"}) == "5 True"
        assert pay_with({"cents": 5, "note": ["x", "y"]}) == '5 ["x","y"] True'


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
def test_nothing_is_left_out_for_an_irreversible_part_of_a_tool(made, arguments):
    reply = Toolbox([made]).execute(ToolCall("made", arguments))
    assert (reply.is_error, "exclude" in reply.text, "erased" in reply.text) == (True, True, False)
