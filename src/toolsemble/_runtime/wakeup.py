"""A one-time signal for a waiting thread or task that is safe against interrupts."""

from __future__ import annotations

import sys
from _thread import allocate_lock, get_ident
from threading import main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_ROUND = 1.0  # seconds after which the main thread checks for signals


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that this thread is running, or None.

    >>> running_loop() is None
    True
    """
    asyncio = sys.modules.get("asyncio")  # if asyncio is not imported, no loop can be running
    return None if asyncio is None else asyncio._get_running_loop()  # noqa: SLF001 - the public function raises, which costs ten times as much


class Wakeup:
    """A signal for one waiter: a thread, or a task of an event loop.

    Futures and conditions of the standard library release their locks in Python functions: an interrupt there leaves
    a lock held, and setting the result blocks. Here each step is one call into C, or can be repeated.

    >>> wakeup = Wakeup()
    >>> wakeup.wait(0)
    False
    >>> wakeup.wake()
    >>> wakeup.wait(None)
    True
    """

    __slots__ = ("_lock", "_waiter", "woken")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()
        self._waiter: asyncio.Future[None] | None = None
        self.woken = False
        """Whether the waiter was woken."""

    def wake(self) -> None:
        """Wake the waiter; can be called more than once."""
        self.woken = True
        try:  # noqa: SIM105 - suppress() has more points at which an interrupt can come
            self._lock.release()
        except RuntimeError:
            pass  # it was woken before
        if self._waiter is not None:
            _resolve_in_loop(self._waiter)

    def wait(self, seconds: float | None) -> bool:
        """Wait in this thread, at most some seconds; return whether it was woken."""
        # A signal that another thread receives, or that comes just before this one blocks, does not wake it.
        while (seconds is None or seconds > _ROUND) and get_ident() == main_thread().ident:
            if self.woken or self._lock.acquire(timeout=_ROUND):
                return True
            seconds = None if seconds is None else seconds - _ROUND
        return self.woken or self._lock.acquire(timeout=-1 if seconds is None else seconds) or self.woken

    async def wait_async(self, seconds: float | None) -> bool:
        """Wait in this task, at most some seconds; return whether it was woken."""
        import asyncio

        self._waiter = asyncio.get_running_loop().create_future()
        if not self.woken:  # checked after _waiter is set: either this or wake() sees the other
            await asyncio.wait([self._waiter], timeout=seconds)
        return self.woken


def _resolve_in_loop(future: asyncio.Future[None]) -> None:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    try:  # noqa: SIM105 - as above
        future.get_loop().call_soon_threadsafe(resolve)
    except RuntimeError:
        pass  # the loop is closed; the lock table drops its claims
