"""Run several call paths in parallel, as one piece of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from toolsemble._engine.execution.call import CallPath
from toolsemble._engine.execution.drivers import adrive, drive
from toolsemble._runtime.concurrency import finish
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.review._question import batch_requests

if TYPE_CHECKING:
    import asyncio


class RunParallel:
    """Work that runs call paths in parallel, at most ``limit`` at once, and returns their results in order.

    The result of a path that did not finish, because another one failed under ``fail_fast``, is None.
    """

    __slots__ = ("_fail_fast", "_limit", "_starts")

    def __init__(self, starts: Sequence[Callable[[], CallPath]], limit: int, *, fail_fast: bool) -> None:
        self._starts = starts
        self._limit = limit
        self._fail_fast = fail_fast

    def do(self) -> list[ToolResult | None]:
        """Run the paths in a new event loop, with blocking bodies in worker threads; run a single path directly."""
        if len(self._starts) == 1:
            return [drive(self._starts[0]())]
        return finish(self.ado()) if self._starts else []

    async def ado(self) -> list[ToolResult | None]:
        """Run the paths in this event loop; no task is left running."""
        import asyncio

        workers = _Workers(self._starts, fail_fast=self._fail_fast)
        with batch_requests():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._limit, len(self._starts))):
                    workers.tasks.append(group.create_task(workers.run()))
        if workers.raised is not None:
            try:
                raise workers.raised
            finally:
                workers.raised = None  # its traceback refers to this frame
        return workers.results


class _Workers:
    """Tasks that each run one path after another until none is left."""

    def __init__(self, starts: Sequence[Callable[[], CallPath]], *, fail_fast: bool) -> None:
        self.results: list[ToolResult | None] = [None] * len(starts)
        self.raised: BaseException | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self._waiting: Iterator[tuple[int, Callable[[], CallPath]]] = enumerate(starts)
        self._fail_fast = fail_fast
        self._stopped = False

    async def run(self) -> None:
        """Run paths until none is left, or one of them stops all."""
        for index, start in self._waiting:
            if not self._stopped:  # a task whose tool suppressed its cancellation comes here, too
                await self._run_path(index, start)

    async def _run_path(self, index: int, start: Callable[[], CallPath]) -> None:
        import asyncio

        task = asyncio.current_task()
        try:
            result = await adrive(start())
            self.results[index] = result
        except BaseException as error:
            # Stored, not raised: an event loop stops at once for some exceptions, and the other tasks would be lost.
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self.raised = self.raised or error
            if not isinstance(error, CallPausedError):  # the run continues later: what has begun may end
                self._stop(task)
        else:
            if self._fail_fast and not result.is_success:
                self._stop(task)

    def _stop(self, own: asyncio.Task[None] | None) -> None:
        self._stopped = True
        for task in self.tasks:
            if task is not own:
                task.cancel()
