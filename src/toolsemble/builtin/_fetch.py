"""Fetch a URL over HTTP: every redirect is checked, and time, bytes and decompressed bytes are limited."""

from __future__ import annotations

import asyncio
import codecs
import functools
import re
import ssl
import zlib
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from http.client import responses
from typing import Any
from urllib.parse import urljoin

import httpcore2

from toolsemble._runtime.checks import check_count, check_seconds
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.threads import ThreadPerJob
from toolsemble._runtime.urls import Target, UrlGuard, UrlRefusedError
from toolsemble._vocabulary.errors import ToolExecutionError

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(
    rb"""<(?:meta\b[^>]*?charset|\?xml\b[^>]*?encoding)\s*=\s*["']?\s*([a-zA-Z0-9_:.-]{1,40})""", re.IGNORECASE
)
_INCOMPLETE_CHARACTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{0,2}\Z")
_SEARCHED = 4096
_SAMPLE = 65536
# Python's codecs that are charsets of the web; others, such as unicode_escape and idna, are not.
_CHARSETS = re.compile(
    r"utf-8|utf-16(-[lb]e)?|cp\d+|iso8859-\d+|koi8-[rut]|gb18030|big5(hkscs)?|shift_jis\w*|euc_\w+|iso2022_\w+|mac-\w+|johab|hz"
)
# The charsets that browsers use for these names, as most servers that declare the left one send the right one.
_BROWSER_CHARSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "utf-16": "utf-16-le",
}
# Detectable charsets; guesses between Latin charsets are no better than chance.
_DETECTABLE = {
    "cp1251",
    "cp1253",
    "cp1255",
    "cp1256",
    "cp874",
    "cp932",
    "cp949",
    "koi8-r",
    "koi8-u",
    "gb18030",
    "big5",
    "euc_jp",
}
_WESTERN = {"cp1252", "cp1254", "iso8859-15"}


def decode_body(body: bytes, declared: str = "", *, truncated: bool = False) -> str:
    """Return the text of a body: by its byte order mark, by the declared charset, or by detection.

    A truncated body may end in the middle of a character.

    >>> decode_body("Größe".encode("cp1252"), "iso-8859-1")
    'Größe'
    >>> decode_body("Größe".encode(), "iso-8859-1")  # valid UTF-8: the server is wrong
    'Größe'
    """
    if truncated:
        body = _INCOMPLETE_CHARACTER.sub(b"", body)
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, "replace")
    for charset in filter(None, (_normalize(declared), _normalize(_declared_charset(body)), "utf-8")):
        try:
            return body.decode("utf-8" if charset in _WESTERN and _is_utf8(body) else charset)
        except UnicodeDecodeError:
            continue
    return body.decode(_detect(body), "replace")


def _declared_charset(body: bytes) -> str:
    """Return the charset that a page declares in its first lines."""
    found = _DECLARED.search(body[:_SEARCHED])
    name = found[1].decode() if found else ""
    # The declaration itself was read as ASCII, so the page cannot be UTF-16.
    return "utf-8" if name.lower().startswith("utf-16") else name


def _normalize(name: str) -> str:
    try:
        found = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return ""
    charset = _BROWSER_CHARSETS.get(found, found)
    return charset if _CHARSETS.fullmatch(charset) else ""


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _detect(body: bytes) -> str:
    # Imported here, because nearly every body declares its charset.
    charset_normalizer = import_extra("charset_normalizer", extra="http", user="A response without a declared charset")
    best = charset_normalizer.from_bytes(body[:_SAMPLE]).best()
    found = _normalize(best.encoding if best else "")
    return found if found in _DETECTABLE else "cp1252"


_BODILESS = {"GET", "HEAD", "OPTIONS"}
_REDIRECTS = {301, 302, 303, 307, 308}
_KEEPS_METHOD = {307, 308}  # these keep the method and the body
_MAX_REDIRECTS = 5
_PUBLIC_HEADERS = {"accept", "accept-language", "user-agent"}  # headers that are not secret
_AGENT = "Mozilla/5.0 (compatible; toolsemble)"
_BAD_STATUS = 400
_MAX_SHOWN = 200
_MAX_MEMBERS = 1000  # starting one costs as much as thousands of bytes


class FetchError(ToolExecutionError):
    """A request failed without a usable response; the message contains no secret."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request."""

    method: str
    """The method, in upper case."""
    url: str = field(repr=False)
    """The URL; checked when the request is sent."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers, in addition to the default ones."""
    body: bytes = field(default=b"", repr=False)
    """The body; empty: none."""


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    url: str = field(repr=False)
    """The URL, after all redirects."""
    status: int
    """The status code."""
    headers: Mapping[str, str] = field(repr=False)
    """The headers by lower-case name; the last one of duplicates."""
    body: bytes = field(default=b"", repr=False)
    """The body, decompressed, up to the limit."""
    truncated: bool = False
    """Whether the body exceeded the limit."""

    @property
    def media_type(self) -> str:
        """The media type in lower case, without parameters; empty if the server sends none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The charset that the server declares; empty if it declares none."""
        for parameter in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip(" \t\"'")
        return ""

    @property
    def failed(self) -> bool:
        """Whether the status is an error."""
        return self.status >= _BAD_STATUS

    def failure(self, text: str = "") -> str:
        """Return an error message: the status with the beginning of the body's text, or its phrase."""
        return f"HTTP {self.status}: {text[:_MAX_SHOWN] or responses.get(self.status, 'unknown status')}"


class Fetcher:
    """An HTTP client that sends requests only to URLs that a guard allows.

    :param guard: checks URLs, and returns the addresses to connect to
    :param timeout: seconds for the whole exchange: name resolution, redirects and the body
    :param limit: the maximum number of bytes to read of a body, compressed or decompressed
    :param tls: the TLS context; the default trusts the system's certificates
    """

    def __init__(self, guard: UrlGuard, *, timeout: float, limit: int, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        check_seconds("timeout", timeout)
        check_count("max_bytes", limit, least=1)
        self._timeout = timeout
        self._limit = limit
        self._tls = tls

    async def fetch(self, request: Request) -> Response:
        """Return the response to a request, after redirects; raise if there is none in time."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow_redirects(request)
        except TimeoutError:
            raise FetchError(f"Timed out after {self._timeout:g} s") from None

    async def _follow_redirects(self, request: Request) -> Response:
        origin = ""
        for _ in range(_MAX_REDIRECTS + 1):
            target = await self._check_url(request.url)
            origin = origin or target.origin
            if target.origin != origin:
                request = _strip_headers(request)
            response = await self._exchange(request, target)
            if not _is_redirect(response):
                return response
            request = _redirect(request, response)
        raise FetchError(f"Too many redirects: more than {_MAX_REDIRECTS}")

    async def _check_url(self, url: str) -> Target:
        # A daemon thread, as name resolution may take longer than the timeout.
        return await asyncio.wrap_future(ThreadPerJob(daemon=True).submit(self._guard.check, url))

    async def _exchange(self, request: Request, target: Target) -> Response:
        tls = self._tls or (_system_tls() if target.scheme == "https" else None)
        try:
            async with (
                httpcore2.AsyncConnectionPool(
                    ssl_context=tls, network_backend=_PinnedBackend(target.addresses)
                ) as pool,
                pool.stream(
                    request.method,
                    httpcore2.URL(
                        scheme=target.scheme.encode(),
                        host=target.host.encode(),
                        port=target.port,
                        target=target.path.encode(),
                    ),
                    headers=_build_headers(request, target),
                    content=request.body or (None if request.method in _BODILESS else b""),
                    extensions={"timeout": {"connect": self._timeout / len(target.addresses)}},
                ) as answer,
            ):
                return await self._receive(target.url, answer)
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as problem:
            raise FetchError(f"Cannot connect to {target.host!r}: {_describe(problem)}") from problem
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as problem:
            raise FetchError(f"{target.host!r} sent no valid HTTP response: {_describe(problem)}") from problem

    async def _receive(self, url: str, answer: httpcore2.Response) -> Response:
        headers = {name.decode("latin-1").lower(): _decode_header(value) for name, value in answer.headers}
        head = Response(url, answer.status, headers)
        if _is_redirect(head):
            return head
        decoder = _make_decoder(headers.get("content-encoding", ""))
        body, received = bytearray(), 0
        async with aclosing(answer.aiter_stream()) as chunks:
            async for chunk in chunks:
                received += len(chunk)
                body += decoder.decode(chunk, self._limit + 1 - len(body))
                if max(received, len(body)) > self._limit:
                    return replace(head, body=bytes(body[: self._limit]), truncated=True)
        decoder.check_end()
        return replace(head, body=bytes(body))


class _PinnedBackend(httpcore2.AsyncNetworkBackend):
    """A network backend that connects only to the checked addresses, so that a name cannot be resolved again."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._addresses = addresses
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,  # the name has been resolved already
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
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
    return httpcore2.default_ssl_context()  # loading the certificates takes longer than most requests


def _build_headers(request: Request, target: Target) -> list[tuple[str, str]]:
    given = {name.lower() for name in request.headers}
    # Only gzip is accepted, because it can be decompressed in steps, within a limit.
    own = {"Host": target.origin.partition("//")[2], "Accept-Encoding": "gzip", "User-Agent": _AGENT, "Accept": "*/*"}
    return [*((name, own[name]) for name in own if name.lower() not in given), *request.headers.items()]


def _is_redirect(response: Response) -> bool:
    return response.status in _REDIRECTS and "location" in response.headers


def _redirect(request: Request, response: Response) -> Request:
    try:
        url = urljoin(response.url, response.headers["location"])
    except ValueError:
        raise UrlRefusedError("Invalid URL in a redirect") from None
    if response.status in _KEEPS_METHOD or request.method in {"GET", "HEAD"}:
        return replace(request, url=url)
    headers = {name: value for name, value in request.headers.items() if name.lower() != "content-type"}
    return Request("GET", url, headers)


def _strip_headers(request: Request) -> Request:
    """Return the request without the headers meant for the original server; raise if it has a body."""
    if request.body:
        raise UrlRefusedError("Access denied: a redirect would send the body to another server")
    return replace(
        request, headers={name: text for name, text in request.headers.items() if name.lower() in _PUBLIC_HEADERS}
    )


class _IdentityDecoder:
    """The decoder of a body without compression."""

    def decode(self, chunk: bytes, room: int) -> bytes:
        """Return the decoded chunk, at most ``room`` bytes of it."""
        return chunk[:room]

    def check_end(self) -> None:
        """Accept any end: the HTTP library checks the length."""


class _GzipDecoder(_IdentityDecoder):
    """The decoder of a gzip body, which may have several members."""

    def __init__(self) -> None:
        self._started = 0
        self._member: Any = None

    def decode(self, chunk: bytes, room: int) -> bytes:
        """Return the decoded chunk, at most ``room`` bytes of it."""
        found, left = b"", chunk
        # Members may be padded with zeros.
        while len(found) < room and (left := left if self._member else left.lstrip(b"\0")):
            part, left = self._step(left, room - len(found))
            found += part
        return found

    def check_end(self) -> None:
        """Raise if the body ends in the middle of a member."""
        if self._member:
            raise FetchError("The response ends in the middle of its gzip data")

    def _step(self, chunk: bytes, room: int) -> tuple[bytes, bytes]:
        """Return the next bytes of the current member, and the rest of the chunk after it."""
        member = self._member or self._start_member()
        try:
            found = member.decompress(chunk, room)
        except zlib.error:
            raise FetchError("The response is not valid gzip") from None
        self._member = None if member.eof else member
        return found, member.unused_data

    def _start_member(self) -> Any:
        self._started += 1
        if self._started > _MAX_MEMBERS:
            raise FetchError(f"The response has more than {_MAX_MEMBERS} gzip members")
        return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _make_decoder(encoding: str) -> _IdentityDecoder:
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return _IdentityDecoder()
    if name not in {"gzip", "x-gzip"}:
        raise FetchError(f"The response has the unsupported content encoding {name[:40]!r}")
    return _GzipDecoder()


def _decode_header(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _describe(problem: Exception) -> str:
    return str(problem)[:200] or type(problem).__name__
