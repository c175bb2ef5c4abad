"""Run a body until the deadline of its call."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from toolsemble._engine.context import ToolContext, enter
from toolsemble._engine.record import count_and_log
from toolsemble._engine.work import body
from toolsemble._runtime import threads
from toolsemble._runtime.event_loops import OwnLoop, abandon_task, capture_outcome, is_awaitable, unwrap_outcome
from toolsemble._runtime.locks import keep_until_done
from toolsemble._runtime.watchers import tell
from toolsemble.events import CallAbandoned

if TYPE_CHECKING:
    import asyncio

_LOOK = 0.01  # seconds
DAEMON_THREADS = threads.SpareThreads()
"""Runs bodies that may have to be abandoned: they occupy no thread of a pool, and do not keep the program alive."""


class RunUntil(body.RunBody):
    """Run the body of a tool with its input until the deadline."""

    __slots__ = ()

    def do(self) -> Any:
        """Run it in another thread, so that this one can continue at the deadline."""
        body.check_time_left(self._context)
        deadline, grace = self._context.deadline, 2 * threads.GRACE if self._definition.awaits else 0.0
        future: threads.JobFuture[Any] = threads.JobFuture()
        loop = OwnLoop()
        try:
            keep_until_done(future)
            DAEMON_THREADS.start(future, partial(self._run, loop))
            threads.wait_until(future, None if deadline is None else deadline + grace)
            while not future.done() and (left := body.remaining(self._context)):  # the run has waited for a person
                threads.wait_until(future, time.monotonic() + max(left, _LOOK) + grace)
        except BaseException:
            if not future.cancel():  # an interrupt: cancel an async body
                loop.cancel()
                threads.wait_for(future, grace)
            raise
        finally:
            if not future.done():
                self._abandon(future)
        if not future.done():
            raise body.TimedOutError
        try:
            return future.result()
        finally:
            del future  # it has the error, whose traceback refers to this frame

    async def ado(self) -> Any:
        """Await an async body; run a blocking one in a worker."""
        if self._definition.awaits:
            returned = self._body(self._value)
            returned = body.Watched(returned, self._context) if body.is_debugged() else returned
        else:
            returned = await self._in_worker()
        return await await_until_deadline(returned, self._context) if is_awaitable(returned) else returned

    def _run(self, loop: OwnLoop) -> Any:
        enter(self._context)  # the thread runs only this body
        returned = self._body(self._value)
        return loop.finish(await_until_deadline(returned, self._context)) if is_awaitable(returned) else returned

    async def _in_worker(self) -> Any:
        body.check_time_left(self._context)
        executor = body.choose_executor(self._workers)
        # In a shared pool, bodies that never end would leave no thread for others.
        executor = (
            DAEMON_THREADS if isinstance(executor, (threads.ContextThreadPool, threads.ThreadPerJob)) else executor
        )
        future = body.submit_job(self._job(executor), executor)
        return unwrap_outcome(await wait_for_job(future, self._context, partial(self._abandon, future)))

    def _abandon(self, future: Future[Any]) -> None:
        if not future.cancel():
            name = self._definition.name
            line = f"The body of '{name}' is still running in a thread, which cannot be stopped; its locks stay held"
            count_and_log(self._context, "abandoned_threads", line)
            tell(CallAbandoned.of(self._context))


async def wait_for_job(future: Future[Any], context: ToolContext, give_up: Callable[[], object]) -> Any:
    """Return the result of a future before the deadline; otherwise, or if cancelled, call ``give_up``."""
    import asyncio

    waiting, late = asyncio.wrap_future(future), True
    try:
        late = await _is_late(waiting, context)
    finally:
        if late:
            give_up()
            waiting.cancel()
    if late:
        raise body.TimedOutError
    return waiting.result()


async def await_until_deadline(work: Awaitable[Any], context: ToolContext) -> Any:
    """Return the result of an awaitable before the deadline; otherwise cancel it, and abandon it if that fails."""
    import asyncio

    task = asyncio.ensure_future(capture_outcome(work))
    late = True
    try:
        late = await _is_late(task, context)
    finally:
        if late:
            await _stop(task, context)
    if late:
        raise body.TimedOutError
    return unwrap_outcome(task.result())


async def _is_late(work: asyncio.Future[Any], context: ToolContext) -> bool:
    """Wait for work until the deadline, which moves while the run waits for a person; return whether it is not done."""
    import asyncio

    left = body.remaining(context)
    while not (await asyncio.wait([work], timeout=left))[0]:
        left = body.remaining(context)
        if not left:
            return True
        left = max(left, _LOOK)  # while the run waits for a person, its deadline stays ahead of the time
    return False


async def _stop(task: asyncio.Task[Any], context: ToolContext) -> None:
    import asyncio

    task.cancel()
    try:
        await asyncio.wait([task], timeout=threads.GRACE)
    finally:
        if not task.done():
            future: Future[None] = Future()
            keep_until_done(future)
            abandon_task(task, lambda: future.set_result(None))
            line = f"The body of '{context.tool_name}' was cancelled but is still running; its locks stay held"
            count_and_log(context, "abandoned_tasks", line)
            tell(CallAbandoned.of(context))
