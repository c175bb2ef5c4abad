"""Where a journal is kept: transactions over its tables, and the drivers that have to say that they live."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from toolsemble.errors import ToolsembleError
from toolsemble.journal.ownership import LEASE, needs_beats
from toolsemble.journal.tables import KIND, Tables
from toolsemble.runtime.sqlite import Database


class Driver(Protocol):
    """A driver of a run, as its storage sees it."""

    def beat(self) -> None:
        """Say that it lives."""
        ...

    def drain(self) -> None:
        """Wake up whoever waits for its end."""
        ...


class Storage:
    """The tables of a journal in a file.

    >>> storage = Storage(None, time.time)
    >>> with storage.reading() as tables:
    ...     tables.list_runs()
    []
    >>> storage.close()
    """

    in_place = True
    """Whether writing without waiting for the disk is so quick that it need not leave the event loop."""
    shared = False
    """Whether drivers may be on any machine."""

    def __init__(self, path: Path | None, clock: Callable[[], float]) -> None:
        self._database = Database(path, KIND)
        self._clock = clock
        self._drivers: WeakSet[Driver] = WeakSet()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        """Return the tables, to be read."""
        with self._database.reading() as connection:
            yield Tables(connection, self._clock)

    @contextmanager
    def writing(self, *, synced: bool = False) -> Iterator[Tables]:
        """Return the tables inside a transaction.

        :param synced: whether it must survive a loss of power
        """
        with self._database.writing(synced=synced) as connection:
            yield Tables(connection, self._clock)

    def add(self, driver: Driver) -> None:
        """Keep a driver, and let it say that it lives if nobody could look that up."""
        with self._lock:
            self._drivers.add(driver)
            if (self.shared or needs_beats()) and self._beating is None:
                self._beating = threading.Thread(target=self._beat, name="toolsemble-journal", daemon=True)
                self._beating.start()

    def forget(self, driver: Driver) -> None:
        """Forget a driver that has ended."""
        with self._lock:
            self._drivers.discard(driver)

    def drain(self) -> None:
        """Wake up all drivers whose calls wait for a person."""
        with self._lock:
            drivers = list(self._drivers)
        for driver in drivers:
            driver.drain()

    def close(self) -> None:
        """Close the file."""
        self._closed.set()
        self._database.close()

    def _beat(self) -> None:
        # From a thread: a body that blocks the event loop must not cost the run.
        while not self._closed.wait(LEASE / 3):
            with self._lock:
                drivers = list(self._drivers)
            for driver in drivers:
                with suppress(ToolsembleError, OSError):  # the next one may succeed; its driver notices a lost run
                    driver.beat()
