"""strands-agents: `@tool` in a registry, streamed with a tool use, as its executors do it."""

import json

from strands import tool
from strands.tools.registry import ToolRegistry

from peers.task import ARGUMENTS, Call, described, new_async_search

NAME = "strands-agents"
DISTRIBUTION = "strands-agents"
IMPORT = "from strands import Agent, tool"
VALIDATES = True


def _registry(names: list[str]) -> ToolRegistry:
    registry = ToolRegistry()
    registry.process_tools([tool(described(new_async_search(name))) for name in names])
    return registry


def define() -> object:
    """Define the tool, and give its specification."""
    return tool(described(new_async_search())).tool_spec


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Stream the registered tool to its end."""
    registry = _registry(["search"])

    async def call() -> str:
        use = {"toolUseId": "call_1", "name": "search", "input": json.loads(arguments)}
        async for event in registry.registry["search"].stream(use, {}):
            result = event.tool_result
        return result["content"][0]["text"]

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a registry."""
    registry = _registry([f"search_{number}" for number in range(count)])
    return registry, list(registry.get_all_tool_specs())
