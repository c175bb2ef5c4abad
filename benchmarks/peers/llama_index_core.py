"""llama-index-core: `FunctionTool`, called with a tool selection, as its agents do it."""

import json

from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import FunctionTool
from llama_index.core.tools.calling import call_tool_with_selection

from peers.task import ARGUMENTS, Call, new_search

NAME = "llama-index-core"
DISTRIBUTION = "llama-index-core"
IMPORT = "from llama_index.core.tools import FunctionTool"
VALIDATES = False


def _tool(name: str = "search") -> FunctionTool:
    return FunctionTool.from_defaults(new_search(name))


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return _tool().metadata.to_openai_tool()


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Call the selected tool."""
    tools = [_tool()]

    def call() -> str:
        selection = ToolSelection(tool_id="call_1", tool_name="search", tool_kwargs=json.loads(arguments))
        return call_tool_with_selection(selection, tools).content

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Keep the tools in a list: the library's agents take no other container."""
    tools = [_tool(f"search_{number}") for number in range(count)]
    return tools, [each.metadata.to_openai_tool() for each in tools]
