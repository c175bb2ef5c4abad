"""An HTTP client that can be used in any event loop, one after another or at once."""

from __future__ import annotations

import ssl
from typing import Any

import httpx2

from toolsemble.models.adapter.per_loop import PerLoop
from toolsemble.models.reply_limit import limit_responses

_CONNECTING = 10.0


class LoopHttp(httpx2.AsyncClient):
    """Sends each request by a client of the running loop, whose connections stay open until the loop ends.

    It follows no redirects: a provider has none, and a key in a header would be sent along.

    >>> LoopHttp(httpx2.create_ssl_context(), 60.0, 1_000_000).is_closed
    False
    """

    def __init__(self, trusted: ssl.SSLContext, timeout: float, max_reply: int) -> None:
        """Take whom to trust, how many seconds may pass without a sign of life, and how many bytes an answer has."""
        super().__init__(verify=trusted)
        self._waits = httpx2.Timeout(timeout, connect=min(timeout, _CONNECTING), pool=None).as_dict()
        # Many runs share one model, and none of them is to wait for a connection of another.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        self._clients = PerLoop(lambda: limit_responses(httpx2.AsyncClient(verify=trusted, limits=limits), max_reply))

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request by the running loop's client, with our own timeouts in place of whatever it came with."""
        request.extensions["timeout"] = self._waits
        client = await self._clients.get()
        return await client.send(request, **options)
