"""The psycopg driver, and the connections of one process to a database."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble._runtime.extras import install_command
from toolsemble._runtime.storage.database import PostgresUrl
from toolsemble._runtime.text import preview
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError as missing:  # also for psycopg without its C library
    raise ToolDefinitionError(
        f"A postgresql:// URL needs the package 'psycopg': {install_command('postgres')}"
    ) from missing

if TYPE_CHECKING:
    from psycopg import Connection

    Link: TypeAlias = Connection[tuple[Any, ...]]
    """A connection to the server."""

# An unresponsive server or network is detected within half a minute.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
    "application_name": "toolsemble",
}
# The server ended the connection, or does not accept new ones now; see is_lost for failures without a code.
_LOST = {"25P03", "57P01", "57P02", "57P03", "57P05"}


def read_parameters(url: PostgresUrl, what: str) -> dict[str, Any]:
    """Return the parameters of a connection; raise ToolDefinitionError if the driver cannot read the URL."""
    try:
        given = conninfo_to_dict(url.address)
    except psycopg.Error:
        given = None
    if given is None:
        # Raised here: the driver's error quotes parts of the URL, and may quote the password.
        raise ToolDefinitionError(
            f"The URL of the {what} '{url}' cannot be read; it has the form "
            "postgresql://user:password@host:5432/database, with parameters of libpq"
        )
    return {**_DEFAULTS, **given}


def connect(parameters: dict[str, Any]) -> Link:
    """Return a new connection in autocommit mode."""
    return psycopg.connect(**parameters, autocommit=True)


def is_lost(error: psycopg.Error) -> bool:
    """Return whether an error means that the connection to the server failed or was lost."""
    code = error.sqlstate
    if code is None:
        return isinstance(error, psycopg.OperationalError)
    return code in _LOST or code.startswith("08")


def describe(error: psycopg.Error) -> str:
    """Return a driver error in one line."""
    text = error.diag.message_primary or f"{error}" or type(error).__name__
    return preview(" ".join(text.split()))


def translate(error: psycopg.Error, url: PostgresUrl, what: str) -> Exception:
    """Return a driver error as this library's error, which names the store.

    :class:`ConnectionError` for a lost connection, :class:`TimeoutError` for a lock that is not released in time,
    another :class:`OSError` for temporary problems such as a full disk, and ToolConfigurationError otherwise.
    """
    store, reason = f"The {what} '{url}'", describe(error)
    if is_lost(error):
        return ConnectionError(f"{store} cannot be reached: {reason}")
    if isinstance(error, errors.LockNotAvailable):
        return TimeoutError(f"{store} is busy: another process holds what is needed ({reason})")
    if isinstance(error, psycopg.OperationalError):
        return OSError(f"{store} cannot be used now: {reason}")
    advice = (
        "; its user needs CREATE on the database for the first use, and then its tables"
        if isinstance(error, errors.InsufficientPrivilege)
        else ""
    )
    return ToolConfigurationError(f"{store} cannot be used: {reason}{advice}")


MOST = 4
"""Maximum number of connections that a store opens for its transactions."""
_PAUSE = 0.2

INHERITED: list[Link | None] = []
"""Connections of a parent process, kept until exit: closing them here would end its sessions."""


class Connections:
    """A pool of connections: lost ones are replaced, and a forked process starts with an empty pool.

    :param connect: returns a new connection
    :param patience: seconds to wait for a free connection and for an unavailable server
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
            raise TimeoutError(f"No free connection after {self._patience:g} s; all {MOST} of this process are in use")
        try:
            lent = Lent(self._find_idle() or self.open(), self.renew)
            try:
                yield lent
            finally:
                self._take_back(lent.link)
        finally:
            slots.release()

    def renew(self, lost: Link) -> Link:
        """Return a replacement for a lost connection."""
        lost.close()
        return self.open()

    def open(self) -> Link:
        """Return a new connection; wait for an unavailable server, unless it was never reached."""
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
        """Close the idle connections."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _find_slots(self) -> threading.BoundedSemaphore:
        with self._lock:
            if self._process != os.getpid():
                INHERITED.extend(self._idle)
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
    """A connection while a thread uses it."""

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
