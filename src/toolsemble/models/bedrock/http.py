"""Connections of botocore's that tell the exchange in which they are used of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ref

from botocore import awsrequest  # type: ignore[import-untyped]  # it comes without types

from toolsemble.models.adapter.exchange import Exchange, current_exchange
from toolsemble.models.reply_limit import MAX_REPLY, ReplyTooLongError, limited


class _Told:
    """Tells the exchange before a request is sent, and as soon as there is a socket."""

    sock: Any
    user: Exchange | None = None

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]  # of the class beside it
        self._tell()

    def request(self, *arguments: Any, **options: Any) -> Any:
        self._tell()
        return super().request(*arguments, **options)  # type: ignore[misc]  # likewise

    def _tell(self) -> None:
        exchange = current_exchange()
        if exchange is not None:
            exchange.use(self)


class _Http(_Told, awsrequest.AWSHTTPConnection):  # type: ignore[misc]  # a class without types
    pass


class _Https(_Told, awsrequest.AWSHTTPSConnection):  # type: ignore[misc]  # a class without types
    pass


class _Limited:
    """Breaks answers off that are too long."""

    def __init__(self, *arguments: Any, max_reply: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._max_reply = max_reply

    def urlopen(self, *arguments: Any, **options: Any) -> Any:
        response = super().urlopen(*arguments, **options)  # type: ignore[misc]  # of the class beside it
        # A response that refers to itself would be freed by the garbage collector only.
        response.stream = partial(_stream, ref(response), self._max_reply)
        return response


def _stream(reference: ref[Any], most: int, *sizes: Any, **how: Any) -> Iterator[bytes]:
    """Yield the body of a response; end the connection when it is too long, as nobody reads the rest of it."""
    response: Any = reference()
    try:
        yield from limited(type(response).stream(response, *sizes, **how), most)
    except ReplyTooLongError:
        response.close()
        raise


class _HttpPool(_Limited, awsrequest.AWSHTTPConnectionPool):  # type: ignore[misc]  # a class without types
    ConnectionCls = _Http


class _HttpsPool(_Limited, awsrequest.AWSHTTPSConnectionPool):  # type: ignore[misc]  # a class without types
    ConnectionCls = _Https


def tell_exchanges(client: Any, max_reply: int = MAX_REPLY) -> None:
    """Have a client of botocore's make such connections, and break answers off that are longer than so many bytes.

    It offers no way to choose them, so this goes by names that are not public. Where they are gone, a cancelled
    request still does not wait, and its connection ends when the service has answered.
    """
    with suppress(AttributeError):
        pools = client._endpoint.http_session._pool_classes_by_scheme  # noqa: SLF001 - see above
        pools.update(
            http=partial(_HttpPool, max_reply=max_reply),
            https=partial(_HttpsPool, max_reply=max_reply),
        )
