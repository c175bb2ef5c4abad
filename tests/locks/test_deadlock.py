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
from toolsemble._runtime.event_loops import in_event_loop
from toolsemble._runtime.locks import TABLE
from toolsemble._runtime.threads import ContextThreadPool, wait_until
from toolsemble.review import AutoApprove


async def test_work_submitted_by_a_body_does_not_wait_for_the_body():
    tool = Function(lambda _: tool.executor.submit(lambda: "done").result(30))
    assert (await Toolbox([tool], max_concurrency=1).aexecute(call("function"))).text == "done"


async def test_sync_call_on_a_busy_loop_does_not_wait_for_its_tasks():
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


def test_two_limited_toolboxes_calling_each_other_do_not_deadlock():
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


def test_nested_call_with_a_new_context_reuses_the_slot():
    inner = Function(lambda _: box.execute(call("echo")).text, name="inner")
    outer = Function(lambda _: inner.execute("x", ToolContext(memory_id="z")).output, name="outer")
    box = Toolbox([outer, Echo()], max_concurrency=1)
    assert box.execute(call("outer")).text == "hi"


async def test_body_running_after_its_cancellation_keeps_its_slot():
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


async def test_tasks_outliving_their_call_wait_for_their_own_slots():
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


def test_garbage_collected_call_releases_its_slot():
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
def test_fork_starts_its_own_threads():
    meeting = threading.Barrier(3, timeout=30)
    box = Toolbox([Function(lambda text: (meeting.wait() and text) or text), Echo()])
    box.execute_all([call("function")] * 3)
    child = os.fork()
    if child == 0:
        replies = box.execute_all([call("echo")] * 3)
        os._exit(0 if [reply.text for reply in replies] == ["hi"] * 3 else 1)
    assert os.waitpid(child, 0)[1] == 0


async def test_bodies_calling_back_into_their_loop_do_not_exhaust_its_threads():
    loop = asyncio.get_running_loop()
    leaf = Echo()
    tool = Function(lambda _: asyncio.run_coroutine_threadsafe(leaf.aexecute("hi"), loop).result(60).output)
    results = await asyncio.gather(*(tool.aexecute("x") for _ in range(40)))
    assert {result.output for result in results} == {"hi"}


def test_nested_calls_run_in_parallel():
    meeting = threading.Barrier(10, timeout=30)
    inner = Toolbox([Function(lambda _: str(meeting.wait() >= 0))])
    outer = Function(
        lambda _: ",".join(reply.text for reply in inner.execute_all([call("function")] * 10)), name="outer"
    )
    replies = Toolbox([outer, Echo()]).execute_all([call("outer"), call("echo")])
    assert replies[0].text == ",".join(["True"] * 10)


def test_nested_calls_use_the_executor_of_their_toolbox():
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


def test_exceptions_do_not_break_a_process_pool(caplog):
    with ProcessPoolExecutor(1) as executor:
        box = Toolbox([Processed()], executor=executor, review=AutoApprove(), metrics=InMemoryMetrics())
        replies = box.execute_all([call("processed", text) for text in ("good", "bad", "known", "good")])
    assert [reply.text for reply in replies] == [
        "good AutoReject SilentMetrics",
        "Error: cannot be unpickled",
        "Error: KeyError: 'known'",
        "good AutoReject SilentMetrics",
    ]
    assert "In the worker process" in caplog.text
    assert 'raise KeyError("known")' in caplog.text


def test_nested_call_shares_parameters_role_and_deadline():
    seen = []
    inner = Function(lambda _: seen.append(inner.context), name="inner")
    box = Toolbox([inner])
    outer = Function(lambda _: box.execute(call("inner")), name="outer")
    deadline = time.monotonic() + 600
    outer.execute("x", ToolContext(memory_id="ada", agent_role="writer", deadline=deadline))
    (context,) = seen
    assert (context.memory_id, context.agent_role, context.deadline) == ("ada", "writer", deadline)


def test_nested_toolboxes_get_the_parameters_of_the_run():
    inner = Function(lambda _: inner.context.parameters["user"], name="inner")
    box = Toolbox([inner])
    outer = Function(lambda _: box.execute(call("inner")).text, name="outer")
    assert Toolbox([outer]).execute(call("outer"), parameters={"user": "ada"}).text == "ada"


async def test_blocking_reviewer_does_not_block_the_event_loop():
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
    """A clock that moves only when the test advances it."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("toolsemble._engine.execution.call_path.time.perf_counter", lambda: self.now)

    def pass_time(self, seconds):
        self.now += seconds


@pytest.mark.parametrize("answer", ["Continue", "ExitEarly"])
def test_duration_excludes_the_review(monkeypatch, answer):
    clock, metrics = Clock(monkeypatch), InMemoryMetrics()

    class Slow:
        def review(self, _request):
            clock.pass_time(60)
            return getattr(__import__("toolsemble"), answer)()

    tool = Function(lambda _: clock.pass_time(2), requires_approval=True)
    Toolbox([tool], review=Slow(), metrics=metrics).execute(call("function"))
    assert metrics.durations("function") == [2.0 if answer == "Continue" else 0.0]


def test_duration_excludes_waiting_for_a_slot(monkeypatch):
    clock, metrics = Clock(monkeypatch), InMemoryMetrics()
    acquire = TABLE.acquire
    monkeypatch.setattr(TABLE, "acquire", lambda claim: clock.pass_time(60) or acquire(claim))
    Toolbox([Function(lambda _: clock.pass_time(2))], metrics=metrics, max_concurrency=1).execute(call("function"))
    assert metrics.durations("function") == [2.0]


def test_failures_leave_no_reference_cycles(caplog):
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


def test_thread_pool_is_renewed_in_another_process(monkeypatch):
    pool = ContextThreadPool(1)
    monkeypatch.setattr(pool, "_process", -1)
    assert pool.submit(pow, 2, 3).result(30) == 8
    assert pool._process == os.getpid()
    pool.shutdown()


def test_no_event_loop_without_asyncio(monkeypatch):
    monkeypatch.delitem(sys.modules, "asyncio")
    assert not in_event_loop()


@pytest.mark.parametrize(("setting", "value"), [("executor", 5), ("metrics", object())])
def test_rejects_settings_without_the_needed_methods(setting, value):
    with pytest.raises(ToolDefinitionError, match=f"Toolbox {setting} has no method"):
        Toolbox([], **{setting: value})


def test_early_wakeup_waits_until_the_deadline(clock):
    future = Future()
    ending = threading.Timer(0.1, future.set_result, [None])
    ending.start()
    assert wait_until(future, clock.monotonic() + 0.001)  # though more time has passed by another clock
    ending.join()
