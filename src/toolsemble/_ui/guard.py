"""The checks before every request: host, origin and form of changes, and sign-in."""

from __future__ import annotations

import base64
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolsemble._runtime.http_server import Hosts
from toolsemble._runtime.signing import is_signed, sign
from toolsemble._runtime.storage.sqlite import load_key
from toolsemble._ui.people import LocalUser, People, Person

LIFETIME = 7 * 24 * 3600
"""The lifetime of a cookie, in seconds."""
TOKEN_FILE = "ui.token"  # noqa: S105 - the name of a file
"""The file in the data folder with the token for this user's programs."""


class Sessions:
    """The sessions of one server, which survive restarts: cookies are signed with a key in the data folder.

    :param folder: the data folder
    :param people: the people who may sign in
    :param port: a part of the cookie's name, so that two servers on one machine do not sign each other out
    :param clock: returns the seconds since the epoch
    """

    def __init__(self, folder: Path, people: People, port: int, clock: Callable[[], float] = time.time) -> None:
        self._key = load_key(folder / "ui", "key of the web interface")
        self._people = people
        self._clock = clock
        self._link = secrets.token_urlsafe(32) if isinstance(people, LocalUser) else ""
        self._program_token = sign(self._key, "program", "")
        self.cookie = f"toolsemble-{port}"
        if isinstance(people, LocalUser):
            _write_private(folder / TOKEN_FILE, self._program_token)

    @property
    def link_token(self) -> str:
        """The token of the sign-in link for this machine's user; empty if it was used, or if people have tokens."""
        return self._link

    def use_link(self, token: str) -> Person | None:
        """Return this machine's user for the link's one-time token; None if it is wrong.

        A link accepts no other token: it would stay in logs, and following another user's link would sign in as that
        user.
        """
        is_right = self._link and hmac.compare_digest(self._link.encode(), token.encode(errors="replace"))
        if not is_right or not isinstance(self._people, LocalUser):
            return None
        self._link = ""
        return self._people.person

    def sign_in(self, token: str) -> Person | None:
        """Return the person for an entered token; None if it is wrong."""
        return self.use_link(token) or self.find_bearer(token)

    def find_bearer(self, token: str) -> Person | None:
        """Return the person for a program's token; None if it is wrong."""
        return self._find_program(token) or self._people.find_token(token)

    def make_cookie(self, person: Person) -> str:
        """Return the value of a cookie for a person."""
        values = [person.name, int(self._clock()) + LIFETIME]
        text = base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")
        return f"{text}.{self._sign(values, person)}"

    def find_cookie(self, value: str) -> Person | None:
        """Return the person for a cookie; None if it has expired, is foreign, or the person was removed."""
        text, _, signature = value.partition(".")
        try:
            values = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            name, expires = values
            person = self._people.find(name)
        except (ValueError, TypeError):
            return None
        if person is None or not is_signed(signature, self._key, "session", [values, person.token_sha256]):
            return None
        return person if self._clock() < expires else None

    def _sign(self, values: list[object], person: Person) -> str:
        # With the token's digest: a new token ends the old token's sessions.
        return sign(self._key, "session", [values, person.token_sha256])

    def _find_program(self, token: str) -> Person | None:
        if not isinstance(self._people, LocalUser):
            return None
        is_right = hmac.compare_digest(self._program_token.encode(), token.encode(errors="replace"))
        return self._people.person if is_right else None


def _write_private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)


MAX_BODY = 1_000_000
"""The maximum size of a request body, in bytes."""
MAX_LOGIN = 4_096
"""The maximum size of a body before sign-in, in bytes."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""The headers of every response."""

_READING = {"GET", "HEAD"}
_OPEN = ("/api/login",)
_MAX_DIGITS = 9


class Guard:
    """An ASGI middleware with the checks.

    The person is in ``request.state.person``. A long response calls ``request.state.find_person`` to check whether the
    person is still signed in, and with which roles.
    """

    def __init__(self, app: ASGIApp, sessions: Sessions, hosts: Hosts, *, read_only: bool) -> None:
        self._app = app
        self._sessions = sessions
        self._hosts = hosts
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and forward or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._check(request)
        app = self._app if refusal is None else refusal
        await app(scope, _count_body(receive, _find_limit(request)), _add_headers(send))

    def _check(self, request: Request) -> JSONResponse | None:
        if not self._hosts.accepts(request.headers.get("host", "")):
            return refuse(421, "Unknown host name; use localhost, or start the server with --allow-host")
        token = _read_bearer(request.headers)
        if request.method not in _READING:
            problem = _check_change(request, is_program=token is not None)
            if problem is not None:
                return problem
        path = request.scope["path"]  # not the URL's, which is built from a header
        if not path.startswith("/api/") or path in _OPEN:
            return None
        find_person = partial(self._find_person, request, token)
        person = find_person()
        if person is None:
            return refuse(401, "Sign in with the link that 'toolsemble ui' prints, or with your token")
        request.state.person = person
        request.state.find_person = find_person
        if request.method not in _READING:
            return self._check_person(person)
        return None

    def _check_person(self, person: Person) -> JSONResponse | None:
        if self._read_only:
            return refuse(403, "The server was started with --read-only, so nothing can be changed")
        if not person.may_change:
            return refuse(403, f"'{person.name}' has the role 'viewer', which is read-only")
        return None

    def _find_person(self, request: Request, token: str | None) -> Person | None:
        if token is not None:
            return self._sessions.find_bearer(token)
        return self._sessions.find_cookie(request.cookies.get(self._sessions.cookie, ""))


def refuse(status: int, message: str) -> JSONResponse:
    """Return the response to a rejected request, with the reason."""
    return JSONResponse({"error": message}, status)


def _check_change(request: Request, *, is_program: bool) -> JSONResponse | None:
    """Return the rejection of a change that comes from another page, or is not JSON."""
    if not is_program and not _is_same_origin(request.headers):
        return refuse(403, "Changes are accepted only from this server's own page")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return refuse(415, "The body must be application/json")
    length = request.headers.get("content-length", "")
    if not length.isascii() or not length.isdigit():
        return refuse(411, "The length of the body must be known")
    if "transfer-encoding" in request.headers:
        return refuse(400, "A body has either a Content-Length or a Transfer-Encoding, not both")
    limit = _find_limit(request)
    return refuse(413, _describe_limit(limit)) if len(length) > _MAX_DIGITS or int(length) > limit else None


def _find_limit(request: Request) -> int:
    return MAX_LOGIN if request.scope["path"] in _OPEN else MAX_BODY


def _describe_limit(limit: int) -> str:
    return f"The body exceeds {limit:,} bytes"


def _count_body(receive: Receive, limit: int) -> Receive:
    """Return a function that receives a body, and ends the request above the limit."""
    count = 0

    async def receive_counted() -> Message:
        nonlocal count
        message = await receive()
        count += len(message.get("body", b""))
        if count > limit:
            raise HTTPException(413, _describe_limit(limit))
        return message

    return receive_counted


def _is_same_origin(headers: Headers) -> bool:
    """Return whether a browser sent this from this server's page; the host was checked before."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = urlsplit(headers.get("origin", ""))
    return origin.scheme in ("http", "https") and origin.netloc == headers["host"]


def _read_bearer(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _add_headers(send: Send) -> Send:
    async def send_guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return send_guarded
