"""DSPy: a ReAct module with a scripted model; one call in each step, so calls at once are modules at once."""

from __future__ import annotations

import asyncio

import dspy
from dspy.utils import DummyLM

from interop.kit import Seen

MODULE = "dspy"
DISTRIBUTIONS = ("dspy",)
MEDIA = PAYLOAD = False  # an observation is a text
CALL_ID = False  # a tool is called with its arguments only


def agent(exported, call):
    step = {"next_thought": "", "next_tool_name": call.name, "next_tool_args": call.arguments}
    end = {"next_thought": "", "next_tool_name": "finish", "next_tool_args": {}}
    model = DummyLM([step, end, {"reasoning": "", "answer": "Done."}])
    return dspy.ReAct("question -> answer", exported), model


async def run(exported, calls):
    return await asyncio.gather(*(arun_one(exported, each) for each in calls))


async def arun_one(exported, call):
    module, model = agent(exported, call)
    with dspy.context(lm=model):
        return read(await module.acall(question="Buy tea."))


def run_sync(exported, calls):
    return [run_one(exported, each) for each in calls]


def run_one(exported, call):
    module, model = agent(exported, call)
    with dspy.context(lm=model):
        return read(module(question="Buy tea."))


def read(prediction):
    assert prediction.answer == "Done."
    return Seen(prediction.trajectory["observation_0"])


async def call_tools(tools, calls):
    """Call a tool as ReAct does; the module around it would hide what a call takes."""
    return [Seen(await tools[0].acall(**each.arguments)) for each in calls]


def offer(function):
    return [dspy.Tool(function)]


def native(log):
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        log.append((a, b))
        return a + b

    async def fail(city: str) -> str:
        """Look for a city."""
        log.append(city)
        raise ValueError("no such city")

    return [dspy.Tool(add), dspy.Tool(fail)]
