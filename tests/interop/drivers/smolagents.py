"""smolagents: a `ToolCallingAgent`, and the code of a `CodeAgent` as its blocking way."""

from __future__ import annotations

import asyncio

from smolagents import ChatMessage, CodeAgent, LogLevel, MessageRole, Model, Tool, ToolCallingAgent, tool

from interop.kit import Seen

MODULE = "smolagents"
DISTRIBUTIONS = ("smolagents",)
MEDIA = False  # an image replaces the text, and the model is shown the name of a variable
PAYLOAD = False  # the output of a tool is what the model is shown
CANCELS = False  # everything is blocking
ASYNC = False  # likewise
CALL_ID = False  # tools are called with the arguments only


class Scripted(Model):
    """A model with scripted replies."""

    def __init__(self, *messages):
        super().__init__(model_id="scripted")
        self.messages = list(messages)

    def generate(self, messages, **settings):
        return self.messages.pop(0)


def request(*calls):
    called = [
        {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.json}} for each in calls
    ]
    return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=called)


async def run(exported, calls):
    return await asyncio.to_thread(run_tools, exported, calls)


def run_tools(exported, calls):
    done = {"id": "done", "type": "function", "function": {"name": "final_answer", "arguments": {"answer": "Done."}}}
    last = ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[done])
    agent = ToolCallingAgent(tools=exported, model=Scripted(request(*calls), last), verbosity_level=LogLevel.OFF)
    outputs = {}
    for event in agent.run("Buy tea.", stream=True):
        if type(event).__name__ == "ToolOutput":
            outputs[event.id] = event.observation
    return [Seen(outputs[each.id]) for each in calls]


def run_sync(exported, calls):
    """Return what code of a CodeAgent sees; a failure ends its step, so the calls are one step each."""
    steps = [f"<code>print({each.name}(**{each.arguments!r}))</code>" for each in calls]
    said = [ChatMessage(role=MessageRole.ASSISTANT, content=each) for each in [*steps, "<code>final_answer(1)</code>"]]
    agent = CodeAgent(tools=exported, model=Scripted(*said), verbosity_level=LogLevel.OFF, max_steps=len(said))
    agent.run("Buy tea.")
    return [read_step(each) for each in agent.memory.steps[1 : len(calls) + 1]]


def read_step(step):
    if step.error is not None:
        return Seen(step.error.message.partition("due to: ToolExecutionError: ")[2], is_error=True)
    printed = step.observations.removeprefix("Execution logs:\n").removesuffix("\nLast output from code snippet:\nNone")
    return Seen(printed.rstrip("\n"), is_error=False)


def offer(function):
    return [tool(function)]


def native(log):
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first
            b: the second
        """
        log.append((a, b))
        return a + b

    @tool
    def fail(city: str) -> str:
        """Look for a city.

        Args:
            city: its name
        """
        log.append(city)
        raise ValueError("no such city")

    return [add, fail]


def refused():
    class Describe(Tool):
        name = "describe"
        description = "Describe a picture."
        inputs = {"picture": {"type": "image", "description": "the picture"}}  # noqa: RUF012 - as smolagents wants it
        output_type = "string"

        def forward(self, picture):
            return str(picture)

    return [(Describe(), "image")]
