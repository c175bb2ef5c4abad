"""google-adk: `FunctionTool`, run with a tool context, as its flows do it."""

import asyncio
import json

from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.sessions import InMemorySessionService
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types

from peers.task import ARGUMENTS, AsyncSearch, Call, gathered, new_async_search, numbered

NAME = "google-adk"
DISTRIBUTION = "google-adk"
IMPORT = "from google.adk.agents import LlmAgent; from google.adk.tools import FunctionTool"
VALIDATES = False  # as it is shipped; the feature FUNCTION_TOOL_ARG_VALIDATION would switch it on


async def _context() -> ToolContext:
    service = InMemorySessionService()
    session = await service.create_session(app_name="bench", user_id="user")
    agent = LlmAgent(name="searcher")
    invocation = InvocationContext(session_service=service, invocation_id="1", agent=agent, session=session)
    return ToolContext(invocation, function_call_id="call_1")


def define() -> object:
    """Define the tool, and give its declaration."""
    return FunctionTool(new_async_search())._get_declaration()  # noqa: SLF001 - no public method gives it


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Run the tool, and wrap what it gives as a flow does."""
    return _called(new_async_search(), arguments)


def many(count: int) -> tuple[object, list[object]]:
    """Return the tools to an agent."""
    tools = [FunctionTool(new_async_search(name)) for name in numbered(count)]
    agent = LlmAgent(name="searcher", tools=tools)
    return agent, [each._get_declaration() for each in tools]  # noqa: SLF001 - no public method gives it


def make_parallel(search: AsyncSearch, count: int) -> Call:
    """Gather runs of the tool, as a flow does."""
    return gathered(_called(search, ARGUMENTS), count)


def _called(search: AsyncSearch, arguments: str) -> Call:
    tool = FunctionTool(search)
    context = asyncio.run(_context())

    async def call() -> str:
        result = await tool.run_async(args=json.loads(arguments), tool_context=context)
        response = result if isinstance(result, dict) else {"result": result}
        return str(types.Part.from_function_response(name="search", response=response).function_response.response)

    return call
