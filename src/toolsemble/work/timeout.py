"""A body that runs for no longer than its call has time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from toolsemble.context import ToolContext, enter
from toolsemble.events import CallAbandoned
from toolsemble.locks.holds import kept_for
from toolsemble.observers.watchers import tell
from toolsemble.record import count_and_log
from toolsemble.runtime.concurrency import (
    GRACE,
    ContextThreadPool,
    JobFuture,
    OwnLoop,
    ThreadPerJob,
    abandon_task,
    capture_outcome,
    is_awaitable,
    unwrap_outcome,
    wait_for,
    wait_until,
)
from toolsemble.work.body import RunBody, choose_executor, submit_job
from toolsemble.work.deadline import TimedOutError, check_time_left, remaining

if TYPE_CHECKING:
    import asyncio

DAEMON_THREADS = ThreadPerJob(daemon=True)
"""Where bodies run that may have to be left behind: they take no thread of a pool, and let the program end."""


class RunUntil(RunBody):
    """Run a tool's body with its input, inside its context, until its deadline."""

    __slots__ = ()

    def do(self) -> Any:
        """Run it in another thread, so that this one can go on in time."""
        check_time_left(self._context)
        deadline, grace = self._context.deadline, 2 * GRACE if self._definition.awaits else 0.0
        future: JobFuture[Any] = JobFuture()
        loop = OwnLoop()
        try:
            kept_for(future)
            DAEMON_THREADS.start(future, partial(self._whole, loop))
            wait_until(future, None if deadline is None else deadline + grace)
        except BaseException:
            if not future.cancel():  # an interrupt: nobody wants what an async body does any more
                loop.cancel()
                wait_for(future, grace)
            raise
        finally:
            if not future.done():
                self._abandoned(future)
        if not future.done():
            raise TimedOutError
        try:
            return future.result()
        finally:
            del future  # it has the error, whose traceback refers to this frame

    async def ado(self) -> Any:
        """Await an async body; run a blocking one in a worker."""
        returned = self._body(self._value) if self._definition.awaits else await self._in_worker()
        return await await_until_deadline(returned, self._context) if is_awaitable(returned) else returned

    def _whole(self, loop: OwnLoop) -> Any:
        enter(self._context)  # the thread is this body's own
        returned = self._body(self._value)
        return loop.finish(await_until_deadline(returned, self._context)) if is_awaitable(returned) else returned

    async def _in_worker(self) -> Any:
        check_time_left(self._context)
        executor = choose_executor(self._workers)
        # In a pool that everybody uses, those who never end would leave no thread for the others.
        executor = DAEMON_THREADS if isinstance(executor, (ContextThreadPool, ThreadPerJob)) else executor
        future = submit_job(self._job(executor), executor)
        return unwrap_outcome(await wait_for_job(future, self._context, partial(self._abandoned, future)))

    def _abandoned(self, future: Future[Any]) -> None:
        if not future.cancel():
            name = self._definition.name
            line = f"The body of '{name}' goes on in a thread, which nobody can stop; what it holds stays held"
            count_and_log(self._context, "abandoned_threads", line)
            tell(CallAbandoned.of(self._context))


async def wait_for_job(future: Future[Any], context: ToolContext, give_up: Callable[[], object]) -> Any:
    """Give what a future gives, in time; call a function when nobody waits for it any more."""
    import asyncio  # noqa: PLC0415 - sync programs never pay for it

    waiting, late = asyncio.wrap_future(future), True
    try:
        late = not (await asyncio.wait([waiting], timeout=remaining(context)))[0]
    finally:
        if late:
            give_up()
            waiting.cancel()
    if late:
        raise TimedOutError
    return waiting.result()


async def await_until_deadline(work: Awaitable[Any], context: ToolContext) -> Any:
    """Give what an awaitable gives, in time; one that does not let itself be cancelled is left behind."""
    import asyncio  # noqa: PLC0415 - as above

    task = asyncio.ensure_future(capture_outcome(work))
    late = True
    try:
        late = not (await asyncio.wait([task], timeout=remaining(context)))[0]
    finally:
        if late:
            await _stopped(task, context)
    if late:
        raise TimedOutError
    return unwrap_outcome(task.result())


async def _stopped(task: asyncio.Task[Any], context: ToolContext) -> None:
    import asyncio  # noqa: PLC0415 - as above

    task.cancel()
    try:
        await asyncio.wait([task], timeout=GRACE)
    finally:
        if not task.done():
            future: Future[None] = Future()
            kept_for(future)
            abandon_task(task, lambda: future.set_result(None))
            line = f"The body of '{context.tool_name}' was cancelled, and goes on; what it holds stays held"
            count_and_log(context, "abandoned_tasks", line)
            tell(CallAbandoned.of(context))
