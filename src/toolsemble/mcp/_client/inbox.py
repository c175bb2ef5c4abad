"""What a waiting caller receives from the thread of the connection: progress, questions, and the outcome."""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from toolsemble._runtime.wakeup import running_loop


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call, as its server reports it."""

    fraction: float | None
    """The part of the work that is done, from 0 to 1; None: unknown."""
    message: str
    """What is being done."""


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """A question of a server to a person."""

    server: str
    """The name of the server."""
    params: Any
    """The parameters of the request of the SDK."""
    answer: Future[Any]
    """Set to the ``ElicitResult``, in any thread."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a call: a value, or an exception."""

    value: Any = None
    error: BaseException | None = None


class Inbox(Protocol):
    """A queue from the thread of the connection to one caller."""

    def add(self, item: Any) -> None:
        """Add an item, in any thread."""
        ...


class ThreadInbox:
    """The inbox of a caller that waits in its thread.

    >>> inbox = ThreadInbox()
    >>> inbox.add("done")
    >>> inbox.get(None)
    'done'
    """

    __slots__ = ("_queue", "add")

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.add: Callable[[Any], None] = self._queue.put

    def get(self, seconds: float | None) -> Any:
        """Return the next item; None if there is none within some seconds."""
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            return None


class LoopInbox:
    """The inbox of a caller that waits in an event loop."""

    __slots__ = ("_items", "_loop", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def add(self, item: Any) -> None:
        """Add an item, in any thread; after the end of the loop it is dropped."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._append, item)

    def _append(self, item: Any) -> None:
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> Any:
        """Return the next item."""
        while not self._items:
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._items.popleft()


def is_in_loop() -> bool:
    """Return whether the caller waits in an event loop.

    >>> is_in_loop()
    False
    """
    return running_loop() is not None
