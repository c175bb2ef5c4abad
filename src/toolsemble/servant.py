"""What a worker process does: it runs bodies, one after the other."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from toolsemble.errors import LostError
from toolsemble.shape import described

# Where there are no process groups, as on Windows, what it starts goes on without it.
_lead: Callable[[], None] = getattr(os, "setsid", lambda: None)


def serve(line: Connection) -> None:
    """Run bodies, one after the other, until nobody is there any more: what a worker process does."""
    _lead()  # what it starts can be killed with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's interrupt is for the program alone
    with suppress(EOFError, OSError):
        line.send_bytes(b"ready")
        while True:
            line.send_bytes(answered(line.recv_bytes()))


def answered(payload: bytes) -> bytes:
    """Run one body; give what it returned and what it raised, as bytes."""
    try:
        outcome = pickle.loads(payload)()  # noqa: S301 - the program that started this process wrote it
    except BaseException as error:  # noqa: BLE001 - told to whoever asked
        return _told(f"The worker process cannot read the call: {described(error)}")
    try:
        return pickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001 - likewise
        return _told(f"The result cannot be sent back from the worker process: {described(error)}")


def _told(problem: str) -> bytes:
    return pickle.dumps([None, LostError(problem)])
