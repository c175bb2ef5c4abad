"""``HttpTool``: one operation of an HTTP service as a tool."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble.builtin.charset import decoded
from toolsemble.builtin.endpoint import SAFE, Auth, Redactor, carries_credentials, endpoint
from toolsemble.builtin.openapi import Operation, operations
from toolsemble.definition.definition import ToolDefinition, typed_definition
from toolsemble.errors import ToolDefinitionError, ToolExecutionError
from toolsemble.guard.urls import Resolver, UrlGuard, resolve
from toolsemble.result import ToolResult
from toolsemble.runtime.extras import import_extra
from toolsemble.schema.decode import Arguments
from toolsemble.schema.json_schema import GivenArguments
from toolsemble.schema.members import names_around
from toolsemble.schema.typed import TypedArguments
from toolsemble.tools.base import Tool
from toolsemble.tools.settings import BareSettings, ToolSettings

if TYPE_CHECKING:
    from toolsemble.builtin.fetch import Fetcher, Response

_PASSING = {502, 503, 504}  # what a server says that will soon be there again
_FIRST_PAUSE = 0.1
_BINARY = ("image/", "audio/", "video/", "font/", "application/octet-stream", "application/pdf", "application/zip")


class HttpSettings(BareSettings, total=False):
    """What else can be said about an :class:`HttpTool`."""

    auth: Auth | None
    """A bearer token, or a user name and a password."""
    secrets: Mapping[str, str] | None
    """What stands for ``{name}`` in the URL and the headers; filled in when a request is sent, and never shown."""
    allow_hosts: Iterable[str]
    """Host names or addresses that may be reached although they are not public."""
    max_bytes: int
    """How much of a response is read: 1 MiB."""
    max_concurrency: int | None
    """How many calls may run at the same time."""
    max_output: int | None
    """How many characters of a result the model gets."""
    retries: int
    """How often a request of a safe method is sent again when the server is not there: 2."""
    tls: SSLContext | None
    """Which certificates are trusted; those of the system by default."""
    resolver: Resolver
    """Gives the addresses of a host name; the system's by default."""


class HttpTool(Tool):
    """One operation of an HTTP service: a string tool, or a typed one when given an input type.

    A string goes into the query as ``input`` (GET, HEAD, OPTIONS) or is the body, as JSON if it is JSON. The fields of
    an input type go into the query, or are the body as a JSON object. Both fill ``{name}`` in the URL first. What the
    service says beyond ``max_bytes`` is cut off; a status of 400 or more is a failure.

    :param name: the name by which a model calls the tool
    :param description: what the tool does, for the model
    :param url: where requests go; ``{name}`` stands for an argument or a secret
    :param method: the method, POST by default
    :param headers: headers of every request
    :param timeout: how many seconds there are for a call, with all its repetitions
    :param input_type: the type of the arguments; without one the tool takes a string
    :param operation: what a document says of the arguments, see :meth:`from_openapi`
    :param settings: see :class:`~toolsemble.builtin.http_tool.HttpSettings`

    >>> order = HttpTool("order", "Orders a book by its title", "http://10.0.0.7/orders", auth="a-token")
    >>> order.execute("Emma").text
    "Error: Access denied: '10.0.0.7' is not a public address"
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
        fetch = import_extra("toolsemble.builtin.fetch", extra="http", user="HttpTool")
        _check_settings(settings)
        self.name = name
        self.description = description
        # Its retries are those of single requests, which it can tell apart better than anybody outside.
        known = ToolSettings.__annotations__.keys() - {"retries"}
        self._apply({name: value for name, value in settings.items() if name in known})  # type: ignore[arg-type]  # chosen by name
        self._arguments: Arguments | None = None
        places: dict[str, Any] = {"body": "input"}
        if operation is not None:
            self._arguments, places = GivenArguments(name, operation.schema), operation.places
            self.editable = operation.editable
        elif input_type is not None:
            names = names_around(sys._getframe(1))  # noqa: SLF001 - there is no public way to a caller's names
            self._arguments, places = _typed(name, input_type, names), {}
        self._endpoint = endpoint(
            method,
            url,
            headers=headers,
            auth=settings.get("auth"),
            secrets=settings.get("secrets"),
            **places,
        )
        self._timeout = timeout
        self._retries = settings.get("retries", 2) if self._endpoint.method in SAFE else 0
        self._max_bytes = settings.get("max_bytes", 1 << 20)
        self._request, self._unreachable = fetch.Request, fetch.FetchError
        guard = UrlGuard(settings.get("allow_hosts", ()), resolver=settings.get("resolver", resolve))
        self._fetcher: Fetcher = fetch.Fetcher(guard, timeout=timeout, limit=self._max_bytes, tls=settings.get("tls"))
        self._redacted = Redactor(self._endpoint)
        # A reviewer has to know where it goes; the model does not.
        told = self.approval_description or description
        self.approval_description = f"{self._endpoint.method} {self._endpoint.url}\n{told}\n{self._edit()}"

    @classmethod
    def from_openapi(
        cls,
        document: Mapping[str, Any] | str,
        *,
        base_url: str | None = None,
        only: Iterable[str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
        **settings: Unpack[HttpSettings],
    ) -> list[HttpTool]:
        """Give one typed tool for each operation of an OpenAPI 3 document.

        With ``auth``, ``secrets`` or headers of your own, an operation may not go to another origin than the document's
        first server: a document decides what is called, but not who gets credentials.

        :param document: the document, as a dict or as JSON text
        :param base_url: where the service is; by default the first server of the operation, its path, or the document
        :param only: the names of the operations that are wanted; all by default

        >>> document = {
        ...     "openapi": "3.1.0",
        ...     "servers": [{"url": "https://api.example.com"}],
        ...     "paths": {"/users/{id}": {"get": {"operationId": "get_user", "summary": "Gives a user", "parameters": [
        ...         {"name": "id", "in": "path", "import_extra": True, "schema": {"type": "integer"}}]}}},
        ... }
        >>> tools = HttpTool.from_openapi(document)
        >>> [(tool.name, tool.description) for tool in tools]
        [('get_user', 'Gives a user')]
        """
        guarded = carries_credentials(headers, settings.get("auth"), settings.get("secrets"))
        configured = {str(name).lower() for name in headers or ()}
        found = operations(document, base_url, only, configured, guarded=guarded)
        shared: dict[str, Any] = {"headers": headers, "timeout": timeout, **settings}
        return [
            cls(each.name, each.description, each.url, method=each.method, operation=each, **shared) for each in found
        ]

    async def run(self, input: Any) -> ToolResult:
        """Send a request, and give what the service says."""
        given = {"input": input} if self._arguments is None else self._arguments.present(input, reveal=True)
        url, headers, body = self._endpoint.request(given)
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._answered(self._request(self._endpoint.method, url, headers, body))
        except TimeoutError:
            raise ToolExecutionError(f"Timed out after {self._timeout:g} s") from None
        except ToolExecutionError as problem:
            raise ToolExecutionError(self._redacted(str(problem))) from None  # the cause may show the URL
        return self._result(response)

    async def _answered(self, request: Any) -> Response:
        for attempt in range(self._retries):
            try:
                response = await self._fetcher.fetch(request)
            except self._unreachable:
                pass
            else:
                if response.status not in _PASSING:
                    return response
            await asyncio.sleep(_FIRST_PAUSE * 2**attempt)
        return await self._fetcher.fetch(request)

    def _result(self, response: Response) -> ToolResult:
        text = self._redacted(_text(response), cut=response.truncated)
        told = {"status": response.status}
        if response.failed:
            return ToolResult.failure(response.failure(text), attributes=told)
        if response.truncated:
            text = f"{text}\n[response truncated at {self._max_bytes} bytes]"
            return ToolResult.success(text, attributes=told)
        return ToolResult.success(text, _payload(response, text), attributes=told)

    def _edit(self) -> str:
        """Give what a reviewer has to write in place of what the model wrote."""
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
            raise ToolDefinitionError(f"Tool '{self.name}': nothing is known for {{{min(unknown)}}} in the URL")
        return made


def _typed(name: str, input_type: type, names: Mapping[str, Any]) -> TypedArguments:
    arguments = TypedArguments.of_type(input_type, names)
    arguments.check()
    if unkept := arguments.unkept:
        raise ToolDefinitionError(
            f"Tool '{name}': {unkept} is an InitVar, which no object keeps, so the service could not be sent it; "
            "make it a field"
        )
    return arguments


def _check_settings(settings: HttpSettings) -> None:
    if unknown := set(settings) - set(HttpSettings.__annotations__):
        raise TypeError(
            f"HttpTool has no setting {min(unknown)!r}; known are {', '.join(HttpSettings.__annotations__)}"
        )
    retries: Any = settings.get("retries", 0)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise ToolDefinitionError(f"retries must be a whole number from 0, not {retries!r:.80}")


def _text(response: Response) -> str:
    text = decoded(response.body, response.charset, cut=response.truncated)
    kind = response.media_type
    if "\0" in text or (kind.startswith(_BINARY) and not kind.endswith("+xml")):
        return f"[{kind or 'binary'}, {len(response.body)} bytes, not shown]"
    return text


def _payload(response: Response, text: str) -> Any:
    """Give what a JSON response holds, for programs."""
    if response.media_type != "application/json" and not response.media_type.endswith("+json"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
