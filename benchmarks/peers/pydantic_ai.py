"""pydantic-ai: tools in a `FunctionToolset`, called through the manager that its agents use."""

import asyncio
from collections.abc import Sequence

from pydantic_ai import (
    Agent,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RequestUsage,
    RunContext,
    RunUsage,
    TextPart,
    Tool,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.exceptions import ToolRetryError
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager

from peers.task import (
    ANSWER,
    ARGUMENTS,
    PROMPT,
    WRONG_TYPE,
    AsyncSearch,
    Call,
    Search,
    Turn,
    by_agent,
    new_async_search,
    numbered,
    script,
)

NAME = "pydantic-ai"
DISTRIBUTION = "pydantic-ai-slim"
IMPORT = "from pydantic_ai import Agent, Tool"
VALIDATES = True


def _toolset(names: Sequence[str]) -> FunctionToolset:
    return FunctionToolset([Tool(new_async_search(name)) for name in names], max_retries=1)


def _manager(names: Sequence[str] = ("search",)) -> ToolManager:
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    return asyncio.run(ToolManager(_toolset(names)).for_run_step(context))


def define() -> object:
    """Define the tool, and give its definition."""
    return Tool(new_async_search()).tool_def


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Let the manager of a run's step handle the call."""
    return _handled(_manager(), "search", arguments)


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a toolset."""
    toolset = _toolset(numbered(count))
    return toolset, [tool.tool_def for tool in toolset.tools.values()]


def make_refusal() -> Call:
    """Return the retry that the manager asks for."""
    manager = _manager()

    async def call() -> str:
        try:
            return await manager.handle_call(ToolCallPart("search", WRONG_TYPE, "call_1"))
        except ToolRetryError as error:
            return error.tool_retry.model_response_str()

    return call


def make_look_up(count: int) -> Call:
    """Let the manager of many tools handle the call."""
    names = numbered(count)
    return _handled(_manager(names), names[-1], ARGUMENTS)


def _handled(manager: ToolManager, name: str, arguments: str) -> Call:
    async def call() -> str:
        content = await manager.handle_call(ToolCallPart(name, arguments, "call_1"))
        return ToolReturnPart(name, content, "call_1").model_response_str()

    return call


def _run(search: Search | AsyncSearch, turns: Sequence[Turn]) -> Call:
    lines = script(turns)

    async def said(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        parts = [ToolCallPart("search", asked.arguments, asked.id) for asked in next(lines)]
        usage = RequestUsage(input_tokens=1, output_tokens=1)  # or it would be estimated, each time from all messages
        return ModelResponse(parts or [TextPart(ANSWER)], usage=usage)

    agent = Agent(FunctionModel(said), tools=[Tool(search)])

    async def run() -> str:
        return (await agent.run(PROMPT)).output

    return run


make_agent, make_parallel, make_blocking = by_agent(_run)
