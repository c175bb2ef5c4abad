"""strands-agents: `@tool` in a registry, streamed with a tool use, as its executors do it."""

import json
from collections.abc import AsyncIterator, Sequence

from strands import Agent, tool
from strands.models import Model
from strands.tools.registry import ToolRegistry
from strands.types.streaming import StreamEvent

from peers.task import (
    ANSWER,
    ARGUMENTS,
    PROMPT,
    AsyncSearch,
    Call,
    Search,
    Turn,
    by_agent,
    described,
    new_async_search,
    numbered,
    script,
)

NAME = "strands-agents"
DISTRIBUTION = "strands-agents"
IMPORT = "from strands import Agent, tool"
VALIDATES = True


def _registry(names: Sequence[str]) -> ToolRegistry:
    registry = ToolRegistry()
    registry.process_tools([tool(described(new_async_search(name))) for name in names])
    return registry


def define() -> object:
    """Define the tool, and give its specification."""
    return tool(described(new_async_search())).tool_spec


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Stream the registered tool to its end."""
    return _streamed(_registry(["search"]), "search", arguments)


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a registry."""
    registry = _registry(numbered(count))
    return registry, list(registry.get_all_tool_specs())


def make_look_up(count: int) -> Call:
    """Stream one of many registered tools to its end."""
    names = numbered(count)
    return _streamed(_registry(names), names[-1], ARGUMENTS)


def _streamed(registry: ToolRegistry, name: str, arguments: str) -> Call:
    async def call() -> str:
        use = {"toolUseId": "call_1", "name": name, "input": json.loads(arguments)}
        async for event in registry.registry[name].stream(use, {}):
            result = event.tool_result
        return result["content"][0]["text"]

    return call


class Scripted(Model):
    """A model with scripted replies."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._lines = script(turns)

    def update_config(self, **_: object) -> None:
        """Take no settings."""

    def get_config(self) -> dict[str, object]:
        """Return no settings."""
        return {}

    def structured_output(self, *_: object, **__: object) -> AsyncIterator[object]:
        """Refuse, as no benchmark uses it."""
        raise NotImplementedError

    async def stream(self, *_: object, **__: object) -> AsyncIterator[StreamEvent]:
        """Return the next reply, each part in one piece."""
        turn = next(self._lines)
        yield {"messageStart": {"role": "assistant"}}
        for asked in turn:
            use = {"name": "search", "toolUseId": asked.id}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": asked.arguments}}}}
            yield {"contentBlockStop": {}}
        if not turn:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": ANSWER}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if turn else "end_turn"}}


def _run(search: Search | AsyncSearch, turns: Sequence[Turn]) -> Call:
    agent = Agent(Scripted(turns), tools=[tool(described(search))], callback_handler=None)

    async def run() -> str:
        agent.messages.clear()  # or each run would go on with the one before
        return str(await agent.invoke_async(PROMPT)).strip()

    return run


make_agent, make_parallel, make_blocking = by_agent(_run)
