"""Works that only wait, and no longer than the call has time."""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Future, wait
from typing import Any

from toolsemble.claim import Claim
from toolsemble.context import ToolContext
from toolsemble.deadline import TimedOutError, remaining
from toolsemble.errors import ToolExecutionError
from toolsemble.limits import TABLE
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


def taken(claim: Claim, context: ToolContext) -> Generator[Any, Any, None]:
    """Walk until a call has what it claims; raise when there is no time left, or when it would wait for ever."""
    if not TABLE.ask(claim):
        yield Take(claim, context)


class Take:
    """Wait for the turn of a claim that was asked for; raise when there is no time left.

    >>> first, second = Claim(["file:a"]), Claim(["file:a"])
    >>> TABLE.ask(first), TABLE.ask(second)
    (True, False)
    >>> TABLE.give_back(first)
    >>> Take(second, ToolContext()).do()
    >>> TABLE.give_back(second)
    """

    __slots__ = ("_claim", "_context")

    def __init__(self, claim: Claim, context: ToolContext) -> None:
        self._claim = claim
        self._context = context

    def do(self) -> None:
        """Wait in this thread; not where an event loop would stand still, whose own tasks may hold what is claimed."""
        served = False
        try:
            if in_event_loop():
                raise StandstillError(
                    "What the call needs is in use, and waiting for it here would hold up the event loop; "
                    "call it with aexecute"
                )
            served = bool(wait([self._turn()], remaining(self._context)).done)
        finally:
            if not served:
                TABLE.withdraw(self._claim)
        if not served:
            raise TimedOutError

    async def ado(self) -> None:
        """Let other tasks run."""
        import asyncio  # noqa: PLC0415 - as above

        waiting, served = asyncio.wrap_future(self._turn()), False
        try:
            served = bool((await asyncio.wait([waiting], timeout=remaining(self._context)))[0])
        finally:
            if not served:
                waiting.cancel()
                TABLE.withdraw(self._claim)
        if not served:
            raise TimedOutError

    def _turn(self) -> Future[None]:
        sweep()  # what it waits for may be held by something that can never end
        assert self._claim.turn is not None  # noqa: S101 - it was not seated when it was asked for
        return self._claim.turn


class StandstillError(ToolExecutionError):
    """A sync call inside an event loop would have to wait for what a task of that loop may hold."""
