"""Threads that carry context variables, and a way for sync code to finish async work."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeAlias, TypeGuard, TypeVar

from toolsemble.runtime.wakeup import Wakeup, running_loop

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")

Outcome: TypeAlias = "list[Any]"
"""What was returned, and what was raised, if anything was; :func:`unwrap_outcome` takes both out."""


def unwrap_outcome(outcome: Outcome) -> Any:
    """Give what was returned, or raise what was raised; whoever else still has the outcome has neither then.

    The frames of a traceback refer to what carried its exception. Both would live until the collector comes.

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


class _Condition(threading.Condition):
    """A condition whose ``with`` calls the lock itself: an interrupt cannot come between the two."""

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


class JobFuture(Future[T]):
    """What comes of a job; an interrupt of whoever waits for it leaves nothing locked that the job needs.

    >>> future = JobFuture()
    >>> future.set_result(42)
    >>> wait_for(future, None), future.result()
    (True, 42)
    """

    def __init__(self) -> None:
        super().__init__()
        self._condition = _Condition()


def wait_for(future: Future[Any], seconds: float | None) -> bool:
    """Wait in this thread until a future is done, for some seconds or without limit; return whether it is.

    >>> wait_for(THREADS.submit(pow, 2, 10), None)
    True
    """
    return wait_until(future, None if seconds is None else time.monotonic() + seconds)


def wait_until(future: Future[Any], ends: float | None) -> bool:
    """Wait in this thread until a future is done, or until a time of ``time.monotonic``; return whether it is done.

    >>> wait_until(Future(), 0.0)
    False
    """
    wakeup = Wakeup()
    future.add_done_callback(lambda _: wakeup.wake())
    if ends is None:
        return wakeup.wait(None)
    while not wakeup.wait(min(max(ends - time.monotonic(), 0.0), threading.TIMEOUT_MAX)):
        if time.monotonic() >= ends:  # a wait may end a little early, and others look at the clock
            return False
    return True


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
        future: JobFuture[T] = JobFuture()
        future.set_running_or_notify_cancel()
        self.start(future, partial(fn, *args, **kwargs))
        return future

    def start(self, future: Future[T], job: Callable[[], T]) -> None:
        """Start a job for a future that is there already; until the thread gets to it, it can be cancelled."""
        job = partial(copy_context().run, job)
        start_thread(partial(_settle, future, job), "toolsemble-job", daemon=self._daemon)


def start_thread(target: Callable[[], object], name: str, *, daemon: bool) -> None:
    """Start a thread; an interrupt meanwhile is raised as what it is, and the thread is not left hanging."""
    thread = threading.Thread(target=target, name=name, daemon=daemon)
    with suppress(AttributeError):  # where the standard library does it in another way one day
        # Whoever starts it waits there for a sign, which the thread could never give when an interrupt left it locked.
        thread._started._cond = _Condition(threading.Lock())  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    try:
        thread.start()
    except RuntimeError as error:
        # In the middle of waiting for the thread, an interrupt has the standard library free a lock that is free.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


def _settle(future: Future[T], job: Callable[[], T]) -> None:
    if not future.running() and not future.set_running_or_notify_cancel():
        return
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
        future.set_exception(error)
        del future  # the traceback of the error refers to this frame
    else:
        future.set_result(result)


THREADS = ThreadPerJob()
_DAEMONS = ThreadPerJob(daemon=True)

GRACE = 0.5
"""How many seconds an async body has to end when it is cancelled."""


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
    return running_loop() is not None


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine; also for objects that are called through ``__call__``.

    >>> class Greeter:
    ...     async def __call__(self):
    ...         return "hello"
    >>> is_async(Greeter()), is_async(Greeter)
    (True, False)
    """
    if isinstance(function, type):
        return False  # called, it gives an object, whatever those can do
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method is looked at, not tested for
    )


def is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Whether a value has to be awaited.

    >>> is_awaitable("text")
    False
    """
    # Asked of the class: an object may claim to have any attribute.
    return hasattr(type(value), "__await__")


def unwrap_stop_iteration(error: BaseException) -> BaseException:
    """Give what somebody's own function raised: Python wraps a StopIteration that leaves a coroutine.

    >>> unwrap_stop_iteration(ValueError("no such key"))
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
    return _finish_elsewhere(work) if in_event_loop() else _run(work)


def _finish_elsewhere(work: Awaitable[T]) -> T:
    """Give what an awaitable gives in the event loop of another thread; interrupted, leave nothing running there."""
    future: JobFuture[T] = JobFuture()
    loop = OwnLoop()
    try:
        _DAEMONS.start(future, partial(loop.finish, work))
        wait_for(future, None)
    except BaseException:
        if not future.cancel():
            loop.cancel()
            wait_for(future, GRACE)
        raise
    try:
        return future.result()
    finally:
        del future  # it has the error, whose traceback refers to this frame


class OwnLoop:
    """An event loop of the thread that waits in it; what it awaits can be cancelled from other threads.

    >>> async def answer():
    ...     return 42
    >>> OwnLoop().finish(answer())
    42
    """

    __slots__ = ("_cancelled", "_task")

    def __init__(self) -> None:
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None

    def finish(self, work: Awaitable[T]) -> T:
        """Give what an awaitable gives."""
        return _run(self._noted(work))

    def cancel(self) -> None:
        """Cancel what is awaited, or is about to be."""
        self._cancelled = True
        if self._task is not None:
            try:  # noqa: SIM105 - as everywhere
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
            except RuntimeError:
                pass  # it has ended, and its loop is closed

    async def _noted(self, work: Awaitable[T]) -> T:
        import asyncio  # noqa: PLC0415 - programs without async tools never pay for it

        self._task = asyncio.current_task()
        if self._cancelled:  # looked at after the task can be seen: one of the two sees the other
            asyncio.ensure_future(work).cancel()
            raise asyncio.CancelledError
        return await work


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
        forget_dead_tasks()
    return unwrap_outcome(outcome)  # type: ignore[no-any-return]  # what the work gave


class SharedLoop:
    """One event loop for what several threads give to be awaited; it is started when the first has something.

    What they await together, such as a semaphore, belongs to one loop. Closed, it cancels what is left.

    >>> async def answer():
    ...     return 42
    >>> with SharedLoop() as loop:
    ...     loop.finish(answer())
    42
    >>> loop.finish(answer())  # by now in a loop of its own
    42
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def finish(self, work: Awaitable[T]) -> T:
        """Give what an awaitable gives, to a thread that waits for it."""
        future = self._submitted(work)
        # Whoever closes it has gone, and this thread has not heard of it.
        return finish(work) if future is None else unwrap_outcome(future.result())

    def _submitted(self, work: Awaitable[Any]) -> Future[Outcome] | None:
        import asyncio  # noqa: PLC0415 - as above

        with self._lock:
            if self._closed:
                return None
            if self._thread is None:
                self._thread = threading.Thread(target=lambda: _run(self._serve()), name="toolsemble-loop")
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(capture_outcome(work), self._started.result()[0])

    async def _serve(self) -> None:
        import asyncio  # noqa: PLC0415 - as above

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
    """Give what was returned and what was raised: an event loop stops at once when some exceptions leave a task."""
    try:
        return [await work, None]
    except BaseException as error:  # noqa: BLE001 - raised again by whoever asked
        return [None, error]


_left: dict[asyncio.Task[Any], Callable[[], None]] = {}


def abandon_task(task: asyncio.Task[Any], gone: Callable[[], None]) -> None:
    """Let a task that ignores its cancellation go on, and its event loop end without it; tell when it is gone."""
    import asyncio  # noqa: PLC0415 - as above

    _left[task] = gone
    task.add_done_callback(lambda _: _left.pop(task, gone)())
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 - the documented way to have a loop not wait for a task
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - whoever leaves it tells of it


def forget_dead_tasks() -> None:
    """Forget tasks that were left behind in event loops that are closed: they can never go on."""
    for task in list(_left):
        if task.get_loop().is_closed() and (gone := _left.pop(task, None)) is not None:
            gone()
