"""What one more turn or call costs when there are many: the same, if the work grows linearly."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Sequence

from findings import Growth
from ratio import rounded

from own.agents import converse, sums, work
from own.job import add
from own.measure import Go, computed, settled
from toolsemble import Toolbox

SIZES = (10, 100, 1000, 10_000)
ROUNDS = 3
"""How many times each size has its turn."""


def growths(sizes: Sequence[int] = SIZES, seconds: float = 0.05) -> list[Growth]:
    """Measure each line of growth, every size for some seconds whenever it has its turn."""
    kinds: dict[str, Callable[[int], Awaitable[object]]] = {
        "turns of a conversation": converse,
        "turns of one run": work,
        "concurrent calls": _concurrently,
    }
    with asyncio.Runner() as runner:
        return [Growth(what=what, points=_points(runner, each, sizes, seconds)) for what, each in kinds.items()]


def by_turns(goes: dict[int, Go], seconds: float) -> list[list[float]]:
    """Return the sizes with their medians over some rounds, in each of which every size has its turn."""
    rounds = [{size: settled(go, seconds) for size, go in goes.items()} for _ in range(ROUNDS)]
    return [[size, rounded(statistics.median(taken[size] for taken in rounds))] for size in goes]


def _points(
    runner: asyncio.Runner, work: Callable[[int], Awaitable[object]], sizes: Sequence[int], seconds: float
) -> list[list[float]]:
    _go(runner, work, 1)()  # what is built on first use is no part of any of them
    return by_turns({size: _go(runner, work, size) for size in sizes}, seconds)


def _go(runner: asyncio.Runner, work: Callable[[int], Awaitable[object]], size: int) -> Go:
    return computed(runner, lambda: work(size), size)


async def _concurrently(count: int) -> None:
    await Toolbox([add]).aexecute_all(sums(count))
