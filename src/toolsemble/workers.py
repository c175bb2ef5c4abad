"""Threads that carry context variables, and a way for sync code to finish async work."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeGuard, TypeVar

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")

Outcome: TypeAlias = "list[Any]"
"""What was returned, and what was raised, if anything was; :func:`received` takes both out."""


def received(outcome: Outcome) -> Any:
    """Give what was returned, or raise what was raised; whoever else still has the outcome has neither then.

    The frames of a traceback refer to what carried its exception. Both would live until the collector comes.

    >>> received([42, None])
    42
    """
    returned, error = outcome
    outcome.clear()
    try:
        if error is not None:
            raise error
    finally:
        del error  # its traceback refers to this frame
    return returned


class ThreadPerJob(Executor):
    """An executor that keeps nothing: each job gets a thread of its own and the submitter's context.

    It never makes a job wait for another, so jobs that wait for jobs cannot block each other. With ``daemon``, a
    program can end although a job has not.

    >>> ThreadPerJob().submit(pow, 2, 10).result()
    1024
    """

    def __init__(self, *, daemon: bool = False) -> None:
        self._daemon = daemon

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start the job at once."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        job = partial(copy_context().run, fn, *args, **kwargs)
        threading.Thread(target=_settle, args=(future, job), name="toolsemble-job", daemon=self._daemon).start()
        return future


def _settle(future: Future[T], job: Callable[[], T]) -> None:
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
        future.set_exception(error)
        del future  # the traceback of the error refers to this frame
    else:
        future.set_result(result)


THREADS = ThreadPerJob()


class ContextThreadPool(ThreadPoolExecutor):
    """A thread pool whose jobs see the submitter's context variables; a fork gets threads of its own.

    >>> with ContextThreadPool(1) as pool:
    ...     pool.submit(pow, 2, 10).result()
    1024
    """

    def __init__(self, max_workers: int) -> None:
        super().__init__(max_workers, "toolsemble")
        self._process = os.getpid()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue the job for the next free thread."""
        if os.getpid() != self._process:
            self.__init__(self._max_workers)  # type: ignore[misc]  # the parent's threads do not exist here
        return super().submit(partial(copy_context().run, fn, *args, **kwargs))


def in_event_loop() -> bool:
    """Whether this thread is running an event loop right now.

    >>> in_event_loop()
    False
    """
    asyncio = sys.modules.get("asyncio")  # where nobody has imported it, no loop can be running
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine; also for objects that are called through ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method is looked at, not tested for
    )


def awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Whether a value has to be awaited.

    >>> awaitable("text")
    False
    """
    # Asked of the class: an object may claim to have any attribute.
    return hasattr(type(value), "__await__")


def unwrapped(error: BaseException) -> BaseException:
    """Give what somebody's own function raised: Python wraps a StopIteration that leaves a coroutine.

    >>> unwrapped(ValueError("no such key"))
    ValueError('no such key')
    """
    inner = error.__cause__
    return inner if isinstance(error, RuntimeError) and isinstance(inner, StopIteration) else error


def finish(work: Awaitable[T]) -> T:
    """Give what an awaitable gives, to code that cannot await.

    Each time in an event loop of its own: a client that belongs to a loop is made inside, not kept on the tool.

    >>> async def answer():
    ...     return 42
    >>> finish(answer())
    42
    """
    # A thread runs one loop at a time; where one is running, it is busy waiting here.
    return THREADS.submit(_run, work).result() if in_event_loop() else _run(work)


def _run(work: Awaitable[T]) -> T:
    import asyncio  # noqa: PLC0415 - programs without async tools never pay for it

    async def awaited() -> Outcome:
        try:
            return [await work, None]
        except Exception as error:  # noqa: BLE001 - raised again when the loop is closed
            return [None, error]

    # With a factory the runner leaves the thread's own event loop setting alone, which asyncio.run would clear.
    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            outcome = runner.run(awaited())
    finally:
        sweep()
    return received(outcome)  # type: ignore[no-any-return]  # what the work gave


_left: dict[asyncio.Task[Any], Callable[[], None]] = {}


def leave_behind(task: asyncio.Task[Any], gone: Callable[[], None]) -> None:
    """Let a task that ignores its cancellation go on, and its event loop end without it; tell when it is gone."""
    import asyncio  # noqa: PLC0415 - as above

    _left[task] = gone
    task.add_done_callback(lambda _: _left.pop(task, gone)())
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 - the documented way to have a loop not wait for a task
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - whoever leaves it tells of it


def sweep() -> None:
    """Forget tasks that were left behind in event loops that are closed: they can never go on."""
    for task in list(_left):
        if task.get_loop().is_closed() and (gone := _left.pop(task, None)) is not None:
            gone()
