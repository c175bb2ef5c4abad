"""What a worker process does: it runs bodies, one after the other."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from toolsemble.errors import LostError
from toolsemble.processes import supervisor
from toolsemble.shape import describe_error

# Where there are no process groups, as on Windows, what it starts goes on without it.
_lead: Callable[[], None] = getattr(os, "setsid", lambda: None)


READY = b"ready"
"""The first message of a worker."""
SUPERVISED = b"ready, supervised"
"""The first message of a worker whose supervisor ends it with all that it has started."""


def serve(line: Connection, told: Connection) -> None:
    """Run bodies, one after the other, until nobody is there any more: what a worker process does.

    On Linux it forks: this process supervises, the other one runs the bodies. Whatever these have started ends with
    the worker, and at once when there is something to read from ``told`` or its other end is closed.
    """
    _lead()  # what it starts can be killed with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's interrupt is for the program alone
    supervised = _is_single_threaded()
    child = supervisor.fork() if supervised else 0
    if child:
        line.close()
        supervisor.exit_like(supervisor.supervise(child, told.fileno(), daemons=False))
    if supervised:
        _lead()
    else:
        supervisor.adopt_orphans()
    told.close()
    run_jobs(line, SUPERVISED if supervised else READY)


def run_jobs(line: Connection, ready: bytes = READY) -> None:
    """Say that the worker is ready, and run bodies until nobody is at the other end of the line."""
    with suppress(EOFError, OSError):
        line.send_bytes(ready)
        while True:
            line.send_bytes(run_payload(line.recv_bytes()))


def _is_single_threaded() -> bool:
    """Return whether it can fork: with other threads, which the main module may have started, it could stand still."""
    return supervisor.SUPPORTED and len(list(Path("/proc/self/task").iterdir())) == 1


def run_payload(payload: bytes) -> bytes:
    """Run one body; give what it returned and what it raised, as bytes."""
    try:
        outcome = pickle.loads(payload)()  # noqa: S301 - the program that started this process wrote it
    except BaseException as error:  # noqa: BLE001 - told to whoever asked
        return _told(f"The worker process cannot read the call: {describe_error(error)}")
    try:
        return pickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001 - likewise
        return _told(f"The result cannot be sent back from the worker process: {describe_error(error)}")


def _told(problem: str) -> bytes:
    return pickle.dumps([None, LostError(problem)])
