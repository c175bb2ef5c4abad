"""Wake one thread or task that waits, once, with nothing that an interrupt could leave locked."""

from __future__ import annotations

import sys
from _thread import allocate_lock, get_ident
from threading import main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_ROUND = 1.0  # how many seconds the main thread waits before it looks for signals


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that this thread is running, or None.

    >>> running_loop() is None
    True
    """
    asyncio = sys.modules.get("asyncio")  # where nobody has imported it, no loop can be running
    return None if asyncio is None else asyncio._get_running_loop()  # noqa: SLF001 - the public one raises, at ten times the cost


class Wakeup:
    """A signal for one waiter: a thread, or a task of an event loop.

    The futures and conditions of the standard library leave through Python functions: an interrupt on entering one of
    them leaves a lock taken, and whoever sets the result hangs. Here each step is one call into C, or can be repeated.

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
        """Wake the waiter; a second time does no harm."""
        self.woken = True
        try:  # noqa: SIM105 - suppress() is more to interrupt
            self._lock.release()
        except RuntimeError:
            pass  # it was rung before
        if self._waiter is not None:
            _resolve_in_loop(self._waiter)

    def wait(self, seconds: float | None) -> bool:
        """Wait in this thread for some seconds, or without limit; return whether it was rung."""
        # A signal that another thread is given, or that comes right before this one blocks, does not wake it.
        while (seconds is None or seconds > _ROUND) and get_ident() == main_thread().ident:
            if self.woken or self._lock.acquire(timeout=_ROUND):
                return True
            seconds = None if seconds is None else seconds - _ROUND
        return self.woken or self._lock.acquire(timeout=-1 if seconds is None else seconds) or self.woken

    async def wait_async(self, seconds: float | None) -> bool:
        """Wait in this task for some seconds, or without limit; return whether it was rung."""
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        self._waiter = asyncio.get_running_loop().create_future()
        if not self.woken:  # looked at after the waiter can be seen: one of the two sees the other
            await asyncio.wait([self._waiter], timeout=seconds)
        return self.woken


def _resolve_in_loop(future: asyncio.Future[None]) -> None:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    try:  # noqa: SIM105 - as above
        future.get_loop().call_soon_threadsafe(resolve)
    except RuntimeError:
        pass  # the loop is closed; the table drops its claims
