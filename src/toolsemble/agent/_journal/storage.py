"""The database of a journal, and the ownership of its runs."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol
from weakref import WeakSet

from toolsemble._runtime.processes.identity import ProcessIdentity
from toolsemble._runtime.storage.opening import Location, open_database
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import JournalError, ToolsembleError
from toolsemble.agent._journal.records import Step
from toolsemble.agent._journal.tables import KIND, RunRow, Tables, write_step

LEASE = 30.0
"""Default of the seconds after which a driver that has to say that it lives, and did not, counts as gone."""
_ELSEWHERE = 60.0  # the same for a driver on another machine, or before a restart: its file is not made for that

_live: set[str] = set()  # the drivers of this process
getattr(os, "register_at_fork", lambda **_: None)(after_in_child=_live.clear)


def new_owner() -> str:
    """Return a new driver of this process, as it is stored with a run; it lives until :func:`end_owner`.

    >>> owner = new_owner()
    >>> is_here(owner)
    True
    >>> end_owner(owner)
    >>> is_here(owner)
    False
    """
    token = new_id()
    _live.add(token)
    return json.dumps([*ProcessIdentity.current(), token, time.time()])


def end_owner(owner: str) -> None:
    """End a driver of this process."""
    _live.discard(json.loads(owner)[3])


def is_here(owner: str) -> bool:
    """Return whether a driver lives in this process."""
    *process, token, _ = json.loads(owner)
    return ProcessIdentity(*process) == ProcessIdentity.current() and token in _live


def describe_owner(owner: str) -> str:
    """Return a driver in words.

    >>> describe_owner('["a boot", 4711, "", "token", 0.0]')
    'process 4711 since 1970-01-01 00:00:00 UTC'
    """
    _, pid, _, _, since = json.loads(owner)
    return f"process {pid} since {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(since))} UTC"


def needs_beats() -> bool:
    """Return whether other processes cannot look up whether this one lives, so that it has to say so."""
    return not ProcessIdentity.current().started


def is_driven(row: RunRow, now: float, lease: float = LEASE, *, shared: bool) -> bool:
    """Return whether somebody drives a run.

    :param now: the time on the clock that the row's times are of
    :param lease: seconds after which a driver that has to say that it lives, and did not, counts as gone
    :param shared: whether drivers may be on any machine, and say that they live
    """
    if row.state != "running" or not row.owner:
        return False
    *process, token, _ = _read(row.owner)
    identity = ProcessIdentity(*process)
    if identity == ProcessIdentity.current():
        return token in _live
    age = now - row.updated
    if shared:
        # The row may be from the future by a few milliseconds: between two answers of the server its time is estimated.
        return abs(age) < lease and not identity.has_ended()
    if identity.place == ProcessIdentity.current().place and not identity.started:
        return 0 <= age < lease
    if identity.place != ProcessIdentity.current().place:
        return 0 <= age < _ELSEWHERE  # a clock that was set back says nothing
    return identity.is_running()


def _read(owner: str) -> list[Any]:
    values: list[Any] = json.loads(owner)
    return values


@contextmanager
def report_failures(run: str) -> Iterator[None]:
    """Raise ``JournalError`` for an error of the database, such as a full disk."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise JournalError(f"Run '{run}' cannot go on, because of its journal: {describe_error(error)}") from error


class Driver(Protocol):
    """A driver of a run, as its storage sees it."""

    def beat(self) -> None:
        """Say that it lives."""
        ...

    def drain(self) -> None:
        """Wake up whoever waits for its end."""
        ...


class Storage:
    """The tables of a journal in a file, or in a Postgres database.

    :param lease: seconds after which a driver that has to say that it lives, and does not, counts as gone
    :param clock: returns the time that rows are stamped with; None: the time of the system, or of the server

    >>> storage = Storage(None)
    >>> with storage.reading() as tables:
    ...     tables.list_runs()
    []
    >>> storage.close()
    """

    def __init__(
        self, location: Location | None, lease: float = LEASE, clock: Callable[[], float] | None = None
    ) -> None:
        self._database = open_database(location, KIND)
        self._lease = lease
        self.now = clock or self._database.clock
        """Returns the time that rows are stamped with."""
        self.in_place = self._database.in_place
        """Whether writing without waiting for the disk is so quick that it need not leave the event loop."""
        self._is_shared = self._database.presence is not None
        self._drivers: WeakSet[Driver] = WeakSet()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        """Return the tables, to be read."""
        with self._database.reading() as connection:
            yield Tables(connection, self.now)

    @contextmanager
    def writing(self, run: str | None = None, *, synced: bool = False, notify: bool = False) -> Iterator[Tables]:
        """Return the tables inside a transaction.

        :param run: the run that it is about, so that it waits for no other; None: it is about several
        :param synced: whether it must survive a loss of power
        :param notify: whether to wake the workers
        """
        with self._database.writing(key=run, synced=synced, notify=notify) as connection:
            yield Tables(connection, self.now)

    def write_step(self, run: str, fence: int, step: Step, *, synced: bool) -> bool:
        """Add or replace a step of a run; return False if the fence is not that of the latest driver, or cancelled.

        :param synced: as in :meth:`writing`
        """
        return write_step(self._database, run, fence, step, self.now(), synced=synced)

    def find_offset(self) -> float:
        """Return how many seconds the clock of the server is ahead of this machine's; 0 for a file."""
        return self._database.clock() - time.time() if self._is_shared else 0.0

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, when there may be work; return a function that ends this.

        Return None if nobody is told: who waits has to look from time to time.
        """
        return self._database.watch(changed)

    def is_driven(self, row: RunRow, now: float) -> bool:
        """Return whether somebody drives a run.

        :param now: the time on the clock that the row's times are of
        """
        return is_driven(row, now, self._lease, shared=self._is_shared)

    def add(self, driver: Driver) -> None:
        """Keep a driver, and let it say that it lives if nobody could look that up."""
        with self._lock:
            self._drivers.add(driver)
            if (self._is_shared or needs_beats()) and self._beating is None:
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
        """Close the database."""
        self._closed.set()
        self._database.close()

    def _beat(self) -> None:
        # From a thread: a body that blocks the event loop must not cost the run.
        while not self._closed.wait(self._lease / 3):
            with self._lock:
                drivers = list(self._drivers)
            for driver in drivers:
                with suppress(ToolsembleError, OSError):  # the next one may succeed; its driver notices a lost run
                    driver.beat()
