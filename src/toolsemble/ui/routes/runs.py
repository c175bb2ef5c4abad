"""Endpoints of the run history: lists, one run, its calls and events, and the comparison of two runs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from toolsemble.telemetry.history import RunHistory
from toolsemble.telemetry.history_records import CallSummary
from toolsemble.ui.endpoint import MAX_PAGE, Asked, RefusedError, reads, to_json, to_table
from toolsemble.ui.interface import Interface

_CALL = tuple(each.name for each in fields(CallSummary) if each.name != "run_id")
_TURNS = ("run_started", "model_replied", "model_retried", "run_finished")
_MAX_OPEN = 300
_MESSAGE = 20_000  # characters of a message in a conversation
_DETAIL = 100_000  # characters of a text in the details of a call


def list_runs(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return a page of runs; those that wait for a person come first on the first page."""
    history = interface.folder.history()
    if history is None:
        return {"runs": [], "waiting": [], "more": False, "exists": False}
    limit = asked.number("limit", 50, 500)
    before = asked.number("before", 0)
    state, tool, text = (asked.query.get(name) or None for name in ("state", "tool", "text"))
    found: Any = history.runs(limit=limit, before=before or None, state=_check_state(state), tool=tool, text=text)
    waiting: Any = [] if before or state else history.runs(limit=50, state="waiting", tool=tool, text=text)
    first = {run.run_id for run in waiting}
    rest = [to_json(run) for run in found if run.run_id not in first]
    page = {"runs": rest, "waiting": [to_json(run) for run in waiting], "more": len(found) == limit, "exists": True}
    return {**page, "before": found[-1].number if found else 0}


def show_run(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one run: its summary, its agents, its turns, its reviews, and the first page of its calls."""
    history, run_id = _open(interface), asked.text("id")
    run = history.run(run_id)
    if run is None:
        raise RefusedError(404, f"There is no run '{run_id:.80}' in the history")
    return {
        "run": to_json(run),
        "agents": [to_json(each) for each in history.agents(run_id)],
        "reviews": [to_json(each) for each in history.reviews(run_id)],
        "turns": _find_turns(history, run_id, 0),
        "calls": to_table(history.calls(run_id, limit=asked.number("limit", 1000, MAX_PAGE)), _CALL),
    }


def list_calls(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return a further page of the calls of a run."""
    limit = asked.number("limit", 1000, MAX_PAGE)
    return to_table(_open(interface).calls(asked.text("id"), after=asked.number("after", 0), limit=limit), _CALL)


def list_changes(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return what is new in a run: its summary, new calls, those that were open, and new turns."""
    history, run_id = _open(interface), asked.text("id")
    run = history.run(run_id)
    calls = history.calls(run_id, after=asked.number("after", 0), limit=MAX_PAGE)
    opened = [int(each) for each in asked.query.get("open", "").split(",") if each.isdigit()]
    for number in opened[:_MAX_OPEN]:
        calls += history.calls(run_id, after=number - 1, limit=1)
    return {
        "run": None if run is None else to_json(run),
        "agents": [to_json(each) for each in history.agents(run_id)],
        "reviews": [to_json(each) for each in history.reviews(run_id)],
        "turns": _find_turns(history, run_id, asked.number("turn", 0)),
        "calls": to_table(calls, _CALL),
    }


def show_call(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the events of one call, whole unless they are very long."""
    history, run_id, number = _open(interface), asked.text("id"), asked.number("number", 0)
    found = history.calls(run_id, after=number - 1, limit=1)
    if not found or found[0].number != number:
        raise RefusedError(404, f"There is no call {number} in the run")
    call = found[0]
    events = history.events(number - 1, run_id, 200, call=call.call_id, max_text=_DETAIL)
    # The same id may be used again by a later call.
    last = call.finished or (events[-1].number if events else 0)
    reviews = [to_json(each) for each in history.reviews(run_id) if each.call_id == call.call_id]
    return {"call": to_json(call), "events": [to_json(each) for each in events if each.number <= last], "reviews": reviews}


def list_events(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return a page of the events of a run, with long texts cut."""
    limit = asked.number("limit", 200, MAX_PAGE)
    events = _open(interface).events(asked.number("after", 0), asked.text("id"), limit, max_text=2000)
    return {"events": [to_json(each) for each in events], "more": len(events) == limit}


def show_event(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one event in full."""
    event = _open(interface).event(asked.number("number", 0))
    if event is None:
        raise RefusedError(404, "There is no such event")
    return {"event": to_json(event)}


def _find_turns(history: RunHistory, run_id: str, after: int) -> list[dict[str, Any]]:
    events = history.events(after, run_id, MAX_PAGE, kinds=_TURNS, max_text=_MESSAGE)
    return [to_json(event) for event in events]


def _check_state(state: str | None) -> Any:
    return state  # the history refuses states that it does not know


def _open(interface: Interface) -> RunHistory:
    history = interface.folder.history()
    if history is None:
        raise RefusedError(404, "There is no history.db in the data folder yet")
    return history


ROUTES = [
    reads("/api/runs", list_runs),
    reads("/api/run", show_run),
    reads("/api/run/calls", list_calls),
    reads("/api/run/changes", list_changes),
    reads("/api/run/events", list_events),
    reads("/api/call", show_call),
    reads("/api/event", show_event),
]
