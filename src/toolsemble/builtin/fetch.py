"""One HTTP exchange, checked at every hop, and bounded in time, in bytes, and in what they unpack to."""

from __future__ import annotations

import asyncio
import functools
import math
import ssl
import zlib
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin

import httpcore2

from toolsemble.errors import ToolDefinitionError, ToolExecutionError
from toolsemble.guard.urls import Target, UrlGuard, UrlRefusedError
from toolsemble.runtime.concurrency import ThreadPerJob

_BODILESS = {"GET", "HEAD", "OPTIONS"}
_REDIRECTS = {301, 302, 303, 307, 308}
_KEEPING = {307, 308}  # these ask for the same request again, body and all
_MOST_HOPS = 5
_UNTIED = {"accept", "accept-language", "user-agent"}  # what any server may see
_AGENT = "Mozilla/5.0 (compatible; toolsemble)"
_BAD_STATUS = 400
_SHOWN_OF_FAILURE = 200
_MOST_MEMBERS = 1000  # each costs as much to begin as thousands of bytes


class FetchError(ToolExecutionError):
    """There was no answer that could be used; the message is for the model, and names no secret."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be sent, and where."""

    method: str
    """The method, in capital letters."""
    url: str = field(repr=False)
    """The URL, not checked yet."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers beside those that every request has."""
    body: bytes = field(default=b"", repr=False)
    """The body; empty for none."""


@dataclass(frozen=True, slots=True)
class Response:
    """What came back."""

    url: str = field(repr=False)
    """Where it came from, after all redirects."""
    status: int
    """The status code."""
    headers: Mapping[str, str] = field(repr=False)
    """The headers, by their names in small letters; of several of one name, the last."""
    body: bytes = field(default=b"", repr=False)
    """The body, unpacked, up to the limit."""
    truncated: bool = False
    """Whether there was more than the limit."""

    @property
    def media_type(self) -> str:
        """The media type in small letters, without parameters; empty when the server does not say."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The charset that the server names; empty when it does not."""
        for parameter in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip(" \t\"'")
        return ""

    @property
    def failed(self) -> bool:
        """Whether the server says that it did not do what was asked."""
        return self.status >= _BAD_STATUS

    def failure(self, said: str = "") -> str:
        """Give the status with the beginning of what the server said, or else with the status's name."""
        return f"HTTP {self.status}: {said[:_SHOWN_OF_FAILURE] or _phrase(self.status)}"


class Fetcher:
    """Sends requests to where a guard lets them go.

    :param guard: says which URLs may be fetched, and at which address
    :param timeout: how many seconds there are for all of it: names, redirects, and the last byte of the body
    :param limit: how many bytes of a body are read, packed or unpacked
    :param tls: which certificates are trusted; those of the system by default
    """

    def __init__(self, guard: UrlGuard, *, timeout: float, limit: int, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        self._timeout = _seconds(timeout)
        self._limit = _bytes(limit)
        self._tls = tls

    async def fetch(self, request: Request) -> Response:
        """Give the answer to a request, after redirects; raise when there is none in time."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._followed(request)
        except TimeoutError:
            raise FetchError(f"Timed out after {self._timeout:g} s") from None

    async def _followed(self, request: Request) -> Response:
        origin = ""
        for _ in range(_MOST_HOPS + 1):
            target = await self._checked(request.url)
            origin = origin or target.origin
            if target.origin != origin:
                request = _without_ties(request)
            response = await self._exchanged(request, target)
            if not _is_redirect(response):
                return response
            request = _redirected(request, response)
        raise FetchError(f"Too many redirects: more than {_MOST_HOPS}")

    async def _checked(self, url: str) -> Target:
        # A thread that nobody waits for: a name server can take longer than there is time.
        return await asyncio.wrap_future(ThreadPerJob(daemon=True).submit(self._guard.check, url))

    async def _exchanged(self, request: Request, target: Target) -> Response:
        tls = self._tls or (_system_tls() if target.scheme == "https" else None)
        try:
            async with (
                httpcore2.AsyncConnectionPool(ssl_context=tls, network_backend=_Pinned(target.addresses)) as pool,
                pool.stream(
                    request.method,
                    httpcore2.URL(
                        scheme=target.scheme.encode(),
                        host=target.host.encode(),
                        port=target.port,
                        target=target.path.encode(),
                    ),
                    headers=_sent_headers(request, target),
                    content=request.body or (None if request.method in _BODILESS else b""),
                    extensions={"timeout": {"connect": self._timeout / len(target.addresses)}},
                ) as answer,
            ):
                return await self._received(target.url, answer)
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as problem:
            raise FetchError(f"Cannot connect to {target.host!r}: {_reason(problem)}") from problem
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as problem:
            raise FetchError(f"{target.host!r} did not answer as a web server does: {_reason(problem)}") from problem

    async def _received(self, url: str, answer: httpcore2.Response) -> Response:
        headers = {name.decode("latin-1").lower(): _decoded(value) for name, value in answer.headers}
        head = Response(url, answer.status, headers)
        if _is_redirect(head):
            return head
        packing = _packing(headers.get("content-encoding", ""))
        body, packed = bytearray(), 0
        async with aclosing(answer.aiter_stream()) as chunks:
            async for chunk in chunks:
                packed += len(chunk)
                body += packing.unpacked(chunk, self._limit + 1 - len(body))
                if max(packed, len(body)) > self._limit:
                    return replace(head, body=bytes(body[: self._limit]), truncated=True)
        packing.check_end()
        return replace(head, body=bytes(body))


def _seconds(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise ToolDefinitionError(f"timeout must be a number of seconds above 0, not {timeout!r:.80}")
    return timeout


def _bytes(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ToolDefinitionError(f"max_bytes must be a number of bytes above 0, not {limit!r:.80}")
    return limit


class _Pinned(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses that were checked, whatever the name means by now."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._addresses = addresses
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - the name has been resolved already
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is the library's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = self._addresses
        for address in others:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue  # nothing has been sent, so the next address can be tried
        return await self._network.connect_tcp(last, port, timeout, local_address, socket_options)


@functools.cache
def _system_tls() -> ssl.SSLContext:
    return httpcore2.default_ssl_context()  # reading all certificates takes longer than most requests


def _sent_headers(request: Request, target: Target) -> list[tuple[str, str]]:
    given = {name.lower() for name in request.headers}
    # No other packing is asked for: only this one can be unpacked step by step, within a limit.
    own = {"Host": target.origin.partition("//")[2], "Accept-Encoding": "gzip", "User-Agent": _AGENT, "Accept": "*/*"}
    return [*((name, own[name]) for name in own if name.lower() not in given), *request.headers.items()]


def _is_redirect(response: Response) -> bool:
    return response.status in _REDIRECTS and "location" in response.headers


def _redirected(request: Request, response: Response) -> Request:
    try:
        url = urljoin(response.url, response.headers["location"])
    except ValueError:
        raise UrlRefusedError("Invalid URL in a redirect") from None
    if response.status in _KEEPING or request.method in {"GET", "HEAD"}:
        return replace(request, url=url)
    headers = {name: value for name, value in request.headers.items() if name.lower() != "content-type"}
    return Request("GET", url, headers)


def _without_ties(request: Request) -> Request:
    """Give the request without what was meant for another server; refuse to send a body there."""
    if request.body:
        raise UrlRefusedError("Access denied: a redirect would send the body to another server")
    return replace(request, headers={name: text for name, text in request.headers.items() if name.lower() in _UNTIED})


class _Unpacked:
    """Passes on a body that is sent as it is."""

    def unpacked(self, chunk: bytes, room: int) -> bytes:
        """Give what a part of the body holds, as far as there is room."""
        return chunk[:room]

    def check_end(self) -> None:
        """Take any end for the right one: the length is checked with the message."""


class _Gzip(_Unpacked):
    """Unpacks gzip, step by step; there may be several members, one behind the other."""

    def __init__(self) -> None:
        self._begun = 0
        self._member: Any = None

    def unpacked(self, chunk: bytes, room: int) -> bytes:
        """Give what a part of the body holds, as far as there is room."""
        found, left = b"", chunk
        # Between members there may be zeros, which fill a block.
        while len(found) < room and (left := left if self._member else left.lstrip(b"\0")):
            part, left = self._step(left, room - len(found))
            found += part
        return found

    def check_end(self) -> None:
        """Refuse a body that ends in the middle of a member."""
        if self._member:
            raise FetchError("The answer is cut short: its gzip has no end")

    def _step(self, chunk: bytes, room: int) -> tuple[bytes, bytes]:
        """Give what the member at hand holds, and what comes behind it."""
        member = self._member or self._next()
        try:
            found = member.decompress(chunk, room)
        except zlib.error:
            raise FetchError("The answer is not the gzip that it says it is") from None
        self._member = None if member.eof else member
        return found, member.unused_data

    def _next(self) -> Any:
        self._begun += 1
        if self._begun > _MOST_MEMBERS:
            raise FetchError(f"The answer is gzip of more than {_MOST_MEMBERS} members")
        return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _packing(encoding: str) -> _Unpacked:
    packing = encoding.strip().lower()
    if packing in {"", "identity"}:
        return _Unpacked()
    if packing not in {"gzip", "x-gzip"}:
        raise FetchError(f"The answer is packed as {packing[:40]!r}, which was not asked for")
    return _Gzip()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _reason(problem: Exception) -> str:
    return str(problem)[:200] or type(problem).__name__
