"""A Postgres database: its schema, statements, clock, and the transactions and locks that stores need."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from toolsemble._runtime.storage.database import PostgresUrl
from toolsemble._runtime.storage.postgres import connections as driver
from toolsemble._runtime.storage.postgres.connections import INHERITED, Connections, Lent
from toolsemble._runtime.storage.sqlite import Kind
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._vocabulary.errors import ToolConfigurationError

if TYPE_CHECKING:
    from toolsemble._runtime.storage.postgres.connections import Link


_ROUND = 1.0  # seconds between checks whether there are still waiters
_PAUSE = 1.0  # seconds before it reconnects


class Listener:
    """The functions to call on a channel's notifications; a thread listens while there are any.

    They are also called when listening starts or restarts: a notification may have been missed.

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
        """Call a function for each notification; return a function that stops it."""
        key = object()
        with self._lock:
            if self._process != os.getpid():  # a forked process has no thread and no waiters
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
                self._closed.wait(_PAUSE)  # waiters also poll

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
"""Seconds after which an owner without a heartbeat counts as dead."""
_FORGOTTEN = 24 * 3600.0

_PRESENCE_TABLE = "CREATE TABLE present (owner TEXT PRIMARY KEY, seen TIMESTAMPTZ NOT NULL);"
"""The statement that creates the table."""
_SAY = (
    "INSERT INTO present SELECT owner, clock_timestamp() FROM unnest(%s::text[]) AS owner "
    "ON CONFLICT (owner) DO UPDATE SET seen = excluded.seen"
)
_CLEAN = "DELETE FROM present WHERE seen < clock_timestamp() - make_interval(secs => %s)"
_LOOK = "SELECT seen > clock_timestamp() - make_interval(secs => %s) FROM present WHERE owner = %s"


class PostgresPresence:
    """The heartbeats of this process's owners, sent by a thread with its own connection, and the check of all others.

    In a thread: a body that blocks the event loop must not make an owner's lease expire.

    :param connect: returns a new connection
    :param translating: raises driver errors as this library's errors
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
        """Send heartbeats for an owner until this process ends."""
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
        """Return whether an owner's last heartbeat is within the lease."""
        with self._translating(), self._lock:
            self._enter_process()
            found = self._execute(_LOOK, [LEASE, owner]).fetchone()
        return found is not None and bool(found[0])

    def close(self) -> None:
        """Stop the heartbeats."""
        with self._lock:
            self._closed.set()
            self._enter_process()
            if self._link is not None:
                self._link.close()

    def _enter_process(self) -> None:
        """Reset in a forked process, which has neither the thread nor the owners of its parent."""
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


if TYPE_CHECKING:
    from toolsemble._runtime.storage.postgres.connections import Link


class ServerClock:
    """The server's time, from its latest answer; this machine's clock may be wrong."""

    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()

    def set(self, now: float) -> None:
        """Set the time that the server has just sent."""
        self._ahead = now - time.monotonic()

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return time.monotonic() + self._ahead


class PostgresRows:
    """A connection that accepts the stores' statements.

    :param link: a driver connection, or an object with the same ``execute``
    """

    __slots__ = ("_link",)

    def __init__(self, link: Any) -> None:
        self._link = link

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        """Execute a statement; return its cursor."""
        return self._link.execute(translate(statement), [clean(value) for value in values])

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> None:
        """Execute a statement for each row of values, in one message to the server; inside transactions."""
        cleaned = [[clean(value) for value in row] for row in values]
        self._link.cursor().executemany(translate(statement), cleaned)


_TYPES = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "INTEGER PRIMARY KEY": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "INTEGER": "BIGINT",
    "REAL": "DOUBLE PRECISION",
}
_ANY_TYPE = re.compile("|".join(rf"\b{name}\b" for name in _TYPES))
_PROTECT = """
    CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION '% are never changed or deleted', TG_TABLE_NAME; END $$;
"""
_TRIGGER = """
    CREATE TRIGGER {table}_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
"""


@lru_cache(maxsize=512)
def translate(statement: str) -> str:
    """Return a statement for Postgres.

    >>> translate("SELECT id FROM requests WHERE id IN (SELECT value FROM json_each(?))")
    'SELECT id FROM requests WHERE id IN (SELECT value FROM json_array_elements_text(CAST(%s AS json)))'
    """
    escaped = statement.replace("%", "%%").replace("json_each(?)", "json_array_elements_text(CAST(? AS json))")
    return escaped.replace("?", "%s")


def clean(value: Any) -> Any:
    """Return a value that Postgres can store: texts lose their NUL characters."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) and "\0" in value else value


def create_tables(kind: Kind) -> str:
    r"""Return the statements that create the tables of a kind.

    >>> create_tables(Kind("list", 7, 2, "CREATE TABLE list (number INTEGER PRIMARY KEY, at REAL);"))
    'CREATE TABLE list (number BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, at DOUBLE PRECISION);'
    """
    tables = _ANY_TYPE.sub(lambda found: _TYPES[found[0]], kind.tables)
    if not kind.append_only:
        return tables
    return tables + _PROTECT + "".join(_TRIGGER.format(table=table) for table in kind.append_only)


def hash_name(*parts: str) -> int:
    """Return the number of an advisory lock.

    >>> -(2**63) <= hash_name("toolsemble_cache", "a key") < 2**63
    True
    """
    return int.from_bytes(blake2b("\0".join(parts).encode(errors="replace"), digest_size=8).digest(), signed=True)


_STORE = "CREATE TABLE store (number BIGINT NOT NULL, version BIGINT NOT NULL, key BYTEA NOT NULL);"


class Schema(NamedTuple):
    """The schema of a store: all its tables, under names that cannot collide with other stores."""

    url: PostgresUrl
    kind: Kind

    @property
    def name(self) -> str:
        """Its name in the database.

        >>> Schema(PostgresUrl("", ""), Kind("run journal", 1, 1, "")).name
        'toolsemble_run_journal'
        """
        return f"{self.url.prefix}_{self.kind.what.replace(' ', '_')}"

    def prepare(self, link: Link) -> bytes:
        """Create the tables if they are missing; return the key of the store. Raise if it has another version."""
        found = self._find(link)
        if found is None or found[1] in self.kind.upgrades:
            with link.transaction():
                link.execute("SET LOCAL synchronous_commit TO DEFAULT")  # a crash must not undo it
                link.execute("SELECT pg_advisory_xact_lock(%s)", [hash_name("schema", self.name)])
                # Read again: another process may have created them.
                found = self._find(link) or self._create(link)
                found = self._upgrade(link, *found)
        number, version, key = found
        if (number, version) != (self.kind.number, self.kind.version):
            raise ToolConfigurationError(f"The {self.kind.what} '{self.url}' cannot be used: {self._explain(*found)}")
        return key

    def _find(self, link: Link) -> tuple[int, int, bytes] | None:
        """Return the kind, the version and the key of the store; None if there is none."""
        # Not to_regclass, which may not yet see a table that another session has just created.
        known = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'store'"
        if link.execute(known, [self.name]).fetchone() is None:
            return None
        row = link.execute(sql.SQL("SELECT number, version, key FROM {}").format(self._identify("store"))).fetchone()
        return None if row is None else (row[0], row[1], bytes(row[2]))

    def _create(self, link: Link) -> tuple[int, int, bytes]:
        kind, key = self.kind, os.urandom(32)
        link.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.name)))
        link.execute(_STORE + _PRESENCE_TABLE + create_tables(kind))
        link.execute("INSERT INTO store VALUES (%s, %s, %s)", [kind.number, kind.version, key])
        return kind.number, kind.version, key

    def _upgrade(self, link: Link, number: int, version: int, key: bytes) -> tuple[int, int, bytes]:
        """Upgrade the tables of an earlier version."""
        while number == self.kind.number and (change := self.kind.upgrades.get(version)) is not None:
            change(PostgresRows(link))
            version += 1
            link.execute("UPDATE store SET version = %s", [version])
        return number, version, key

    def _explain(self, number: int, version: int, _: bytes) -> str:
        if number != self.kind.number:
            return f"the schema {self.name} belongs to something else; choose another one with ?schema=name"
        if version > self.kind.version:
            return (
                f"a newer toolsemble wrote it (version {version} of its tables; this one reads version "
                f"{self.kind.version}); update toolsemble here"
            )
        return f"its tables are of version {version}, which this toolsemble can no longer read"

    def _identify(self, table: str) -> sql.Identifier:
        return sql.Identifier(self.name, table)


# A process that is suspended in a transaction must not keep its locks.
_SETTINGS = "SET search_path = {schema}; SET idle_in_transaction_session_timeout = 10000"
_TIME = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


class PostgresDatabase:
    """The tables of one kind in a schema of a Postgres database, which is created if it is missing.

    Transactions read committed data. Transactions with the same key exclude each other by an advisory lock; one
    without a key excludes all others, so that a store can read and then write without conflicts.

    :param busy: seconds to wait for other writers and for an unavailable server
    """

    in_place = False
    """Whether it is fast enough for an event loop; never, because the server may be remote."""

    def __init__(self, url: PostgresUrl, kind: Kind, busy: float) -> None:
        self._url = url
        self._kind = kind
        self._busy = busy
        self._schema = Schema(url, kind)
        self._parameters = driver.read_parameters(url, kind.what)
        self._closed = False
        self._server_clock = ServerClock()
        self._connections = Connections(self._connect, busy)
        self._listener = Listener(self._connect, self._schema.name)
        self.presence = PostgresPresence(self._connections.open, self._translating)
        """The heartbeats of row owners, on any machine."""
        try:
            with self._translating(), self._connections.lend() as lent:
                self._key = self._schema.prepare(lent.link)
        except OSError as error:
            # At startup, the cause is a wrong URL, or a server that was not started.
            raise ToolConfigurationError(f"{error}; check the URL and the server") from error

    @contextmanager
    def reading(self) -> Iterator[PostgresRows]:
        """Return the rows; each statement sees the data committed before it begins."""
        with self._translating(), self._connections.lend() as lent:
            yield PostgresRows(lent)

    @contextmanager
    def writing(
        self, patience: float | None = None, *, key: str | None = None, synced: bool = False, notify: bool = False
    ) -> Iterator[PostgresRows]:
        """Return the rows inside a transaction; an exception rolls it back.

        Raise :class:`ConnectionError` if the connection is lost during the transaction: it was rolled back, unless
        the connection was lost during the commit.
        """
        waits = self._busy if patience is None else min(patience, self._busy)
        with self._translating(), self._connections.lend() as lent:
            self._begin(lent, self._write_begin(waits, key, synced=synced))
            try:
                yield PostgresRows(lent.link)
            except BaseException:
                with suppress(psycopg.Error):
                    lent.link.execute("ROLLBACK")
                raise
            lent.link.execute(self._write_commit(notify=notify))

    def write(self, statement: str, values: Sequence[Any], *, key: str, synced: bool = False) -> int:
        """Execute one statement in its own transaction; return the number of changed rows."""
        with self.writing(key=key, synced=synced) as rows:
            return int(rows.execute(statement, values).rowcount)

    def clock(self) -> float:
        """Return the server's time."""
        return self._server_clock.now()

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Call a function, in another thread, after each change that notifies; return a function that stops it."""
        return self._listener.add(changed)

    def load_key(self, what: str, otherwise: str = "") -> bytes:
        """Return the key of the store, which all machines share."""
        return self._key

    def naming_errors(self) -> AbstractContextManager[None]:
        """Do nothing: all errors name the store."""
        return nullcontext()

    def damaged_error(self, error: Exception) -> ToolConfigurationError:
        """Return the error for rows that cannot be read; it names the store."""
        reason = str(error) or type(error).__name__
        return ToolConfigurationError(
            f"The {self._kind.what} '{self._url}' cannot be used: {reason}; restore a copy of it"
        )

    def disconnect(self) -> None:
        """Close the idle connections; the next use opens them again."""
        self._connections.close_idle()

    def close(self) -> None:
        """Close the database; further use raises."""
        self._closed = True
        self._listener.close()
        self.presence.close()
        self._connections.close_idle()

    def _connect(self) -> Link:
        link = driver.connect(self._parameters)
        settings = _SETTINGS.format(schema=self._schema.name)
        if self._kind.synchronous != "FULL":
            settings += "; SET synchronous_commit = off"
        self._set_clock(link.execute(f"{settings}; {_TIME}"))
        return link

    def _begin(self, lent: Lent, statements: str) -> None:
        """Begin a transaction, on a new connection if this one is lost, and read the server's clock."""
        try:
            cursor = lent.execute(statements)
        except BaseException:
            with suppress(psycopg.Error):
                lent.link.execute("ROLLBACK")
            raise
        self._set_clock(cursor)

    def _set_clock(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        """Read the server's time, which is the last result."""
        while cursor.nextset():
            pass
        row = cursor.fetchone()
        assert row is not None  # noqa: S101 - the query always returns a row
        self._server_clock.set(row[0])

    def _write_begin(self, patience: float, key: str | None, *, synced: bool) -> str:
        name = self._schema.name
        lock = f"pg_advisory_xact_lock({hash_name(name)})"
        if key is not None:
            lock = f"pg_advisory_xact_lock_shared({hash_name(name)}), pg_advisory_xact_lock({hash_name(name, key)})"
        # All statements in one string: a single round trip to the server.
        timeout = f"SET LOCAL lock_timeout = {max(1, round(patience * 1000))}"
        sync = "SET LOCAL synchronous_commit TO DEFAULT; " if synced and self._kind.synchronous != "FULL" else ""
        return f"BEGIN; {timeout}; {sync}SELECT {lock}; {_TIME}"

    def _write_commit(self, *, notify: bool) -> str:
        return f"NOTIFY {self._schema.name}; COMMIT" if notify else "COMMIT"

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Raise driver errors as this library's errors; raise when closed."""
        if self._closed:
            raise ToolConfigurationError(f"The {self._kind.what} is closed; make a new one")
        try:
            yield
        except psycopg.Error as error:
            raise driver.translate(error, self._url, self._kind.what) from error
