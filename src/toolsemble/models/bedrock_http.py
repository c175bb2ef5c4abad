"""Connections of botocore's that tell the exchange in which they are used of themselves."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from botocore import awsrequest  # type: ignore[import-untyped]  # it comes without types

from toolsemble.models.exchange import Exchange, current_exchange


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


class _HttpPool(awsrequest.AWSHTTPConnectionPool):  # type: ignore[misc]  # a class without types
    ConnectionCls = _Http


class _HttpsPool(awsrequest.AWSHTTPSConnectionPool):  # type: ignore[misc]  # a class without types
    ConnectionCls = _Https


def tell_exchanges(client: Any) -> None:
    """Have a client of botocore's make such connections.

    It offers no way to choose them, so this goes by names that are not public. Where they are gone, a cancelled
    request still does not wait, and its connection ends when the service has answered.
    """
    with suppress(AttributeError):
        pools = client._endpoint.http_session._pool_classes_by_scheme  # noqa: SLF001 - see above
        pools.update(http=_HttpPool, https=_HttpsPool)
