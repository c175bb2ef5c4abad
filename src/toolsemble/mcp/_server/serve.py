"""``serve`` and ``asgi``: a toolbox as an MCP server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from toolsemble._runtime.extras import import_extra
from toolsemble._vocabulary.errors import ToolConfigurationError

if TYPE_CHECKING:
    from os import PathLike

    from mcp.server.auth.provider import TokenVerifier

    from toolsemble.catalog._pinning.tool_lock import ToolLock
    from toolsemble.mcp._server.http import McpApplication
    from toolsemble.mcp._server.resources import PromptSource, ResourceSource
    from toolsemble.mcp._server.server import Offer
    from toolsemble.mcp._server.source import ServedLock, ToolSource

_MAX_CONNECTIONS = 1000
_GRACE = 3  # grace period for open requests at shutdown, in seconds


def serve(  # noqa: PLR0913 - keyword settings, each with a default
    box: ToolSource,
    *,
    http: str | None = None,
    name: str | None = None,
    instructions: str = "",
    auth: TokenVerifier | None = None,
    issuer_url: str | None = None,
    resource_url: str | None = None,
    allowed_hosts: Iterable[str] = (),
    resources: ResourceSource = (),
    prompts: PromptSource = (),
    lock: ToolLock | str | PathLike[str] | None = None,
    lock_source: str | None = None,
    deps: Any = None,
) -> None:
    """Serve a toolbox over MCP until the client disconnects or the program is interrupted.

    Calls go through the toolbox: validation, approval, limits and telemetry apply. A tool that needs approval asks the
    client's user, unless the toolbox has a reviewer.

    :param box: a :class:`~toolsemble.Toolbox`, an :class:`~toolsemble.Agent`, or a function that takes a
        :class:`Caller` and returns one of these, sync or async; it is called for each request
    :param http: an address such as ``127.0.0.1:8000`` for streamable HTTP at ``/mcp``; None: standard input and output
    :param name: the name of the server, or of an agent's tool; default: ``toolsemble``, or ``ask``
    :param instructions: how to use the server, for the client's model
    :param auth: a ``TokenVerifier`` of the SDK for bearer tokens; only over HTTP
    :param issuer_url: the authorization server that issues the tokens, for client discovery
    :param resource_url: this server's URL; only tokens issued for it are accepted
    :param allowed_hosts: its host names, without ports; required for any address except loopback
    :param resources: functions whose return values clients can read, or such functions by URI: ``{"docs://{page}":
    read}``;
        they return a str, bytes, contents such as :class:`~toolsemble.ImageContent`, or any value, sent as JSON
    :param prompts: functions that return a prompt: a str, contents, or a list of these and of messages
        ``{"role": "user", "content": ...}``; like resources, they can be returned by a function of the caller
    :param lock: a :class:`~toolsemble.ToolLock`, or its file: clients see only tools that match their pins; other
    servers' tools are checked on each change :param lock_source: the toolbox's target for ``toolsemble lock``, such as
    ``shop.py:box``; default: the server's name, pinned by ``ToolLock.write`` :param deps: the ``ToolContext.deps``
    object of all calls of all clients

    >>> serve([], http="0.0.0.0:8000")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: http='0.0.0.0:8000' can be reached from other machines: ...
    """
    import_extra("mcp", extra="mcp", user="toolsemble.mcp.serve")
    from toolsemble.mcp._server.server import Offer

    served_lock = _build_lock(lock, lock_source, name)
    settings = {"auth": auth, "issuer_url": issuer_url, "resource_url": resource_url, "allowed_hosts": allowed_hosts}
    serve_offer(Offer(box, name, instructions, resources, prompts, served_lock, deps=deps), http, settings)


def asgi(  # noqa: PLR0913 - as above
    box: ToolSource,
    *,
    name: str | None = None,
    instructions: str = "",
    auth: TokenVerifier | None = None,
    issuer_url: str | None = None,
    resource_url: str | None = None,
    allowed_hosts: Iterable[str] = (),
    resources: ResourceSource = (),
    prompts: PromptSource = (),
    lock: ToolLock | str | PathLike[str] | None = None,
    lock_source: str | None = None,
    deps: Any = None,
) -> McpApplication:
    """Return an ASGI application that serves a toolbox over MCP at ``/mcp``; parameters as in :func:`serve`.

    Run it with any ASGI server, or mount it in Starlette or FastAPI with its ``lifespan``:
    ``FastAPI(lifespan=tools.lifespan).mount("/tools", tools)``. Only requests for loopback and for ``allowed_hosts``
    are accepted.

    >>> from toolsemble import tool
    >>> @tool
    ... def now() -> str:
    ...     return "noon"
    >>> asgi([now]).lifespan  # doctest: +ELLIPSIS
    <bound method McpApplication.lifespan of ...>
    """
    import_extra("mcp", extra="mcp", user="toolsemble.mcp.asgi")
    from toolsemble.mcp._server.http import Access, McpApplication
    from toolsemble.mcp._server.server import Offer

    access = Access(allowed_hosts, auth, issuer_url, resource_url)
    served_lock = _build_lock(lock, lock_source, name)
    return McpApplication(Offer(box, name, instructions, resources, prompts, served_lock, deps=deps), access)


def _build_lock(lock: ToolLock | str | PathLike[str] | None, source: str | None, name: str | None) -> ServedLock | None:
    """Return a server's lock; None without one."""
    if lock is None:
        if source is not None:
            raise ToolConfigurationError("lock_source needs lock: a ToolLock, or the path of a lock file")
        return None
    from toolsemble.catalog._pinning.tool_lock import as_lock
    from toolsemble.mcp._server.source import ServedLock

    used = as_lock(lock)
    if source is not None:
        return ServedLock(used, source)
    own = name or "toolsemble"
    return ServedLock(used, own, f"ToolLock.write({str(used.path)!r}, {{{own!r}: box}})")


def serve_offer(offer: Offer, http: str | None, settings: dict[str, Any]) -> None:
    """Serve until the client disconnects or the program is interrupted.

    :param http: the address; None: standard input and output
    :param settings: the fields of :class:`~toolsemble.mcp._server.http.Access`
    """
    if http is not None:
        _serve_http(http, offer, settings)
        return
    if unused := [key for key, value in settings.items() if value]:
        raise ToolConfigurationError(f"{unused[0]} is for HTTP: pass http='127.0.0.1:8000' as well, or leave it out")
    import asyncio

    from toolsemble.mcp._server.stdio import serve_stdio

    asyncio.run(serve_stdio(offer))


def _serve_http(http: str, offer: Offer, settings: dict[str, Any]) -> None:
    from toolsemble.mcp._server.http import Access, McpApplication, check_address

    settings["allowed_hosts"] = tuple(settings["allowed_hosts"])
    host, port = check_address(http, settings["allowed_hosts"])
    import uvicorn

    from toolsemble._runtime.http_server import bound_server

    app = McpApplication(offer, Access(**settings))
    bounds = bound_server(_MAX_CONNECTIONS)
    uvicorn.run(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=_GRACE, **bounds)
