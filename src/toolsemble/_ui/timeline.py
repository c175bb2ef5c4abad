"""A run's timeline: its turns and calls as a tree of rows, on a time axis with collapsed waits."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

from toolsemble._runtime.metrics import Outcome
from toolsemble.telemetry._history import KnowsRuns, RunHistory
from toolsemble.telemetry._history_records import AgentRun, CallSummary, ReviewSummary, RunState, TurnSummary

Span = tuple[float, float]

_MIN_FOLD = 2.0  # seconds: shorter gaps are drawn to scale
_FOLDED_SHARE = 0.1  # a gap is collapsed if it is longer than this fraction of the active time
_FOLDED_WIDTH = 0.03  # of the axis
_TICK_WIDTH = 0.11  # of the axis: the width of a label


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the axis.

    >>> Segment(0.0, 7800.0, 0.2, 0.23, is_folded=True, is_review=True).seconds
    7800.0
    """

    started: float
    """Its start, in seconds since the epoch."""
    ended: float
    """Its end."""
    start: float
    """Its start on the axis, from 0 to 1."""
    end: float
    """Its end on the axis."""
    is_folded: bool = False
    """Whether it is an idle period that is drawn collapsed."""
    is_review: bool = False
    """Whether it is spent waiting for a reviewer."""

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.ended - self.started


def fold_waits(busy: Iterable[Span], waits: Iterable[Span], started: float, ended: float) -> tuple[Segment, ...]:
    """Return the axis from a start to an end, with long idle gaps collapsed.

    :param busy: the active spans
    :param waits: the spans spent waiting for a reviewer

    >>> [(each.seconds, each.is_folded) for each in fold_waits([(0, 1), (3601, 3602)], [(1, 3601)], 0, 3602)]
    [(1, False), (3600, True), (1, False)]
    """
    if ended <= started:
        return ()
    working = [*_join((max(first, started), min(last, ended)) for first, last in busy)]
    asked = [*_join(waits)]
    longest = max(_MIN_FOLD, _FOLDED_SHARE * sum(last - first for first, last in working))
    gaps = [each for each in _find_gaps(working, started, ended) if each[1] - each[0] > longest]
    pieces = [*_split(gaps, started, ended)]
    unfolded = sum(last - first for first, last, is_folded in pieces if not is_folded)
    room = 1.0 - _FOLDED_WIDTH * len(gaps) if unfolded else 1.0
    segments, at = [], 0.0
    for first, last, is_folded in pieces:
        width = (_FOLDED_WIDTH if unfolded else 1.0 / len(gaps)) if is_folded else room * (last - first) / unfolded
        is_review = is_folded and any(begin < last and first < end for begin, end in asked)
        segments.append(Segment(first, last, at, min(at + width, 1.0), is_folded, is_review))
        at = segments[-1].end
    return tuple(segments)


def locate(segments: Sequence[Segment], time: float) -> float:
    """Return the position of a time on the axis, from 0 to 1.

    >>> locate([Segment(0.0, 10.0, 0.0, 0.5), Segment(10.0, 20.0, 0.5, 1.0)], 15.0)
    0.75
    """
    if not segments:
        return 0.0
    index = max(bisect_right(segments, time, key=lambda each: each.started) - 1, 0)
    segment = segments[index]
    share = (time - segment.started) / segment.seconds
    return segment.start + (segment.end - segment.start) * min(max(share, 0.0), 1.0)


def place_ticks(segments: Sequence[Segment]) -> tuple[tuple[float, float], ...]:
    """Return the axis ticks: positions and seconds since the start, in round steps.

    >>> place_ticks([Segment(0.0, 10.0, 0.0, 0.5), Segment(10.0, 3610.0, 0.5, 0.53, is_folded=True)])
    ((0.0, 0.0), (0.25, 5.0), (0.5, 10.0))
    """
    ticks: list[tuple[float, float]] = []
    for segment in segments:
        if segment.is_folded:
            continue
        first, last = (time - segments[0].started for time in (segment.started, segment.ended))
        step = _round_step(segment.seconds / (segment.end - segment.start) * _TICK_WIDTH)
        for number in range(math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9) + 1):
            place = locate(segments, segments[0].started + number * step)
            if not ticks or place - ticks[-1][0] >= _TICK_WIDTH:
                ticks.append((place, number * step))
    return tuple(ticks)


def _round_step(least: float) -> float:
    """Return the smallest step of 1, 2 or 5 times a power of ten that is not smaller than a number."""
    power = 10.0 ** math.floor(math.log10(least))
    return power * next(each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))


def _join(spans: Iterable[Span]) -> Iterator[Span]:
    """Return the spans in order, with touching spans merged."""
    current: Span | None = None
    for first, last in sorted(spans):
        if last <= first:
            continue
        if current is None or first > current[1]:
            if current is not None:
                yield current
            current = first, last
        else:
            current = current[0], max(current[1], last)
    if current is not None:
        yield current


def _find_gaps(spans: Sequence[Span], started: float, ended: float) -> Iterator[Span]:
    at = started
    for first, last in spans:
        yield at, first
        at = last
    yield at, ended


def _split(gaps: Sequence[Span], started: float, ended: float) -> Iterator[tuple[float, float, bool]]:
    """Return the parts of the axis: the gaps and the parts between them."""
    at = started
    for first, last in gaps:
        if first > at:
            yield at, first, False
        yield first, last, True
        at = last
    if ended > at:
        yield at, ended, False


_Inside = TypeVar("_Inside", AgentRun, TurnSummary, CallSummary)

RowState: TypeAlias = Literal["running", "waiting", "done", "failed", "cancelled", "interrupted"]
"""The state of a row."""
_OUTCOMES: dict[Outcome, RowState] = {
    "success": "done",
    "failure": "failed",
    "error": "failed",
    "cancelled": "cancelled",
}
_LIVE = ("running", "waiting")

MAX_ROWS = 20_000
"""The maximum number of turns and of calls in a timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A timeline row: a nested agent, a model turn, or a call.

    >>> Row(kind="call", number=3, name="refund", level=1, started=0.0, ended=2.0).kind
    'call'
    """

    kind: Literal["agent", "turn", "call"]
    """What it shows."""
    number: int
    """The number of its event; unique among the rows of its kind."""
    name: str
    """The tool's or model's name, or the agent's role."""
    level: int
    """Its depth in the tree."""
    started: float
    """Its start, in seconds since the epoch."""
    ended: float | None
    """Its end; None if it has not ended."""
    call_id: str = ""
    """The id of the call; empty for turns and agents."""
    outcome: Outcome | None = None
    """The outcome of a call that has ended."""
    state: RowState = "done"
    """Its state; an unfinished call is "interrupted" if its run does not continue."""
    start: float = 0.0
    """The bar's start on the axis, from 0 to 1."""
    end: float = 0.0
    """The bar's end on the axis."""
    waits: tuple[tuple[float, float], ...] = ()
    """The parts of the bar spent waiting for a reviewer."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run's rows, and the axis of their bars.

    >>> Timeline((), ()).rows
    ()
    """

    rows: tuple[Row, ...]
    """The rows, in display order."""
    segments: tuple[Segment, ...]
    """The parts of the axis; long waits are collapsed."""
    is_cut: bool = False
    """Whether some turns or calls are omitted."""


def build_timeline(
    history: RunHistory,
    run_id: str,
    *,
    max_rows: int = MAX_ROWS,
    now: float | None = None,
    journal: KnowsRuns | None = None,
) -> Timeline:
    """Return the timeline of a run; it has no rows if the run is unknown.

    :param now: the end of unfinished bars; None: the latest event
    :param journal: the run's journal, whose state is authoritative
    """
    run = history.run(run_id, journal=journal)
    if run is None:
        return Timeline((), ())
    turns, calls = history.turns(run_id, limit=max_rows), history.calls(run_id, limit=max_rows)
    reviews = history.reviews(run_id)
    until = max(run.updated, now or 0.0) if run.state in _LIVE else run.updated
    waiting = {each.call_id for each in reviews if each.answered is None}
    rows = [*_Tree(history.agents(run_id, journal=journal), turns, calls, run.state, waiting).list_rows("", 0)]
    segments = fold_waits(_find_busy(turns, calls, reviews, until), _find_waits(reviews, until), run.started, until)
    asked = _group_waits(reviews, until)
    placed = (_place(row, segments, asked.get(row.call_id, ()) if row.call_id else (), until) for row in rows)
    return Timeline(tuple(placed), segments, max_rows in (len(turns), len(calls)))


class _Tree:
    """A run's turns and calls, by their parent call."""

    def __init__(
        self,
        agents: Sequence[AgentRun],
        turns: Sequence[TurnSummary],
        calls: Sequence[CallSummary],
        run_state: RunState,
        waiting: AbstractSet[str],
    ) -> None:
        self._run_state = run_state
        self._waiting = waiting
        known = {each.call_id for each in calls}
        self._agents = _group(agents, known)
        self._turns = _group(turns, known)
        self._calls = _group(calls, known)
        self._shown: set[str] = set()

    def list_rows(self, parent: str, level: int) -> Iterator[Row]:
        """Return the rows within a call; all rows of the run if it is empty."""
        if parent in self._shown:
            return  # duplicate call id: nested rows are shown once
        self._shown.add(parent)
        agents = self._agents.get(parent, []) if parent else []
        for agent in agents:
            yield _agent_row(agent, level)
        inside: list[TurnSummary | CallSummary] = [*self._turns.get(parent, []), *self._calls.get(parent, [])]
        for each in sorted(inside, key=lambda one: one.number):
            if isinstance(each, TurnSummary):
                yield _turn_row(each, level + bool(agents))
                continue
            yield _call_row(each, level + bool(agents), self._find_state(each))
            yield from self.list_rows(each.call_id, level + bool(agents) + 1)

    def _find_state(self, call: CallSummary) -> RowState:
        if call.outcome is not None:
            return _OUTCOMES[call.outcome]
        if call.ended is not None or self._run_state not in _LIVE:
            return "interrupted"
        return "waiting" if call.call_id in self._waiting or self._run_state == "waiting" else "running"


def _group(records: Iterable[_Inside], known: AbstractSet[str]) -> dict[str, list[_Inside]]:
    """Return records by their parent call; by "" if that call was not recorded."""
    found: dict[str, list[_Inside]] = {}
    for each in records:
        found.setdefault(each.parent_id if each.parent_id in known else "", []).append(each)
    return found


def _agent_row(agent: AgentRun, level: int) -> Row:
    name = agent.model if agent.agent_role in {"", "unknown"} else agent.agent_role
    state: RowState = "running" if agent.state == "running" else "done"
    times: dict[str, Any] = {"started": agent.started, "ended": agent.ended}
    return Row(kind="agent", number=agent.number, name=name, level=level, state=state, **times)


def _turn_row(turn: TurnSummary, level: int) -> Row:
    return Row(kind="turn", number=turn.number, name=turn.model, level=level, started=turn.started, ended=turn.at)


def _call_row(call: CallSummary, level: int, state: RowState) -> Row:
    return Row(
        kind="call",
        number=call.number,
        name=call.tool_name,
        level=level,
        started=call.started,
        ended=call.ended,
        call_id=call.call_id,
        outcome=call.outcome,
        state=state,
    )


def _place(row: Row, segments: Sequence[Segment], waits: Iterable[Span], until: float) -> Row:
    """Return a row with its bar's position."""
    ended = until if row.ended is None else row.ended
    inside = tuple((locate(segments, first), locate(segments, last)) for first, last in waits if last > row.started)
    return replace(row, start=locate(segments, row.started), end=locate(segments, ended), waits=inside)


def _find_busy(
    turns: Iterable[TurnSummary], calls: Sequence[CallSummary], reviews: Sequence[ReviewSummary], until: float
) -> Iterator[Span]:
    """Return the active spans: model replies, and calls without nested calls."""
    for turn in turns:
        yield turn.started, turn.at
    outer, waits = {each.parent_id for each in calls}, _group_waits(reviews, until)
    for call in calls:
        if call.call_id in outer:
            continue
        at = call.started
        for first, last in waits.get(call.call_id, ()):
            yield at, first
            at = max(at, last)
        yield at, until if call.ended is None else call.ended


def _find_waits(reviews: Iterable[ReviewSummary], until: float) -> Iterator[Span]:
    for each in reviews:
        yield each.asked, until if each.answered is None else each.answered


def _group_waits(reviews: Sequence[ReviewSummary], until: float) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for review, span in zip(reviews, _find_waits(reviews, until), strict=True):
        found.setdefault(review.call_id, []).append(span)
    return found
