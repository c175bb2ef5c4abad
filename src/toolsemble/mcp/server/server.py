"""The SDK's server for a toolbox: its handlers, and what lives as long as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp_types import (
    CompleteRequestParams,
    GetPromptRequestParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)

from toolsemble.context import Exposure
from toolsemble.mcp.server.calls import ToolCalls
from toolsemble.mcp.server.completion import Completions
from toolsemble.mcp.server.exchange import set_log_level
from toolsemble.mcp.server.parking import Parking
from toolsemble.mcp.server.prompts import Prompts
from toolsemble.mcp.server.resources import Functions, Resources
from toolsemble.mcp.server.served_lock import ServedLock, is_lockable
from toolsemble.mcp.server.source import Source, ToolSource
from toolsemble.mcp.server.subscriptions import SUBSCRIPTIONS, Subscriptions

_FRESH = 60_000  # milliseconds for which clients may keep a list that does not change


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools to serve, and how the server introduces itself."""

    source: ToolSource
    """A toolbox, an agent, tools, or a function of the caller."""
    name: str | None = None
    """The name of the server, and of the tool that an agent becomes; None: a default for each."""
    instructions: str = ""
    """How to use the server, for the client's model."""
    resources: Functions = ()
    """Functions that return resources, or such functions by URI."""
    prompts: Iterable[Callable[..., Any]] = ()
    """Functions that return prompts."""
    lock: ServedLock | None = None
    """Decides which tools may be served; None: all."""

    def __post_init__(self) -> None:
        # Kept, because an application can be started again.
        resources = self.resources if isinstance(self.resources, Mapping) else tuple(self.resources)
        object.__setattr__(self, "resources", resources)
        object.__setattr__(self, "prompts", tuple(self.prompts))


def build_server(offer: Offer, expose_errors: Exposure) -> Server[Any]:
    """Return the SDK's server for an offer; raise ToolDefinitionError if it cannot be served."""
    source = Source(offer.source, offer.name, offer.instructions, offer.lock)
    parking = Parking()
    tools = ToolCalls(source, parking, expose_errors)

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        try:
            yield {SUBSCRIPTIONS: Subscriptions()}
        finally:
            await parking.close()

    is_lasting = source.fixed is not None and not any(map(is_lockable, source.fixed))
    lifetime = CacheHint(_FRESH if is_lasting else 0)
    server: Server[Any] = Server(
        offer.name or "toolsemble",
        version=version("toolsemble"),
        instructions=offer.instructions or None,
        lifespan=lifespan,
        on_list_tools=tools.list_tools,
        on_call_tool=tools.call_tool,
        cache_hints={"tools/list": lifetime},
        # Without it, the SDK lists all tools before each call.
        get_tool_input_schema=tools.find_schema if source.fixed is not None else None,
    )
    _add_functions(server, offer, parking, expose_errors)
    # Not as an argument: the SDK warns that it is deprecated in the newest version of the protocol.
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_log_level)
    return server


def _add_functions(server: Server[Any], offer: Offer, parking: Parking, expose_errors: Exposure) -> None:
    """Add the handlers of resources, prompts and completion, for those that there are."""
    resources = Resources(offer.resources, parking, expose_errors)
    prompts = Prompts(offer.prompts, parking, expose_errors)
    add = server.add_request_handler
    if resources.served:
        add("resources/list", PaginatedRequestParams, resources.list_resources)
        add("resources/templates/list", PaginatedRequestParams, resources.list_templates)
        add("resources/read", ReadResourceRequestParams, resources.read)
        add("resources/subscribe", SubscribeRequestParams, resources.subscribe)
        add("resources/unsubscribe", UnsubscribeRequestParams, resources.unsubscribe)
    if prompts.served:
        add("prompts/list", PaginatedRequestParams, prompts.list_prompts)
        add("prompts/get", GetPromptRequestParams, prompts.get)
    if resources.served or prompts.served:
        add("completion/complete", CompleteRequestParams, Completions(prompts, resources).complete)
