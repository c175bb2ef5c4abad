"""Single flight: concurrent calls with the same key run once and share the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Hashable
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.work.body import Work
from toolsemble._engine.work.wait import WouldBlockLoopError, acquire
from toolsemble._runtime.fork_locks import fork_safe_lock
from toolsemble._runtime.locks.holds import TABLE, Hold, current_hold
from toolsemble._runtime.locks.table import DeadlockError

CANNOT_WAIT = (DeadlockError, WouldBlockLoopError)
"""Raised when waiting for a call in flight would never end."""


class SharedCall:
    """A call in flight, on which calls with the same key wait."""

    __slots__ = ("hold", "process", "result", "settle")

    def __init__(self) -> None:
        self.result: Any = None
        """The result, if the waiting calls may use it."""
        self.settle: Callable[[], None] | None = None
        """Cleanup for a call whose event loop was closed before it ended; None for none."""
        self.process = os.getpid()
        """The id of the process in which it runs; in a forked child it does not run."""
        # Waiting calls wait in the lock table, which detects deadlocks. Brief: a body that outlives the call is not
        # waited for, because its outcome is no longer that of the call.
        self.hold = Hold([self], current_hold(), brief=True)
        """What the waiting calls wait for."""

    @property
    def is_open(self) -> bool:
        """Whether it is running and can still end."""
        loop = self.hold.loop
        return bool(self.hold.slots) and self.process == os.getpid() and not (loop and loop.is_closed())

    def wait(self, context: ToolContext) -> Generator[Work, Any, None]:
        """Wait until it has ended, or raise at the deadline; a nested call does not wait."""
        hold = Hold([self], current_hold(), brief=True)
        try:
            yield from acquire(hold, context)
        finally:  # the other waiting calls need not wait for this one
            try:
                hold.leave()
            except BaseException:
                hold.leave()  # an interrupt cut it off
                raise


class SingleFlight:
    """The calls in flight, by key.

    >>> flights, own = SingleFlight(), SharedCall()
    >>> try:
    ...     flights.join("a", own) is own, flights.join("a", SharedCall()) is own
    ... finally:
    ...     flights.finish("a", own)
    (True, True)
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._open: dict[Hashable, SharedCall] = {}

    def join(self, key: Hashable, own: SharedCall) -> SharedCall:
        """Return the call in flight for a key; if there is none, register and return the caller's own.

        The caller must finish its own call in a ``finally``, whatever is raised here.
        """
        with self._lock:
            found = self._open.get(key)
            if found is not None and found.is_open:
                return found
            own.settle = None if found is None or found.process != own.process else found.settle
            TABLE.acquire(own.hold)  # from now on, other calls wait for it
            self._open[key] = own
            return own

    def finish(self, key: Hashable, own: SharedCall) -> None:
        """Remove a call and wake the waiting ones; do nothing if it never started or has ended."""
        with self._lock:
            if self._open.get(key) is own:
                del self._open[key]
        own.hold.leave()
