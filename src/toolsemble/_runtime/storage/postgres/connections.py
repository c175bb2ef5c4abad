"""The connections of one process to a database, each used by one thread at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from toolsemble._runtime.fork_locks import fork_safe_lock
from toolsemble._runtime.storage.postgres.driver import is_lost

if TYPE_CHECKING:
    from toolsemble._runtime.storage.postgres.driver import Link

MOST = 4
"""How many connections a store opens for its transactions."""
_PAUSE = 0.2

# Connections of a parent process: closing them here would end its sessions.
_INHERITED: list[Link] = []


class Connections:
    """Open connections, at most some; those that are lost are replaced.

    :param connect: returns a new connection
    :param patience: seconds to wait for a free one, and for a server that is down
    """

    def __init__(self, connect: Callable[[], Link], patience: float) -> None:
        self._connect = connect
        self._patience = patience
        self._lock = fork_safe_lock(self)
        self._process = os.getpid()
        self._idle: list[Link] = []
        self._slots = threading.BoundedSemaphore(MOST)
        self._has_connected = False

    @contextmanager
    def lend(self) -> Iterator[Lent]:
        """Return a connection as a context manager, for this thread only."""
        slots = self._find_slots()
        if not slots.acquire(timeout=self._patience):
            raise TimeoutError(f"All {MOST} connections of this process are in use for {self._patience:g} s")
        try:
            lent = Lent(self._find_idle() or self.open(), self.renew)
            try:
                yield lent
            finally:
                self._take_back(lent.link)
        finally:
            slots.release()

    def renew(self, lost: Link) -> Link:
        """Return a connection in place of a lost one."""
        lost.close()
        return self.open()

    def open(self) -> Link:
        """Return a new connection; wait for a server that is down, unless it was never there."""
        ends = time.monotonic() + (self._patience if self._has_connected else 0.0)
        while True:
            try:
                link = self._connect()
            except psycopg.OperationalError as error:
                if not is_lost(error) or time.monotonic() >= ends:
                    raise
                time.sleep(_PAUSE)
            else:
                self._has_connected = True
                return link

    def close_idle(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _find_slots(self) -> threading.BoundedSemaphore:
        with self._lock:
            if self._process != os.getpid():
                _INHERITED.extend(self._idle)
                self._process, self._idle = os.getpid(), []
                self._slots = threading.BoundedSemaphore(MOST)
            return self._slots

    def _find_idle(self) -> Link | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _take_back(self, link: Link) -> None:
        # An interrupt may have come in the middle of a statement.
        if link.closed or link.info.transaction_status != TransactionStatus.IDLE:
            link.close()
            return
        with self._lock:
            self._idle.append(link)

    def __del__(self) -> None:
        with suppress(AttributeError):
            if self._process == os.getpid():
                for link in self._idle:
                    link.close()


class Lent:
    """A connection that a thread uses for some time."""

    __slots__ = ("_renew", "link")

    def __init__(self, link: Link, renew: Callable[[Link], Link]) -> None:
        self.link = link
        self._renew = renew

    def execute(self, statement: str, values: list[object] | None = None) -> psycopg.Cursor[tuple[Any, ...]]:
        """Execute a statement that can be repeated, on another connection if this one is lost."""
        try:
            return self.link.execute(statement, values)
        except psycopg.Error as error:
            if not is_lost(error):
                raise
        self.link = self._renew(self.link)
        return self.link.execute(statement, values)
