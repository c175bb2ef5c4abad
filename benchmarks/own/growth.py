"""What one more turn or call costs when there are many: the same, if the work grows linearly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from findings import Growth
from ratio import rounded

from own.agents import converse, sums, work
from own.job import add
from own.measure import computed, settled
from toolsemble import Toolbox

SIZES = (10, 100, 1000, 10_000)


def growths(sizes: Sequence[int] = SIZES, seconds: float = 0.3) -> list[Growth]:
    """Measure each line of growth."""
    kinds: dict[str, Callable[[int], Awaitable[object]]] = {
        "turns of a conversation": converse,
        "turns of one run": work,
        "calls side by side": _side_by_side,
    }
    with asyncio.Runner() as runner:
        return [Growth(what=what, points=_points(runner, each, sizes, seconds)) for what, each in kinds.items()]


async def _side_by_side(count: int) -> None:
    await Toolbox([add]).aexecute_all(sums(count))


def _points(
    runner: asyncio.Runner, work: Callable[[int], Awaitable[object]], sizes: Sequence[int], seconds: float
) -> list[list[float]]:
    runner.run(_ended(work(1)))  # what is built on first use is no part of any of them
    return [[size, rounded(settled(computed(runner, lambda: work(size), size), seconds))] for size in sizes]  # noqa: B023 - called at once


async def _ended(work: Awaitable[object]) -> None:
    await work
