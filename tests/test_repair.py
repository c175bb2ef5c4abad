"""Arguments that nearly fit: each step alone, at every depth, recorded."""

from __future__ import annotations

import dataclasses
import enum
import json
import logging
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from toolsemble import InMemoryMetrics, Toolbox, ToolCall, ToolDefinitionError, tool

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
