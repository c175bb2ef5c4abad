"""Connections for botocore that can be cancelled, and that limit the size of replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ref

from botocore import awsrequest  # type: ignore[import-untyped]  # it comes without types

from toolsemble.models._adapter.exchange import Exchange, current_exchange
from toolsemble.models._reply_limit import MAX_REPLY, ReplyTooLongError, limit_pieces


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


class _Http(_Registered, awsrequest.AWSHTTPConnection):  # type: ignore[misc]  # a class without types
    pass


class _Https(_Registered, awsrequest.AWSHTTPSConnection):  # type: ignore[misc]  # a class without types
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
    """Yield the body of a response; close the connection if it is too long, as the rest stays unread."""
    response: Any = reference()
    try:
        yield from limit_pieces(type(response).stream(response, *sizes, **how), most)
    except ReplyTooLongError:
        response.close()
        raise


class _HttpPool(_Limited, awsrequest.AWSHTTPConnectionPool):  # type: ignore[misc]  # a class without types
    ConnectionCls = _Http


class _HttpsPool(_Limited, awsrequest.AWSHTTPSConnectionPool):  # type: ignore[misc]  # a class without types
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
