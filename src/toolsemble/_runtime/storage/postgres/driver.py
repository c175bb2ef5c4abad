"""The psycopg driver: its import, its connections, and its errors in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble._runtime.extras import install_command
from toolsemble._runtime.storage.url import PostgresUrl
from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
except ImportError as missing:  # also for psycopg without its C library
    raise ToolDefinitionError(
        f"A postgresql:// URL needs the package 'psycopg': {install_command('postgres')}"
    ) from missing

if TYPE_CHECKING:
    from psycopg import Connection

    Link: TypeAlias = Connection[tuple[Any, ...]]
    """A connection to the server."""

# A server or a network that does not answer is noticed within half a minute.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
    "application_name": "toolsemble",
}
# The server ended the connection, or does not take new ones now; see is_lost for failures without a code.
_LOST = {"25P03", "57P01", "57P02", "57P03", "57P05"}


def read_parameters(url: PostgresUrl, what: str) -> dict[str, Any]:
    """Return the parameters of a connection; raise ToolDefinitionError if the driver cannot read the URL."""
    try:
        given = conninfo_to_dict(url.address)
    except psycopg.Error:
        given = None
    if given is None:
        # Raised here: the error of the driver quotes parts of the URL, and may quote the password.
        raise ToolDefinitionError(
            f"The URL of the {what} '{url}' cannot be read; it has the form "
            "postgresql://user:password@host:5432/database, with parameters of libpq"
        )
    return {**_DEFAULTS, **given}


def connect(parameters: dict[str, Any]) -> Link:
    """Return a new connection, which commits each statement that is not in a transaction."""
    return psycopg.connect(**parameters, autocommit=True)


def is_lost(error: psycopg.Error) -> bool:
    """Return whether an error means that there is no connection to the server, or none any more."""
    code = error.sqlstate
    if code is None:
        return isinstance(error, psycopg.OperationalError)
    return code in _LOST or code.startswith("08")


def describe(error: psycopg.Error) -> str:
    """Return an error of the driver in one line."""
    text = error.diag.message_primary or f"{error}" or type(error).__name__
    return preview(" ".join(text.split()))


def translate(error: psycopg.Error, url: PostgresUrl, what: str) -> Exception:
    """Return an error of the driver as one of ours, which names the store.

    :class:`ConnectionError` for a lost connection, :class:`TimeoutError` for a lock that others hold too long,
    another :class:`OSError` for what may pass, such as a full disk, and ToolConfigurationError for all else.
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
