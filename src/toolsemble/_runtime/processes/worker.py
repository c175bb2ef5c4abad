"""The main function of a worker process: it runs one job after another."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from toolsemble._runtime.processes import supervisor
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import LostError

# Without process groups, as on Windows, processes that it starts survive it.
_lead: Callable[[], None] = getattr(os, "setsid", lambda: None)


READY = b"ready"
"""The first message of a worker."""
SUPERVISED = b"ready, supervised"
"""The first message of a worker with a supervisor that can kill it with all its descendants."""


def serve(connection: Connection, stop: Connection) -> None:
    """Run jobs until the connection is closed.

    On Linux it forks: this process supervises, the child runs the jobs. All processes that jobs have started are killed
    when the worker ends, and at once when ``stop`` becomes readable or its other end is closed.
    """
    _lead()  # processes that it starts can be killed with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the main program
    supervised = _is_single_threaded()
    child = supervisor.fork() if supervised else 0
    if child:
        connection.close()
        supervisor.exit_like(supervisor.supervise(child, stop.fileno(), daemons=False))
    if supervised:
        _lead()
    else:
        supervisor.adopt_orphans()
    stop.close()
    run_jobs(connection, SUPERVISED if supervised else READY)


def run_jobs(connection: Connection, ready: bytes = READY) -> None:
    """Send the first message, and run jobs until the connection is closed."""
    with suppress(EOFError, OSError):
        connection.send_bytes(ready)
        while True:
            connection.send_bytes(run_payload(connection.recv_bytes()))


def _is_single_threaded() -> bool:
    """Return whether this process can fork safely: the main module may have started threads."""
    return supervisor.SUPPORTED and len(list(Path("/proc/self/task").iterdir())) == 1


def run_payload(payload: bytes, dumps: Callable[[object], bytes] = pickle.dumps) -> bytes:
    """Run a pickled job and return its outcome, pickled by a function."""
    try:
        outcome = pickle.loads(payload)()  # noqa: S301 - written by the program that started this process
    except BaseException as error:  # sent to the caller
        return _dump_error(f"The worker process cannot read the call: {describe_error(error)}")
    try:
        return dumps(outcome)
    except Exception as error:
        return _dump_error(f"The result cannot be sent back from the worker process: {describe_error(error)}")


def _dump_error(problem: str) -> bytes:
    return pickle.dumps([None, LostError(problem)])
