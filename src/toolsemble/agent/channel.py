"""Events on their way from a run to whoever follows it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any


class Channel:
    """Hands the events of a run over; the run waits at its turns until the next event is wanted."""

    def __init__(self, *kinds: type) -> None:
        """Take down which kinds of events are wanted; all of them when none is named."""
        self._kinds = kinds or (object,)
        self._loop: asyncio.AbstractEventLoop  # of whoever follows: known when they begin
        self._events: deque[Any] = deque()
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()
        self._is_over = False
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

    async def follow(self, work: Callable[[], Awaitable[Any]], partial: Callable[[], Any]) -> AsyncGenerator[Any, None]:
        """Give the events as they come, the last of which the work gives, or raise what it raises.

        Who stops listening stops the work.

        :param partial: gives what was done until then; a cancellation carries it away
        """
        self._loop = asyncio.get_running_loop()
        task = asyncio.create_task(self._ended(work))
        try:
            while True:
                while self._events:
                    yield self._events.popleft()
                if self._is_over:
                    break
                self._arrived.clear()
                self._wanted.set()
                await self._arrived.wait()
        except asyncio.CancelledError as error:
            await _left(task)
            error.partial = partial()  # type: ignore[attr-defined]  # as other errors
            raise
        finally:
            await _left(task)
        if self._raised is not None:
            raise self._raised

    async def _ended(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Do the work; what it raises is kept, as a task would forget what a cancellation carries."""
        try:
            self._take(await work())
        except BaseException as error:  # noqa: BLE001 - whoever follows gets it
            self._raised = error
        finally:
            self._is_over = True
            self._arrived.set()

    def _take(self, event: object) -> None:
        # A blocking body may outlive its run, and still tell how far it has come.
        if isinstance(event, self._kinds) and not self._is_over:
            self._events.append(event)
            self._wanted.clear()
            self._arrived.set()


async def _left(task: asyncio.Task[None]) -> None:
    """Cancel what is still at work, and wait for its end."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
