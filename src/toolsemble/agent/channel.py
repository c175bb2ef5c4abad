"""Events on their way from a run to whoever follows it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Channel(Generic[T]):
    """Hands the events of a run over; the run waits at its turns until the next event is wanted."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: deque[Any] = deque()
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()

    def tell(self, event: object) -> None:
        """Take an event, in any thread."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._take(event)
        else:
            with suppress(RuntimeError):  # the loop is closed: nobody follows any more
                self._loop.call_soon_threadsafe(self._take, event)

    async def told(self) -> None:
        """Wait until every event was taken and the next one is wanted."""
        await self._wanted.wait()

    async def follow(self, work: Awaitable[T]) -> AsyncGenerator[Any, None]:
        """Give the events as they come, then what the work gives, or raise what it raises.

        Who stops listening stops the work.
        """
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._arrived.set())
        try:
            while True:
                while self._events:
                    yield self._events.popleft()
                if task.done():
                    break
                self._arrived.clear()
                self._wanted.set()
                await self._arrived.wait()
            yield await task
        except asyncio.CancelledError as error:
            await _ended(task)
            error.partial = getattr(_raised(task), "partial", None)  # type: ignore[attr-defined]  # as other errors
            raise
        finally:
            await _ended(task)

    def _take(self, event: object) -> None:
        self._events.append(event)
        self._wanted.clear()
        self._arrived.set()


async def _ended(task: asyncio.Future[Any]) -> None:
    """Cancel what is still at work, and wait for its end."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    _raised(task)  # asked for, so that asyncio does not complain that nobody did


def _raised(task: asyncio.Future[Any]) -> BaseException | None:
    try:
        return task.exception()
    except asyncio.CancelledError as error:
        return error
