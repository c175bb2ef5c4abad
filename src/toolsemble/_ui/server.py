"""The server: a socket, the printed address, and uvicorn."""

from __future__ import annotations

import mimetypes
import os
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from toolsemble import __version__
from toolsemble._runtime.http_server import Hosts, bound_server
from toolsemble._ui.endpoint import Asked, Json, RefusedError, read_body, reads
from toolsemble._ui.feed import count_waiting, feed
from toolsemble._ui.guard import LIFETIME, Guard, Sessions, refuse
from toolsemble._ui.interface import DataFolder, Interface, Targets
from toolsemble._ui.people import LocalUser, People, PeopleFile, Person
from toolsemble._ui.routes import approvals, chat, durable, playground, runs
from toolsemble._vocabulary.errors import ToolConfigurationError

STATIC = Path(__file__).parent / "static"
"""The folder of the page's files."""

# The system's table may differ or be empty.
mimetypes.add_type("text/javascript", ".mjs")
mimetypes.add_type("image/svg+xml", ".svg")


def build_app(interface: Interface, sessions: Sessions, hosts: Hosts) -> ASGIApp:
    """Return the application, with all checks around it."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await durable.stop_working(interface)
        interface.folder.close()

    app = Starlette(
        routes=[
            reads("/api/me", describe_me),
            Route("/api/feed", feed),
            Route("/api/login", sign_in, methods=["POST"]),
            *runs.ROUTES,
            *approvals.ROUTES,
            *playground.ROUTES,
            *chat.ROUTES,
            *durable.ROUTES,
            Route("/login", follow_link),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/{path:path}", show_page),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: show_refusal},
    )
    app.state.interface = interface
    app.state.sessions = sessions
    return Guard(app, sessions, hosts, read_only=interface.read_only)


def describe_me(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the signed-in person, their permissions, and the available pages."""
    person = asked.person
    can_change = person.may_change and not interface.read_only
    return {
        "person": person.name,
        "roles": list(person.roles),
        "may_change": can_change,
        "may_operate": person.may_operate and not interface.read_only,
        "read_only": interface.read_only,
        "folder": str(interface.folder.path),
        "tools": interface.targets.names,
        "agents": list(interface.targets.agents),
        "version": __version__,
        **count_waiting(interface),
    }


async def follow_link(request: Request) -> Response:
    """Exchange the link's token for a cookie, and remove it from the address."""
    sessions: Sessions = request.app.state.sessions
    person = sessions.use_link(request.query_params.get("token", ""))
    answer = RedirectResponse("/", 303)
    if person is not None:
        _set_cookie(request, answer, person)
    return answer


async def sign_in(request: Request) -> Response:
    """Exchange a token for a cookie."""
    sessions: Sessions = request.app.state.sessions
    try:
        body = await read_body(request)
    except RefusedError as error:
        return refuse(error.status, str(error))
    token = body.get("token")
    person = sessions.sign_in(token) if isinstance(token, str) else None
    if person is None:
        return refuse(403, "This token is not valid; a link works once")
    answer = Json({"person": person.name})
    _set_cookie(request, answer, person)
    return answer


async def show_refusal(_: Request, error: Exception) -> Response:
    """Return the response to a request that Starlette or the guard rejects."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these
    return refuse(error.status_code, error.detail)


async def show_page(request: Request) -> Response:
    """Return the page, at every address except endpoints."""
    if request.scope["path"].startswith("/api/"):
        return refuse(404, "There is no such endpoint")
    return FileResponse(STATIC / "index.html")


def _set_cookie(request: Request, answer: Response, person: Person) -> None:
    sessions: Sessions = request.app.state.sessions
    answer.set_cookie(
        sessions.cookie,
        sessions.make_cookie(person),
        max_age=LIFETIME,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


_MAX_CONNECTIONS = 200
_OPEN_FILE = "ui-open.html"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server.

    >>> ServerSettings().port
    7771
    """

    data: str = ".toolsemble"
    """The data folder."""
    port: int = 7771
    """The port; 0 picks a free one."""
    host: str = "127.0.0.1"
    """The address; any except loopback needs ``people``."""
    people: str | None = None
    """The people file; None: only this machine's user."""
    allowed_hosts: tuple[str, ...] = ()
    """Additional host names of the server."""
    read_only: bool = False
    """Whether the server is read-only."""
    open_browser: bool = True
    """Whether to open the page."""


def serve(settings: ServerSettings, targets: Targets, report: Callable[[str], object]) -> None:
    """Serve the interface until the program is interrupted.

    :param report: writes a line for the user
    """
    is_local = _is_loopback(settings.host)
    if not is_local and settings.people is None:
        raise ToolConfigurationError(
            f"{settings.host:.80} can be reached from other machines, so users must sign in: pass --people FILE, "
            "made by 'toolsemble ui add-person NAME'"
        )
    people: People = LocalUser() if settings.people is None else PeopleFile(settings.people)
    folder = DataFolder(Path(settings.data))
    with _bind(settings.host, settings.port) as listener:
        port = listener.getsockname()[1]
        sessions = Sessions(folder.path, people, port)
        address = f"http://{_bracket(settings.host)}:{port}"
        interface = Interface(folder, targets, settings.read_only, address)
        hosts = Hosts.build(settings.allowed_hosts, addresses=not is_local)
        config = uvicorn.Config(
            build_app(interface, sessions, hosts),
            log_level="warning",
            server_header=False,
            proxy_headers=settings.people is not None,
            timeout_graceful_shutdown=2,
            **bound_server(_MAX_CONNECTIONS),
        )
        _announce(settings, sessions, address, folder.path, report)
        try:
            uvicorn.Server(config).run([listener])
        finally:
            (folder.path / _OPEN_FILE).unlink(missing_ok=True)


def _announce(
    settings: ServerSettings, sessions: Sessions, address: str, folder: Path, report: Callable[[str], object]
) -> None:
    if not sessions.link_token:
        report(f"toolsemble ui: {address}, for the people in {settings.people}; Ctrl-C stops it")
        report("toolsemble ui: connections are not encrypted: put a proxy with TLS in front of it")
        return
    link = f"{address}/login?token={sessions.link_token}"
    report(f"toolsemble ui: {link}")
    report("toolsemble ui: the link works once; Ctrl-C stops the server")
    if settings.open_browser:
        webbrowser.open(_write_opener(folder, link).as_uri())


def _write_opener(folder: Path, link: str) -> Path:
    """Return a private file that redirects to the link: all users can see a browser's arguments."""
    path = folder / _OPEN_FILE
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(link)}">\n')
    return path


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # so that the browser, which opens now, can connect
    except OSError as error:
        listener.close()
        raise ToolConfigurationError(
            f"Cannot listen on {host}:{port} ({error.strerror}); pass another --port"
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
