"""A thread that waits for notifications of the server, and the heartbeats of owners of rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from toolsemble._runtime.storage.postgres.connections import INHERITED
from toolsemble._runtime.threads import fork_safe_lock

if TYPE_CHECKING:
    from toolsemble._runtime.storage.postgres.connections import Link


_ROUND = 1.0  # seconds after which the thread looks whether somebody still waits
_PAUSE = 1.0  # seconds before it connects again


class Listener:
    """The functions to call when a channel has news; a thread listens while there are any.

    They are also called when listening begins, or begins again: there may have been news meanwhile.

    :param connect: returns a new connection
    """

    def __init__(self, connect: Callable[[], Link], channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._lock = fork_safe_lock(self)
        self._process = os.getpid()
        self._watchers: dict[object, Callable[[], object]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Call a function for each notification; return a function that ends this."""
        key = object()
        with self._lock:
            if self._process != os.getpid():  # a forked process has no thread, and nobody who waits
                self._process, self._watchers, self._thread = os.getpid(), {}, None
            self._watchers[key] = changed
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="toolsemble-listener", daemon=True)
                self._thread.start()

        def end() -> None:
            with self._lock:
                self._watchers.pop(key, None)

        return end

    def close(self) -> None:
        """Stop listening, within a second."""
        self._closed.set()

    def _run(self) -> None:
        while self._is_needed():
            try:
                with self._connect() as link:
                    link.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    self._wake()
                    while self._is_needed():
                        if list(link.notifies(timeout=_ROUND, stop_after=1)):
                            self._wake()
            except psycopg.Error:
                self._closed.wait(_PAUSE)  # those who wait look from time to time by themselves

    def _is_needed(self) -> bool:
        with self._lock:
            if self._watchers and not self._closed.is_set():
                return True
            self._thread = None
            return False

    def _wake(self) -> None:
        with self._lock:
            watchers = list(self._watchers.values())
        for changed in watchers:
            changed()


LEASE = 30.0
"""Seconds after which an owner that did not say that it lives counts as gone."""
_FORGOTTEN = 24 * 3600.0

TABLE = "CREATE TABLE present (owner TEXT PRIMARY KEY, seen TIMESTAMPTZ NOT NULL);"
"""The statement that creates the table."""
_SAY = (
    "INSERT INTO present SELECT owner, clock_timestamp() FROM unnest(%s::text[]) AS owner "
    "ON CONFLICT (owner) DO UPDATE SET seen = excluded.seen"
)
_CLEAN = "DELETE FROM present WHERE seen < clock_timestamp() - make_interval(secs => %s)"
_LOOK = "SELECT seen > clock_timestamp() - make_interval(secs => %s) FROM present WHERE owner = %s"


class PostgresPresence:
    """The owners of this process, announced by a thread with a connection of its own; and a look at all others.

    From a thread: a body that blocks the event loop must not cost an owner its rows.

    :param connect: returns a new connection
    :param translating: raises errors of the driver as ours
    """

    def __init__(self, connect: Callable[[], Link], translating: Callable[[], AbstractContextManager[None]]) -> None:
        self._connect = connect
        self._translating = translating
        self._lock = fork_safe_lock(self)
        self._owners: set[str] = set()
        self._link: Link | None = None
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def announce(self, owner: str) -> None:
        """Say that an owner lives, from now on until this process ends."""
        with self._translating(), self._lock:
            self._enter_process()
            if owner in self._owners:
                return
            self._execute(_SAY, [[owner]])
            self._owners.add(owner)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="toolsemble-presence", daemon=True)
                self._thread.start()

    def is_present(self, owner: str) -> bool:
        """Return whether an owner has said within the lease that it lives."""
        with self._translating(), self._lock:
            self._enter_process()
            found = self._execute(_LOOK, [LEASE, owner]).fetchone()
        return found is not None and bool(found[0])

    def close(self) -> None:
        """Say nothing more."""
        with self._lock:
            self._closed.set()
            self._enter_process()
            if self._link is not None:
                self._link.close()

    def _enter_process(self) -> None:
        """Begin anew in a forked process, which has neither the thread nor the owners of its parent."""
        if self._process != os.getpid():
            INHERITED.append(self._link)
            self._process, self._link, self._thread = os.getpid(), None, None
            self._owners, self._closed = set(), threading.Event()

    def _execute(self, statement: str, values: list[object]) -> psycopg.Cursor[tuple[Any, ...]]:
        if self._link is not None and not self._link.closed:
            try:
                return self._link.execute(statement, values)
            except psycopg.OperationalError:
                self._link.close()
        self._link = self._connect()
        return self._link.execute(statement, values)

    def _beat(self) -> None:
        closed = self._closed
        while not closed.wait(LEASE / 3):
            with self._lock, suppress(psycopg.Error):  # the next beat may succeed
                if closed.is_set():
                    return
                self._execute(_SAY, [sorted(self._owners)])
                self._execute(_CLEAN, [_FORGOTTEN])
