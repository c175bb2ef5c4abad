"""The database that requests and answers are kept in: one connection for all threads, none that crosses a fork."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from toolsemble.errors import ToolConfigurationError

_BUSY = 30.0
_PAUSE = 0.004
_OURS = 0x746F6F6C
_VERSION = 1
_TABLES = f"""
    CREATE TABLE requests (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, bound TEXT NOT NULL,
        deadline REAL, request TEXT NOT NULL, seal TEXT NOT NULL, receipt TEXT, expires REAL
    );
    CREATE INDEX requests_by_state ON requests (state, deadline);
    CREATE INDEX requests_by_bound ON requests (bound, state);
    CREATE TABLE events (
        number INTEGER PRIMARY KEY, kind TEXT NOT NULL, request_id TEXT NOT NULL, tool_name TEXT NOT NULL,
        at REAL NOT NULL, person TEXT NOT NULL, role TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE INDEX events_by_request ON events (request_id);
    CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
    CREATE TRIGGER events_last BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
    CREATE TABLE secret (fingerprint TEXT NOT NULL);
    PRAGMA application_id = {_OURS};
    PRAGMA user_version = {_VERSION};
"""


class Database:
    """The tables in memory, or in the file at a path, which is made when it is missing.

    >>> database = Database(None)
    >>> with database.writing() as rows:
    ...     rows.execute("SELECT count(*) FROM requests").fetchone()
    (0,)
    >>> database.close()
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        # Reentrant: a fork inside of a transaction, from a signal handler for example, must not wait for itself.
        self.lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._closed = False
        with self.reading():
            _OPEN.add(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection, to this thread alone."""
        with self.lock:
            if self._closed:
                raise ToolConfigurationError("The review store is closed; make a new one")
            # An approval that waits in memory is for the parent to use, not for each of its forks.
            if self._connection is None or self._process != os.getpid():
                self.disconnect()
                self._process = os.getpid()
                self._connection = _in_memory() if self._path is None else _opened(self._path)
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give the connection inside a transaction that no other process writes beside; an exception undoes it."""
        with self.reading() as connection, connection:
            _begin(connection)
            yield connection

    def close(self) -> None:
        """Close the connection for good; the tables in memory are gone."""
        with self.lock:
            self._closed = True
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection until it is needed again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def leave_file(self) -> None:
        """Wait for who is at work, and close a connection to a file: SQLite's locks do not survive a fork."""
        self.lock.acquire()
        if self._path is not None:
            self.disconnect()

    def __del__(self) -> None:
        with suppress(AttributeError):  # where the database could not be opened
            self.disconnect()


_OPEN: WeakSet[Database] = WeakSet()
_forking = threading.local()


def _before_fork() -> None:
    _forking.databases = list(_OPEN)
    for database in _forking.databases:
        database.leave_file()


def _after_fork() -> None:
    for database in _forking.databases:
        database.lock.release()
    del _forking.databases


getattr(os, "register_at_fork", lambda **_: None)(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
)


def key_beside(path: Path) -> bytes:
    """Give the key in the file beside a database, ``<path>.key``; it is made when it is missing.

    Who can read it can sign answers, so a key that others may read is refused.
    """
    place = path.with_name(f"{path.name}.key")
    with _told(place, "key"):
        _place(place, lambda file: file.write_text(os.urandom(32).hex()))
        if os.name == "posix" and place.stat().st_mode & 0o077:
            raise OSError("others can read it; chmod it to 600, or pass a secret")
        key = bytes.fromhex(place.read_text())
        if len(key) != 32:  # noqa: PLR2004 - as it is made above
            raise ValueError("it does not hold a key of 32 bytes")
        return key


def _begin(connection: sqlite3.Connection) -> None:
    """Begin to write as soon as nobody else does; raise when somebody does for too long."""
    ends = time.monotonic() + _BUSY
    # SQLite would sleep for a tenth of a second when the others are done in less than one of a thousand.
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > ends:
                    raise
                time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - so that two who wait do not wait in step
            else:
                return
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY * 1000:.0f}")


def _in_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(_TABLES)
    return connection


def _opened(path: Path) -> sqlite3.Connection:
    with _told(path, "store"):
        _place(path, _make)
        # Never made by opening it: an empty file in place of the approvals would be taken for a store.
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        with ExitStack() as stack:
            stack.callback(connection.close)
            connection.execute("PRAGMA synchronous = FULL")
            (ours,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if (ours, version) != (_OURS, _VERSION):
                raise OSError("it is not a review store of this version; name a file that does not exist yet")
            stack.pop_all()  # it stays open when nothing is wrong
        return connection


def _make(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_TABLES)


def _place(path: Path, make: Callable[[Path], Any]) -> None:
    """Put a file at a path, for its owner only, whole or not at all; one that is there already stays."""
    if path.exists():
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        make(Path(name))
        with suppress(FileExistsError):  # another process was quicker
            os.link(name, path)
    finally:
        Path(name).unlink()


@contextmanager
def _told(path: Path, kind: str) -> Iterator[None]:
    """Say which file it is that cannot be used."""
    try:
        yield
    except (OSError, ValueError, sqlite3.Error) as error:
        raise ToolConfigurationError(f"The review {kind} '{path}' cannot be used: {error}") from error
