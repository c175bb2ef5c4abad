"""openai-agents: `@function_tool`, invoked with a tool context, as its runner does it."""

from agents import Agent, FunctionTool, function_tool
from agents.models.chatcmpl_converter import Converter
from agents.tool_context import ToolContext

from peers.task import ARGUMENTS, Call, new_async_search

NAME = "openai-agents"
DISTRIBUTION = "openai-agents"
IMPORT = "from agents import Agent, function_tool"
VALIDATES = True


def _tool(name: str = "search") -> FunctionTool:
    return function_tool(new_async_search(name))


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return Converter.tool_to_openai(_tool())


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Invoke the tool."""
    search = _tool()

    async def call() -> str:
        context = ToolContext(None, tool_name="search", tool_call_id="call_1", tool_arguments=arguments)
        return str(await search.on_invoke_tool(context, arguments))

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Give the tools to an agent."""
    agent = Agent("searcher", tools=[_tool(f"search_{number}") for number in range(count)])
    return agent, [Converter.tool_to_openai(each) for each in agent.tools]
