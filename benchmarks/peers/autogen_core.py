"""autogen-core: `FunctionTool` in a `StaticWorkbench`."""

import asyncio
import json

from autogen_core.tools import FunctionTool, StaticWorkbench

from peers.task import ARGUMENTS, Call, described, new_async_search

NAME = "autogen-core"
DISTRIBUTION = "autogen-core"
IMPORT = "from autogen_core.tools import FunctionTool, StaticWorkbench"
VALIDATES = True


def _tool(name: str = "search") -> FunctionTool:
    search = described(new_async_search(name))
    return FunctionTool(search, description="Search the documents.")


def define() -> object:
    """Define the tool, and give its schema."""
    return _tool().schema


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Call through a workbench."""
    bench = StaticWorkbench([_tool()])

    async def call() -> str:
        return (await bench.call_tool("search", json.loads(arguments), call_id="call_1")).to_text()

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a workbench."""
    bench = StaticWorkbench([_tool(f"search_{number}") for number in range(count)])
    return bench, list(asyncio.run(bench.list_tools()))
