"""Many calls at once: one reply each, each with its own context."""

import asyncio
import threading

import pytest

from helpers.sample_tools import AsyncFunction, Function, call
from toolsemble import InMemoryMetrics, Toolbox

pytestmark = pytest.mark.slow


async def test_ten_thousand_concurrent_async_calls_get_their_own_replies():
    async def run(input):
        before = tool.context.call_id
        await asyncio.sleep(0)
        return f"{input} {before} {tool.context.call_id}"

    tool = AsyncFunction(run)
    metrics = InMemoryMetrics()
    box = Toolbox([tool], metrics=metrics)
    calls = [call("function", str(number), id=f"c{number}") for number in range(10_000)]
    replies = await box.aexecute_all(calls)
    assert [reply.text for reply in replies] == [f"{number} c{number} c{number}" for number in range(10_000)]
    assert metrics.count("function", "success") == 10_000


def test_two_hundred_threads_share_one_toolbox():
    start = threading.Barrier(200, timeout=60)

    async def awaited(input):
        await asyncio.sleep(0)
        return f"{input} {async_tool.context.call_id} {async_tool.context.memory_id}"

    tool = Function(lambda text: f"{text} {tool.context.call_id} {tool.context.memory_id}", name="sync")
    async_tool = AsyncFunction(awaited, name="async")
    metrics = InMemoryMetrics()
    box = Toolbox([tool, async_tool], metrics=metrics)
    texts_by_number = {}

    def work(number):
        start.wait()
        memory = f"m{number}"
        texts = [
            box.execute(call("sync" if turn % 5 else "async", str(turn), id=f"{number}-{turn}"), memory_id=memory).text
            for turn in range(20)
        ]
        texts_by_number[number] = texts

    threads = [threading.Thread(target=work, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert texts_by_number == {
        number: [f"{turn} {number}-{turn} m{number}" for turn in range(20)] for number in range(200)
    }
    assert metrics.count("sync", "success") + metrics.count("async", "success") == 4000


def test_dropped_toolbox_stops_its_threads():
    before = set(threading.enumerate())
    for _ in range(20):
        box = Toolbox([Function(lambda text: text)])
        box.execute_all([call("function")] * 3)
    del box
    made = set(threading.enumerate()) - before
    for thread in made:
        thread.join(30)
    assert not [thread for thread in made if thread.is_alive()]
