"""Calls that are made once for all who make them at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Hashable
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.locks.holds import TABLE, Hold, held
from toolsemble.locks.table import EndlessWaitError
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.work.body import Work
from toolsemble.work.wait import WouldBlockLoopError, acquire

CANNOT_WAIT = (EndlessWaitError, WouldBlockLoopError)
"""What is raised where a wait for a call that is in flight would never end."""


class Flight:
    """One call that others of its kind wait for; made by each that may have to lead it, and known once it does."""

    __slots__ = ("_hold", "process", "result", "settle")

    def __init__(self) -> None:
        self.result: Any = None
        """What came of it, where others may have it, too."""
        self.settle: Callable[[], None] | None = None
        """What is left to be done for it when its event loop is closed before it has ended; None for nothing."""
        self.process = os.getpid()
        """The process in which it is made; in a fork of that, it is not."""
        # Who waits, waits in the table of what calls hold, which finds waits that would never end. What a call leaves
        # behind is not waited for: its outcome is not this flight's any more.
        self._hold = Hold([self], held(), brief=True)

    @property
    def is_open(self) -> bool:
        """Whether it is being made, and will come to an end."""
        loop = self._hold.loop
        return bool(self._hold.seats) and self.process == os.getpid() and not (loop and loop.is_closed())

    def wait(self, context: ToolContext) -> Generator[Work, Any, None]:
        """Wait until it is over, for as long as the call has time; a call inside it does not wait."""
        hold = Hold([self], held(), brief=True)
        try:
            yield from acquire(hold, context)
        finally:  # the others do not wait for what this one does now
            try:
                hold.leave()
            except BaseException:
                hold.leave()  # an interrupt came before it was done
                raise

    def start(self) -> None:
        """Have others wait for it from now on."""
        TABLE.ask(self._hold)

    def enter(self) -> None:
        """Let the calls inside the call know that it is in flight."""
        self._hold.enter()

    def end(self) -> None:
        """Let those go on who wait; a second time does no harm."""
        self._hold.leave()


class Flights:
    """The calls that are in flight, by their keys.

    >>> flights, own = Flights(), Flight()
    >>> try:
    ...     flights.board("a", own) is own, flights.board("a", Flight()) is own
    ... finally:
    ...     flights.land("a", own)
    (True, True)
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._open: dict[Hashable, Flight] = {}

    def board(self, key: Hashable, own: Flight) -> Flight:
        """Return the flight of a key that is under way, or else the caller's own, which is from then on.

        Whoever boards lands its own flight in a ``finally``, whatever is raised here.
        """
        with self._lock:
            found = self._open.get(key)
            if found is not None and found.is_open:
                return found
            own.settle = None if found is None or found.process != own.process else found.settle
            own.start()
            self._open[key] = own
            return own

    def land(self, key: Hashable, own: Flight) -> None:
        """Let those go on who wait for a flight; nothing where it never began, or has ended."""
        with self._lock:
            if self._open.get(key) is own:
                del self._open[key]
        own.end()
