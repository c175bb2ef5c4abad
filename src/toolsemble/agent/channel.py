"""Events on their way from a run to whoever follows it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from typing import Any


class Channel:
    """Hands the events of a run over; the run waits at its turns until the next event is wanted."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: deque[Any] = deque()
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()
        self._raised: BaseException | None = None

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

    async def follow(self, work: Awaitable[Any]) -> AsyncGenerator[Any, None]:
        """Give the events as they come, the last of which the work gives, or raise what it raises.

        Who stops listening stops the work.
        """
        task = asyncio.create_task(self._ended(work))
        try:
            while True:
                while self._events:
                    yield self._events.popleft()
                if task.done():
                    break
                self._arrived.clear()
                self._wanted.set()
                await self._arrived.wait()
        except asyncio.CancelledError as error:
            await _left(task)
            error.partial = getattr(self._raised, "partial", None)  # type: ignore[attr-defined]  # as other errors
            raise
        finally:
            await _left(task)
        if self._raised is not None:
            raise self._raised

    async def _ended(self, work: Awaitable[Any]) -> None:
        """Do the work; what it raises is kept, as a task would forget what a cancellation carries."""
        try:
            self._take(await work)
        except BaseException as error:  # noqa: BLE001 - whoever follows gets it
            self._raised = error
        finally:
            self._arrived.set()

    def _take(self, event: object) -> None:
        self._events.append(event)
        self._wanted.clear()
        self._arrived.set()


async def _left(task: asyncio.Task[None]) -> None:
    """Cancel what is still at work, and wait for its end."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
