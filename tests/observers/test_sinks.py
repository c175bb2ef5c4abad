"""Sinks that are slow, broken, full or forked: calls go on, and order is kept."""

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

from helpers.sample_tools import AsyncEcho, Echo
from toolsemble import InMemoryMetrics, Tool, Toolbox, ToolCall, ToolDefinitionError
from toolsemble._runtime import sinks as sinks_module
from toolsemble._runtime.watchers import tell
from toolsemble.telemetry import BatchSink, ScopedSink, Sink
from toolsemble.testing import RecordingSink

pytestmark = pytest.mark.slow
impatient = pytest.mark.usefixtures("impatient")

CALL = ToolCall("echo", {"input": "x"}, "c1")
BOTH = ["call_started", "call_finished"]


def sink_threads():
    return [thread for thread in threading.enumerate() if thread.name == "toolsemble-sink"]


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def wait_until(true, seconds=30):
    """Wait for something that another thread does, for which there is no event."""
    ready = threading.Event()
    for _ in range(int(seconds * 100)):
        if true():
            return
        ready.wait(0.01)
    raise AssertionError("it did not happen in time")


class BlockingSink:
    """A sink that waits until it is let go."""

    def __init__(self):
        self.go = threading.Event()
        self.reached = threading.Event()
        self.seen = []

    def emit(self, event):
        self.reached.set()
        assert self.go.wait(60)
        self.seen.append(event)


@pytest.fixture
def blocking_sink():
    sink = BlockingSink()
    yield sink
    sink.go.set()


def test_all_events_have_arrived_after_the_call():
    seen = []
    box = Toolbox([Echo()], sinks=[seen.append])
    for number in range(50):
        box.execute(CALL)
        assert [event.kind for event in seen] == BOTH * (number + 1)


async def test_all_events_have_arrived_after_an_async_call():
    seen = []
    box = Toolbox([AsyncEcho()], sinks=[seen.append])
    await box.aexecute(ToolCall("async_echo", {"input": "x"}))
    await box.aexecute_all([ToolCall("async_echo", {"input": "x"})] * 3)
    assert sorted(event.kind for event in seen) == sorted(BOTH * 4)


def test_all_events_have_arrived_after_a_turn():
    seen = []
    Toolbox([Echo()], sinks=[seen.append]).execute_all([CALL, CALL])
    assert sorted(event.kind for event in seen) == sorted(BOTH * 2)


def test_sinks_can_be_objects_callables_or_coroutine_functions():
    seen = []

    class Object:
        def emit(self, event):
            seen.append("object")

    class Called:
        def __call__(self, event):
            seen.append("called")

    async def later(event):
        await asyncio.sleep(0)
        seen.append("later")

    box = Toolbox([Echo()], sinks=[Object(), Called(), later, lambda _: seen.append("function")])
    box.execute(CALL)
    assert box.flush(60)
    assert sorted(seen) == sorted(["object", "called", "later", "function"] * 2)


def test_sink_receives_events_in_order_in_its_own_thread():
    threads, seen = set(), []

    def sink(event):
        threads.add(threading.current_thread().name)
        seen.append(event)

    class Chatty(Tool):
        name = "chatty"
        description = "Says a lot"

        def run(self, input):
            for number in range(100):
                self.progress(None, str(number))

    Toolbox([Chatty()], sinks=[sink]).execute(ToolCall("chatty", {"input": "x"}))
    assert [event.message for event in seen[1:-1]] == [str(number) for number in range(100)]
    assert threads == {"toolsemble-sink"}


def test_inline_sink_receives_events_in_the_callers_thread():
    class Inline:
        inline = True

        def __init__(self):
            self.threads = []

        def emit(self, event):
            self.threads.append(threading.current_thread())

    sink = Inline()
    Toolbox([Echo()], sinks=[sink]).execute(CALL)
    assert sink.threads == [threading.current_thread()] * 2


@pytest.mark.parametrize("inline", [False, True])
def test_raising_sink_is_logged_once(inline, caplog):
    class Broken:
        def __init__(self):
            self.inline = inline
            self.calls = 0

        def emit(self, event):
            self.calls += 1
            raise ValueError("no")

    sink, seen = Broken(), []
    box = Toolbox([Echo()], sinks=[sink, seen.append])
    for _ in range(3):
        assert box.execute(CALL).text == "x"
    assert (sink.calls, len(seen)) == (6, 6)
    assert caplog.text.count("A sink failed") == 1


@impatient
def test_blocking_sink_delays_no_call_for_long(blocking_sink):
    seen = []
    box = Toolbox([Echo()], sinks=[blocking_sink, seen.append])
    for _ in range(200):  # each would time out if the sink were not known to be late
        assert box.execute(CALL).text == "x"
    wait_until(lambda: len(seen) == 400)
    assert (blocking_sink.seen, box.flush(0.01)) == ([], False)
    blocking_sink.go.set()
    assert box.flush(60)
    assert [event.kind for event in blocking_sink.seen] == BOTH * 200


@impatient
async def test_blocking_sink_does_not_block_the_event_loop(blocking_sink):
    box = Toolbox([AsyncEcho()], sinks=[blocking_sink])
    call, ticks = ToolCall("async_echo", {"input": "x"}), 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await box.aexecute(call)
    await box.aexecute_all([call, call])
    ticking.cancel()
    assert ticks > 0
    assert blocking_sink.seen == []


@impatient
def test_slow_sink_is_waited_for_again_after_catching_up(blocking_sink):
    box = Toolbox([Echo()], sinks=[blocking_sink])
    box.execute(CALL)
    assert blocking_sink.seen == []
    blocking_sink.go.set()
    assert box.flush(60)
    wait_until(lambda: len(blocking_sink.seen) == 2)
    box.execute(CALL)
    box.execute(CALL)
    assert box.flush(60)
    assert len(blocking_sink.seen) == 6


@impatient
def test_slow_sink_drops_and_counts_events(blocking_sink, monkeypatch, caplog):
    monkeypatch.setattr(sinks_module, "CAPACITY", 3)
    box = Toolbox([Echo()], sinks=[blocking_sink])
    for _ in range(10):
        box.execute(CALL)
    lost = box.lost_events
    blocking_sink.go.set()
    assert box.flush(60)
    assert len(blocking_sink.seen) + lost == 20
    assert lost > 0
    assert caplog.text.count("A sink is too slow, events are lost") == 1


def test_flush_without_sinks_returns_at_once():
    box = Toolbox([Echo()])
    assert (box.flush(0), box.lost_events) == (True, 0)


def test_idle_sink_thread_ends():
    seen = []
    box = Toolbox([Echo()], sinks=[seen.append])
    box.execute(CALL)
    wait_until(lambda: not sink_threads())
    box.execute(CALL)
    assert len(seen) == 4


def test_sink_is_freed_with_its_toolbox():
    class Sink:
        def emit(self, event):
            pass

    sink = Sink()
    gone = weakref.ref(sink)
    Toolbox([Echo()], sinks=[sink]).execute(CALL)
    del sink
    wait_until(lambda: gc.collect() is not None and gone() is None)


def test_many_calls_leave_no_threads_and_files():
    wait_until(lambda: not sink_threads())
    before = threading.active_count(), open_files()
    box = Toolbox([Echo()], sinks=[lambda _: None, lambda _: None])
    for _ in range(2000):
        box.execute(CALL)
    # Fewer than before is as good: what earlier tests left may end meanwhile.
    wait_until(lambda: threading.active_count() <= before[0] and open_files() <= before[1])


@impatient
def test_calls_made_by_a_sink_emit_no_events():
    seen = []

    def sink(event):
        seen.append(event)
        box.execute(CALL)

    class Inline:
        inline = True

        def emit(self, event):
            seen.append(event)
            box.execute(CALL)

    for each in (sink, Inline()):
        seen.clear()
        box = Toolbox([Echo()], sinks=[each])
        box.execute(CALL)
        assert box.flush(60)
        assert len(seen) == 2


def test_bound_methods_of_one_object_are_one_sink():
    seen = []

    class Sink:
        def take(self, event):
            seen.append(event)

    sink = Sink()
    Toolbox([Echo()], sinks=[sink.take, sink.take, seen.append, seen.append]).execute(CALL)
    assert len(seen) == 4


def test_concurrent_threads_lose_no_events():
    seen = []
    box = Toolbox([Echo()], sinks=[seen.append])

    def work():
        for _ in range(100):
            box.execute(CALL)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert box.flush(60)
    assert len(seen) == 1600


def _run_in_fork(box, seen, pipe):
    before = len(seen)
    box.execute(CALL)
    flushed = box.flush(30)
    pipe.send((before, [event.kind for event in seen[before:]], flushed))
    pipe.close()


@impatient
def test_fork_starts_its_own_thread_with_an_empty_queue(blocking_sink):
    seen = []
    box = Toolbox([Echo()], sinks=[seen.append, blocking_sink])
    box.execute(CALL)
    wait_until(lambda: len(seen) == 2)
    blocking_sink.go.set()  # the child's copy is open, too
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_run_in_fork, args=(box, seen, theirs))
    child.start()
    theirs.close()
    assert ours.poll(60)
    assert ours.recv() == (2, BOTH, True)
    child.join(60)
    ours.close()
    child.close()
    assert box.flush(60)
    assert len(seen) == 2


def test_program_ends_with_a_blocked_sink():
    program = (
        "import threading; from toolsemble import Tool, Toolbox, ToolCall\n"
        "class Echo(Tool):\n    name = 'echo'; description = ''\n    def run(self, input): return input\n"
        "box = Toolbox([Echo()], sinks=[lambda _: threading.Event().wait()])\n"
        "print(box.execute(ToolCall('echo', {'input': 'x'})).text)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("x\n", "")


@impatient
def test_failed_thread_start_is_retried(monkeypatch):
    seen, start = [], threading.Thread.start

    def refuse(self):
        raise RuntimeError("can't start new thread")

    box = Toolbox([Echo()], sinks=[seen.append])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert box.execute(CALL).text == "x"
    assert seen == []
    monkeypatch.setattr(threading.Thread, "start", start)
    assert box.flush(60)
    assert len(seen) == 2


def test_system_exit_in_a_sink_does_not_stop_its_thread():
    seen = []

    def sink(event):
        seen.append(event)
        raise SystemExit

    Toolbox([Echo()], sinks=[sink]).execute(CALL)
    assert len(seen) == 2


async def test_cancelled_call_does_not_stop_its_sink(blocking_sink):
    box = Toolbox([AsyncEcho()], sinks=[blocking_sink])
    task = asyncio.create_task(box.aexecute(ToolCall("async_echo", {"input": "x"})))
    await asyncio.to_thread(blocking_sink.reached.wait, 30)
    task.cancel()
    await asyncio.wait([task], timeout=30)
    blocking_sink.go.set()
    assert await asyncio.to_thread(box.flush, 60)
    assert [event.kind for event in blocking_sink.seen] == BOTH


@impatient
def test_waiting_for_a_sink_can_be_interrupted(blocking_sink):
    box = Toolbox([Echo()], sinks=[blocking_sink])
    box.execute(CALL)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        box.flush(60)


async def _receive_async(event):
    """Take an event, later."""


async def _emit_async(self, event):
    """Take an event, later."""


NO_SINKS = [
    (print, r"Toolbox sinks must be a list of sinks, not <built-in function print>"),
    ("sink", r"Toolbox sinks must be a list of sinks, not 'sink'"),
    ([None], r"Toolbox sinks\[0\] must be a function of an event, or have emit\(event\), not None"),
    ([print, 3], r"Toolbox sinks\[1\] must be a function of an event, or have emit\(event\), not 3"),
    ([BlockingSink], r"Toolbox sinks\[0\] \(BlockingSink\) is a class; pass an instance: BlockingSink\(...\)"),
    (
        [type("Late", (), {"inline": True, "emit": _emit_async})()],
        r"is async and cannot be inline; remove the attribute inline",
    ),
    (
        [type("Late", (), {"inline": True, "__call__": _emit_async})()],
        r"is async and cannot be inline; remove the attribute inline",
    ),
]


@pytest.mark.parametrize(("sinks", "problem"), NO_SINKS)
def test_rejects_invalid_sink(sinks, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        Toolbox([Echo()], sinks=sinks)


def test_inline_must_be_true_to_be_inline():
    class Odd:
        inline = "yes"

        def __init__(self):
            self.threads = []

        def emit(self, event):
            self.threads.append(threading.current_thread().name)

    sink = Odd()
    Toolbox([Echo()], sinks=[sink]).execute(CALL)
    assert sink.threads == ["toolsemble-sink"] * 2


def test_no_events_outside_of_calls():
    seen = []
    Toolbox([Echo()], sinks=[seen.append])
    tell("outside of calls")
    assert seen == []


def test_sink_with_emit_all_gets_all_waiting_events_in_order(impatient):
    begun, go = threading.Event(), threading.Event()

    class Batches:
        def __init__(self):
            self.batches = []

        def emit(self, event):
            raise AssertionError("emit_all is used")

        def emit_all(self, events):
            self.batches.append([event.kind for event in events])
            begun.set()
            assert go.wait(60)

    sink = Batches()
    box = Toolbox([Echo()], sinks=[sink])
    box.execute(ToolCall("echo", {"input": "x"}))
    assert begun.wait(60)
    for _ in range(3):
        box.execute(ToolCall("echo", {"input": "x"}))
    go.set()
    assert box.flush(60)
    kinds = [kind for batch in sink.batches for kind in batch]
    assert kinds == ["call_started", "call_finished"] * 4
    assert len(sink.batches) < len(kinds)


def test_failing_batch_is_logged_and_the_next_one_arrives(caplog):
    class Broken:
        seen = 0

        def emit(self, event):
            """Be a sink."""

        def emit_all(self, events):
            self.seen += 1
            raise OSError("no space")

    sink = Broken()
    box = Toolbox([Echo()], sinks=[sink])
    box.execute(ToolCall("echo", {"input": "x"}))
    assert box.flush(60)
    before = sink.seen
    box.execute(ToolCall("echo", {"input": "x"}))
    assert box.flush(60)
    assert sink.seen > before
    assert "no space" in caplog.text


class Threads(Sink):
    """A sink that records the kinds of its events, and the threads in which it receives them."""

    def __init__(self):
        self.kinds = []
        self.threads = set()

    def emit(self, event):
        self.kinds.append(event.kind)
        self.threads.add(threading.current_thread().name)


def test_sink_of_the_base_class_has_a_thread_of_its_own():
    sink = Threads()
    box = Toolbox([Echo()], sinks=[sink])
    box.execute(CALL)
    assert box.flush(60)
    assert (sink.kinds, sink.threads) == (BOTH, {"toolsemble-sink"})


def test_inline_sink_of_the_base_class_runs_in_the_thread_of_the_call():
    sink = Threads()
    sink.inline = True
    Toolbox([Echo()], sinks=[sink]).execute(CALL)
    assert (sink.kinds, sink.threads) == (BOTH, {threading.current_thread().name})


def test_sinks_of_the_base_class_with_equal_keys_are_one_sink():
    first, second, other = Threads(), Threads(), Threads()
    first.sink_key = second.sink_key = ("file", "a.log")
    box = Toolbox([Echo()], sinks=[first, second, other])
    box.execute(CALL)
    assert box.flush(60)
    assert (first.kinds, second.kinds, other.kinds) == (BOTH, [], BOTH)


def test_batch_sink_receives_lists_and_inline_lists_of_one():
    class Batches(BatchSink):
        def __init__(self, *, inline):
            self.inline = inline
            self.batches = []

        def emit_all(self, events):
            self.batches.append([event.kind for event in events])

    queued, inline = Batches(inline=False), Batches(inline=True)
    box = Toolbox([Echo()], sinks=[queued, inline])
    box.execute(CALL)
    assert box.flush(60)
    assert [kind for batch in queued.batches for kind in batch] == BOTH
    assert inline.batches == [[kind] for kind in BOTH]


def test_batch_sink_may_be_async():
    class Later(BatchSink):
        def __init__(self):
            self.kinds = []

        async def emit_all(self, events):
            await asyncio.sleep(0)
            self.kinds += [event.kind for event in events]

    sink = Later()
    box = Toolbox([Echo()], sinks=[sink])
    box.execute(CALL)
    assert box.flush(60)
    assert sink.kinds == BOTH


class Chatty(Tool):
    name = "chatty"
    description = "Reports its progress"

    def run(self, input):
        self.progress(0.5, input)


def test_scoped_sink_receives_the_events_between_start_and_end_and_overrides_what_it_needs():
    class Between(ScopedSink):
        def __init__(self):
            self.kinds = []

        def emit(self, event):
            self.kinds.append(event.kind)

    class Ends(ScopedSink):
        def __init__(self):
            self.seen = []

        def begin(self, context):
            return lambda finished: self.seen.append((context.tool_name, finished.outcome))

    between, ends = Between(), Ends()
    Toolbox([Chatty()], sinks=[between, ends]).execute(ToolCall("chatty", {"input": "half"}))
    assert (between.kinds, ends.seen) == (["call_progress"], [("chatty", "success")])


def test_metrics_of_a_scoped_sink_count_calls():
    class Counting(ScopedSink):
        def __init__(self, metrics):
            self.metrics = metrics

    metrics = InMemoryMetrics()
    Toolbox([Echo()], sinks=[Counting(metrics), Counting("no metrics")]).execute(CALL)
    assert metrics.count("echo", "success") == 1


def test_async_sink_of_the_base_class_cannot_be_inline():
    class Later(Sink):
        inline = True

        async def emit(self, event):
            """Be a sink."""

    with pytest.raises(ToolDefinitionError, match="is async and cannot be inline; remove the attribute inline"):
        Toolbox([Echo()], sinks=[Later()])


@pytest.mark.parametrize("base", [Sink, BatchSink])
def test_base_class_without_its_method_cannot_be_created(base):
    with pytest.raises(TypeError, match="emit"):
        base()


def test_failing_foreign_sink_is_logged_with_its_own_name(caplog):
    class Broken:
        inline = True

        def emit(self, event):
            raise OSError("no space")

        def __repr__(self):
            return "<the broken sink>"

    Toolbox([Echo()], sinks=[Broken()]).execute(CALL)
    assert "A sink failed: <the broken sink>" in caplog.text


def test_sink_of_another_class_that_has_more_methods_is_used_with_them():
    class Scoped(RecordingSink):
        def begin(self, context):
            return self.emit

    sink = Scoped()
    inner = Toolbox([Echo()], sinks=[sink])

    class Outer(Tool):
        name = "outer"
        description = "Calls another tool"

        def run(self, input):
            return inner.execute(CALL).text

    Toolbox([Outer()], sinks=[sink]).execute(ToolCall("outer", {"input": "x"}))
    assert [each.outcome for each in sink.events] == ["success", "success"]
