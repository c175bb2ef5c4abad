"""Something to be repeated and timed."""

import asyncio
import inspect
import time
from collections.abc import Callable

BATCH = 0.004
"""Seconds that one measurement takes, about: long enough for the clock, short enough to alternate often."""
PATIENCE = 200
"""Seconds after which calls that wait for each other in vain are given up."""


class Work:
    """A function, sync or async, and how many times it fits into a batch."""

    def __init__(self, call: Callable[[], object], runner: asyncio.Runner, parts: int = 1) -> None:
        self._call = call
        self._runner = runner
        self._parts = parts
        self._number = 1

    def once(self) -> object:
        """Do it, and give what it gives."""
        result = self._call()
        return self._runner.run(asyncio.wait_for(result, PATIENCE)) if inspect.iscoroutine(result) else result

    def calibrate(self) -> None:
        """Warm up, and find out how many fill a batch."""
        self.once()  # what is built on first use is no part of a call
        while self._number < 1 << 20 and self._timed() < BATCH / 2:
            self._number *= 2

    def batch(self) -> float:
        """Give the seconds of one part, on average over a batch."""
        return self._timed() / self._number / self._parts

    def _timed(self) -> float:
        return self._awaited() if inspect.iscoroutinefunction(self._call) else self._called()

    def _called(self) -> float:
        call, times = self._call, range(self._number)
        started = time.perf_counter()
        for _ in times:
            call()
        return time.perf_counter() - started

    def _awaited(self) -> float:
        call, times = self._call, range(self._number)

        async def every() -> float:
            started = time.perf_counter()
            for _ in times:
                await call()
            return time.perf_counter() - started

        return self._runner.run(every())
