"""How many calls may run at the same time."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future


class Slots:
    """A counted number of places, taken first come first served by threads and tasks of any event loop.

    >>> slots = Slots(1)
    >>> slots.take()
    >>> slots.release()
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[Future[None]] = deque()

    def take(self) -> None:
        """Wait for a place; blocks the thread."""
        if turn := self._queue():
            try:
                turn.result()
            except BaseException:
                self._abandon(turn)
                raise

    async def atake(self) -> None:
        """Wait for a place; lets other tasks run."""
        import asyncio  # noqa: PLC0415 - programs without async code never pay for it

        if turn := self._queue():
            try:
                await asyncio.wrap_future(turn)
            except BaseException:
                self._abandon(turn)
                raise

    def release(self) -> None:
        """Give a place back, to the one who has waited longest."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._free += 1

    def _queue(self) -> Future[None] | None:
        with self._lock:
            if self._free:
                self._free -= 1
                return None
            turn: Future[None] = Future()
            self._waiting.append(turn)
            return turn

    def _abandon(self, turn: Future[None]) -> None:
        # A waiter that is interrupted in the moment it was served holds a place that nobody else would give back.
        if not turn.cancel():
            self.release()
