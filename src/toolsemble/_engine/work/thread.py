"""Run a function that reads or writes a store without blocking the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolsemble._runtime.concurrency import THREADS


class RunInThread:
    """Call a short function that uses a file; it always runs to its end, even if the caller is cancelled.

    >>> RunInThread(lambda: 42).do()
    42
    """

    __slots__ = ("_function", "_in_place")

    def __init__(self, function: Callable[[], Any], *, in_place: bool = False) -> None:
        self._function = function
        self._in_place = in_place  # whether it is quick enough to run in the event loop

    def do(self) -> Any:
        """Call it here."""
        return self._function()

    async def ado(self) -> Any:
        """Call it in a thread, without blocking the event loop."""
        import asyncio

        if self._in_place:
            return self._function()
        future, cancelled = asyncio.wrap_future(THREADS.submit(self._function)), None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error  # raised below, when the state of the store is known
        failure = future.exception()
        try:
            if cancelled is not None:
                raise cancelled
            if failure is not None:
                raise failure
            return future.result()
        finally:
            cancelled = failure = None  # their tracebacks refer to this frame
