"""Resources, prompts and completion of other servers, passed on beside those of this one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CompleteRequestParams, GetPromptRequestParams, ReadResourceRequestParams

from toolsemble._engine.context import ToolContext
from toolsemble._vocabulary.errors import ToolExecutionError, ToolsembleError
from toolsemble.mcp._server.elicitation import ElicitedReview
from toolsemble.mcp._server.exchange import Exchange, current_caller
from toolsemble.mcp._server.parking import Parking
from toolsemble.mcp._server.resources import Completions, Prompts, Resources

LOGGER = logging.getLogger("toolsemble.mcp")


class Upstream(Protocol):
    """Another server, whose resources and prompts are passed on under names that belong to it alone."""

    name: str
    """Its name, for logs."""
    uri_prefix: str
    """How the URIs of its resources begin here."""
    prompt_prefix: str
    """How the names of its prompts begin here."""

    def offers(self, kind: str) -> bool:
        """Return whether it has ``"resources"`` or ``"prompts"`` to pass on."""
        ...

    async def list_resources(self) -> list[Any]:
        """Return its resources, with the names that they have here."""
        ...

    async def list_templates(self) -> list[Any]:
        """Return its templates of resources."""
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
        """Return values for an argument of a prompt or a template."""
        ...


class PassThrough:
    """The handlers of a server that passes on what other servers have; the rest is its own.

    :param upstreams: the other servers
    """

    def __init__(self, upstreams: Sequence[Upstream], resources: Resources, prompts: Prompts, parking: Parking) -> None:
        # The longest prefix first: one may begin with another.
        self._upstreams = sorted(upstreams, key=lambda each: len(each.prompt_prefix), reverse=True)
        self._resources = resources
        self._prompts = prompts
        self._completions = Completions(prompts, resources)
        self._parking = parking

    def has(self, kind: str) -> bool:
        """Return whether there are ``"resources"`` or ``"prompts"``, of this server or another."""
        own = self._resources.served if kind == "resources" else self._prompts.served
        return own.is_offered or any(each.offers(kind) for each in self._upstreams)

    async def list_resources(self, request: ServerRequestContext[Any, Any], params: Any) -> Any:
        """Return all resources that have no variables."""
        own = await self._resources.list_resources(request, params)
        found = [each for up, each in await self._list("list_resources") if self._find_by_uri(each.uri) is up]
        return own.model_copy(update={"resources": [*own.resources, *found]})

    async def list_templates(self, request: ServerRequestContext[Any, Any], params: Any) -> Any:
        """Return all templates of resources."""
        own = await self._resources.list_templates(request, params)
        found = [each for up, each in await self._list("list_templates") if self._find_by_uri(each.uri_template) is up]
        return own.model_copy(update={"resource_templates": [*own.resource_templates, *found]})

    async def list_prompts(self, request: ServerRequestContext[Any, Any], params: Any) -> Any:
        """Return all prompts."""
        own = await self._prompts.list_prompts(request, params)
        found = [each for up, each in await self._list("list_prompts") if self._find_by_prompt(each.name) is up]
        return own.model_copy(update={"prompts": [*own.prompts, *found]})

    async def read(self, request: ServerRequestContext[Any, Any], params: ReadResourceRequestParams) -> Any:
        """Return the contents of a resource; that of an unknown one is refused."""
        uri = str(params.uri)
        upstream = self._find_by_uri(uri)
        if upstream is None:
            return await self._resources.read(request, params)

        async def work(exchange: Exchange) -> Any:
            return await _ask(partial(upstream.read, uri), exchange)

        return await self._parking.run(request, params, {}, current_caller(), work)

    async def get_prompt(self, request: ServerRequestContext[Any, Any], params: GetPromptRequestParams) -> Any:
        """Return the messages of a prompt; an unknown one is refused."""
        upstream = self._find_by_prompt(params.name)
        if upstream is None:
            return await self._prompts.get(request, params)
        arguments = dict(params.arguments or {})

        async def work(exchange: Exchange) -> Any:
            return await _ask(partial(upstream.get_prompt, params.name, arguments), exchange)

        return await self._parking.run(request, params, arguments, current_caller(), work)

    async def complete(self, request: ServerRequestContext[Any, Any], params: CompleteRequestParams) -> Any:
        """Return values for an argument of a prompt or a template."""
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
        """Return the items of all other servers; one that fails is left out, with a warning in the log."""
        found: list[tuple[Upstream, Any]] = []
        for upstream in self._upstreams:
            if not upstream.offers("prompts" if method == "list_prompts" else "resources"):
                continue
            try:
                found += [(upstream, each) for each in await getattr(upstream, method)()]
            except ToolsembleError as problem:
                LOGGER.warning("%s is left out of %s: %.500s", upstream.name, method, problem)
        return found

    def _find_by_uri(self, uri: str) -> Upstream | None:
        return next((each for each in self._upstreams if uri.startswith(each.uri_prefix)), None)

    def _find_by_prompt(self, name: str) -> Upstream | None:
        return next((each for each in self._upstreams if name.startswith(each.prompt_prefix)), None)


async def _ask(send: Any, exchange: Exchange) -> Any:
    """Return the answer of another server; its questions go to the user of the client."""
    try:
        return await send(ToolContext(review=ElicitedReview(exchange)))
    except ToolExecutionError as error:
        raise _translate(error) from error


def _translate(error: ToolExecutionError) -> MCPError:
    code = error.error_code
    return MCPError(code if isinstance(code, int) else INTERNAL_ERROR, str(error))
