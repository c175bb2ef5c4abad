"""Clients whose connections belong to an event loop: one for each loop, closed when the loop ends."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Whatever is open has to be referred to from outside of its owner. The garbage collector, which may find the owner in
# a cycle, would else find the connections in the same moment, and break them off instead of having them closed.
_OPEN: set[_Hold[Any]] = set()


class PerLoop(Generic[T]):
    """Gives a client for the running event loop: the same one until the loop ends, upon which it is closed.

    It is closed earlier when nobody refers to this object any more.

    >>> from toolsemble.runtime.concurrency import finish
    >>> class Client:
    ...     async def __aenter__(self):
    ...         return "connected"
    ...     async def __aexit__(self, *_):
    ...         print("closed")
    >>> clients = PerLoop(Client)
    >>> async def twice():
    ...     print(await clients.get(), await clients.get())
    >>> finish(twice())
    connected connected
    closed
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        """Take what makes a client; entering it must not wait for anything.

        :param make: gives a context whose value is the client, and which closes it; not one made of an async
            generator, as the loop would close that one by itself, at the same time
        """
        self._make = make
        self._holds: dict[asyncio.AbstractEventLoop, _Hold[T]] = {}

    async def get(self) -> T:
        """Give the client of the running loop."""
        loop = asyncio.get_running_loop()
        hold = self._holds.get(loop)
        if hold is None or not hold.is_open:
            self._sweep()
            # Nothing in here waits, so no other task of the loop makes a second one meanwhile.
            hold = self._holds[loop] = _Hold(loop, self)
            await hold.begin(self._make())
        return hold.client

    def open(self) -> list[T]:
        """Return the clients that are open now, of any loop."""
        return [hold.client for hold in list(self._holds.values()) if hold.is_open]

    def _sweep(self) -> None:
        """Drop what has ended, and what belongs to loops that were closed without ending their generators."""
        for each in [each for each in list(_OPEN) if each.loop.is_closed()]:
            each.release()
        for loop, hold in list(self._holds.items()):
            if not hold.is_open:
                self._holds.pop(loop, None)


class _Hold(Generic[T]):
    """Holds one client open in one loop.

    By a generator, because a loop closes those that are still open when it ends: there is no other moment at which a
    library could still await the end of its connections.
    """

    client: T

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: PerLoop[T]) -> None:
        self.loop = loop
        self._finalizer = weakref.finalize(owner, self._end_soon)

    @property
    def is_open(self) -> bool:
        """Whether the client can be used."""
        return self in _OPEN

    async def begin(self, context: AbstractAsyncContextManager[T]) -> None:
        """Open the client."""
        _OPEN.add(self)
        self._generator = self._held(context)
        self.client = await anext(self._generator)

    def release(self) -> None:
        """Forget the client, which is closed, or cannot be any more."""
        _OPEN.discard(self)
        self._finalizer.detach()

    async def _held(self, context: AbstractAsyncContextManager[T]) -> AsyncGenerator[T, None]:
        try:
            async with context as client:
                yield client
        finally:
            self.release()

    def _end_soon(self) -> None:
        """Have the loop close the client of an owner that is gone; called in any thread."""
        with suppress(RuntimeError):  # from a loop that is closed
            self.loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._ending = self.loop.create_task(self._ended())

    async def _ended(self) -> None:
        # Not the generator's own coroutine: cancelled before it began, that one would leave the generator unusable.
        await self._generator.aclose()
