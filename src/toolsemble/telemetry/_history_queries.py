"""Queries of a run history."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, get_args

from toolsemble._runtime.storage.database import ProcessIdentity
from toolsemble._runtime.text import escape_surrogates
from toolsemble._schema.argument_problems import escape_token
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.telemetry import _history_conversations as conversations, _history_records as records


def cut_texts(values: Any, max_text: int, max_items: int | None = None) -> tuple[Any, dict[str, int]]:
    """Return JSON values with long texts truncated, and the original lengths by JSON pointer.

    :param max_text: the maximum length of a text
    :param max_items: the maximum number of items of an array or object; None: no limit

    >>> cut_texts({"result": {"output": "abcdef"}}, 3)
    ({'result': {'output': 'abc'}}, {'/result/output': 6})
    """
    cutter = _Cutter(max_text, max_items)
    return cutter.cut(values, ""), cutter.lengths


@dataclass(slots=True)
class _Cutter:
    max_text: int
    max_items: int | None
    lengths: dict[str, int] = field(default_factory=dict)

    def cut(self, value: Any, place: str) -> Any:
        if isinstance(value, str):
            return self._shorten(value, self.max_text, place)
        if isinstance(value, dict):
            kept = self._shorten(list(value), self.max_items, place)
            return {key: self.cut(value[key], f"{place}/{escape_token(key)}") for key in kept}
        if isinstance(value, list):
            kept = self._shorten(value, self.max_items, place)
            return [self.cut(each, f"{place}/{index}") for index, each in enumerate(kept)]
        return value

    def _shorten(self, value: Any, limit: int | None, place: str) -> Any:
        if limit is None or len(value) <= limit:
            return value
        self.lengths[place] = len(value)
        return value[:limit]


States: TypeAlias = Mapping[str, records.RunState]
"""The states of runs in a journal, by id."""
NO_STATES: States = {}
_OPEN = ("queued", "running", "waiting")
_MAX_ITEMS = 1000  # of an array or an object in an event whose texts are cut
# A run that waits in a journal or a store was released: its process may exit.
_STATE = (
    "CASE WHEN known_state = 'running' AND waiting > 0 THEN 'waiting'"  # its process waits for approval
    " WHEN known_state IS NOT NULL THEN known_state WHEN state <> 'running' THEN state"
    " WHEN owner IN (SELECT value FROM json_each(:ended)) THEN 'lost'"
    " WHEN waiting > 0 THEN 'waiting' ELSE 'running' END"
)
_WAITING = "CASE WHEN known_state IN ('done', 'failed', 'cancelled') THEN 0 ELSE waiting END"
_REASON = (
    "CASE WHEN known_state IN ('done', 'failed') AND state IN ('queued', 'waiting') THEN ''"
    " WHEN known_state = 'cancelled' THEN 'cancelled' ELSE stop_reason END"
)
_RUNS = "runs LEFT JOIN (SELECT key AS known_run, value AS known_state FROM json_each(:known)) ON known_run = run"
"""The runs, with their states in a journal if known."""
_RUN = {
    "number": "number", "run_id": "run", "state": _STATE, "started": "started", "updated": "updated", "ended": "ended",
    "last": "last", "is_agent": "is_agent", "agent_role": "role", "memory_id": "memory", "model": "model",
    "prompt": "prompt", "answer": "answer", "stop_reason": _REASON, "error": "error", "turns": "turns",
    "calls": "calls", "failures": "failures", "repairs": "repairs", "retries": "retries", "waiting": _WAITING,
    "reviews": "reviews", "nested": "nested", "input_tokens": "input", "output_tokens": "output",
    "cached_tokens": "cached", "cost": "cost",
}  # fmt: skip
_AGENT = {
    "number": "number", "run_id": "run", "parent_id": "parent", "state": "state", "started": "started",
    "ended": "ended", "agent_role": "role", "model": "model", "tools": "tools", "prompt": "prompt",
    "answer": "answer", "stop_reason": "stop_reason", "error": "error", "turns": "turns", "input_tokens": "input",
    "output_tokens": "output", "cost": "cost",
}  # fmt: skip
_TURN = {
    "number": "number", "run_id": "run", "turn": "turn", "at": "at", "duration": "duration", "parent_id": "parent",
    "model": "model", "text": "text", "calls": "calls", "stop_reason": "stop_reason", "input_tokens": "input",
    "output_tokens": "output", "cached_tokens": "cached", "cost": "cost",
}  # fmt: skip
_CALL = {
    "number": "number", "run_id": "run", "call_id": "call", "tool_name": "tool", "started": "started",
    "parent_id": "parent", "turn": "turn", "ended": "ended", "finished": "finished", "duration": "duration",
    "outcome": "outcome", "arguments": "arguments", "text": "text", "repairs": "repairs", "retries": "retries",
    "progress": "progress", "message": "message", "is_cached": "is_cached", "is_timed_out": "is_timed_out",
    "digest": "digest",
}  # fmt: skip
_REVIEW = {
    "request_id": "request", "run_id": "run", "call_id": "call", "tool_name": "tool", "asked": "asked",
    "answered": "answered", "decision": "decision", "person": "person", "reason": "reason",
}  # fmt: skip
_HEAD = "number, kind, run, at, parent, call, tool"
_EVENT = f"{_HEAD}, body, cut"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The conditions of a page of runs; None: any."""

    before: int | None = None
    state: records.RunState | None = None
    tool: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in get_args(records.RunState):
            raise ValueError(f"state must be one of {', '.join(get_args(records.RunState))}, not {self.state!r:.80}")


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The conditions of a page of events; None and empty: any."""

    after: int = 0
    run: str | None = None
    call: str | None = None
    kinds: tuple[str, ...] = ()


def find_runs(
    connection: sqlite3.Connection, wanted: RunFilter, limit: int, states: States = NO_STATES
) -> list[records.RunSummary]:
    """Return a page of runs, newest first; ``states`` are the states in a journal."""
    values = {
        **_describe_states(connection, states),
        "limit": limit,
        "before": wanted.before,
        "state": wanted.state,
        "tool": wanted.tool,
        "text": _like(compact_json(wanted.text or "")[1:-1]),
        "id": _like(wanted.text or ""),
    }
    where = " AND ".join(_list_conditions(wanted, has_states=bool(states))) or "1"
    rows = connection.execute(
        f"SELECT {', '.join(_RUN.values())} FROM {_RUNS} WHERE {where} ORDER BY number DESC LIMIT :limit",
        values,
    ).fetchall()
    return _build_runs(connection, rows)


def find_run(connection: sqlite3.Connection, run_id: str, states: States = NO_STATES) -> records.RunSummary | None:
    """Return one run, or None; ``states`` has its state in a journal."""
    values = {**_describe_states(connection, states), "run": escape_surrogates(run_id)}
    rows = connection.execute(f"SELECT {', '.join(_RUN.values())} FROM {_RUNS} WHERE run = :run", values).fetchall()
    return next(iter(_build_runs(connection, rows)), None)


def find_agents(connection: sqlite3.Connection, run_id: str, states: States = NO_STATES) -> list[records.AgentRun]:
    """Return a run's agents, in start order."""
    found = _select(connection, _AGENT, "agents WHERE run = ? ORDER BY number", escape_surrogates(run_id))
    run = find_run(connection, run_id, states)
    state = "" if run is None else run.state
    return [records.AgentRun(**{**each, **_complete_agent(each, state)}) for each in found]


def find_turns(connection: sqlite3.Connection, run_id: str, after: int, limit: int) -> list[records.TurnSummary]:
    """Return a page of replies, in order."""
    where = "turns WHERE run = ? AND number > ? ORDER BY number LIMIT ?"
    found = _select(connection, _TURN, where, escape_surrogates(run_id), after, limit)
    return [records.TurnSummary(**{**each, "calls": tuple(json.loads(each["calls"]))}) for each in found]


def find_calls(connection: sqlite3.Connection, run_id: str, after: int, limit: int) -> list[records.CallSummary]:
    """Return a page of calls, in start order."""
    where = "calls WHERE run = ? AND number > ? ORDER BY number LIMIT ?"
    found = _select(connection, _CALL, where, escape_surrogates(run_id), after, limit)
    return [
        records.CallSummary(
            **{**each, "is_cached": bool(each["is_cached"]), "is_timed_out": bool(each["is_timed_out"])}
        )
        for each in found
    ]


def find_reviews(connection: sqlite3.Connection, run_id: str) -> list[records.ReviewSummary]:
    """Return a run's review requests, oldest first."""
    found = _select(connection, _REVIEW, "reviews WHERE run = ? ORDER BY asked, rowid", escape_surrogates(run_id))
    return [records.ReviewSummary(**each) for each in found]


def find_events(
    connection: sqlite3.Connection, wanted: EventFilter, limit: int, max_text: int | None, *, has_values: bool = True
) -> list[records.HistoryEvent]:
    """Return a page of events, in order; without ``has_values``, texts are not even read."""
    conditions: list[str] = ["number > ?"]
    values: list[object] = [wanted.after]
    for column, value in (("run", wanted.run), ("call", wanted.call)):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(escape_surrogates(value))
    if wanted.kinds:
        conditions.append("kind IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(wanted.kinds))
    where = " AND ".join(conditions)
    columns = _EVENT if has_values else f"{_HEAD}, '{{}}', NULL"
    query = f"SELECT {columns} FROM events WHERE {where} ORDER BY number LIMIT ?"
    return [_build_event(row, max_text) for row in connection.execute(query, (*values, limit)).fetchall()]


def find_event(connection: sqlite3.Connection, number: int) -> records.HistoryEvent | None:
    """Return one event in full, including messages stored by an earlier run; None if there is none."""
    found = find_events(connection, EventFilter(number - 1), 1, None)
    if not found or found[0].number != number:
        return None
    values, cut = conversations.restore(connection, dict(found[0].values), dict(found[0].cut))
    return replace(found[0], values=values, cut=cut)


def find_last(connection: sqlite3.Connection) -> int:
    """Return the number of the latest event."""
    (number,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return int(number)


def delete_runs(connection: sqlite3.Connection, before: float, states: States = NO_STATES) -> int:
    """Delete ended and lost runs without changes since a time; return their number."""
    values = {**_describe_states(connection, states), "before": before}
    old = f"SELECT run FROM {_RUNS} WHERE updated <= :before AND {_STATE} NOT IN ('queued', 'running', 'waiting')"
    runs = json.dumps([run for (run,) in connection.execute(old, values)])
    conversations.detach(connection, runs)
    for table in ("events", "agents", "turns", "calls", "reviews"):
        connection.execute(f"DELETE FROM {table} WHERE run IN (SELECT value FROM json_each(?))", (runs,))
    return connection.execute("DELETE FROM runs WHERE run IN (SELECT value FROM json_each(?))", (runs,)).rowcount


def _list_conditions(wanted: RunFilter, *, has_states: bool) -> Iterator[str]:
    """Return the conditions of a page of runs."""
    if wanted.before is not None:
        yield "number < :before"
    if wanted.state is not None:
        stored = {"lost": "'running'", "waiting": "'running', 'waiting'"}.get(wanted.state, ":state")
        if not has_states:
            yield f"state IN ({stored})"  # an index finds few rows
        yield f"{_STATE} = :state"
    if wanted.tool is not None:
        yield "EXISTS (SELECT 1 FROM calls WHERE calls.run = runs.run AND tool = :tool)"
    if wanted.text:
        inside = "EXISTS (SELECT 1 FROM events WHERE events.run = runs.run AND body LIKE :text ESCAPE '!')"
        yield f"(run LIKE :id ESCAPE '!' OR {inside})"


def _like(text: str) -> str:
    """Return the pattern of a text for ``LIKE``."""
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{escape_surrogates(text)}%"


def _describe_states(connection: sqlite3.Connection, states: States) -> dict[str, str]:
    """Return the query parameters for run states."""
    known = {escape_surrogates(run): state for run, state in states.items()}
    return {"ended": _find_ended_owners(connection), "known": json.dumps(known)}


def _find_ended_owners(connection: sqlite3.Connection) -> str:
    """Return the dead processes of unfinished runs, as a JSON array."""
    owners = connection.execute("SELECT DISTINCT owner FROM runs WHERE state = 'running'").fetchall()
    return json.dumps([owner for (owner,) in owners if _has_ended(owner)])


def _has_ended(owner: str) -> bool:
    try:
        return ProcessIdentity(*json.loads(owner)).has_ended()
    except (ValueError, TypeError):
        return False


def _build_runs(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> list[records.RunSummary]:
    found = [dict(zip(_RUN, row, strict=True)) for row in rows]
    people = _find_people(connection, [each["run_id"] for each in found if each["reviews"]])
    return [
        records.RunSummary(**{**each, "is_agent": bool(each["is_agent"])}, reviewers=people.get(each["run_id"], ()))
        for each in found
    ]


def _find_people(connection: sqlite3.Connection, runs: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the distinct people who answered runs' requests, in order."""
    query = (
        "SELECT run, person FROM reviews WHERE run IN (SELECT value FROM json_each(?)) AND person <> ''"
        " ORDER BY answered"
    )
    people: dict[str, dict[str, None]] = {}
    for run, person in connection.execute(query, (json.dumps(runs),)) if runs else ():
        people.setdefault(run, {})[person] = None
    return {run: tuple(names) for run, names in people.items()}


def _complete_agent(values: dict[str, Any], run_state: str) -> dict[str, Any]:
    """Return an agent's converted fields; an unfinished agent has its run's state."""
    state, reason = values["state"], values["stop_reason"]
    if state in _OPEN and run_state not in ("", "running", "waiting"):
        state, reason = run_state, "cancelled" if run_state == "cancelled" else reason
    return {"tools": tuple(json.loads(values["tools"])), "state": state, "stop_reason": reason}


def _build_event(row: tuple[Any, ...], max_text: int | None) -> records.HistoryEvent:
    number, kind, run, at, parent, call, tool, body, cut = row
    values, lengths = json.loads(body), {} if cut is None else json.loads(cut)
    if max_text is not None and len(body) > min(max_text, _MAX_ITEMS):
        values, shorter = cut_texts(values, max_text, _MAX_ITEMS)
        lengths = {**shorter, **lengths}
    return records.HistoryEvent(
        number=number,
        kind=kind,
        run_id=run,
        at=at,
        parent_id=parent,
        call_id=call,
        tool_name=tool,
        values=values,
        cut=lengths,
    )


def _select(
    connection: sqlite3.Connection, columns: dict[str, str], where: str, *values: object
) -> Iterator[dict[str, Any]]:
    query = f"SELECT {', '.join(columns.values())} FROM {where}"
    for row in connection.execute(query, values).fetchall():
        yield dict(zip(columns, row, strict=True))
