"""The calls of one turn: run side by side, answered in request order, one reply each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from toolsemble.call import ToolCall, ToolReply
from toolsemble.execution.drivers import adrive, begun
from toolsemble.execution.path import CallPath
from toolsemble.result import ToolResult
from toolsemble.review.question import asked_together
from toolsemble.runtime.concurrency import SharedLoop

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_NONE = -1  # what wakes up a turn in place of a call that has ended


class Turn:
    """Calls and the replies made so far; an exception that leaves its ``with`` block carries the replies away.

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

    def answer(self, index: int, reply: ToolReply) -> None:
        """Take down the reply to the call at an index."""
        self._replies[index] = reply
        if self._observe is not None:
            self._observe(index, reply)

    def replies(self) -> list[ToolReply]:
        """Give the replies that were made, in request order."""
        return [self._replies[index] for index in sorted(self._replies)]

    async def gather(
        self, start: Callable[[ToolCall], CallPath], reply: Callable[[ToolCall, ToolResult], ToolReply]
    ) -> None:
        """Walk the calls' paths side by side; raise what one of them raised only when all have ended."""
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        turn = asyncio.current_task()
        cancelling: Callable[[], int] = int if turn is None else turn.cancelling
        before = cancelling()

        async def ended(index: int, call: ToolCall) -> BaseException | None:
            # Returned, not raised: an event loop stops at once for some exceptions, and the siblings would be lost.
            try:
                if cancelling() > before:
                    return asyncio.CancelledError()  # the turn is, and hears of it only after this has begun
                self.answer(index, reply(call, await adrive(start(call))))
            except BaseException as error:  # noqa: BLE001 - raised below
                return error
            return None

        with asked_together():
            create = asyncio.get_running_loop().create_task
            ends = await _all([create(ended(index, call)) for index, call in enumerate(self.calls)])
        _raise_foremost(error for error in ends if error is not None)

    def run_in_threads(
        self, start: Callable[[ToolCall], CallPath], reply: Callable[[ToolCall, ToolResult], ToolReply]
    ) -> None:
        """Walk the paths of calls whose bodies only block, each of those in a worker; no event loop is needed."""

        def walked(index: int, call: ToolCall) -> Generator[None, None, None]:
            result = yield from begun(start(call), loop, lambda: ended.put(index))
            self.answer(index, reply(call, result))

        ended: SimpleQueue[int] = SimpleQueue()
        with SharedLoop() as loop:
            walks = _Walks([walked(index, call) for index, call in enumerate(self.calls)], ended)
            walks.finish()
        _raise_foremost(walks.raised[index] for index in sorted(walks.raised))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            with suppress(Exception):  # an exception of somebody's own may refuse attributes; it passes all the same
                error.replies = self.replies()  # type: ignore[attr-defined]  # any exception can be the one that passes


class _Walks:
    """Walks that take turns in this thread, and wait together for what runs in workers."""

    def __init__(self, walks: Iterable[Generator[None, None, None]], ended: SimpleQueue[int]) -> None:
        # Each in a context of its own, as a task would be: what they enter, they leave in any order.
        self._walks = [(copy_context().run, walk) for walk in walks]
        self._ended = ended
        self._interrupted = False
        self.raised: dict[int, BaseException] = {}

    def finish(self) -> None:
        """Walk until all have come to an end; an interruption ends them all."""
        try:
            with _interrupting(self._interrupt):
                left = sum(self._waits(index) for index in range(len(self._walks)) if not self._interrupted)
                while left and not self._interrupted:
                    ended = self._ended.get()
                    left -= ended != _NONE and not self._waits(ended)
            if self._interrupted:
                raise KeyboardInterrupt  # noqa: TRY301 - as the one that comes from a second signal
        except BaseException as interruption:
            for inside, walk in self._walks:
                with suppress(BaseException):  # it is raised here
                    inside(walk.throw, interruption)
            raise

    def _interrupt(self) -> None:
        self._interrupted = True
        self._ended.put(_NONE)

    def _waits(self, index: int) -> bool:
        """Walk on with one of them; whether it has something to wait for."""
        inside, walk = self._walks[index]
        try:
            inside(next, walk)
        except StopIteration:
            return False
        except BaseException as error:  # noqa: BLE001 - raised when all have ended
            self.raised[index] = error
            return False
        return True


@contextmanager
def _interrupting(tell: Callable[[], None]) -> Iterator[None]:
    """Have an interrupt from the keyboard told in place of raised; a second one is raised.

    Raised in the middle of anything, it could leave a lock of the workers held for ever, or pass for a call's own.
    """
    import signal  # noqa: PLC0415 - only turns of blocking calls pay for it

    def told(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        tell()

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, told)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is told:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise_foremost(errors: Iterable[BaseException]) -> None:
    """Raise what says most of what several calls raised, with a note of the others."""
    raised = list(errors)
    if raised:
        first = next((error for error in raised if not isinstance(error, Exception)), raised[0])
        for other in raised:
            if other is not first:
                first.add_note(f"Another call of the turn raised {type(other).__name__}: {other}")
        raise first


async def _all(tasks: list[asyncio.Task[T]]) -> list[T]:
    """Give what the tasks give, when all have ended; cancelled, end when they have ended of it."""
    import asyncio  # noqa: PLC0415 - as above

    try:
        # One after the other: gather() would be told of each end, a tenth of what a turn of bare tasks takes.
        for task in tasks:
            if not task.done():
                await asyncio.shield(task)  # the others, too, are to hear of it at once when this is cancelled
        return [task.result() for task in tasks]
    except asyncio.CancelledError:
        while waiting := [task for task in tasks if not task.done()]:
            for task in waiting:
                task.cancel()
            with suppress(asyncio.CancelledError):  # who cancels twice has to wait, too
                await asyncio.wait(waiting)
        raise
