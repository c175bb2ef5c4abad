"""The calls of one turn: run side by side, answered in request order, one reply each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from toolsemble.call import ToolCall, ToolReply
from toolsemble.result import ToolResult
from toolsemble.review.question import asked_together
from toolsemble.runner import CallPath, adrive

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Turn:
    """Calls and the replies made so far; an exception that leaves its ``with`` block carries the replies away.

    >>> turn = Turn([ToolCall("a"), ToolCall("b")])
    >>> turn.made()
    []
    """

    def __init__(self, calls: Iterable[ToolCall], observe: Callable[[int, ToolReply], None] | None = None) -> None:
        if isinstance(calls, ToolCall) or not isinstance(calls, Iterable):
            raise TypeError(f"The calls of a turn must be a list of ToolCall objects, not {calls!r:.80}")
        self.calls = list(calls)
        self._observe = observe
        self._replies: dict[int, ToolReply] = {}

    def answer(self, index: int, reply: ToolReply) -> None:
        """Take down the reply to the call at an index."""
        self._replies[index] = reply
        if self._observe is not None:
            self._observe(index, reply)

    def made(self) -> list[ToolReply]:
        """Give the replies that were made, in request order."""
        return [self._replies[index] for index in sorted(self._replies)]

    async def gather(
        self, start: Callable[[ToolCall], CallPath], reply: Callable[[ToolCall, ToolResult], ToolReply]
    ) -> None:
        """Walk the calls' paths side by side; raise what one of them raised only when all have ended."""
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        async def ended(index: int, call: ToolCall) -> BaseException | None:
            # Returned, not raised: an event loop stops at once for some exceptions, and the siblings would be lost.
            try:
                self.answer(index, reply(call, await adrive(start(call))))
            except BaseException as error:  # noqa: BLE001 - raised below
                return error
            return None

        with asked_together():
            create = asyncio.get_running_loop().create_task
            ends = await _all([create(ended(index, call)) for index, call in enumerate(self.calls)])
        raised = [error for error in ends if error is not None]
        if raised:
            first = next((error for error in raised if not isinstance(error, Exception)), raised[0])
            for other in raised:
                if other is not first:
                    first.add_note(f"Another call of the turn raised {type(other).__name__}: {other}")
            raise first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            with suppress(Exception):  # an exception of somebody's own may refuse attributes; it passes all the same
                error.replies = self.made()  # type: ignore[attr-defined]  # any exception can be the one that passes


async def _all(tasks: list[asyncio.Task[T]]) -> list[T]:
    """Give what the tasks give, when all have ended; cancelled, end when they have ended of it."""
    import asyncio  # noqa: PLC0415 - as above

    try:
        # One after the other: gather() would be told of each, which costs as much as the rest of a call in a task.
        for task in tasks:
            if not task.done():
                await asyncio.shield(task)  # the others, too, are to hear of it at once when this is cancelled
        return [task.result() for task in tasks]
    except asyncio.CancelledError:
        while waiting := [task for task in tasks if not task.done()]:
            for task in waiting:
                task.cancel()
            with suppress(asyncio.CancelledError):  # who cancels twice has to wait, too
                await asyncio.wait(waiting)
        raise
