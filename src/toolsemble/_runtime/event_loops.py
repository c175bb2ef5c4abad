"""Event loops: run async code from sync code, and detect what is async."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeGuard

from toolsemble._runtime.threads import running_loop

if TYPE_CHECKING:
    import asyncio
from toolsemble._runtime.threads import DAEMONS, GRACE, JobFuture, T, wait_for

Outcome: TypeAlias = "list[Any]"
"""A list of the return value and the exception or None; :func:`unwrap_outcome` empties it."""


def unwrap_outcome(outcome: Outcome) -> Any:
    """Return the value of an outcome or raise its exception, and empty the outcome.

    The exception's traceback refers to frames that refer to the outcome: the cycle would keep both alive.

    >>> unwrap_outcome([42, None])
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


def in_event_loop() -> bool:
    """Return whether this thread is running an event loop.

    >>> in_event_loop()
    False
    """
    return running_loop() is not None


def is_async(function: object) -> bool:
    """Return whether calling it returns a coroutine; also for objects with an async ``__call__``."""
    if isinstance(function, type):
        return False  # calling a class returns an instance
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method is inspected, not tested for
    )


def is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Return whether a value can be awaited.

    >>> is_awaitable("text")
    False
    """
    # Checked on the class: a mock has every attribute.
    return hasattr(type(value), "__await__")


def unwrap_stop_iteration(error: BaseException) -> BaseException:
    """Return a function's original exception: Python wraps a StopIteration that leaves a coroutine.

    >>> unwrap_stop_iteration(ValueError("no such key"))
    ValueError('no such key')
    """
    inner = error.__cause__
    return inner if isinstance(error, RuntimeError) and isinstance(inner, StopIteration) else error


def finish(work: Awaitable[T]) -> T:
    """Run an awaitable to completion from sync code, and return its result.

    It runs in a new event loop each time, so a client that is bound to a loop must be created inside, not stored.
    """
    # A thread can run only one loop at a time, so another thread is needed if one is running here.
    return _finish_in_thread(work) if in_event_loop() else _run(work)


def _finish_in_thread(work: Awaitable[T]) -> T:
    """Run an awaitable in the event loop of a new thread and return its result; an interrupt cancels it."""
    future: JobFuture[T] = JobFuture()
    loop = OwnLoop()
    try:
        DAEMONS.start(future, partial(loop.finish, work))
        wait_for(future, None)
    except BaseException:
        if not future.cancel():
            loop.cancel()
            wait_for(future, GRACE)
        raise
    try:
        return future.result()
    finally:
        del future  # it holds the error, whose traceback refers to this frame


class OwnLoop:
    """An event loop in the calling thread; its task can be cancelled from other threads."""

    __slots__ = ("_cancelled", "_task")

    def __init__(self) -> None:
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None

    def finish(self, work: Awaitable[T]) -> T:
        """Run an awaitable to completion and return its result."""
        return _run(self._track(work))

    def cancel(self) -> None:
        """Cancel the awaitable, now or when it begins."""
        self._cancelled = True
        if self._task is not None:
            try:  # noqa: SIM105 - suppress() has more points at which an interrupt can come
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
            except RuntimeError:
                pass  # the task has ended and its loop is closed

    async def _track(self, work: Awaitable[T]) -> T:
        import asyncio

        self._task = asyncio.current_task()
        if self._cancelled:  # checked after _task is set: either this or cancel() sees the other
            asyncio.ensure_future(work).cancel()
            raise asyncio.CancelledError
        return await work


def _run(work: Awaitable[T]) -> T:
    import asyncio

    outcome: Outcome = []

    # Stored, not returned: the runner gets the signal handler, which formats its task with the return value.
    async def store_outcome() -> None:
        try:
            outcome[:] = [await work, None]
        except Exception as error:  # raised again after the loop is closed
            outcome[:] = [None, error]

    # With a factory the runner does not change the thread's event loop setting, which asyncio.run would clear.
    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(store_outcome())
    finally:
        forget_dead_tasks()
    return unwrap_outcome(outcome)  # type: ignore[no-any-return]  # the result of the awaitable


class SharedLoop:
    """An event loop in a thread that several threads share; started on first use.

    Objects that they await together, such as a semaphore, need one loop. Closing it cancels the remaining tasks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def finish(self, work: Awaitable[T]) -> T:
        """Run an awaitable in the shared loop, wait for it, and return its result."""
        future = self._submit(work)
        # After close, a thread that was abandoned may still come here.
        return finish(work) if future is None else unwrap_outcome(future.result())

    def _submit(self, work: Awaitable[Any]) -> Future[Outcome] | None:
        import asyncio

        with self._lock:
            if self._closed:
                return None
            if self._thread is None:
                self._thread = threading.Thread(target=lambda: _run(self._serve()), name="toolsemble-loop")
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(capture_outcome(work), self._started.result()[0])

    async def _serve(self) -> None:
        import asyncio

        ended = asyncio.Event()
        self._started.set_result((asyncio.get_running_loop(), ended))
        await ended.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._closed = True
        if self._thread is not None:
            loop, ended = self._started.result()
            loop.call_soon_threadsafe(ended.set)
            self._thread.join()


async def capture_outcome(work: Awaitable[Any]) -> Outcome:
    """Await it and return the outcome: some exceptions would stop the event loop if they left a task."""
    try:
        return [await work, None]
    except BaseException as error:
        return [None, error]


_abandoned: dict[asyncio.Task[Any], Callable[[], None]] = {}


def abandon_task(task: asyncio.Task[Any], gone: Callable[[], None]) -> None:
    """Let an event loop end without a task that ignores its cancellation; call ``gone`` when the task has ended."""
    import asyncio

    _abandoned[task] = gone
    task.add_done_callback(lambda _: _abandoned.pop(task, gone)())
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 - the documented way to exclude a task from the loop's shutdown
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - the caller logs it


def forget_dead_tasks() -> None:
    """Forget abandoned tasks whose event loop is closed: they can never continue."""
    for task in list(_abandoned):
        if task.get_loop().is_closed() and (gone := _abandoned.pop(task, None)) is not None:
            gone()
