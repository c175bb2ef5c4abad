"""Resources: what clients read by URI, returned by plain functions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import unquote

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    BlobResourceContents,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from toolsemble._engine.context import Exposure
from toolsemble._schema.shape import to_exact_json
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.result import TextContent
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.mcp._server.caller import Caller, current_caller
from toolsemble.mcp._server.exchange import Exchange
from toolsemble.mcp._server.functions import ServedFunction
from toolsemble.mcp._server.listeners import Listeners
from toolsemble.mcp._server.parking import Parking
from toolsemble.mcp._server.per_caller import PerCaller
from toolsemble.mcp._server.subscriptions import SUBSCRIPTIONS
from toolsemble.models._adapter.wire import base64_text

Functions: TypeAlias = Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]]
"""Functions, or functions by URI."""

ResourceSource: TypeAlias = Functions | Callable[[Caller], Functions | Awaitable[Functions]]
"""What ``serve`` takes as resources: functions, or a function of the caller that returns them."""

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_VARIABLE = re.compile(r"\{(\w+)\}")
_TEXT, _BYTES, _JSON = "text/plain", "application/octet-stream", "application/json"


@dataclass(frozen=True, slots=True)
class Served:
    """A resource, or a template of resources, and its function."""

    uri: str
    """The URI; that of a template has variables in braces."""
    function: ServedFunction
    """The function that returns the contents."""
    pattern: re.Pattern[str]
    """Matches the URIs."""

    @property
    def is_template(self) -> bool:
        """Whether the URI has variables."""
        return bool(self.pattern.groupindex)

    @property
    def mime_type(self) -> str | None:
        """The media type, as far as the declared return type says it."""
        return {str: _TEXT, bytes: _BYTES, dict: _JSON, list: None}.get(self.function.returns)

    @classmethod
    def of(cls, uri: Any, function: Any) -> Served:
        """Return the resource of a function; without a URI it is named after the function and its parameters."""
        served = ServedFunction(function, "resources")
        if uri is None:
            uri = "/".join([f"resource://{served.name}", *(f"{{{name}}}" for name in served.parameters)])
        if not isinstance(uri, str) or not _SCHEME.match(uri):
            raise ToolDefinitionError(f"serve: the URI of a resource needs a scheme, as in 'docs://intro': {uri!r:.80}")
        if sorted(_VARIABLE.findall(uri)) != sorted(served.parameters):
            raise ToolDefinitionError(
                f"serve: the variables of {uri!r:.80} must be the parameters of its function: "
                f"{', '.join(served.parameters) or 'none'}"
            )
        parts = _VARIABLE.split(uri)
        pattern = "".join(f"(?P<{part}>[^/]+)" if odd % 2 else re.escape(part) for odd, part in enumerate(parts))
        return cls(uri, served, re.compile(pattern))


class Resources:
    """The handlers of ``resources/list``, ``resources/templates/list`` and ``resources/read``.

    :param functions: functions, functions by URI, or a function of the caller that returns either
    :param parking: the requests that wait for answers
    :param expose_errors: which error messages clients see
    """

    def __init__(self, functions: ResourceSource, parking: Parking, expose_errors: Exposure) -> None:
        self.served = PerCaller(functions, _read_functions)
        self.listeners: Listeners | None = None
        """The clients that are told when the resources change; None if they do not."""
        self._parking = parking
        self._expose_errors = expose_errors

    @property
    def can_change(self) -> bool:
        """Whether the resources come from a function of the caller."""
        return self.served.fixed is None

    async def list_resources(self, request: ServerRequestContext[Any, Any], _: Any) -> ListResourcesResult:
        """Return the resources that have no variables."""
        served = await self._record(request)
        fixed = (each for each in served if not each.is_template)
        return ListResourcesResult(resources=[Resource(uri=each.uri, **_describe(each)) for each in fixed])

    async def _record(self, request: ServerRequestContext[Any, Any]) -> Sequence[Served]:
        served = await self.served.find(current_caller())
        if self.listeners is not None:
            self.listeners.record("resources", request, _summarize(served))
        return served

    async def list_now(self, caller: Caller) -> Any:
        """Return what tells the resources of a caller apart from others."""
        return _summarize(await self.served.find(caller))

    async def list_templates(self, request: ServerRequestContext[Any, Any], _: Any) -> ListResourceTemplatesResult:
        """Return the templates of resources."""
        found = (each for each in await self._record(request) if each.is_template)
        templates = [ResourceTemplate(uri_template=each.uri, **_describe(each)) for each in found]
        return ListResourceTemplatesResult(resource_templates=templates)

    async def read(self, request: ServerRequestContext[Any, Any], params: ReadResourceRequestParams) -> Any:
        """Return the contents of a resource."""
        uri, caller = str(params.uri), current_caller()
        served, arguments = await self._find(uri, caller)
        work = partial(self._read, served, uri, arguments, caller)
        return await self._parking.run(request, params, arguments, caller, work)

    async def subscribe(self, request: ServerRequestContext[Any, Any], params: Any) -> dict[str, Any]:
        """Tell the connection of the request from now on when a resource changes."""
        await self._find(str(params.uri), current_caller())
        try:
            request.lifespan_context[SUBSCRIPTIONS].add(request, str(params.uri))
        except ToolExecutionError as full:
            raise MCPError(INTERNAL_ERROR, str(full)) from None
        return {}

    async def unsubscribe(self, request: ServerRequestContext[Any, Any], params: Any) -> dict[str, Any]:
        """End a subscription."""
        request.lifespan_context[SUBSCRIPTIONS].remove(request, str(params.uri))
        return {}

    async def _find(self, uri: str, caller: Caller) -> tuple[Served, dict[str, str]]:
        """Return the resource with a URI, and the arguments in it; raise MCPError if there is none."""
        for each in await self.served.find(caller):
            found = each.pattern.fullmatch(uri)
            if found is not None:
                return each, {name: unquote(value) for name, value in found.groupdict().items()}
        raise MCPError(INVALID_PARAMS, "Unknown resource", {"uri": uri})

    async def _read(
        self, served: Served, uri: str, arguments: dict[str, str], caller: Caller, exchange: Exchange
    ) -> ReadResourceResult:
        value = await served.function.call(arguments, caller, exchange, self._expose_errors)
        values = value if isinstance(value, list) and any(hasattr(each, "mime_type") for each in value) else [value]
        return ReadResourceResult(contents=[_write_contents(uri, each) for each in values])


def _read_functions(functions: Functions) -> tuple[Served, ...]:
    """Return the resources of functions; raise ToolDefinitionError if they are not valid."""
    pairs = functions.items() if isinstance(functions, Mapping) else ((None, each) for each in functions)
    served = tuple(Served.of(uri, function) for uri, function in pairs)
    uris = [each.uri for each in served]
    if twice := [uri for uri in uris if uris.count(uri) > 1]:
        raise ToolDefinitionError(f"serve: two resources have the URI {twice[0]!r:.80}")
    return served


def _summarize(served: Sequence[Served]) -> list[Any]:
    return [(each.uri, _describe(each)) for each in served]


def _describe(served: Served) -> dict[str, Any]:
    function = served.function
    return {"name": function.name, "description": function.description or None, "mime_type": served.mime_type}


def _write_contents(uri: str, value: Any) -> TextResourceContents | BlobResourceContents:
    """Return a value as contents: texts and bytes as they are, files with their type, anything else as JSON."""
    if isinstance(value, str | TextContent):
        text = value if isinstance(value, str) else value.text
        return TextResourceContents(uri=uri, mime_type=_TEXT, text=text)
    if isinstance(value, bytes):
        return BlobResourceContents(uri=uri, mime_type=_BYTES, blob=base64_text(value))
    if hasattr(value, "mime_type"):
        return BlobResourceContents(uri=uri, mime_type=value.mime_type, blob=base64_text(value.data))
    return TextResourceContents(uri=uri, mime_type=_JSON, text=compact_json(to_exact_json(value)))
