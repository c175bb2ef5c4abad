"""Calls that are made once for all who make them at the same time."""

from __future__ import annotations

import os
from collections.abc import Generator, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.forks import lock_of
from toolsemble.limits import TABLE, Hold, held
from toolsemble.table import EndlessWaitError
from toolsemble.waiting import StandstillError, taken
from toolsemble.work import Work

CANNOT_WAIT = (EndlessWaitError, StandstillError)
"""What is raised where a wait for a call that is in flight would never end."""


class Flight:
    """One call that others of its kind wait for."""

    __slots__ = ("_hold", "over", "process", "result")

    def __init__(self) -> None:
        self.result: Any = None
        """What came of it, where others may have it, too."""
        self.over = False
        """Whether it has ended."""
        self.process = os.getpid()
        """The process in which it is made; in a fork of that, it is not."""
        # Who waits, waits in the table of what calls hold, which finds waits that would never end. What a call leaves
        # behind is not waited for: its outcome is not this flight's any more.
        self._hold = Hold([self], held(), brief=True)
        TABLE.ask(self._hold)

    def wait(self, context: ToolContext) -> Generator[Work, Any, None]:
        """Wait until it is over, for as long as the call has time; a call inside it does not wait."""
        hold = Hold([self], held(), brief=True)
        yield from taken(hold, context)
        hold.leave()  # the others do not wait for what this one does now

    def enter(self) -> None:
        """Let the calls inside the call know that it is in flight."""
        self._hold.enter()

    def land(self) -> None:
        """Let those go on who wait."""
        self.over = True
        self._hold.leave()


class Flights:
    """The calls that are in flight, by their keys.

    >>> flights = Flights()
    >>> flight, leads = flights.board("a")
    >>> with flights.led("a", flight):
    ...     flights.board("a") == (flight, False)
    True
    """

    def __init__(self) -> None:
        self._lock = lock_of(self)
        self._open: dict[Hashable, Flight] = {}

    def board(self, key: Hashable) -> tuple[Flight, bool]:
        """Give the flight of a key, and whether it is a new one, which the caller has to lead."""
        with self._lock:
            found = self._open.get(key)
            if found is not None and found.process == os.getpid():
                return found, False
            made = self._open[key] = Flight()
            return made, True

    @contextmanager
    def led(self, key: Hashable, flight: Flight) -> Iterator[None]:
        """Lead a flight to its end."""
        flight.enter()
        try:
            yield
        finally:
            with self._lock:
                if self._open.get(key) is flight:
                    del self._open[key]
            flight.land()
