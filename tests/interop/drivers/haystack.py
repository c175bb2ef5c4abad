"""Haystack: an `Agent` with a scripted chat generator."""

import os
from base64 import b64decode
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack import component
from haystack.components.agents import Agent, State
from haystack.dataclasses import ChatMessage, TextContent, ToolCall
from haystack.tools import Tool, tool

from interop.kit import Seen
from interop.natives import write_functions

MODULE = "haystack"
DISTRIBUTIONS = ("haystack-ai",)
CALL_ID = False  # tools are called with the arguments only


@component
class Scripted:
    """A chat generator with scripted replies."""

    def __init__(self, messages):
        self.messages = messages

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: list[Tool] | None = None) -> dict[str, Any]:
        return {"replies": [self.messages.pop(0)]}


def build(exported, calls):
    requests = [ToolCall(each.name, each.arguments, each.id) for each in calls]
    said = [ChatMessage.from_assistant(tool_calls=requests), ChatMessage.from_assistant("Done.")]
    for each in (each for each in exported if each.outputs_to_string):
        each.outputs_to_state = {"payloads": {"source": "payload", "handler": lambda old, new: [*(old or []), new]}}
    return Agent(chat_generator=Scripted(said), tools=exported, state_schema={"payloads": {"type": list[Any]}})


ASK = [ChatMessage.from_user("Buy tea.")]


async def run(exported, calls):
    return read(await build(exported, calls).run_async(ASK))


def run_sync(exported, calls):
    return read(build(exported, calls).run(ASK))


def read(ended):
    assert ended["last_message"].text == "Done."
    results = [each.tool_call_result for each in ended["messages"] if each.tool_call_result]
    payloads = iter(ended.get("payloads") or [])
    return [read_result(each, None if each.error else next(payloads, None)) for each in results]


def read_result(result, payload):
    parts = [TextContent(result.result)] if isinstance(result.result, str) else result.result
    media = [(each.mime_type, b64decode(each.base64_image)) for each in parts if not isinstance(each, TextContent)]
    return Seen(parts[0].text, result.error, media, payload)


def offer(function):
    return [tool(function)]


def native(log):
    return [tool(each) for each in write_functions(log)]


def refused():
    @tool
    def look(state: State) -> str:
        """Look at the state."""
        return str(state)

    @tool(inputs_from_state={"user": "name"})
    def greet(name: str) -> str:
        """Greet the user."""
        return name

    return [(look, "State of an agent for the parameters state"), (greet, "parameters name")]
