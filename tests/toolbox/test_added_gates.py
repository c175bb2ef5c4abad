"""Gates that are added to a toolbox that exists: ``box.around(approve=...)``."""

import pytest

from toolsemble import Agent, Continue, Toolbox, ToolCall, ToolDefinitionError, ToolResult, tool
from toolsemble.review import CallbackReview
from toolsemble.testing import ScriptedModel


@tool
def delete(path: str) -> str:
    """Delete a file."""
    return "x" * 50


@tool
def read(path: str) -> str:
    """Read a file."""
    return "text"


def reviewer(asked):
    return CallbackReview(lambda request: asked.append(request.tool_name) or Continue())


def test_a_further_gate_asks_the_reviewer_of_the_toolbox():
    asked = []
    box = Toolbox([delete, read], review=reviewer(asked), approve=["read"])
    gated = box.around(approve=["del*"])
    for each in (box, gated):
        each.execute(ToolCall("delete", {"path": "a"}))
        each.execute(ToolCall("read", {"path": "a"}))
    assert asked == ["read", "delete", "read"]


def test_the_settings_of_the_toolbox_stay():
    seen, asked = [], []
    box = Toolbox(
        [delete],
        review=reviewer(asked),
        max_output=20,
        pages=True,
        before_call=lambda call, context: seen.append(call.name),
    )
    gated = box.around(approve=lambda arguments, context: True)
    assert gated.names == ["delete", "read_more"]
    assert len(gated.execute(ToolCall("delete", {"path": "a"}), run_id="r").result.text) == 50
    assert "Unknown page" not in gated.execute(ToolCall("read_more", {"page": "none"})).text
    assert seen == ["delete", "read_more"]
    assert asked == ["delete"]


def test_a_further_gate_holds_for_nested_calls():
    asked = []
    agent = Agent(ScriptedModel([ToolCall("delete", {"path": "a"}), "done"]), [delete])
    box = Toolbox([agent.as_tool("clerk", "A clerk")], review=reviewer(asked)).around(approve=["delete"])
    box.execute(ToolCall("clerk", {"input": "Delete it"}))
    assert asked == ["delete"]


def test_a_name_that_no_tool_has_is_refused():
    with pytest.raises(ToolDefinitionError, match="approve names 'delte', but the tools are delete, read"):
        Toolbox([delete, read]).around(approve=["delte"])


def test_hooks_and_gates_are_added_together():
    asked = []
    box = Toolbox([read], review=reviewer(asked))
    around = box.around(approve=["read"], after_call=lambda call, result, context: ToolResult.success("other"))
    assert around.execute(ToolCall("read", {"path": "a"})).text == "other"
    assert asked == ["read"]
