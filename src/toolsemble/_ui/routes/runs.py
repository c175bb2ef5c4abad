"""Endpoints of the run history: lists, one run, its timeline, and the comparison of two runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

from toolsemble._runtime.text import describe_error
from toolsemble._ui.endpoint import MAX_PAGE, Asked, RefusedError, reads, to_table
from toolsemble._ui.interface import Interface
from toolsemble._ui.timeline import Row, build_timeline, place_ticks
from toolsemble._vocabulary.errors import ToolsembleError
from toolsemble.agent._journal.journal import RunJournal
from toolsemble.telemetry._history import KnowsRuns, RunHistory
from toolsemble.telemetry._history_records import CallSummary, HistoryEvent, ReviewSummary, RunSummary

MAX_CALLS = 10_000
"""The maximum number of compared calls per run."""
_MAX_ALIGNED = 500  # calls for optimal alignment; beyond that, calls are aligned in order
_MAX_LINES = 2_000  # of a text compared line by line
_MAX_LINE = 2_000  # characters

Change: TypeAlias = Literal["same", "changed", "added", "removed"]
"""How two calls differ: not at all, in their arguments or results, or one of them is missing."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a comparison.

    >>> DiffLine("+", '"amount": 5').mark
    '+'
    """

    mark: Literal["=", "-", "+"]
    """Whether it is in both, only in the first, or only in the second."""
    text: str
    """The line."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair of calls aligned by tool; None if one run has no counterpart.

    >>> Pair("removed", None, None).change
    'removed'
    """

    change: Change
    """How they differ."""
    first: CallSummary | None
    """The call of the first run."""
    second: CallSummary | None
    """The call of the second run."""


@dataclass(frozen=True, slots=True)
class CallDiff:
    """The changes between two calls.

    >>> CallDiff((), (DiffLine("-", "paid"),)).text[0].text
    'paid'
    """

    arguments: tuple[DiffLine, ...]
    """The arguments as JSON, line by line; empty if they are the same."""
    text: tuple[DiffLine, ...]
    """The reply texts, line by line; empty if they are the same."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side; tokens, cost and time are in their summaries."""

    first: RunSummary
    """The first run."""
    second: RunSummary
    """The second run."""
    pairs: tuple[Pair, ...]
    """The calls, in order."""
    divergence: int | None
    """The index of the first differing pair; None if there is none."""
    prompt: tuple[DiffLine, ...]
    """The changes in the prompt; empty if there are none."""
    answer: tuple[DiffLine, ...]
    """The changes in the answer; empty if there are none."""
    is_cut: bool = False
    """Whether a run has more calls than were compared."""


def compare_runs(
    history: RunHistory, first: str, second: str, *, max_calls: int = MAX_CALLS, journal: KnowsRuns | None = None
) -> Comparison:
    """Return the comparison of two runs; raise ``LookupError`` if one is unknown.

    Calls are aligned by the names of their tools.

    :param journal: the runs' journal, whose states are authoritative
    """
    runs = [_find_run(history, each, journal) for each in (first, second)]
    calls = [history.calls(each, limit=max_calls) for each in (first, second)]
    asked, answered = zip(*(_load_messages(history, each) for each in (first, second)), strict=True)
    pairs = tuple(_pair_calls(*calls))
    divergence = next((index for index, pair in enumerate(pairs) if pair.change != "same"), None)
    is_cut = max_calls in map(len, calls)
    return Comparison(runs[0], runs[1], pairs, divergence, diff_texts(*asked), diff_texts(*answered), is_cut)


def diff_calls(history: RunHistory, pair: Pair) -> CallDiff:
    """Return the changes between a pair of calls, from their full arguments and results."""
    first, second = (_load_call(history, each) for each in (pair.first, pair.second))
    return CallDiff(diff_texts(first[0], second[0]), diff_texts(first[1], second[1]))


def diff_texts(first: str, second: str) -> tuple[DiffLine, ...]:
    r"""Return two texts line by line; nothing if they are the same.

    >>> [(each.mark, each.text) for each in diff_texts("a\nb", "a\nc")]
    [('=', 'a'), ('-', 'b'), ('+', 'c')]
    """
    return () if first == second else tuple(_diff_lines(_split_lines(first), _split_lines(second)))


def _diff_lines(first: Sequence[str], second: Sequence[str]) -> Iterator[DiffLine]:
    for change, start, end, other_start, other_end in SequenceMatcher(None, first, second).get_opcodes():
        if change == "equal":
            yield from (DiffLine("=", line) for line in first[start:end])
            continue
        yield from (DiffLine("-", line) for line in first[start:end])
        yield from (DiffLine("+", line) for line in second[other_start:other_end])


def _split_lines(text: str) -> list[str]:
    return [line[:_MAX_LINE] for line in text.split("\n")[:_MAX_LINES]] if text else []


def _pair_calls(first: Sequence[CallSummary], second: Sequence[CallSummary]) -> Iterator[Pair]:
    """Return the calls of both runs side by side."""
    same = next((index for index, pair in enumerate(zip(first, second, strict=False)) if not _is_same(*pair)), None)
    start = min(len(first), len(second)) if same is None else same
    yield from (Pair("same", *pair) for pair in zip(first[:start], second[:start], strict=True))
    for mine, others in _align(first[start:], second[start:]):
        if mine is None or others is None:
            yield Pair("removed" if others is None else "added", mine, others)
        else:
            yield Pair("same" if _is_same(mine, others) else "changed", mine, others)


def _align(
    first: Sequence[CallSummary], second: Sequence[CallSummary]
) -> Iterator[tuple[CallSummary | None, CallSummary | None]]:
    """Return the calls of both runs, aligned by tool, in their original order."""
    if max(len(first), len(second)) > _MAX_ALIGNED:
        for mine, others in zip_longest(first, second):
            yield from _join(mine, others)
        return
    names = [[each.tool_name for each in calls] for calls in (first, second)]
    for change, start, end, other_start, other_end in SequenceMatcher(
        None, names[0], names[1], autojunk=False
    ).get_opcodes():
        if change == "equal":
            yield from zip(first[start:end], second[other_start:other_end], strict=True)
            continue
        yield from ((each, None) for each in first[start:end])
        yield from ((None, each) for each in second[other_start:other_end])


def _join(
    first: CallSummary | None, second: CallSummary | None
) -> Iterator[tuple[CallSummary | None, CallSummary | None]]:
    """Return two calls as one pair if they call the same tool, else as two pairs."""
    if first is None or second is None or first.tool_name == second.tool_name:
        yield first, second
    else:
        yield first, None
        yield None, second


def _is_same(first: CallSummary, second: CallSummary) -> bool:
    return first.tool_name == second.tool_name and first.digest == second.digest and first.outcome == second.outcome


def _find_run(history: RunHistory, run_id: str, journal: KnowsRuns | None) -> RunSummary:
    run = history.run(run_id, journal=journal)
    if run is None:
        raise LookupError(f"the history has no run {run_id!r:.80}")
    return run


def _load_messages(history: RunHistory, run_id: str) -> tuple[str, str]:
    """Return a run's full prompt and answer, from its latest attempt."""
    prompt = answer = ""
    for event in history.events(run=run_id, kinds=("run_started", "run_finished"), limit=MAX_CALLS):
        if event.parent_id:
            continue  # a nested agent
        if event.kind == "run_finished":
            answer = str(event.values.get("text") or "")
        else:
            texts = [each.get("text") for each in event.values.get("messages") or () if each.get("role") == "user"]
            prompt, answer = str(texts[-1] or "") if texts else "", ""
    return prompt, answer


def _load_call(history: RunHistory, call: CallSummary | None) -> tuple[str, str]:
    """Return a call's arguments as JSON, and its reply text."""
    if call is None:
        return "", ""
    event = history.event(call.finished or call.number)
    values: dict[str, Any] = {} if event is None else event.values
    result = values.get("result") or {}
    error = result.get("error_message")
    text = str(result.get("output") or "") if error is None else f"Error: {error}"
    return _format_json(values.get("arguments")), text or str(values.get("error") or "")


def _format_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)


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
    """Return a page of runs; on the first page, runs waiting for approval come first."""
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
        raise RefusedError(404, f"The history has no run '{run_id:.80}'")
    calls = history.calls(run_id, limit=asked.number("limit", 1000, MAX_PAGE))
    recorded = None if journal is None else journal.find(run_id)
    durable = None if recorded is None else {"has_agent": recorded.agent in interface.targets.agents}
    shown = _describe(interface, history, run, 0)
    return {**shown, "calls": to_table(calls, _CALL), "durable": durable}


def list_calls(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return another page of a run's calls."""
    limit = asked.number("limit", 1000, MAX_PAGE)
    return to_table(_open(interface).calls(asked.text("id"), after=asked.number("after", 0), limit=limit), _CALL)


def list_changes(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return a run's changes: its summary, new and previously open calls, and new turns."""
    history, run_id = _open(interface), asked.text("id")
    calls = history.calls(run_id, after=asked.number("after", 0), limit=MAX_PAGE)
    opened = [int(each) for each in asked.query.get("open", "").split(",") if each.isascii() and each.isdigit()]
    for number in opened[:_MAX_OPEN]:
        calls += history.calls(run_id, after=number - 1, limit=1)
    run = history.run(run_id, journal=_find_journal(interface))
    return {**_describe(interface, history, run, asked.number("turn", 0)), "calls": to_table(calls, _CALL)}


def show_call(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one call's events, in full unless they are very long."""
    history, run_id, number = _open(interface), asked.text("id"), asked.number("number", 0)
    found = history.calls(run_id, after=number - 1, limit=1) if number else []
    if not found or found[0].number != number:
        raise RefusedError(404, f"The run has no call {number}")
    call = found[0]
    events = history.events(number - 1, run_id, 200, call=call.call_id, max_text=_DETAIL)
    if call.finished is not None:  # a later call may reuse the same id
        events = [each for each in events if each.number <= (call.finished or 0)]
    run = history.run(run_id, journal=_find_journal(interface))
    reviews = [] if run is None else [each for each in _list_reviews(history, run) if each.call_id == call.call_id]
    return {"call": call, "events": events, "reviews": reviews}


def list_events(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return a page of a run's events, with long texts truncated."""
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
    """Return a run's rows on a time axis with collapsed waits."""
    timeline = build_timeline(_open(interface), asked.text("id"), now=time.time(), journal=_find_journal(interface))
    rows, ticks = to_table([*timeline.rows], _ROW), place_ticks(timeline.segments)
    return {"rows": rows, "segments": timeline.segments, "ticks": ticks, "is_cut": timeline.is_cut}


def compare(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return two runs, aligned, with call summaries only."""
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
    """Return a run with its agents, reviews and turns; all empty for a deleted run."""
    if run is None:
        return {"run": None, "agents": [], "reviews": [], "turns": [], "pending": 0}
    turns: list[HistoryEvent] = history.events(after, run.run_id, MAX_PAGE, kinds=_TURNS, max_text=_MESSAGE)
    agents = history.agents(run.run_id, journal=_find_journal(interface))
    reviews = _list_reviews(history, run)
    pending = _count_pending(interface, reviews)
    return {"run": run, "agents": agents, "reviews": reviews, "turns": turns, "pending": pending}


def _list_reviews(history: RunHistory, run: RunSummary) -> list[ReviewSummary]:
    """Return a run's requests; none is open if the run has ended."""
    found = history.reviews(run.run_id)
    if run.state not in _ENDED:
        return found
    return [each if each.decision else replace(each, decision="withdrawn", answered=run.updated) for each in found]


def _count_pending(interface: Interface, reviews: list[ReviewSummary]) -> int:
    """Return the number of answerable requests; the store knows which have expired."""
    opened = [each.request_id for each in reviews if each.decision is None]
    store = interface.folder.reviews() if opened else None
    if store is None:
        return len(opened)
    pending = {request.id for request in store.pending()}
    return sum(each in pending or store.find(each) is None for each in opened)


def _find_journal(interface: Interface) -> RunJournal | None:
    """Return the journal; None if it is missing or unreadable, which its own page reports."""
    try:
        return interface.folder.journal()
    except ToolsembleError:
        return None


def _open(interface: Interface) -> RunHistory:
    history = interface.folder.history()
    if history is None:
        raise RefusedError(404, "The data folder has no history.db yet")
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
