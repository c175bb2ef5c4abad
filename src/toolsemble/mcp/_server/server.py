"""The SDK's server for a toolbox: its handlers and lifespan state."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, Protocol

import mcp_types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CompleteRequestParams, GetPromptRequestParams, ReadResourceRequestParams

from toolsemble._engine.context import Exposure, ToolContext
from toolsemble._vocabulary.errors import ToolExecutionError, ToolsembleError
from toolsemble.mcp._server.calls import ToolCalls
from toolsemble.mcp._server.elicitation import ElicitedReview
from toolsemble.mcp._server.exchange import Exchange, current_caller, set_log_level
from toolsemble.mcp._server.listeners import SUBSCRIPTIONS, ChangingList, Listeners, Subscriptions
from toolsemble.mcp._server.parking import Parking
from toolsemble.mcp._server.resources import Completions, Prompts, PromptSource, Resources, ResourceSource
from toolsemble.mcp._server.source import ServedLock, Source, ToolSource

LOGGER = logging.getLogger("toolsemble.mcp")


class Upstream(Protocol):
    """Another server, whose resources and prompts are forwarded under unique names."""

    name: str
    """Its name, for logs."""
    uri_prefix: str
    """The prefix of its resource URIs here."""
    prompt_prefix: str
    """The prefix of its prompt names here."""

    def offers(self, kind: str) -> bool:
        """Return whether it has ``"resources"`` or ``"prompts"`` to forward."""
        ...

    async def list_resources(self) -> list[Any]:
        """Return its resources with their names here."""
        ...

    async def list_templates(self) -> list[Any]:
        """Return its resource templates."""
        ...

    async def list_prompts(self) -> list[Any]:
        """Return its prompts."""
        ...

    async def read(self, uri: str, context: ToolContext) -> Any:
        """Return the contents of a resource."""
        ...

    async def get_prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Any:
        """Return the messages of a prompt."""
        ...

    async def complete(self, params: CompleteRequestParams) -> Any:
        """Return values for a prompt or template argument."""
        ...


class PassThrough:
    """The handlers of a server that forwards other servers' resources and prompts, beside its own.

    :param upstreams: the other servers
    """

    def __init__(self, upstreams: Sequence[Upstream], resources: Resources, prompts: Prompts, parking: Parking) -> None:
        # Longest prefix first: one may be a prefix of another.
        self._upstreams = sorted(upstreams, key=lambda each: len(each.prompt_prefix), reverse=True)
        self._resources = resources
        self._prompts = prompts
        self._completions = Completions(prompts, resources)
        self._parking = parking

    def has(self, kind: str) -> bool:
        """Return whether there are ``"resources"`` or ``"prompts"``, from this server or another."""
        own = self._resources.served if kind == "resources" else self._prompts.served
        return own.is_offered or any(each.offers(kind) for each in self._upstreams)

    async def list_resources(self, request: ServerRequestContext[Any, Any], params: Any) -> Any:
        """Return all resources without variables."""
        own = await self._resources.list_resources(request, params)
        found = [each for up, each in await self._list("list_resources") if self._find_by_uri(each.uri) is up]
        return own.model_copy(update={"resources": [*own.resources, *found]})

    async def list_templates(self, request: ServerRequestContext[Any, Any], params: Any) -> Any:
        """Return all resource templates."""
        own = await self._resources.list_templates(request, params)
        found = [each for up, each in await self._list("list_templates") if self._find_by_uri(each.uri_template) is up]
        return own.model_copy(update={"resource_templates": [*own.resource_templates, *found]})

    async def list_prompts(self, request: ServerRequestContext[Any, Any], params: Any) -> Any:
        """Return all prompts."""
        own = await self._prompts.list_prompts(request, params)
        found = [each for up, each in await self._list("list_prompts") if self._find_by_prompt(each.name) is up]
        return own.model_copy(update={"prompts": [*own.prompts, *found]})

    async def read(self, request: ServerRequestContext[Any, Any], params: ReadResourceRequestParams) -> Any:
        """Return a resource's contents; raise for an unknown one."""
        uri = str(params.uri)
        upstream = self._find_by_uri(uri)
        if upstream is None:
            return await self._resources.read(request, params)

        async def work(exchange: Exchange) -> Any:
            return await _ask(partial(upstream.read, uri), exchange)

        return await self._parking.run(request, params, {}, current_caller(), work)

    async def get_prompt(self, request: ServerRequestContext[Any, Any], params: GetPromptRequestParams) -> Any:
        """Return a prompt's messages; raise for an unknown one."""
        upstream = self._find_by_prompt(params.name)
        if upstream is None:
            return await self._prompts.get(request, params)
        arguments = dict(params.arguments or {})

        async def work(exchange: Exchange) -> Any:
            return await _ask(partial(upstream.get_prompt, params.name, arguments), exchange)

        return await self._parking.run(request, params, arguments, current_caller(), work)

    async def complete(self, request: ServerRequestContext[Any, Any], params: CompleteRequestParams) -> Any:
        """Return values for a prompt or template argument."""
        reference: Any = params.ref
        is_prompt = reference.type == "ref/prompt"
        upstream = self._find_by_prompt(reference.name) if is_prompt else self._find_by_uri(reference.uri)
        if upstream is None:
            return await self._completions.complete(request, params)
        try:
            return await upstream.complete(params)
        except ToolExecutionError as error:
            raise _translate(error) from error

    async def _list(self, method: str) -> Iterable[tuple[Upstream, Any]]:
        """Return all other servers' items; skip a failing server with a warning."""
        found: list[tuple[Upstream, Any]] = []
        for upstream in self._upstreams:
            if not upstream.offers("prompts" if method == "list_prompts" else "resources"):
                continue
            try:
                found += [(upstream, each) for each in await getattr(upstream, method)()]
            except ToolsembleError as problem:
                LOGGER.warning("Skipped %s in %s: %.500s", upstream.name, method, problem)
        return found

    def _find_by_uri(self, uri: str) -> Upstream | None:
        return next((each for each in self._upstreams if uri.startswith(each.uri_prefix)), None)

    def _find_by_prompt(self, name: str) -> Upstream | None:
        return next((each for each in self._upstreams if name.startswith(each.prompt_prefix)), None)


async def _ask(send: Any, exchange: Exchange) -> Any:
    """Return another server's answer; forward its questions to the client's user."""
    try:
        return await send(ToolContext(review=ElicitedReview(exchange)))
    except ToolExecutionError as error:
        raise _translate(error) from error


def _translate(error: ToolExecutionError) -> MCPError:
    code = error.error_code
    return MCPError(code if isinstance(code, int) else INTERNAL_ERROR, str(error))


_FRESH = 60_000  # cache lifetime of an immutable list at clients, in milliseconds


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools to serve, and the server's self-description."""

    source: ToolSource
    """A toolbox, an agent, tools, or a function of the caller."""
    name: str | None = None
    """The name of the server, or of an agent's tool; None: the defaults."""
    instructions: str = ""
    """How to use the server, for the client's model."""
    resources: ResourceSource = ()
    """Functions that return resources, such functions by URI, or a function of the caller that returns either."""
    prompts: PromptSource = ()
    """Functions that return prompts, or a function of the caller that returns them."""
    lock: ServedLock | None = None
    """The lock on the tools; None: all are served."""
    upstreams: Sequence[Upstream] = ()
    """Other servers, whose resources and prompts are forwarded."""
    deps: Any = None
    """The tools' ``ToolContext.deps``."""
    is_hidden: Callable[[str], bool] = lambda _: False
    """Returns whether a lock other than ``lock`` hides a tool with this name."""

    def __post_init__(self) -> None:
        # Kept, because an application can be restarted.
        for name in ("resources", "prompts"):
            given = getattr(self, name)
            if not isinstance(given, Mapping) and not callable(given):
                object.__setattr__(self, name, tuple(given))


class ListServer(Server[Any]):
    """The SDK's server, which declares whether its lists can change."""

    changing: frozenset[str] = frozenset()
    """The changeable lists: "tools", "resources" and "prompts"."""

    def get_capabilities(self, *args: Any, **kwargs: Any) -> mcp_types.ServerCapabilities:
        """Return the server's capabilities."""
        found = super().get_capabilities(*args, **kwargs)
        for kind in ("tools", "resources", "prompts"):
            if (part := getattr(found, kind)) is not None:
                part.list_changed = kind in self.changing
        return found


def build_server(offer: Offer, expose_errors: Exposure) -> Server[Any]:
    """Return the SDK's server for an offer; raise ToolDefinitionError if the offer is invalid."""
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
    # Not as an argument: the SDK warns that the newest protocol version deprecates it.
    server.add_request_handler("logging/setLevel", mcp_types.SetLevelRequestParams, set_log_level)
    return server


def _add_functions(server: Server[Any], resources: Resources, handlers: PassThrough) -> None:
    """Add the handlers of existing resources, prompts and completion."""
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
