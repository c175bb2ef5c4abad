"""langchain-core: `@tool`, invoked with a tool call, as its agents do it."""

import json

from langchain_core.tools import BaseTool, BaseToolkit, tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from peers.task import ARGUMENTS, Call, new_search

NAME = "langchain-core"
DISTRIBUTION = "langchain-core"
IMPORT = "from langchain_core.tools import tool"
VALIDATES = True


class Kit(BaseToolkit):
    """What the library keeps several tools in."""

    tools: list[BaseTool]

    def get_tools(self) -> list[BaseTool]:
        """Give them all."""
        return self.tools


def _tool(name: str = "search") -> BaseTool:
    return tool(new_search(name), parse_docstring=True)


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return convert_to_openai_tool(_tool())


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Invoke the tool with a tool call."""
    search = _tool()

    def call() -> str:
        request = {"type": "tool_call", "id": "call_1", "name": "search", "args": json.loads(arguments)}
        return search.invoke(request).content

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a toolkit."""
    kit = Kit(tools=[_tool(f"search_{number}") for number in range(count)])
    return kit, [convert_to_openai_tool(each) for each in kit.get_tools()]
