"""What all modules for other frameworks share: calls of exported tools, adopted tools, and names."""

import asyncio
import sys

import pytest

from toolsemble import (
    ExitEarlyError,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.interop import agent_framework, autogen, haystack, langchain, openai_agents, pydantic_ai, smolagents
from toolsemble.interop._adopting import ForeignTool, adopt_tools, current_call_id
from toolsemble.interop._exporting import export_tools
from toolsemble.interop._pausing import ShownRequests
from toolsemble.review import AutoApprove, PauseReview
from toolsemble.review._request import ReviewRequest

MODULES = [agent_framework, autogen, haystack, langchain, openai_agents, pydantic_ai, smolagents]


@tool
def stop() -> str:
    """Stop the run."""
    raise ExitEarlyError("enough")


@tool(requires_approval=True)
def pay(order: int) -> str:
    """Pay an order."""
    return f"paid {order}"


def execute(exported, *arguments):
    """Return the replies of both ways to execute a call."""
    return [exported.execute(*arguments), asyncio.run(exported.aexecute(*arguments))]


def test_a_reviewer_who_stops_the_run_is_a_failed_reply():
    [exported] = export_tools(Toolbox([stop]))
    assert [each.text for each in execute(exported, {}, "call_1")] == ["Error: enough"] * 2


@pytest.mark.parametrize("arguments", [{"order": object()}, {"order": {1, 2}}, [1], 5])
def test_values_that_json_cannot_hold_are_a_failed_reply(arguments):
    [exported] = export_tools(Toolbox([pay], review=AutoApprove()))
    for reply in execute(exported, arguments, "call_1"):
        assert reply.text.startswith("Error: Invalid JSON input for 'pay': arguments must be JSON")
        assert reply.call_id == "call_1"


@pytest.mark.parametrize("module", MODULES)
def test_export_takes_a_toolbox(module):
    with pytest.raises(ToolDefinitionError, match=r"export takes a Toolbox, not list; write export\(Toolbox"):
        module.export([pay])


@pytest.mark.parametrize("module", MODULES)
def test_export_raises_without_a_reviewer(module):
    with pytest.raises(ToolConfigurationError, match="'pay' requires approval but no ReviewHandler is configured"):
        module.export(Toolbox([pay]))
    with pytest.raises(ToolConfigurationError, match="PauseReview can pause the runs of an Agent only"):
        module.export(Toolbox([pay], review=PauseReview()))


@pytest.mark.parametrize("module", MODULES)
def test_approval_is_ours_or_theirs(module):
    with pytest.raises(ToolConfigurationError, match='approval must be "ours" or "theirs", not \'mine\''):
        module.export(Toolbox([]), approval="mine")


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"memory_id": 3}, "memory_id of export must be a str, or a function that returns it for each call, not 3"),
        ({"run_id": b"a"}, "run_id of export must be a str, or a function that returns it for each call, not b'a'"),
        ({"parameters": ["ada"]}, r"parameters of export must be a mutable mapping such as .*, not \['ada'\]"),
    ],
)
def test_settings_that_no_call_could_use_are_refused(module, setting, message):
    with pytest.raises(ToolConfigurationError, match=message):
        module.export(Toolbox([]), **setting)


@pytest.mark.parametrize("module", MODULES)
def test_adopt_says_what_it_takes(module):
    with pytest.raises(ToolDefinitionError, match=r"adopt takes a .*, or a list of them, not int: 5"):
        module.adopt([5])


@pytest.mark.parametrize(
    ("module", "package", "install"),
    [
        (autogen, "autogen_core", "autogen-core"),
        (langchain, "langchain_core", "langchain-core"),
        (openai_agents, "agents", "openai-agents"),
        (pydantic_ai, "pydantic_ai", "pydantic-ai-slim"),
    ],
)
def test_a_missing_framework_says_what_to_install(module, package, install, monkeypatch):
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    name = module.__name__.rpartition(".")[2]
    with pytest.raises(ToolDefinitionError, match=rf"{name} needs the package '{package}.*': pip install {install}$"):
        module.adopt([])


def test_unknown_settings_of_adopted_tools_are_refused():
    with pytest.raises(TypeError, match="colour"):
        adopt_tools("acme", [ForeignTool("a", "", {}, lambda arguments, call_id: "")], {"colour": "red"})


@pytest.mark.parametrize("setting", ["name", "description", "execute", "parameters"])
def test_adopted_tools_keep_what_their_framework_says_of_them(setting):
    with pytest.raises(ToolDefinitionError, match=f"adopt has no setting '{setting}': tools keep the names"):
        adopt_tools("acme", [], {setting: "a"})


def test_metadata_of_adopted_tools_is_a_mapping():
    with pytest.raises(ToolDefinitionError, match=r"adopt: metadata must be a mapping or None, not \[3\]"):
        adopt_tools("acme", [], {"metadata": [3]})


def test_adopted_tools_without_a_description_have_one_and_blocking_ones_run():
    [adopted] = adopt_tools("acme", [ForeignTool("a b", "", {}, lambda arguments, call_id: call_id)], {})
    assert (adopted.name, adopted.description) == ("a_b", "The tool a b of acme")
    assert Toolbox([adopted]).execute(ToolCall("a_b", id="call_1")).text == "call_1"
    assert current_call_id() == ""


def test_adopted_tools_of_one_name_are_numbered():
    tools = [
        ForeignTool(name, "", {}, lambda arguments, call_id: ToolResult()) for name in ("a.b", "a-b", "a b", "a_b")
    ]
    assert [each.name for each in adopt_tools("acme", tools, {})] == ["a_b_2", "a-b", "a_b_3", "a_b"]


def test_find_request_runs_nothing_and_asks_only_for_calls_that_fit():
    [exported] = export_tools(Toolbox([pay]), approval="theirs")
    request = asyncio.run(exported.find_request({"order": "7"}, "call_1"))
    assert (request.arguments, request.call_id) == ({"order": 7}, "call_1")
    assert asyncio.run(exported.find_request({"order": "many"}, "call_1")) is None
    assert asyncio.run(exported.find_request({"order": object()}, "call_1")) is None


def test_the_oldest_of_what_was_shown_is_forgotten(monkeypatch):
    monkeypatch.setattr("toolsemble.interop._pausing._MOST_SHOWN", 1)
    shown = ShownRequests()
    first, second = (ReviewRequest("Pays", "pay", {}, call_id=call_id) for call_id in ("call_1", "call_2"))
    shown.add(first)
    shown.add(second)
    assert (shown.has(first), shown.has(second)) == (False, True)


@pytest.mark.parametrize("module", [openai_agents, pydantic_ai])
def test_a_tool_that_pauses_a_run_cannot_be_approved_outside_of_it(module):
    box = Toolbox(module.adopt(module.export(Toolbox([pay]), approval="theirs")))
    assert "waits for approval" in box.execute(ToolCall("pay", {"order": 7})).text
