"""A client's request: its caller, its session, and messages back to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from toolsemble._vocabulary.errors import ToolConfigurationError, ToolExecutionError

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import InputRequest


_PREFIXES = ("client:", "subject:")
_NO_CLAIMS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Caller:
    """The user and client program that call a served tool; empty without authentication.

    It has no token, so that no tool can forward one.

    >>> Caller(subject="ada", scopes=("read",)).memory_id
    'ada'
    >>> Caller().subject is None
    True
    """

    subject: str | None = None
    """The user, from the verified token; None without one."""
    client_id: str | None = None
    """The client program, from the verified token; None without one."""
    scopes: tuple[str, ...] = ()
    """The token's scopes."""
    claims: Mapping[str, Any] = field(default_factory=lambda: _NO_CLAIMS, hash=False)
    """Other claims of the token."""

    @property
    def memory_id(self) -> str | None:
        """The memory id of the caller's calls: the user, else ``client:`` and the client; None: the toolbox's.

        A user and a client of the same name never share it.

        >>> [caller.memory_id for caller in (Caller("ada"), Caller(client_id="ada"), Caller("client:ada"))]
        ['ada', 'client:ada', 'subject:client:ada']
        """
        if self.subject:
            return f"subject:{self.subject}" if self.subject.startswith(_PREFIXES) else self.subject
        return f"client:{self.client_id}" if self.client_id else None

    @property
    def identity(self) -> tuple[str | None, ...]:
        """The caller's identity: client, token issuer, and user."""
        issuer = self.claims.get("iss")
        return self.client_id, None if issuer is None else str(issuer), self.subject


_ANONYMOUS = Caller()


def current_caller() -> Caller:
    """Return the caller of the current request.

    >>> current_caller()
    Caller(subject=None, client_id=None, scopes=(), claims=mappingproxy({}))
    """
    from mcp.server.auth.middleware.auth_context import get_access_token

    token = get_access_token()
    if token is None:
        return _ANONYMOUS
    return Caller(token.subject, token.client_id, tuple(token.scopes), MappingProxyType(dict(token.claims or {})))


Level: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The log levels, as in syslog."""

_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_LEVELS: tuple[Level, ...] = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LOG_LEVEL = "toolsemble.log_level"
_T = TypeVar("_T")


class MissingCapabilityError(ToolExecutionError):
    """Signals that the client did not declare a required capability."""


class Exchange:
    """The client request of a call, for asking that client; usable from any thread.

    This class sends requests immediately, as the protocol allows up to version 2025-11-25.
    """

    def __init__(self, request: ServerRequestContext[Any, Any]) -> None:
        self.request = request
        self.is_attached = True
        self.missing: str | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def is_modern(self) -> bool:
        """Whether the protocol version forbids server requests: 2026-07-28 or later."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        return self.request.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def can_elicit(self) -> bool:
        """Whether the client can show a form to its user."""
        declared = self.request.session.client_capabilities
        elicitation = None if declared is None else declared.elicitation
        # An empty object means forms, the only mode of the first protocol version.
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)

    def has_capability(self, method: str) -> bool:
        """Return whether the client declared support for a method."""
        if method == "elicitation/create":
            return self.can_elicit
        return getattr(self.request.session.client_capabilities, _CAPABILITIES[method], None) is not None

    async def ask(self, request: InputRequest, key: str | None = None) -> Any:
        """Return the client's answer to a request; raise MissingCapabilityError if it cannot answer."""
        if not self.has_capability(request.method):
            self.missing = _CAPABILITIES[request.method]
            raise MissingCapabilityError(
                f"The client cannot answer {request.method}: it does not declare the capability '{self.missing}'"
            )
        return await self.on_loop(self._send(request, key))

    async def on_loop(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run work on the server's event loop; a sync tool asks from another one."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _send(self, request: InputRequest, key: str | None) -> Any:
        from mcp.shared.message import ServerMessageMetadata

        _ = key  # only returned requests have one
        related = ServerMessageMetadata(related_request_id=self.request.request_id)
        return await self.request.session.send_request(request, _result_type(request.method), metadata=related)

    async def log(self, level: Level, data: Any) -> None:
        """Send a log message with the current request, if its client requested this level."""
        from mcp.server.connection import allowed_log_levels
        from mcp_types import LoggingMessageNotification, LoggingMessageNotificationParams

        request = self.request
        least = _LEVELS.index(connection_of(request).state.get(_LOG_LEVEL, _LEVELS[0]))
        is_wanted = level in allowed_log_levels(request.protocol_version, request.meta)
        if self.is_attached and is_wanted and _LEVELS.index(level) >= least:
            message = LoggingMessageNotification(params=LoggingMessageNotificationParams(level=level, data=data))
            await self.on_loop(request.session.send_notification(message, request.request_id))

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send the call's progress with the current request; drop it while there is none."""
        if self.is_attached:
            await self.request.session.report_progress(progress, total, message)


_current: ContextVar[Exchange | None] = ContextVar("toolsemble.mcp.exchange", default=None)


@contextmanager
def use_exchange(exchange: Exchange) -> Iterator[None]:
    """Use an exchange for :func:`ask_client` within the block."""
    token = _current.set(exchange)
    try:
        yield
    finally:
        _current.reset(token)


async def ask_client(request: InputRequest, *, key: str | None = None) -> Any:
    """Send a request to the current call's client, and return its answer; for tools served over MCP.

    It works in every protocol version: if servers cannot send requests, the call waits until the client sends it again
    with the answer. If the client did not declare the capability, its own request fails.

    :param request: a request of the SDK: ``ElicitRequest``, ``CreateMessageRequest`` or ``ListRootsRequest``
    :param key: the question's name in version 2026-07-28; default: a new one

    >>> import asyncio
    >>> from mcp_types import ListRootsRequest
    >>> asyncio.run(ask_client(ListRootsRequest()))
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: ask_client works only in tools, prompts and resources served by MCP
    """
    return await find_exchange("ask_client").ask(request, key)


async def log_to_client(level: Level, data: Any) -> None:
    """Send a log message to the current call's client; do nothing outside a call served over MCP.

    :param level: "debug", "info", "notice", "warning", "error", "critical", "alert" or "emergency"
    :param data: a text, or any JSON value

    >>> import asyncio
    >>> asyncio.run(log_to_client("info", "page 1 of 10"))
    """
    exchange = _current.get()
    if exchange is not None:
        await exchange.log(level, data)


def find_exchange(user: str) -> Exchange:
    """Return the current call's exchange; raise ToolConfigurationError if it is not served over MCP."""
    exchange = _current.get()
    if exchange is None:
        raise ToolConfigurationError(f"{user} works only in tools, prompts and resources served by MCP")
    return exchange


async def set_log_level(request: ServerRequestContext[Any, Any], params: Any) -> dict[str, Any]:
    """Handle ``logging/setLevel``: store this connection's minimum level."""
    connection_of(request).state[_LOG_LEVEL] = params.level
    return {}


def connection_of(request: ServerRequestContext[Any, Any]) -> Any:
    """Return a request's connection, with its state and cleanup."""
    return request.session._connection  # noqa: SLF001 - the SDK has no public way to it


def _result_type(method: str) -> Any:
    import mcp_types

    return {
        "elicitation/create": mcp_types.ElicitResult,
        "sampling/createMessage": mcp_types.CreateMessageResult,
        "roots/list": mcp_types.ListRootsResult,
    }[method]
