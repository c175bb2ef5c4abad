"""A pool of worker processes, which can be killed with all their descendants."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from toolsemble._runtime.processes import supervisor
from toolsemble._runtime.processes.worker import SUPERVISED, serve
from toolsemble._vocabulary.errors import LostError

IDLE = max(2, os.cpu_count() or 1)
"""Maximum idle processes in the pool."""

_CHECK_INTERVAL = 0.5  # seconds between checks whether the process is alive: its children may keep its pipes open
_END_TIMEOUT = 5.0  # seconds that a process has to exit by itself
_POLL_INTERVAL = 0.005  # seconds between checks while it exits
_context = multiprocessing.get_context("spawn")  # forking a program with threads may deadlock


# Without process groups, as on Windows, processes that a worker started survive it.
_kill_group: Callable[[int, int], None] = getattr(os, "killpg", lambda *_: None)
_at_fork: Callable[..., None] = getattr(os, "register_at_fork", lambda **_: None)
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)

# multiprocessing holds locks while it starts a process, and a fork at that moment would leave them locked in
# the child forever. So a fork waits for the start.
_STARTING = threading.RLock()
_at_fork(before=_STARTING.acquire, after_in_parent=_STARTING.release, after_in_child=_STARTING.release)


class WorkerDiedError(LostError):
    """The worker process ended before the body did."""


class Worker:
    """A worker process and the connection to it."""

    def __init__(self) -> None:
        self._connection, far = _context.Pipe()
        stop, self._stop_pipe = _context.Pipe(duplex=False)
        self._process = _context.Process(target=serve, args=(far, stop), name="toolsemble-worker")
        self._lock = threading.RLock()
        self._gone = False
        self._path = list(sys.path)
        self.ready = False
        self._supervised = False
        try:
            with _STARTING:
                self._process.start()
        except BaseException:
            self._connection.close()
            self._stop_pipe.close()
            raise
        finally:
            far.close()
            stop.close()
        self.pid = self._process.pid or 0

    def is_alive(self) -> bool:
        """Return whether it is usable: it is running, and ``sys.path`` has not changed since its start."""
        with self._lock:
            return not self._gone and self._path == sys.path and self._process.is_alive()

    def is_idle(self) -> bool:
        """Return whether it is usable and has sent no message, such as the end of its inner process."""
        return self.is_alive() and not (self.ready and self._connection.poll())

    def begin(self, wanted: Callable[[], bool]) -> bool:
        """Wait until it has started; return False if it is no longer wanted."""
        if not self.ready:
            first = self.receive(wanted)
            self._supervised = first == SUPERVISED
            self.ready = first is not None
        return self.ready

    def send(self, payload: bytes) -> None:
        """Send it a job."""
        try:
            self._connection.send_bytes(payload)
        except OSError:
            raise self._death_error() from None

    def receive(self, wanted: Callable[[], bool]) -> bytes | None:
        """Return its next message; None if it is no longer wanted."""
        while wanted():
            try:
                if self._connection.poll(_CHECK_INTERVAL):
                    return self._connection.recv_bytes()
            except (EOFError, OSError):
                raise self._death_error() from None
            if not self.is_alive():
                raise self._death_error()
        return None

    def kill(self) -> None:
        """Kill it with all processes that it started; do nothing if it has ended."""
        with self._lock:
            if self._gone:
                return
            if not self._supervised:
                self._kill_tree()
            elif not self._stop_pipe.closed:
                with suppress(OSError):  # the process has ended
                    self._stop_pipe.send_bytes(b"end")
                self._stop_pipe.close()

    def _kill_tree(self) -> None:
        """Kill it and all processes that it started, as far as they can be found."""
        supervisor.kill(supervisor.descendants(self.pid))
        with suppress(ProcessLookupError, PermissionError):
            _kill_group(self.pid, _KILL)
        self._process.kill()

    def end(self) -> None:
        """Let it exit, kill remaining processes, and release its resources."""
        self._connection.close()
        with self._lock:
            if self.is_alive():
                self._is_alive_after(_END_TIMEOUT)
                self.kill()
                if self._supervised and self._is_alive_after(_END_TIMEOUT):
                    self._kill_tree()
            self._gone = True
            self._stop_pipe.close()
            self._process.join()
            self._process.close()

    def forget(self) -> None:
        """Drop the process in a forked child: it belongs to the parent."""
        self._connection.close()
        self._stop_pipe.close()
        multiprocessing.process._children.discard(self._process)  # type: ignore[attr-defined]  # noqa: SLF001 - or multiprocessing would wait for it at exit

    def _is_alive_after(self, seconds: float) -> bool:
        """Wait for its exit, up to a timeout; return whether it is still alive."""
        # Polling: its pipes may be closed or kept open by other processes.
        ends = time.monotonic() + seconds
        while (alive := self.is_alive()) and time.monotonic() < ends:
            time.sleep(_POLL_INTERVAL)
        return alive

    def _death_error(self) -> WorkerDiedError:
        alive = self._is_alive_after(_CHECK_INTERVAL)  # it may have closed its connection just before it exited
        code = self._process.exitcode
        self.kill()
        how = _describe_exit(None if alive else code)
        hint = "" if self.ready else "; guard the entry point of a script with if __name__ == '__main__'"
        return WorkerDiedError(f"The worker process {how} before the tool had ended{hint}")


class Workers:
    """The pool of worker processes: busy ones, and a few idle ones."""

    def __init__(self, idle: int = IDLE) -> None:
        self._max_idle = idle
        self._lock = threading.RLock()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        atexit.register(self.close)
        _at_fork(after_in_child=self._forget)

    def acquire(self) -> Worker:
        """Return an idle worker, or a new one."""
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                worker = Worker()
            elif not worker.is_idle():
                worker.end()
                continue
            with self._lock:
                self._busy.add(worker)
            return worker

    def release(self, worker: Worker) -> None:
        """Keep a worker for the next call, or end it if the pool has enough idle ones."""
        with self._lock:
            self._busy.discard(worker)
            keep = len(self._idle) < self._max_idle
            if keep:
                self._idle.append(worker)
        if not keep:
            worker.end()

    def drop(self, worker: Worker) -> None:
        """Kill a worker that is no longer usable."""
        with self._lock:
            self._busy.discard(worker)
        worker.kill()
        worker.end()

    def close(self) -> None:
        """Kill the busy workers, and let the idle ones end."""
        with self._lock:
            idle, busy = self._idle, list(self._busy)
            self._idle = []
        for worker in busy:
            worker.kill()
        for worker in idle:
            worker.end()

    def pids(self) -> list[int]:
        """Return the pids of all workers."""
        with self._lock:
            return [worker.pid for worker in (*self._idle, *self._busy)]

    def _forget(self) -> None:
        # The processes belong to the parent; its threads do not exist here, so a held lock would never be released.
        workers, self._idle, self._busy = [*self._idle, *self._busy], [], set()
        self._lock = threading.RLock()
        for worker in workers:
            worker.forget()


WORKERS = Workers()


class ProcessJob:
    """A job in a worker process: called in a thread that may block, and cancelled from any other thread."""

    def __init__(self, payload: bytes, sent: Callable[[], None] | None = None) -> None:
        self._payload = payload
        self._sent = sent  # called when the job is sent
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._cancelled = False

    def __call__(self) -> list[Any]:
        """Run the job and return its outcome; raise if the process died."""
        worker = WORKERS.acquire()
        try:
            answer = self._run(worker)
        except BaseException:
            WORKERS.drop(worker)
            raise
        WORKERS.release(worker)
        if answer is None:
            return [None, None]
        returned: list[Any] = pickle.loads(answer)  # noqa: S301 - written by a worker process of this program
        return returned

    def cancel(self) -> None:
        """Cancel the job; kill its process if the job was sent."""
        with self._lock:
            self._cancelled = True
            worker = self._worker
        if worker is not None:
            worker.kill()

    def _run(self, worker: Worker) -> bytes | None:
        # A worker that is still starting is kept for the next call.
        if not worker.begin(lambda: not self._cancelled):
            return None
        with self._lock:
            if self._cancelled:
                return None
            self._worker = worker
        if self._sent is not None:
            self._sent()
        worker.send(self._payload)
        return worker.receive(lambda: True)


def _describe_exit(code: int | None) -> str:
    """Return how a process ended, from its exit code; None: it has not ended."""
    if code is None:
        return "lost its connection"
    if code >= 0:
        return f"exited with {code}"
    names = {each.value: each.name for each in signal.Signals}
    return f"was killed by {names.get(-code, -code)}"
