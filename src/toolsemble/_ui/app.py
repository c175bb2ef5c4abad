"""The ASGI application: the page, its files, and the endpoints, behind the guard."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from toolsemble import __version__
from toolsemble._runtime.http_server import Hosts
from toolsemble._ui.endpoint import Asked, Json, RefusedError, read_body, reads
from toolsemble._ui.feed import count_waiting, feed
from toolsemble._ui.guard import LIFETIME, Guard, Sessions, refuse
from toolsemble._ui.interface import Interface
from toolsemble._ui.people import Person
from toolsemble._ui.routes import approvals, chat, durable, durable as outcomes, playground, runs

STATIC = Path(__file__).parent / "static"
"""The folder of the page's files."""

# The table of the system may know others, or none.
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
            *outcomes.ROUTES,
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
    """Return who is signed in, what this person may do, and what there is."""
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
    """Exchange the token of the link for a cookie, and take it out of the address."""
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
    """Return the response to a request that Starlette or the guard ends."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these
    return refuse(error.status_code, error.detail)


async def show_page(request: Request) -> Response:
    """Return the page, at every address that is not an endpoint."""
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
