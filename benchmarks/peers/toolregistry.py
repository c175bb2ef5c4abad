"""toolregistry: functions in a `ToolRegistry`, and the registry's own way to call one of them."""

import json

from toolregistry import Tool, ToolRegistry

from peers.task import ARGUMENTS, Call, new_async_search

NAME = "toolregistry"
DISTRIBUTION = "toolregistry"
IMPORT = "from toolregistry import ToolRegistry"
VALIDATES = True


def _registry(names: list[str]) -> ToolRegistry:
    registry = ToolRegistry()
    for name in names:
        registry.register(new_async_search(name))
    return registry


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return Tool.from_function(new_async_search()).get_schema("openai-chat")


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Invoke through a registry."""
    registry = _registry(["search"])

    async def call() -> str:
        return str(await registry.ainvoke("search", json.loads(arguments)))

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a registry."""
    registry = _registry([f"search_{number}" for number in range(count)])
    return registry, list(registry.get_schemas())
