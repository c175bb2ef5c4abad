"""Calls of tools that need deps: without deps they never run."""

import asyncio
from dataclasses import dataclass, field

import pytest

from toolsemble import (
    InMemoryMetrics,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolResult,
    fan_out,
    tool,
)
from toolsemble.agent import Agent
from toolsemble.testing import FakeReviewer, ScriptedModel

MESSAGE = "Tool 'find_order' needs deps (ToolContext[Shop]); pass deps=…"


@dataclass
class Shop:
    found: list[str] = field(default_factory=list)


@tool
def find_order(order: str, context: ToolContext[Shop]) -> str:
    """Find an order."""
    context.deps.found.append(order)
    return f"order {order}"


@tool
def start(order: str, context: ToolContext) -> str:
    """Note that the search has begun."""
    context.parameters["started"] = True
    return order


CALL = ToolCall("find_order", {"order": "7"})


def execute(box, **settings):
    return box.execute(CALL, **settings)


def aexecute(box, **settings):
    return asyncio.run(box.aexecute(CALL, **settings))


def execute_all(box, **settings):
    return box.execute_all([CALL, CALL], **settings)[0]


def aexecute_all(box, **settings):
    return asyncio.run(box.aexecute_all([CALL, CALL], **settings))[0]


@pytest.mark.parametrize("make_call", [execute, aexecute, execute_all, aexecute_all])
def test_a_toolbox_refuses_a_call_without_the_deps_that_its_tool_needs(make_call):
    box = Toolbox([find_order])
    with pytest.raises(ToolConfigurationError) as raised:
        make_call(box)
    assert str(raised.value) == MESSAGE
    shop = Shop()
    assert make_call(box, deps=shop).text == "order 7"
    assert set(shop.found) == {"7"}


def test_the_reviewer_is_not_asked_about_a_call_that_cannot_run():
    reviewer = FakeReviewer([])
    box = Toolbox([find_order], review=reviewer, approve=["find_order"])
    with pytest.raises(ToolConfigurationError, match="needs deps"):
        box.execute(CALL)
    assert reviewer.requests == []


def test_invalid_arguments_and_answers_of_hooks_come_before_the_deps():
    box = Toolbox([find_order], before_call=lambda call, context: None)
    assert box.execute(ToolCall("find_order")).text == "Error: Missing required parameter(s) for 'find_order': order"
    with pytest.raises(ToolConfigurationError, match="needs deps"):
        box.execute(CALL)
    answering = Toolbox([find_order], before_call=lambda call, context: ToolResult.success("known"))
    assert answering.execute(CALL).text == "known"


def test_the_tool_itself_refuses_as_its_toolbox_does():
    with pytest.raises(ToolConfigurationError, match=r"needs deps \(ToolContext\[Shop\]\)"):
        find_order.execute({"order": "7"})
    assert find_order.execute({"order": "7"}, ToolContext(deps=Shop())).output == "order 7"


def test_no_step_of_a_pipeline_runs_if_one_of_them_lacks_its_deps():
    parameters = {}
    for whole in (start | find_order, fan_out(start, find_order)):
        box = Toolbox([whole.renamed("whole")])
        with pytest.raises(ToolConfigurationError) as raised:
            box.execute(ToolCall("whole", {"order": "7"}), parameters=parameters)
        assert str(raised.value) == MESSAGE
    assert parameters == {}
    assert (
        Toolbox([(start | find_order).renamed("whole")]).execute(ToolCall("whole", {"order": "7"}), deps=Shop()).text
        == "order 7"
    )


def test_the_message_has_the_name_under_which_a_tool_is_called():
    with pytest.raises(ToolConfigurationError, match=r"^Tool 'search' needs deps"):
        Toolbox([find_order.renamed("search")]).execute(ToolCall("search", {"order": "7"}))


def test_an_agent_as_a_tool_needs_the_deps_of_its_tools():
    inner = Agent(ScriptedModel([CALL, "Found."]), [find_order]).as_tool("clerk", "Finds orders")
    box, call = Toolbox([inner]), ToolCall("clerk", {"input": "Where is order 7?"})
    with pytest.raises(ToolConfigurationError) as raised:
        box.execute(call)
    assert str(raised.value) == "Tool 'clerk' needs deps (ToolContext[Shop]); pass deps=…"
    assert box.execute(call, deps=Shop()).text == "Found."


def test_a_dry_run_needs_no_deps():
    assert Toolbox([find_order]).execute(CALL, dry_run=True).text == "Dry run: 'find_order' was not run"
    both = (start | find_order).renamed("whole")
    assert not Toolbox([both]).execute(ToolCall("whole", {"order": "7"}), dry_run=True).is_error


@tool
def may_do_without(context: ToolContext[Shop | None]) -> str:
    """Say whether there is a shop."""
    return "closed" if context.deps is None else "open"


@tool
def ask_context(context: ToolContext) -> str:
    """Say which deps there are."""
    return repr(context.deps)


@pytest.mark.parametrize(("each", "text"), [(may_do_without, "closed"), (ask_context, "None")])
def test_a_tool_whose_deps_may_be_none_runs_without_them(each, text):
    assert Toolbox([each]).execute(ToolCall(each.name)).text == text


def test_a_refused_call_counts_as_an_error():
    metrics = InMemoryMetrics()
    with pytest.raises(ToolConfigurationError):
        Toolbox([find_order], metrics=metrics).execute(CALL)
    assert metrics.count("find_order", "error") == 1


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (ToolContext[dict[str, Shop]], "ToolContext[dict[str, Shop]]"),
        (ToolContext[Shop] | None, "ToolContext[Shop]"),
        (ToolContext[Shop | int], "ToolContext[Shop | int]"),
    ],
)
def test_the_declared_type_is_shown_as_its_author_wrote_it(annotation, shown):
    def look(context):
        """Look."""

    look.__annotations__ = {"context": annotation, "return": None}
    with pytest.raises(ToolConfigurationError) as raised:
        tool(look).execute({})
    assert str(raised.value) == f"Tool 'look' needs deps ({shown}); pass deps=…"
