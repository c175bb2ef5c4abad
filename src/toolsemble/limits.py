"""How many calls may run at the same time."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from contextvars import ContextVar, Token
from typing import Any

_place: ContextVar[Place | None] = ContextVar("toolsemble.place", default=None)


class Slots:
    """A counted number of places, taken first come first served by threads and tasks of any event loop.

    >>> slots = Slots(1)
    >>> slots.take()
    >>> slots.release()
    """

    def __init__(self, count: int) -> None:
        # Reentrant, and nothing is allocated while it is held: the collector may close a dropped call, which releases.
        self._lock = threading.RLock()
        self._free = count
        self._waiting: deque[Future[None]] = deque()

    def take(self) -> None:
        """Wait for a place; blocks the thread."""
        turn: Future[None] = Future()
        if self._queue(turn):
            try:
                turn.result()
            except BaseException:
                self._abandon(turn)
                raise

    async def atake(self) -> None:
        """Wait for a place; lets other tasks run."""
        import asyncio  # noqa: PLC0415 - programs without async code never pay for it

        turn: Future[None] = Future()
        if self._queue(turn):
            try:
                await asyncio.wrap_future(turn)
            except BaseException:
                self._abandon(turn)
                raise

    def release(self) -> None:
        """Give a place back, to the one who has waited longest."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                turn = self._waiting.popleft()
            if turn.set_running_or_notify_cancel():
                turn.set_result(None)
                return

    def _queue(self, turn: Future[None]) -> bool:
        """Whether the turn has to wait; a free place is taken at once."""
        with self._lock:
            if self._free:
                self._free -= 1
                return False
            self._waiting.append(turn)
            return True

    def _abandon(self, turn: Future[None]) -> None:
        # A waiter that is interrupted in the moment it was served holds a place that nobody else would give back.
        if not turn.cancel():
            self.release()
            return
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)


class Place:
    """A place that one call holds; calls inside that call need no other."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._body: Future[Any] | None = None
        self._token: Token[Place | None] = _place.set(self)
        self.held = True

    def leave(self) -> None:
        """Give the place back: now, or when a body that outlives its call has ended."""
        self.held = False
        try:  # noqa: SIM105 - closed by the collector it may stand in another context, where there is nothing to undo
            _place.reset(self._token)
        except ValueError:
            pass
        if self._body is None or self._body.done():
            self._slots.release()
        else:
            self._body.add_done_callback(lambda _: self._slots.release())

    def keep_for(self, body: Future[Any]) -> None:
        """Keep the place for as long as the body runs, whatever happens to the call."""
        self._body = body


def held_place() -> Place | None:
    """Give the place that a call around this one holds; waiting for a second one could be for ever."""
    place = _place.get()
    return place if place is not None and place.held else None
