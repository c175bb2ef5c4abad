"""``HttpTool``: a tool that calls one operation of an HTTP service."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Mapping
from http.client import responses
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble._engine.definition import ToolDefinition, typed_definition
from toolsemble._runtime.checks import check_count
from toolsemble._runtime.event_loops import finish
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.urls import Resolver, UrlGuard, UrlRefusedError, host_of, refusal, resolve
from toolsemble._schema.decode import Arguments
from toolsemble._schema.docstring import collect_local_types
from toolsemble._schema.json_schema import SchemaArguments
from toolsemble._schema.typed_arguments import TypedArguments
from toolsemble._tools.base import Tool
from toolsemble._tools.settings import BareSettings, ToolSettings
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError, ToolTimeoutError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.builtin._endpoint import SAFE, Auth, Redactor, carries_credentials, make_endpoint
from toolsemble.builtin._fetch import decode_body
from toolsemble.builtin._openapi import Operation, Rename, load_document, read_operations

if TYPE_CHECKING:
    from toolsemble.builtin._fetch import Fetcher, Response

_TEMPORARY = {502, 503, 504}  # usually temporary
_FIRST_DELAY = 0.1
_MAX_DOCUMENT = 32 << 20
_DOCUMENT_TYPES = "application/json, application/yaml, */*;q=0.5"
_BINARY = ("image/", "audio/", "video/", "font/", "application/octet-stream", "application/pdf", "application/zip")


class HttpSettings(BareSettings, total=False):
    """The optional settings of an :class:`HttpTool`."""

    auth: Auth | None
    """A bearer token, or a user name and a password."""
    secrets: Mapping[str, str] | None
    """Values for ``{name}`` in the URL and the headers; inserted when a request is sent, and never shown."""
    allow_hosts: Iterable[str]
    """Host names or addresses that may be reached although they are not public."""
    max_bytes: int
    """The number of bytes to read of a response; the default is 1 MiB."""
    max_concurrency: int | None
    """The maximum number of concurrent calls."""
    max_output: int | None
    """The maximum number of characters of a result for the model."""
    retries: int
    """The number of retries of a safe method when the server is unavailable; the default is 2."""
    tls: SSLContext | None
    """The TLS context; the default trusts the system's certificates."""
    resolver: Resolver
    """Returns the addresses of a host name; the default is the system's."""


class HttpTool(Tool):
    """A tool that calls one operation of an HTTP service; its input is a str, or has an input type.

    A str is sent in the query as ``input`` (GET, HEAD, OPTIONS) or as the body, as JSON if it is JSON. The fields of
    an input type are sent in the query, or as a JSON object in the body. ``{name}`` in the URL is filled first. A
    response is truncated at ``max_bytes``; a status of 400 or more is a failure.

    :param name: the name of the tool
    :param description: what the tool does, for the model
    :param url: the URL, with ``{name}`` for arguments and secrets
    :param method: the method; the default is POST
    :param headers: the headers of every request
    :param timeout: seconds for a call, including retries
    :param input_type: the type of the arguments; the default is one str
    :param operation: an operation of an OpenAPI document, see :meth:`from_openapi`
    :param settings: see :class:`~toolsemble.builtin._http_tool.HttpSettings`

    >>> order = HttpTool("order", "Orders a book by its title", "http://10.0.0.7/orders", auth="a-token")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'order': Access denied: '10.0.0.7' is not a public address; if it may \
be reached, pass allow_hosts=['10.0.0.7']
    """

    def __init__(
        self,
        name: str,
        description: str,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
        input_type: type | None = None,
        operation: Operation | None = None,
        **settings: Unpack[HttpSettings],
    ) -> None:
        fetch = import_extra("toolsemble.builtin._fetch", extra="http", user="HttpTool")
        _check_settings(settings)
        self.name = name
        self.description = description
        # This tool retries single requests itself, because it knows which are safe.
        known = ToolSettings.__annotations__.keys() - {"retries"}
        self._apply({name: value for name, value in settings.items() if name in known})  # type: ignore[arg-type]  # chosen by name
        self._arguments: Arguments | None = None
        fields: dict[str, Any] = {"body": "input"}
        if operation is not None:
            self._arguments, fields = SchemaArguments(name, operation.schema), operation.endpoint_fields
            self.editable = operation.editable
        elif input_type is not None:
            names = collect_local_types(sys._getframe(1))  # noqa: SLF001 - no public API gives a caller's names
            self._arguments, fields = _typed_arguments(name, input_type, names), {}
        self._endpoint = make_endpoint(
            method,
            url,
            headers=headers,
            auth=settings.get("auth"),
            secrets=settings.get("secrets"),
            **fields,
        )
        self._timeout = timeout
        self._retries = settings.get("retries", 2) if self._endpoint.method in SAFE else 0
        self._max_bytes = settings.get("max_bytes", 1 << 20)
        self._request, self._unreachable = fetch.Request, fetch.FetchError
        guard = _make_guard(settings)
        host = _check_host(name, guard, self._endpoint.url)
        self._refusal, self._advice = refusal(host), f"; the program that made this tool can pass {_allow(host)}"
        self._fetcher: Fetcher = fetch.Fetcher(guard, timeout=timeout, limit=self._max_bytes, tls=settings.get("tls"))
        self._redact = Redactor(self._endpoint)
        # The reviewer needs the URL; the model does not.
        note = self.approval_description or description
        self.approval_description = f"{self._endpoint.method} {self._endpoint.url}\n{note}\n{self._edit_note()}"

    @classmethod
    def from_openapi(
        cls,
        document: Mapping[str, Any] | str | os.PathLike[str],
        *,
        base_url: str | None = None,
        only: Iterable[str] | None = None,
        rename: Rename | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
        **settings: Unpack[HttpSettings],
    ) -> list[HttpTool]:
        """Return one typed tool for each operation of an OpenAPI 3 document.

        With ``auth``, ``secrets`` or custom headers, an operation must have the same origin as the document's first
        server: a document must not decide who receives credentials. For a document that is fetched, that is the origin
        of its URL. Unless ``settings`` say otherwise, tools for GET, HEAD and OPTIONS have ``effects="read"``, DELETE
        tools ``effects="irreversible"``, and PUT tools ``idempotent=True``.

        :param document: the document: a dict, JSON text, YAML text (extra ``yaml``), the path of a file, or a URL, from
            which it is fetched without credentials; the URLs of its servers may be relative to it
        :param base_url: the URL of the service; the default is the first server of the operation, path or document
        :param only: the operations to include, by their names in the document; the default is all
        :param rename: other names for the tools: a dict from names of operations, a function of a name, or ``"short"``
            for names without the path and method that FastAPI adds: ``list_pets`` for ``list_pets_pets_get``

        >>> document = {
        ...     "openapi": "3.1.0",
        ...     "servers": [{"url": "https://api.example.com"}],
        ...     "paths": {"/users/{id}": {"get": {"operationId": "get_user", "summary": "Gives a user", "parameters": [
        ...         {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}]}}},
        ... }
        >>> tools = HttpTool.from_openapi(document)
        >>> [(tool.name, tool.description) for tool in tools]
        [('get_user', 'Gives a user')]
        """
        guarded = carries_credentials(headers, settings.get("auth"), settings.get("secrets"))
        configured = {str(name).lower() for name in headers or ()}
        parsed, source = load_document(document, lambda url: finish(_fetch_document(url, timeout, settings)))
        found = read_operations(parsed, base_url, only, configured, rename=rename, source=source, guarded=guarded)
        shared: dict[str, Any] = {"headers": headers, "timeout": timeout, **settings}
        return [
            cls(each.name, each.description, each.url, method=each.method, operation=each, **each.effects | shared)
            for each in found
        ]

    async def run(self, input: Any) -> ToolResult:
        """Send a request and return the response."""
        given = {"input": input} if self._arguments is None else self._arguments.present(input, reveal=True)
        url, headers, body = self._endpoint.request(given)
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._send(self._request(self._endpoint.method, url, headers, body))
        except TimeoutError:
            raise ToolTimeoutError(f"Timed out after {self._timeout:g} s") from None
        except ToolExecutionError as problem:
            advice = self._advice if str(problem) == self._refusal else ""
            raise ToolExecutionError(self._redact(str(problem)) + advice) from None  # the cause may show the URL
        return self._make_result(response)

    async def _send(self, request: Any) -> Response:
        for attempt in range(self._retries):
            try:
                response = await self._fetcher.fetch(request)
            except self._unreachable:
                pass
            else:
                if response.status not in _TEMPORARY:
                    return response
            await asyncio.sleep(_FIRST_DELAY * 2**attempt)
        return await self._fetcher.fetch(request)

    def _make_result(self, response: Response) -> ToolResult:
        text = self._redact(_to_text(response), truncated=response.truncated)
        if not text and not response.failed:
            text = f"Done ({response.status} {responses.get(response.status, 'unknown status')})"
        attributes = {"status": response.status}
        if response.failed:
            return ToolResult.failure(response.failure(text), attributes=attributes)
        if response.truncated:
            text = f"{text}\n[response truncated at {self._max_bytes} bytes]"
            return ToolResult.success(text, attributes=attributes)
        return ToolResult.success(text, _payload(response, text), attributes=attributes)

    def _edit_note(self) -> str:
        """Return the note that tells a reviewer what an edit replaces."""
        if self.editable:
            return f"An edit replaces {self.editable!r}, as plain text."
        if self._arguments is not None:
            return "An edit replaces all arguments, as one JSON object."
        return f"An edit replaces the {'input' if self._endpoint.method in SAFE else 'body'}, as plain text."

    def _define(self) -> ToolDefinition:
        if self._arguments is None:
            made = super()._define()
            known = {"input"}
        else:
            made = typed_definition(
                self.name, self.description, self.run, self._arguments, awaits=True, **self._declared()
            )
            known = set(self._arguments.schema.get("properties", ()))
        if unknown := self._endpoint.placeholders - known:
            raise ToolDefinitionError(f"Tool '{self.name}': no argument or secret for {{{min(unknown)}}} in the URL")
        return made


def _make_guard(settings: HttpSettings) -> UrlGuard:
    return UrlGuard(settings.get("allow_hosts", ()), resolver=settings.get("resolver", resolve))


def _check_host(name: str, guard: UrlGuard, url: str) -> str:
    """Return the host of a tool's URL; raise ToolDefinitionError if every call would be rejected."""
    try:
        host = host_of(url)
    except UrlRefusedError as problem:
        raise ToolDefinitionError(f"Tool '{name}': {problem}") from None
    if guard.refuses(host):
        raise ToolDefinitionError(f"Tool '{name}': {refusal(host)}; if it may be reached, pass {_allow(host)}")
    return host


def _allow(host: str) -> str:
    return f"allow_hosts=[{host!r:.200}]"


async def _fetch_document(url: str, seconds: float, settings: HttpSettings) -> str:
    """Return the text at a URL, fetched without credentials; raise ToolDefinitionError if there is none."""
    fetch = import_extra("toolsemble.builtin._fetch", extra="http", user="HttpTool.from_openapi")
    fetcher = fetch.Fetcher(_make_guard(settings), timeout=seconds, limit=_MAX_DOCUMENT, tls=settings.get("tls"))
    try:
        response: Response = await fetcher.fetch(fetch.Request("GET", url, {"Accept": _DOCUMENT_TYPES}))
    except ToolExecutionError as problem:
        refused = isinstance(problem, UrlRefusedError) and "public address" in str(problem)
        advice = f"; if it may be reached, pass {_allow(host_of(url))}" if refused else ""
        raise ToolDefinitionError(f"OpenAPI: the document cannot be fetched: {problem}{advice}") from None
    if response.failed or response.truncated:
        reason = f"it has more than {_MAX_DOCUMENT} bytes" if response.truncated else response.failure()
        raise ToolDefinitionError(f"OpenAPI: the document cannot be fetched: {reason}")
    return decode_body(response.body, response.charset)


def _typed_arguments(name: str, input_type: type, names: Mapping[str, Any]) -> TypedArguments:
    arguments = TypedArguments.of_type(input_type, names)
    arguments.check()
    if init_only := arguments.init_only:
        raise ToolDefinitionError(
            f"Tool '{name}': {init_only} is an InitVar, which objects do not keep, so it cannot be sent; use a field"
        )
    return arguments


def _check_settings(settings: HttpSettings) -> None:
    if unknown := set(settings) - set(HttpSettings.__annotations__):
        raise TypeError(
            f"HttpTool has no setting {min(unknown)!r}; the settings are {', '.join(HttpSettings.__annotations__)}"
        )
    check_count("retries", settings.get("retries", 0), least=0)


def _to_text(response: Response) -> str:
    text = decode_body(response.body, response.charset, truncated=response.truncated)
    kind = response.media_type
    if "\0" in text or (kind.startswith(_BINARY) and not kind.endswith("+xml")):
        return f"[{kind or 'binary'}, {len(response.body)} bytes, not shown]"
    return text


def _payload(response: Response, text: str) -> Any:
    """Return the value of a JSON response; None if it is not JSON."""
    if response.media_type != "application/json" and not response.media_type.endswith("+json"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
