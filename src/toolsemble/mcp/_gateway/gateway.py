"""The gateway: tools of several servers behind one, with approval, limits and tokens."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from mcp.server.auth.provider import AccessToken

from toolsemble._runtime.text import describe_error
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.catalog._lock.lock import ToolLock
from toolsemble.mcp._client.client import MCPClient
from toolsemble.mcp._gateway.live_toolbox import LiveToolbox
from toolsemble.mcp._gateway.settings import AccessToken as ListedToken, GatewaySettings, ServerSettings
from toolsemble.mcp._gateway.upstream import ClientUpstream
from toolsemble.mcp._server.serve import serve_offer
from toolsemble.mcp._server.server import Offer
from toolsemble.mcp._server.source import ServedLock


class ListedTokens:
    """A ``TokenVerifier`` that accepts a list of tokens; one without a subject is a user of its own.

    >>> import asyncio
    >>> tokens = ListedTokens([ListedToken("a long secret of ada", subject="ada")])
    >>> asyncio.run(tokens.verify_token("a long secret of ada")).subject
    'ada'
    >>> asyncio.run(tokens.verify_token("another")) is None
    True
    """

    def __init__(self, tokens: Sequence[ListedToken]) -> None:
        self._tokens = tuple(tokens)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the user of a token; None if it is not in the list."""
        sent = token.encode(errors="surrogatepass")
        # All are compared, in constant time: the time of an answer must not tell how much of a token is right.
        found = [each for each in self._tokens if hmac.compare_digest(each.token.encode(), sent)]
        if not found:
            return None
        known = found[0]
        subject = known.subject or _name_token(known.token)
        return AccessToken(token=token, client_id=known.client, scopes=list(known.scopes), subject=subject)


def _name_token(token: str) -> str:
    """Return a name for the user of a token, from which the token cannot be computed.

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
    """The name by which its prompts and resources are prefixed."""
    client: MCPClient
    resources: tuple[str, ...] | bool = True
    prompts: tuple[str, ...] | bool = True
    required: bool = True


@dataclass(frozen=True, slots=True)
class ServedBox:
    """A toolbox of a program."""

    target: str
    """The target that it is in."""
    box: Toolbox
    lock: ServedLock | None = None
    """Decides which of its tools may be served; None: all."""

    def find_tools(self) -> Toolbox:
        """Return the toolbox without the tools that the lock refuses."""
        return self.box if self.lock is None else self.lock.check(self.box)


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that the names in a file stand for."""

    tools: Sequence[object] = ()
    """Tools of programs."""
    boxes: Sequence[ServedBox] = ()
    """Toolboxes of programs, whose tools bring their approval and limits."""
    hidden: frozenset[str] = frozenset()
    """The names of tools of programs that the lock hides."""
    servers: Sequence[NamedClient] = ()
    """Servers, not started."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The reviewer, the sinks and the ledger: settings of a toolbox."""
    auth: Any = None
    """The verifier of tokens that a file names."""
    deps: Any = None
    """What tools get as ``ToolContext.deps``."""


class Gateway:
    """Servers and tools behind one server; starts the servers.

    :param settings: the settings of the file
    :param parts: what its names stand for
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
        """The tools, as they are now."""

    def serve(self) -> None:
        """Serve until the client leaves, or the program is interrupted."""
        # Tools that cannot change are listed once.
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
    """Serve tools where a file says, until the client leaves, or the program is interrupted.

    :param auth: the verifier of tokens that the file names
    """
    http = settings.http
    if http is None:
        serve_offer(offer, None, {})
        return
    verifier = ListedTokens(http.tokens) if http.tokens else auth
    urls = {"issuer_url": http.issuer_url, "resource_url": http.resource_url}
    serve_offer(offer, http.address, {"auth": verifier, "allowed_hosts": http.allowed_hosts, **urls})


def build_client(server: ServerSettings, lock: ToolLock | None) -> NamedClient:
    """Return the client of a server of a file; raise ToolConfigurationError if its options do not fit together."""
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
    """Start the servers, some at once; return those that run, and raise if one is missing that is required."""
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
                f"The servers {known[each.uri_prefix]!r:.80} and {each.name!r:.80} cannot be told apart; rename one"
            )
        known[each.uri_prefix] = each.name
