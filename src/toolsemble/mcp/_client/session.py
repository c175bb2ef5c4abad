"""One session with a server: the handshake, its lists and its calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from contextvars import Context
from importlib.metadata import version
from typing import Any, Protocol

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from mcp import Client
from mcp.client import session as sdk
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolsemble._runtime.checks import format_seconds
from toolsemble._runtime.text import describe_error, preview
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolsembleError
from toolsemble.mcp._client.dispatcher import build_client
from toolsemble.mcp._client.options import Options
from toolsemble.mcp._client.process_group import LOGGER
from toolsemble.mcp._client.remote_call import Delivery, current_call
from toolsemble.mcp._client.results import describe_refusal, find_cause, is_not_admitted
from toolsemble.mcp._client.text_cleaning import LIST_RESOURCES, PROMPT, READ_RESOURCE, Listing, RemoteDefinition
from toolsemble.mcp._client.tool_screening import Screen

_MAX_PAGES = 100

_READS = {"readOnlyHint": True}
_CURSOR = {"type": "string", "description": "Where to continue, as an earlier list says; leave it out to begin"}
_URI = {"type": "string", "description": "The URI of a resource"}


async def list_tools(client: Any, screen: Screen, options: Options) -> Listing:
    """Return the selected tools; raise ToolConfigurationError if the server has too many tools or pages."""
    capabilities = client.server_capabilities
    found = {} if capabilities.tools is None else await _list_own_tools(client, screen, options)
    if options.prompt_tools and capabilities.prompts is not None:
        for each in await _list_prompts(client, options):
            found.setdefault(each.name, each)
    if options.resource_tools and capabilities.resources is not None:
        for each in _resource_tools():
            found.setdefault(each.name, each)
    return Listing(tuple(each for each in found.values() if options.takes(each.name)), tuple(found.values()))


async def _list_own_tools(client: Any, screen: Screen, options: Options) -> dict[str, RemoteDefinition]:
    found: dict[str, RemoteDefinition] = {}
    try:
        async for page in list_pages(client.list_tools, "tools", options):
            for tool in page:
                found.setdefault(tool.name, screen.listed[tool.name])
    finally:
        screen.listed.clear()  # a server may list different tools each time
        _forget_others(client.session, found)
    return found


def _forget_others(session: Any, found: dict[str, RemoteDefinition]) -> None:
    """Make the SDK drop tools that are no longer listed; it does so only for single-page lists."""
    for kept in ("_tool_output_schemas", "_x_mcp_header_maps"):
        known = getattr(session, kept, {})
        for name in known.keys() - found.keys():
            del known[name]


async def list_pages(fetch: Callable[..., Any], key: str, options: Options) -> AsyncIterator[list[Any]]:
    """Yield the items of each page of a list; raise if there are too many."""
    count, cursor = 0, None
    for _ in range(_MAX_PAGES):
        page = await fetch(cursor=cursor, cache_mode="bypass")
        items = getattr(page, key)
        count += len(items)
        if count > options.max_tools:
            raise ToolConfigurationError(
                f"it has more than {options.max_tools} {key} (max_tools); let it offer fewer, or allow more"
            )
        yield items
        cursor = page.next_cursor
        if cursor is None:
            return
    raise ToolConfigurationError(f"its list of {key} has more than {_MAX_PAGES} pages")


async def _list_prompts(client: Any, options: Options) -> list[RemoteDefinition]:
    """Return a tool for each prompt; log a warning and return none if the list is invalid."""
    try:
        return [
            _define_prompt(each) async for page in list_pages(client.list_prompts, "prompts", options) for each in page
        ]
    except (MCPError, ValidationError) as problem:
        LOGGER.warning("The prompts of %s cannot be listed: %.200s", options.name, problem)
        return []


def _define_prompt(prompt: Any) -> RemoteDefinition:
    arguments = prompt.arguments or []
    schema = {
        "type": "object",
        "properties": {each.name: {"type": "string", "description": each.description or ""} for each in arguments},
        "required": [each.name for each in arguments if each.required],
        "additionalProperties": False,
    }
    described = prompt.description or f"Returns the prompt {prompt.name}"
    return RemoteDefinition(f"prompt_{prompt.name}", prompt.title, described, schema, None, _READS, PROMPT, prompt.name)


def _resource_tools() -> Iterator[RemoteDefinition]:
    listed = {"type": "object", "properties": {"cursor": _CURSOR}, "additionalProperties": False}
    what = "Lists the resources of the server, which read_resource reads"
    yield RemoteDefinition(LIST_RESOURCES, None, what, listed, None, _READS, LIST_RESOURCES)
    read = {"type": "object", "properties": {"uri": _URI}, "required": ["uri"], "additionalProperties": False}
    yield RemoteDefinition(READ_RESOURCE, None, "Reads a resource of the server", read, None, _READS, READ_RESOURCE)


_REFUSALS = (MCPError, BrokenResourceError, ClosedResourceError)
_CLIENT = types.Implementation(name="toolsemble", version=version("toolsemble"))
_MAX_CAUSE = 1000
_PATIENCE = 10.0


class Target(Protocol):
    """A connectable server."""

    @property
    def what(self) -> str:
        """The participle for error messages: "started" or "reached"."""
        ...

    @property
    def is_program(self) -> bool:
        """Whether it is a program, whose restarts are limited."""
        ...

    def open(self, screen: Screen, server: str, on_end: Callable[[], object]) -> Any:
        """Return a new SDK transport; its ``errors`` has the server's standard error."""
        ...


class Session:
    """One connection to a server: the SDK's client, and the server's tool list.

    :param may_ask: whether the handshake declares elicitation
    :param callbacks: the SDK client's callbacks
    """

    def __init__(self, target: Target, options: Options, callbacks: dict[str, Any], *, may_ask: bool) -> None:
        self._options = options
        self._target = target
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._owner: Any = None
        self._listener: asyncio.Task[None] | None = None
        self._delivery = Delivery()
        self.may_ask = may_ask
        self.calls = 0
        """The number of calls made."""
        self.problem = ""
        """Why the connection was closed; "" if it was not."""
        self.is_misjudged = False
        """Whether the start failed because the SDK mistook a slow server for an older version."""
        self.screen = Screen(
            options.name,
            max_message=options.max_message,
            max_tools=options.max_tools,
            may_ask=may_ask,
            on_break=self.break_off,
        )
        self._transport = target.open(self.screen, options.name, self._stop.set)
        self._callbacks = callbacks

    @property
    def client(self) -> Client:
        """The client of the SDK; it exists as soon as the session is open."""
        return self._ready.result()

    @property
    def is_alive(self) -> bool:
        """Whether calls can be sent."""
        return not self._stop.is_set()

    @property
    def is_modern(self) -> bool:
        """Whether each request declares the client's capabilities, independently of the handshake."""
        return self._ready.result().session.discover_result is not None

    async def open(self, seconds: float) -> Listing:
        """Connect, and return the server's tools; raise ToolsembleError if that fails or takes too long."""
        loop = asyncio.get_running_loop()
        late = loop.time() + getattr(sdk, "DISCOVER_TIMEOUT_SECONDS", 10.0)
        # A new context: it must not inherit the call that triggered a restart.
        self._owner = asyncio.get_running_loop().create_task(self._own(), context=Context())
        try:
            async with asyncio.timeout(seconds):
                return await self._list_tools(await asyncio.shield(self._ready))
        except BaseException as error:
            self._transport.grace = 0.0
            await self.close()
            if not isinstance(error, Exception):
                raise
            # The SDK requested an older version because the answer, or a sign-in, took too long.
            # If the answer arrives after all, the stream is already closed.
            refused = isinstance(find_cause(error), _REFUSALS) and not self._target.is_program
            self.is_misjudged = refused and loop.time() >= late
            raise self._explain(error) from find_cause(error)

    async def _list_tools(self, client: Client) -> Listing:
        token = current_call.set(self._delivery)  # not the call that triggered a restart
        try:
            return await list_tools(client, self.screen, self._options)
        finally:
            current_call.reset(token)

    def _explain(self, error: Exception) -> ToolsembleError:
        cause = find_cause(error)
        if isinstance(error, TimeoutError):
            why = f"no answer within {format_seconds(self._options.connect_timeout)} (connect_timeout)"
        elif self.problem:
            why = self.problem
        elif isinstance(cause, MCPError) and cause.code == types.CONNECTION_CLOSED and self._target.is_program:
            why = "it ended before it answered"
        else:
            why = describe_refusal(cause, self._delivery) or preview(describe_error(cause), _MAX_CAUSE)
            if is_not_admitted(cause, self._delivery):
                why += "; pass auth= or headers= that it accepts"
        written = str(getattr(self._transport, "errors", ""))
        more = f"; it wrote to standard error: {written}" if written else ""
        return ToolConfigurationError(
            f"The MCP server '{self._options.name}' cannot be {self._target.what}: {why}{more}"
        )

    async def _own(self) -> None:
        """Hold the connection open: enter and exit it in this one task."""
        current_call.set(self._delivery)
        try:
            async with build_client(self._transport, client_info=_CLIENT, cache=None, **self._callbacks) as client:
                self._ready.set_result(client)
                await self._stop.wait()
        except BaseException as error:  # also the cancellation by the SDK's own scopes
            LOGGER.debug("The connection to %s broke", self._options.name, exc_info=error)
            with suppress(asyncio.InvalidStateError):  # it broke later
                self._ready.set_exception(find_cause(error))
        finally:
            self._stop.set()
            self._ready.exception()  # there may be no waiter

    def break_off(self, problem: str) -> None:
        """Close the connection immediately, because the server misbehaves."""
        LOGGER.warning("Closed the connection to %s: %s", self._options.name, problem)
        self.problem = problem
        self._transport.grace = 0.0
        self._stop.set()

    async def close(self) -> None:
        """Close the connection, and wait until it is closed."""
        self._stop.set()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
        if not self._ready.done():
            self._owner.cancel()  # it is waiting for a handshake answer
        if (await asyncio.wait([self._owner], timeout=_PATIENCE))[1]:
            self._owner.cancel()  # a server that does not answer the shutdown
            await asyncio.wait([self._owner], timeout=_PATIENCE)

    def listen(self, on_change: Callable[[], object]) -> None:
        """Call a function whenever the server reports changed tools."""
        capability = self.client.server_capabilities.tools
        if self.is_modern and capability is not None and capability.list_changed:
            self._listener = asyncio.get_running_loop().create_task(self._listen(on_change), context=Context())

    async def _listen(self, on_change: Callable[[], object]) -> None:
        try:
            async with self.client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    on_change()
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError) as error:
            LOGGER.debug("%s does not report changes of its tools: %s", self._options.name, error)
