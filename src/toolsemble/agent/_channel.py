"""The channel that carries events from a run to its consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any


class Channel:
    """A queue of the events of a run; the run waits at each turn until the consumer requests the next event."""

    def __init__(self, *kinds: type) -> None:
        """Accept only events of these types; all events if none is given."""
        self._kinds = kinds or (object,)
        self._loop: asyncio.AbstractEventLoop  # of the consumer, set when it starts
        self._events: deque[Any] = deque()
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()
        self._is_over = False
        self._raised: BaseException | None = None

    def send(self, event: object) -> None:
        """Add an event; thread-safe."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._add(event)
        else:
            with suppress(RuntimeError):  # the loop is closed: there is no consumer any more
                self._loop.call_soon_threadsafe(self._add, event)

    async def wait_ready(self) -> None:
        """Wait until all events were consumed and the next one is requested."""
        await self._wanted.wait()

    async def follow(self, work: Callable[[], Awaitable[Any]], partial: Callable[[], Any]) -> AsyncGenerator[Any, None]:
        """Run the work and yield its events as they come, its return value last; raise what it raises.

        The work is cancelled when the consumer stops.

        :param partial: returns the work so far, which is attached to a cancellation
        """
        self._loop = asyncio.get_running_loop()
        task = asyncio.create_task(self._run_work(work))
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
            await _cancel(task)
            error.partial = partial()  # type: ignore[attr-defined]  # set on every error of a run
            raise
        finally:
            await _cancel(task)
        if self._raised is not None:
            raise self._raised

    async def _run_work(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Run the work; store what it raises, because a task would drop the attributes of a cancellation."""
        try:
            self._add(await work())
        except BaseException as error:  # raised to the consumer
            self._raised = error
        finally:
            self._is_over = True
            self._arrived.set()

    def _add(self, event: object) -> None:
        # A blocking body may outlive its run, and still report progress.
        if isinstance(event, self._kinds) and not self._is_over:
            self._events.append(event)
            self._wanted.clear()
            self._arrived.set()


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a running task, and wait for its end."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
