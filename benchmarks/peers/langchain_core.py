"""langchain-core: `@tool`, invoked with a tool call, as its agents do it."""

import json

from langchain_core.tools import BaseTool, BaseToolkit, tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from peers.task import ARGUMENTS, LINE, AsyncSearch, Call, Search, gathered, new_search, new_step, numbered

NAME = "langchain-core"
DISTRIBUTION = "langchain-core"
IMPORT = "from langchain_core.tools import tool"
VALIDATES = True


class Kit(BaseToolkit):
    """What the library keeps several tools in."""

    tools: list[BaseTool]

    def get_tools(self) -> list[BaseTool]:
        """Return them all."""
        return self.tools


def _tool(name: str = "search") -> BaseTool:
    return tool(new_search(name), parse_docstring=True)


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return convert_to_openai_tool(_tool())


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Invoke the tool with a tool call."""
    search = _tool()
    return lambda: search.invoke(_request(arguments)).content


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a toolkit."""
    kit = Kit(tools=[_tool(name) for name in numbered(count)])
    return kit, [convert_to_openai_tool(each) for each in kit.get_tools()]


def make_pipeline() -> Call:
    """Invoke a sequence of tools."""
    first, second, third = (tool(new_step(name)) for name in ("first", "second", "third"))
    line = first | second | third
    return lambda: line.invoke(json.loads(LINE))


def make_parallel(search: AsyncSearch, count: int) -> Call:
    """Gather invocations."""
    return gathered(_ainvoked(search), count)


def make_blocking(search: Search, count: int) -> Call:
    """Gather invocations, which go to threads when the tool is blocking."""
    return gathered(_ainvoked(search), count)


def _ainvoked(search: Search | AsyncSearch) -> Call:
    invoked = tool(search, parse_docstring=True)

    async def call() -> str:
        return (await invoked.ainvoke(_request(ARGUMENTS))).content

    return call


def _request(arguments: str) -> dict[str, object]:
    return {"type": "tool_call", "id": "call_1", "name": "search", "args": json.loads(arguments)}
