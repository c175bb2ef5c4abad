"""SQLite databases in memory or in a file: one connection for all threads, closed before a fork."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

from toolsemble._vocabulary.errors import ToolConfigurationError

BUSY = 30.0
"""Default seconds that a writer waits for another."""

_PAUSE = 0.004
_KEY_BYTES = 32
_TRIGGERS = """
    CREATE TRIGGER {table}_stay BEFORE UPDATE ON {table}
        BEGIN SELECT RAISE(ABORT, '{table} are never changed'); END;
    CREATE TRIGGER {table}_last BEFORE DELETE ON {table}
        BEGIN SELECT RAISE(ABORT, '{table} are never deleted'); END;
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a database: its name in messages, its file id, and its tables."""

    what: str
    """Its name in error messages."""
    number: int
    """SQLite's ``application_id``, which identifies its files."""
    version: int
    """The version of its tables."""
    tables: str
    """The SQL statements that create the tables."""
    synchronous: str = "FULL"
    """SQLite's ``synchronous``: ``FULL`` survives a power failure, ``NORMAL`` only the end of the process."""
    upgrades: Mapping[int, Callable[[Any], object]] = field(default_factory=dict)
    """Functions that upgrade the tables to the next version, keyed by the earlier version."""
    append_only: tuple[str, ...] = ()
    """The tables whose rows are never changed or deleted."""

    def script(self) -> str:
        """Return the SQL statements that create a new database.

        >>> Kind("list", 7, 2, "CREATE TABLE list (x);").script()
        'CREATE TABLE list (x); PRAGMA application_id = 7; PRAGMA user_version = 2;'
        """
        triggers = "".join(_TRIGGERS.format(table=table) for table in self.append_only)
        return f"{self.tables}{triggers} PRAGMA application_id = {self.number}; PRAGMA user_version = {self.version};"


class Database:
    """A database of a kind, in memory or in a file, which is created if it is missing."""

    in_place = True
    """Whether an unsynced write is fast enough to run in the event loop."""
    clock = staticmethod(time.time)
    """Returns the system's time, for row timestamps."""
    presence = None
    """Processes that use the same file can be checked directly, and need no heartbeat."""

    def __init__(self, path: Path | None, kind: Kind, busy: float = BUSY) -> None:
        self._path = path
        self._kind = kind
        self.busy = busy
        # Reentrant: a fork inside a transaction, for example in a signal handler, must not deadlock.
        self.lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._inode = 0
        self._closed = False
        self._collected = False
        self._users = 0  # more than one if this thread's uses are nested
        with self.reading():
            _OPEN.add(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Return the connection as a context manager, for this thread only."""
        try:
            with self._use() as connection:
                yield connection
        finally:
            if self._collected:
                self._disconnect_unused()

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        with self.lock:
            if self._closed:
                raise ToolConfigurationError(f"The {self._kind.what} is closed; make a new one")
            # A database in memory, with an approval for example, belongs to the parent, not to each forked process.
            if self._connection is None or self._process != os.getpid():
                self.disconnect()
                self._process = os.getpid()
                self._connection = self._open()
                _CONNECTIONS.add(self._connection)
            self._users += 1
            try:
                yield self._connection
            except sqlite3.DatabaseError as error:
                # Its subclasses stand for temporary errors, such as a full disk, and for misuse.
                if type(error) is not sqlite3.DatabaseError:
                    raise
                raise self.damaged_error(error) from error
            finally:
                self._users -= 1

    def damaged_error(self, error: Exception) -> ToolConfigurationError:
        """Return the error for a damaged file; it names the file."""
        reason = str(error) or type(error).__name__
        return ToolConfigurationError(
            f"The {self._kind.what} '{self._path}' cannot be used: {reason}; restore a copy of it"
        )

    @contextmanager
    def writing(
        self,
        patience: float | None = None,
        *,
        key: str | None = None,  # a file has one writer at a time
        synced: bool = False,
        notify: bool = False,  # other processes poll the file
    ) -> Iterator[sqlite3.Connection]:
        """Return the connection inside a write transaction; an exception rolls it back.

        :param patience: seconds to wait for another writer, at most the default of the database
        :param key: the transaction's subject, for databases in which writers of other keys need not wait
        :param synced: whether it must survive a power failure, even if the database kind does not require it
        :param notify: whether to notify watchers, in databases that can
        """
        with self.reading() as connection, self._synchronizing(connection, synced=synced), connection:
            self._check_place()
            self._begin(connection, self.busy if patience is None else min(patience, self.busy))
            yield connection

    def write(
        self,
        statement: str,
        values: Sequence[Any],
        *,
        key: str,
        synced: bool = False,
    ) -> int:
        """Execute one statement in its own transaction; return the number of changed rows."""
        with self.reading() as connection:
            if not synced:
                return connection.execute(statement, values).rowcount
            self._check_place()
            with self._synchronizing(connection, synced=synced):
                return connection.execute(statement, values).rowcount

    def _check_place(self) -> None:
        """Raise if the file was deleted or replaced while it was open: its writes would be lost."""
        if self._path is None:
            return
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            inode = -1
        if inode != self._inode:
            what = f"The {self._kind.what} '{self._path}'"
            raise ToolConfigurationError(f"{what} was deleted or replaced while it was open; start the program again")

    @contextmanager
    def _synchronizing(self, connection: sqlite3.Connection, *, synced: bool) -> Iterator[None]:
        if not synced or self._kind.synchronous == "FULL":
            yield
            return
        connection.execute("PRAGMA synchronous = FULL")  # cannot be set inside a transaction
        try:
            yield
        finally:
            connection.execute(f"PRAGMA synchronous = {self._kind.synchronous}")

    def watch(self, changed: Callable[[], object]) -> None:
        """Return None: a file sends no notifications, so waiters have to poll."""
        return

    def load_key(self, what: str, otherwise: str = "") -> bytes:
        """Return the key in the file ``<path>.key``, which is created if it is missing; a random one in memory."""
        return os.urandom(_KEY_BYTES) if self._path is None else load_key(self._path, what, otherwise)

    def naming_errors(self) -> AbstractContextManager[None]:
        """Raise all errors as ToolConfigurationError with the file name, for stores without their own errors."""
        return translate_errors(Path(f"{self._path}"), self._kind.what)

    def close(self) -> None:
        """Close the database; tables in memory are lost."""
        with self.lock:
            self._closed = True
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection; the next use opens it again."""
        with self.lock:
            if self._connection is not None:
                _CONNECTIONS.discard(self._connection)
                self._connection.close()
                self._connection = None

    def prepare_fork(self) -> None:
        """Take the lock, and close a connection to a file: SQLite's locks do not survive a fork."""
        self.lock.acquire()
        if self._path is not None:
            self.disconnect()

    def __del__(self) -> None:
        with suppress(AttributeError):  # the database could not be opened
            # A call collected together with it may be writing now, in another thread, which then closes
            # the connection.
            self._collected = True
            self._disconnect_unused()

    def _disconnect_unused(self) -> None:
        if self.lock.acquire(blocking=False):
            try:
                if not self._users:
                    self.disconnect()
            finally:
                self.lock.release()

    def _begin(self, connection: sqlite3.Connection, patience: float) -> None:
        """Begin a write transaction; raise if another process holds the write lock for too long."""
        ends = time.monotonic() + patience
        # SQLite would sleep up to 0.1 s, although other writers are done within a millisecond.
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > ends:
                        raise
                    time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - jitter, so that two waiting writers do not stay in step
                else:
                    return
        finally:
            connection.execute(f"PRAGMA busy_timeout = {self.busy * 1000:.0f}")

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            connection.executescript(self._kind.script())
            return connection
        with translate_errors(self._path, self._kind.what):
            _create_file(self._path, self._create)
            self._inode = self._path.stat().st_ino
            return self._connect(self._path.as_uri())

    def _connect(self, uri: str) -> sqlite3.Connection:
        # Opening must not create the file: an empty file would count as a valid database.
        connection = sqlite3.connect(
            f"{uri}?mode=rw", uri=True, timeout=self.busy, isolation_level=None, check_same_thread=False
        )
        with ExitStack() as stack:
            stack.callback(connection.close)
            connection.execute(f"PRAGMA synchronous = {self._kind.synchronous}")
            if _is_empty(connection):
                self._fill(connection)
            (number,) = connection.execute("PRAGMA application_id").fetchone()
            if number == self._kind.number and _version(connection) in self._kind.upgrades:
                self._upgrade(connection)
            if (number, _version(connection)) != (self._kind.number, self._kind.version):
                raise OSError(f"it is not a {self._kind.what} of this version; name a file that does not exist yet")
            stack.pop_all()  # keep it open
        return connection

    def _fill(self, connection: sqlite3.Connection) -> None:
        """Create the tables in the user's empty file, which other processes may open at the same time."""
        path = Path(f"{self._path}")
        _check_unused(path)
        path.chmod(0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        with connection:
            self._begin(connection, self.busy)
            if _is_empty(connection):
                for statement in _split(self._kind.script()):
                    connection.execute(statement)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Upgrade the tables of an earlier version, all or nothing."""
        with connection:
            self._begin(connection, self.busy)
            # Read again: another process may have upgraded them.
            while (change := self._kind.upgrades.get(version := _version(connection))) is not None:
                change(connection)
                connection.execute(f"PRAGMA user_version = {version + 1}")

    def _create(self, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(self._kind.script())


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether a file is empty: another program created it, such as ``touch`` or ``mktemp``."""
    (number,) = connection.execute("PRAGMA application_id").fetchone()
    (count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return not (number or _version(connection) or count)


def _check_unused(path: Path) -> None:
    """Raise if an empty file was a database before: its data is lost, and that must not go unnoticed."""
    beside = [each for each in (path.with_name(f"{path.name}{end}") for end in (".key", "-wal")) if each.exists()]
    if beside and not path.stat().st_size:
        raise OSError(f"it is empty, but '{beside[0].name}' shows that it was in use; restore a copy of it")


def _split(script: str) -> Iterator[str]:
    """Yield the statements of a script, to be executed in a transaction."""
    statement = ""
    for part in script.split(";"):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


_OPEN: WeakSet[Database] = WeakSet()
# All open connections. Python 3.13's garbage collector closes unreachable ones, even while a thread records the
# end of a call that is collected with one: the process would crash.
_CONNECTIONS: set[sqlite3.Connection] = set()
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
    """Return the key in the file ``<path>.key`` next to a database; the file is created if it is missing.

    Raise if other users can read the file.

    :param what: its name in error messages
    :param otherwise: the end of the message for a key readable by others: an alternative to chmod
    """
    place = path.with_name(f"{path.name}.key")
    with translate_errors(place, what):
        _create_file(place, lambda file: file.write_text(os.urandom(_KEY_BYTES).hex()))
        if os.name == "posix" and place.stat().st_mode & 0o077:
            raise OSError(f"other users can read it; chmod it to 600{otherwise}")
        key = bytes.fromhex(place.read_text())
        if len(key) != _KEY_BYTES:
            raise ValueError(f"it does not hold a key of {_KEY_BYTES} bytes")
        return key


def _create_file(path: Path, make: Callable[[Path], Any]) -> None:
    """Create a file atomically, readable by its owner only; an existing file stays."""
    if path.exists():
        return
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:  # it names the temporary file
        raise OSError(f"no file can be created in the folder '{path.parent}': {error.strerror}") from None
    os.close(handle)
    try:
        make(Path(name))
        with suppress(FileExistsError):  # another process has created it
            os.link(name, path)
    finally:
        Path(name).unlink()


@contextmanager
def translate_errors(path: Path, what: str) -> Iterator[None]:
    """Raise ToolConfigurationError with the file name for system and SQLite errors."""
    try:
        yield
    except (OSError, ValueError, sqlite3.Error) as error:
        raise ToolConfigurationError(f"The {what} '{path}' cannot be used: {error}") from error
