"""The supervisor, which kills a process with all its descendants."""

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.wait import LONG, alive, ignored_signals, read_mask, until
from toolsemble._runtime.processes import supervisor, worker

pytestmark = pytest.mark.slow

context = multiprocessing.get_context("spawn")


def run_in_process(function, *arguments):
    """Run a function that waits for all its children in a separate process."""
    process = context.Process(target=function, args=arguments)
    process.start()
    process.join(LONG)
    assert process.exitcode == 0


def start_sleeping_daemon(file):
    """Become a daemon that sleeps."""
    if os.fork() == 0:
        os.setsid()
        Path(f"{file}.new").write_text(str(os.getpid()))
        Path(f"{file}.new").rename(file)
        time.sleep(LONG)
    os._exit(0)


def supervise_daemon(file, then, daemons):
    """Supervise a process that starts a daemon; it ends by itself, or at the stop signal."""
    stop_pipe, line = os.pipe()
    child = supervisor.fork()
    if child == 0:
        if then != "orphan":
            os.setsid()
        if os.fork() == 0:
            start_sleeping_daemon(file)
        until(Path(file).exists)
        if then == "orphan":  # one that has been adopted ends before
            os.kill(int(Path(file).read_text()), signal.SIGKILL)
            until(lambda: not Path(f"/proc/{Path(file).read_text()}").exists())
        if then in {"end", "orphan"}:
            os._exit(5)
        time.sleep(LONG)
    if then == "stop":
        threading.Thread(target=lambda: (until(Path(file).exists), os.write(line, b"end"))).start()
    status = supervisor.supervise(child, stop_pipe, daemons=daemons)
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if then == "stop" else 5)
    assert bool(supervisor.descendants(os.getpid())) == daemons
    supervisor.end_all()
    os.close(stop_pipe)
    os.close(line)


@pytest.mark.parametrize(("then", "daemons"), [("end", True), ("end", False), ("orphan", False), ("stop", False)])
def test_descendants_are_killed_with_the_child_or_at_the_stop_signal(then, daemons, tmp_path):
    file = tmp_path / "pid"
    run_in_process(supervise_daemon, str(file), then, daemons)
    assert not alive(int(file.read_text()))


def kill_unkillable(case):
    """End descendants that cannot be killed or listed."""
    if os.fork() == 0:
        time.sleep(LONG)
    patience, kill = supervisor._KILL_TIMEOUT, supervisor.kill
    if case == "forbidden":
        supervisor.kill = lambda family: False
    else:
        supervisor._KILL_TIMEOUT = 0.2
        supervisor.kill = lambda family: True
    assert supervisor.end_all() == 0
    assert len(supervisor.descendants(os.getpid())) == 1
    supervisor._KILL_TIMEOUT, supervisor.kill = patience, kill
    supervisor.end_all()


@pytest.mark.parametrize("case", ["forbidden", "unkillable"])
def test_unkillable_descendants_do_not_block_the_supervisor(case):
    run_in_process(kill_unkillable, case)


def kill_without_lists():
    """End descendants where the kernel lists no children of a process."""
    supervisor.adopt_orphans()
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(LONG)
        time.sleep(LONG)
    exists, listdir = os.path.exists, os.listdir
    os.listdir = lambda path: [*listdir(path), "999999999"]  # one that ends while it is looked at
    os.path.exists = lambda path: not str(path).endswith("/children") and exists(path)
    until(lambda: len(supervisor.descendants(os.getpid())) == 2)
    assert supervisor.end_all() == 0
    assert supervisor.descendants(os.getpid()) == []


def test_descendants_are_found_without_lists_of_children():
    run_in_process(kill_without_lists)


def test_children_are_found_although_a_thread_ends_while_it_is_looked_at(monkeypatch):
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: ["999999999", *listdir(path)])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in supervisor.descendants(os.getpid())


def test_ended_processes_and_processes_of_other_users_are_skipped(monkeypatch):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert supervisor.kill([ended.pid])
    assert supervisor.descendants(ended.pid) == []

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    monkeypatch.setattr(os, "getpgid", lambda pid: pid + 1)
    assert not supervisor.kill([1])
    monkeypatch.setattr(os, "getpgid", lambda pid: 0)
    monkeypatch.setattr(os, "kill", refuse)
    assert not supervisor.kill([1])


@pytest.mark.parametrize(
    ("status", "ends"),
    [(0, ("exit", 0)), (3 << 8, ("exit", 3)), (signal.SIGTERM, ("kill", 15)), (signal.SIGKILL, ("kill", 9))],
)
def test_supervisor_exits_like_its_child(status, ends, monkeypatch):
    done = []
    monkeypatch.setattr(os, "kill", lambda pid, number: done.append(("kill", number)))
    monkeypatch.setattr(os, "_exit", lambda code: done.append(("exit", code)))
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    monkeypatch.setattr(supervisor._signal, "signal", lambda *_: None)
    supervisor.exit_like(status)
    assert done[0] == ends


@pytest.mark.parametrize("supported", [True, False])
def test_orphans_are_not_adopted_on_unsupported_systems(supported, monkeypatch):
    monkeypatch.setattr(supervisor, "SUPPORTED", supported)
    assert worker._is_single_threaded() is False or supported
    if not supported:
        assert supervisor.adopt_orphans() is False


class ProcessExitError(BaseException):
    """The process has ended, but for the test."""


@pytest.fixture
def recorded_calls(monkeypatch):
    """Record the system calls that would end or change this process, without making them."""
    done = []

    def end(code):
        done.append(("exit", code))
        raise ProcessExitError

    def execute(program, command):
        done.append(("execute", command))
        raise FileNotFoundError(2, "No such file or directory")

    def record(name):
        return lambda *arguments: done.append((name, *arguments))

    names = ("setsid", "dup2", "set_inheritable", "write")
    changed = dict(vars(os), execvp=execute, _exit=end, open=lambda *_: 33, **{name: record(name) for name in names})
    monkeypatch.setattr(supervisor, "os", SimpleNamespace(**changed))  # pytest itself uses these functions
    monkeypatch.setattr(supervisor._signal, "signal", lambda *_: None)
    monkeypatch.setattr("resource.setrlimit", record("limit"))
    return done


def test_program_runs_in_its_own_session_within_its_limits(recorded_calls, monkeypatch):
    monkeypatch.setattr(supervisor, "fork", lambda: 0)
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")
    with pytest.raises(ProcessExitError):
        supervisor.main(["9", "1000", "5", "0", "worker", "-v"])
    assert "LC_CTYPE" not in os.environ
    assert recorded_calls == [
        ("set_inheritable", 9, False),
        ("setsid",),
        ("limit", resource.RLIMIT_CORE, (0, 0)),
        ("limit", resource.RLIMIT_AS, (1000, 1000)),
        ("limit", resource.RLIMIT_CPU, (5, 6)),
        ("execute", ["worker", "-v"]),
        ("write", 2, b"Cannot start 'worker': No such file or directory"),
        ("exit", 127),
    ]


@pytest.mark.parametrize(("memory", "cpu", "limits"), [("0", "0", 0), ("1000", "0", 2), ("0", "5", 2)])
def test_unrequested_limits_are_not_set(memory, cpu, limits, recorded_calls):
    with pytest.raises(ProcessExitError):
        supervisor.main(["-1", memory, cpu, "1", "worker"])
    assert [step for step, *_ in recorded_calls] == [*["limit"] * limits, "execute", "write", "exit"]


def test_supervisor_closes_the_pipes_of_its_program(recorded_calls, monkeypatch):
    monkeypatch.setattr(supervisor, "fork", lambda: 7)
    monkeypatch.setattr(supervisor, "supervise", lambda child, stop, *, daemons: (child == 7 and daemons) << 8)
    with pytest.raises(ProcessExitError):
        supervisor.main(["9", "0", "0", "1", "worker"])
    assert recorded_calls == [
        ("set_inheritable", 9, False),
        *(("dup2", 33, stream) for stream in range(3)),
        ("exit", 1),
    ]


def test_worker_forks_unless_it_has_threads(recorded_calls, monkeypatch):
    monkeypatch.setattr(worker, "_lead", lambda: recorded_calls.append(("lead",)))
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(supervisor, "adopt_orphans", lambda: recorded_calls.append(("adopt",)))
    monkeypatch.setattr(supervisor, "fork", lambda: 7)
    monkeypatch.setattr(supervisor, "supervise", lambda child, stop, *, daemons: (child == 7 and not daemons) << 8)
    for single, did in ((True, [("lead",), ("exit", 1)]), (False, [("lead",), ("adopt",)])):
        recorded_calls.clear()
        monkeypatch.setattr(worker, "_is_single_threaded", lambda single=single: single)
        (near, far), (stop_pipe, leash) = context.Pipe(), context.Pipe(duplex=False)
        near.close()
        with pytest.raises(ProcessExitError) if single else nullcontext():
            worker.serve(far, stop_pipe)
        assert (recorded_calls, far.closed) == (did, single)
        for line in (far, stop_pipe, leash):
            line.close()


def run_main(*arguments):
    """Run the supervisor as a program."""
    code = "import sys; from toolsemble._runtime.processes import supervisor; supervisor.main(sys.argv[1:])"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, timeout=LONG, check=False, env=env
    )


def test_without_supervision_the_program_replaces_the_process():
    done = run_main(-1, 0, 0, 0, "sh", "-c", "grep SigIgn /proc/$$/status; exit 4")
    _, mask = done.stdout.split()
    assert (read_mask(mask), done.returncode) == (ignored_signals(), 4)
    done = run_main(-1, 10**12, 60, 1, "sh", "-c", "ulimit -t; echo $LC_CTYPE")
    assert done.stdout.split() == [b"60", b"C.UTF-8"]
    done = run_main(-1, 0, 0, 0, "no-such-program")
    assert (done.stderr, done.returncode) == (b"Cannot start 'no-such-program': No such file or directory", 127)
