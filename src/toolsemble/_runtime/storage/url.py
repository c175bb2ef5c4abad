"""The URL of a Postgres database: its parts, and how it is shown without its password."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from toolsemble._vocabulary.errors import ToolDefinitionError

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
