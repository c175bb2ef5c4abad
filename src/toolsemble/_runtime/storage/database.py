"""The interface of all stores: transactions over tables, in a SQLite file or in a Postgres database.

The rules of a store are written once, in the SQL that both understand. What differs is here: how tables are made, how
transactions begin and which ones they exclude, whose clock counts, and which readers are notified of a change. The
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
        """Return whether the process is certainly no longer running; False if that cannot be known from here.

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
    """The owners of rows that say from time to time that they live, on any machine."""

    def announce(self, owner: str) -> None:
        """Say that an owner lives, from now on until this process ends."""
        ...

    def is_present(self, owner: str) -> bool:
        """Return whether an owner has said lately that it lives."""
        ...


class Database(Protocol):
    """The tables of one kind, as stores see them; thread-safe."""

    @property
    def in_place(self) -> bool:
        """Whether writing without waiting for the disk is so quick that it need not leave the event loop."""
        ...

    @property
    def presence(self) -> Presence | None:
        """Tells which owners of rows live; None: their processes can be looked up."""
        ...

    def clock(self) -> float:
        """Return the time that rows are stamped with: the system's for a file, the server's for Postgres."""
        ...

    def reading(self) -> AbstractContextManager[Rows]:
        """Return the rows, to be read."""
        ...

    def writing(
        self, patience: float | None = None, *, key: str | None = None, synced: bool = False, notify: bool = False
    ) -> AbstractContextManager[Rows]:
        """Return the rows inside a write transaction; an exception rolls it back.

        :param patience: seconds to wait for another writer, at most the default of the database
        :param key: what the transaction is about; it waits for writers of the same key, and without one for all
        :param synced: whether it must survive a loss of power, also if the kind of the database does not ask for it
        :param notify: whether to wake those who watch
        """
        ...

    def write(self, statement: str, values: Sequence[Any], *, key: str, synced: bool = False) -> int:
        """Execute one statement as a transaction of its own; return how many rows it has changed.

        :param key: what the statement is about; it waits for writers of the same key
        :param synced: as in :meth:`writing`
        """
        ...

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, after each change that notifies; return a function that ends this.

        Return None if changes are not told: who waits has to look from time to time. Who is told should still look
        now and then, because a connection may be lost.
        """
        ...

    def load_key(self, what: str, otherwise: str = "") -> bytes:
        """Return the secret key of the store, which is created with it."""
        ...

    def naming_errors(self) -> AbstractContextManager[None]:
        """Raise all errors as errors that name the store, for stores without their own."""
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
    """Return the result of a transaction that may be done twice; do it again if the connection is lost meanwhile.

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
    """The URL of a Postgres database; as text it has no password.

    >>> str(PostgresUrl.read("postgresql://ada:secret@db.example.com/app?schema=shop"))
    'postgresql://ada@db.example.com/app'
    """

    address: str = field(repr=False)
    """The URL for the driver, with its password."""
    shown: str
    """The URL for messages."""
    prefix: str = _DEFAULT_PREFIX
    """The beginning of the names of its schemas, from the parameter ``schema``."""

    @classmethod
    def read(cls, url: str) -> PostgresUrl:
        """Return the parts of a URL; raise ToolDefinitionError, without the URL, if it cannot be read."""
        scheme, _, rest = url.partition("://")
        address, _, query = rest.partition("?")
        login, _, server = address.rpartition("@")
        # Where a password has such characters, its rest would be taken for a host or a database, and be shown.
        if "@" in login or "@" in query or "/" in login:
            raise ToolDefinitionError(
                "A character of the user or the password in the postgresql:// URL must be percent-encoded, such as "
                "'@' as %40, '/' as %2F and '?' as %3F"
            )
        # Not by urllib: for libpq a plus sign is no space.
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
