"""llama-index-core: `FunctionTool`, called with a tool selection, as its agents do it."""

import json

from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import FunctionTool
from llama_index.core.tools.calling import acall_tool_with_selection, call_tool_with_selection

from peers.task import ARGUMENTS, AsyncSearch, Call, Search, gathered, new_search, numbered

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
    return lambda: call_tool_with_selection(_selection("search", arguments), tools).content


def many(count: int) -> tuple[object, list[object]]:
    """Keep the tools in a list: the library's agents take no other container."""
    tools = [_tool(name) for name in numbered(count)]
    return tools, [each.metadata.to_openai_tool() for each in tools]


def make_look_up(count: int) -> Call:
    """Call the one that is selected among many."""
    tools, _ = many(count)
    return lambda: call_tool_with_selection(_selection(f"search_{count - 1}", ARGUMENTS), tools).content


def make_parallel(search: AsyncSearch, count: int) -> Call:
    """Gather calls of the selected tool."""
    return gathered(_acalled([FunctionTool.from_defaults(async_fn=search)]), count)


def make_blocking(search: Search, count: int) -> Call:
    """Gather calls of the selected tool, which runs in threads when it is blocking."""
    return gathered(_acalled([FunctionTool.from_defaults(search)]), count)


def _acalled(tools: list[FunctionTool]) -> Call:
    async def call() -> str:
        return (await acall_tool_with_selection(_selection("search", ARGUMENTS), tools)).content

    return call


def _selection(name: str, arguments: str) -> ToolSelection:
    return ToolSelection(tool_id="call_1", tool_name=name, tool_kwargs=json.loads(arguments))
