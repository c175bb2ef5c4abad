"""Concurrent execution of a turn's calls, with one reply each in request order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from toolsemble._engine.execution.call import ArgumentsReport, CallPath
from toolsemble._engine.execution.path import adrive, drive_in_worker
from toolsemble._runtime.event_loops import SharedLoop
from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble._vocabulary.result import ToolResult

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_NONE = -1  # wakes up the waiting thread without a finished call


class Turn:
    """The calls of a turn and their replies; an exception that leaves the ``with`` block gets them as ``replies``.

    >>> turn = Turn([ToolCall("a"), ToolCall("b")])
    >>> turn.replies()
    []
    """

    def __init__(self, calls: Iterable[ToolCall], observe: Callable[[int, ToolReply], None] | None = None) -> None:
        if type(calls) is not list and (isinstance(calls, ToolCall) or not isinstance(calls, Iterable)):
            raise TypeError(f"The calls of a turn must be a list of ToolCall objects, not {calls!r:.80}")
        self.calls = list(calls)
        self._observe = observe
        self._replies: dict[int, ToolReply] = {}

    def new_report(self) -> ArgumentsReport | None:
        """Return a new arguments report for one call; None if the turn has no observer."""
        return None if self._observe is None else ArgumentsReport()

    def answer(self, index: int, reply: ToolReply) -> None:
        """Store the reply to the call at an index."""
        self._replies[index] = reply
        if self._observe is not None:
            self._observe(index, reply)

    def replies(self) -> list[ToolReply]:
        """Return the replies so far, in request order."""
        return [self._replies[index] for index in sorted(self._replies)]

    async def gather(
        self,
        start: Callable[[ToolCall, ArgumentsReport | None], CallPath],
        reply: Callable[[ToolCall, ToolResult, ArgumentsReport | None], ToolReply],
    ) -> None:
        """Run the calls concurrently on this event loop; after all have ended, raise the exception of any of them."""
        import asyncio

        turn = asyncio.current_task()
        cancelling: Callable[[], int] = int if turn is None else turn.cancelling
        before = cancelling()

        async def run(index: int, call: ToolCall) -> BaseException | None:
            # Returned, not raised: some exceptions stop the event loop immediately, which would lose the other calls.
            try:
                if cancelling() > before:
                    return asyncio.CancelledError()  # the turn was cancelled, but its task has not been notified yet
                report = self.new_report()
                self.answer(index, reply(call, await adrive(start(call, report)), report))
            except BaseException as error:
                if isinstance(error, CallPausedError):
                    error.place = index
                return error
            return None

        from toolsemble.review._ask import batch_requests

        with batch_requests():
            create = asyncio.get_running_loop().create_task
            errors = await _wait_for_all([create(run(index, call)) for index, call in enumerate(self.calls)])
        _raise_first(error for error in errors if error is not None)

    def run_in_threads(
        self,
        start: Callable[[ToolCall, ArgumentsReport | None], CallPath],
        reply: Callable[[ToolCall, ToolResult, ArgumentsReport | None], ToolReply],
    ) -> None:
        """Run calls whose bodies are all blocking, each body in a worker thread; no event loop is needed."""

        def run(index: int, call: ToolCall) -> Generator[None, None, None]:
            result = yield from drive_in_worker(start(call, None), loop, lambda: ended.put(index))
            self.answer(index, reply(call, result, None))

        ended: SimpleQueue[int] = SimpleQueue()
        with SharedLoop() as loop:
            paths = _ParallelPaths([run(index, call) for index, call in enumerate(self.calls)], ended)
            paths.finish()
        _raise_first(paths.raised[index] for index in sorted(paths.raised))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            with suppress(Exception):  # a foreign exception may not allow new attributes
                error.replies = self.replies()  # type: ignore[attr-defined]  # any exception class may come here


class _ParallelPaths:
    """Call paths that run alternately in this thread while their bodies run in worker threads."""

    def __init__(self, paths: Iterable[Generator[None, None, None]], ended: SimpleQueue[int]) -> None:
        # Each has its own context, like a task: they set and reset context variables in any order.
        self._paths = [(copy_context().run, path) for path in paths]
        self._ended = ended
        self._interrupted = False
        self.raised: dict[int, BaseException] = {}

    def finish(self) -> None:
        """Run all paths to completion; throw a KeyboardInterrupt into all of them."""
        try:
            with _handle_interrupt(self._interrupt):
                left = sum(self._advance(index) for index in range(len(self._paths)) if not self._interrupted)
                while left and not self._interrupted:
                    ended = self._ended.get()
                    left -= ended != _NONE and not self._advance(ended)
            if self._interrupted:
                raise KeyboardInterrupt  # noqa: TRY301 - handled like the one raised by a second signal
        except BaseException as interruption:
            for inside, path in self._paths:
                with suppress(BaseException):  # the interruption is raised below
                    inside(path.throw, interruption)
            raise

    def _interrupt(self) -> None:
        self._interrupted = True
        self._ended.put(_NONE)

    def _advance(self, index: int) -> bool:
        """Continue one path; return whether it waits for a worker; False if it has ended."""
        inside, path = self._paths[index]
        try:
            inside(next, path)
        except StopIteration:
            return False
        except BaseException as error:  # raised when all have ended
            self.raised[index] = error
            return False
        return True


@contextmanager
def _handle_interrupt(notify: Callable[[], None]) -> Iterator[None]:
    """Call a function at the first SIGINT instead of raising KeyboardInterrupt; a second one is raised.

    Raised at an arbitrary point, it could leave a worker lock held forever, or be mistaken for a call's error.
    """
    import signal

    def handle(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        notify()

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise_first(errors: Iterable[BaseException]) -> None:
    """Raise one of several calls' exceptions, with the others as notes.

    Exceptions that are not an ``Exception`` take precedence; calls that only wait for approval come last.
    """
    raised = sorted(errors, key=_rank)
    if raised:
        first = raised[0]
        if isinstance(first, CallPausedError):  # then all of them are: they come last
            first.others = [each for other in raised for each in (other, *getattr(other, "others", ()))][1:]
        for other in raised:
            if other is not first:
                first.add_note(f"Another call of the turn raised {type(other).__name__}: {other}")
        raise first


def _rank(error: BaseException) -> int:
    return 2 if isinstance(error, CallPausedError) else int(isinstance(error, Exception))


async def _wait_for_all(tasks: list[asyncio.Task[T]]) -> list[T]:
    """Return all tasks' results; on cancellation, cancel the tasks and wait until they have ended."""
    import asyncio

    try:
        # Sequentially: gather()'s callbacks would add a tenth to the time of a turn of small tasks.
        for task in tasks:
            if not task.done():
                await asyncio.shield(task)  # a cancellation must reach all tasks at the same time
        return [task.result() for task in tasks]
    except asyncio.CancelledError:
        while waiting := [task for task in tasks if not task.done()]:
            for task in waiting:
                task.cancel()
            with suppress(asyncio.CancelledError):  # a second cancellation waits as well
                await asyncio.wait(waiting)
        raise
