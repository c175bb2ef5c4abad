import asyncio
import threading

import pytest

from toolsemble import Agent, ConversationMemory, ToolCall, ToolExecutionError, tool
from toolsemble._engine.context import ToolContext
from toolsemble._runtime.locks import TABLE
from toolsemble.agent._run.state import lock_conversation
from toolsemble.models import ToolMessage, UserMessage
from toolsemble.testing import FunctionModel, ScriptedModel


def questions(messages):
    return [message.text for message in messages if isinstance(message, UserMessage)]


class GatedModel:
    """A model that answers its first request when it is released."""

    def __init__(self):
        self.started, self.released = asyncio.Event(), asyncio.Event()
        self.seen = []

    async def __call__(self, request):
        self.seen.append(questions(request.messages))
        if len(self.seen) == 1:
            self.started.set()
            await self.released.wait()
        return "done"


async def start_queue(agent, gate, *ids):
    """Start runs one after the other, the first of which waits in its model."""
    tasks = [asyncio.create_task(agent.run("q1", memory_id=ids[0]))]
    await gate.started.wait()
    for number, memory_id in enumerate(ids[1:], 2):
        tasks.append(asyncio.create_task(agent.run(f"q{number}", memory_id=memory_id)))
        await asyncio.sleep(0)
    return tasks


async def test_runs_of_one_conversation_wait_for_each_other_in_order():
    gate, memory = GatedModel(), ConversationMemory()
    tasks = await start_queue(Agent(FunctionModel(gate), memory=memory), gate, "u", "u", "u")
    assert gate.seen == [["q1"]]
    gate.released.set()
    await asyncio.gather(*tasks)
    assert gate.seen == [["q1"], ["q1", "q2"], ["q1", "q2", "q3"]]
    assert questions(memory.load("u")) == ["q1", "q2", "q3"]


async def test_another_conversation_does_not_wait():
    gate = GatedModel()
    first, second = await start_queue(Agent(FunctionModel(gate), memory=ConversationMemory()), gate, "u", "v")
    await second
    gate.released.set()
    await first
    assert gate.seen == [["q1"], ["q2"]]


async def test_a_cancelled_run_leaves_the_queue():
    gate, memory = GatedModel(), ConversationMemory()
    first, second, third = await start_queue(Agent(FunctionModel(gate), memory=memory), gate, "u", "u", "u")
    second.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await second
    assert raised.value.partial.stop_reason == "cancelled"
    gate.released.set()
    await asyncio.gather(first, third)
    assert gate.seen == [["q1"], ["q1", "q3"]]


async def test_a_cancelled_run_lets_the_next_one_begin():
    gate = GatedModel()
    first, second = await start_queue(Agent(FunctionModel(gate), memory=ConversationMemory()), gate, "u", "u")
    first.cancel()
    await second
    assert gate.seen == [["q1"], ["q2"]]


async def test_a_closed_stream_lets_the_next_run_begin():
    agent = Agent(ScriptedModel(["one", "two"]), memory=ConversationMemory(), memory_id="u")
    stream = agent.stream("q1")
    await anext(stream)
    waiting = asyncio.create_task(agent.run("q2"))
    await asyncio.sleep(0)
    await stream.aclose()
    assert (await waiting).stop_reason == "answer"


def test_threads_with_one_conversation_wait_for_each_other():
    seen, memory = [], ConversationMemory()

    def answer(request):
        seen.append(questions(request.messages))
        while len(seen) == 1 and TABLE.waiting < 2:
            threading.Event().wait(0.001)
        return "done"

    agent = Agent(FunctionModel(answer), memory=memory)
    threads = [threading.Thread(target=agent.run_sync, args=(f"q{n}",), kwargs={"memory_id": "u"}) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(each) for each in seen] == [1, 2, 3]


async def test_a_run_inside_a_run_of_the_same_conversation_shares_it():
    memory = ConversationMemory()
    inner = Agent(ScriptedModel(["inner"]), memory=memory)

    @tool
    async def ask() -> str:
        return (await inner.run("inside", memory_id="u")).text

    outer = Agent(ScriptedModel([ToolCall("ask"), "outer"]), [ask], memory=memory)
    assert (await outer.run("go", memory_id="u")).text == "outer"
    assert memory.load("u")[0] == UserMessage("inside")


async def test_a_wait_that_would_be_a_deadlock_is_refused():
    memory, holds_file, holds_u = ConversationMemory(), asyncio.Event(), asyncio.Event()
    inner = Agent(ScriptedModel(["inner"]), memory=memory)

    @tool(resources=lambda _: ["file"])
    async def ask() -> str:
        holds_file.set()
        await holds_u.wait()
        while not TABLE.waiting:
            await asyncio.sleep(0)
        return (await inner.run("inside", memory_id="u")).text

    @tool(resources=lambda _: ["file"])
    async def write() -> str:
        return "written"

    async def call_write(request):
        holds_u.set()
        return "b" if isinstance(request.messages[-1], ToolMessage) else ToolCall("write")

    first = asyncio.create_task(Agent(ScriptedModel([ToolCall("ask"), "a"]), [ask]).run("go"))
    await holds_file.wait()
    result = await Agent(FunctionModel(call_write), [write], memory=memory).run("go", memory_id="u")
    assert [record.reply.text for record in result.tool_calls] == ["written"]
    reply = (await first).tool_calls[0].reply.text
    assert "Deadlock: another run uses the conversation 'u'" in reply


async def test_the_wait_ends_at_the_deadline_of_the_enclosing_call():
    memory = ConversationMemory()
    hold = await lock_conversation(memory, "u", ToolContext())
    hold.leave()
    assert TABLE.acquire(hold)
    with pytest.raises(ToolExecutionError, match="did not end before the deadline of this call"):
        await lock_conversation(memory, "u", ToolContext(deadline=0.0))
    TABLE.release(hold)
