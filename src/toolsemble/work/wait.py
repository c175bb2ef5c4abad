"""Works that only wait, and no longer than the call has time."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.errors import ToolExecutionError
from toolsemble.locks.claims import Claim
from toolsemble.locks.holds import TABLE
from toolsemble.runtime.concurrency import forget_dead_tasks, in_event_loop
from toolsemble.runtime.wakeup import Wakeup
from toolsemble.work.deadline import TimedOutError, remaining

_LOOK = 1.0  # after how many seconds it is looked whether an event loop was closed, which nobody tells


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


def acquire(claim: Claim, context: ToolContext) -> Generator[Any, Any, None]:
    """Walk until a call has what it claims; raise when there is no time left, or when it would wait for ever.

    Whoever claims something gives it back in a ``finally``, whatever is raised here.
    """
    if not TABLE.ask(claim):
        yield Acquire(claim, context)


class Acquire:
    """Wait for the turn of a claim that was asked for; raise when there is no time left.

    >>> first, second = Claim(["file:a"]), Claim(["file:a"])
    >>> TABLE.ask(first), TABLE.ask(second)
    (True, False)
    >>> TABLE.give_back(first)
    >>> Acquire(second, ToolContext()).do()
    >>> TABLE.give_back(second)
    """

    __slots__ = ("_claim", "_context")

    def __init__(self, claim: Claim, context: ToolContext) -> None:
        self._claim = claim
        self._context = context

    def do(self) -> None:
        """Wait in this thread; not where an event loop would stand still, whose own tasks may hold what is claimed."""
        if in_event_loop():
            raise WouldBlockLoopError(
                "What the call needs is in use, and waiting for it here would hold up the event loop; "
                "call it with aexecute"
            )
        turn = self._turn()
        while not turn.wait(seconds := self._seconds()):
            self._look(seconds)

    async def ado(self) -> None:
        """Let other tasks run."""
        turn = self._turn()
        while not await turn.wait_async(seconds := self._seconds()):
            self._look(seconds)

    def _seconds(self) -> float | None:
        """Return how long to wait until the next look around."""
        seconds = remaining(self._context)
        if TABLE.has_other_loops(self._claim):
            return _LOOK if seconds is None else min(seconds, _LOOK)
        return seconds

    def _look(self, waited: float | None) -> None:
        """Raise when there is no time left; take out who can never give back what this call waits for."""
        if waited is not None and remaining(self._context) == 0:
            raise TimedOutError
        TABLE.sweep()

    def _turn(self) -> Wakeup:
        forget_dead_tasks()  # what it waits for may be held by something that can never end
        assert self._claim.turn is not None  # noqa: S101 - it was not seated when it was asked for
        return self._claim.turn


class WouldBlockLoopError(ToolExecutionError):
    """A sync call inside an event loop would have to wait for what a task of that loop may hold."""
