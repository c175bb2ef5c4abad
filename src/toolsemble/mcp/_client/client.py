"""``MCPClient``: the tools of an MCP server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack
from urllib.parse import urlsplit

from toolsemble._engine.context import ToolContext
from toolsemble._tools.base import Tool
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.catalog._pinning.lock_file import PREFIX, identify_program, identify_url
from toolsemble.mcp._client.connection import Connection
from toolsemble.mcp._client.options import CONNECT_TIMEOUT, ClientOptions, Options, build_options
from toolsemble.mcp._client.token_file import TokenFile

if TYPE_CHECKING:
    from os import PathLike

    from mcp import Client
    from mcp_types import Implementation, ServerCapabilities

    from toolsemble.mcp._client.config import ConfiguredServer
    from toolsemble.mcp._client.session import Target

_LAUNCHERS = {"bunx", "deno", "docker", "node", "npx", "pipx", "python", "python3", "uv", "uvx"}


class MCPClient:
    """The tools of an MCP server; created by :meth:`stdio`, :meth:`http` or :meth:`from_config`.

    Start it with ``with`` or ``async with``, or with :meth:`start`. Its tools can be called from any thread and any
    event loop: one background thread owns the connection. A closed client can be restarted; tools obtained before work
    afterwards.

    >>> files = MCPClient.stdio("mcp-server-files", "./docs", name="files", prefix="files_")
    >>> files
    <MCPClient 'files', not running>
    """

    def __init__(self, name: str, make_target: Callable[[], Target], options: Mapping[str, Any], source: str) -> None:
        self._connection = Connection(make_target, build_options(name, options), source)

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> Self:
        """Return a client for a program that speaks MCP on its standard input and output.

        :param command: the program; only this method starts programs
        :param args: its arguments
        :param env: environment variables, added to HOME, LOGNAME, PATH, SHELL, TERM and USER
        :param cwd: its working directory
        :param options: see :class:`~toolsemble.mcp._client.options.ClientOptions`
        """
        line: tuple[Any, ...] = (command, *args)
        if not all(isinstance(each, str) and "\0" not in each for each in line) or not command:
            raise ToolDefinitionError(f"MCPClient.stdio takes the command and its arguments as str, not {line!r:.200}")
        variables = _check_mapping("env", env)

        def make_target() -> Target:
            from toolsemble.mcp._client.stdio import ProgramTarget

            return ProgramTarget(command, args, variables, None if cwd is None else str(cwd))

        return cls(_name_program(line), make_target, options, identify_program(command, *args))

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Any = None,
        transport: Literal["http", "sse"] = "http",
        **options: Unpack[ClientOptions],
    ) -> Self:
        """Return a client for a server at a URL.

        :param headers: sent with each request
        :param auth: a str, sent as a bearer token; an httpx auth object; or an OAuth provider of the SDK
        :param transport: ``"sse"`` for servers older than streamable HTTP
        :param options: see :class:`~toolsemble.mcp._client.options.ClientOptions`

        >>> MCPClient.http("https://tools.example.com/mcp", auth="a token")
        <MCPClient 'tools.example.com', not running>
        """
        host = _check_url(url)
        if transport not in ("http", "sse"):
            raise ToolDefinitionError(f"MCPClient.http transport must be 'http' or 'sse', not {transport!r:.80}")
        if not (auth is None or isinstance(auth, str) or callable(getattr(auth, "async_auth_flow", None))):
            raise ToolDefinitionError(
                "MCPClient.http auth must be a token, an auth object of httpx, or an OAuth provider of the SDK, not "
                f"{type(auth).__name__}"
            )
        _bind_tokens(auth, url)
        sent = _check_mapping("headers", headers)
        limit: Any = options.get("connect_timeout", CONNECT_TIMEOUT)

        def make_target() -> Target:
            from toolsemble.mcp._client.http import HttpTarget

            return HttpTarget(url, sent, auth, transport, limit)

        return cls(host, make_target, options, identify_url(url))

    @classmethod
    def from_config(cls, path: str | PathLike[str], **options: Unpack[ClientOptions]) -> dict[str, Self]:
        """Return a client for each server in an ``mcp.json`` file, by name, except disabled ones.

        ``${NAME}`` and ``${NAME:-default}`` are replaced by environment variables. Programs are started only with their
        client.

        :param path: a file as used by Claude Desktop, Cursor and VS Code
        :param options: options for all clients
        """
        from toolsemble.mcp._client.config import read_config

        return {name: cls.from_server(server, {"name": name, **options}) for name, server in read_config(path).items()}

    @classmethod
    def from_server(cls, server: ConfiguredServer, options: Mapping[str, Any]) -> Self:
        """Return a client for one server in a file."""
        if server.command:
            return cls.stdio(server.command, *server.args, env=server.env, cwd=server.cwd, **options)
        transport: Any = server.transport
        return cls.http(server.url, headers=server.headers, transport=transport, **options)

    @property
    def name(self) -> str:
        """The server's name in messages."""
        return self._connection.options.name

    @property
    def instructions(self) -> str:
        """The server's own usage instructions, which are untrusted and not part of any prompt; "" before the start."""
        return str(self._connection.facts.get("instructions", ""))

    @property
    def protocol_version(self) -> str | None:
        """The protocol version negotiated last; None before the start."""
        return self._connection.facts.get("protocol_version")

    @property
    def server_info(self) -> Implementation | None:
        """The server's declared name and version; None if it declared none."""
        return self._connection.facts.get("server_info")

    @property
    def capabilities(self) -> ServerCapabilities | None:
        """The server's capabilities besides tools, such as ``prompts`` and ``resources``; None before the start."""
        return self._connection.facts.get("capabilities")

    @property
    def options(self) -> Options:
        """The validated options."""
        return self._connection.options

    @property
    def lock_source(self) -> str:
        """The server's identity in a lock file: its command line without secrets, or its URL without a query.

        >>> MCPClient.http("https://ada:secret@tools.example.com/mcp?key=1").lock_source
        'mcp:https://tools.example.com/mcp'
        """
        return self._connection.source

    @property
    def listed(self) -> list[dict[str, Any]]:
        """All tools listed by the server, including unselected ones; for :meth:`~toolsemble.ToolLock.write`."""
        return [each.to_listed() for each in self._connection.shown]

    @property
    def hidden(self) -> Mapping[str, str]:
        """The reasons why the lock currently hides tools, by their names."""
        return self._connection.hidden

    def find_unused(self) -> list[str]:
        """Return the names and patterns in ``approve`` and ``only`` that match no current tool: probably mistakes."""
        return [pattern for _, pattern in self._connection.find_unused()]

    def start(self) -> Self:
        """Start the client unless it is running, wait for the tool list, and return the client.

        Raise :class:`~toolsemble.ToolConfigurationError` with the cause if the server cannot be started or reached.
        """
        self._connection.start()
        return self

    def close(self) -> None:
        """Close the connection, and stop a program with all processes that it started."""
        self._connection.close()

    async def astart(self) -> Self:
        """Start the client without blocking the event loop: see :meth:`start`."""
        await self._connection.astart()
        return self

    async def aclose(self) -> None:
        """Close the connection without blocking the event loop."""
        await self._connection.aclose()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._connection.tools.values()))

    def __len__(self) -> int:
        return len(self._connection.tools)

    def current(self, view: object = None) -> list[Tool]:
        """Return the current tools; for ``Agent(tools=client.current)``, which calls it before each turn.

        :param view: the state of the run; not used
        """
        _ = view
        return list(self)

    async def request(self, send: Callable[[Client], Awaitable[Any]], *, context: ToolContext | None = None) -> Any:
        """Send a request that is not a tool call, such as for a resource or a prompt, and return its answer.

        It has the timeout of calls, and may be sent twice if the server ends.

        :param send: an async function of the SDK's client; runs in the thread that owns the connection
        :param context: the context of the request's call, whose reviewer answers questions
        """

        async def send_once(client: Client, _: object) -> Any:
            return await send(client)

        around = ToolContext() if context is None else context
        return await self._connection.exchange(send_once, lambda answer: answer, around, repeatable=True)

    def __repr__(self) -> str:
        state = f"{len(self)} tools" if self._connection.is_running else "not running"
        return f"<MCPClient {self.name!r}, {state}>"


def _check_url(url: Any) -> str:
    """Return a URL's host; raise if it is not an HTTP URL."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolDefinitionError(
            f"MCPClient.http takes a URL that begins with http:// or https://, not {url!r:.200}; "
            "for a program write MCPClient.stdio(...)"
        )
    return parts.hostname


def _bind_tokens(auth: Any, url: str) -> None:
    """Bind an OAuth provider's token file to the server at a URL."""
    context = getattr(auth, "context", None)
    storage = getattr(auth, "_storage", None) if context is None else getattr(context, "storage", None)
    if isinstance(storage, TokenFile):
        storage.use_for(identify_url(url).removeprefix(PREFIX))


def _check_mapping(option: str, value: Any) -> dict[str, str]:
    given = {} if value is None else value
    if not isinstance(given, Mapping) or not all(
        isinstance(key, str) and isinstance(each, str) for key, each in given.items()
    ):
        raise ToolDefinitionError(f"MCPClient {option} must map str to str")  # without the values: they may be secrets
    return dict(given)


def _name_program(line: tuple[str, ...]) -> str:
    """Return a program's name; for a launcher such as npx, the launched program's name."""
    first = PurePath(line[0]).stem
    names = [each for each in line[1:] if not each.startswith("-")] if first in _LAUNCHERS else []
    return PurePath(names[0]).name if names else first
