"""A server over streamable HTTP, as an ASGI application: checked hosts and origins, bearer tokens, bounded bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolsemble._runtime.http_server import Hosts
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.mcp._server.server import Offer, build_server

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-_[]:")


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules of a server over HTTP."""

    allowed_hosts: Iterable[str] = ()
    """Its host names, without ports; loopback is always allowed."""
    auth: TokenVerifier | None = None
    """Verifies bearer tokens; None: no authentication."""
    issuer_url: str | None = None
    """The authorization server that issues the tokens."""
    resource_url: str | None = None
    """This server's URL, as in the tokens."""

    def __post_init__(self) -> None:
        if isinstance(self.allowed_hosts, str):
            raise ToolConfigurationError(f"allowed_hosts must be a list of names, not {self.allowed_hosts!r:.80}")
        object.__setattr__(self, "allowed_hosts", tuple(_check_host(each) for each in self.allowed_hosts))
        if (self.issuer_url is None) != (self.resource_url is None):
            raise ToolConfigurationError("issuer_url and resource_url belong together; set both or neither")
        if self.issuer_url is not None and self.auth is None:
            raise ToolConfigurationError(
                "issuer_url and resource_url need auth: a TokenVerifier that checks the tokens"
            )


class McpApplication:
    """An ASGI application that serves tools at ``/mcp``; mount it, and run its :meth:`lifespan` with the host's.

    A standalone application handles its own lifespan.
    """

    def __init__(self, offer: Offer, access: Access) -> None:
        self._offer = offer
        self._access = access
        self._hosts = Hosts.build(access.allowed_hosts, addresses=False)
        self._app: Starlette | None = None
        # Report invalid definitions and settings here, not on the first request.
        _build_app(build_server(offer, "declared"), access)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Run the server during the block: pass it to Starlette or FastAPI as ``lifespan``.

        It can be started again after it has ended.
        """
        _ = app
        server = build_server(self._offer, "declared")
        built = _build_app(server, self._access)
        async with server.session_manager.run():
            self._app = built
            try:
                yield
            finally:
                self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the application's lifespan."""
        if scope["type"] == "lifespan":
            await Starlette(lifespan=self._run_lifespan)(scope, receive, send)
            return
        if self._app is None:
            raise ToolConfigurationError(
                "The MCP application is not started: pass its .lifespan to the application that it is mounted in"
            )
        app = self._app if scope["type"] != "http" else self._check_headers(Headers(scope=scope)) or self._app
        await app(scope, receive, send)

    def _check_headers(self, headers: Headers) -> Response | None:
        """Return the rejection of a request with a foreign host, or with two lengths.

        The SDK also checks host names, but accepts any text after a colon as a port.
        """
        if not self._hosts.accepts(headers.get("host", "")):
            return Response("Invalid Host header", 421)
        origin = headers.get("origin")
        if origin is not None and not self._hosts.accepts_origin(origin):
            return Response("Invalid Origin header", 403)
        if "content-length" in headers and "transfer-encoding" in headers:
            return Response("A body has either a Content-Length or a Transfer-Encoding, not both", 400)
        return None

    @asynccontextmanager
    async def _run_lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self.lifespan():
            yield


def _build_app(server: Any, access: Access) -> Starlette:
    settings = _auth_settings(access)
    app: Starlette = server.streamable_http_app(
        transport_security=transport_security(access.allowed_hosts), auth=settings, token_verifier=access.auth
    )
    if access.auth is not None and settings is None:
        # Without OAuth URLs, the SDK does not read tokens itself.
        app.add_middleware(AuthContextMiddleware)
        app.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(access.auth))
    return app


def _auth_settings(access: Access) -> AuthSettings | None:
    if access.issuer_url is None or access.resource_url is None:
        return None
    urls = {"issuer_url": access.issuer_url, "resource_server_url": access.resource_url}
    try:
        # From texts: an issuer is compared verbatim, and a URL object would add a trailing slash.
        return AuthSettings.model_validate({**urls, "validate_token_resource": True})
    except ValidationError as problem:
        wrong = problem.errors()[0]
        raise ToolConfigurationError(f"{wrong['loc'][0]} must be a URL: {wrong['msg']}") from None


def transport_security(allowed_hosts: Iterable[str]) -> TransportSecuritySettings:
    """Return the permitted hosts and origins: loopback and allowed hosts, with any port.

    >>> transport_security(["tools.example.com"]).allowed_hosts[-2:]
    ['tools.example.com', 'tools.example.com:*']
    """
    names = [*_LOOPBACK, *allowed_hosts]
    hosts = [host for name in names for host in (name, f"{name}:*")]
    origins = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


def check_address(address: str, allowed_hosts: Iterable[str]) -> tuple[str, int]:
    """Return the host and port to listen on; raise ToolConfigurationError for a public address without host names.

    >>> check_address("127.0.0.1:8000", ())
    ('127.0.0.1', 8000)
    """
    host, port = split_address(address)
    if not is_loopback(host) and not tuple(allowed_hosts):
        raise ToolConfigurationError(
            f"http={address!r} can be reached from other machines: pass allowed_hosts=[...] with the names under which "
            "clients reach it; on the command line --allow-host NAME"
        )
    return host, port


_MAX_PORT = 65535


def split_address(address: str) -> tuple[str, int]:
    """Return the host and the port of an address such as ``127.0.0.1:8000`` or ``[::1]:8000``.

    >>> split_address("[::1]:8000")
    ('::1', 8000)
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
        raise ToolConfigurationError(f"http must be an address such as '127.0.0.1:8000', not {address!r:.80}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable only from this machine.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _check_host(name: object) -> str:
    """Return a Host header name in lower case; raise if it has a port, a scheme or a wildcard."""
    text = name.lower() if isinstance(name, str) else ""
    has_port = ":" in text and not text.startswith("[")
    if not text or has_port or not _HOST_CHARACTERS.issuperset(text):
        raise ToolConfigurationError(
            f"allowed_hosts must be names without a scheme or a port, such as 'tools.example.com', not {name!r:.80}"
        )
    return text
