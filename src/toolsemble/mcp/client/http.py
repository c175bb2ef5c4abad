"""The transports over HTTP: each response is bounded, and a broken connection breaks only the calls that used it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from toolsemble.mcp.client.remote_call import Delivery, RemoteCall, current_call
from toolsemble.mcp.client.screen import Screen, ScreenedReader, ScreenedWriter

_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
_SLOWEST_READ = 300.0
_SESSION = "mcp-session-id"
_GONE = 404
_BROKEN = 502


class HttpTarget:
    """A URL that is connected to.

    :param transport: ``"http"`` for streamable HTTP, ``"sse"`` for servers before it
    """

    what = "reached"
    is_program = False

    def __init__(self, url: str, headers: Mapping[str, str], auth: Any, transport: str, connect_timeout: float) -> None:
        self._url = url
        self._headers = {**headers, "Accept-Encoding": "identity"}  # a small compressed body can be a huge one
        self._auth = adapt_auth(auth)
        self._transport = transport
        self._timeout = httpx2.Timeout(connect_timeout, read=_SLOWEST_READ)

    def open(self, screen: Screen, server: str, on_end: Callable[[], object]) -> HttpTransport:
        """Return the transport of a new session."""
        _ = server, on_end
        return HttpTransport(self._connect, screen)

    async def _connect(self, stack: AsyncExitStack, screen: Screen) -> Any:
        bounded = BoundedTransport(_choose_transport(self._url), screen.max_message)
        if self._transport == "sse":

            def build(
                headers: dict[str, str] | None = None,
                timeout: httpx2.Timeout | None = None,
                auth: httpx2.Auth | None = None,
            ) -> httpx2.AsyncClient:
                return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, transport=bounded)

            client = sse_client(self._url, self._headers, httpx_client_factory=build, auth=self._auth)
            return await stack.enter_async_context(client)
        http = httpx2.AsyncClient(headers=self._headers, auth=self._auth, timeout=self._timeout, transport=bounded)
        await stack.enter_async_context(http)
        streams = streamable_http_client(self._url, http_client=http, max_sse_event_size=screen.max_message)
        return await stack.enter_async_context(streams)


class HttpTransport:
    """A transport of the SDK whose messages pass a screen."""

    def __init__(self, connect: Callable[[AsyncExitStack, Screen], Any], screen: Screen) -> None:
        self._connect = connect
        self._screen = screen
        self._stack = AsyncExitStack()
        self.grace = 0.0
        """Not used: there is no process."""

    async def __aenter__(self) -> tuple[ScreenedReader, ScreenedWriter]:
        try:
            read, write = await self._connect(self._stack, self._screen)
        except BaseException:
            await self._stack.aclose()
            raise
        return ScreenedReader(read, self._screen), ScreenedWriter(write, self._screen)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


def _choose_transport(url: str) -> httpx2.AsyncHTTPTransport:
    """Return a transport that uses the proxy of the environment, if there is one for the URL."""
    parts = httpx2.URL(url)
    proxy = None if proxy_bypass(parts.host) else getproxies().get(parts.scheme)
    return httpx2.AsyncHTTPTransport(proxy=proxy)


class BoundedTransport(httpx2.AsyncBaseTransport):
    """A transport that bounds responses, and answers a failed request with an error instead of raising.

    The SDK would end the whole connection, and with it all other calls.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, max_message: int) -> None:
        self._inner = inner
        self._max_message = max_message

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; record at the current call how far it got."""
        call = current_call.get()
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            if not isinstance(call, RemoteCall):
                raise
            unsent = isinstance(error, _UNSENT)
            call.begun = call.begun or not unsent
            call.over = unsent
            return _fail(request, call, str(error) or type(error).__name__)
        if isinstance(call, RemoteCall) and response.status_code == _GONE and _SESSION in request.headers:
            # The server has forgotten the session, and did nothing.
            await response.aclose()
            call.over = True
            return _fail(request, call, "it has ended the session")
        call.begun = True
        if request.method == "POST":
            call.status = response.status_code if response.is_error else 0
        return self._bound(response, call)

    def _bound(self, response: httpx2.Response, call: Delivery) -> httpx2.Response:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            limit = None  # the SDK bounds each event
        else:
            limit = self._max_message if response.headers.get("content-encoding", "identity") == "identity" else 0
        response.stream = BoundedStream(response.stream, limit, call)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _fail(request: httpx2.Request, call: RemoteCall, problem: str) -> httpx2.Response:
    call.lost = True
    call.problem = call.problem or problem
    error = {"code": CONNECTION_CLOSED, "message": problem}
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "error": error}).encode()
    return httpx2.Response(_BROKEN, headers={"content-type": "application/json"}, content=body, request=request)


class BoundedStream(httpx2.AsyncByteStream):
    """A body that ends when it is too long, or when its connection breaks; the SDK then finds that it is not JSON.

    :param limit: the number of bytes; None for a stream of events, which the SDK closes when it has the answer
    """

    def __init__(self, inner: Any, limit: int | None, call: Delivery) -> None:
        self._inner = inner
        self._limit = limit
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if self._limit is not None and size > self._limit:
                    self._mark_lost(f"it sent a message of more than {self._limit} bytes (max_message)")
                    return
                yield chunk
        except httpx2.TransportError as error:
            self._mark_lost(str(error) or type(error).__name__)
        else:
            if self._limit is None:
                self._mark_lost("it closed the stream")

    def _mark_lost(self, problem: str) -> None:
        self._call.lost, self._call.problem = True, problem

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()


class BearerAuth(httpx2.Auth):
    """A token that is sent with each request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Any:
        """Add the token to a request."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class ForeignAuth(httpx2.Auth):
    """The auth object of another version of httpx, which works in the same way."""

    def __init__(self, auth: Any) -> None:
        self._auth = auth
        self.requires_request_body = bool(getattr(auth, "requires_request_body", False))
        self.requires_response_body = bool(getattr(auth, "requires_response_body", False))

    def async_auth_flow(self, request: httpx2.Request) -> Any:
        """Return the flow of the object."""
        return self._auth.async_auth_flow(request)


def adapt_auth(auth: Any) -> httpx2.Auth | None:
    """Return what authorizes requests: for a token, an auth object of httpx, or an OAuth provider."""
    if auth is None or isinstance(auth, httpx2.Auth):
        return auth
    return BearerAuth(auth) if isinstance(auth, str) else ForeignAuth(auth)
