"""Processes that do one job after the other."""

import asyncio
import os
import sys
import warnings
from pathlib import Path

import pytest

from helpers.wait import auntil
from toolsemble.builtin import _reader_process as reader_process
from toolsemble.builtin._child_process import Program
from toolsemble.builtin._reader_process import ReaderFailedError, ReaderPool, read_message, serve, write_message

SCRIPT = """
import os, time
from toolsemble.builtin._reader_process import serve

def work(job):
    print("noise on standard output")
    if job == b"pid":
        return str(os.getpid()).encode()
    if job == b"die":
        os._exit(3)
    if job == b"sleep":
        time.sleep(1000)
    if job == b"long":
        return b"x" * 5000
    return job.upper()

serve(work)
"""


def make_program():
    return Program((sys.executable, "-c", SCRIPT), env={"PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.fixture
def pool():
    pool = ReaderPool(make_program)
    yield pool
    pool.close()


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def run(pool, job, *, limit=1000, seconds=60):
    return await pool.run(job, limit, seconds)


async def test_jobs_are_done_by_the_same_process_one_after_the_other(pool):
    assert await run(pool, b"hello") == b"HELLO"
    assert await run(pool, b"pid") == await run(pool, b"pid")
    assert await run(pool, b"x" * 900) == b"X" * 900


async def test_jobs_at_once_have_a_process_each_and_two_stay(pool):
    pids = await asyncio.gather(*[run(pool, b"pid") for _ in range(4)])
    assert len(set(pids)) == 4
    await auntil(lambda: len([pid for pid in pids if is_running(int(pid))]) == 2)


def test_process_serves_one_event_loop_after_the_other(pool):
    first = asyncio.run(run(pool, b"pid"))
    assert asyncio.run(run(pool, b"pid")) == first


async def test_process_that_dies_fails_its_job_only(pool):
    await run(pool, b"hello")
    with pytest.raises(ReaderFailedError):
        await run(pool, b"die")
    assert await run(pool, b"again") == b"AGAIN"


async def test_job_goes_to_a_new_process_if_the_idle_one_has_ended_meanwhile(pool, monkeypatch):
    pid = int(await run(pool, b"pid"))
    (reader,) = pool._idle
    os.kill(pid, 9)
    await auntil(lambda: not reader.is_alive())
    assert int(await run(pool, b"pid")) != pid
    pid = int(await run(pool, b"pid"))
    os.kill(pid, 9)
    monkeypatch.setattr(reader_process.ReaderProcess, "is_alive", lambda self: True)  # it ends right after this check
    assert int(await run(pool, b"pid")) != pid


async def test_job_that_takes_too_long_is_killed_with_its_process(pool):
    pid = int(await run(pool, b"pid"))
    with pytest.raises(TimeoutError):
        await run(pool, b"sleep", seconds=0.1)
    await auntil(lambda: not is_running(pid))
    assert await run(pool, b"hello") == b"HELLO"


async def test_cancelled_job_is_killed_with_its_process(pool):
    pid = int(await run(pool, b"pid"))
    task = asyncio.create_task(run(pool, b"sleep"))
    await auntil(lambda: not pool._idle)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await auntil(lambda: not is_running(pid))


async def test_job_that_is_cancelled_before_it_has_a_process_does_not_run(pool):
    reading = reader_process._Reading(pool, b"hello", 1000)
    reading.cancel()
    with pytest.raises(ReaderFailedError):
        reading()


async def test_answer_that_is_too_long_fails(pool):
    with pytest.raises(ReaderFailedError):
        await run(pool, b"long", limit=4999)
    assert await run(pool, b"long", limit=5000) == b"x" * 5000


def test_processes_of_another_process_are_not_used(pool, monkeypatch):
    asyncio.run(run(pool, b"hello"))
    (theirs,) = pool._idle
    with monkeypatch.context() as patch:
        patch.setattr(reader_process.os, "getpid", lambda: 0)  # as it is after a fork
        reader = pool.acquire()
    assert (reader.used, theirs.is_alive()) == (False, True)
    reader.end()
    theirs.end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_does_not_use_the_readers_of_its_parent(pool):
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
    asyncio.run(run(pool, b"hello"))
    child = os.fork()
    if not child:
        reader = pool.acquire()
        fresh = not reader.used and not pool._idle
        reader.end()
        os._exit(0 if fresh else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert asyncio.run(run(pool, b"hello")) == b"HELLO"


class Served:
    """The streams of a process that serves jobs, in this process."""

    def __init__(self, monkeypatch, jobs):
        reading, writing = os.pipe()
        answers, self.sink = os.pipe()
        for job in jobs:
            write_message(writing, job)
        os.close(writing)
        self.answers = answers
        taken = iter([reading, self.sink])
        monkeypatch.setattr(reader_process.os, "dup", lambda fd: next(taken))
        monkeypatch.setattr(reader_process.os, "dup2", lambda *fds: None)
        monkeypatch.setattr(reader_process, "_STATUS", Path("missing"))

    def read(self):
        os.close(self.sink)
        return list(iter(lambda: read_message(self.answers), None))


def test_process_ends_with_its_input(monkeypatch):
    served = Served(monkeypatch, [b"a", b"b"])
    serve(bytes.upper)
    assert served.read() == [b"A", b"B"]


def test_process_ends_after_many_jobs_so_that_leaks_do_not_add_up(monkeypatch):
    monkeypatch.setattr(reader_process, "_MOST_JOBS", 2)
    served = Served(monkeypatch, [b"a", b"b", b"c"])
    serve(bytes.upper)
    assert served.read() == [b"A", b"B"]


@pytest.mark.parametrize(
    ("status", "answered"), [("VmHWM:\t  524289 kB", 1), ("VmHWM:\t  524288 kB", 2), ("Name: python", 2)]
)
def test_process_that_has_grown_ends(monkeypatch, tmp_path, status, answered):
    served = Served(monkeypatch, [b"a", b"b"])
    monkeypatch.setattr(reader_process, "_STATUS", tmp_path / "status")
    (tmp_path / "status").write_text(f"Name: python\n{status}\nThreads: 1\n")
    serve(bytes.upper)
    assert len(served.read()) == answered


@pytest.mark.skipif(os.name != "posix", reason="pipes cannot be selected")
def test_process_without_a_job_for_a_while_ends(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(reader_process, "_IDLE_SECONDS", 0.01)
    taken = iter([reading, writing])
    monkeypatch.setattr(reader_process.os, "dup", lambda fd: next(taken))
    monkeypatch.setattr(reader_process.os, "dup2", lambda *fds: None)
    serve(bytes.upper)


def test_message_that_breaks_off_is_none():
    reading, writing = os.pipe()
    os.write(writing, (100).to_bytes(8) + b"short")
    os.close(writing)
    assert read_message(reading) is None
