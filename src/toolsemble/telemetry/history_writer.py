"""The writer of a run history: what each event changes in the tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from toolsemble.runtime.text import escape_surrogates
from toolsemble.serialization import compact_json
from toolsemble.telemetry import history_conversations as conversations
from toolsemble.telemetry.cut_text import cut_texts

_PREVIEW = 300
_IDS = ("run_id", "parent_id", "call_id", "tool_name")
_PAUSES = {"CallPausedError", "RunParkedError"}
_LATEST_CALL = "number = (SELECT max(number) FROM calls WHERE run = ? AND call = ? AND tool = ?)"
_LATEST_AGENT = "number = (SELECT max(number) FROM agents WHERE run = ? AND parent = ?)"
_OPEN_REVIEWS = "SELECT count(*) FROM reviews WHERE run = ? AND answered IS NULL"
_NESTED = "SELECT count(DISTINCT parent) FROM agents WHERE run = ? AND parent <> ''"
_ADD_COST = "cost = CASE WHEN ? IS NULL THEN cost ELSE coalesce(cost, 0) + ? END"


class EventWriter:
    """A writer of events in one transaction: it adds their rows, and counts them in those of their run.

    >>> from toolsemble.events import CacheHit
    >>> from toolsemble.runtime.sqlite import Database
    >>> from toolsemble.telemetry.event_json import write_event
    >>> from toolsemble.telemetry.history_tables import KIND
    >>> with Database(None, KIND).writing() as connection:
    ...     EventWriter(connection, "me", 1000).add(write_event(CacheHit("search", "c1", run_id="r1")))
    ...     connection.execute("SELECT run, tool FROM events").fetchall()
    [('r1', 'search')]
    """

    def __init__(self, connection: sqlite3.Connection, owner: str, max_text: int) -> None:
        self._connection = connection
        self._owner = owner
        self._max_text = max_text

    def add(self, event: dict[str, Any]) -> None:
        """Add an event, as JSON values."""
        row = self._insert(event)
        self._touch_run(row)
        change = _CHANGES.get(row.kind)
        if change is not None:
            change(self, row)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        return self._connection.execute(statement, values)

    def change_run(self, run: str, change: str, *values: Any) -> None:
        """Change the row of a run."""
        self.execute(f"UPDATE runs SET {change} WHERE run = ?", *values, run)  # noqa: S608 - constants, below

    def change_agent(self, row: _Row, change: str, *values: Any) -> None:
        """Change the row of the agent of an event."""
        self.execute(f"UPDATE agents SET {change} WHERE {_LATEST_AGENT}", *values, row.run, row.parent)  # noqa: S608 - as above

    def change_call(self, row: _Row, change: str, *values: Any) -> None:
        """Change the row of the call of an event; a model may use the same id in several turns."""
        self.execute(f"UPDATE calls SET {change} WHERE {_LATEST_CALL}", *values, row.run, row.call, row.tool)  # noqa: S608 - as above

    def _insert(self, values: dict[str, Any]) -> _Row:
        begun = conversations.shorten(self._connection, values) if values["kind"] == "run_started" else None
        body, cut = self._write(values if begun is None else begun.values)
        request = values.get("request") or {}  # the events of reviews have their ids in the request
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
        """Return the JSON text of values, with long texts cut, and the lengths of those."""
        body = compact_json(values)
        if len(body) <= self._max_text:  # no text in it is longer
            return body, None
        kept, lengths = cut_texts(values, self._max_text)
        return compact_json(kept), compact_json(lengths)

    def _touch_run(self, row: _Row) -> None:
        """Add the run of an event, if it is new, and note that something happened in it."""
        labels = row.text("agent_role"), row.text("memory_id")
        self.execute(
            "INSERT INTO runs (number, run, started, updated, last, owner, role, memory)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET"
            " updated = max(updated, excluded.updated), last = excluded.last, owner = excluded.owner",
            *(row.number, row.run, row.at, row.at, row.number, self._owner, *labels),
        )


class _Row(NamedTuple):
    """An event with the columns of its row."""

    number: int
    run: str
    parent: str
    call: str
    tool: str
    kind: str
    at: float
    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        """Return a value of the event, or of its request, as text; "" if there is none."""
        found = self.values.get(name)
        return _to_text((self.values.get("request") or {}).get(name, "") if found is None else found)

    def preview(self, name: str) -> str:
        """Return the start of a value of the event."""
        return self.text(name)[:_PREVIEW]


def _start_run(writer: EventWriter, row: _Row) -> None:
    labels = row.text("agent_role"), row.text("model"), _find_prompt(row.values)
    tools = _to_text(row.values.get("tools") or [])
    # A run that continues from a journal makes the calls of the turn that it stopped in.
    turn = f"coalesce((SELECT turn FROM agents WHERE {_LATEST_AGENT}), 0)"  # noqa: S608 - a constant
    columns = "number, run, parent, started, role, model, prompt, tools, turn"
    writer.execute(
        f"INSERT INTO agents ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, {turn})",  # noqa: S608 - constants
        *(row.number, row.run, row.parent, row.at, *labels, tools, row.run, row.parent),
    )
    if row.parent:
        writer.change_run(row.run, f"nested = ({_NESTED})", row.run)
        return
    _interrupt_calls(writer, row)
    again = "is_agent = 1, state = 'running', ended = NULL, answer = '', stop_reason = '', error = ''"
    writer.change_run(row.run, f"{again}, role = ?, model = ?, prompt = ?", *labels)


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
    error = ": ".join(filter(None, (row.text("error_type"), row.text("error"))))[:_PREVIEW]
    ended = _find_state(row), row.at, row.preview("text"), row.text("stop_reason"), error
    change = "state = ?, ended = ?, answer = ?, stop_reason = ?, error = ?"
    writer.change_agent(row, change, *ended)
    if not row.parent:
        _interrupt_calls(writer, row)
        writer.change_run(row.run, change, *ended)


def _interrupt_calls(writer: EventWriter, row: _Row) -> None:
    """End the calls of a run that ends, or starts again: what has not ended by then never will."""
    writer.execute("UPDATE calls SET ended = ? WHERE run = ? AND ended IS NULL", row.at, row.run)
    writer.change_run(row.run, "open_calls = 0")


def _start_call(writer: EventWriter, row: _Row) -> None:
    arguments = row.preview("arguments")
    columns = "number, run, call, tool, parent, turn, started, arguments"
    turn = f"coalesce((SELECT turn FROM agents WHERE {_LATEST_AGENT}), 0)"  # noqa: S608 - a constant
    writer.execute(
        f"INSERT INTO calls ({columns}) VALUES (?, ?, ?, ?, ?, {turn}, ?, ?)",  # noqa: S608 - constants
        *(row.number, row.run, row.call, row.tool, row.parent, row.run, row.parent, row.at, arguments),
    )
    writer.change_run(row.run, "calls = calls + 1, open_calls = open_calls + 1")
    # A run without an agent is described by its first call.
    begun = "state = 'running', ended = NULL, prompt = CASE prompt WHEN '' THEN ? ELSE prompt END"
    writer.execute(
        f"UPDATE runs SET {begun} WHERE run = ? AND NOT is_agent",  # noqa: S608 - a constant
        *(f"{row.tool} {arguments}"[:_PREVIEW], row.run),
    )


def _end_call(writer: EventWriter, row: _Row) -> None:
    outcome, text, arguments = row.text("outcome"), _find_text(row), row.text("arguments")
    writer.change_call(
        row,
        "ended = ?, finished = ?, duration = ?, outcome = ?, text = ?, arguments = ?, digest = ?",
        *(row.at, row.number, row.values.get("duration"), outcome, text[:_PREVIEW], arguments[:_PREVIEW]),
        _digest(arguments, text),
    )
    change = "open_calls = max(open_calls - 1, 0), failures = failures + ?"
    writer.change_run(row.run, change, int(outcome != "success"))
    _withdraw_reviews(writer, row)
    writer.execute(
        "UPDATE runs SET state = CASE failures WHEN 0 THEN 'done' ELSE 'failed' END, ended = ?, answer = ?"
        " WHERE run = ? AND NOT is_agent AND open_calls = 0",
        *(row.at, text[:_PREVIEW], row.run),
    )


def _withdraw_reviews(writer: EventWriter, row: _Row) -> None:
    """Close the questions of a call that has ended without an answer."""
    change = "UPDATE reviews SET answered = ?, decision = 'withdrawn' WHERE run = ? AND call = ? AND answered IS NULL"
    if writer.execute(change, row.at, row.run, row.call).rowcount:
        writer.change_run(row.run, f"waiting = ({_OPEN_REVIEWS})", row.run)


def _count_repairs(writer: EventWriter, row: _Row) -> None:
    count = len(row.values.get("repairs") or ())
    writer.change_call(row, "repairs = repairs + ?", count)
    writer.change_run(row.run, "repairs = repairs + ?", count)


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
    request = row.values["request"]
    writer.execute(
        "INSERT OR REPLACE INTO reviews (request, run, call, tool, asked) VALUES (?, ?, ?, ?, ?)",
        *(_to_text(request.get("id", "")), row.run, row.call, row.tool, row.at),
    )
    writer.change_run(row.run, f"reviews = reviews + 1, waiting = ({_OPEN_REVIEWS})", row.run)


def _close_review(writer: EventWriter, row: _Row) -> None:
    request, decision = row.values["request"], row.values.get("decision") or {}
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
    """Return the state of a run that has ended, or that is continued by somebody else."""
    reason, error = row.text("stop_reason"), row.text("error_type").rpartition(".")[2]
    if reason == "paused" or error in _PAUSES:
        return "waiting"
    if not error:
        return "done"
    return "cancelled" if reason == "cancelled" else "failed"


def _find_prompt(values: Mapping[str, Any]) -> str:
    """Return the start of the last message of a user."""
    texts = [each.get("text") for each in values.get("messages") or () if each.get("role") == "user"]
    return _to_text(texts[-1] or "")[:_PREVIEW] if texts else ""


def _find_text(row: _Row) -> str:
    """Return what the model was told, or the exception that was raised."""
    result = row.values.get("result")
    if not result:
        return f"{row.text('error_type')}: {row.text('error')}"
    error = result.get("error_message")
    return _to_text(result.get("output", "") if error is None else f"Error: {error}")


def _digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode(), digest_size=12).hexdigest()


def _to_text(value: Any) -> str:
    """Return a value as text that a database can store."""
    return escape_surrogates(value if isinstance(value, str) else compact_json(value))
