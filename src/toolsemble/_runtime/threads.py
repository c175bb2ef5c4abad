"""Interrupt-safe thread primitives: one-time signals, locks, futures, and executors."""

from __future__ import annotations

import os
import sys
import threading
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from operator import attrgetter
from threading import main_thread
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    import asyncio


_ROUND = 1.0  # seconds after which the main thread checks for signals


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that this thread is running, or None.

    >>> running_loop() is None
    True
    """
    asyncio = sys.modules.get("asyncio")  # if asyncio is not imported, no loop can be running
    return None if asyncio is None else asyncio._get_running_loop()  # noqa: SLF001 - the public function raises, which costs ten times as much


class Wakeup:
    """A signal for one waiter: a thread, or a task of an event loop.

    Futures and conditions of the standard library release their locks in Python functions: an interrupt there leaves
    a lock held, and setting the result blocks. Here each step is one call into C, or can be repeated.
    """

    __slots__ = ("_lock", "_waiter", "woken")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()
        self._waiter: asyncio.Future[None] | None = None
        self.woken = False
        """Whether the waiter was woken."""

    def wake(self) -> None:
        """Wake the waiter; can be called more than once."""
        self.woken = True
        try:  # noqa: SIM105 - suppress() has more points at which an interrupt can come
            self._lock.release()
        except RuntimeError:
            pass  # it is already awake
        if self._waiter is not None:
            _resolve_in_loop(self._waiter)

    def wait(self, seconds: float | None) -> bool:
        """Wait in this thread, up to a timeout; return whether it was woken."""
        # A signal that another thread receives, or that comes just before this one blocks, does not wake it.
        while (seconds is None or seconds > _ROUND) and get_ident() == main_thread().ident:
            if self.woken or self._lock.acquire(timeout=_ROUND):
                return True
            seconds = None if seconds is None else seconds - _ROUND
        return self.woken or self._lock.acquire(timeout=-1 if seconds is None else seconds) or self.woken

    async def wait_async(self, seconds: float | None) -> bool:
        """Wait in this task, up to a timeout; return whether it was woken."""
        import asyncio

        self._waiter = asyncio.get_running_loop().create_future()
        if not self.woken:  # checked after _waiter is set: either this or wake() sees the other
            await asyncio.wait([self._waiter], timeout=seconds)
        return self.woken


def _resolve_in_loop(future: asyncio.Future[None]) -> None:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    try:  # noqa: SIM105 - as above
        future.get_loop().call_soon_threadsafe(resolve)
    except RuntimeError:
        pass  # the loop is closed; the lock table drops its claims


_owners: WeakValueDictionary[int, Any] = WeakValueDictionary()


def fork_safe_lock(owner: object) -> threading.RLock:
    """Return a lock that an object must store as its attribute ``_lock``; a forked process replaces it.

    The thread that holds it during a fork does not exist in the child and would never release it there. The lock is
    reentrant: the garbage collector may close a dropped call while the lock is held.

    >>> class Counter:
    ...     def __init__(self):
    ...         self._lock = fork_safe_lock(self)
    """
    _owners[id(owner)] = owner
    return threading.RLock()


def renew_locks() -> None:
    """Replace the lock of every owner, as in a forked process.

    >>> renew_locks()
    """
    for owner in list(_owners.values()):
        owner._lock = threading.RLock()  # noqa: SLF001 - fork_safe_lock() documents this attribute


getattr(os, "register_at_fork", lambda **_: None)(after_in_child=renew_locks)


P = ParamSpec("P")
T = TypeVar("T")


class _Condition(threading.Condition):
    """A condition whose ``with`` uses the lock directly, so that an interrupt cannot come in between."""

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


class JobFuture(Future[T]):
    """The future of a job; an interrupt of the waiting thread does not leave a lock held that the job needs."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = _Condition()


def wait_for(future: Future[Any], seconds: float | None) -> bool:
    """Wait in this thread until a future is done, up to a timeout; return whether it is done.

    >>> wait_for(THREADS.submit(pow, 2, 10), None)
    True
    """
    return wait_until(future, None if seconds is None else time.monotonic() + seconds)


def wait_until(future: Future[Any], ends: float | None) -> bool:
    """Wait in this thread until a future is done, or until a ``time.monotonic`` time; return whether it is done.

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
    """Daemon threads as in :class:`ThreadPerJob`, but an idle thread waits a while for the next job.

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
        """Pass a job to an idle thread, or to a new one."""
        if os.getpid() != self._process:
            self._idle, self._process = [], os.getpid()  # the parent's threads do not exist here
        settle = partial(_settle, future, partial(copy_context().run, job))
        try:
            thread = self._idle.pop()
        except IndexError:
            # The job is not an argument, which a thread keeps until it ends: it refers to the future's result.
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
    """A thread with its first job; afterwards it waits for more."""

    __slots__ = ("job", "ready")

    def __init__(self, job: Callable[[], object]) -> None:
        self.ready = threading.Lock()
        self.job: Callable[[], object] | None = job

    def wait(self, seconds: float, idle: list[_SpareThread]) -> Callable[[], object] | None:
        """Wait for the next job, and return it; None after the timeout."""
        if not self.ready.acquire(timeout=seconds):
            try:
                idle.remove(self)
            except ValueError:  # a job is about to come, unless an interrupt prevented it
                self.ready.acquire(timeout=seconds)
        job, self.job = self.job, None
        return job


def start_thread(target: Callable[[], object], name: str, *, daemon: bool) -> None:
    """Start a thread; an interrupt during the start raises KeyboardInterrupt, and does not block the thread."""
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
DAEMONS = ThreadPerJob(daemon=True)

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
