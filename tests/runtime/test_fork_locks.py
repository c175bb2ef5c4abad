"""A forked process works although a thread held a lock during the fork."""

import os

import pytest
from prometheus_client import CollectorRegistry

from helpers.full_disk import run_in_process
from toolsemble import InMemoryMetrics
from toolsemble._runtime.threads import renew_locks
from toolsemble.review import AutoApprove, RememberReview
from toolsemble.telemetry import PrometheusMetrics, TraceFile
from toolsemble.telemetry._prometheus import _REGISTRIES

HELD = """
    import os, signal, sys, threading, warnings
    from toolsemble import Cache, InMemoryMetrics, Toolbox, ToolCall, tool

    @tool(effects="read", cache=Cache(), max_concurrency=2)
    def shout(text: str) -> str:
        return text.upper()

    metrics = InMemoryMetrics()
    box = Toolbox([shout], metrics=metrics)
    cache = shout.cache
    owners = [metrics, cache.results, cache.flights]
    call = ToolCall("shout", {"text": sys.argv[1]})
    holds, go = threading.Event(), threading.Event()

    def hold():
        for owner in owners:
            owner._lock.acquire()
        holds.set()
        go.wait(60)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert holds.wait(60)
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # or it would wait for ever
        print(box.execute(call).text, metrics.count("shout", "success"), flush=True)
        os._exit(0)
    code = os.waitpid(child, 0)[1]
    go.set()
    thread.join(60)
    print(code)
"""


def test_fork_gets_a_new_lock():
    metrics = InMemoryMetrics()
    lock = metrics._lock
    renew_locks()
    assert metrics._lock is not lock
    metrics.increment_success("shout", "unknown")
    assert metrics.count("shout", "success") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX systems fork")
def test_fork_does_not_wait_for_locks_of_other_threads():
    assert run_in_process(HELD, "hello") == ["HELLO 1", "0"]


TRACED = """
    import os, signal, sys, threading, warnings
    from toolsemble import Toolbox, ToolCall, tool
    from toolsemble.telemetry import TraceFile, read_trace

    @tool
    def shout(text: str) -> str:
        return text.upper()

    box = Toolbox([shout], sinks=[TraceFile(sys.argv[1])])
    writes, go, write = threading.Event(), threading.Event(), os.write

    def held(file, data):
        writes.set()
        go.wait(60)
        return write(file, data)

    os.write = held
    box.execute(ToolCall("shout", {"text": "parent"}))
    assert writes.wait(60)
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # or it would wait for ever
        os.write = write
        box.execute(ToolCall("shout", {"text": "fork"}))
        print(box.flush(20), box.lost_events, flush=True)
        os._exit(0)
    go.set()
    code = os.waitpid(child, 0)[1]
    print(box.flush(20), code, sorted(call.text for call in read_trace(sys.argv[1]).calls))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX systems fork")
def test_fork_writes_traces_while_another_thread_writes(tmp_path):
    lines = run_in_process(TRACED, tmp_path / "trace.jsonl")
    assert lines == ["True 0", "True 0 ['FORK', 'PARENT']"]


@pytest.mark.parametrize(
    "owner",
    [
        RememberReview(AutoApprove()),
        TraceFile("trace.jsonl"),
        PrometheusMetrics(CollectorRegistry())._collectors,
        _REGISTRIES,
    ],
)
def test_all_shared_objects_get_new_locks_in_a_fork(owner):
    lock = owner._lock
    renew_locks()
    assert owner._lock is not lock
