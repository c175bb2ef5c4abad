"""How many calls there may be in some time."""

import asyncio
import dataclasses
import pickle
import re
import threading
import time
from concurrent.futures import Executor, Future
from itertools import pairwise

import pytest

from helpers import isolated_tools as isolated
from helpers.sample_tools import AsyncFunction, Function
from helpers.wait import auntil, until
from toolsemble import RateLimit, Toolbox, ToolCall, ToolContext, ToolDefinitionError, ToolPipeline, map_over
from toolsemble._engine.work.body import Start
from toolsemble._runtime.locks import TABLE, Hold


class LoggedRateLimit(RateLimit):
    """A rate limit that keeps all beginnings."""

    def __init__(self, calls, per):
        super().__init__(calls, per)
        self.all = []

    def pause(self, start=None):
        pause = super().pause(start)
        if start is not None and not pause:
            self.all.append(start)
        return pause


def make_rated_tool(rate, **settings):
    """A tool under a rate limit, and the inputs with which its body began."""
    begun = []
    return Function(lambda text: begun.append(text) or text, rate_limit=rate, **settings), begun


def count_starts(rate):
    """How many bodies have begun in the last stretch of time."""
    return sum(start.at is not None for start in rate._starts)


def calls(count, name="function"):
    return [ToolCall(name, {"input": str(number)}) for number in range(count)]


def is_kept(rate):
    """Whether no stretch of time has more beginnings than there may be."""
    begun = sorted(start.at for start in rate.all if start.at is not None)
    stretches = zip(begun, begun[rate.calls :], strict=False)
    return all(later - first >= rate.per for first, later in stretches)


@pytest.mark.parametrize("count", [1, 3])
def test_no_time_window_has_too_many_calls(count):
    rate = LoggedRateLimit(count, 0.05)
    made, begun = make_rated_tool(rate)
    box = Toolbox([made])
    assert [reply.text for reply in box.execute_all(calls(7))] == [str(number) for number in range(7)]
    box.execute(*calls(1))
    assert len(begun) == 8
    assert is_kept(rate)


def test_tools_with_the_same_object_share_the_rate():
    rate = LoggedRateLimit(1, 0.03)
    first, begun = make_rated_tool(rate, name="first")
    second = AsyncFunction(
        lambda text: asyncio.sleep(0, begun.append(time.monotonic()) or text), "second", rate_limit=rate
    )
    boxes = Toolbox([first]), Toolbox([second])
    threads = [
        threading.Thread(target=boxes[0].execute_all, args=(calls(3, "first"),)),
        threading.Thread(target=boxes[1].execute_all, args=(calls(3, "second"),)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(begun) == 6
    assert is_kept(rate)


def test_toolbox_rate_applies_to_all_tools():
    rate = LoggedRateLimit(1, 0.03)
    first, begun = make_rated_tool(RateLimit(100), name="first")
    second = Function(begun.append, "second")
    Toolbox([first, second], rate_limit=rate).execute_all([*calls(2, "first"), *calls(2, "second")])
    assert len(begun) == 4
    assert is_kept(rate)


def test_pipeline_steps_count_for_the_toolbox_rate():
    rate = RateLimit(100, per=600)
    line = Function(str, "first") | Function(str, "second")
    box = Toolbox([line, map_over(Function(str, "third"))], rate_limit=rate)
    assert box.execute(ToolCall("first_then_second", {"input": "x"})).text == "x"
    assert count_starts(rate) == 2
    box.execute(ToolCall("each_third", {"items": ["a", "b", "c"]}))
    assert count_starts(rate) == 5


async def test_calls_start_in_order():
    order = []
    made = AsyncFunction(lambda text: asyncio.sleep(0, order.append(text)), rate_limit=RateLimit(1, per=0.001))
    await Toolbox([made]).aexecute_all(calls(20))
    assert order == [str(number) for number in range(20)]


def test_call_that_cannot_start_in_time_fails_at_once():
    made, begun = make_rated_tool(RateLimit(1, per=36_000), timeout=30)
    assert made.execute("x").is_success
    message = made.execute("x").error_message
    expected = r"The rate limit of 1 calls in 36000 s is used up; the next call can start in \d{5} s"
    assert re.fullmatch(expected, message)
    assert len(begun) == 1


async def test_queued_call_times_out(stopped_clock):
    made, _ = make_rated_tool(RateLimit(1, per=600))
    made.execute("x")
    slow = asyncio.create_task(made.aexecute("x"))
    while made.rate_limit not in TABLE._held:
        await asyncio.sleep(0)
    late = asyncio.create_task(made.aexecute("x", ToolContext(deadline=time.monotonic() + 0.05)))
    await auntil(lambda: TABLE.waiting)
    stopped_clock.advance(0.05)
    assert (await late).error_message == "Tool 'function' timed out after 0.05 s"
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_cancelled_waiter_does_not_count(stopped_clock):
    made = AsyncFunction(lambda text: asyncio.sleep(0, text), rate_limit=RateLimit(1, per=600))
    await made.aexecute("x")
    waiting = [asyncio.create_task(made.aexecute("x")) for _ in range(3)]
    await auntil(lambda: TABLE.waiting == 2)  # behind the first, which looks at the clock
    for task in waiting[:2]:
        task.cancel()
    await auntil(lambda: not TABLE.waiting)
    stopped_clock.advance(600)
    assert (await waiting[2]).output == "x"
    assert [task.cancelled() for task in waiting] == [True, True, False]
    assert count_starts(made.rate_limit) == 1
    assert not TABLE.waiting


def test_failed_calls_count_and_invalid_ones_do_not():
    rate = RateLimit(5)

    def fail(_):
        raise ValueError("boom")

    box = Toolbox([Function(fail, rate_limit=rate)])
    box.execute(*calls(1))
    box.execute(ToolCall("function", "{}"))
    assert count_starts(rate) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"calls": 0}, "RateLimit calls must be an int >= 1, not 0"),
        ({"calls": 1.5}, "RateLimit calls must be an int >= 1, not 1.5"),
        ({"calls": 1, "per": 0}, "RateLimit per must be a number of seconds > 0, not 0"),
        ({"calls": 1, "per": "1"}, "RateLimit per must be a number of seconds > 0, not '1'"),
    ],
)
def test_rejects_invalid_rate(arguments, message):
    with pytest.raises(ToolDefinitionError) as caught:
        RateLimit(**arguments)
    assert str(caught.value) == message


def test_rejects_values_that_are_not_a_rate_limit():
    with pytest.raises(ToolDefinitionError, match="Tool 'function': rate_limit must be a RateLimit, not 5"):
        Toolbox([Function(str, rate_limit=5)])
    with pytest.raises(ToolDefinitionError, match="Toolbox: rate_limit must be a RateLimit, not 5"):
        Toolbox([], rate_limit=5)


def test_pickled_rate_limit_starts_empty():
    rate = pickle.loads(pickle.dumps(RateLimit(2, per=3)))
    assert (repr(rate), list(rate._starts)) == ("RateLimit(2, per=3)", [])
    assert [first != second for first, second in pairwise([rate, RateLimit(2, per=3)])] == [True]


class FakeTime:
    """A clock in place of the time module's, which each sleep advances."""

    def __init__(self):
        self.now = 1000.0
        self._lock = threading.Lock()

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        with self._lock:
            self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = FakeTime()
    monkeypatch.setattr("toolsemble._engine.limits.rate.time", made)
    monkeypatch.setattr("toolsemble._engine.work.body.time", made)
    monkeypatch.setattr("toolsemble._engine.work.wait.time", made)
    return made


def max_in_window(begun, per):
    return max(sum(first <= other < first + per for other in begun) for first in begun)


def test_calls_released_from_slots_still_follow_the_rate(clock):
    begun = []
    made = Function(lambda _: begun.append(clock.now), rate_limit=RateLimit(2, per=0.5), resources=lambda text: text)
    box = Toolbox([made], max_concurrency=10)
    full = [Hold([box._settings.slots]) for _ in range(10)]
    assert all(map(TABLE.acquire, full))
    threads = [threading.Thread(target=box.execute, args=(each,)) for each in calls(10)]
    for thread in threads:
        thread.start()
    until(lambda: TABLE.waiting == 10)
    for each in full:
        TABLE.release(each)
    for thread in threads:
        thread.join(60)
    assert len(begun) == 10
    assert max_in_window(begun, 0.5) == 2
    assert not TABLE._claims


async def test_call_waiting_for_the_rate_holds_no_slot():
    slow = AsyncFunction(lambda text: asyncio.sleep(0, text), "slow", rate_limit=RateLimit(1, per=36_000))
    box = Toolbox([slow, Function(str, "quick")], max_concurrency=1)
    await box.aexecute(*calls(1, "slow"))
    waiting = asyncio.create_task(box.aexecute(*calls(1, "slow")))
    await auntil(lambda: slow.rate_limit in TABLE._held)
    assert (await box.aexecute(*calls(1, "quick"))).text == "0"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not TABLE._claims


class ManualExecutor(Executor):
    """An executor that comes to its jobs when the test runs them."""

    def __init__(self):
        self.jobs = []

    def submit(self, job, /, *_, **__):
        self.jobs.append((future := Future(), job))
        return future

    def run(self):
        for future, job in self.jobs:
            future.set_result(job())


async def test_call_counts_from_the_start_of_its_body(clock):
    rate, pool = RateLimit(1, per=10), ManualExecutor()
    made = Function(str, rate_limit=rate)
    box = Toolbox([made], executor=pool)
    first = asyncio.create_task(box.aexecute(*calls(1)))
    await auntil(lambda: pool.jobs)
    clock.sleep(60)  # it is unknown when the thread starts it: as long as it may begin, no other does
    assert rate.pause() == 10
    pool.run()
    assert (await first).text == "0"
    clock.sleep(6)
    assert rate.pause() == 4
    clock.sleep(4)
    assert rate.pause() == 0


async def test_async_body_counts_from_its_first_await(clock):
    rate, begun = RateLimit(1, per=10), []

    async def run(text):
        begun.append(rate.pause())
        return text

    made = AsyncFunction(run, rate_limit=rate, timeout=36_000)
    assert (await made.aexecute("x")).output == "x"
    assert (made.execute("x").output, begun) == ("x", [10, 10])


async def test_body_of_a_cancelled_call_never_starts():
    rate, pool, ran = RateLimit(1, per=36_000), ManualExecutor(), []
    box = Toolbox([Function(ran.append, rate_limit=rate)], executor=pool)
    first = asyncio.create_task(box.aexecute(*calls(1)))
    await auntil(lambda: pool.jobs)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert rate.pause() == 0  # its place is free
    assert str(pool.jobs[0][1]()[1]) == "The call was cancelled before its body began"
    assert ran == []


def test_calls_wait_for_all_rates_and_count_once_in_each(clock):
    mine, shared, begun = RateLimit(1, per=5), RateLimit(2, per=60), []
    first = Function(lambda _: begun.append(clock.now), "first", rate_limit=mine)
    second = Function(lambda _: begun.append(clock.now), "second", rate_limit=shared)
    box = Toolbox([first, second], rate_limit=shared)
    for name in ("first", "first", "second", "first"):
        assert box.execute(*calls(1, name)).result.is_success
    assert begun == [1000, 1005, 1060, 1065]


def test_pipeline_counts_for_its_own_rate():
    rate = RateLimit(5, per=600)
    line = ToolPipeline("line", "Two steps", [Function(str, "first"), Function(str, "second")], rate_limit=rate)
    assert line.execute("x").output == "x"
    assert count_starts(rate) == 1


def test_pickled_body_counts_when_it_is_sent():
    rate, start = RateLimit(1, per=600), Start()
    assert rate.pause(start) == 0
    assert pickle.loads(pickle.dumps(start.wrap(len, awaits=False))) is len
    assert count_starts(rate) == 1


def test_body_in_a_worker_process_counts_when_it_is_sent(clock):
    rate = RateLimit(1, per=600)
    assert Toolbox([isolated.where], rate_limit=rate).execute(ToolCall("where")).result.is_success
    assert rate._starts[0].at == clock.now


async def test_waiters_continue_when_a_pending_body_is_cancelled(clock):
    rate, pool = RateLimit(1, per=36_000), ManualExecutor()
    box = Toolbox([Function(str, rate_limit=rate)], executor=pool)
    first = asyncio.create_task(box.aexecute(*calls(1)))
    await auntil(lambda: pool.jobs)
    second = asyncio.create_task(box.aexecute(*calls(1)))
    await auntil(lambda: rate in TABLE._held)
    first.cancel()
    await auntil(lambda: len(pool.jobs) == 2)  # it looks again before the time is up
    pool.jobs = pool.jobs[1:]
    pool.run()
    assert (await second).text == "0"


def test_deadlock_fails_under_a_rate_limit():
    first, second = Hold(["a"]), Hold(["b"])
    inside = Hold(["a"], second)
    made = Function(str, resources=lambda _: "b", rate_limit=RateLimit(5))
    try:
        assert [TABLE.acquire(each) for each in (first, second, inside)] == [True, True, False]
        first.enter()
        assert made.execute("x").error_message.startswith("Deadlock: it needs")
    finally:
        for each in (inside, second, first):
            each.leave()
    assert not TABLE._claims


async def test_sync_call_beyond_the_slots_counts_for_the_rate():
    rate, opened = RateLimit(5, per=600), asyncio.Event()
    box = Toolbox([AsyncFunction(lambda _: opened.wait(), "slow"), Function(str, "quick")], max_concurrency=1)
    rated = Toolbox([Function(str, "quick", rate_limit=rate)], max_concurrency=1)
    rated._settings = dataclasses.replace(rated._settings, slots=box._settings.slots)
    waiting = asyncio.create_task(box.aexecute(*calls(1, "slow")))
    await auntil(lambda: TABLE._held)
    assert rated.execute(*calls(1, "quick")).text == "0"
    assert count_starts(rate) == 1
    opened.set()
    await waiting
