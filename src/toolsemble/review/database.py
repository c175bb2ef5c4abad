"""The SQLite database of review requests and answers."""

from __future__ import annotations

from pathlib import Path

from toolsemble.runtime import sqlite

_TABLES = """
    CREATE TABLE requests (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, bound TEXT NOT NULL,
        deadline REAL, request TEXT NOT NULL, seal TEXT NOT NULL, receipt TEXT, expires REAL
    );
    CREATE INDEX requests_by_state ON requests (state, deadline);
    CREATE INDEX requests_by_bound ON requests (bound, state);
    CREATE TABLE events (
        number INTEGER PRIMARY KEY, kind TEXT NOT NULL, request_id TEXT NOT NULL, tool_name TEXT NOT NULL,
        at REAL NOT NULL, person TEXT NOT NULL, role TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE INDEX events_by_request ON events (request_id);
    CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
    CREATE TRIGGER events_last BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
    CREATE TABLE secret (fingerprint TEXT NOT NULL);
"""


class Database(sqlite.Database):
    """The tables, in memory or in a file, which is created if it is missing.

    >>> requests = Database(None)
    >>> with requests.writing() as rows:
    ...     rows.execute("SELECT count(*) FROM requests").fetchone()
    (0,)
    >>> requests.close()
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, sqlite.Kind("review store", 0x746F6F6C, 1, _TABLES))
