"""How two ways to do the same are compared: in pairs, one right after the other, as long as the time lasts.

Machines are noisy, and noise that lasts longer than a pair hits both halves of it. What counts is the ratio within
the pairs: the median, and what lies between the tenth and the ninetieth percent. Work that only computes is timed by
the processor's clock, which stands still while other programs run. So are waits of a :class:`SteadyLoop`, which are
only counted. Work of several threads or processes is timed by the clock on the wall.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from findings import Row
from ratio import Pair, compared, rounded
from timing import PROCESSOR, WALL

Go = Callable[[], float]
"""Does something, and gives the seconds that one of it took."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compared, in words."""

    group: str
    """Which table it belongs to."""
    what: str
    """What toolsemble does."""
    against: str
    """What it is compared with."""
    aim: str = ""
    """What to stay below: a ratio, "< 4", a time, "< 30 µs", or a time on top of the other, "< 8 µs more"."""
    figure: str = ""
    """The key of the peers' figure that a picture shows this one in place of, where no peer was measured."""
    itself: bool = False
    """Whether the other is toolsemble, too: nothing that a user could take instead."""
    unit: Literal["s", "B"] = "s"
    """What is counted: seconds or bytes."""

    def row(self, pairs: Sequence[Pair]) -> Row:
        """Return what the pairs say."""
        return Row(
            group=self.group,
            what=self.what,
            against=self.against,
            figure=self.figure,
            itself=self.itself,
            unit=self.unit,
            ours=rounded(statistics.median(ours for ours, _ in pairs)),
            other=rounded(statistics.median(other for _, other in pairs)),
            aim=self.aim,
            **compared(pairs),
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two ways to do the same, ready to be measured."""

    subject: Subject
    """What it is."""
    ours: Go
    """One go with toolsemble."""
    other: Go
    """One go without."""
    least: int = 0
    """How many pairs it takes at least, where single ones differ much: the garbage collector comes to some of them."""

    def measured(self, seconds: float, least: int) -> Row:
        """Measure pairs until the time is over, but at least some, after a go that warms up."""
        self.ours(), self.other()
        return self.subject.row(pairs(self.ours, self.other, seconds, max(least, self.least)))


def awaited(runner: asyncio.Runner, work: Callable[[], Awaitable[object]]) -> Go:
    """Return one go of work in an event loop that waits, timed by the clock of the loop."""

    async def timed() -> float:
        clock = asyncio.get_running_loop().time
        started = clock()
        await work()
        return clock() - started

    return lambda: runner.run(timed())


def computed(runner: asyncio.Runner, work: Callable[[], Awaitable[object]], units: int) -> Go:
    """Return one go of work in an event loop that only computes: the seconds of each of its units."""

    async def timed() -> float:
        started = PROCESSOR()
        await work()
        return (PROCESSOR() - started) / units

    return lambda: runner.run(timed())


def once(work: Callable[[], object]) -> Go:
    """Return one go of work that waits."""

    def timed() -> float:
        started = WALL()
        work()
        return WALL() - started

    return timed


def pairs(ours: Go, other: Go, seconds: float, least: int) -> list[Pair]:
    """Return what one and the other took, by turns, until the time is over, but at least some pairs."""
    end = WALL() + seconds
    found: list[Pair] = []
    while len(found) < least or WALL() < end:
        found.append((ours(), other()))
    return found


def settled(go: Go, seconds: float) -> float:
    """Return the median of as many goes as the time lasts for, at least one."""
    end = WALL() + seconds
    found = [go()]
    while WALL() < end:
        found.append(go())
    return statistics.median(found)
