"""The interface of all stores: transactions over tables, in a SQLite file or in a Postgres database.

A store's rules are written once, in the SQL that both understand. The differences are here: how tables are created, how
transactions begin and exclude each other, which clock counts, and which readers are notified of a change. The
owner of a row is a process, a :class:`ProcessIdentity`.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from toolsemble._vocabulary.errors import ToolDefinitionError

_PROC = Path("/proc")


class ProcessIdentity(NamedTuple):
    """The identity of a process, unique even if its pid is reused, as far as the system allows.

    >>> ProcessIdentity.current().is_running()
    True
    """

    place: str
    """The boot of the machine and the PID namespace."""
    pid: int
    """The pid."""
    started: str
    """The start time of the process, as the system counts it; empty if not available."""

    @classmethod
    def current(cls) -> ProcessIdentity:
        """Return the identity of this process."""
        return cls(_place(), os.getpid(), _find_start(os.getpid()) or "")

    def is_running(self) -> bool:
        """Return whether the process is still running; False if it belongs to another machine."""
        if self.place != _place():
            return False
        if self.started:
            return _find_start(self.pid) == self.started
        return _exists(self.pid)

    def has_ended(self) -> bool:
        """Return whether the process has certainly ended; False if this process cannot check.

        >>> ProcessIdentity.current().has_ended(), ProcessIdentity("another machine", 1, "").has_ended()
        (False, False)
        """
        if self.place != _place() or (not self.started and os.name != "posix"):
            return False
        return not self.is_running()


def _place() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _find_start(pid: int) -> str | None:
    """Return the start time of a process; None if it is not running, or not available."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may contain spaces and parentheses.
    state, *facts = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else facts[18]


def _exists(pid: int) -> bool:
    if os.name != "posix":
        return False  # on Windows the same call would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


T = TypeVar("T")

_ATTEMPTS = 3


class Cursor(Protocol):
    """The rows that a statement returned."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all further rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Rows(Protocol):
    """A connection: statements are written for SQLite, with ``?`` for each value."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Cursor:
        """Execute a statement."""
        ...

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> object:
        """Execute a statement for each row of values."""
        ...


class Presence(Protocol):
    """The row owners that send heartbeats, on any machine."""

    def announce(self, owner: str) -> None:
        """Send heartbeats for an owner until this process ends."""
        ...

    def is_present(self, owner: str) -> bool:
        """Return whether an owner's heartbeat is recent."""
        ...


class Database(Protocol):
    """The tables of one kind, as stores see them; thread-safe."""

    @property
    def in_place(self) -> bool:
        """Whether an unsynced write is fast enough to run in the event loop."""
        ...

    @property
    def presence(self) -> Presence | None:
        """The heartbeats of row owners; None: their processes can be checked directly."""
        ...

    def clock(self) -> float:
        """Return the time for row timestamps: the system's for a file, the server's for Postgres."""
        ...

    def reading(self) -> AbstractContextManager[Rows]:
        """Return the rows for reading."""
        ...

    def writing(
        self, patience: float | None = None, *, key: str | None = None, synced: bool = False, notify: bool = False
    ) -> AbstractContextManager[Rows]:
        """Return the rows inside a write transaction; an exception rolls it back.

        :param patience: seconds to wait for another writer, at most the default of the database
        :param key: the transaction's subject; it waits for writers with the same key, or without a key for all writers
        :param synced: whether it must survive a power failure, even if the database kind does not require it
        :param notify: whether to notify watchers
        """
        ...

    def write(self, statement: str, values: Sequence[Any], *, key: str, synced: bool = False) -> int:
        """Execute one statement in its own transaction; return the number of changed rows.

        :param key: the statement's subject; it waits for writers with the same key
        :param synced: as in :meth:`writing`
        """
        ...

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, after each change that notifies; return a function that stops it.

        Return None if the database cannot notify: waiters have to poll. Notified waiters should still poll
        occasionally, because a connection may be lost.
        """
        ...

    def load_key(self, what: str, otherwise: str = "") -> bytes:
        """Return the secret key of the store, which is created with it."""
        ...

    def naming_errors(self) -> AbstractContextManager[None]:
        """Raise all errors with the store's name, for stores without their own errors."""
        ...

    def damaged_error(self, error: Exception) -> Exception:
        """Return the error for rows that cannot be read; it names the store."""
        ...

    def disconnect(self) -> None:
        """Close the connections; the next use opens them again."""
        ...

    def close(self) -> None:
        """Close the database; further use raises."""
        ...


def repeat_if_lost(transaction: Callable[[], T]) -> T:
    """Return the result of a transaction that may run twice; rerun it if the connection is lost.

    >>> repeat_if_lost(lambda: 42)
    42
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return transaction()
        except ConnectionError:
            continue
    return transaction()


_DEFAULT_PREFIX = "toolsemble"
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,29}")


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """The URL of a Postgres database; its text form has no password.

    >>> str(PostgresUrl.read("postgresql://ada:secret@db.example.com/app?schema=shop"))
    'postgresql://ada@db.example.com/app'
    """

    address: str = field(repr=False)
    """The URL for the driver, with its password."""
    shown: str
    """The URL for messages."""
    prefix: str = _DEFAULT_PREFIX
    """The prefix of its schema names, from the parameter ``schema``."""

    @classmethod
    def read(cls, url: str) -> PostgresUrl:
        """Return the parts of a URL; raise ToolDefinitionError, without the URL, if it cannot be read."""
        scheme, _, rest = url.partition("://")
        address, _, query = rest.partition("?")
        login, _, server = address.rpartition("@")
        # With such characters, the rest of a password would be parsed as a host or database, and shown.
        if "@" in login or "@" in query or "/" in login:
            raise ToolDefinitionError(
                "A character of the user or the password in the postgresql:// URL must be percent-encoded, such as "
                "'@' as %40, '/' as %2F and '?' as %3F"
            )
        # Not with urllib: for libpq, a plus sign is not a space.
        parameters = [each for each in query.split("&") if each]
        prefixes = [each.removeprefix("schema=") for each in parameters if each.startswith("schema=")]
        prefix = prefixes[-1] if prefixes else _DEFAULT_PREFIX
        if not _PREFIX.fullmatch(prefix):
            raise ToolDefinitionError(
                f"schema in a postgresql:// URL must be at most 30 of a-z, 0-9 and _, not {prefix!r:.80}"
            )
        left = "&".join(each for each in parameters if not each.startswith("schema="))
        user = login.partition(":")[0]
        shown = f"postgresql://{user}{'@' if login else ''}{server}"
        return cls(f"{scheme.lower()}://{address}{'?' if left else ''}{left}", shown, prefix)

    def __str__(self) -> str:
        return self.shown
