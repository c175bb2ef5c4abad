"""A database on a Postgres server, with the transactions, locks, clock and notifications that stores need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import psycopg

from toolsemble._runtime.sqlite import Kind
from toolsemble._runtime.storage.postgres import driver
from toolsemble._runtime.storage.postgres.clock import ServerClock
from toolsemble._runtime.storage.postgres.connections import Connections, Lent
from toolsemble._runtime.storage.postgres.listener import Listener
from toolsemble._runtime.storage.postgres.presence import PostgresPresence
from toolsemble._runtime.storage.postgres.rows import PostgresRows
from toolsemble._runtime.storage.postgres.schema import Schema
from toolsemble._runtime.storage.postgres.statements import hash_name
from toolsemble._runtime.storage.url import PostgresUrl
from toolsemble._vocabulary.errors import ToolConfigurationError

if TYPE_CHECKING:
    from toolsemble._runtime.storage.postgres.driver import Link

# A process that is stopped in the middle of a transaction must not keep its locks.
_SETTINGS = "SET search_path = {schema}; SET idle_in_transaction_session_timeout = 10000"
_TIME = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


class PostgresDatabase:
    """The tables of one kind in a schema of a Postgres database, which is created if it is missing.

    Transactions read what is committed. Those of one key exclude each other by an advisory lock, and those without a
    key exclude all others, so that a store may read and then write as if it were alone.

    :param busy: seconds to wait for other writers, and for a server that is down
    """

    in_place = False
    """Whether it is quick enough for an event loop: the server may be far away."""

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
        """Tells which owners of rows live, on any machine."""
        try:
            with self._translating(), self._connections.lend() as lent:
                self._key = self._schema.prepare(lent.link)
        except OSError as error:
            # While a program is set up, it is the URL that is wrong, or the server that was not started.
            raise ToolConfigurationError(f"{error}; check the URL and the server") from error

    @contextmanager
    def reading(self) -> Iterator[PostgresRows]:
        """Return the rows; each statement sees what is committed when it begins."""
        with self._translating(), self._connections.lend() as lent:
            yield PostgresRows(lent)

    @contextmanager
    def writing(
        self, patience: float | None = None, *, key: str | None = None, synced: bool = False, notify: bool = False
    ) -> Iterator[PostgresRows]:
        """Return the rows inside a transaction; an exception rolls it back.

        Raise :class:`ConnectionError` if the connection is lost in the middle: the transaction was rolled back, unless
        it was lost at the very end.
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
        """Execute one statement as a transaction of its own; return how many rows it has changed."""
        with self.writing(key=key, synced=synced) as rows:
            return int(rows.execute(statement, values).rowcount)

    def clock(self) -> float:
        """Return the time of the server."""
        return self._server_clock.now()

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Call a function, in another thread, after each change that notifies; return a function that ends this."""
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
        """Close the connections that nobody uses; the next use opens them again."""
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
        """Begin a transaction, on a new connection if this one is lost, and read the clock of the server."""
        try:
            cursor = lent.execute(statements)
        except BaseException:
            with suppress(psycopg.Error):
                lent.link.execute("ROLLBACK")
            raise
        self._set_clock(cursor)

    def _set_clock(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        """Read the time of the server, which is the last result."""
        while cursor.nextset():
            pass
        row = cursor.fetchone()
        assert row is not None  # noqa: S101 - it is always there
        self._server_clock.set(row[0])

    def _write_begin(self, patience: float, key: str | None, *, synced: bool) -> str:
        name = self._schema.name
        lock = f"pg_advisory_xact_lock({hash_name(name)})"
        if key is not None:
            lock = f"pg_advisory_xact_lock_shared({hash_name(name)}), pg_advisory_xact_lock({hash_name(name, key)})"
        # Of all that can be said at once: one message to the server and back.
        timeout = f"SET LOCAL lock_timeout = {max(1, round(patience * 1000))}"
        sync = "SET LOCAL synchronous_commit TO DEFAULT; " if synced and self._kind.synchronous != "FULL" else ""
        return f"BEGIN; {timeout}; {sync}SELECT {lock}; {_TIME}"

    def _write_commit(self, *, notify: bool) -> str:
        return f"NOTIFY {self._schema.name}; COMMIT" if notify else "COMMIT"

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Raise the errors of the driver as ours, and refuse to be used when closed."""
        if self._closed:
            raise ToolConfigurationError(f"The {self._kind.what} is closed; make a new one")
        try:
            yield
        except psycopg.Error as error:
            raise driver.translate(error, self._url, self._kind.what) from error
