"""A blocking exchange with a server, in a thread of its own, which can be cut off from outside."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing, suppress
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from toolsemble.runtime.concurrency import ThreadPerJob

T = TypeVar("T")

_END = object()
# A program that is done does not wait for answers that nobody wants any more.
_THREADS = ThreadPerJob(daemon=True)


class Connection(Protocol):
    """What is cut off: a connection of ``http.client``, or one made like it."""

    sock: Any
    """The socket, once there is one."""
    user: Exchange | None
    """The exchange that uses it; it may be another's the next moment."""


class Exchange:
    """One job in a thread, and the connection that it uses at the moment.

    >>> Exchange().run(lambda: 42)
    42
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._socket: Any = None
        self._is_over = False
        self.is_cut = False

    def run(self, job: Callable[[], T]) -> T:
        """Give what a job gives; connections that it uses find this exchange by :func:`current_exchange`."""
        before = _current.set(self)
        try:
            return job()
        finally:
            _current.reset(before)
            with self._lock:
                self._is_over = True

    def use(self, connection: Connection) -> None:
        """Take the connection that is used from now on; refuse it when nobody wants an answer any more."""
        with self._lock:
            if self.is_cut:
                raise ConnectionAbortedError("nobody waits for the answer any more")
            connection.user = self
            # A connection lets go of its socket when the answer ends with it, and the answer is still being read.
            self._connection, self._socket = connection, connection.sock

    def cut(self) -> None:
        """End the job by ending its connection: whoever reads from it finds nothing more to read."""
        with self._lock:
            self.is_cut = True
            is_used = not self._is_over and self._connection is not None and self._connection.user is self
        if is_used:
            # Not closed, as the other thread is reading from it. What is no socket of Python's own ends by itself.
            with suppress(OSError, TypeError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def current_exchange() -> Exchange | None:
    """Give the exchange that this thread works for, if it does.

    >>> current_exchange() is None
    True
    """
    return _current.get()


async def answered(job: Callable[[], T]) -> T:
    """Give what a blocking job gives; whoever is cancelled meanwhile does not wait for it.

    >>> asyncio.run(answered(lambda: 42))
    42
    """
    exchange = Exchange()
    try:
        return await asyncio.wrap_future(_THREADS.submit(exchange.run, job))
    finally:
        exchange.cut()


async def followed(job: Callable[[], Generator[T, None, None]]) -> AsyncGenerator[T, None]:
    """Give what a blocking generator gives, as it comes; whoever closes this in the middle does not wait for it.

    >>> async def collect():
    ...     return [number async for number in followed(lambda: (number for number in (1, 2)))]
    >>> asyncio.run(collect())
    [1, 2]
    """
    loop, exchange = asyncio.get_running_loop(), Exchange()
    queue: asyncio.Queue[Any] = asyncio.Queue()

    def tell(item: object) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def follow() -> None:
        try:
            with closing(job()) as items:
                for item in items:
                    if exchange.is_cut:
                        return
                    tell(item)
        finally:
            with suppress(RuntimeError):  # the loop may be closed, and nobody waits there any more
                tell(_END)

    future = asyncio.wrap_future(_THREADS.submit(exchange.run, follow))
    try:
        while (item := await queue.get()) is not _END:
            yield item
        await future
    finally:
        exchange.cut()
        future.cancel()
