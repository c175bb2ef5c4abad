"""Connections for botocore that can be cancelled, and that limit the size of replies."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import closing, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar
from weakref import ref

from botocore import awsrequest  # type: ignore[import-untyped]  # it comes without types

from toolsemble._runtime.threads import ThreadPerJob
from toolsemble.models._chat import MAX_REPLY, ReplyTooLongError, limit_pieces

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
    """Yield the items of a blocking generator as they arrive; closing does not wait for the generator."""
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


class _Registered:
    """A connection that registers with the current exchange when it opens and before each request."""

    sock: Any
    user: Exchange | None = None

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]  # of the other base class
        self._register()

    def request(self, *arguments: Any, **options: Any) -> Any:
        self._register()
        return super().request(*arguments, **options)  # type: ignore[misc]  # of the other base class

    def _register(self) -> None:
        exchange = current_exchange()
        if exchange is not None:
            exchange.use(self)


class _Http(_Registered, awsrequest.AWSHTTPConnection):
    pass


class _Https(_Registered, awsrequest.AWSHTTPSConnection):
    pass


class _Limited:
    """A connection pool that aborts replies that are too long."""

    def __init__(self, *arguments: Any, max_reply: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._max_reply = max_reply

    def urlopen(self, *arguments: Any, **options: Any) -> Any:
        response = super().urlopen(*arguments, **options)  # type: ignore[misc]  # of the other base class
        # A reference cycle would leave the response to the garbage collector.
        response.stream = partial(_stream_limited, ref(response), self._max_reply)
        return response


def _stream_limited(reference: ref[Any], most: int, *sizes: Any, **how: Any) -> Iterator[bytes]:
    """Yield the body of a response; close the connection if it is too long, because the rest stays unread."""
    response: Any = reference()
    try:
        yield from limit_pieces(type(response).stream(response, *sizes, **how), most)
    except ReplyTooLongError:
        response.close()
        raise


class _HttpPool(_Limited, awsrequest.AWSHTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(_Limited, awsrequest.AWSHTTPSConnectionPool):
    ConnectionCls = _Https


def track_connections(client: Any, max_reply: int = MAX_REPLY) -> None:
    """Make a client of botocore use connections that can be cancelled and that limit replies to this many bytes.

    It has no public way to choose connection classes. If the private attributes are missing, cancelling still
    returns at once, but the connection stays open until the service has answered.
    """
    with suppress(AttributeError):
        pools = client._endpoint.http_session._pool_classes_by_scheme  # noqa: SLF001 - see above
        pools.update(
            http=partial(_HttpPool, max_reply=max_reply),
            https=partial(_HttpsPool, max_reply=max_reply),
        )
