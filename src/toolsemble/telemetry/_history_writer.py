"""The writer of a run history: the table changes for each event."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from toolsemble._runtime.storage.sqlite import Kind
from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.telemetry import _history_conversations as conversations
from toolsemble.telemetry._history_queries import cut_texts

# Event numbers are never reused, even if the latest events are deleted: browsers continue after them.
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
    """Add the table missing in version 1; its run starts stay stored in full."""
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


_PREVIEW = 300
_IDS = ("run_id", "parent_id", "call_id", "tool_name")
_STATES = {
    "paused": "waiting",
    "parked": "waiting",
    "interrupted": "queued",
    "taken_over": "queued",
    "cancelled": "cancelled",
}
_FAILED = ("failure", "error")
_FINAL = ("done", "failed", "cancelled")
_LATEST_CALL = "number = (SELECT max(number) FROM calls WHERE run = ? AND call = ? AND tool = ?)"
_LATEST_AGENT = "number = (SELECT max(number) FROM agents WHERE run = ? AND parent = ?)"
_OPEN_REVIEWS = "SELECT count(*) FROM reviews WHERE run = ? AND answered IS NULL"
_WITHDRAW = "UPDATE reviews SET answered = ?, decision = 'withdrawn' WHERE answered IS NULL AND run = ?"
_NESTED = "SELECT count(DISTINCT parent) FROM agents WHERE run = ? AND parent <> ''"
_ADD_COST = "cost = CASE WHEN ? IS NULL THEN cost ELSE coalesce(cost, 0) + ? END"


class EventWriter:
    """A writer of events in one transaction: it adds their rows and updates the counts of their run."""

    def __init__(self, connection: sqlite3.Connection, owner: str, max_text: int) -> None:
        self._connection = connection
        self._owner = owner
        self._max_text = max_text

    def add(self, event: dict[str, Any]) -> None:
        """Add an event, as JSON values."""
        row = self._insert(event)
        row = row._replace(is_moved=self._touch_run(row))
        change = _CHANGES.get(row.kind)
        if change is not None:
            change(self, row)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        return self._connection.execute(statement, values)

    def change_run(self, run: str, change: str, *values: Any) -> None:
        """Change the row of a run."""
        self.execute(f"UPDATE runs SET {change} WHERE run = ?", *values, run)

    def change_agent(self, row: _Row, change: str, *values: Any) -> None:
        """Change the row of an event's agent."""
        self.execute(f"UPDATE agents SET {change} WHERE {_LATEST_AGENT}", *values, row.run, row.parent)

    def change_call(self, row: _Row, change: str, *values: Any) -> bool:
        """Change the row of an event's call; a model may reuse an id in several turns.

        Return whether there is one.
        """
        query = f"UPDATE calls SET {change} WHERE {_LATEST_CALL}"
        return self.execute(query, *values, row.run, row.call, row.tool).rowcount > 0

    def _insert(self, values: dict[str, Any]) -> _Row:
        begun = conversations.shorten(self._connection, values) if values["kind"] == "run_started" else None
        body, cut = self._write(values if begun is None else begun.values)
        request = values.get("request") or {}  # review events have their ids in the request
        run, parent, call, tool = (_to_text(values.get(name) or request.get(name) or "") for name in _IDS)
        kind, at = str(values["kind"]), float(values["at"])
        added = self.execute(
            "INSERT INTO events (run, parent, call, tool, kind, at, body, cut) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(run, parent, call, tool, kind, at, escape_surrogates(body), cut),
        )
        row = _Row(added.lastrowid or 0, run, parent, call, tool, kind, at, values)
        if begun is not None:
            conversations.add(self._connection, row.number, run, begun)
        return row

    def _write(self, values: dict[str, Any]) -> tuple[str, str | None]:
        """Return the JSON text of values with long texts truncated, and their lengths."""
        body = compact_json(values)
        if len(body) <= self._max_text:  # it contains no longer text
            return body, None
        kept, lengths = cut_texts(values, self._max_text)
        return compact_json(kept), compact_json(lengths)

    def _touch_run(self, row: _Row) -> bool:
        """Add an event's run if it is new, and update its latest event.

        Return whether it moved: another process wrote the event before a start or an end.
        """
        labels, owner = (row.text("agent_role"), row.text("memory_id")), self._owner
        known: tuple[str] | None = None
        if row.kind in ("run_started", "run_finished"):
            known = self.execute("SELECT owner FROM runs WHERE run = ?", row.run).fetchone()
            if known is not None and row.text("stop_reason") == "taken_over":
                (owner,) = known  # the run's current driver
        self.execute(
            "INSERT INTO runs (number, run, started, updated, last, owner, role, memory)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET"
            " updated = max(updated, excluded.updated), last = excluded.last, owner = excluded.owner",
            *(row.number, row.run, row.at, row.at, row.number, owner, *labels),
        )
        return known is not None and known != (self._owner,)


class _Row(NamedTuple):
    """An event with its row's columns."""

    number: int
    run: str
    parent: str
    call: str
    tool: str
    kind: str
    at: float
    values: Mapping[str, Any]
    is_moved: bool = False
    """Whether another process wrote the run's previous event."""

    def text(self, name: str) -> str:
        """Return a value of the event or its request as text; "" if there is none."""
        found = self.values.get(name)
        return _to_text((self.values.get("request") or {}).get(name, "") if found is None else found)

    def preview(self, name: str) -> str:
        """Return the start of a value of the event."""
        return self.text(name)[:_PREVIEW]


def _start_run(writer: EventWriter, row: _Row) -> None:
    labels = row.text("agent_role"), row.text("model"), _find_prompt(row.values)
    tools = _to_text(row.values.get("tools") or [])
    again = (
        "state = 'running', ended = NULL, answer = '', stop_reason = '', error = '', role = ?, model = ?, prompt = ?"
    )
    continues = _continues(writer, row)
    if continues:
        writer.change_agent(row, f"{again}, tools = ?", *labels, tools)
    else:
        columns = "number, run, parent, started, role, model, prompt, tools"
        writer.execute(
            f"INSERT INTO agents ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(row.number, row.run, row.parent, row.at, *labels, tools),
        )
    if row.parent:
        writer.change_run(row.run, f"nested = ({_NESTED})", row.run)
        return
    if not continues:
        _interrupt_calls(writer, row)
    writer.change_run(row.run, f"is_agent = 1, {again}", *labels)


def _continues(writer: EventWriter, row: _Row) -> bool:
    """Return whether a starting agent resumes: it was waiting, or its process died.

    The process may have died before the first journal record; then the event does not say so.
    """
    query = f"SELECT number, state FROM agents WHERE {_LATEST_AGENT}"
    known = writer.execute(query, row.run, row.parent).fetchone()
    if known is None:
        return False
    number, state = known
    if row.values.get("resumed") or state in ("waiting", "queued"):
        return True
    return state == "running" and (row.is_moved or (row.parent != "" and _has_restarted(writer, row.run, number)))


def _has_restarted(writer: EventWriter, run: str, number: int) -> bool:
    """Return whether a run was restarted after an event."""
    query = "SELECT 1 FROM events WHERE run = ? AND number > ? AND kind = 'run_started' AND parent = '' LIMIT 1"
    return writer.execute(query, run, number).fetchone() is not None


def _add_turn(writer: EventWriter, row: _Row) -> None:
    usage, cost, turn = row.values.get("usage") or {}, row.values.get("cost"), row.values.get("turn") or 0
    tokens = [usage.get(name) or 0 for name in ("input", "output", "cached")]
    message = row.values.get("message") or {}
    calls = _to_text([each.get("name") for each in message.get("calls") or ()])
    said = row.text("model"), _to_text(message.get("text") or "")[:_PREVIEW], calls, row.text("stop_reason")
    writer.execute(
        "INSERT INTO turns (number, run, parent, turn, at, duration, model, text, calls, stop_reason, input, output,"
        " cached, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(row.number, row.run, row.parent, turn, row.at, row.values.get("duration") or 0.0, *said, *tokens, cost),
    )
    change = f"turns = turns + 1, input = input + ?, output = output + ?, {_ADD_COST}"
    writer.change_run(row.run, f"{change}, cached = cached + ?", *tokens[:2], cost, cost, tokens[2])
    writer.change_agent(row, f"{change}, turn = ?", *tokens[:2], cost, cost, turn)


def _count_model_retry(writer: EventWriter, row: _Row) -> None:
    writer.change_run(row.run, "retries = retries + 1")


def _end_run(writer: EventWriter, row: _Row) -> None:
    if row.text("stop_reason") == "taken_over" and row.is_moved:
        return  # its current driver reports how it continues
    error = ": ".join(filter(None, (row.text("error_type"), row.text("error"))))[:_PREVIEW]
    state = _find_state(row)
    ended = row.at if state in _FINAL else None
    values = state, ended, row.preview("text"), row.text("stop_reason"), error
    change = "state = ?, ended = ?, answer = ?, stop_reason = ?, error = ?"
    writer.change_agent(row, change, *values)
    if row.parent:
        return
    if ended is not None:
        _interrupt_calls(writer, row)
        writer.execute(_WITHDRAW, row.at, row.run)
    writer.change_run(row.run, f"{change}, waiting = ({_OPEN_REVIEWS})", *values, row.run)


def _interrupt_calls(writer: EventWriter, row: _Row) -> None:
    """End the open calls of a run that ends or starts over: they will never finish."""
    writer.execute("UPDATE calls SET ended = ? WHERE run = ? AND ended IS NULL", row.at, row.run)
    writer.change_run(row.run, "open_calls = 0")


def _start_call(writer: EventWriter, row: _Row) -> None:
    if _is_started_again(writer, row):
        return
    arguments = row.preview("arguments")
    _add_call(writer, row, row.at, arguments)
    # A run without an agent is described by its first call.
    begun = "state = 'running', ended = NULL, prompt = CASE prompt WHEN '' THEN ? ELSE prompt END"
    writer.execute(
        f"UPDATE runs SET {begun} WHERE run = ? AND NOT is_agent",
        *(f"{row.tool} {arguments}"[:_PREVIEW], row.run),
    )


def _add_call(writer: EventWriter, row: _Row, started: float, arguments: str) -> None:
    columns = "number, run, call, tool, parent, turn, started, arguments"
    turn = f"coalesce((SELECT turn FROM agents WHERE {_LATEST_AGENT}), 0)"
    writer.execute(
        f"INSERT INTO calls ({columns}) VALUES (?, ?, ?, ?, ?, {turn}, ?, ?)",
        *(row.number, row.run, row.call, row.tool, row.parent, row.run, row.parent, started, arguments),
    )
    writer.change_run(row.run, "calls = calls + 1, open_calls = open_calls + 1")


def _is_started_again(writer: EventWriter, row: _Row) -> bool:
    """Return whether a call was started by a killed process before it was recorded in the journal."""
    query = f"SELECT number, finished FROM calls WHERE {_LATEST_CALL}"
    known = writer.execute(query, row.run, row.call, row.tool).fetchone()
    return known is not None and known[1] is None and _has_restarted(writer, row.run, known[0])


def _end_call(writer: EventWriter, row: _Row) -> None:
    outcome, text, arguments = row.text("outcome"), _find_text(row), row.text("arguments")
    query = f"SELECT outcome FROM calls WHERE {_LATEST_CALL}"
    known = writer.execute(query, row.run, row.call, row.tool).fetchone()
    if known is None:  # it started in a process without this sink
        _add_call(writer, row, row.at - (row.values.get("duration") or 0.0), arguments[:_PREVIEW])
        known = (None,)
    writer.change_call(
        row,
        "ended = ?, finished = ?, duration = ?, outcome = ?, text = ?, digest = ?,"
        " arguments = CASE ? WHEN '' THEN arguments ELSE ? END",
        *(row.at, row.number, row.values.get("duration"), outcome, text[:_PREVIEW], _digest(arguments, text)),
        *(arguments, arguments[:_PREVIEW]),
    )
    # The run's next driver may repeat a call that was cancelled in flight, which then ends twice.
    change = "open_calls = max(open_calls - 1, 0), failures = failures + ?"
    writer.change_run(row.run, change, int(outcome in _FAILED) - int(known[0] in _FAILED))
    _withdraw_reviews(writer, row)
    writer.execute(
        "UPDATE runs SET state = CASE WHEN failures > 0 THEN 'failed' WHEN ? = 'cancelled' THEN 'cancelled'"
        " ELSE 'done' END, ended = ?, answer = ? WHERE run = ? AND NOT is_agent AND open_calls = 0",
        *(outcome, row.at, text[:_PREVIEW], row.run),
    )


def _withdraw_reviews(writer: EventWriter, row: _Row) -> None:
    """Close the requests of a call that ended without an answer."""
    if writer.execute(f"{_WITHDRAW} AND call = ?", row.at, row.run, row.call).rowcount:
        writer.change_run(row.run, f"waiting = ({_OPEN_REVIEWS})", row.run)


def _count_repairs(writer: EventWriter, row: _Row) -> None:
    count = len(row.values.get("repairs") or ())
    query = f"SELECT repairs FROM calls WHERE {_LATEST_CALL}"
    (known,) = writer.execute(query, row.run, row.call, row.tool).fetchone() or (0,)
    writer.change_call(row, "repairs = ?", count)  # a restarted call has the same repairs
    writer.change_run(row.run, "repairs = repairs + ?", count - known)


def _count_retry(writer: EventWriter, row: _Row) -> None:
    writer.change_call(row, "retries = retries + 1")
    writer.change_run(row.run, "retries = retries + 1")


def _set_progress(writer: EventWriter, row: _Row) -> None:
    writer.change_call(row, "progress = ?, message = ?", row.values.get("fraction"), row.preview("message"))


def _set_timed_out(writer: EventWriter, row: _Row) -> None:
    writer.change_call(row, "is_timed_out = 1")


def _set_cached(writer: EventWriter, row: _Row) -> None:
    writer.change_call(row, "is_cached = 1")


def _open_review(writer: EventWriter, row: _Row) -> None:
    id_ = _to_text(row.values["request"].get("id", ""))
    is_new = not _has_review(writer, id_)
    writer.execute(
        "INSERT OR REPLACE INTO reviews (request, run, call, tool, asked) VALUES (?, ?, ?, ?, ?)",
        *(id_, row.run, row.call, row.tool, row.at),
    )
    writer.change_run(row.run, f"reviews = reviews + ?, waiting = ({_OPEN_REVIEWS})", int(is_new), row.run)


def _has_review(writer: EventWriter, id_: str) -> bool:
    return writer.execute("SELECT 1 FROM reviews WHERE request = ?", id_).fetchone() is not None


def _close_review(writer: EventWriter, row: _Row) -> None:
    request, decision = row.values["request"], row.values.get("decision") or {}
    if not _has_review(writer, _to_text(request.get("id", ""))):
        _open_review(writer, row)  # its process was killed after storing the request, before the event
    answer = (_to_text(decision.get(name) or "")[:_PREVIEW] for name in ("decision", "person", "reason"))
    writer.execute(
        "UPDATE reviews SET answered = ?, decision = ?, person = ?, reason = ? WHERE request = ?",
        *(row.at, *answer, _to_text(request.get("id", ""))),
    )
    writer.change_run(row.run, f"waiting = ({_OPEN_REVIEWS})", row.run)


_CHANGES: dict[str, Callable[[EventWriter, _Row], None]] = {
    "run_started": _start_run,
    "model_replied": _add_turn,
    "model_retried": _count_model_retry,
    "run_finished": _end_run,
    "call_started": _start_call,
    "call_repaired": _count_repairs,
    "call_retried": _count_retry,
    "call_progress": _set_progress,
    "call_timed_out": _set_timed_out,
    "cache_hit": _set_cached,
    "call_finished": _end_call,
    "review_requested": _open_review,
    "review_decided": _close_review,
}


def _find_state(row: _Row) -> str:
    """Return the state of a run that has ended or stopped in this process."""
    return _STATES.get(row.text("stop_reason")) or ("failed" if row.text("error_type") else "done")


def _find_prompt(values: Mapping[str, Any]) -> str:
    """Return the start of the last user message."""
    texts = [each.get("text") for each in values.get("messages") or () if each.get("role") == "user"]
    return _to_text(texts[-1] or "")[:_PREVIEW] if texts else ""


def _find_text(row: _Row) -> str:
    """Return the reply text, or the raised exception."""
    result = row.values.get("result")
    if not result:
        return f"{row.text('error_type')}: {row.text('error')}"
    error = result.get("error_message")
    return _to_text(result.get("output", "") if error is None else f"Error: {error}")


def _digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode(), digest_size=12).hexdigest()


def _to_text(value: Any) -> str:
    """Return a value as storable text."""
    return escape_surrogates(value if isinstance(value, str) else compact_json(value))
