"""Change notifications for clients that subscribed to lists and resources.

Up to version 2025-11-25, a client that has listed something is notified through its session. From 2026-07-28 on, it
listens: the request ``subscriptions/listen`` stays open, and changes are sent on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from functools import partial
from typing import Any, Protocol, TypeAlias

from mcp.server import subscriptions
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.mcp._changes import follow_changes
from toolsemble.mcp._server.exchange import Caller, connection_of, current_caller, find_exchange

Lister: TypeAlias = Callable[[Caller], Awaitable[Any]]
"""Returns a caller's current list."""

LOGGER = logging.getLogger("toolsemble.mcp")
_EVENTS: Mapping[str, Callable[[], Any]] = {
    "tools": subscriptions.ToolsListChanged,
    "resources": subscriptions.ResourcesListChanged,
    "prompts": subscriptions.PromptsListChanged,
}
_SENDERS: Mapping[str, Callable[[ServerSession], Awaitable[None]]] = {
    "tools": ServerSession.send_tool_list_changed,
    "resources": ServerSession.send_resource_list_changed,
    "prompts": ServerSession.send_prompt_list_changed,
}
_MOST = 1000
_MOST_OF_A_CALLER = 100
_PAUSE = 0.2  # seconds between notifications: a function whose tools always differ must not cause a storm
_PATIENCE = 5.0  # send timeout of a notification, in seconds
_LONGEST_LISTING = 30.0


class ChangingList(Protocol):
    """The handlers of a changeable list."""

    listeners: Listeners | None
    """The clients to notify; None if the list cannot change."""

    @property
    def can_change(self) -> bool:
        """Whether the list can change."""
        ...

    async def list_now(self, caller: Caller) -> Any:
        """Return a caller's current list, for comparison."""
        ...


class Audience:
    """One caller's clients, and the lists last sent to them."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.bus = subscriptions.InMemorySubscriptionBus()
        self.answer = subscriptions.ListenHandler(self.bus, max_subscriptions=_MOST)
        self.streams = 0
        """The number of listening requests."""
        self.sessions: dict[int, ServerSession] = {}
        """The sessions of clients up to version 2025-11-25, by connection."""
        self.known: dict[str, Any] = {}
        """The lists last sent."""

    @property
    def size(self) -> int:
        """The number of subscribed clients."""
        return self.streams + len(self.sessions)

    async def notify(self, kind: str) -> None:
        """Notify all clients of a changed list."""
        await self.bus.publish(_EVENTS[kind]())
        send = _SENDERS[kind]
        await asyncio.gather(*(send_patiently(send(session)) for session in self.sessions.values()))


async def send_patiently(sending: Awaitable[None]) -> None:
    """Send a notification; give up if the client is gone or does not read."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await sending
    except Exception:
        LOGGER.debug("a notification was not sent", exc_info=True)


class Listeners:
    """Notifies clients of changed lists; bounded per caller and in total.

    :param lists: the changeable lists: functions of the caller, by kind ("tools", "resources" or "prompts")
    """

    def __init__(self, lists: Mapping[str, Lister]) -> None:
        self._lists = lists
        self._audiences: dict[tuple[str | None, ...], Audience] = {}
        self._due: set[Audience] = set()
        self._changed: set[tuple[Audience, str]] = set()
        self._worker: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Follow announced changes during the block; at its end, close all listeners."""
        stop = follow_changes(partial(self._note_announcement, asyncio.get_running_loop()))
        try:
            yield
        finally:
            stop()
            if self._worker is not None:
                self._worker.cancel()
                await asyncio.wait([self._worker])
            for audience in self._audiences.values():
                audience.answer.close()

    def _note_announcement(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop is closed: the block was abandoned
            loop.call_soon_threadsafe(self._check_all)

    def _check_all(self) -> None:
        for audience in self._audiences.values():
            self._check_soon(audience)

    async def listen(self, request: ServerRequestContext[Any, Any], params: Any) -> Any:
        """Handle ``subscriptions/listen``: send changes until the client disconnects."""
        audience = self._find(current_caller())
        if audience is None or audience.streams >= _MOST_OF_A_CALLER or self._count() >= _MOST:
            raise MCPError(INTERNAL_ERROR, "Too many requests listen already; end one of them first")
        audience.streams += 1
        self._check_soon(audience)  # the lists may have changed since they were sent
        try:
            return await audience.answer(request, params)
        finally:
            audience.streams -= 1

    def record(self, kind: str, request: ServerRequestContext[Any, Any], shown: Any) -> None:
        """Record a list sent to a client; notify its caller's other clients if it has changed."""
        audience = self._find(current_caller()) if kind in self._lists else None
        if audience is None:
            return
        if request.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._add_session(audience, request)
        self._compare(audience, kind, shown)

    def check_caller(self, caller: Caller) -> None:
        """Check for changes after a call, which may have caused them."""
        audience = self._audiences.get(caller.identity)
        if audience is not None:
            self._check_soon(audience)

    async def announce_resource(self, uri: str) -> None:
        """Notify listening clients of a changed resource."""
        for audience in list(self._audiences.values()):
            await audience.bus.publish(subscriptions.ResourceUpdated(uri=uri))

    def _add_session(self, audience: Audience, request: ServerRequestContext[Any, Any]) -> None:
        connection = connection_of(request)
        if id(connection) in audience.sessions:
            return
        if len(audience.sessions) >= _MOST_OF_A_CALLER or self._count() >= _MOST:
            LOGGER.warning("a client is not notified of changes: too many clients are subscribed")
            return
        audience.sessions[id(connection)] = request.session
        connection.exit_stack.callback(audience.sessions.pop, id(connection), None)

    def _find(self, caller: Caller) -> Audience | None:
        """Return a caller's audience; None if there are too many subscribers."""
        audience = self._audiences.get(caller.identity)
        if audience is None:
            if len(self._audiences) >= _MOST:
                idle = next((key for key, each in self._audiences.items() if not each.size), None)
                if idle is None:
                    return None
                del self._audiences[idle]
            audience = self._audiences[caller.identity] = Audience(caller)
        return audience

    def _count(self) -> int:
        return sum(each.size for each in self._audiences.values())

    def _compare(self, audience: Audience, kind: str, shown: Any) -> None:
        known = audience.known.get(kind, shown)
        audience.known[kind] = shown
        if known is not shown and known != shown and audience.size:
            self._changed.add((audience, kind))
            self._wake()

    def _check_soon(self, audience: Audience) -> None:
        if self._lists and audience.size:
            self._due.add(audience)
            self._wake()

    def _wake(self) -> None:
        if self._worker is None or self._worker.done():
            # A new context: the current request's caller does not apply to all lists.
            self._worker = asyncio.get_running_loop().create_task(self._work(), context=Context())

    async def _work(self) -> None:
        """Check due callers and notify them, until idle."""
        while self._due or self._changed:
            due, self._due = self._due, set()
            for audience in due:
                await self._check(audience)
            changed, self._changed = self._changed, set()
            await asyncio.gather(*(audience.notify(kind) for audience, kind in changed))
            await asyncio.sleep(_PAUSE)

    async def _check(self, audience: Audience) -> None:
        for kind, list_now in self._lists.items():
            try:
                async with asyncio.timeout(_LONGEST_LISTING):
                    self._compare(audience, kind, await list_now(audience.caller))
            except Exception:  # user code: the function of the caller
                LOGGER.warning("the %s of a caller cannot be listed", kind, exc_info=True)


SUBSCRIPTIONS = "toolsemble.subscriptions"
"""The key of a server's subscriptions in its lifespan state."""
_MOST_SUBSCRIPTIONS = 10_000


class Subscriptions:
    """The connections subscribed to resources, by URI; bounded."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._sessions: dict[str, dict[int, ServerSession]] = {}
        self._count = 0

    def add(self, request: ServerRequestContext[Any, Any], uri: str) -> None:
        """Subscribe a connection until it closes; raise ToolExecutionError if there are too many subscriptions."""
        connection = connection_of(request)
        sessions = self._sessions.setdefault(uri, {})
        if id(connection) in sessions:
            return
        if self._count >= _MOST_SUBSCRIPTIONS:
            raise ToolExecutionError("Too many subscriptions")
        self._count += 1
        sessions[id(connection)] = request.session
        connection.exit_stack.callback(self._remove, uri, id(connection))

    def remove(self, request: ServerRequestContext[Any, Any], uri: str) -> None:
        """Remove a connection's subscription, if there is one."""
        self._remove(uri, id(connection_of(request)))

    async def announce(self, uri: str) -> None:
        """Notify subscribed connections and listening clients of a changed resource."""
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
    """Notify clients subscribed to a changed resource; for tools served over MCP.

    >>> import asyncio
    >>> asyncio.run(announce_resource("docs://readme"))
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: announce_resource works only in tools, prompts and resources served by MCP
    """
    exchange = find_exchange("announce_resource")
    await exchange.on_loop(exchange.request.lifespan_context[SUBSCRIPTIONS].announce(uri))
