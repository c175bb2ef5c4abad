"""Calls that wait for calls: none of them waits for ever, and bounds hold."""

import asyncio
import contextvars
import gc
import logging
import os
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from helpers.sample_tools import AsyncEcho, AsyncFunction, Echo, Function, call
from toolsemble import InMemoryMetrics, Tool, Toolbox, ToolContext, ToolDefinitionError
from toolsemble.locks.holds import TABLE
from toolsemble.review import AutoApprove
from toolsemble.runtime.concurrency import ContextThreadPool, in_event_loop, wait_until


async def test_work_that_a_body_submits_never_queues_behind_the_body():
    tool = Function(lambda _: tool.executor.submit(lambda: "done").result(30))
    assert (await Toolbox([tool], max_concurrency=1).aexecute(call("function"))).text == "done"


async def test_a_sync_call_on_a_busy_loop_does_not_wait_for_that_loops_own_tasks():
    opened = asyncio.Event()

    async def wait(_):
        await opened.wait()
        return "opened"

    box = Toolbox([AsyncFunction(wait), Echo()], max_concurrency=1)
    task = asyncio.create_task(box.aexecute(call("function")))
    await asyncio.sleep(0)
    assert box.execute(call("echo")).text == "hi"
    opened.set()
    assert (await task).text == "opened"


def test_two_bounded_boxes_that_call_each_other_do_not_wait_for_each_other():
    meeting = threading.Barrier(2, timeout=30)
    boxes = {}

    def over(other):
        def run(_):
            meeting.wait()
            return boxes[other].execute(call("echo")).text

        return run

    for name, other in (("a", "b"), ("b", "a")):
        boxes[name] = Toolbox([Function(over(other)), Echo()], max_concurrency=1)
    with ThreadPoolExecutor(2) as threads:
        replies = list(threads.map(lambda box: box.execute(call("function")), boxes.values(), timeout=30))
    assert [reply.text for reply in replies] == ["hi", "hi"]


def test_a_fresh_context_does_not_hide_the_place_that_is_held():
    inner = Function(lambda _: box.execute(call("echo")).text, name="inner")
    outer = Function(lambda _: inner.execute("x", ToolContext(memory_id="z")).output, name="outer")
    box = Toolbox([outer, Echo()], max_concurrency=1)
    assert box.execute(call("outer")).text == "hi"


async def test_a_body_that_goes_on_after_its_call_was_cancelled_keeps_its_place():
    running, opened, entered = [], threading.Event(), threading.Semaphore(0)

    def wait(_):
        running.append(1)
        entered.release()
        opened.wait(30)
        running.pop()

    box = Toolbox([Function(wait)], max_concurrency=1)
    first = asyncio.create_task(box.aexecute(call("function")))
    assert await asyncio.to_thread(entered.acquire, timeout=30)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(box.aexecute(call("function")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(running) == 1
    opened.set()
    assert not (await second).is_error


async def test_tasks_that_outlive_their_call_wait_for_places_of_their_own():
    most, running, tasks = [0], [0], []

    async def leaf(_):
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        running[0] -= 1

    async def start(_):
        tasks.extend(asyncio.create_task(later()) for _ in range(5))

    async def later():
        while not ended.is_set():
            await asyncio.sleep(0)
        await box.aexecute(call("leaf"))

    ended = asyncio.Event()
    box = Toolbox([AsyncFunction(leaf, name="leaf"), AsyncFunction(start, name="start")], max_concurrency=1)
    await box.aexecute(call("start"))
    ended.set()
    await asyncio.gather(*tasks)
    assert most == [1]


def test_a_dropped_call_that_is_collected_gives_its_place_back():
    async def sleep(_):
        await asyncio.Event().wait()

    box = Toolbox([AsyncFunction(sleep), Echo()], max_concurrency=1)
    loop = asyncio.new_event_loop()
    path = box.aexecute(call("function"))
    try:
        asyncio.events._set_running_loop(loop)
        contextvars.copy_context().run(path.send, None)
    finally:
        asyncio.events._set_running_loop(None)
        loop.close()
    contextvars.Context().run(path.close)  # the collector runs wherever it happens to
    assert contextvars.Context().run(box.execute, call("echo")).text == "hi"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # forking with threads is what is tested
def test_a_fork_of_the_process_gets_threads_of_its_own():
    meeting = threading.Barrier(3, timeout=30)
    box = Toolbox([Function(lambda text: (meeting.wait() and text) or text), Echo()])
    box.execute_all([call("function")] * 3)
    child = os.fork()
    if child == 0:
        replies = box.execute_all([call("echo")] * 3)
        os._exit(0 if [reply.text for reply in replies] == ["hi"] * 3 else 1)
    assert os.waitpid(child, 0)[1] == 0


async def test_bodies_that_call_back_into_their_own_loop_do_not_fill_its_threads():
    loop = asyncio.get_running_loop()
    leaf = Echo()
    tool = Function(lambda _: asyncio.run_coroutine_threadsafe(leaf.aexecute("hi"), loop).result(60).output)
    results = await asyncio.gather(*(tool.aexecute("x") for _ in range(40)))
    assert {result.output for result in results} == {"hi"}


def test_calls_inside_calls_run_side_by_side_too():
    meeting = threading.Barrier(10, timeout=30)
    inner = Toolbox([Function(lambda _: str(meeting.wait() >= 0))])
    outer = Function(
        lambda _: ",".join(reply.text for reply in inner.execute_all([call("function")] * 10)), name="outer"
    )
    replies = Toolbox([outer, Echo()]).execute_all([call("outer"), call("echo")])
    assert replies[0].text == ",".join(["True"] * 10)


def test_calls_inside_calls_use_the_executor_that_their_box_was_given():
    with ThreadPoolExecutor(2, "mine") as executor:
        inner = Toolbox([Function(lambda _: threading.current_thread().name)], executor=executor)
        outer = Function(lambda _: inner.execute_all([call("function")] * 2)[0].text, name="outer")
        replies = Toolbox([outer, Echo()]).execute_all([call("outer"), call("echo")])
    assert replies[0].text.startswith("mine")


class TwoPartsError(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} {other}")


class Processed(Tool):
    name = "processed"
    description = "Runs in a worker process"

    def run(self, input):
        if input == "bad":
            raise TwoPartsError("cannot", "be unpickled")
        if input == "known":
            raise KeyError("known")
        return f"{input} {type(self.context.review).__name__} {type(self.metrics).__name__}"


def test_no_exception_breaks_a_process_pool(caplog):
    with ProcessPoolExecutor(1) as executor:
        box = Toolbox([Processed()], executor=executor, review=AutoApprove(), metrics=InMemoryMetrics())
        replies = box.execute_all([call("processed", text) for text in ("good", "bad", "known", "good")])
    assert [reply.text for reply in replies] == [
        "good AutoReject SilentMetrics",
        "Error: cannot be unpickled",
        "Error: 'known'",
        "good AutoReject SilentMetrics",
    ]
    assert "In the worker process" in caplog.text
    assert 'raise KeyError("known")' in caplog.text


def test_a_call_inside_a_call_shares_its_parameters_role_and_deadline():
    seen = []
    inner = Function(lambda _: seen.append(inner.context), name="inner")
    box = Toolbox([inner])
    outer = Function(lambda _: box.execute(call("inner")), name="outer")
    deadline = time.monotonic() + 600
    outer.execute("x", ToolContext(memory_id="ada", agent_role="writer", deadline=deadline))
    (context,) = seen
    assert (context.memory_id, context.agent_role, context.deadline) == ("ada", "writer", deadline)


def test_parameters_of_a_run_reach_the_boxes_inside():
    inner = Function(lambda _: inner.context.parameters["user"], name="inner")
    box = Toolbox([inner])
    outer = Function(lambda _: box.execute(call("inner")).text, name="outer")
    assert Toolbox([outer]).execute(call("outer"), parameters={"user": "ada"}).text == "ada"


async def test_a_blocking_reviewer_does_not_hold_up_the_loop():
    asked, opened = threading.Event(), threading.Event()

    class Slow:
        def review(self, _request):
            asked.set()
            return opened.wait(30) and None

    gated = Function(lambda text: text, name="gated", requires_approval=True)
    box = Toolbox([gated, AsyncEcho()], review=Slow())
    task = asyncio.create_task(box.aexecute(call("gated")))
    assert await asyncio.to_thread(asked.wait, 30)
    assert (await box.aexecute(call("async_echo"))).text == "hi"
    opened.set()
    assert (await task).is_error


class Clock:
    """A clock that goes forward only when told."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("toolsemble.execution.path.time.perf_counter", lambda: self.now)

    def pass_time(self, seconds):
        self.now += seconds


@pytest.mark.parametrize("answer", ["Continue", "ExitEarly"])
def test_the_duration_is_the_tools_own_not_the_reviewers(monkeypatch, answer):
    clock, metrics = Clock(monkeypatch), InMemoryMetrics()

    class Slow:
        def review(self, _request):
            clock.pass_time(60)
            return getattr(__import__("toolsemble"), answer)()

    tool = Function(lambda _: clock.pass_time(2), requires_approval=True)
    Toolbox([tool], review=Slow(), metrics=metrics).execute(call("function"))
    assert metrics.durations("function") == [2.0 if answer == "Continue" else 0.0]


def test_waiting_for_a_place_is_not_counted(monkeypatch):
    clock, metrics = Clock(monkeypatch), InMemoryMetrics()
    acquire = TABLE.acquire
    monkeypatch.setattr(TABLE, "acquire", lambda claim: clock.pass_time(60) or acquire(claim))
    Toolbox([Function(lambda _: clock.pass_time(2))], metrics=metrics, max_concurrency=1).execute(call("function"))
    assert metrics.durations("function") == [2.0]


def test_failures_leave_no_cycles_for_the_collector(caplog):
    caplog.set_level(logging.CRITICAL, "toolsemble")  # what is logged is kept by the test's own handler

    def explode(_):
        raise ValueError("boom")

    tool = Function(explode)
    tool.execute("x")
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(50):
            tool.execute("x")
        grown = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert grown < 50


def test_threads_are_renewed_where_the_process_is_another(monkeypatch):
    pool = ContextThreadPool(1)
    monkeypatch.setattr(pool, "_process", -1)
    assert pool.submit(pow, 2, 3).result(30) == 8
    assert pool._process == os.getpid()
    pool.shutdown()


def test_where_asyncio_was_never_imported_no_loop_is_running(monkeypatch):
    monkeypatch.delitem(sys.modules, "asyncio")
    assert not in_event_loop()


@pytest.mark.parametrize(("setting", "value"), [("executor", 5), ("metrics", object())])
def test_settings_that_cannot_do_their_job_are_refused(setting, value):
    with pytest.raises(ToolDefinitionError, match=f"Toolbox {setting} has no method"):
        Toolbox([], **{setting: value})


def test_a_wait_that_ends_early_goes_on_until_its_time_has_come(clock):
    future = Future()
    ending = threading.Timer(0.1, future.set_result, [None])
    ending.start()
    assert wait_until(future, clock.monotonic() + 0.001)  # though more time has passed by another clock
    ending.join()
