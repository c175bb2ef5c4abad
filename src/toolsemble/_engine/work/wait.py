"""Waiting in a call path: sleep, acquire slots and resources before the deadline, or use a store in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.work.body import TimedOutError, remaining
from toolsemble._runtime.event_loops import forget_dead_tasks, in_event_loop
from toolsemble._runtime.locks import TABLE, Claim
from toolsemble._runtime.threads import THREADS, Wakeup
from toolsemble._vocabulary.errors import LimitReachedError


class RunInThread:
    """Call a short function that uses a file; it always completes, even if the caller is cancelled.

    >>> RunInThread(lambda: 42).do()
    42
    """

    __slots__ = ("_function", "_in_place")

    def __init__(self, function: Callable[[], Any], *, in_place: bool = False) -> None:
        self._function = function
        self._in_place = in_place  # whether it is fast enough to run in the event loop

    def do(self) -> Any:
        """Call it here."""
        return self._function()

    async def ado(self) -> Any:
        """Call it in a thread, without blocking the event loop."""
        import asyncio

        if self._in_place:
            return self._function()
        future, cancelled = asyncio.wrap_future(THREADS.submit(self._function)), None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error  # raised below, when the state of the store is known
        failure = future.exception()
        try:
            if cancelled is not None:
                raise cancelled
            if failure is not None:
                raise failure
            return future.result()
        finally:
            cancelled = failure = None  # their tracebacks refer to this frame


_CHECK_INTERVAL = 1.0  # seconds between checks for closed event loops, which send no notification


class Sleep:
    """Sleep for some seconds; the caller has checked the deadline.

    >>> Sleep(0).do()
    """

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def do(self) -> None:
        """Sleep in this thread."""
        time.sleep(self._seconds)

    async def ado(self) -> None:
        """Sleep without blocking the event loop."""
        import asyncio

        await asyncio.sleep(self._seconds)


def acquire(claim: Claim, context: ToolContext) -> Generator[Any, Any, None]:
    """Wait until a call holds its claim; raise at the deadline, or if it would deadlock.

    The caller must release the claim in a ``finally``, even if this raises.
    """
    if not TABLE.acquire(claim):
        yield Acquire(claim, context)


class Acquire:
    """Wait until a claim in the table is granted; raise at the deadline."""

    __slots__ = ("_claim", "_context")

    def __init__(self, claim: Claim, context: ToolContext) -> None:
        self._claim = claim
        self._context = context

    def do(self) -> None:
        """Wait in this thread; raise in a thread with an event loop, whose tasks may hold what is claimed."""
        if in_event_loop():
            raise WouldBlockLoopError(
                "A resource of the call is in use, and waiting for it here would block the event loop; use aexecute"
            )
        turn = self._turn()
        while not turn.wait(seconds := self._seconds()):
            self._check(seconds)

    async def ado(self) -> None:
        """Wait without blocking the event loop."""
        turn = self._turn()
        while not await turn.wait_async(seconds := self._seconds()):
            self._check(seconds)

    def _seconds(self) -> float | None:
        """Return the seconds to wait until the next check."""
        seconds = remaining(self._context)
        if TABLE.has_other_loops(self._claim):
            return _CHECK_INTERVAL if seconds is None else min(seconds, _CHECK_INTERVAL)
        return seconds

    def _check(self, waited: float | None) -> None:
        """Raise if the deadline has passed; remove claims of closed event loops."""
        if waited is not None and remaining(self._context) == 0:
            raise TimedOutError
        TABLE.release_closed_loops()

    def _turn(self) -> Wakeup:
        forget_dead_tasks()  # the holder may be a task that can never end
        assert self._claim.wakeup is not None  # noqa: S101 - the claim was not granted at once
        return self._claim.wakeup


class WouldBlockLoopError(LimitReachedError):
    """A sync call would block the event loop while waiting for a resource that a task of the loop may hold."""
