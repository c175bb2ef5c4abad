"""haystack-ai: a tool made from a function, in a `Toolset`."""

import json

from haystack.tools import Tool, Toolset, create_tool_from_function

from peers.task import ARGUMENTS, Call, described, new_search

NAME = "haystack-ai"
DISTRIBUTION = "haystack-ai"
IMPORT = "from haystack.tools import Toolset, create_tool_from_function"
VALIDATES = False


def _tool(name: str = "search") -> Tool:
    return create_tool_from_function(described(new_search(name)))


def define() -> object:
    """Define the tool, and give its specification."""
    return _tool().tool_spec


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Invoke the tool."""
    search = _tool()
    return lambda: str(search.invoke(**json.loads(arguments)))


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a toolset."""
    tools = Toolset([_tool(f"search_{number}") for number in range(count)])
    return tools, [each.tool_spec for each in tools]
