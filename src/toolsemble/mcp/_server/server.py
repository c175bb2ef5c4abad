"""The SDK's server for a toolbox: its handlers, and what lives as long as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import mcp_types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server

from toolsemble._engine.context import Exposure
from toolsemble.mcp._server.calls import ToolCalls
from toolsemble.mcp._server.exchange import set_log_level
from toolsemble.mcp._server.listeners import SUBSCRIPTIONS, ChangingList, Listeners, Subscriptions
from toolsemble.mcp._server.parking import Parking
from toolsemble.mcp._server.pass_through import PassThrough, Upstream
from toolsemble.mcp._server.resources import Prompts, PromptSource, Resources, ResourceSource
from toolsemble.mcp._server.source import ServedLock, Source, ToolSource

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
    resources: ResourceSource = ()
    """Functions that return resources, such functions by URI, or a function of the caller that returns either."""
    prompts: PromptSource = ()
    """Functions that return prompts, or a function of the caller that returns them."""
    lock: ServedLock | None = None
    """Decides which tools may be served; None: all."""
    upstreams: Sequence[Upstream] = ()
    """Other servers, whose resources and prompts are passed on."""
    deps: Any = None
    """What tools get as ``ToolContext.deps``."""
    is_hidden: Callable[[str], bool] = lambda _: False
    """Returns whether a lock hides a tool of this name, other than ``lock``."""

    def __post_init__(self) -> None:
        # Kept, because an application can be started again.
        for name in ("resources", "prompts"):
            given = getattr(self, name)
            if not isinstance(given, Mapping) and not callable(given):
                object.__setattr__(self, name, tuple(given))


class ListServer(Server[Any]):
    """The SDK's server, which states whether its lists can change."""

    changing: frozenset[str] = frozenset()
    """The lists that can change: "tools", "resources" and "prompts"."""

    def get_capabilities(self, *args: Any, **kwargs: Any) -> mcp_types.ServerCapabilities:
        """Return what the server can do."""
        found = super().get_capabilities(*args, **kwargs)
        for kind in ("tools", "resources", "prompts"):
            if (part := getattr(found, kind)) is not None:
                part.list_changed = kind in self.changing
        return found


def build_server(offer: Offer, expose_errors: Exposure) -> Server[Any]:
    """Return the SDK's server for an offer; raise ToolDefinitionError if it cannot be served."""
    source = Source(offer.source, offer.name, offer.instructions, offer.lock)
    parking = Parking()
    tools = ToolCalls(source, parking, expose_errors, offer.is_hidden, offer.deps)
    resources = Resources(offer.resources, parking, expose_errors)
    prompts = Prompts(offer.prompts, parking, expose_errors)
    lists: dict[str, ChangingList] = {"tools": tools, "resources": resources, "prompts": prompts}
    changing = {kind: each for kind, each in lists.items() if each.can_change}
    listeners = Listeners({kind: each.list_now for kind, each in changing.items()})
    for each in lists.values():
        each.listeners = listeners if changing else None  # a call of a tool may change the prompts

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        try:
            async with listeners.run():
                yield {SUBSCRIPTIONS: Subscriptions(listeners)}
        finally:
            await parking.close()

    lifetime = CacheHint(0 if tools.can_change else _FRESH)
    server = ListServer(
        offer.name or "toolsemble",
        version=version("toolsemble"),
        instructions=offer.instructions or None,
        lifespan=lifespan,
        on_list_tools=tools.list_tools,
        on_call_tool=tools.call_tool,
        cache_hints={"tools/list": lifetime},
        # Without it, the SDK lists all tools before each call.
        get_tool_input_schema=None if source.shared is None else tools.find_header_schema,
    )
    server.changing = frozenset(changing)
    _add_functions(server, resources, PassThrough(offer.upstreams, resources, prompts, parking))
    if changing or resources.served.is_offered:
        server.add_request_handler("subscriptions/listen", mcp_types.SubscriptionsListenRequestParams, listeners.listen)
    # Not as an argument: the SDK warns that it is deprecated in the newest version of the protocol.
    server.add_request_handler("logging/setLevel", mcp_types.SetLevelRequestParams, set_log_level)
    return server


def _add_functions(server: Server[Any], resources: Resources, handlers: PassThrough) -> None:
    """Add the handlers of resources, prompts and completion, for those that there are."""
    add = server.add_request_handler
    if handlers.has("resources"):
        add("resources/list", mcp_types.PaginatedRequestParams, handlers.list_resources)
        add("resources/templates/list", mcp_types.PaginatedRequestParams, handlers.list_templates)
        add("resources/read", mcp_types.ReadResourceRequestParams, handlers.read)
    if resources.served.is_offered:
        add("resources/subscribe", mcp_types.SubscribeRequestParams, resources.subscribe)
        add("resources/unsubscribe", mcp_types.UnsubscribeRequestParams, resources.unsubscribe)
    if handlers.has("prompts"):
        add("prompts/list", mcp_types.PaginatedRequestParams, handlers.list_prompts)
        add("prompts/get", mcp_types.GetPromptRequestParams, handlers.get_prompt)
    if handlers.has("resources") or handlers.has("prompts"):
        add("completion/complete", mcp_types.CompleteRequestParams, handlers.complete)
