"""The default model itself; skipped, saying why, where its weights are not on this machine."""

from __future__ import annotations

import pytest

from toolsemble import Agent, ToolConfigurationError
from toolsemble.builtin import CalculatorTool, FileReadTool
from toolsemble.models import LocalModel
from toolsemble.models._local.embedded_server import find_weights


@pytest.fixture(scope="module")
def model():
    try:
        return LocalModel(find_weights())
    except ToolConfigurationError as problem:
        pytest.skip(str(problem))


@pytest.mark.timeout(600)
async def test_calls_tool_for_computation_but_not_for_greeting(model):
    # The tools of the demo: what the model has computed about them may be there already.
    agent = Agent(model, [FileReadTool("examples/shop"), CalculatorTool()])
    result = await agent.run("What is 17 * 23?")
    assert [record.call.name for record in result.tool_calls] == ["calculator"]
    assert "391" in result.text
    greeting = await agent.run("Hello!")
    assert greeting.tool_calls == []
    assert greeting.text
