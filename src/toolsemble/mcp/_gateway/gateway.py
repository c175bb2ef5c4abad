"""The gateway: several servers' tools behind one, with approval, limits and tokens."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import mcp_types
from mcp.server.auth.provider import AccessToken
from mcp.shared.exceptions import MCPError

from toolsemble._engine.context import ToolContext
from toolsemble._runtime.text import describe_error
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.catalog._pinning.tool_lock import ToolLock
from toolsemble.mcp._client.client import MCPClient
from toolsemble.mcp._client.session import list_pages
from toolsemble.mcp._client.text_cleaning import MAX_DESCRIPTION, MAX_TITLE, clean_text
from toolsemble.mcp._gateway.live_toolbox import LiveToolbox
from toolsemble.mcp._gateway.settings import AccessToken as ListedToken, GatewaySettings, ServerSettings
from toolsemble.mcp._server.serve import serve_offer
from toolsemble.mcp._server.server import Offer
from toolsemble.mcp._server.source import ServedLock

_LONGEST_URI = 2000
_NOT_A_SCHEME = re.compile("[^a-z0-9-]")


class ClientUpstream:
    """The resources and prompts of a client's server, as forwarded by a gateway.

    :param name: the server's name in the gateway
    :param resources: whether to forward resources, or patterns of their URIs
    :param prompts: whether to forward prompts, or patterns of their names

    >>> upstream = ClientUpstream("my_docs", MCPClient.http("https://docs.example.com/mcp"))
    >>> upstream.uri_prefix, upstream.prompt_prefix
    ('my-docs+', 'my_docs_')
    """

    def __init__(
        self,
        name: str,
        client: MCPClient,
        *,
        resources: tuple[str, ...] | bool = True,
        prompts: tuple[str, ...] | bool = True,
    ) -> None:
        self.name = name
        self.uri_prefix = make_uri_prefix(name)
        self.prompt_prefix = f"{name}_"
        self._client = client
        self._wanted = {"resources": resources, "prompts": prompts}

    def offers(self, kind: str) -> bool:
        """Return whether there are ``"resources"`` or ``"prompts"`` to forward."""
        return self._wanted[kind] is not False and getattr(self._client.capabilities, kind, None) is not None

    async def list_resources(self) -> list[Any]:
        """Return the resources with their gateway URIs."""
        found = await self._list(lambda sdk: sdk.list_resources, "resources")
        return [self._show(each, uri=self.uri_prefix + each.uri) for each in found if self._passes_uri(each.uri)]

    async def list_templates(self) -> list[Any]:
        """Return the resource templates."""
        found = await self._list(lambda sdk: sdk.list_resource_templates, "resource_templates")
        return [
            self._show(each, uri_template=self.uri_prefix + each.uri_template)
            for each in found
            if self._passes_uri(each.uri_template)
        ]

    async def list_prompts(self) -> list[mcp_types.Prompt]:
        """Return the prompts with their gateway names."""
        found = await self._list(lambda sdk: sdk.list_prompts, "prompts")
        return [self._show_prompt(each) for each in found if self._passes("prompts", each.name)]

    async def read(self, uri: str, context: ToolContext) -> mcp_types.ReadResourceResult:
        """Return the contents of a resource."""
        own = uri.removeprefix(self.uri_prefix)
        if not self._passes_uri(own):
            raise MCPError(mcp_types.INVALID_PARAMS, "Unknown resource", {"uri": uri})
        answer = await self._client.request(lambda sdk: sdk.read_resource(own, cache_mode="bypass"), context=context)
        contents = [each.model_copy(update={"uri": self.uri_prefix + each.uri}) for each in answer.contents]
        return mcp_types.ReadResourceResult(contents=contents)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], context: ToolContext
    ) -> mcp_types.GetPromptResult:
        """Return the messages of a prompt."""
        own = name.removeprefix(self.prompt_prefix)
        if not self._passes("prompts", own):
            raise MCPError(mcp_types.INVALID_PARAMS, f"Unknown prompt: {clean_text(name, MAX_TITLE)}")
        answer = await self._client.request(lambda sdk: sdk.get_prompt(own, dict(arguments)), context=context)
        messages = [each.model_copy(update={"content": self._rewrite(each.content)}) for each in answer.messages]
        return mcp_types.GetPromptResult(description=_clean(answer.description, MAX_DESCRIPTION), messages=messages)

    async def complete(self, params: mcp_types.CompleteRequestParams) -> mcp_types.CompleteResult:
        """Return values for a prompt or template argument; none if the server does not support completion."""
        if self._client.capabilities is None or self._client.capabilities.completions is None:
            return mcp_types.CompleteResult(completion=mcp_types.Completion(values=[], total=0, has_more=False))
        reference = params.ref
        own: Any
        if isinstance(reference, mcp_types.PromptReference):
            own = mcp_types.PromptReference(name=reference.name.removeprefix(self.prompt_prefix))
        else:
            own = mcp_types.ResourceTemplateReference(uri=reference.uri.removeprefix(self.uri_prefix))
        argument = {"name": params.argument.name, "value": params.argument.value}
        known = None if params.context is None else params.context.arguments
        answer = await self._client.request(lambda sdk: sdk.complete(own, argument, known))
        return mcp_types.CompleteResult(completion=answer.completion)

    async def _list(self, choose: Callable[[Any], Any], key: str) -> list[Any]:
        options = self._client.options

        async def fetch(sdk: Any) -> list[Any]:
            return [each async for page in list_pages(choose(sdk), key, options) for each in page]

        found: list[Any] = await self._client.request(fetch)
        return found

    def _passes(self, kind: str, name: str) -> bool:
        wanted = self._wanted[kind]
        if isinstance(wanted, bool):
            return wanted and _is_clean(name, MAX_TITLE)
        return _is_clean(name, MAX_TITLE) and any(fnmatchcase(name, pattern) for pattern in wanted)

    def _passes_uri(self, uri: str) -> bool:
        wanted = self._wanted["resources"]
        if isinstance(wanted, bool):
            return wanted and _is_clean(uri, _LONGEST_URI)
        return _is_clean(uri, _LONGEST_URI) and any(fnmatchcase(uri, pattern) for pattern in wanted)

    def _show(self, item: Any, **names: str) -> Any:
        """Return a resource or a template with cleaned texts, without fields that clients would load or trust."""
        texts = {"title": _clean(item.title, MAX_TITLE), "description": _clean(item.description, MAX_DESCRIPTION)}
        name = clean_text(item.name, MAX_TITLE)
        return item.model_copy(update={**texts, **names, "name": name, "icons": None, "meta": None})

    def _show_prompt(self, prompt: mcp_types.Prompt) -> mcp_types.Prompt:
        arguments = [
            each.model_copy(update={"description": _clean(each.description, MAX_DESCRIPTION)})
            for each in prompt.arguments or ()
        ]
        shown: mcp_types.Prompt = self._show(prompt, name=prompt.name)
        return shown.model_copy(update={"name": self.prompt_prefix + prompt.name, "arguments": arguments or None})

    def _rewrite(self, content: Any) -> Any:
        """Return a message's contents with gateway URIs."""
        if content.type == "resource_link":
            return content.model_copy(update={"uri": self.uri_prefix + content.uri, "icons": None, "meta": None})
        if content.type == "resource":
            inner = content.resource.model_copy(update={"uri": self.uri_prefix + content.resource.uri})
            return content.model_copy(update={"resource": inner})
        return content


def make_uri_prefix(name: str) -> str:
    """Return the URI prefix of a server: a part of the scheme.

    >>> make_uri_prefix("My_Docs"), make_uri_prefix("2nd")
    ('my-docs+', 's2nd+')
    """
    scheme = _NOT_A_SCHEME.sub("-", name.lower())
    return f"{scheme}+" if scheme[0].isalpha() else f"s{scheme}+"


def _clean(text: str | None, limit: int) -> str | None:
    return clean_text(text, limit) or None


def _is_clean(text: str, limit: int) -> bool:
    return clean_text(text, limit) == text


class ListedTokens:
    """A ``TokenVerifier`` for a list of tokens; a token without a subject is a separate user."""

    def __init__(self, tokens: Sequence[ListedToken]) -> None:
        self._tokens = tuple(tokens)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return a token's user; None if it is not in the list."""
        sent = token.encode(errors="surrogatepass")
        # All are compared in constant time, to prevent timing attacks.
        found = [each for each in self._tokens if hmac.compare_digest(each.token.encode(), sent)]
        if not found:
            return None
        known = found[0]
        subject = known.subject or _name_token(known.token)
        return AccessToken(token=token, client_id=known.client, scopes=list(known.scopes), subject=subject)


def _name_token(token: str) -> str:
    """Return a name for a token's user that does not reveal the token.

    >>> _name_token("a long secret of ada")
    'token:389e60d210fc9482'
    """
    return f"token:{hashlib.sha256(token.encode()).hexdigest()[:16]}"


LOGGER = logging.getLogger("toolsemble.mcp")
_STARTS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class NamedClient:
    """A server behind a gateway."""

    name: str
    """The prefix of its prompts and resources."""
    client: MCPClient
    resources: tuple[str, ...] | bool = True
    prompts: tuple[str, ...] | bool = True
    required: bool = True


@dataclass(frozen=True, slots=True)
class ServedBox:
    """A program's toolbox."""

    target: str
    """Its target."""
    box: Toolbox
    lock: ServedLock | None = None
    """The lock on its tools; None: all are served."""

    def find_tools(self) -> Toolbox:
        """Return the toolbox without tools that the lock refuses."""
        return self.box if self.lock is None else self.lock.check(self.box)


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that a file's names refer to."""

    tools: Sequence[object] = ()
    """Programs' tools."""
    boxes: Sequence[ServedBox] = ()
    """Programs' toolboxes, whose tools keep their approval and limits."""
    hidden: frozenset[str] = frozenset()
    """The names of program tools that the lock hides."""
    servers: Sequence[NamedClient] = ()
    """Servers, not started."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The reviewer, sinks and ledger, as toolbox settings."""
    auth: Any = None
    """The token verifier that a file names."""
    deps: Any = None
    """The tools' ``ToolContext.deps``."""


class Gateway:
    """Servers and tools behind one server; starts the servers.

    :param settings: the file's settings
    :param parts: the objects that its names refer to
    """

    def __init__(self, settings: GatewaySettings, parts: Parts) -> None:
        self._settings = settings
        self._parts = parts
        self._servers = _start(parts.servers)
        self._upstreams = [
            ClientUpstream(each.name, each.client, resources=each.resources, prompts=each.prompts)
            for each in self._servers
        ]
        _check_prefixes(self._upstreams)
        boxes = [each.find_tools() for each in parts.boxes]
        shown = {name for box in boxes for name in box.names}
        refused = {name for each in parts.boxes for name in each.box.names if name not in shown}
        self.toolbox = LiveToolbox(
            [*parts.tools, *boxes],
            [each.client for each in self._servers],
            settings.rules,
            settings.approval.tools,
            {**settings.limits, **settings.approval.terms, **parts.settings},
            parts.hidden | refused,
        )
        """The current tools."""

    def serve(self) -> None:
        """Serve until the client disconnects or the program is interrupted."""
        # Immutable tools are listed only once.
        source = self.toolbox if self._servers else self.toolbox()
        offer = Offer(
            source,
            self._settings.name,
            self._settings.instructions,
            upstreams=self._upstreams,
            deps=self._parts.deps,
            is_hidden=self.toolbox.is_hidden_by_lock,
        )
        serve_as(offer, self._settings, self._parts.auth)


def serve_as(offer: Offer, settings: GatewaySettings, auth: Any) -> None:
    """Serve tools at a file's address, until the client disconnects or the program is interrupted.

    :param auth: the token verifier that the file names
    """
    http = settings.http
    if http is None:
        serve_offer(offer, None, {})
        return
    verifier = ListedTokens(http.tokens) if http.tokens else auth
    urls = {"issuer_url": http.issuer_url, "resource_url": http.resource_url}
    serve_offer(offer, http.address, {"auth": verifier, "allowed_hosts": http.allowed_hosts, **urls})


def build_client(server: ServerSettings, lock: ToolLock | None) -> NamedClient:
    """Return the client for a file's server; raise ToolConfigurationError if its options conflict."""
    options: Any = {**server.options, "lock": lock}
    transport: Any = server.transport
    try:
        client = (
            MCPClient.stdio(server.command, *server.args, env=server.env, cwd=server.cwd, **options)
            if server.command
            else MCPClient.http(server.url, headers=server.headers, auth=server.token, transport=transport, **options)
        )
    except ToolDefinitionError as problem:
        raise ToolConfigurationError(f"servers.{server.name}: {problem}") from problem
    return NamedClient(server.name, client, server.resources, server.prompts, server.required)


def _start(servers: Sequence[NamedClient]) -> list[NamedClient]:
    """Start the servers concurrently; return the running ones, and raise if a required one failed."""
    with ThreadPoolExecutor(_STARTS_AT_ONCE) as pool:
        problems = list(pool.map(_try_start, servers))
    for server, problem in zip(servers, problems, strict=True):
        if problem is not None and server.required:
            for each in servers:
                each.client.close()
            raise problem
        if problem is not None:
            LOGGER.warning("The gateway starts without %s: %s", server.name, describe_error(problem))
    return [server for server, problem in zip(servers, problems, strict=True) if problem is None]


def _try_start(server: NamedClient) -> ToolConfigurationError | None:
    try:
        server.client.start()
    except ToolConfigurationError as problem:
        return problem
    return None


def _check_prefixes(upstreams: Sequence[ClientUpstream]) -> None:
    known: dict[str, str] = {}
    for each in upstreams:
        if each.uri_prefix in known:
            raise ToolConfigurationError(
                f"The servers {known[each.uri_prefix]!r:.80} and {each.name!r:.80} have ambiguous names; rename one"
            )
        known[each.uri_prefix] = each.name
