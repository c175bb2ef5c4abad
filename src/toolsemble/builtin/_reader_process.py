"""Worker processes that run jobs one at a time, bytes in and bytes out, and are killed on timeout."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from toolsemble._runtime.threads import SpareThreads
from toolsemble.builtin._child_process import Program

_HEADER = 8  # bytes of the length before each message
_IDLE_SECONDS = 60.0  # idle timeout of a process
_MOST_JOBS = 100  # then a process is replaced, so that parser leaks cannot accumulate
_MOST_IDLE = 2
_MOST_MEMORY = 512 * 1024  # kB; a process that once needed more is replaced
_STATUS = Path("/proc/self/status")
_THREADS = SpareThreads()

_kill_group: Callable[[int, int], None] = getattr(os, "killpg", os.kill)
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


class ReaderFailedError(Exception):
    """Signals that the process died before answering, or answered too much."""


class ReaderProcess:
    """A process for jobs: it runs a program that calls :func:`serve`."""

    def __init__(self, program: Program) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - a program of this package
            program.command_line(None),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=program.variables,
            start_new_session=True,
            bufsize=0,
        )
        self.used = False
        """Whether it has completed a job."""

    def is_alive(self) -> bool:
        """Return whether it can accept a job."""
        return self._process.poll() is None

    def run(self, job: bytes, limit: int) -> bytes:
        """Return the answer to a job, of at most ``limit`` bytes; raise :class:`ReaderFailedError` if there is none."""
        try:
            source, sink = self._process.stdin, self._process.stdout
            assert source is not None and sink is not None  # noqa: S101, PT018 - both are pipes
            write_message(source.fileno(), job)
            answer = read_message(sink.fileno(), limit)
        except OSError as error:
            raise ReaderFailedError from error
        if answer is None:
            raise ReaderFailedError
        self.used = True
        return answer

    def kill(self) -> None:
        """Kill it, which unblocks a thread waiting for an answer."""
        if self._process.returncode is None:  # its id was not reused by another process
            with suppress(ProcessLookupError, PermissionError):
                _kill_group(self._process.pid, _KILL)

    def end(self) -> None:
        """Kill it, and release its resources."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()


class ReaderPool:
    """A pool of idle processes; a job never waits for a process."""

    def __init__(self, program: Callable[[], Program]) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._idle: list[ReaderProcess] = []
        atexit.register(self.close)

    def acquire(self) -> ReaderProcess:
        """Return a live idle process, or a new one."""
        while True:
            with self._lock:
                if os.getpid() != self._owner:
                    self._idle, self._owner = [], os.getpid()  # they belong to the parent process
                reader = self._idle.pop() if self._idle else None
            if reader is None:
                return self.start()
            if reader.is_alive():
                return reader
            reader.end()

    def start(self) -> ReaderProcess:
        """Return a new process."""
        return ReaderProcess(self._program())

    def release(self, reader: ReaderProcess) -> None:
        """Return a process to the pool, or stop it if enough are idle."""
        with self._lock:
            keep = len(self._idle) < _MOST_IDLE
            if keep:
                self._idle.append(reader)
        if not keep:
            reader.end()

    def close(self) -> None:
        """End all idle processes."""
        with self._lock:
            readers, self._idle = self._idle, []
        for reader in readers:
            reader.end()

    async def run(self, job: bytes, limit: int, seconds: float) -> bytes:
        """Return the answer to a job; raise ``TimeoutError``, or :class:`ReaderFailedError` if there is none.

        The process is killed on timeout and on cancellation.
        """
        reading = _Reading(self, job, limit)
        answer = asyncio.wrap_future(_THREADS.submit(reading))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(answer)
        finally:
            if not answer.done():
                answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # there is no waiter
                reading.cancel()


class _Reading:
    """One job in a process; called in a thread, cancelled from another one."""

    def __init__(self, pool: ReaderPool, job: bytes, limit: int) -> None:
        self._pool = pool
        self._job = job
        self._limit = limit
        self._lock = threading.Lock()
        self._reader: ReaderProcess | None = None
        self._cancelled = False

    def __call__(self) -> bytes:
        reader = self._pool.acquire()
        try:
            answer = self._run(reader)
        except ReaderFailedError:
            if not reader.used or self._cancelled:
                raise
            reader = self._pool.start()  # it may have exited just as it was chosen
            answer = self._run(reader)
        self._pool.release(reader)
        return answer

    def _run(self, reader: ReaderProcess) -> bytes:
        try:
            self._begin(reader)
            return reader.run(self._job, self._limit)
        except BaseException:
            reader.end()
            raise
        finally:
            with self._lock:
                self._reader = None

    def _begin(self, reader: ReaderProcess) -> None:
        with self._lock:
            if self._cancelled:
                raise ReaderFailedError
            self._reader = reader

    def cancel(self) -> None:
        """Kill the job's process, now or as soon as it exists."""
        with self._lock:
            self._cancelled = True
            if self._reader is not None:
                self._reader.kill()


def serve(work: Callable[[bytes], bytes]) -> None:
    """Answer jobs from standard input until it is closed or the idle timeout expires; then exit."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(2):  # other reads and writes must not corrupt the messages
        os.dup2(nothing, stream)
    for _ in range(_MOST_JOBS):
        if os.name == "posix" and not select.select([source], [], [], _IDLE_SECONDS)[0]:
            return
        job = read_message(source)
        if job is None:
            return
        write_message(sink, work(job))
        if _has_grown():
            return


def _has_grown() -> bool:
    """Return whether this process's memory has grown so much that it should be replaced; False if unknown."""
    try:  # not getrusage, which includes the parent process
        status = _STATUS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return peak is not None and int(peak[1]) > _MOST_MEMORY


def write_message(fd: int, message: bytes) -> None:
    """Write a message with its length to a pipe."""
    rest = memoryview(len(message).to_bytes(_HEADER) + message)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_message(fd: int, limit: int | None = None) -> bytes | None:
    """Return the next message from a pipe; None if the pipe ends, or if the message exceeds the limit."""
    header = _read_exactly(fd, _HEADER)
    if header is None:
        return None
    length = int.from_bytes(header)
    return None if limit is not None and length > limit else _read_exactly(fd, length)


def _read_exactly(fd: int, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
