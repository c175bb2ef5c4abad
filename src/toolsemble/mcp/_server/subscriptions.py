"""Subscriptions to resources: which connections are told that a resource has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.mcp._server.exchange import connection_of, find_exchange
from toolsemble.mcp._server.listeners import Listeners, send_patiently

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession

SUBSCRIPTIONS = "toolsemble.subscriptions"
"""Where the subscriptions of a server are, in what lives as long as it does."""
_MOST = 10_000


class Subscriptions:
    """The connections that want to know when a resource changes, by its URI; bounded."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._sessions: dict[str, dict[int, ServerSession]] = {}
        self._count = 0

    def add(self, request: ServerRequestContext[Any, Any], uri: str) -> None:
        """Subscribe a connection until it ends; raise ToolExecutionError if there are too many subscriptions."""
        connection = connection_of(request)
        sessions = self._sessions.setdefault(uri, {})
        if id(connection) in sessions:
            return
        if self._count >= _MOST:
            raise ToolExecutionError("Too many subscriptions")
        self._count += 1
        sessions[id(connection)] = request.session
        connection.exit_stack.callback(self._remove, uri, id(connection))

    def remove(self, request: ServerRequestContext[Any, Any], uri: str) -> None:
        """End the subscription of a connection, if there is one."""
        self._remove(uri, id(connection_of(request)))

    async def announce(self, uri: str) -> None:
        """Tell the subscribed connections, and the clients that listen, that a resource has changed."""
        await self._listeners.announce_resource(uri)
        sessions = self._sessions.get(uri, {}).values()
        await asyncio.gather(*(send_patiently(session.send_resource_updated(uri)) for session in sessions))

    def _remove(self, uri: str, connection: int) -> None:
        sessions = self._sessions.get(uri, {})
        if sessions.pop(connection, None) is not None:
            self._count -= 1
        if not sessions:
            self._sessions.pop(uri, None)


async def announce_resource(uri: str) -> None:
    """Tell the clients that subscribed to a resource that it has changed; for tools that are served by MCP.

    >>> import asyncio
    >>> asyncio.run(announce_resource("docs://readme"))
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: announce_resource works only in tools, prompts and resources served by MCP
    """
    exchange = find_exchange("announce_resource")
    await exchange.on_loop(exchange.request.lifespan_context[SUBSCRIPTIONS].announce(uri))
