"""The database of review requests and answers."""

from __future__ import annotations

from contextlib import suppress

from toolsemble._runtime.sqlite import Kind
from toolsemble._runtime.storage.database import Rows
from toolsemble.review._request import ReviewRequest, digest

_TABLES = """
    CREATE TABLE requests (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, bound TEXT NOT NULL,
        deadline REAL, request TEXT NOT NULL, seal TEXT NOT NULL, receipt TEXT, expires REAL, asker TEXT
    );
    CREATE INDEX requests_by_state ON requests (state, deadline);
    CREATE INDEX requests_by_bound ON requests (bound, state);
    CREATE TABLE events (
        number INTEGER PRIMARY KEY, kind TEXT NOT NULL, request_id TEXT NOT NULL, tool_name TEXT NOT NULL,
        at REAL NOT NULL, person TEXT NOT NULL, role TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE INDEX events_by_request ON events (request_id);
    CREATE TABLE secret (fingerprint TEXT NOT NULL);
"""
_SCHEMAS = "CREATE TABLE IF NOT EXISTS schemas (digest TEXT PRIMARY KEY, schema TEXT NOT NULL, seal TEXT NOT NULL);"


def _add_askers(connection: Rows) -> None:
    """Change the tables of version 1: no row said who asked, and questions were bound to the id of the call."""
    connection.execute("ALTER TABLE requests ADD COLUMN asker TEXT")
    live = "SELECT number, request FROM requests WHERE state IN ('open', 'answered')"
    for number, text in connection.execute(live).fetchall():
        with suppress(ValueError, TypeError, LookupError):  # a damaged row stays as it is, and is refused when read
            bound = binding(ReviewRequest.from_json(text))
            connection.execute("UPDATE requests SET bound = ? WHERE number = ?", (bound, number))


def _add_schemas(connection: Rows) -> None:
    """Change the tables of version 2: no schema of a request was kept."""
    connection.execute(_SCHEMAS)


_UPGRADES = {1: _add_askers, 2: _add_schemas}
KIND = Kind("review store", 0x746F6F6C, 3, _TABLES + _SCHEMAS, upgrades=_UPGRADES, append_only=("events",))
"""The kind of its databases."""


def binding(request: ReviewRequest) -> str:
    """Return a digest of all that makes two requests the same question.

    The id of the call is a part of it only if nothing but that id could find the answer again.

    >>> first, again = (ReviewRequest("Pays", "pay", {"order": 7}, run_id="r1", call_id=id) for id in ("a", "b"))
    >>> binding(first) == binding(again)
    True
    """
    return digest(
        [
            request.tool_name,
            request.schema_digest,
            request.arguments_digest,
            "" if request.resumable else request.call_id,
            request.run_id,
            request.memory_id,
            request.agent_role,
            request.timing.value,
            request.description,
            request.required_role,
            request.editable,
            request.prompt,
        ]
    )
