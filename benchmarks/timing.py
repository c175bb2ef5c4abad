"""How work is timed that is too short for a clock: in batches. Nothing here needs more than the standard library."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable

BATCH = 0.004
"""Seconds that one measurement takes, about: long enough for the clock, short enough to alternate often."""
MOST = 1 << 20
"""How many make a batch at the most."""
PATIENCE = 200
"""Seconds after which calls that wait for each other are abandoned."""

Clock = Callable[[], float]
"""Gives seconds; what matters is the difference."""
PROCESSOR = time.process_time
"""Counts the seconds that this process computes, in all its threads."""
WALL = time.perf_counter
"""Counts the seconds that pass."""


class Repeated:
    """Work to be timed: a function, or with a runner a coroutine function, as many times as fit into a batch."""

    def __init__(
        self,
        work: Callable[[], object],
        clock: Clock = PROCESSOR,
        *,
        runner: asyncio.Runner | None = None,
        parts: int = 1,
    ) -> None:
        self._work = work
        self._clock = clock
        self._runner = runner
        self._parts = parts
        self._number = 0

    def __call__(self) -> float:
        """Return the seconds of one part, on average; the first time, find out how many make a batch."""
        if not self._number:
            self._calibrate()
        return self._timed() / self._number / self._parts

    def once(self) -> object:
        """Do it, and give what it gives."""
        result = self._work()
        return self._runner.run(asyncio.wait_for(result, PATIENCE)) if inspect.iscoroutine(result) else result

    def _calibrate(self) -> None:
        self.once()  # what is built on first use is no part of it
        self._number = 1
        while self._number < MOST and self._timed() < BATCH / 2:
            self._number *= 2

    def _timed(self) -> float:
        return self._runner.run(self._awaited()) if inspect.iscoroutinefunction(self._work) else self._called()

    def _called(self) -> float:
        work, clock, times = self._work, self._clock, range(self._number)
        started = clock()
        for _ in times:
            work()
        return clock() - started

    async def _awaited(self) -> float:
        work, clock, times = self._work, self._clock, range(self._number)
        started = clock()
        for _ in times:
            await work()
        return clock() - started
