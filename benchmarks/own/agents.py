"""Turns of an agent with a model with scripted replies, so that only the loop is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from peers.task import ARGUMENTS, gathered, new_async_search

from own.job import Nap, adapter, add
from own.measure import Comparison, Subject, awaited, computed
from own.parallel import calls_of
from own.steady_loop import SteadyLoop
from toolsemble import Agent, ConversationMemory, Toolbox, ToolCall, ToolReply, ToolResult, tool
from toolsemble.agent import AgentSettings
from toolsemble.models import (
    AssistantMessage,
    ChatRequest,
    FunctionModel,
    Message,
    ScriptedModel,
    ToolMessage,
    UserMessage,
)


def comparisons(turns: int = 20, many: int = 200, conversation: tuple[int, int] = (1000, 100)) -> Iterator[Comparison]:
    """Return the comparisons of agents."""
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        yield _run(runner, turns)
        yield _turn(runner, turns * 5)
        yield _many_calls(runner, many)
        yield _conversation(runner, *conversation)


def limit_calls(count: int) -> dict[str, Any]:
    """Return the setting that limits the tool calls of a run; trees before 0.3 call it ``max_iterations``."""
    return {"max_tool_calls" if "max_tool_calls" in AgentSettings.__annotations__ else "max_iterations": count}


def sums(count: int) -> list[ToolCall]:
    """Return calls that differ: an agent stops a model that makes the same one again and again."""
    return [ToolCall("add", {"a": number, "b": 2}, id=f"call_{number}") for number in range(count)]


async def converse(turns: int) -> None:
    """Have a conversation of that many turns, in each of which the model calls a tool and answers."""
    script = [line for call in sums(turns) for line in (call, "done")]
    agent = Agent(ScriptedModel(script), [add], role="a clerk", memory=ConversationMemory(), memory_id="ada")
    for _ in range(turns):
        await agent.run("go")


async def work(turns: int) -> None:
    """Make one run of that many turns, in each of which the model calls a tool."""
    await Agent(ScriptedModel([*sums(turns), "done"]), [add], **limit_calls(turns + 1)).run("go")


def _run(runner: asyncio.Runner, turns: int) -> Comparison:
    """Compare a run of some turns, one after the other, with the same loop written by hand."""
    box, validate = Toolbox([tool(new_async_search())]), adapter(new_async_search()).validator.validate_json
    texts = [ARGUMENTS.replace("Rome", f"Rome {number}") for number in range(turns)]
    calls = [ToolCall("search", text, id=f"call_{number}") for number, text in enumerate(texts)]
    first, second = (cycle([*calls, "done"]) for _ in range(2))
    agent = Agent(FunctionModel(lambda _: next(first)), box, **limit_calls(turns + 1))
    model = FunctionModel(lambda _: next(second))

    async def ours() -> None:
        await agent.run("go")

    async def by_hand() -> None:
        messages = list[Message]([UserMessage("go")])
        while (reply := await model.reply(ChatRequest(messages))).calls:
            messages.append(AssistantMessage("", reply.calls))
            for call in reply.calls:
                text = await validate(call.json)
                messages.append(ToolMessage(ToolReply(call, ToolResult.success(text))))

    what = f"a turn of an agent with a call of five parameters, out of {turns} in a run"
    subject = Subject("agent", what, "the loop by hand, with `validate_json`", "< 32 µs", figure="agent")
    return Comparison(subject, computed(runner, ours, turns), computed(runner, by_hand, turns))


def _turn(runner: asyncio.Runner, turns: int) -> Comparison:
    """Compare a turn of an agent, in which the model calls a typed tool, with the model's own time for its reply."""
    calls, request = sums(turns), ChatRequest([UserMessage("go")])

    async def bare() -> None:
        model = ScriptedModel(calls)
        for _ in calls:
            await model.reply(request)

    what = f"a turn of an agent with a call of two parameters, out of {turns} in a run"
    subject = Subject("agent", what, "the model's reply", "< 100 µs more")
    return Comparison(subject, computed(runner, lambda: work(turns), turns), computed(runner, bare, turns))


def _many_calls(runner: asyncio.Runner, count: int) -> Comparison:
    """Compare a turn of an agent with many waiting calls with a bare gather."""
    nap = Nap()
    box, calls = Toolbox([nap]), calls_of("nap", count)
    bare = gathered(lambda: nap.run("x"), count)

    async def ours() -> None:
        await Agent(ScriptedModel([calls, "done"]), box, **limit_calls(count)).run("go")

    what = f"a turn of an agent with {count:,} calls that sleep 10 ms"
    subject = Subject("agent", what, "`asyncio.gather`", "< 1.5")
    return Comparison(subject, awaited(runner, ours), awaited(runner, bare))


def _conversation(runner: asyncio.Runner, long: int, short: int) -> Comparison:
    """Compare a turn of a long conversation with one of a short one."""
    what, against = f"a turn of a conversation of {long:,} turns", f"a turn of one of {short:,} turns"
    subject = Subject("agent", what, against, "< 1.2", itself=True)
    return Comparison(
        subject, computed(runner, lambda: converse(long), long), computed(runner, lambda: converse(short), short)
    )
