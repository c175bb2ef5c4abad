"""One client for each event loop, closed when the loop ends."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Open clients need a reference from outside their owner. Otherwise the garbage collector, when it finds the owner in
# a cycle, would collect the connections with it instead of closing them.
_OPEN: set[_OpenClient[Any]] = set()


class PerLoop(Generic[T]):
    """A client for each event loop, created on first use and closed when the loop ends.

    The clients are closed earlier when this object is garbage collected.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        """Set the function that creates clients.

        :param make: returns a context whose value is the client, and which closes it. Entering it must not wait. It
            must not be based on an async generator, because the loop would close it concurrently
        """
        self._make = make
        self._clients: dict[asyncio.AbstractEventLoop, _OpenClient[T]] = {}

    async def get(self) -> T:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        opened = self._clients.get(loop)
        if opened is None or not opened.is_open:
            self._sweep()
            # Nothing here awaits, so no other task on the loop creates a second one.
            opened = self._clients[loop] = _OpenClient(loop, self)
            await opened.open(self._make())
        return opened.client

    def list_open(self) -> list[T]:
        """Return the open clients of all loops."""
        return [opened.client for opened in list(self._clients.values()) if opened.is_open]

    def _sweep(self) -> None:
        """Drop closed clients, and clients of loops that were closed without closing their generators."""
        for each in [each for each in list(_OPEN) if each.loop.is_closed()]:
            each.release()
        for loop, opened in list(self._clients.items()):
            if not opened.is_open:
                self._clients.pop(loop, None)


class _OpenClient(Generic[T]):
    """A client that is open in a loop.

    It is held by an async generator, because a loop closes open generators when it ends. A library has no other
    opportunity to await the closing of its connections.
    """

    client: T

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: PerLoop[T]) -> None:
        self.loop = loop
        self._finalizer = weakref.finalize(owner, self._schedule_close)

    @property
    def is_open(self) -> bool:
        """Whether the client can be used."""
        return self in _OPEN

    async def open(self, context: AbstractAsyncContextManager[T]) -> None:
        """Open the client."""
        _OPEN.add(self)
        self._generator = self._hold_open(context)
        self.client = await anext(self._generator)

    def release(self) -> None:
        """Drop the client, which is closed or can no longer be closed."""
        _OPEN.discard(self)
        self._finalizer.detach()

    async def _hold_open(self, context: AbstractAsyncContextManager[T]) -> AsyncGenerator[T, None]:
        try:
            async with context as client:
                yield client
        finally:
            self.release()

    def _schedule_close(self) -> None:
        """Schedule the client's closing after its owner was collected; called in any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._start_closing)

    def _start_closing(self) -> None:
        self._closing = self.loop.create_task(self._close())

    async def _close(self) -> None:
        # Not a task of aclose() itself: cancelled before its start, it would leave the generator unusable.
        await self._generator.aclose()
