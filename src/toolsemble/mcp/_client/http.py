"""The HTTP transports: responses are bounded, and a broken connection fails only the calls that used it.

A request that may have reached the server is settled only by a message from the server; otherwise its outcome is
unknown. Any other response, such as a proxy's page, says nothing about what the server did.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from types import TracebackType
from typing import Any
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx2
import mcp_types as types
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED

from toolsemble._runtime.urls import UrlGuard, UrlRefusedError, is_public, refusal
from toolsemble.mcp._client.dispatcher import MessageParser, MessageReader, WrappedStream
from toolsemble.mcp._client.remote_call import Delivery, RemoteCall, current_call
from toolsemble.mcp._client.results import STAND_IN
from toolsemble.mcp._client.tool_screening import Screen, ScreenedReader, ScreenedWriter

_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
_SLOWEST_READ = 300.0
_SESSION = "mcp-session-id"
_CHALLENGE = "www-authenticate"
_EVENTS = "text/event-stream"
_JSON = "application/json"
_ACCEPTED = {"accept": f"{_JSON}, {_EVENTS}", "content-type": _JSON}
_MAX_REDIRECTS = 5
_SENT_AGAIN = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)  # with the same method and body
_MAX_METADATA = 2**20
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_END = max(map(len, _EVENT_ENDS))


class HttpTarget:
    """A URL to connect to.

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
        self._guard = SignInGuard(url, auth) if isinstance(auth, OAuthClientProvider) else None

    def open(self, screen: Screen, server: str, on_end: Callable[[], object]) -> HttpTransport:
        """Return the transport of a new session."""
        connect = self._connect_events if self._transport == "sse" else self._connect

        async def begin(stack: AsyncExitStack) -> Any:
            return await connect(stack, screen, server, on_end)

        return HttpTransport(begin)

    async def _connect(self, stack: AsyncExitStack, screen: Screen, *_: object) -> Any:
        http = await self._open_client(stack, screen)
        # The transport bounds events, and records why a stream ended.
        streams = streamable_http_client(self._url, http_client=http, max_sse_event_size=None)
        read, write = await stack.enter_async_context(streams)
        return ScreenedReader(read, screen), ScreenedWriter(write, screen)

    async def _connect_events(
        self, stack: AsyncExitStack, screen: Screen, server: str, on_end: Callable[[], object]
    ) -> Any:
        http = await self._open_client(stack, screen, in_place=False)
        request = http.build_request("GET", self._url, headers={"Accept": _EVENTS, "Cache-Control": "no-store"})
        response = await _send_within_origin(http, request)
        stack.push_async_callback(response.aclose)
        response.raise_for_status()
        events = aiter(httpx2.EventSource(response, max_event_size=None))
        endpoint = await _find_endpoint(events, response.request.url)
        return EventReader(events, screen, server, on_end), EventWriter(http, endpoint, screen)

    async def _open_client(self, stack: AsyncExitStack, screen: Screen, *, in_place: bool = True) -> httpx2.AsyncClient:
        inner = _choose_transport(self._url)
        guarded = inner if self._guard is None else GuardedTransport(inner, self._guard)
        bounded = BoundedTransport(guarded, screen.max_message, self._url, in_place=in_place)
        http = httpx2.AsyncClient(headers=self._headers, auth=self._auth, timeout=self._timeout, transport=bounded)
        return await stack.enter_async_context(http)


class HttpTransport:
    """The streams of one session, in the form that the SDK expects.

    :param connect: opens them, and registers their cleanup on a stack
    """

    def __init__(self, connect: Callable[[AsyncExitStack], Any]) -> None:
        self._connect = connect
        self._stack = AsyncExitStack()
        self.grace = 0.0
        """Not used: there is no process."""

    async def __aenter__(self) -> Any:
        try:
            return await self._connect(self._stack)
        except BaseException:
            await self._stack.aclose()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


def _find_proxy(url: str) -> str | None:
    """Return the environment's proxy for a URL; None if there is none."""
    parts = httpx2.URL(url)
    return None if proxy_bypass(parts.host) else getproxies().get(parts.scheme)


def _choose_transport(url: str) -> httpx2.AsyncHTTPTransport:
    return httpx2.AsyncHTTPTransport(proxy=_find_proxy(url))


class BoundedTransport(httpx2.AsyncBaseTransport):
    """A transport that bounds responses, and converts a failed request to an error answer instead of raising.

    Raising would make the SDK end the whole connection, and all other calls with it.

    The SDK follows redirects within the origin, and would send a call twice. So the URL that answered the handshake is
    used from then on, and a call that may not be repeated is not redirected.

    :param url: the server's URL, as given
    :param in_place: whether the response to a request contains the answer, as in streamable HTTP
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, max_message: int, url: str, *, in_place: bool = True) -> None:
        self._inner = inner
        self._max_message = max_message
        self._in_place = in_place
        self._given = self._endpoint = httpx2.URL(url)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; record its progress on the current call."""
        call = current_call.get()
        is_request = await _is_mcp_request(request)
        if request.url == self._given:
            request.url = self._endpoint
        if call.refused and is_request:  # sent again, with other credentials
            call.refused = False
            call.begin_request()
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            is_unsent = isinstance(error, _UNSENT)
            if is_unsent and is_request:
                call.take_back()
            if not isinstance(call, RemoteCall):
                raise
            call.over = is_unsent
            return _fail(request, call, str(error) or type(error).__name__)
        self._bound(response, call)
        if self._is_answer(response):
            call.answered, call.status, call.lost = True, 0, False  # also after an interrupted stream was resumed
            if self._in_place and is_request and not isinstance(call, RemoteCall):
                self._endpoint = request.url
            return response
        return await self._judge(request, response, call) if is_request else response

    def _is_answer(self, response: httpx2.Response) -> bool:
        """Return whether a response comes from an MCP server."""
        if not self._in_place:
            return response.is_success
        kind = response.headers.get("content-type", "").lower()
        return response.is_success and response.status_code != HTTPStatus.ACCEPTED and kind.startswith((_JSON, _EVENTS))

    async def _judge(self, request: httpx2.Request, response: httpx2.Response, call: Delivery) -> httpx2.Response:
        """Record what an unusual response reveals about the request's outcome: usually nothing."""
        status = response.status_code
        call.status = status if response.is_error else 0
        call.answered = response.is_error and await _has_error(response)
        if status in _SENT_AGAIN and isinstance(call, RemoteCall) and not call.repeatable:
            await response.aclose()
            return _fail(request, call, "it redirected the request")
        if status == HTTPStatus.UNAUTHORIZED or (status == HTTPStatus.FORBIDDEN and _CHALLENGE in response.headers):
            call.refused = True
            call.take_back()
        elif status == HTTPStatus.NOT_FOUND and (_SESSION in request.headers or not self._in_place):
            # The session has expired. Without an error from the server, or behind a proxy, nothing more is known.
            call.over = True
            if isinstance(call, RemoteCall) and (call.repeatable or not call.answered):
                await response.aclose()
                return _fail(request, call, "it has ended the session")
        return response

    def _bound(self, response: httpx2.Response, call: Delivery) -> None:
        if response.headers.get("content-type", "").lower().startswith(_EVENTS):
            response.stream = BoundedEvents(response.stream, self._max_message, call)
            return
        is_plain = response.headers.get("content-encoding", "identity") == "identity"
        response.stream = BoundedBody(response.stream, self._max_message if is_plain else 0, call)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


async def _is_mcp_request(request: httpx2.Request) -> bool:
    """Return whether an HTTP request carries an MCP request, not a notification, an answer, or a sign-in request."""
    if request.method != "POST" or _EVENTS not in request.headers.get("accept", ""):
        return False
    message = json.loads(await request.aread())  # a redirected request's body has not been read
    return "method" in message and "id" in message


async def _has_error(response: httpx2.Response) -> bool:
    """Return whether a response contains a JSON-RPC error, which is the server's own statement."""
    if not response.headers.get("content-type", "").lower().startswith(_JSON):
        return False
    try:
        message = types.jsonrpc_message_adapter.validate_json(await response.aread(), by_name=False)
    except (ValueError, httpx2.StreamError):
        return False
    return isinstance(message, types.JSONRPCError)


def _fail(request: httpx2.Request, call: RemoteCall, problem: str) -> httpx2.Response:
    call.lost = True
    call.problem = call.problem or problem
    error = {"code": CONNECTION_CLOSED, "message": problem}
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "error": error}).encode()
    return httpx2.Response(HTTPStatus.BAD_GATEWAY, headers={"content-type": _JSON}, content=body, request=request)


class BoundedBody(httpx2.AsyncByteStream):
    """A body that ends at the limit, or when its connection breaks; the SDK then fails to parse it.

    :param limit: the maximum number of bytes
    """

    def __init__(self, inner: Any, limit: int, call: Delivery) -> None:
        self._inner = inner
        self._limit = limit
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > self._limit:
                    self._mark_lost(self._describe_limit())
                    return
                yield chunk
        except httpx2.TransportError as error:
            self._mark_lost(str(error) or type(error).__name__)

    def _describe_limit(self) -> str:
        return f"it sent a message larger than {self._limit} bytes (max_message)"

    def _mark_lost(self, problem: str) -> None:
        self._call.lost, self._call.problem = True, problem

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()


class BoundedEvents(BoundedBody):
    """A stream of bounded events; the SDK closes it when it has the answer."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, end = 0, b""
        try:
            async for chunk in self._inner:
                recent = end + chunk
                last = max(recent.rfind(each) + len(each) if each in recent else 0 for each in _EVENT_ENDS)
                size = len(recent) - last if last else size + len(chunk)
                end = recent[-_LONGEST_END + 1 :]
                if size > self._limit:
                    break
                yield chunk
            else:
                self._mark_lost("it closed the stream")
                return
        except httpx2.TransportError as error:
            self._mark_lost(str(error) or type(error).__name__)
            return
        self._mark_lost(self._describe_limit())
        raise httpx2.SSEError(self._describe_limit())  # the SDK must not resume it


# --- servers before streamable HTTP: one event stream has all answers, and requests are posted


async def _send_within_origin(http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """Return the response to a request; follow redirects only within the origin."""
    for _ in range(_MAX_REDIRECTS):
        response = await http.send(request, stream=True)
        follow = response.next_request
        if follow is None or follow.method != request.method or _origin(follow.url) != _origin(request.url):
            return response
        await response.aclose()
        request = follow
    return await http.send(request, stream=True)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _find_endpoint(events: AsyncIterator[Any], url: httpx2.URL) -> httpx2.URL:
    """Return the URL for requests, from the first event; raise if it has another origin."""
    async for event in events:
        if event.event == "endpoint":
            endpoint = url.join(event.data)
            if _origin(endpoint) != _origin(url):
                raise httpx2.ConnectError(f"it asks for requests to another origin, {endpoint.copy_with(query=None)}")
            return endpoint
    raise httpx2.ConnectError("it closed the stream before it said where to send requests")


class EventReader(MessageReader):
    """A server's messages in one event stream; the session ends with it.

    :param on_end: called when the stream has ended
    """

    def __init__(self, events: AsyncIterator[Any], screen: Screen, server: str, on_end: Callable[[], object]) -> None:
        super().__init__(events)
        self._screen = screen
        self._parser = MessageParser(server)
        self._on_end = on_end

    async def __anext__(self) -> SessionMessage:
        try:
            async for event in self._stream:
                message = self._parser.parse(event.data) if event.event == "message" else None
                if message is not None:
                    self._screen.incoming(message)
                    return SessionMessage(message)
        except httpx2.TransportError as error:
            self._screen.break_off(str(error))
        self._on_end()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Do nothing: the stream is closed with the session."""


class EventWriter(WrappedStream):
    """The messages to a server, one HTTP request each.

    :param http: sends them
    :param endpoint: the URL announced by the server
    """

    def __init__(self, http: httpx2.AsyncClient, endpoint: httpx2.URL, screen: Screen) -> None:
        super().__init__(http)
        self._endpoint = endpoint
        self._screen = screen

    async def send(self, item: SessionMessage, /) -> None:
        """Post a message; raise if the server did not accept a request."""
        self._screen.outgoing(item.message)
        call = current_call.get()
        is_request = isinstance(item.message, types.JSONRPCRequest)
        if is_request:
            call.begin_request()
        body = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        response = await _send_within_origin(
            self._stream, self._stream.build_request("POST", self._endpoint, content=body, headers=_ACCEPTED)
        )
        try:
            await response.aread()
        finally:
            await response.aclose()
        if not is_request:
            return
        if response.is_success and not isinstance(call, RemoteCall):
            self._endpoint = response.request.url  # the handshake's redirect target
        if call.lost:
            raise anyio.BrokenResourceError
        if not response.is_success:
            call.answered = False
            raise MCPError(code=types.INTERNAL_ERROR, message=STAND_IN)

    async def aclose(self) -> None:
        """Do nothing: the connections are closed with the session."""


# --- sign-in: a server names the URLs that the SDK's OAuth providers fetch


class SignInGuard:
    """Decides which URLs a server may make the client fetch for sign-in.

    A public server may name only public addresses and hosts that the program named; a server in the private network may
    also name private ones.
    """

    def __init__(self, url: str, provider: Any) -> None:
        issuer = getattr(provider, "_issuer", None)  # named by the program, not by the server
        self._guard = UrlGuard([httpx2.URL(issuer).host] if issuer else [])
        self._server = httpx2.URL(url)
        self._is_proxied = _find_proxy(url) is not None
        self._has_private_name = self._guard.refuses(self._server.host)
        self._peers_are_public: set[bool] = set()

    def is_own(self, url: httpx2.URL) -> bool:
        """Return whether a URL has the server's origin."""
        return _origin(url) == _origin(self._server)

    def note_peer(self, response: httpx2.Response) -> None:
        """Record the server's address: its name could resolve to another one later."""
        stream = response.extensions.get("network_stream")
        address = None if stream is None or self._is_proxied else stream.get_extra_info("server_addr")
        if address is not None:
            self._peers_are_public.add(is_public(address[0]))

    async def resolve(self, url: httpx2.URL) -> tuple[str, ...]:
        """Return the addresses to connect to; () for any. Raise UrlRefusedError if the URL may not be fetched."""
        if self._has_private_name or self._peers_are_public == {False}:
            return ()
        if self._is_proxied:  # the proxy resolves names
            if self._guard.refuses(url.host):
                raise UrlRefusedError(refusal(url.host))
            return ()
        return (await asyncio.to_thread(self._guard.check, str(url))).addresses


class GuardedTransport(httpx2.AsyncBaseTransport):
    """A transport to a server, and to its sign-in URLs."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, guard: SignInGuard) -> None:
        self._inner = inner
        self._guard = guard

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; raise ConnectError for a forbidden URL."""
        if self._guard.is_own(request.url):
            response = await self._inner.handle_async_request(request)
            self._guard.note_peer(response)
            return response
        try:
            addresses = await self._guard.resolve(request.url)
        except UrlRefusedError as problem:
            raise httpx2.ConnectError(f"to sign in, it names {request.url.host}: {problem}", request=request) from None
        if not addresses:
            return await self._inner.handle_async_request(request)
        return await _send_to(addresses, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


async def _send_to(addresses: tuple[str, ...], request: httpx2.Request) -> httpx2.Response:
    """Send a request only to the given addresses of its host; return the complete response."""
    *others, last = addresses
    for address in others:
        try:
            return await _send_to_one(address, request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            continue
    return await _send_to_one(last, request)


async def _send_to_one(address: str, request: httpx2.Request) -> httpx2.Response:
    # A separate transport: a connection to an address must not be reused for another host name.
    pinned = httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,  # with the host name
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )
    async with httpx2.AsyncHTTPTransport() as once:
        response = await once.handle_async_request(pinned)
        if response.headers.get("content-encoding", "identity") != "identity":  # a small body can be a huge one
            raise httpx2.ReadError("the answer to the sign-in is compressed", request=request)
        body = b""
        async for chunk in response.stream:  # type: ignore[union-attr]  # of an async transport
            body += chunk
            if len(body) > _MAX_METADATA:
                raise httpx2.ReadError("the answer to the sign-in is too long", request=request)
        return httpx2.Response(response.status_code, headers=response.headers, content=body, request=request)


class BearerAuth(httpx2.Auth):
    """A bearer token, sent with each request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Any:
        """Add the token to a request."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class ForeignAuth(httpx2.Auth):
    """An auth object of another httpx version with the same protocol."""

    def __init__(self, auth: Any) -> None:
        self._auth = auth
        self.requires_request_body = bool(getattr(auth, "requires_request_body", False))
        self.requires_response_body = bool(getattr(auth, "requires_response_body", False))

    def async_auth_flow(self, request: httpx2.Request) -> Any:
        """Return the object's auth flow."""
        return self._auth.async_auth_flow(request)


def adapt_auth(auth: Any) -> httpx2.Auth | None:
    """Return the auth object for a token, an httpx auth object, or an OAuth provider."""
    if auth is None or isinstance(auth, httpx2.Auth):
        return auth
    return BearerAuth(auth) if isinstance(auth, str) else ForeignAuth(auth)
