"""An HTTP client that can be used in several event loops."""

from __future__ import annotations

import ssl
from typing import Any

import httpx2

from toolsemble.models._adapter.per_loop import PerLoop
from toolsemble.models._reply_limit import limit_responses

_CONNECT_TIMEOUT = 10.0


class LoopHttp(httpx2.AsyncClient):
    """An HTTP client that sends requests through a client of the running loop, which is closed when the loop ends.

    It does not follow redirects: providers do not use them, and they would forward the key in a header.

    >>> LoopHttp(httpx2.create_ssl_context(), 60.0, 1_000_000).is_closed
    False
    """

    def __init__(self, trusted: ssl.SSLContext, timeout: float, max_reply: int) -> None:
        """Set the trusted certificates, the seconds to wait for data, and the maximum bytes of a reply."""
        super().__init__(verify=trusted)
        self._timeouts = httpx2.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT), pool=None).as_dict()
        # Many runs share a model, and none should wait for the connection of another.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        self._clients = PerLoop(lambda: limit_responses(httpx2.AsyncClient(verify=trusted, limits=limits), max_reply))

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request through the client of the running loop; replace its timeouts."""
        request.extensions["timeout"] = self._timeouts
        client = await self._clients.get()
        return await client.send(request, **options)
