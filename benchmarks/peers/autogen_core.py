"""autogen-core: `FunctionTool` in a `StaticWorkbench`."""

import asyncio
import json

from autogen_core.tools import FunctionTool, StaticWorkbench

from peers.task import ARGUMENTS, AsyncSearch, Call, Search, described, gathered, new_async_search, numbered

NAME = "autogen-core"
DISTRIBUTION = "autogen-core"
IMPORT = "from autogen_core.tools import FunctionTool, StaticWorkbench"
VALIDATES = True


def _tool(search: Search | AsyncSearch) -> FunctionTool:
    return FunctionTool(described(search), description="Search the documents.")


def _bench(count: int) -> StaticWorkbench:
    return StaticWorkbench([_tool(new_async_search(name)) for name in numbered(count)])


def define() -> object:
    """Define the tool, and give its schema."""
    return _tool(new_async_search()).schema


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Call through a workbench."""
    return _called(StaticWorkbench([_tool(new_async_search())]), "search", arguments)


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a workbench."""
    bench = _bench(count)
    return bench, list(asyncio.run(bench.list_tools()))


def make_look_up(count: int) -> Call:
    """Call one of many through a workbench."""
    return _called(_bench(count), f"search_{count - 1}", ARGUMENTS)


def make_parallel(search: AsyncSearch, count: int) -> Call:
    """Gather calls through a workbench, as the library's agents do it."""
    return gathered(_called(StaticWorkbench([_tool(search)]), "search", ARGUMENTS), count)


def make_blocking(search: Search, count: int) -> Call:
    """Gather calls through a workbench, which runs blocking tools in threads."""
    return gathered(_called(StaticWorkbench([_tool(search)]), "search", ARGUMENTS), count)


def _called(bench: StaticWorkbench, name: str, arguments: str) -> Call:
    async def call() -> str:
        return (await bench.call_tool(name, json.loads(arguments), call_id="call_1")).to_text()

    return call
