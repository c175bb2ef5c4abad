"""SQLite databases in memory or in a file: one connection for all threads, none that crosses a fork."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

from toolsemble.errors import ToolConfigurationError

BUSY = 30.0
"""How many seconds one who writes waits for another, unless somebody says otherwise."""

_PAUSE = 0.004


@dataclass(frozen=True, slots=True)
class Kind:
    """What a database is for, and what is in it."""

    what: str
    """What it is called when something is wrong with it."""
    number: int
    """The number by which its files are told from others, SQLite's ``application_id``."""
    version: int
    """The version of its tables."""
    tables: str
    """The statements that make them."""
    synchronous: str = "FULL"
    """Whether what is written survives a loss of power, ``FULL``, or only the end of the process, ``NORMAL``."""

    def script(self) -> str:
        """Give the statements that make a new database.

        >>> Kind("list", 7, 2, "CREATE TABLE list (x);").script()
        'CREATE TABLE list (x); PRAGMA application_id = 7; PRAGMA user_version = 2;'
        """
        return f"{self.tables} PRAGMA application_id = {self.number}; PRAGMA user_version = {self.version};"


class Database:
    """The tables of a kind in memory, or in the file at a path, which is made when it is missing.

    >>> database = Database(None, Kind("list of names", 1, 1, "CREATE TABLE names (name TEXT);"))
    >>> with database.writing() as rows:
    ...     rows.execute("SELECT count(*) FROM names").fetchone()
    (0,)
    >>> database.close()
    """

    def __init__(self, path: Path | None, kind: Kind, busy: float = BUSY) -> None:
        self._path = path
        self._kind = kind
        self.busy = busy
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
                raise ToolConfigurationError(f"The {self._kind.what} is closed; make a new one")
            # What is kept in memory, an approval for example, is for the parent to use, not for each of its forks.
            if self._connection is None or self._process != os.getpid():
                self.disconnect()
                self._process = os.getpid()
                self._connection = self._opened()
            try:
                yield self._connection
            except sqlite3.DatabaseError as error:
                # Its subclasses are for what may pass, such as a full disk, and for misuse.
                if type(error) is not sqlite3.DatabaseError:
                    raise
                raise self.damaged_error(error) from error

    def damaged_error(self, error: Exception) -> ToolConfigurationError:
        """Return the error for rows that cannot be read: it names the file."""
        reason = str(error) or type(error).__name__
        return ToolConfigurationError(
            f"The {self._kind.what} '{self._path}' cannot be used: {reason}; restore a copy of it"
        )

    @contextmanager
    def writing(self, patience: float | None = None) -> Iterator[sqlite3.Connection]:
        """Give the connection inside a transaction that no other process writes beside; an exception undoes it.

        :param patience: how many seconds another one is waited for, where that is less than ever
        """
        with self.reading() as connection, connection:
            self._begin(connection, self.busy if patience is None else min(patience, self.busy))
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

    def prepare_fork(self) -> None:
        """Wait for who is at work, and close a connection to a file: SQLite's locks do not survive a fork."""
        self.lock.acquire()
        if self._path is not None:
            self.disconnect()

    def __del__(self) -> None:
        with suppress(AttributeError):  # where the database could not be opened
            # A call that is collected together with it may take down its end at this moment, in another thread.
            if self.lock.acquire(blocking=False):
                try:
                    self.disconnect()
                finally:
                    self.lock.release()

    def _begin(self, connection: sqlite3.Connection, patience: float) -> None:
        """Begin to write as soon as nobody else does; raise when somebody does for too long."""
        ends = time.monotonic() + patience
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
            connection.execute(f"PRAGMA busy_timeout = {self.busy * 1000:.0f}")

    def _opened(self) -> sqlite3.Connection:
        if self._path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            connection.executescript(self._kind.script())
            return connection
        with translate_errors(self._path, self._kind.what):
            _place(self._path, self._make)
            return self._checked(self._path.as_uri())

    def _checked(self, uri: str) -> sqlite3.Connection:
        # Never made by opening it: an empty file in place of the rows would be taken for a database.
        connection = sqlite3.connect(
            f"{uri}?mode=rw", uri=True, timeout=self.busy, isolation_level=None, check_same_thread=False
        )
        with ExitStack() as stack:
            stack.callback(connection.close)
            connection.execute(f"PRAGMA synchronous = {self._kind.synchronous}")
            (number,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if (number, version) != (self._kind.number, self._kind.version):
                raise OSError(f"it is not a {self._kind.what} of this version; name a file that does not exist yet")
            stack.pop_all()  # it stays open when nothing is wrong
        return connection

    def _make(self, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(self._kind.script())


_OPEN: WeakSet[Database] = WeakSet()
_forking = threading.local()


def _before_fork() -> None:
    _forking.databases = list(_OPEN)
    for database in _forking.databases:
        database.prepare_fork()


def _after_fork() -> None:
    for database in _forking.databases:
        database.lock.release()
    del _forking.databases


getattr(os, "register_at_fork", lambda **_: None)(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
)


def load_key(path: Path, what: str, otherwise: str = "") -> bytes:
    """Give the key in the file beside a database, ``<path>.key``; it is made when it is missing.

    Who can read it can do what it is for, so a key that others may read is refused.

    :param what: what it is called when something is wrong with it
    :param otherwise: what can be done beside making it private
    """
    place = path.with_name(f"{path.name}.key")
    with translate_errors(place, what):
        _place(place, lambda file: file.write_text(os.urandom(32).hex()))
        if os.name == "posix" and place.stat().st_mode & 0o077:
            raise OSError(f"others can read it; chmod it to 600{otherwise}")
        key = bytes.fromhex(place.read_text())
        if len(key) != 32:  # noqa: PLR2004 - as it is made above
            raise ValueError("it does not hold a key of 32 bytes")
        return key


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
def translate_errors(path: Path, what: str) -> Iterator[None]:
    """Say which file it is that cannot be used."""
    try:
        yield
    except (OSError, ValueError, sqlite3.Error) as error:
        raise ToolConfigurationError(f"The {what} '{path}' cannot be used: {error}") from error
