"""toolregistry: functions in a `ToolRegistry`, and the registry's own way to call one of them."""

import json

from toolregistry import Tool, ToolRegistry

from peers.task import ARGUMENTS, AsyncSearch, Call, Search, all_at_once, gathered, new_async_search, numbered

NAME = "toolregistry"
DISTRIBUTION = "toolregistry"
IMPORT = "from toolregistry import ToolRegistry"
VALIDATES = True


def _registry(*searches: Search | AsyncSearch) -> ToolRegistry:
    registry = ToolRegistry()
    for search in searches:
        registry.register(search)
    return registry


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return Tool.from_function(new_async_search()).get_schema("openai-chat")


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Invoke through a registry."""
    return _invoked(_registry(new_async_search()), "search", arguments)


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a registry."""
    registry = _registry(*(new_async_search(name) for name in numbered(count)))
    return registry, list(registry.get_schemas())


def make_look_up(count: int) -> Call:
    """Invoke one of many through a registry."""
    registry, _ = many(count)
    return _invoked(registry, f"search_{count - 1}", ARGUMENTS)


def make_parallel(search: AsyncSearch, count: int) -> Call:
    """Gather invocations: the registry's own way gives each call a thread and a loop, as many as it has."""
    return gathered(_invoked(_registry(search), "search", ARGUMENTS), count)


def make_blocking(search: Search, count: int) -> Call:
    """Execute all calls of a turn through a registry, in threads instead of processes."""
    registry, [asked] = _registry(search), all_at_once(count)
    calls = [each.to_openai() for each in asked]

    async def turn() -> list[object]:
        return list(await registry.aexecute_tool_calls(calls, execution_mode="thread"))

    return turn


def _invoked(registry: ToolRegistry, name: str, arguments: str) -> Call:
    async def call() -> str:
        return str(await registry.ainvoke(name, json.loads(arguments)))

    return call
