"""Endpoints of the run history: lists, one run, its calls and events, its timeline, and the comparison of two runs."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

from toolsemble._runtime.text import describe_error
from toolsemble._ui.compare import Pair, compare_runs, diff_calls
from toolsemble._ui.endpoint import MAX_PAGE, Asked, RefusedError, reads, to_table
from toolsemble._ui.interface import Interface
from toolsemble._ui.time_axis import place_ticks
from toolsemble._ui.timeline import Row, build_timeline
from toolsemble._vocabulary.errors import ToolsembleError
from toolsemble.agent._journal.journal import RunJournal
from toolsemble.telemetry._history import RunHistory
from toolsemble.telemetry._history_records import CallSummary, HistoryEvent, ReviewSummary, RunSummary

_CALL = tuple(each.name for each in fields(CallSummary) if each.name != "run_id")
_ROW = tuple(each.name for each in fields(Row))
_TURNS = ("run_started", "model_replied", "model_retried", "run_finished")
_ENDED = ("done", "failed", "cancelled")
_MAX_OPEN = 300
_MAX_WAITING = 500
_MESSAGE = 20_000  # characters of a message in a conversation
_DETAIL = 100_000  # characters of a text in the details of a call
_LINE = 2_000  # characters of a text in the list of raw events


def list_runs(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return a page of runs; those that wait for a person come first, on the first page."""
    history = interface.folder.history()
    if history is None:
        return {"runs": [], "more": False, "before": 0, "exists": False}
    limit, before = asked.number("limit", 50, 500), asked.number("before", 0)
    state: Any = asked.query.get("state") or None
    wanted: dict[str, Any] = {name: asked.query.get(name) or None for name in ("tool", "text")}
    wanted["journal"] = _find_journal(interface)
    found = history.runs(limit=limit, before=before or None, state=state, **wanted)
    shown = found
    if state is None:
        first = [] if before else history.runs(limit=_MAX_WAITING, state="waiting", **wanted)
        shown = [*first, *(run for run in found if run.state != "waiting")]
    more = len(found) == limit
    return {"runs": shown, "more": more, "before": found[-1].number if more else 0, "exists": True}


def show_run(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one run: its summary, its agents, its turns, its reviews, and the first page of its calls."""
    history, run_id = _open(interface), asked.text("id")
    journal = _find_journal(interface)
    run = history.run(run_id, journal=journal)
    if run is None:
        raise RefusedError(404, f"There is no run '{run_id:.80}' in the history")
    calls = history.calls(run_id, limit=asked.number("limit", 1000, MAX_PAGE))
    recorded = None if journal is None else journal.find(run_id)
    durable = None if recorded is None else {"has_agent": recorded.agent in interface.targets.agents}
    shown = _describe(interface, history, run, 0)
    return {**shown, "calls": to_table(calls, _CALL), "durable": durable}


def list_calls(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return a further page of the calls of a run."""
    limit = asked.number("limit", 1000, MAX_PAGE)
    return to_table(_open(interface).calls(asked.text("id"), after=asked.number("after", 0), limit=limit), _CALL)


def list_changes(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return what is new in a run: its summary, new calls, those that were open, and new turns."""
    history, run_id = _open(interface), asked.text("id")
    calls = history.calls(run_id, after=asked.number("after", 0), limit=MAX_PAGE)
    opened = [int(each) for each in asked.query.get("open", "").split(",") if each.isascii() and each.isdigit()]
    for number in opened[:_MAX_OPEN]:
        calls += history.calls(run_id, after=number - 1, limit=1)
    run = history.run(run_id, journal=_find_journal(interface))
    return {**_describe(interface, history, run, asked.number("turn", 0)), "calls": to_table(calls, _CALL)}


def show_call(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the events of one call, whole unless they are very long."""
    history, run_id, number = _open(interface), asked.text("id"), asked.number("number", 0)
    found = history.calls(run_id, after=number - 1, limit=1) if number else []
    if not found or found[0].number != number:
        raise RefusedError(404, f"There is no call {number} in the run")
    call = found[0]
    events = history.events(number - 1, run_id, 200, call=call.call_id, max_text=_DETAIL)
    if call.finished is not None:  # the same id may be used again by a later call
        events = [each for each in events if each.number <= (call.finished or 0)]
    run = history.run(run_id, journal=_find_journal(interface))
    reviews = [] if run is None else [each for each in _list_reviews(history, run) if each.call_id == call.call_id]
    return {"call": call, "events": events, "reviews": reviews}


def list_events(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return a page of the events of a run, with long texts cut."""
    limit = asked.number("limit", 200, MAX_PAGE)
    events = _open(interface).events(asked.number("after", 0), asked.text("id"), limit, max_text=_LINE)
    return {"events": events, "more": len(events) == limit}


def show_event(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one event in full."""
    event = _open(interface).event(asked.number("number", 0))
    if event is None:
        raise RefusedError(404, "There is no such event")
    return {"event": event}


def show_timeline(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the rows of a run on an axis whose waits are folded."""
    timeline = build_timeline(_open(interface), asked.text("id"), now=time.time(), journal=_find_journal(interface))
    rows, ticks = to_table([*timeline.rows], _ROW), place_ticks(timeline.segments)
    return {"rows": rows, "segments": timeline.segments, "ticks": ticks, "is_cut": timeline.is_cut}


def compare(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return two runs, aligned; of the calls only what a list shows."""
    try:
        ids, journal = (asked.text("first"), asked.text("second")), _find_journal(interface)
        found = compare_runs(_open(interface), *ids, journal=journal)
    except LookupError as error:
        raise RefusedError(404, describe_error(error)) from error
    return {"comparison": found}


def compare_calls(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the differences of two calls, line by line; one of them may be missing."""
    history = _open(interface)
    first, second = (_find_call(history, asked, name) for name in ("first", "second"))
    return {"difference": diff_calls(history, Pair("changed", first, second))}


def _find_call(history: RunHistory, asked: Asked, name: str) -> CallSummary | None:
    number = asked.number(f"{name}_number", 0)
    found = history.calls(asked.text(name), after=number - 1, limit=1) if number else []
    return found[0] if found and found[0].number == number else None


def _describe(interface: Interface, history: RunHistory, run: RunSummary | None, after: int) -> dict[str, Any]:
    """Return a run with its agents, its reviews and its turns; nothing is there of one that was deleted."""
    if run is None:
        return {"run": None, "agents": [], "reviews": [], "turns": [], "pending": 0}
    turns: list[HistoryEvent] = history.events(after, run.run_id, MAX_PAGE, kinds=_TURNS, max_text=_MESSAGE)
    agents = history.agents(run.run_id, journal=_find_journal(interface))
    reviews = _list_reviews(history, run)
    pending = _count_pending(interface, reviews)
    return {"run": run, "agents": agents, "reviews": reviews, "turns": turns, "pending": pending}


def _list_reviews(history: RunHistory, run: RunSummary) -> list[ReviewSummary]:
    """Return the questions of a run; none of them is open if the run has ended."""
    found = history.reviews(run.run_id)
    if run.state not in _ENDED:
        return found
    return [each if each.decision else replace(each, decision="withdrawn", answered=run.updated) for each in found]


def _count_pending(interface: Interface, reviews: list[ReviewSummary]) -> int:
    """Return how many questions can be answered; a store knows which of its requests have expired."""
    opened = [each.request_id for each in reviews if each.decision is None]
    store = interface.folder.reviews() if opened else None
    if store is None:
        return len(opened)
    pending = {request.id for request in store.pending()}
    return sum(each in pending or store.find(each) is None for each in opened)


def _find_journal(interface: Interface) -> RunJournal | None:
    """Return the journal; None if there is none, or it cannot be read: its own page says so."""
    try:
        return interface.folder.journal()
    except ToolsembleError:
        return None


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
    reads("/api/run/timeline", show_timeline),
    reads("/api/call", show_call),
    reads("/api/event", show_event),
    reads("/api/compare", compare),
    reads("/api/compare/calls", compare_calls),
]
