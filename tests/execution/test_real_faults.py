"""Real faults in the middle of a turn: its replies stay one for each call, in order, and siblings are right."""

import asyncio
import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest

from helpers.full_disk import run_in_process, run_on_full_disk
from helpers.isolated_tools import fork, hang, wait_for
from helpers.sibling_calls import SIBLINGS, add_siblings, run_async, run_sync, texts_of_calls
from helpers.wait import LONG, alive, until
from toolsemble import InMemoryMetrics, Toolbox, ToolCall, tool
from toolsemble._runtime.event_loops import forget_dead_tasks
from toolsemble._runtime.locks import TABLE, Claim, Table
from toolsemble._runtime.processes.pool import WORKERS

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]


both_ways = pytest.mark.parametrize("way", [run_sync, run_async])


@pytest.fixture(autouse=True)
def assert_nothing_held():
    """Check that nothing is held after a test has ended."""
    yield
    forget_dead_tasks()
    until(lambda: not TABLE._held)
    assert TABLE.waiting == 0


@both_ways
def test_killed_workers_fail_only_their_own_calls(way, tmp_path):
    files = [tmp_path / "first", tmp_path / "second"]

    def kill():
        for file in files:
            until(lambda file=file: file.exists() and file.read_text())
            os.kill(int(file.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    calls = add_siblings(*(ToolCall("wait_for", {"file": str(file)}) for file in files))
    replies = way(Toolbox([*SIBLINGS, wait_for]), calls)
    killer.join(LONG)
    died = "Error: The worker process was killed by SIGKILL before the tool had ended"
    assert texts_of_calls(replies, calls) == [died, died]
    assert not any(alive(int(file.read_text())) for file in files)


@both_ways
def test_forked_children_block_nothing_and_end_with_their_worker(way, tmp_path):
    file, hung = tmp_path / "child", tmp_path / "hung"
    calls = add_siblings(ToolCall("fork", {"file": str(file)}), ToolCall("hang", {"file": str(hung)}))
    replies = way(Toolbox([*SIBLINGS, fork, hang]), calls)
    assert texts_of_calls(replies, calls) == [file.read_text(), "Error: Tool 'hang' timed out after 0.5 s"]
    until(lambda: not WORKERS._busy)
    WORKERS.close()
    pids = [file.read_text(), *(hung.read_text().split() if hung.exists() else ())]
    until(lambda: not any(map(alive, pids)))


@both_ways
@pytest.mark.usefixtures("impatient")
def test_blocking_sink_changes_no_reply_and_no_other_sink(way):
    opened, late, seen = threading.Event(), [], []

    def blocks(event):
        assert opened.wait(LONG)
        late.append(event)

    box = Toolbox(SIBLINGS, sinks=[blocks, seen.append])
    calls = add_siblings()
    try:
        assert texts_of_calls(way(box, calls), calls) == []
        until(lambda: len(seen) == 2 * len(calls))
        assert late == []
    finally:
        opened.set()
    assert box.flush(LONG)
    assert late == seen
    kinds = {
        kind: sorted(event.call_id for event in seen if event.kind == kind)
        for kind in ("call_started", "call_finished")
    }
    assert kinds == dict.fromkeys(kinds, sorted(call.id for call in calls))


@both_ways
def test_tools_that_ignore_cancellation_do_not_affect_other_calls(way):
    opened = threading.Event()

    @tool(timeout=0.05)
    async def stubborn() -> str:
        while not opened.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(LONG)
        return "late"

    @tool(timeout=0.05, inline=False)
    def stuck() -> str:
        assert opened.wait(LONG)
        return "late"

    metrics = InMemoryMetrics()
    box = Toolbox([*SIBLINGS, stubborn, stuck], metrics=metrics, max_concurrency=4)
    calls = add_siblings(ToolCall("stubborn"), ToolCall("stuck"))
    try:
        replies = way(box, calls)
    finally:
        opened.set()
    assert texts_of_calls(replies, calls) == [
        f"Error: Tool '{name}' timed out after 0.05 s" for name in ("stubborn", "stuck")
    ]
    assert (metrics.count("stubborn", "failure"), metrics.count("stuck", "failure")) == (1, 1)


@pytest.mark.skipif(os.name != "posix", reason="forks are POSIX's")
@both_ways
def test_forked_child_of_a_body_can_call_tools(way, tmp_path):
    printed = run_in_process(
        f"""
        import os, signal, sys, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
        from toolsemble import EffectLedger, Toolbox, ToolCall, tool
        from helpers.sibling_calls import SIBLINGS, add_siblings, texts_of_calls, {way.__name__}

        held, forked = threading.Event(), threading.Event()

        @tool(inline=False, max_concurrency=1, resources=lambda arguments: "faults:held")
        def hold() -> str:
            held.set()
            assert forked.wait(60)
            return "held"

        @tool(inline=False, max_concurrency=1, resources=lambda arguments: "faults:held")
        def same() -> str:
            return "same"

        @tool(effects="read", cache=True)
        def look() -> str:
            return "looked"

        @tool(effects="write", idempotency=True)
        def pay(order: int) -> str:
            return f"paid {{order}}"

        @tool(inline=False, max_concurrency=2)
        def split() -> str:
            assert held.wait(60)
            child = os.fork()
            if child == 0:
                signal.alarm(30)  # a hanging child must end, too
                calls = add_siblings(ToolCall("same"), ToolCall("look"), ToolCall("pay", {{"order": 1}}))
                right = texts_of_calls({way.__name__}(box, calls), calls) == ["same", "looked", "paid 1"]
                os._exit(7 if right else 8)
            status = os.waitpid(child, 0)[1]
            forked.set()
            return f"child {{os.waitstatus_to_exitcode(status)}}"

        if __name__ == "__main__":
            with EffectLedger(sys.argv[1]) as ledger:
                tools = [*SIBLINGS, hold, same, look, pay, split]
                box = Toolbox(tools, max_concurrency=4, ledger=ledger, sinks=[[].append])
                more = [ToolCall("look"), ToolCall("pay", {{"order": 2}})]
                calls = add_siblings(ToolCall("hold"), ToolCall("split"), more=more)
                print(texts_of_calls({way.__name__}(box, calls), calls))
        """,
        tmp_path / "effects.db",
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert printed == ["['held', 'child 7', 'looked', 'paid 2']"]


def test_fork_resets_the_lock_table():
    table = Table()
    held, waits = Claim(["file"]), Claim(["file"])
    assert (table.acquire(held), table.acquire(waits), table.waiting) == (True, False, 1)
    table.reset()
    assert (table.waiting, table.acquire(Claim(["file"]))) == (0, True)
    table.release(held)  # the call in which the fork was made ends there, too
    assert not table.acquire(Claim(["file"]))


@pytest.mark.parametrize("kind", ["limit", "disk"])
@both_ways
def test_full_disk_does_not_affect_other_calls_and_old_results(way, kind, tmp_path):
    printed = run_on_full_disk(
        kind,
        f"""
        import os, sys
        sys.path.insert(0, {str(TESTS)!r})
        from toolsemble import Cache, EffectLedger, Toolbox, ToolCall, tool
        from toolsemble.telemetry import TraceFile, read_trace
        from helpers.sibling_calls import SIBLINGS, add_siblings, texts_of_calls, {way.__name__}
        folder, made = sys.argv[1], []
        cache = Cache(store=folder + "/cache.db")

        @tool(effects="read", cache=cache)
        def look(what: str) -> str:
            made.append(what)
            return what * 40_000

        @tool(effects="write", idempotency=True)
        def pay(order: int, note: str = "x" * 1500) -> str:
            made.append(order)
            return f"paid {{order}}"

        def turn(*calls, more=()):
            turn = add_siblings(*calls, more=more)
            return texts_of_calls(box.execute_all(turn, run_id="1") if {way is run_sync} else run(turn), turn)

        def run(calls):
            import asyncio
            return asyncio.run(box.aexecute_all(calls, run_id="1"))

        with EffectLedger(folder + "/effects.db") as ledger:
            trace = folder + "/trace.jsonl"
            box = Toolbox([*SIBLINGS, look, pay], ledger=ledger, sinks=[TraceFile(trace)])
            old = [ToolCall("look", {{"what": "a"}}), ToolCall("pay", {{"order": -1}})]
            print([len(text) for text in turn(*old)], sorted(map(str, made)))
            fill(folder)
            new = [ToolCall("pay", {{"order": order}}) for order in range(100)]
            first, second, third, *paid = turn(*old, ToolCall("look", {{"what": "b"}}), more=new)
            print(len(first), second, len(third), made.count("a"), made.count(-1), made.count("b"))
            done = [f"paid {{order}}" for order in range(100) if order in made]
            print([text for text in paid if text.startswith("paid")] == done, len(done) < 100)
            print(len(made) == len(set(made)))
            print({{text[:30] for text in paid if not text.startswith("paid")}})
            print(len(read_trace(trace).events) > 0, read_trace(trace).unreadable)
        cache.close()
        """,
        tmp_path,
    )
    assert printed == [
        "[40000, 7] ['-1', 'a']",
        "40000 paid -1 40000 1 1 1",
        "True True",
        "True",
        "{'Error: The call was not made: '}",
        "True ()",
    ]


LEAKS = """
    import asyncio, gc, os, sys, threading, time
    from pathlib import Path
    from toolsemble import Cache, EffectLedger, InMemoryMetrics, Toolbox, ToolCall, tool
    from toolsemble._runtime.processes.pool import WORKERS
    from toolsemble.telemetry import TraceFile
    from toolsemble._engine.work.timeout import DAEMON_THREADS
    from helpers.isolated_tools import die, where

    folder = Path(sys.argv[1])
    DAEMON_THREADS._seconds = 0.1  # for how long a thread waits for another job

    def children():
        found = []
        for file in Path("/proc").glob("[0-9]*/stat"):
            try:
                found.append(int(file.read_text().rpartition(")")[2].split()[1]))
            except OSError:
                pass
        return found.count(os.getpid())

    def counted():
        gc.collect()
        return threading.active_count(), children(), len(os.listdir("/proc/self/fd"))

    def settled(enough):
        ends = time.monotonic() + 30
        while not enough(*(now := counted())) and time.monotonic() < ends:
            time.sleep(0.05)  # threads that have nothing to do are about to end
        return now

    @tool
    def echo(text: str) -> str:
        return text

    @tool(inline=False)
    def shout(text: str) -> str:
        return text.upper()

    @tool
    async def later(text: str) -> str:
        await asyncio.sleep(0)
        return text

    @tool(timeout=0.01)
    async def late() -> str:
        await asyncio.Event().wait()

    @tool(timeout=0.01, inline=False)
    def stuck() -> str:
        time.sleep(0.03)  # its thread goes on when its time is up

    @tool(effects="write", idempotency=True)
    def pay(order: int) -> str:
        return "paid"

    def plain(box, count):
        calls = [ToolCall(name, {"text": "a"}) for name in ("echo", "shout", "later", "echo", "missing") * 2]
        failed = 0
        for _ in range(count // 20):
            failed += sum(reply.is_error for reply in box.execute_all(calls))
            failed += sum(reply.is_error for reply in asyncio.run(box.aexecute_all(calls)))
        return failed

    def odd(box, count):
        calls = [ToolCall("late"), ToolCall("stuck"), ToolCall("where"), ToolCall("look", {"page": 1})]
        for number in range(count):
            box.execute_all([*calls, ToolCall("pay", {"order": number})])
            box.execute(ToolCall("look", {"page": number}))
        return box.execute(ToolCall("die", {"how": "exit"})).is_error

    def round(count, some):
        cache = Cache(store=folder / "cache.db")

        @tool(effects="read", cache=cache)
        def look(page: int) -> str:
            return str(page)

        with EffectLedger(folder / "effects.db") as ledger:
            tools = [echo, shout, later, late, stuck, pay, look, where, die]
            failed = plain(Toolbox(tools, ledger=ledger), count)
            sinks = [TraceFile(folder / "trace.jsonl"), [].append]
            box = Toolbox(tools, ledger=ledger, sinks=sinks, metrics=InMemoryMetrics(), max_concurrency=20)
            assert odd(box, some)
            assert box.flush(60)
        cache.close()
        WORKERS.close()
        return failed

    if __name__ == "__main__":
        alone = threading.active_count()
        round(40, 4)
        before = settled(lambda threads, *_: threads == alone)
        print(round(10_000, 60))
        print(settled(lambda *now: now == before) == before or (before, counted()))
    """


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what a process has open is counted in /proc")
def test_ten_thousand_calls_leave_no_thread_process_or_file_behind(tmp_path):
    printed = run_in_process(LEAKS, tmp_path, env={**os.environ, "PYTHONPATH": str(TESTS)}, timeout=100)
    assert printed == ["2000", "True"]
