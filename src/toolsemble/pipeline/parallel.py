"""Several paths walked side by side, as one piece of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from toolsemble.execution.path import CallPath, adrive, drive
from toolsemble.result import ToolResult
from toolsemble.review.question import batch_requests
from toolsemble.runtime.concurrency import finish

if TYPE_CHECKING:
    import asyncio


class SideBySide:
    """Walk some paths at the same time, so many at once; give their results in order.

    A path that was not walked to its end, because another one failed and that stops all, gives None.
    """

    __slots__ = ("_fail_fast", "_limit", "_starts")

    def __init__(self, starts: Sequence[Callable[[], CallPath]], limit: int, *, fail_fast: bool) -> None:
        self._starts = starts
        self._limit = limit
        self._fail_fast = fail_fast

    def do(self) -> list[ToolResult | None]:
        """Walk them in an event loop of their own, with blocking bodies in workers; a single path needs neither."""
        if len(self._starts) == 1:
            return [drive(self._starts[0]())]
        return finish(self.ado()) if self._starts else []

    async def ado(self) -> list[ToolResult | None]:
        """Walk them in this event loop; none of their tasks is left behind, whatever happens."""
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        walkers = _Walkers(self._starts, fail_fast=self._fail_fast)
        with batch_requests():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._limit, len(self._starts))):
                    walkers.tasks.append(group.create_task(walkers.walk()))
        if walkers.raised is not None:
            try:
                raise walkers.raised
            finally:
                walkers.raised = None  # its traceback refers to this frame
        return walkers.results


class _Walkers:
    """Tasks that take one path after the other until there is none left."""

    def __init__(self, starts: Sequence[Callable[[], CallPath]], *, fail_fast: bool) -> None:
        self.results: list[ToolResult | None] = [None] * len(starts)
        self.raised: BaseException | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self._waiting: Iterator[tuple[int, Callable[[], CallPath]]] = enumerate(starts)
        self._fail_fast = fail_fast
        self._stopped = False

    async def walk(self) -> None:
        """Walk paths until there is none left, or one of them stops all."""
        for index, start in self._waiting:
            if not self._stopped:  # also asked by a task whose tool swallowed its cancellation
                await self._walk(index, start)

    async def _walk(self, index: int, start: Callable[[], CallPath]) -> None:
        import asyncio  # noqa: PLC0415 - as above

        task = asyncio.current_task()
        try:
            result = self.results[index] = await adrive(start())
        except BaseException as error:
            # Kept, not raised: an event loop stops at once for some exceptions, and the tasks would be lost.
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self.raised = self.raised or error
            self._stop(task)
        else:
            if self._fail_fast and not result.is_success:
                self._stop(task)

    def _stop(self, own: asyncio.Task[None] | None) -> None:
        self._stopped = True
        for task in self.tasks:
            if task is not own:
                task.cancel()
