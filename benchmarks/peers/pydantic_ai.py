"""pydantic-ai: tools in a `FunctionToolset`, called through the manager that its agents use."""

import asyncio

from pydantic_ai import FunctionToolset, RunContext, RunUsage, Tool, ToolCallPart, ToolReturnPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager

from peers.task import ARGUMENTS, Call, new_async_search

NAME = "pydantic-ai"
DISTRIBUTION = "pydantic-ai-slim"
IMPORT = "from pydantic_ai import Agent, Tool"
VALIDATES = True


def define() -> object:
    """Define the tool, and give its definition."""
    return Tool(new_async_search()).tool_def


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Let the manager of a run's step handle the call."""
    toolset = FunctionToolset([Tool(new_async_search())])
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    manager = asyncio.run(ToolManager(toolset).for_run_step(context))

    async def call() -> str:
        content = await manager.handle_call(ToolCallPart("search", arguments, "call_1"))
        return ToolReturnPart("search", content, "call_1").model_response_str()

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a toolset."""
    toolset = FunctionToolset([Tool(new_async_search(f"search_{number}")) for number in range(count)])
    return toolset, [tool.tool_def for tool in toolset.tools.values()]
