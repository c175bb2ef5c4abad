"""Open the database of a store: a SQLite file by its path, or a Postgres database by its URL."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeAlias

from toolsemble._runtime.storage import sqlite
from toolsemble._runtime.storage.database import Database, PostgresUrl
from toolsemble._runtime.storage.sqlite import BUSY, Kind
from toolsemble._vocabulary.errors import ToolDefinitionError

Location: TypeAlias = Path | PostgresUrl
"""The location of a store."""

_POSTGRES = re.compile(r"postgres(?:ql)?:/", re.IGNORECASE)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


def read_location(value: str | os.PathLike[str], what: str) -> Location:
    """Return the location of a store; raise ToolDefinitionError for any other URL.

    >>> read_location("mysql://db/app", "RunJournal")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: RunJournal takes a file path or a postgresql:// URL, not a mysql:// URL
    """
    text = os.fspath(value)
    if _POSTGRES.match(text):
        if "://" not in text:
            raise ToolDefinitionError(f"{what} takes a postgresql:// URL as a str: a Path drops one of its slashes")
        url = PostgresUrl.read(text)
        from toolsemble._runtime.storage.postgres.connections import read_parameters

        read_parameters(url, what)  # raises at startup, not during a call
        return url
    if found := _SCHEME.match(text):
        raise ToolDefinitionError(f"{what} takes a file path or a postgresql:// URL, not a {found[1].lower()}:// URL")
    # The working directory may change before the file is opened again.
    return Path(text).absolute()


def open_database(location: Location | None, kind: Kind, busy: float = BUSY) -> Database:
    """Return the database at a location, created if it is missing; in memory for None.

    :param busy: seconds to wait for other writers and for an unavailable server
    """
    if not isinstance(location, PostgresUrl):
        return sqlite.Database(location, kind, busy)
    from toolsemble._runtime.storage.postgres.database import PostgresDatabase

    return PostgresDatabase(location, kind, busy)
