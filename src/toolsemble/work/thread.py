"""Works that read and write stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolsemble.runtime.concurrency import THREADS


class RunInThread:
    """Call a function that is at work in a file for a moment; it is waited for to its end, also by who is cancelled.

    >>> RunInThread(lambda: 42).do()
    42
    """

    __slots__ = ("_function", "_in_place")

    def __init__(self, function: Callable[[], Any], *, in_place: bool = False) -> None:
        self._function = function
        self._in_place = in_place  # whether it is so quick that no event loop would notice

    def do(self) -> Any:
        """Call it here."""
        return self._function()

    async def ado(self) -> Any:
        """Call it in a thread, and let other tasks run."""
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        if self._in_place:
            return self._function()
        future, cancelled = asyncio.wrap_future(THREADS.submit(self._function)), None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error  # whoever is told of it must know what the store says
        failure = future.exception()
        try:
            if cancelled is not None:
                raise cancelled
            if failure is not None:
                raise failure
            return future.result()
        finally:
            cancelled = failure = None  # their tracebacks refer to this frame
