"""CrewAI: an agent of a crew, with a scripted LLM that calls functions."""

import asyncio
import logging
import os
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_DISABLE_TRACKING="true", OTEL_SDK_DISABLED="true")

from crewai import Agent, BaseLLM, Crew, Task
from crewai.hooks import register_after_tool_call_hook, unregister_after_tool_call_hook
from crewai.tools import tool
from crewai.tools.tool_failure import ToolFailure

from interop.kit import Seen
from interop.natives import write_functions

MODULE = "crewai"
DISTRIBUTIONS = ("crewai",)
MEDIA = False  # a tool returns text
CANCELS = False  # tools run in threads, also in an event loop
ASYNC = False  # likewise
CALL_ID = False  # tools are called with the arguments only
logging.getLogger("crewai").setLevel(logging.ERROR)  # the tokens of a scripted model cannot be counted


class Scripted(BaseLLM):
    """A model with scripted replies."""

    said: list[Any]
    shown: list[Any] = []  # noqa: RUF012 - a field of pydantic

    def call(self, messages, *arguments, **settings):
        self.shown[:] = messages
        return self.said.pop(0)

    async def acall(self, messages, *arguments, **settings):
        return self.call(messages)

    def supports_function_calling(self):
        return True


def build(exported, calls):
    requests = [
        {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.json}} for each in calls
    ]
    model = Scripted(model="scripted", said=[requests, "Done."])
    buyer = Agent(role="Buyer", goal="Buy tea.", backstory="Likes tea.", tools=exported, llm=model)
    task = Task(description="Buy tea.", expected_output="Tea.", agent=buyer)
    return model, Crew(agents=[buyer], tasks=[task])


async def run(exported, calls):
    model, crew = build(exported, calls)
    return await asyncio.to_thread(collect, model, calls, crew.kickoff)


def run_sync(exported, calls):
    model, crew = build(exported, calls)
    return collect(model, calls, lambda: asyncio.run(crew.akickoff()))


def collect(model, calls, kickoff):
    """Return what the model is shown of each call, and the raw results that hooks get."""
    raw = []

    def remember(context):
        raw.append((context.tool_input, context.raw_tool_result))

    register_after_tool_call_hook(remember)
    try:
        assert kickoff().raw == "Done."
    finally:
        unregister_after_tool_call_hook(remember)
    shown = {each["tool_call_id"]: each["content"] for each in model.shown if each["role"] == "tool"}
    found = [next(result for arguments, result in raw if arguments == each.arguments) for each in calls]
    return [read(shown[each.id], result) for each, result in zip(calls, found, strict=True)]


def read(text, result):
    return Seen(text, isinstance(result, ToolFailure), payload=getattr(result, "payload", None))


def offer(function):
    return [tool(function)]


def native(log):
    return [tool(each) for each in write_functions(log)]
