"""Works that only wait, and no longer than the call has time."""

from __future__ import annotations

import time
from concurrent.futures import wait

from toolsemble.context import ToolContext
from toolsemble.deadline import TimedOutError, left
from toolsemble.errors import ToolExecutionError
from toolsemble.limits import TABLE
from toolsemble.table import Claim
from toolsemble.workers import in_event_loop, sweep


class Sleep:
    """Let some seconds pass; whoever yields it has seen to it that the call has them.

    >>> Sleep(0).do()
    """

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def do(self) -> None:
        """Wait in this thread."""
        time.sleep(self._seconds)

    async def ado(self) -> None:
        """Let other tasks run."""
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        await asyncio.sleep(self._seconds)


class Take:
    """Wait until a call has what it claims; raise when there is no time left, or when it would wait for ever.

    >>> from toolsemble.limits import Hold
    >>> hold = Hold(["file:a"])
    >>> Take(hold, ToolContext()).do()
    >>> hold.leave()
    """

    __slots__ = ("_claim", "_context")

    def __init__(self, claim: Claim, context: ToolContext) -> None:
        self._claim = claim
        self._context = context

    def do(self) -> None:
        """Wait in this thread; not where an event loop would stand still, whose own tasks may hold what is claimed."""
        seconds = left(self._context)
        served = self._served()
        try:
            if not served and in_event_loop():
                raise StandstillError(
                    "What the call needs is in use, and waiting for it here would hold up the event loop; "
                    "call it with aexecute"
                )
            served = served or bool(wait([self._claim.turn], seconds).done)
        finally:
            if not served:
                TABLE.withdraw(self._claim)
        if not served:
            raise TimedOutError

    def _served(self) -> bool:
        TABLE.ask(self._claim)
        if not self._claim.turn.done():
            sweep()  # what it waits for may be held by something that can never end
        return self._claim.turn.done()

    async def ado(self) -> None:
        """Let other tasks run."""
        import asyncio  # noqa: PLC0415 - as above

        seconds = left(self._context)
        if self._served():
            return
        turn, served = asyncio.wrap_future(self._claim.turn), False
        try:
            served = bool((await asyncio.wait([turn], timeout=seconds))[0])
        finally:
            if not served:
                turn.cancel()
                TABLE.withdraw(self._claim)
        if not served:
            raise TimedOutError


class StandstillError(ToolExecutionError):
    """A sync call inside an event loop would have to wait for what a task of that loop may hold."""
