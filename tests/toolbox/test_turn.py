"""Concurrent execution of the calls of one turn."""

import asyncio
import contextlib
import contextvars
import dataclasses
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.sample_tools import AsyncEcho, AsyncFunction, AsyncRaising, Echo, Function, Meeting, Raising, call
from helpers.wait import until
from toolsemble import ExitEarlyError, InMemoryMetrics, Toolbox, ToolCall, ToolConfigurationError


async def run_turn(box, calls, how):
    """Return the replies from the async method, or from the sync one in a new thread."""
    if how == "async":
        return await box.aexecute_all(calls)
    return await asyncio.to_thread(box.execute_all, calls)


both_ways = pytest.mark.parametrize("how", ["sync", "async"])


@both_ways
async def test_blocking_calls_run_at_the_same_time(how):
    replies = await run_turn(Toolbox([Function(Meeting(5))]), [call("function")] * 5, how)
    assert not any(reply.is_error for reply in replies)
    assert len({reply.text for reply in replies}) == 5


@both_ways
async def test_async_calls_run_at_the_same_time(how):
    arrived = []

    async def meet(_):
        arrived.append(1)
        async with asyncio.timeout(30):
            while len(arrived) < 5:
                await asyncio.sleep(0)
        return "met"

    replies = await run_turn(Toolbox([AsyncFunction(meet)]), [call("function")] * 5, how)
    assert [reply.text for reply in replies] == ["met"] * 5


@both_ways
async def test_blocking_and_async_calls_run_at_the_same_time(how):
    opened = threading.Event()

    async def open_up(_):
        opened.set()
        return "opened"

    box = Toolbox([Function(lambda _: str(opened.wait(30)), name="waits"), AsyncFunction(open_up, name="opens")])
    replies = await run_turn(box, [call("waits"), call("opens")], how)
    assert [reply.text for reply in replies] == ["True", "opened"]


@both_ways
async def test_replies_are_in_request_order(how):
    events = [threading.Event() for _ in range(6)]

    def run(input):
        number = int(input)
        if number + 1 < len(events):
            events[number + 1].wait(30)
        events[number].set()
        return input

    calls = [call("function", str(number), id=str(number)) for number in range(6)]
    replies = await run_turn(Toolbox([Function(run)]), calls, how)
    assert [reply.text for reply in replies] == list("012345")
    assert [reply.call for reply in replies] == calls


@both_ways
async def test_identical_calls_without_ids_get_separate_replies(how):
    counter = iter(range(10))
    tool = Function(lambda _: f"{next(counter)} {tool.context.call_id}", inline=True)
    same = ToolCall("function", '{"input": "x"}')
    replies = await run_turn(Toolbox([tool]), [same, same, same], how)
    assert len({reply.text for reply in replies}) == 3
    assert all(reply.call is same for reply in replies)


@both_ways
async def test_every_call_gets_a_reply_if_others_fail(how):
    box = Toolbox([Echo(), AsyncEcho(), Raising(ValueError("boom")), AsyncRaising(OSError("bang"), name="bang")])
    names = ["echo", "raising", "unknown", "bang", "async_echo", "echo"]
    replies = await run_turn(box, [*(call(name) for name in names), ToolCall("echo", "no json")], how)
    assert [reply.is_error for reply in replies] == [False, True, True, True, False, False, True]
    assert [replies[index].text for index in (0, 1, 3, 4)] == ["hi", "Error: boom", "Error: bang", "hi"]


@both_ways
@pytest.mark.parametrize("kind", [Raising, AsyncRaising])
@pytest.mark.parametrize(
    "error",
    [ExitEarlyError("enough"), ToolConfigurationError("no region"), asyncio.CancelledError("gone")],
    ids=lambda error: type(error).__name__,
)
async def test_exceptions_are_raised_after_all_calls_have_ended(how, kind, error):
    finished = []

    async def later(input):
        for _ in range(5):
            await asyncio.sleep(0)
        finished.append(input)
        return input

    at_once = Function(lambda text: finished.append(text) or text, name="sync")
    box = Toolbox([kind(error), AsyncFunction(later), at_once])
    calls = [call("function", "a"), call("raising"), call("sync", "b"), call("unknown")]
    with pytest.raises(type(error)) as raised:
        await run_turn(box, calls, how)
    assert sorted(finished) == ["a", "b"]
    assert [reply.call for reply in raised.value.replies] == [calls[0], calls[2], calls[3]]
    assert [reply.is_error for reply in raised.value.replies] == [False, False, True]


@pytest.mark.parametrize("kind", [Raising, AsyncRaising])
@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit(3)], ids=lambda error: type(error).__name__)
def test_keyboard_interrupt_and_system_exit_are_raised_with_replies(kind, error):
    box = Toolbox([kind(error), AsyncEcho()])
    with pytest.raises(type(error)) as raised:
        box.execute_all([call("raising"), call("async_echo")])
    assert raised.value is error
    assert [reply.text for reply in raised.value.replies] == ["hi"]


def test_base_exceptions_are_raised_first_then_by_request_order():
    first, second = ExitEarlyError("first"), ExitEarlyError("second")
    tools = [Raising(first, "a"), Raising(second, "b"), Raising(KeyboardInterrupt(), "c")]
    with pytest.raises(ExitEarlyError) as raised:
        Toolbox(tools).execute_all([call("a"), call("b")])
    assert raised.value is first
    with pytest.raises(KeyboardInterrupt) as interrupted:
        Toolbox(tools).execute_all([call("a"), call("b"), call("c")])
    assert interrupted.value.__notes__ == [
        "Another call of the turn raised ExitEarlyError: first",
        "Another call of the turn raised ExitEarlyError: second",
    ]


@dataclasses.dataclass(frozen=True)
class SealedError(BaseException):
    """An exception without attributes."""


def test_exception_without_settable_attributes_is_raised():
    with pytest.raises(SealedError):
        Toolbox([Raising(SealedError()), Echo()]).execute_all([call("raising"), call("echo")])


@both_ways
async def test_exception_of_a_single_call_has_no_replies(how):
    with pytest.raises(ExitEarlyError) as raised:
        await run_turn(Toolbox([Raising(ExitEarlyError())]), [call("raising")], how)
    assert raised.value.replies == []


async def test_cancelled_turn_cancels_its_calls_and_keeps_the_replies():
    metrics = InMemoryMetrics()
    started = asyncio.Event()

    async def sleep(_):
        started.set()
        await asyncio.sleep(60)

    box = Toolbox([AsyncFunction(sleep), AsyncEcho()], metrics=metrics)
    turn = asyncio.create_task(box.aexecute_all([call("async_echo"), call("function")]))
    await started.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await turn
    assert [reply.text for reply in raised.value.replies] == ["hi"]
    assert (metrics.count("function", "cancelled"), metrics.count("function", "error")) == (1, 0)


async def test_sync_methods_work_inside_a_running_loop():
    box = Toolbox([Echo(), AsyncEcho()])
    assert box.execute(call("async_echo")).text == "hi"
    assert [reply.text for reply in box.execute_all([call("async_echo"), call("echo")])] == ["hi", "hi"]


class Peak:
    """A counter of concurrent bodies; each waits until the expected others have begun."""

    def __init__(self, expected):
        self.expected = expected
        self.lock = threading.Lock()
        self.now = self.most = self.total = 0
        self.full = threading.Event()

    def enter(self):
        with self.lock:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)
            if self.now >= self.expected:
                self.full.set()

    def leave(self):
        with self.lock:
            self.now -= 1

    def sync(self, _):
        self.enter()
        self.full.wait(30)
        self.leave()

    async def awaited(self, _):
        self.enter()
        async with asyncio.timeout(30):
            while not self.full.is_set():
                await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        self.leave()


@both_ways
async def test_max_concurrency_limits_running_bodies(how):
    peak = Peak(expected=3)
    tools = [Function(peak.sync, name="sync"), AsyncFunction(peak.awaited, name="async")]
    calls = [call("sync"), call("async")] * 10
    await run_turn(Toolbox(tools, max_concurrency=3), calls, how)
    assert (peak.most, peak.total) == (3, 20)


async def test_max_concurrency_is_shared_by_threads_and_loops():
    peak = Peak(expected=2)
    box = Toolbox([Function(peak.sync, name="sync"), AsyncFunction(peak.awaited, name="async")], max_concurrency=2)
    calls = [call("sync"), call("async")] * 3
    turns = [asyncio.to_thread(box.execute_all, calls) for _ in range(3)]
    alone = [asyncio.to_thread(box.execute, call("sync")) for _ in range(3)]
    await asyncio.gather(*turns, *alone, box.aexecute_all(calls))
    assert (peak.most, peak.total) == (2, 27)


async def test_cancelled_waiter_releases_its_slot():
    opened = asyncio.Event()

    async def wait(_):
        await opened.wait()
        return "done"

    box = Toolbox([AsyncFunction(wait)], max_concurrency=1)
    first = asyncio.create_task(box.aexecute(call("function")))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(box.aexecute(call("function"))) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    opened.set()
    await first
    waiting[1].cancel()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(ends[0], asyncio.CancelledError)
    assert ends[2].text == "done"
    assert (await box.aexecute(call("function"))).text == "done"


INTERRUPTED = """
import asyncio, signal, threading
from concurrent.futures import ThreadPoolExecutor
from toolsemble import InMemoryMetrics, Tool, ToolCall, Toolbox

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
opened, metrics, threads = threading.Event(), InMemoryMetrics(), []

class Pool(ThreadPoolExecutor):
    def submit(self, *job):
        threads.append(super().submit(*job))
        return threads[-1]

async def nap(seconds):
    await asyncio.sleep(seconds)

class Echo(Tool):
    name = "echo"
    description = ""
    async def run(self, input):
        return input

class Sleep(Echo):
    name = "sleep"
    async def run(self, input):
        while metrics.count("echo", "success") < 2 or sum(not thread.done() for thread in threads) > 1:
            await nap(0.01)
        print("ready", flush=True)
        await nap(60)

calls = [ToolCall(name, {"input": "hi"}) for name in ("echo", "sleep", "echo")]
try:
    Toolbox([Echo(), Sleep()], metrics=metrics, executor=Pool()).execute_all(calls)
except KeyboardInterrupt as interrupt:
    ends = sum(metrics.count("sleep", each) for each in ("error", "cancelled"))
    print([reply.text for reply in interrupt.replies], ends)
opened.set()
"""
BLOCKING = INTERRUPTED.replace("async ", "").replace("await ", "").replace("asyncio.sleep", "opened.wait")


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("program", [INTERRUPTED, BLOCKING], ids=["async", "blocking"])
def test_ctrl_c_stops_a_sync_turn_and_keeps_the_replies(program):
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30)[0] == "['hi', 'hi'] 1\n"
        finally:
            process.kill()
    assert process.returncode == 0


def test_sync_turn_of_blocking_calls_needs_no_event_loop():
    program = textwrap.dedent(
        """
        import sys
        from toolsemble import Tool, ToolCall, Toolbox

        class Echo(Tool):
            name = "echo"
            description = ""
            def run(self, input):
                return input

        replies = Toolbox([Echo()]).execute_all([ToolCall("echo", {"input": text}) for text in "abc"])
        print([reply.text for reply in replies], "asyncio" in sys.modules)
        """
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "['a', 'b', 'c'] False\n"


async def test_second_cancellation_of_a_turn_waits_for_its_calls():
    began, opened, ended = asyncio.Event(), asyncio.Event(), []

    async def stubborn(_):
        began.set()
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await opened.wait()
        ended.append(1)

    box = Toolbox([AsyncFunction(stubborn), AsyncEcho()])
    turn = asyncio.create_task(box.aexecute_all([call("function"), call("async_echo")]))
    await began.wait()
    for _ in range(2):
        turn.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not turn.done()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert ended == [1]


def test_blocking_calls_see_only_the_callers_context_variables():
    variable = contextvars.ContextVar("variable")
    variable.set("caller")

    def run(text):
        before = variable.get()
        variable.set(text)
        return before

    replies = Toolbox([Function(run)]).execute_all([call("function", text) for text in "abc"])
    assert ([reply.text for reply in replies], variable.get()) == (["caller"] * 3, "caller")


def test_closed_executor_fails_the_calls_of_a_turn():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    replies = Toolbox([Echo()], executor=pool).execute_all([call(), call()])
    assert [reply.text for reply in replies] == ["Error: cannot schedule new futures after shutdown"] * 2


def test_awaitables_of_blocking_bodies_share_one_loop():
    arrived, turnstile = [], asyncio.Semaphore(1)

    async def meet(text):
        arrived.append(text)
        async with asyncio.timeout(30):
            while len(arrived) < 3:
                await asyncio.sleep(0.001)
        async with turnstile:
            await asyncio.sleep(0.001)
        return text

    replies = Toolbox([Function(meet)]).execute_all([call("function", text) for text in "abc"])
    assert [reply.text for reply in replies] == ["a", "b", "c"]


def test_exceptions_in_the_shared_loop_become_failures():
    async def fail(error):
        raise error

    raising = [ValueError("no such city"), ExitEarlyError("enough"), SystemExit(3)]
    box = Toolbox([Function(lambda text: fail(raising[int(text)]))])
    assert box.execute_all([call("function", "0")] * 2)[1].text == "Error: no such city"
    for number in (1, 2):
        with pytest.raises(type(raising[number])) as raised:
            box.execute_all([call("function", str(number)), call("function", "0")])
        assert [reply.text for reply in raised.value.replies] == ["Error: no such city"]


def test_executor_without_futures_fails_the_calls():
    class Odd(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):
            return None

    with Odd(1) as odd:
        replies = Toolbox([Echo()], executor=odd).execute_all([call(), call()])
    assert [reply.is_error for reply in replies] == [True, True]


def test_interrupted_turn_starts_no_queued_call(monkeypatch):
    class Interrupted(queue.SimpleQueue):
        def get(self):
            until(lambda: began)
            raise KeyboardInterrupt

    monkeypatch.setattr("toolsemble._tools.toolbox.toolbox.SimpleQueue", Interrupted)
    opened, began, metrics = threading.Event(), [], InMemoryMetrics()

    def run(text):
        began.append(text)
        opened.wait(30)

    with ThreadPoolExecutor(1) as pool:
        box = Toolbox([Function(run)], executor=pool, metrics=metrics)
        with pytest.raises(KeyboardInterrupt) as raised:
            box.execute_all([call("function", "a"), call("function", "b"), call("unknown")])
        opened.set()
    assert ([reply.name for reply in raised.value.replies], began) == (["unknown"], ["a"])
    assert metrics.count("function", "error") == 2


@pytest.fixture
def default_sigint():
    """Restore the default SIGINT handler: a shell may ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Interrupting(InMemoryMetrics):
    """Metrics that a keyboard interrupts while they count a success."""

    def increment_success(self, tool_name, agent_role):
        """Count it, and raise the signal."""
        super().increment_success(tool_name, agent_role)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("default_sigint")
@pytest.mark.parametrize("names", [["echo", "function"], ["function", "echo"]])
def test_interrupt_does_not_wait_for_other_calls(names):
    opened, metrics = threading.Event(), Interrupting()
    box = Toolbox([Echo(), Function(lambda _: str(opened.wait(30)))], metrics=metrics)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            box.execute_all([call(name) for name in names])
        assert not opened.is_set()
    finally:
        opened.set()
    assert [reply.text for reply in caught.value.replies] == ["hi"]
    assert (metrics.count("echo", "success"), metrics.count("function", "error")) == (1, 1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("default_sigint")
def test_interrupt_after_the_last_call_is_raised_with_all_replies():
    class Last(InMemoryMetrics):
        """Metrics that a keyboard interrupts when all is done."""

        def increment_success(self, tool_name, agent_role):
            super().increment_success(tool_name, agent_role)
            if self.count("echo", "success") == 2:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        Toolbox([Echo()], metrics=Last()).execute_all([call(), call()])
    assert [reply.text for reply in caught.value.replies] == ["hi", "hi"]


@pytest.mark.parametrize("tool", [Function, AsyncFunction])
async def test_turn_cancelled_before_its_calls_starts_none(tool):
    began = []

    async def arun(text):
        began.append(text)

    box = Toolbox([tool(began.append if tool is Function else arun)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await box.aexecute_all([call("function"), call("function")])
    assert began == []
