"""Processes of our own that run bodies, one after the other, and can be killed with all that they started."""

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

from toolsemble.errors import LostError
from toolsemble.processes import supervisor
from toolsemble.processes.worker import SUPERVISED, serve

IDLE = max(2, os.cpu_count() or 1)
"""How many processes are kept for the next calls."""

_LOOK = 0.5  # after how many seconds a process is looked at whose death nobody told: its own children hold its pipes
_PATIENCE = 5.0  # how many seconds a process has to end when it is asked to
_SHORT = 0.005  # likewise, for one that is about to end
_context = multiprocessing.get_context("spawn")  # a fork of a program with threads may stand still for ever


# Where there are no process groups, as on Windows, what a worker started goes on without it.
_kill_group: Callable[[int, int], None] = getattr(os, "killpg", lambda *_: None)
_at_fork: Callable[..., None] = getattr(os, "register_at_fork", lambda **_: None)
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


class WorkerDiedError(LostError):
    """The process that ran a body ended before the body did."""


class Worker:
    """One process, and the line to it."""

    def __init__(self) -> None:
        self._line, far = _context.Pipe()
        told, self._leash = _context.Pipe(duplex=False)
        self._process = _context.Process(target=serve, args=(far, told), name="toolsemble-worker")
        self._lock = threading.RLock()
        self._gone = False
        self._path = list(sys.path)
        self.ready = False
        self._supervised = False
        try:
            self._process.start()
        except BaseException:
            self._line.close()
            self._leash.close()
            raise
        finally:
            far.close()
            told.close()
        self.pid = self._process.pid or 0

    def is_alive(self) -> bool:
        """Whether it can be used: it is there, and finds the modules that are found here by now."""
        with self._lock:
            return not self._gone and self._path == sys.path and self._process.is_alive()

    def is_idle(self) -> bool:
        """Return whether it can be used and has nothing to say, as a worker whose process for bodies has ended has."""
        return self.is_alive() and not (self.ready and self._line.poll())

    def begin(self, wanted: Callable[[], bool]) -> bool:
        """Wait until it has started; return False when that is not wanted any more."""
        if not self.ready:
            first = self.receive(wanted)
            self._supervised = first == SUPERVISED
            self.ready = first is not None
        return self.ready

    def send(self, payload: bytes) -> None:
        """Have it run a body."""
        try:
            self._line.send_bytes(payload)
        except OSError:
            raise self._died() from None

    def receive(self, wanted: Callable[[], bool]) -> bytes | None:
        """Give what it says next; None when that is not wanted any more."""
        while wanted():
            try:
                if self._line.poll(_LOOK):
                    return self._line.recv_bytes()
            except (EOFError, OSError):
                raise self._died() from None
            if not self.is_alive():
                raise self._died()
        return None

    def kill(self) -> None:
        """End it at once, with what it started; nothing where that was done before."""
        with self._lock:
            if self._gone:
                return
            if not self._supervised:
                self._kill_tree()
            elif not self._leash.closed:
                with suppress(OSError):  # it has ended
                    self._leash.send_bytes(b"end")
                self._leash.close()

    def _kill_tree(self) -> None:
        """Kill it from here, with what it started as far as that can be seen."""
        supervisor.kill(supervisor.descendants(self.pid))
        with suppress(ProcessLookupError, PermissionError):
            _kill_group(self.pid, _KILL)
        self._process.kill()

    def end(self) -> None:
        """Let it end, kill what it leaves behind, and take away the rest."""
        self._line.close()
        with self._lock:
            if self.is_alive():
                self._waited(_PATIENCE)
                self.kill()
                if self._supervised and self._waited(_PATIENCE):
                    self._kill_tree()
            self._gone = True
            self._leash.close()
            self._process.join()
            self._process.close()

    def forget(self) -> None:
        """Let go of a process that belongs to another one: to that from which this one was forked."""
        self._line.close()
        self._leash.close()
        multiprocessing.process._children.discard(self._process)  # type: ignore[attr-defined]  # noqa: SLF001 - or it is waited for at exit, in vain

    def _waited(self, seconds: float) -> bool:
        """Wait for its end; tell whether it is still there."""
        # Looked at again and again: what else could tell of its end is closed by others, or held open.
        ends = time.monotonic() + seconds
        while (alive := self.is_alive()) and time.monotonic() < ends:
            time.sleep(_SHORT)
        return alive

    def _died(self) -> WorkerDiedError:
        alive = self._waited(_LOOK)  # it may have closed its line a moment before its end
        code = self._process.exitcode
        self.kill()
        how = "was cut off" if alive or code is None else f"exited with {code}" if code >= 0 else _signal(code)
        hint = "" if self.ready else "; a script has to start its work under if __name__ == '__main__'"
        return WorkerDiedError(f"The worker process {how} before the tool had ended{hint}")


class Workers:
    """The processes of this program: some that are at work, and a few that wait for it."""

    def __init__(self, idle: int = IDLE) -> None:
        self._most = idle
        self._lock = threading.RLock()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        atexit.register(self.close)
        _at_fork(after_in_child=self._forget)

    def acquire(self) -> Worker:
        """Give a process that waits, or a new one."""
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
        """Keep a process for the next call, unless there are enough."""
        with self._lock:
            self._busy.discard(worker)
            keep = len(self._idle) < self._most
            if keep:
                self._idle.append(worker)
        if not keep:
            worker.end()

    def drop(self, worker: Worker) -> None:
        """Kill a process that nobody can use any more."""
        with self._lock:
            self._busy.discard(worker)
        worker.kill()
        worker.end()

    def close(self) -> None:
        """End all of them: those at work at once, the others when they have heard of it."""
        with self._lock:
            idle, busy = self._idle, list(self._busy)
            self._idle = []
        for worker in busy:
            worker.kill()
        for worker in idle:
            worker.end()

    def pids(self) -> list[int]:
        """Give the numbers of the processes that there are."""
        with self._lock:
            return [worker.pid for worker in (*self._idle, *self._busy)]

    def _forget(self) -> None:
        # The processes belong to the parent, and its threads do not exist here: nobody would free the lock.
        workers, self._idle, self._busy = [*self._idle, *self._busy], [], set()
        self._lock = threading.RLock()
        for worker in workers:
            worker.forget()


WORKERS = Workers()


class ProcessJob:
    """One body that is run in another process: called in a thread that may wait, and called off from any other."""

    def __init__(self, payload: bytes, sent: Callable[[], None] | None = None) -> None:
        self._payload = payload
        self._sent = sent  # is called in the moment in which the body is sent
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._off = False

    def __call__(self) -> list[Any]:
        """Give what the body returned and what it raised; raise when its process died."""
        worker = WORKERS.acquire()
        try:
            answer = self._run(worker)
        except BaseException:
            WORKERS.drop(worker)
            raise
        WORKERS.release(worker)
        if answer is None:
            return [None, None]
        returned: list[Any] = pickle.loads(answer)  # noqa: S301 - a process of our own wrote it
        return returned

    def cancel(self) -> None:
        """Kill the process, if the body has begun; nobody waits for it any more."""
        with self._lock:
            self._off = True
            worker = self._worker
        if worker is not None:
            worker.kill()

    def _run(self, worker: Worker) -> bytes | None:
        # One that has not finished starting is left to the next call: killed, it would never come to an end of that.
        if not worker.begin(lambda: not self._off):
            return None
        with self._lock:
            if self._off:
                return None
            self._worker = worker
        if self._sent is not None:
            self._sent()
        worker.send(self._payload)
        return worker.receive(lambda: True)


def _signal(code: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return f"was killed by {known.get(-code, -code)}"
