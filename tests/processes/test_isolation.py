"""Bodies in worker processes, which are killed, replaced and never left running."""

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers import isolated_tools as isolated
from helpers.isolated_tools import (
    AnyInput,
    Counter,
    Heavy,
    Method,
    Unreadable,
    call_context,
    die,
    eat,
    eat_freely,
    fail,
    hang,
    hang_with_daemon,
    memory_limits,
    sign_in,
    start_daemon,
    wait_for,
    where,
)
from helpers.sample_tools import AsyncFunction, Function
from helpers.stopped_clock import stop_time
from helpers.wait import LONG, alive, until
from toolsemble import (
    ExitEarlyError,
    InMemoryMetrics,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolPipeline,
    tool,
)
from toolsemble._engine.work.body import Job
from toolsemble._runtime.processes.pool import WORKERS, ProcessJob, Worker, WorkerDiedError, Workers
from toolsemble._runtime.processes.supervisor import descendants
from toolsemble._runtime.processes.worker import run_payload
from toolsemble._runtime.threads import SpareThreads

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]


def pid_of(result):
    assert result.is_success, result
    return result.structured_output["pid"]


def supervisor_of(result):
    """Return the pid of the supervisor of the process in which a body ran."""
    assert result.is_success, result
    return result.structured_output["parent"]


def test_body_runs_in_a_reused_worker_process():
    first, second = pid_of(where.execute("{}")), pid_of(asyncio.run(where.aexecute("{}")))
    assert first == second != os.getpid()
    assert alive(first)
    assert where.execute('{"text": "hello"}').structured_output["text"] == "hello"


def test_worker_imports_modules_added_after_its_start(tmp_path, monkeypatch):
    where.execute("{}")  # a process that has started
    (tmp_path / "later_module.py").write_text(
        "from toolsemble import tool\n@tool(isolation='process')\ndef late() -> str:\n    return 'found'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("later_module").late.execute("{}").text == "found"
    del sys.modules["later_module"]


def test_objects_and_methods_are_sent_with_their_state():
    assert Counter(40).execute("2").output == "42"
    assert Counter(40).execute("2").attributes == {"start": 40}
    box = Toolbox([Method(), Counter(1)])
    replies = box.execute_all([ToolCall("ask", {"number": 1}), ToolCall("counter", {"input": "1"})])
    assert [reply.text for reply in replies] == ["2", "2"]


def test_body_sees_a_copy_of_the_context():
    metrics = InMemoryMetrics()
    result = call_context.execute("{}", ToolContext(agent_role="writer", metrics=metrics))
    assert result.structured_output == {"tool": "call_context", "role": "writer", "deadline": None}
    assert metrics.count("call_context", "success") == 1
    assert metrics.counter("seen", "call_context") == 0


@pytest.mark.parametrize("way", ["sync", "async"])
def test_timeout_kills_the_process_and_its_children(way, tmp_path):
    where.execute("{}")  # a process that has started
    file = tmp_path / "pids"
    arguments = {"file": str(file)}
    box = Toolbox([hang])
    while not file.exists():  # on a slow machine its time may be up before it has begun
        call = ToolCall("hang", arguments)
        reply = box.execute(call) if way == "sync" else asyncio.run(box.aexecute(call))
        assert reply.text == "Error: Tool 'hang' timed out after 0.5 s"
    pids = [int(pid) for pid in file.read_text().split()]
    until(lambda: not any(map(alive, pids)))
    assert pid_of(where.execute("{}")) not in pids


async def test_cancellation_kills_the_process(tmp_path):
    file = tmp_path / "pid"
    task = asyncio.create_task(wait_for.aexecute({"file": str(file)}))
    async with asyncio.timeout(LONG):
        while not (file.exists() and file.read_text()):
            await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = int(file.read_text())
    await asyncio.to_thread(until, lambda: not alive(pid))


def test_interrupt_kills_the_process(tmp_path, monkeypatch):
    file = tmp_path / "pid"

    def interrupt(*_):
        until(lambda: file.exists() and file.read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr("toolsemble._engine.work.remote.wait_until", interrupt)
    with pytest.raises(KeyboardInterrupt):
        wait_for.execute({"file": str(file)})
    until(lambda: not alive(int(file.read_text())))


def daemon_of(file):
    """Return the pid of the daemon that a body has started, once it exists."""
    until(lambda: file.exists() and file.read_text())
    return int(file.read_text())


def test_timeout_kills_daemons_of_the_body(tmp_path):
    assert hang_with_daemon(tmp_path / "pid").error_message.startswith("Tool 'start_daemon' timed out after")
    pid = daemon_of(tmp_path / "pid")
    until(lambda: not alive(pid))


@pytest.mark.parametrize(
    ("then", "message"),
    [
        ("exit", "The worker process exited with 3 before the tool had ended"),
        ("SIGKILL", "The worker process was killed by SIGKILL before the tool had ended"),
        ("raise", "no more"),
    ],
)
def test_daemons_end_with_their_worker_process(then, message, tmp_path):
    result = start_daemon.execute({"file": str(tmp_path / "pid"), "then": then})
    assert result.error_message == message
    if then == "raise":
        WORKERS.close()
    pid = daemon_of(tmp_path / "pid")
    until(lambda: not alive(pid))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_daemons_end_with_the_calling_program(number, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        from helpers.isolated_tools import start_daemon

        if __name__ == "__main__":
            start_daemon.execute({"file": __file__ + ".pid", "then": "stay"})
        """)
    )
    env = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}"}
    with subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, env=env) as program:
        pid = daemon_of(Path(f"{script}.pid"))
        program.send_signal(number)
        program.communicate(timeout=LONG)
    until(lambda: not alive(pid))


def test_worker_that_cannot_fork_is_killed_with_its_daemons(tmp_path):
    done = run_script(
        """
        import threading
        from pathlib import Path
        from helpers.isolated_tools import hang_with_daemon

        threading.Thread(target=threading.Event().wait, daemon=True).start()  # in the worker, too
        if __name__ == "__main__":
            print(hang_with_daemon(Path(__file__ + ".pid")).text)
        """,
        tmp_path,
    )
    assert done.stdout.startswith("Error: Tool 'start_daemon' timed out after"), done
    pid = daemon_of(tmp_path / "script.py.pid")
    until(lambda: not alive(pid))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("SIGKILL", "The worker process was killed by SIGKILL before the tool had ended"),
        ("SIGSEGV", "The worker process was killed by SIGSEGV before the tool had ended"),
        ("exit", "The worker process exited with 3 before the tool had ended"),
        ("fork", "The worker process exited with 7 before the tool had ended"),
        ("close", "The worker process lost its connection before the tool had ended"),
    ],
)
def test_dead_worker_fails_its_call_and_is_replaced(how, message):
    assert die.execute({"how": how}).error_message == message
    assert where.execute("{}").is_success


def test_dead_idle_worker_is_replaced():
    pid = pid_of(where.execute("{}"))
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    assert pid_of(where.execute("{}")) != pid


def test_exception_is_returned_with_its_traceback(caplog):
    assert fail.execute({"kind": "value"}).error_message == "boom"
    assert "In the worker process:" in caplog.text
    assert fail.execute({"kind": "odd"}).error_message == "very odd"
    with pytest.raises(ExitEarlyError, match="enough"):
        fail.execute({"kind": "exit_early"})
    assert where.execute("{}").is_success


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("system_exit", "The tool raised SystemExit(5) in its worker process"),
        ("interrupt", "The tool raised KeyboardInterrupt in its worker process"),
    ],
)
def test_system_exit_in_a_worker_fails_the_call(kind, message):
    assert fail.execute({"kind": kind}).error_message == message
    assert asyncio.run(fail.aexecute({"kind": kind})).error_message == message
    assert where.execute("{}").is_success


def test_exceeding_max_memory_fails_the_call():
    message = "The tool needs more memory than its max_memory of 500000000 bytes"
    assert eat.execute({"size": 2_000_000_000}).error_message == message
    assert eat.execute({"size": 1_000_000}).output == "1000000"
    assert eat_freely.execute({"size": 600_000_000}).output == "600000000"  # the same process, without the limit


def test_body_can_lower_but_not_raise_the_memory_limit():
    limits = memory_limits.execute({"lower": False}).structured_output
    assert limits["soft"] == 500_000_000
    lowered = memory_limits.execute({"lower": True}).structured_output
    assert lowered["soft"] == lowered["hard"] == 400_000_000
    again = memory_limits.execute({"lower": False}).structured_output
    assert again["soft"] == 400_000_000
    WORKERS.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_memory": 10}, "max_memory needs a worker process; declare isolation='process'"),
        ({"max_memory": 0, "isolation": "process"}, "max_memory must be an int >= 1, not 0"),
        ({"max_memory": "1G", "isolation": "process"}, "max_memory must be an int >= 1, not '1G'"),
    ],
)
def test_rejects_invalid_max_memory(settings, message):
    with pytest.raises(ToolDefinitionError, match=message):
        Toolbox([Function(str, **settings)])


def test_rejects_max_memory_on_unsupported_systems(monkeypatch):
    monkeypatch.setattr("toolsemble._runtime.processes.memory_limit.SUPPORTED", False)
    with pytest.raises(ToolDefinitionError, match="max_memory is not supported on this system; remove it"):
        Toolbox([Function(str, max_memory=10, isolation="process")])


def test_unpicklable_input_fails_the_call():
    message = fail.execute({"kind": "lock"}).error_message
    assert message.startswith("The result cannot be sent back from the worker process: ")
    given = AnyInput()._define()
    for value, message in (
        (Heavy(), "cannot be sent to a worker process: too heavy"),
        (Unreadable(), "cannot read the call"),
    ):
        context = ToolContext(parameters=value)
        assert message in AnyInput().execute("x", context).error_message
    assert given.policy.isolation == "process"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: AsyncFunction(str, isolation="process"),
            "isolation='process' needs a blocking body, and this one is async",
        ),
        (lambda: Function(str, isolation="process", inline=True), "and this one is inline"),
        (lambda: Function(lambda _: _, isolation="process"), "needs a tool that can be pickled"),
        (lambda: tool(isolation="process")(lambda: ""), "A lambda has no name"),
        (lambda: tool("lambda", isolation="process")(lambda: ""), "needs a tool that can be pickled"),
        (lambda: isolated.write_parameters, "isolation='process' cannot be used with InvocationParameters"),
        (
            lambda: ToolPipeline("line", "", [Counter()], isolation="process"),
            "isolation needs a body; it consists of tools, so declare isolation on those",
        ),
    ],
)
def test_body_that_cannot_run_in_a_process_is_a_definition_error(made, message):
    with pytest.raises(ToolDefinitionError, match=message):
        Toolbox([made()])


def test_rejects_nested_function():
    @tool(isolation="process")
    def local() -> str:
        return ""

    class Local(Tool):
        name = "local"
        description = ""
        isolation = "process"

        def run(self, input):
            return input

    for made in (local, Local()):
        with pytest.raises(
            ToolDefinitionError, match="needs a tool that can be pickled, such as a function of a module"
        ):
            Toolbox([made])


def test_number_of_idle_workers_is_limited():
    workers = Workers(idle=1)
    try:
        first, second = workers.acquire(), workers.acquire()
        assert sorted(workers.pids()) == sorted([first.pid, second.pid])
        workers.release(first)
        workers.release(second)
        assert workers.pids() == [first.pid]
        until(lambda: not alive(second.pid))
        again = workers.acquire()
        assert again is first
    finally:
        workers.close()
    until(lambda: not alive(first.pid))
    workers.drop(first)
    workers.close()


def test_fork_forgets_the_workers_of_its_parent():
    workers = Workers()
    worker, other = workers.acquire(), workers.acquire()
    workers.release(other)
    workers._forget()
    assert workers.pids() == []
    until(lambda: not alive(worker.pid) and not alive(other.pid))  # no process is at the other end
    worker.end()
    other.end()


def test_starting_worker_is_left_to_the_next_call(monkeypatch):
    begin = Worker.begin

    def dawdle(worker, wanted):
        clock.advance(0.01)
        until(lambda: not wanted())
        return begin(worker, wanted)

    WORKERS.close()
    with monkeypatch.context() as patch:
        clock = stop_time(patch.setattr)
        patch.setattr(Worker, "begin", dawdle)
        result = where.execute("{}", ToolContext(deadline=time.monotonic() + 0.01))
    assert result.error_message.startswith("Tool 'where' timed")
    until(lambda: not WORKERS._busy)
    (pid,) = WORKERS.pids()
    assert supervisor_of(where.execute("{}")) == pid


@pytest.mark.parametrize("state", ["starting", "ready"])
def test_call_cancelled_before_its_body_keeps_the_worker(state):
    if state == "starting":
        WORKERS.close()
    else:
        where.execute("{}")
    errand = ProcessJob(b"")
    errand.cancel()
    assert errand() == [None, None]
    pids = WORKERS.pids()
    assert supervisor_of(where.execute("{}")) in pids


def test_failed_worker_start_closes_its_pipes(monkeypatch):
    before = len(list(Path("/proc/self/fd").iterdir()))

    def refuse(_):
        raise OSError("no more processes")

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", refuse)
    with pytest.raises(OSError, match="no more processes"):
        Worker()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_broken_pipe_is_a_dead_worker():
    worker = Worker()
    worker.kill()
    until(lambda: not alive(worker.pid))
    with pytest.raises(Exception, match="guard the entry point of a script with if __name__ == '__main__'"):
        worker.send(b"x" * 1_000_000)
    worker.end()
    worker.kill()  # it has already ended
    assert not worker.is_alive()


def test_dead_worker_is_detected_if_its_pipe_is_held_open(monkeypatch):
    worker = Worker()
    worker.kill()
    until(lambda: not alive(worker.pid))
    line = worker._connection
    monkeypatch.setattr(worker, "_connection", SimpleNamespace(poll=lambda _: False))
    with pytest.raises(WorkerDiedError, match="was killed by SIGKILL"):
        worker.receive(lambda: True)
    monkeypatch.setattr(worker, "_connection", line)
    worker.end()


def test_unresponsive_supervisor_is_killed(monkeypatch):
    worker = Worker()
    assert worker.begin(lambda: True)
    (inside,) = descendants(worker.pid)
    os.kill(worker.pid, signal.SIGSTOP)
    worker._connection.close()
    until(lambda: not alive(inside))
    monkeypatch.setattr("toolsemble._runtime.processes.pool._END_TIMEOUT", 0.2)
    worker.end()
    assert not alive(worker.pid)


def test_unreadable_payload_is_reported():
    import pickle

    returned, error = pickle.loads(run_payload(b"nonsense"))
    assert (returned, str(error).startswith("The worker process cannot read the call: ")) == (None, True)
    context = ToolContext(tool_name="counter")
    job = Job(Counter(1)._define(), "2", context, None)
    assert pickle.loads(run_payload(pickle.dumps(job)))[0].output == "3"


def run_script(text, *arguments):
    """Run a separate program, which has to end by itself."""
    code = textwrap.dedent(text)
    file = Path(arguments[0]) / "script.py"
    file.write_text(code)
    env = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}"}
    return subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=LONG, check=False, env=env
    )


def test_workers_end_with_the_program(tmp_path):
    done = run_script(
        """
        import threading
        from helpers.isolated_tools import where, wait_for

        if __name__ == "__main__":
            print(where.execute("{}").structured_output["pid"])
            threading.Thread(target=wait_for.execute, args=({"file": __file__ + ".pid"},), daemon=True).start()
            from pathlib import Path
            import time
            while not Path(__file__ + ".pid").exists():
                time.sleep(0.01)
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for pid in (int(done.stdout), int((tmp_path / "script.py.pid").read_text() or 0)):
        assert not alive(pid)


def test_fork_starts_its_own_workers(tmp_path):
    done = run_script(
        """
        import os, sys, warnings
        from helpers.isolated_tools import where

        # Python 3.12 warns of every fork beside threads.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

        def pid():
            return where.execute("{}").structured_output["pid"]

        if __name__ == "__main__":
            mine = pid()
            child = os.fork()
            if child == 0:
                print(pid() != mine, flush=True)
                sys.exit(0)
            os.waitpid(child, 0)
            print(pid() == mine)
        """,
        tmp_path,
    )
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")


def test_fork_waits_for_a_worker_that_is_starting(tmp_path):
    done = run_script(
        """
        import os, signal, sys, threading, warnings
        from multiprocessing import util
        from helpers.isolated_tools import where

        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        starting, forked = threading.Event(), threading.Event()
        spawn = util.spawnv_passfds

        def spawn_late(*arguments):
            # multiprocessing holds its locks here; a fork that did not wait would happen now.
            starting.set()
            forked.wait(0.5)
            return spawn(*arguments)

        if __name__ == "__main__":
            util.spawnv_passfds = spawn_late
            call = threading.Thread(target=where.execute, args=("{}",))
            call.start()
            starting.wait()
            child = os.fork()
            forked.set()
            if child == 0:
                signal.alarm(30)  # instead of hanging for ever
                os._exit(7 if where.execute("{}").is_success else 8)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            call.join()
        """,
        tmp_path,
    )
    assert (done.stdout.split(), done.stderr) == (["7"], "")


def test_missing_main_guard_error_has_a_hint(tmp_path):
    done = run_script(
        """
        from helpers.isolated_tools import where
        result = where.execute("{}")
        print(result.text)
        assert result.is_success
        """,
        tmp_path,
    )
    assert "guard the entry point of a script with if __name__ == '__main__'" in done.stdout


def test_many_calls_leave_no_processes_and_files(monkeypatch):
    monkeypatch.setattr("toolsemble._engine.work.remote.DAEMON_THREADS", SpareThreads(seconds=0.01))
    box = Toolbox([where, die])
    box.execute(ToolCall("where"))
    until(lambda: not WORKERS._busy)
    before = set(threading.enumerate())
    calls = [ToolCall("where") for _ in range(10)] + [ToolCall("die", {"how": "exit"}) for _ in range(2)]
    replies = box.execute_all(calls)
    assert [reply.is_error for reply in replies] == [False] * 10 + [True] * 2
    until(lambda: not WORKERS._busy)
    until(lambda: len(set(threading.enumerate()) - before) <= 1)
    assert len(WORKERS.pids()) <= WORKERS._max_idle
    WORKERS.close()
    assert WORKERS.pids() == []


def test_secrets_are_masked_in_worker_logs(tmp_path):
    file = tmp_path / "tool.log"
    assert sign_in.execute({"password": "hunter2-and-more", "file": str(file)}).output == "done"
    assert file.read_text() == "with **********\n"
