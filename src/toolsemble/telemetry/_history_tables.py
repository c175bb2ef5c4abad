"""The tables of a run history."""

from __future__ import annotations

import sqlite3

from toolsemble._runtime.storage.sqlite import Kind
from toolsemble.telemetry import _history_conversations as conversations

# A number of an event is never used again, also if the latest events are deleted: browsers continue after it.
_TABLES = """
    CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, parent TEXT NOT NULL, call TEXT NOT NULL,
        tool TEXT NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL, body TEXT NOT NULL, cut TEXT
    );
    CREATE INDEX events_by_run ON events (run, number);
    CREATE INDEX events_by_call ON events (run, call, number) WHERE call <> '';
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, state TEXT NOT NULL DEFAULT 'running',
        started REAL NOT NULL, updated REAL NOT NULL, ended REAL, last INTEGER NOT NULL, owner TEXT NOT NULL,
        is_agent INTEGER NOT NULL DEFAULT 0, role TEXT NOT NULL DEFAULT 'unknown', memory TEXT NOT NULL DEFAULT '',
        model TEXT NOT NULL DEFAULT '', prompt TEXT NOT NULL DEFAULT '', answer TEXT NOT NULL DEFAULT '',
        stop_reason TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '', turns INTEGER NOT NULL DEFAULT 0,
        calls INTEGER NOT NULL DEFAULT 0, open_calls INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0,
        repairs INTEGER NOT NULL DEFAULT 0, retries INTEGER NOT NULL DEFAULT 0, waiting INTEGER NOT NULL DEFAULT 0,
        reviews INTEGER NOT NULL DEFAULT 0, nested INTEGER NOT NULL DEFAULT 0, input INTEGER NOT NULL DEFAULT 0,
        output INTEGER NOT NULL DEFAULT 0, cached INTEGER NOT NULL DEFAULT 0, cost REAL
    );
    CREATE INDEX runs_by_state ON runs (state, number);
    CREATE INDEX runs_by_update ON runs (updated);
    CREATE TABLE agents (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL, parent TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'running',
        started REAL NOT NULL, ended REAL, role TEXT NOT NULL, model TEXT NOT NULL, tools TEXT NOT NULL,
        prompt TEXT NOT NULL, answer TEXT NOT NULL DEFAULT '', stop_reason TEXT NOT NULL DEFAULT '',
        error TEXT NOT NULL DEFAULT '', turns INTEGER NOT NULL DEFAULT 0, turn INTEGER NOT NULL DEFAULT 0,
        input INTEGER NOT NULL DEFAULT 0, output INTEGER NOT NULL DEFAULT 0, cost REAL
    );
    CREATE INDEX agents_by_run ON agents (run, parent, number);
    CREATE TABLE turns (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL, parent TEXT NOT NULL, turn INTEGER NOT NULL, at REAL NOT NULL,
        duration REAL NOT NULL, model TEXT NOT NULL, text TEXT NOT NULL, calls TEXT NOT NULL,
        stop_reason TEXT NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cached INTEGER NOT NULL, cost REAL
    );
    CREATE INDEX turns_by_run ON turns (run, number);
    CREATE TABLE calls (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL, call TEXT NOT NULL, tool TEXT NOT NULL, parent TEXT NOT NULL,
        turn INTEGER NOT NULL, started REAL NOT NULL, ended REAL, finished INTEGER, duration REAL, outcome TEXT,
        arguments TEXT NOT NULL, text TEXT NOT NULL DEFAULT '', repairs INTEGER NOT NULL DEFAULT 0,
        retries INTEGER NOT NULL DEFAULT 0, progress REAL, message TEXT NOT NULL DEFAULT '',
        is_cached INTEGER NOT NULL DEFAULT 0, is_timed_out INTEGER NOT NULL DEFAULT 0,
        digest TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX calls_by_call ON calls (run, call, tool, number);
    CREATE INDEX calls_by_run ON calls (run, number);
    CREATE INDEX calls_unfinished ON calls (run) WHERE ended IS NULL;
    CREATE INDEX calls_by_tool ON calls (tool, run);
    CREATE TABLE reviews (
        request TEXT PRIMARY KEY, run TEXT NOT NULL, call TEXT NOT NULL, tool TEXT NOT NULL, asked REAL NOT NULL,
        answered REAL, decision TEXT, person TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX reviews_by_run ON reviews (run, call);
"""


def _add_conversations(connection: sqlite3.Connection) -> None:
    """Add the table that version 1 did not have; the starts of its runs stay whole."""
    for statement in conversations.TABLES.split(";"):
        connection.execute(statement)


KIND = Kind(
    "run history",
    0x746F6F68,
    2,
    _TABLES + conversations.TABLES,
    synchronous="NORMAL",
    upgrades={1: _add_conversations},
)
"""The database of a run history."""
