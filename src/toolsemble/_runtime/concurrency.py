"""Executors that pass on context variables, and functions to run async code from sync code."""

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

from toolsemble._runtime.wakeup import Wakeup, running_loop

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")

Outcome: TypeAlias = "list[Any]"
"""A list of the return value and the exception or None; :func:`unwrap_outcome` empties it."""


def unwrap_outcome(outcome: Outcome) -> Any:
    """Return the value of an outcome or raise its exception, and empty the outcome.

    The traceback of the exception refers to frames that refer to the outcome: the cycle would keep both alive.

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
    """A condition whose ``with`` uses the lock directly, so that an interrupt cannot come between the two."""

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


class JobFuture(Future[T]):
    """The future of a job; an interrupt of the thread that waits for it leaves no lock held that the job needs.

    >>> future = JobFuture()
    >>> future.set_result(42)
    >>> wait_for(future, None), future.result()
    (True, 42)
    """

    def __init__(self) -> None:
        super().__init__()
        self._condition = _Condition()


def wait_for(future: Future[Any], seconds: float | None) -> bool:
    """Wait in this thread until a future is done, at most some seconds; return whether it is done.

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
        if time.monotonic() >= ends:  # a wait may end slightly early, but callers check the clock
            return False
    return True


class ThreadPerJob(Executor):
    """An executor that starts a new thread for each job, with the submitter's context variables.

    Jobs never queue, so jobs that wait for other jobs cannot deadlock. With ``daemon``, the program can end before a
    job has.

    >>> ThreadPerJob().submit(pow, 2, 10).result()
    1024
    """

    def __init__(self, *, daemon: bool = False) -> None:
        self._daemon = daemon

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start the job immediately."""
        future: JobFuture[T] = JobFuture()
        future.set_running_or_notify_cancel()
        self.start(future, partial(fn, *args, **kwargs))
        return future

    def start(self, future: Future[T], job: Callable[[], T]) -> None:
        """Start a job for an existing future, which can be cancelled until the thread begins."""
        job = partial(copy_context().run, job)
        start_thread(partial(_settle, future, job), "toolsemble-job", daemon=self._daemon)


class SpareThreads(ThreadPerJob):
    """As daemon threads of :class:`ThreadPerJob`, but a thread whose job has ended waits for another one for a while.

    Starting a thread takes several times as long as waking one. A job never waits for a thread, however many there are.

    >>> SpareThreads().submit(pow, 2, 10).result()
    1024
    """

    def __init__(self, most: int = 8, seconds: float = 5.0) -> None:
        super().__init__(daemon=True)
        self._most = most
        self._seconds = seconds
        self._process = os.getpid()
        self._idle: list[_SpareThread] = []

    def start(self, future: Future[T], job: Callable[[], T]) -> None:
        """Hand a job to an idle thread, or to a new one."""
        if os.getpid() != self._process:
            self._idle, self._process = [], os.getpid()  # the parent's threads do not exist here
        settle = partial(_settle, future, partial(copy_context().run, job))
        try:
            thread = self._idle.pop()
        except IndexError:
            # The job is not an argument, which a thread keeps as long as it lives: it refers to the future's result.
            start_thread(partial(self._serve, _SpareThread(settle)), "toolsemble-job", daemon=True)
        else:
            thread.job = settle  # if an interrupt comes before this, the thread ends after a while
            thread.ready.release()

    def _serve(self, thread: _SpareThread) -> None:
        idle = self._idle
        while (job := thread.wait(self._seconds, idle)) is not None:
            job()
            job = None  # it refers to the future, and so to the result
            if len(idle) >= self._most:
                return
            idle.append(thread)


class _SpareThread:
    """A thread that has its first job; then it waits for others."""

    __slots__ = ("job", "ready")

    def __init__(self, job: Callable[[], object]) -> None:
        self.ready = threading.Lock()
        self.job: Callable[[], object] | None = job

    def wait(self, seconds: float, idle: list[_SpareThread]) -> Callable[[], object] | None:
        """Wait for the next job, and return it; or None if there was none for some seconds."""
        if not self.ready.acquire(timeout=seconds):
            try:
                idle.remove(self)
            except ValueError:  # a job is about to come, unless an interrupt prevented it
                self.ready.acquire(timeout=seconds)
        job, self.job = self.job, None
        return job


def start_thread(target: Callable[[], object], name: str, *, daemon: bool) -> None:
    """Start a thread; an interrupt meanwhile is raised as KeyboardInterrupt, and does not block the thread."""
    thread = threading.Thread(target=target, name=name, daemon=daemon)
    with suppress(AttributeError):  # in case the standard library changes
        # The starting thread waits for an event; an interrupt could leave its lock held, and block the new thread.
        thread._started._cond = _Condition(threading.Lock())  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    try:
        thread.start()
    except RuntimeError as error:
        # An interrupt during the wait makes the standard library release a lock that is not held.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


def _settle(future: Future[T], job: Callable[[], T]) -> None:
    if not future.running() and not future.set_running_or_notify_cancel():
        return
    try:
        result = job()
    except BaseException as error:  # raised by the future
        future.set_exception(error)
        del future  # the traceback of the error refers to this frame
    else:
        future.set_result(result)


THREADS = ThreadPerJob()
_DAEMONS = ThreadPerJob(daemon=True)

GRACE = 0.5
"""Seconds that an async body has to end after it is cancelled."""


class ContextThreadPool(ThreadPoolExecutor):
    """A thread pool whose jobs see the submitter's context variables; a forked process gets new threads.

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
    """Return whether this thread is running an event loop.

    >>> in_event_loop()
    False
    """
    return running_loop() is not None


def is_async(function: object) -> bool:
    """Return whether calling it returns a coroutine; also for objects with an async ``__call__``.

    >>> class Greeter:
    ...     async def __call__(self):
    ...         return "hello"
    >>> is_async(Greeter()), is_async(Greeter)
    (True, False)
    """
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
    # Checked on the class: a mock may claim to have any attribute.
    return hasattr(type(value), "__await__")


def unwrap_stop_iteration(error: BaseException) -> BaseException:
    """Return the original exception of a function: Python wraps a StopIteration that leaves a coroutine.

    >>> unwrap_stop_iteration(ValueError("no such key"))
    ValueError('no such key')
    """
    inner = error.__cause__
    return inner if isinstance(error, RuntimeError) and isinstance(inner, StopIteration) else error


def finish(work: Awaitable[T]) -> T:
    """Run an awaitable to its end from sync code, and return its result.

    It runs in a new event loop each time, so a client that is bound to a loop must be created inside, not stored.

    >>> async def answer():
    ...     return 42
    >>> finish(answer())
    42
    """
    # A thread can run only one loop at a time, so another thread is needed if one is running here.
    return _finish_in_thread(work) if in_event_loop() else _run(work)


def _finish_in_thread(work: Awaitable[T]) -> T:
    """Run an awaitable in the event loop of a new thread and return its result; an interrupt cancels it."""
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
        del future  # it holds the error, whose traceback refers to this frame


class OwnLoop:
    """An event loop in the calling thread; its task can be cancelled from other threads.

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
        """Run an awaitable to its end and return its result."""
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

    # Stored, not returned: the runner asks for the signal handler, which formats its task with all that it returned.
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

    >>> async def answer():
    ...     return 42
    >>> with SharedLoop() as loop:
    ...     loop.finish(answer())
    42
    >>> loop.finish(answer())  # closed, so in a new loop
    42
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
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 - the documented way to exclude a task from the end of its loop
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - the caller logs it


def forget_dead_tasks() -> None:
    """Forget abandoned tasks whose event loop is closed: they can never continue."""
    for task in list(_abandoned):
        if task.get_loop().is_closed() and (gone := _abandoned.pop(task, None)) is not None:
            gone()
