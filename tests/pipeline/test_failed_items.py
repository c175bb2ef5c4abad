"""Failed items and branches: never a value for the next step."""

from dataclasses import dataclass

import pytest

from helpers.sample_tools import Echo
from toolsemble import (
    ErrorStrategy,
    Step,
    Tool,
    Toolbox,
    ToolCall,
    ToolDefinitionError,
    ToolPipeline,
    ToolResult,
    choose,
    fan_out,
    map_over,
    tool,
)

CITIES = {"rome": "Rome", "bonn": "Bonn"}
STORED = []


@tool
def names(text: str) -> list[str]:
    return text.split()


@tool
def look_up(name: str) -> str:
    return CITIES[name]


@tool
def shout(name: str) -> str:
    return name.upper()


@tool
def store(cities: list[str]) -> str:
    STORED.append(cities)
    return f"stored {cities}"


@tool
def merge_all(look_up: str, shout: str) -> str:
    return f"{look_up} {shout}"


@pytest.fixture(autouse=True)
def nothing_stored():
    STORED.clear()


def execute(built, arguments="rome x bonn y"):
    return Toolbox([built]).execute(
        ToolCall(built.name, {"text": arguments} if isinstance(arguments, str) else arguments)
    )


def test_pipeline_fails_with_index_and_error_of_a_failed_item_if_a_step_follows():
    reply = execute(names | map_over(look_up) | store)
    assert reply.text == "Error: 'each_look_up' failed for items[1]: KeyError: 'x'; items[3]: KeyError: 'y'"
    assert STORED == []
    steps = reply.result.attributes["steps"]
    assert [step.name for step in steps] == ["names", "each_look_up"]
    assert [each.is_success for each in reply.result.structured_output] == [True, False, True, False]


def test_items_that_all_succeed_are_handed_on():
    assert execute(names | map_over(look_up) | store, "rome bonn").text == "stored ['Rome', 'Bonn']"


def test_result_of_a_last_step_stays_as_it_was():
    reply = execute(names | map_over(look_up))
    assert reply.text == '["Rome","Error: KeyError: \'x\'","Bonn","Error: KeyError: \'y\'"]'
    assert [each.is_success for each in reply.result.structured_output] == [True, False, True, False]


def test_many_failures_are_counted():
    reply = execute(names | map_over(look_up) | store, "rome a b c d e")
    assert reply.text.endswith("items[3]: KeyError: 'c'; and 2 more")


def test_step_that_takes_text_does_not_get_the_errors_either():
    reply = execute(names | map_over(look_up) | Echo())
    assert reply.text.startswith("Error: 'each_look_up' failed for items[1]: ")


@pytest.mark.parametrize(
    "wrap", [lambda each: choose(lambda _: True, each, Echo()), lambda each: ToolPipeline("p", "", [each])]
)
def test_failed_items_are_found_behind_other_combinations(wrap):
    reply = execute(ToolPipeline("q", "", [names, wrap(map_over(look_up)), store]))
    assert "failed for items[1]: KeyError: 'x'" in reply.text
    assert STORED == []


def test_failed_branch_without_merge_fails_the_pipeline():
    reply = execute(Echo() | fan_out(look_up, shout) | merge_all, {"input": "x"})
    assert reply.text == "Error: 'look_up_and_shout' failed for look_up: KeyError: 'x'"
    assert execute(Echo() | fan_out(look_up, shout) | merge_all, {"input": "rome"}).text == "Rome ROME"


def test_failed_item_inside_a_branch_is_named_by_both():
    reply = execute(ToolPipeline("p", "", [names, fan_out(map_over(look_up), map_over(shout)), Echo()]))
    assert "failed for each_look_up[1]: KeyError: 'x'; each_look_up[3]: KeyError: 'y'" in reply.text


def test_merge_and_adapter_decide_what_becomes_of_failures():
    merged = fan_out(look_up, shout, merge=lambda results: [each.text for each in results.values()])
    assert execute(Echo() | merged | store, {"input": "x"}).text == "stored [\"Error: KeyError: 'x'\", 'X']"
    good = Step(map_over(look_up), lambda result: [each.output for each in result.structured_output if each.is_success])
    assert execute(ToolPipeline("p", "", [names, good, store])).text == "stored ['Rome', 'Bonn']"


def test_adapter_that_hands_on_failed_results_fails():
    passing = Step(map_over(look_up), lambda result: result.structured_output)
    reply = execute(ToolPipeline("p", "", [names, passing, store]))
    assert reply.text.startswith("Error: 'each_look_up' failed for items[1]: KeyError: 'x'")
    assert execute(ToolPipeline("p", "", [names, passing, store]), "rome").text == "stored ['Rome']"


def test_results_that_a_body_collects_count_as_well():
    @tool
    def look_up_all(text: str) -> ToolResult:
        results = [look_up.execute({"name": name}) for name in text.split()]
        return ToolResult.success("looked up", results)

    assert execute(look_up_all | store).text.startswith("Error: 'look_up_all' failed for items[1]: KeyError: 'x'")


def test_continue_on_failure_hands_on_the_message_of_the_step():
    steps = [names, Step(map_over(look_up), on_error=ErrorStrategy.CONTINUE_ON_FAILURE), Echo()]
    reply = execute(ToolPipeline("p", "", steps), "rome x")
    assert reply.text == "'each_look_up' failed for items[1]: KeyError: 'x'"
    assert [step.result.is_success for step in reply.result.attributes["steps"]] == [True, False, True]


def test_items_that_succeeded_are_undone():
    undone = []

    class Book(Tool):
        name, description = "book", "Books"

        def run(self, input):
            return CITIES[input]

    inner = ToolPipeline("inner", "", [Step(Book(), compensate=lambda given, result: undone.append(given))])
    reply = execute(ToolPipeline("p", "", [names, map_over(inner), store]), "rome x bonn")
    assert reply.is_error
    assert sorted(undone) == ["bonn", "rome"]


def test_types_of_items_are_checked_without_the_errors():
    @dataclass
    class City:
        name: str

    @tool
    def describe(name: str) -> City:
        return City(name)

    @tool
    def count(cities: list[City]) -> int:
        return len(cities)

    assert execute(names | map_over(describe) | count, "rome bonn").text == "2"

    with pytest.raises(ToolDefinitionError, match="'each_describe' returns list"):
        _ = map_over(describe) | merge_all
