"""Endpoints as plain functions from the interface and a request to JSON values, run in worker threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolsemble._runtime.text import describe_error
from toolsemble._ui.forms import Field, expand_field, to_json_text
from toolsemble._ui.guard import refuse
from toolsemble._ui.interface import Interface
from toolsemble._ui.people import Person
from toolsemble._vocabulary.errors import ReviewRefusedError, ToolsembleError

MAX_PAGE = 5000
"""The maximum number of items per page."""
_MOST_DIGITS = 15  # fits SQLite's integers, and JavaScript's


def read_number(text: str) -> int | None:
    """Return the integer >= 0 that a text holds, such as the number of an event; None for any other text.

    >>> read_number("12"), read_number("-1"), read_number("9" * 20)
    (12, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


class RefusedError(Exception):
    """Signals a rejected request, with the status and the reason for the page."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its parameters, its body, and its sender."""

    query: Mapping[str, str] = field(default_factory=dict)
    """The query parameters."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The JSON object of the body; empty for a GET."""
    person: Person = field(default_factory=lambda: Person(""))
    """Who sent it."""

    def text(self, name: str) -> str:
        """Return a parameter; reject the request if it is missing."""
        value = self.query.get(name)
        if not value:
            raise RefusedError(400, f"The address needs '{name}'")
        return value

    def number(self, name: str, default: int, most: int | None = None) -> int:
        """Return a parameter that is an integer >= 0."""
        value = self.query.get(name) or str(default)
        number = read_number(value)
        if number is None:
            raise RefusedError(400, f"'{name}' must be an integer >= 0, not {value!r:.80}")
        return number if most is None else min(number, most)

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a field of the body; reject the request if it has the wrong type."""
        value = self.body.get(name, default)
        if not isinstance(value, kind) and value is not default:
            raise RefusedError(400, f"'{name}' must be a {kind.__name__}, not {value!r:.80}")
        return value


Work: TypeAlias = Callable[[Interface, Asked], Any]
AsyncWork: TypeAlias = Callable[[Interface, Asked], Coroutine[Any, Any, Any]]
_REFUSALS = (RefusedError, ToolsembleError, ValueError)


def reads(path: str, work: Work) -> Route:
    """Return the route of a GET."""

    async def endpoint(request: Request) -> Response:
        asked = Asked(dict(request.query_params), {}, request.state.person)
        return await run_in_threadpool(_answer, work, request.app.state.interface, asked)

    return Route(path, endpoint, methods=["GET"])


def changes(path: str, work: Work, *, operator: bool = False) -> Route:
    """Return the route of a POST.

    :param operator: whether it requires the role to call tools and change runs
    """

    async def endpoint(request: Request) -> Response:
        try:
            asked = await read_asked(request, operator=operator)
        except RefusedError as error:
            return refuse(error.status, str(error))
        return await run_in_threadpool(_answer, work, request.app.state.interface, asked)

    return Route(path, endpoint, methods=["POST"])


def acts(path: str, work: AsyncWork) -> Route:
    """Return the route of a POST for operators with async work, cancelled when the client disconnects."""

    async def endpoint(request: Request) -> Response:
        try:
            asked = await read_asked(request, operator=True)
            return Json(await _await_unless_left(work(request.app.state.interface, asked), request))
        except _REFUSALS as error:
            return _refuse(error)

    return Route(path, endpoint, methods=["POST"])


async def read_asked(request: Request, *, operator: bool) -> Asked:
    """Return a POST's parsed request; reject it if the user may not send it, or its body is not a JSON object."""
    person: Person = request.state.person
    if operator and not person.may_operate:
        raise RefusedError(403, f"'{person.name}' does not have the role 'operator', which this requires")
    return Asked(dict(request.query_params), await read_body(request), person)


async def read_body(request: Request) -> dict[str, Any]:
    """Return a body's JSON object; reject anything else."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"The body is not JSON: {error}"[:200]) from error
    if not isinstance(body, dict):
        raise RefusedError(400, "The body must be a JSON object")
    return body


def to_table(records: list[Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return records as one list of names and a row each: a third of the size.

    >>> to_table([Person("ada")], ("name", "roles"))
    {'names': ('name', 'roles'), 'rows': [['ada', ()]]}
    """
    return {"names": names, "rows": [[getattr(record, name) for name in names] for record in records]}


def expand_or_refuse(schema: Mapping[str, Any], place: str) -> Field:
    """Return the field at a schema location; reject the request if there is none."""
    try:
        return expand_field(schema, place)
    except LookupError as error:
        raise RefusedError(404, "The schema has no such place") from error


class Json(JSONResponse):
    """A response in JSON, of records and of any text."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return to_json_text(content).encode()


def _answer(work: Work, interface: Interface, asked: Asked) -> Response:
    try:
        return Json(work(interface, asked))
    except _REFUSALS as error:
        return _refuse(error)


def _refuse(error: Exception) -> Response:
    if isinstance(error, RefusedError):
        return refuse(error.status, str(error))
    return refuse(409 if isinstance(error, ReviewRefusedError) else 400, describe_error(error))


async def _await_unless_left(work: Coroutine[Any, Any, Any], request: Request) -> Any:
    """Return the result of work; cancel it when the client disconnects."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_wait_until_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working}, timeout=5)
    if working.cancelled() or not working.done():
        raise RefusedError(499, "The client has left")
    return working.result()


async def _wait_until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
