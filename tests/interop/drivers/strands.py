"""Strands: an agent with a scripted model."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from strands import Agent, ToolContext, tool
from strands.models import Model
from strands.tools.tool_provider import ToolProvider

from interop.kit import Seen
from interop.natives import write_functions

MODULE = "strands"
DISTRIBUTIONS = ("strands-agents",)


class Scripted(Model):
    """A model that makes the calls in its first turn, and then ends."""

    def __init__(self, calls):
        self.turns = [[(each.id, each.name, each.json) for each in calls], []]

    async def stream(self, messages, *_, **__):
        calls = self.turns.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        for call_id, name, text in calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": text}}}}
            yield {"contentBlockStop": {}}
        yield {"contentBlockDelta": {"delta": {"text": "Done."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}

    def update_config(self, **_):
        pass

    def get_config(self):
        return {}

    def structured_output(self, *_, **__):
        raise NotImplementedError


def agent(exported, calls):
    return Agent(Scripted(calls), tools=exported, callback_handler=None)


async def run(exported, calls):
    built = agent(exported, calls)
    assert str(await built.invoke_async("Buy tea.")) == "Done.\n"
    return read(built, calls)


def run_sync(exported, calls):
    built = agent(exported, calls)
    assert str(built("Buy tea.")) == "Done.\n"
    return read(built, calls)


async def pause(exported, calls, decide):
    built = agent(exported, calls)
    result = await built.invoke_async("Buy tea.")
    while result.stop_reason == "interrupt":
        answers = [(each.id, decide(each.reason["arguments"])) for each in result.interrupts]
        result = await built.invoke_async(
            [{"interruptResponse": {"interruptId": key, "response": answer}} for key, answer in answers]
        )
    return read(built, calls)


def read(built, calls):
    [message] = [each for each in built.messages if "toolResult" in each["content"][0]]
    results = {each["toolResult"]["toolUseId"]: each["toolResult"] for each in message["content"]}
    return [read_result(results[each.id]) for each in calls]


def read_result(result):
    texts = [each["text"] for each in result["content"] if "text" in each]
    images = [each["image"] for each in result["content"] if "image" in each]
    media = [(f"image/{each['format']}", each["source"]["bytes"]) for each in images]
    payload = deepcopy(result.get("structuredContent"))
    return Seen("\n".join(texts), result["status"] == "error", media, payload)


def offer(function):
    return [tool(function)]


def native(log):
    return [tool(each) for each in write_functions(log)]


def refused():
    @tool(context=True)
    def context(city: str, tool_context: ToolContext) -> str:
        """Read the context."""
        return str(tool_context)

    @tool
    def owner(city: str, agent: Any) -> str:
        """Read the agent."""
        return str(agent)

    class Provider(ToolProvider):
        async def load_tools(self, **_):
            return []

        def add_consumer(self, consumer_id, **_):
            pass

        def remove_consumer(self, consumer_id, **_):
            pass

    return [(context, "tool_context"), (owner, "agent"), (Provider(), "an agent, which starts it")]
