"""Resources, prompts and completion from plain functions."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import unquote

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolsemble._engine.context import Exposure
from toolsemble._runtime.event_loops import is_async
from toolsemble._runtime.text import preview
from toolsemble._schema.members import find_return_type
from toolsemble._schema.result_shape import to_exact_json, to_result
from toolsemble._tools.function import FunctionTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.result import TextContent, ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.mcp._server.calls import check_capability, execute
from toolsemble.mcp._server.exchange import Caller, Exchange, current_caller
from toolsemble.mcp._server.listeners import SUBSCRIPTIONS, Listeners
from toolsemble.mcp._server.parking import Parking
from toolsemble.mcp._server.source import PerCaller
from toolsemble.models._adapter.wire import base64_text

_WRONG_ARGUMENTS = ("Missing required parameter(s)", "Invalid arguments", "Expected a JSON object")


class ServedFunction:
    """A function behind a prompt or a resource.

    :param function: a function, sync or async; a parameter of type ``ToolContext`` gets the call's context
    :param kind: its kind, in the plural, for messages
    """

    def __init__(self, function: Any, kind: str) -> None:
        if not callable(function) or isinstance(function, type):
            raise ToolDefinitionError(f"serve: {kind} must be functions, not {function!r:.80}")
        source = getattr(function, "__wrapped__", function) if isinstance(function, FunctionTool) else function
        self._box = Toolbox([FunctionTool(_keep_value(source), {}, None, None, {})])
        (self.name,) = self._box.names
        definition = self._box.registered(self.name).definition
        self.description = definition.description
        self.schema = definition.schema()
        self.returns = find_return_type(source, {})

    @property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The parameters' schemas, by name."""
        found: Mapping[str, Mapping[str, Any]] = self.schema.get("properties", {})
        return found

    async def call(
        self, arguments: Mapping[str, Any], caller: Caller, exchange: Exchange, expose_errors: Exposure
    ) -> Any:
        """Call the function and return its value; raise MCPError if it fails."""
        reply = await execute(self._box, ToolCall(self.name, dict(arguments)), caller, exchange, expose_errors)
        check_capability(exchange, reply)
        if reply.is_error:
            message = str(reply.result.error_message)
            code = mcp_types.INVALID_PARAMS if message.startswith(_WRONG_ARGUMENTS) else mcp_types.INTERNAL_ERROR
            raise MCPError(code, message)
        return reply.result.structured_output


def _keep_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its return value left unconverted."""
    if is_async(function):

        @functools.wraps(function)
        async def run_later(*args: Any, **kwargs: Any) -> ToolResult:
            return ToolResult.success(structured_output=await function(*args, **kwargs))

        return run_later

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> ToolResult:
        return ToolResult.success(structured_output=function(*args, **kwargs))

    return run


Functions: TypeAlias = Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]]
"""Functions, or functions by URI."""

ResourceSource: TypeAlias = Functions | Callable[[Caller], Functions | Awaitable[Functions]]
"""The resources for ``serve``: functions, or a function of the caller that returns them."""

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_VARIABLE = re.compile(r"\{(\w+)\}")
_TEXT, _BYTES, _JSON = "text/plain", "application/octet-stream", "application/json"


@dataclass(frozen=True, slots=True)
class Served:
    """A resource or resource template, and its function."""

    uri: str
    """The URI; a template's URI has variables in braces."""
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
        """The media type, if the declared return type determines it."""
        return {str: _TEXT, bytes: _BYTES, dict: _JSON, list: None}.get(self.function.returns)

    @classmethod
    def of(cls, uri: Any, function: Any) -> Served:
        """Return a function's resource; without a URI, it is named after the function and its parameters."""
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
    :param parking: the requests waiting for answers
    :param expose_errors: which error messages clients see
    """

    def __init__(self, functions: ResourceSource, parking: Parking, expose_errors: Exposure) -> None:
        self.served = PerCaller(functions, _read_functions)
        self.listeners: Listeners | None = None
        """The clients to notify of changed resources; None if they cannot change."""
        self._parking = parking
        self._expose_errors = expose_errors

    @property
    def can_change(self) -> bool:
        """Whether the resources come from a function of the caller."""
        return self.served.fixed is None

    async def list_resources(self, request: ServerRequestContext[Any, Any], _: Any) -> mcp_types.ListResourcesResult:
        """Return the resources without variables."""
        served = await self._record(request)
        fixed = (each for each in served if not each.is_template)
        return mcp_types.ListResourcesResult(
            resources=[mcp_types.Resource(uri=each.uri, **_describe(each)) for each in fixed]
        )

    async def _record(self, request: ServerRequestContext[Any, Any]) -> Sequence[Served]:
        served = await self.served.find(current_caller())
        if self.listeners is not None:
            self.listeners.record("resources", request, _summarize(served))
        return served

    async def list_now(self, caller: Caller) -> Any:
        """Return the identity of a caller's resources, for comparison."""
        return _summarize(await self.served.find(caller))

    async def list_templates(
        self, request: ServerRequestContext[Any, Any], _: Any
    ) -> mcp_types.ListResourceTemplatesResult:
        """Return the resource templates."""
        found = (each for each in await self._record(request) if each.is_template)
        templates = [mcp_types.ResourceTemplate(uri_template=each.uri, **_describe(each)) for each in found]
        return mcp_types.ListResourceTemplatesResult(resource_templates=templates)

    async def read(self, request: ServerRequestContext[Any, Any], params: mcp_types.ReadResourceRequestParams) -> Any:
        """Return the contents of a resource."""
        uri, caller = str(params.uri), current_caller()
        served, arguments = await self._find(uri, caller)
        work = partial(self._read, served, uri, arguments, caller)
        return await self._parking.run(request, params, arguments, caller, work)

    async def subscribe(self, request: ServerRequestContext[Any, Any], params: Any) -> dict[str, Any]:
        """Subscribe the request's connection to changes of a resource."""
        await self._find(str(params.uri), current_caller())
        try:
            request.lifespan_context[SUBSCRIPTIONS].add(request, str(params.uri))
        except ToolExecutionError as full:
            raise MCPError(mcp_types.INTERNAL_ERROR, str(full)) from None
        return {}

    async def unsubscribe(self, request: ServerRequestContext[Any, Any], params: Any) -> dict[str, Any]:
        """End a subscription."""
        request.lifespan_context[SUBSCRIPTIONS].remove(request, str(params.uri))
        return {}

    async def _find(self, uri: str, caller: Caller) -> tuple[Served, dict[str, str]]:
        """Return the resource for a URI, and its arguments; raise MCPError if there is none."""
        for each in await self.served.find(caller):
            found = each.pattern.fullmatch(uri)
            if found is not None:
                return each, {name: unquote(value) for name, value in found.groupdict().items()}
        raise MCPError(mcp_types.INVALID_PARAMS, "Unknown resource", {"uri": uri})

    async def _read(
        self, served: Served, uri: str, arguments: dict[str, str], caller: Caller, exchange: Exchange
    ) -> mcp_types.ReadResourceResult:
        value = await served.function.call(arguments, caller, exchange, self._expose_errors)
        values = value if isinstance(value, list) and any(hasattr(each, "mime_type") for each in value) else [value]
        return mcp_types.ReadResourceResult(contents=[_write_contents(uri, each) for each in values])


def _read_functions(functions: Functions) -> tuple[Served, ...]:
    """Return the functions' resources; raise ToolDefinitionError if they are invalid."""
    pairs = functions.items() if isinstance(functions, Mapping) else ((None, each) for each in functions)
    served = tuple(Served.of(uri, function) for uri, function in pairs)
    uris = [each.uri for each in served]
    if twice := [uri for uri in uris if uris.count(uri) > 1]:
        raise ToolDefinitionError(f"serve: duplicate resource URI {twice[0]!r:.80}")
    return served


def _summarize(served: Sequence[Served]) -> list[Any]:
    return [(each.uri, _describe(each)) for each in served]


def _describe(served: Served) -> dict[str, Any]:
    function = served.function
    return {"name": function.name, "description": function.description or None, "mime_type": served.mime_type}


def _write_contents(uri: str, value: Any) -> mcp_types.TextResourceContents | mcp_types.BlobResourceContents:
    """Return a value as contents: texts and bytes unchanged, files with their type, anything else as JSON."""
    if isinstance(value, str | TextContent):
        text = value if isinstance(value, str) else value.text
        return mcp_types.TextResourceContents(uri=uri, mime_type=_TEXT, text=text)
    if isinstance(value, bytes):
        return mcp_types.BlobResourceContents(uri=uri, mime_type=_BYTES, blob=base64_text(value))
    if hasattr(value, "mime_type"):
        return mcp_types.BlobResourceContents(uri=uri, mime_type=value.mime_type, blob=base64_text(value.data))
    return mcp_types.TextResourceContents(uri=uri, mime_type=_JSON, text=compact_json(to_exact_json(value)))


PromptSource: TypeAlias = (
    Iterable[Callable[..., Any]]
    | Callable[[Caller], Iterable[Callable[..., Any]] | Awaitable[Iterable[Callable[..., Any]]]]
)
"""The prompts for ``serve``: functions, or a function of the caller that returns them."""


class Prompts:
    """The handlers of ``prompts/list`` and ``prompts/get``.

    :param functions: functions that return a text, contents, or a list of messages; or a function of the caller that
        returns such functions
    :param parking: the requests waiting for answers
    :param expose_errors: which error messages clients see
    """

    def __init__(self, functions: PromptSource, parking: Parking, expose_errors: Exposure) -> None:
        self.served = PerCaller(functions, _read_prompts)
        self.listeners: Listeners | None = None
        """The clients to notify of changed prompts; None if they cannot change."""
        self._parking = parking
        self._expose_errors = expose_errors

    @property
    def can_change(self) -> bool:
        """Whether the prompts come from a function of the caller."""
        return self.served.fixed is None

    async def list_prompts(self, request: ServerRequestContext[Any, Any], _: Any) -> mcp_types.ListPromptsResult:
        """Return the prompts."""
        listed = await self.list_now(current_caller())
        if self.listeners is not None:
            self.listeners.record("prompts", request, listed)
        return listed

    async def list_now(self, caller: Caller) -> mcp_types.ListPromptsResult:
        """Return a caller's current prompts."""
        return mcp_types.ListPromptsResult(
            prompts=[_describe_prompt(each) for each in (await self.served.find(caller)).values()]
        )

    async def get(self, request: ServerRequestContext[Any, Any], params: mcp_types.GetPromptRequestParams) -> Any:
        """Return the messages of a prompt."""
        caller = current_caller()
        function = (await self.served.find(caller)).get(params.name)
        if function is None:
            raise MCPError(mcp_types.INVALID_PARAMS, f"Unknown prompt: {preview(params.name)}")
        arguments = dict(params.arguments or {})
        work = partial(self._get, function, arguments, caller)
        return await self._parking.run(request, params, arguments, caller, work)

    async def _get(
        self, function: ServedFunction, arguments: dict[str, str], caller: Caller, exchange: Exchange
    ) -> mcp_types.GetPromptResult:
        value = await function.call(arguments, caller, exchange, self._expose_errors)
        messages = [_write_message(each) for each in (value if isinstance(value, list) else [value])]
        try:
            return mcp_types.GetPromptResult.model_validate(
                {"description": function.description or None, "messages": messages}, by_name=False
            )
        except ValidationError:
            raise MCPError(mcp_types.INTERNAL_ERROR, "The prompt returned what is not a message") from None


def _read_prompts(functions: Iterable[Callable[..., Any]]) -> dict[str, ServedFunction]:
    """Return the functions' prompts by name; raise ToolDefinitionError if they are invalid."""
    served = [ServedFunction(each, "prompts") for each in functions]
    by_name = {each.name: each for each in served}
    if len(by_name) < len(served):
        raise ToolDefinitionError("serve: duplicate prompt name")
    return by_name


def _describe_prompt(function: ServedFunction) -> mcp_types.Prompt:
    required = function.schema.get("required", ())
    arguments = [
        mcp_types.PromptArgument(name=name, description=schema.get("description"), required=name in required)
        for name, schema in function.parameters.items()
    ]
    return mcp_types.Prompt(name=function.name, description=function.description or None, arguments=arguments or None)


def _write_message(value: Any) -> dict[str, Any]:
    """Return a message: a text or contents as a user message, a dict with its role and contents."""
    if isinstance(value, Mapping):
        return {"role": value.get("role", "user"), "content": _write_content(value.get("content", ""))}
    return {"role": "user", "content": _write_content(value)}


def _write_content(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)  # already in protocol form
    blocks: list[dict[str, Any]] = ToolReply(ToolCall("prompt"), to_result(value)).to_mcp()["content"]
    return blocks[-1]


_MOST_VALUES = 100


class Completions:
    """The handler of ``completion/complete``."""

    def __init__(self, prompts: Prompts, resources: Resources) -> None:
        self._prompts = prompts
        self._resources = resources

    async def complete(
        self, _: ServerRequestContext[Any, Any], params: mcp_types.CompleteRequestParams
    ) -> mcp_types.CompleteResult:
        """Return the values that match the typed prefix; none for an unrestricted parameter."""
        function = await self._find(params.ref, current_caller())
        schema = {} if function is None else function.parameters.get(params.argument.name, {})
        typed = params.argument.value
        found = [each for each in _choices(schema) if each.startswith(typed)]
        shown = found[:_MOST_VALUES]
        return mcp_types.CompleteResult(
            completion=mcp_types.Completion(values=shown, total=len(found), has_more=len(found) > len(shown))
        )

    async def _find(self, reference: Any, caller: Caller) -> ServedFunction | None:
        if isinstance(reference, mcp_types.PromptReference):
            return (await self._prompts.served.find(caller)).get(reference.name)
        served = await self._resources.served.find(caller)
        return next((each.function for each in served if each.uri == reference.uri), None)


def _choices(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts that a schema or its options list."""
    for each in (schema, *schema.get("anyOf", ())):
        values = [*each.get("enum", ()), *([each["const"]] if "const" in each else ())]
        yield from (value for value in values if isinstance(value, str))
