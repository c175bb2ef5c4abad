"""haystack-ai: a tool made from a function, in a `Toolset`."""

import json
from collections.abc import Callable, Sequence

from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import Tool, Toolset, create_tool_from_function

from peers.task import (
    ANSWER,
    ARGUMENTS,
    LINE,
    PROMPT,
    AsyncSearch,
    Call,
    Search,
    Turn,
    by_agent,
    described,
    new_search,
    new_step,
    numbered,
    script,
)

NAME = "haystack-ai"
DISTRIBUTION = "haystack-ai"
IMPORT = "from haystack.components.agents import Agent; from haystack.tools import Toolset, create_tool_from_function"
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
    tools = Toolset([_tool(name) for name in numbered(count)])
    return tools, [each.tool_spec for each in tools]


def make_pipeline() -> Call:
    """Run a pipeline of components, which is what the library connects."""
    line = Pipeline()
    for name in ("first", "second", "third"):
        line.add_component(name, Step(new_step(name)))
    line.connect("first.text", "second.text")
    line.connect("second.text", "third.text")
    return lambda: line.run({"first": json.loads(LINE)})["third"]["text"]


@component
class Step:
    """A step of a pipeline."""

    def __init__(self, step: Callable[[str], str]) -> None:
        self._step = step

    @component.output_types(text=str)
    def run(self, text: str) -> dict[str, str]:
        """Take the step."""
        return {"text": self._step(text)}


@component
class Scripted:
    """A model with scripted replies."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._lines = script(turns)

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: object = None) -> dict[str, list[ChatMessage]]:
        """Return the next reply."""
        _ = messages, tools
        calls = [ToolCall("search", json.loads(asked.arguments), asked.id) for asked in next(self._lines)]
        return {"replies": [ChatMessage.from_assistant(None if calls else ANSWER, tool_calls=calls)]}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage], tools: object = None) -> dict[str, list[ChatMessage]]:
        """Return the next reply."""
        return self.run(messages, tools)


def _run(search: Search | AsyncSearch, turns: Sequence[Turn]) -> Call:
    tools = [create_tool_from_function(described(search))]
    agent = Agent(chat_generator=Scripted(turns), tools=tools, tool_concurrency_limit=len(turns[0]))
    agent.warm_up()

    async def run() -> str:
        return (await agent.run_async([ChatMessage.from_user(PROMPT)]))["last_message"].text

    return run


make_agent, make_parallel, make_blocking = by_agent(_run)
