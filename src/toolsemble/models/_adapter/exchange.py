"""Blocking requests in threads, which can be cancelled by shutting down their connection."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from toolsemble._runtime.concurrency import ThreadPerJob

T = TypeVar("T")

_END = object()
# Daemon threads: a program can exit without waiting for abandoned requests.
_THREADS = ThreadPerJob(daemon=True)


class Exchange:
    """A job in a thread, and the connection that it currently uses.

    >>> Exchange().run(lambda: 42)
    42
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Any = None
        self._socket: Any = None
        self._is_over = False
        self.is_cancelled = False

    def run(self, job: Callable[[], T]) -> T:
        """Return the result of a job; its connections find this exchange by :func:`current_exchange`."""
        before = _current.set(self)
        try:
            return job()
        finally:
            _current.reset(before)
            with self._lock:
                self._is_over = True

    def use(self, connection: Any) -> None:
        """Register the connection in use; raise ``ConnectionAbortedError`` if the exchange was cancelled.

        :param connection: has the attributes ``sock``, None before it is open, and ``user``: connections are reused
        """
        with self._lock:
            if self.is_cancelled:
                raise ConnectionAbortedError("the request was cancelled")
            connection.user = self
            # A connection may drop its socket while the response is still being read from it.
            self._connection, self._socket = connection, connection.sock

    def cancel(self) -> None:
        """Cancel the job by shutting its connection down, so that a pending read returns."""
        with self._lock:
            self.is_cancelled = True
            is_used = not self._is_over and self._connection is not None and self._connection.user is self
        if is_used:
            # Not closed: the other thread reads from it. TypeError: not one of Python's own sockets.
            with suppress(OSError, TypeError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def current_exchange() -> Exchange | None:
    """Return the exchange of this thread, or None.

    >>> current_exchange() is None
    True
    """
    return _current.get()


async def run_blocking(job: Callable[[], T]) -> T:
    """Return the result of a blocking job; cancelling does not wait for the job.

    >>> asyncio.run(run_blocking(lambda: 42))
    42
    """
    exchange = Exchange()
    try:
        return await asyncio.wrap_future(_THREADS.submit(exchange.run, job))
    finally:
        exchange.cancel()


async def stream_blocking(job: Callable[[], Generator[T, None, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of a blocking generator as they arrive; closing does not wait for the generator.

    >>> async def collect():
    ...     return [number async for number in stream_blocking(lambda: (number for number in (1, 2)))]
    >>> asyncio.run(collect())
    [1, 2]
    """
    loop, exchange = asyncio.get_running_loop(), Exchange()
    queue: asyncio.Queue[Any] = asyncio.Queue()

    def send(item: object) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def produce() -> None:
        try:
            with closing(job()) as items:
                for item in items:
                    if exchange.is_cancelled:
                        return
                    send(item)
        finally:
            with suppress(RuntimeError):  # the loop may be closed
                send(_END)

    future = asyncio.wrap_future(_THREADS.submit(exchange.run, produce))
    try:
        while (item := await queue.get()) is not _END:
            yield item
        await future
    finally:
        exchange.cancel()
        future.cancel()
