"""A time axis on which long waits are folded."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Span = tuple[float, float]

_MIN_FOLD = 2.0  # seconds: shorter gaps are drawn as they are
_FOLDED_SHARE = 0.1  # a gap is folded if it is longer than this part of the time that is worked
_FOLDED_WIDTH = 0.03  # of the axis
_TICK_WIDTH = 0.11  # of the axis: as much room as a label needs


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the axis.

    >>> Segment(0.0, 7800.0, 0.2, 0.23, is_folded=True, is_review=True).seconds
    7800.0
    """

    started: float
    """When it begins, in seconds since the epoch."""
    ended: float
    """When it ends."""
    start: float
    """Where it begins on the axis, from 0 to 1."""
    end: float
    """Where it ends on the axis."""
    is_folded: bool = False
    """Whether it is drawn narrower than it would be: nothing was done."""
    is_review: bool = False
    """Whether a reviewer was waited for."""

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.ended - self.started


def fold_waits(busy: Iterable[Span], waits: Iterable[Span], started: float, ended: float) -> tuple[Segment, ...]:
    """Return the axis from a start to an end: gaps in which nothing is done are folded, if they are long.

    :param busy: when something was done
    :param waits: when a reviewer was waited for

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
    """Return the place of a time on the axis, from 0 to 1.

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
    """Return the ticks of the axis: their places, and the seconds since its start, in round steps.

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
    """Return the spans in order, those that touch as one."""
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
    """Return the parts of the axis: the gaps, and what is between them."""
    at = started
    for first, last in gaps:
        if first > at:
            yield at, first, False
        yield first, last, True
        at = last
    if ended > at:
        yield at, ended, False
