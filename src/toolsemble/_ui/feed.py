"""The stream of events of a history, as server-sent events: the number of an event is its id."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from toolsemble._ui.guard import refuse
from toolsemble._ui.interface import DataFolder, Interface
from toolsemble._ui.people import Person
from toolsemble._vocabulary.errors import ToolsembleError
from toolsemble.telemetry._history_records import HistoryEvent

POLL = 0.03
"""Seconds between two looks at the history."""
_SLOW = 15  # looks until the other files are looked at, too
_QUIET = 300  # looks until a comment says that the connection lives
_MAX_TEXT = 0
_MAX_EVENTS = 500


async def feed(request: Request) -> Response:
    """Stream the events that come after an id, and the numbers of what waits for a person when they change."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or ""
    if text and not (text.isascii() and text.isdigit() and len(text) < 16):  # noqa: PLR2004 - fits SQLite's integers
        return refuse(400, "'after' must be the number of an event")
    stream = follow(request.app.state.interface, int(text) if text else None, partial(find_person, request))
    return StreamingResponse(stream, media_type="text/event-stream")


def find_person(request: Request) -> Person | None:
    """Return the person of a request, as the people are now; None if the person is out, or nobody can tell."""
    try:
        person: Person | None = request.state.find_person()
    except ToolsembleError:
        return None
    return person


async def follow(
    interface: Interface, after: int | None, is_signed_in: Callable[[], object] = lambda: True
) -> AsyncIterator[str]:
    """Yield the messages of a stream, until the client leaves or its person is signed out."""
    last = await run_in_threadpool(_find_last, interface)
    # Numbers are never used twice: a greater one is of a history that is gone.
    seen = last if after is None or after > last else after
    yield write_message("hello", {"number": seen}, seen) + "retry: 700\n\n"
    known: dict[str, Any] = {}
    look = -1
    while is_signed_in():
        look += 1
        found = await run_in_threadpool(_find_events, interface, seen)
        if found:
            seen = found[-1].number
            yield write_message("events", [_shorten(each) for each in found], seen)
        if look % _SLOW == 0:
            waiting = await run_in_threadpool(count_waiting, interface)
            if waiting != known:
                known = waiting
                yield write_message("changed", waiting)
        if look % _QUIET == 0:
            yield ": alive\n\n"
        if len(found) < _MAX_EVENTS:
            await asyncio.sleep(POLL)


def count_waiting(interface: Interface) -> dict[str, Any]:
    """Return how many approvals and unknown outcomes wait, and marks that change with the files."""
    try:
        return _count(interface.folder)
    except ToolsembleError:
        return {"approvals": 0, "outcomes": 0, "waiting": "", "durable": 0}  # the pages say what is wrong


def _count(folder: DataFolder) -> dict[str, Any]:
    reviews, journal, ledger = folder.reviews(), folder.journal(), folder.ledger()
    waiting = [] if reviews is None else [request.id for request in reviews.pending()]
    runs = [] if journal is None else [(run.run_id, run.state, run.updated) for run in journal.list()]
    unknown = (0 if journal is None else len(journal.unknown())) + (0 if ledger is None else len(ledger.unknown()))
    mark = hash(tuple(runs)) & 0xFFFFFFFF
    return {"approvals": len(waiting), "outcomes": unknown, "waiting": " ".join(waiting[:100]), "durable": mark}


def write_message(kind: str, value: Any, number: int | None = None) -> str:
    r"""Return a server-sent event.

    >>> write_message("events", [], 7)
    'id: 7\nevent: events\ndata: []\n\n'
    """
    head = "" if number is None else f"id: {number}\n"
    # A text may hold separators of lines that JSON leaves as they are.
    data = json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str)
    return f"{head}event: {kind}\ndata: {data}\n\n"


def _find_last(interface: Interface) -> int:
    history = interface.folder.history()
    return 0 if history is None else history.last()


def _find_events(interface: Interface, after: int) -> list[HistoryEvent]:
    history = interface.folder.history()
    if history is None or history.last() == after:
        return []
    return history.events(after, limit=_MAX_EVENTS, max_text=_MAX_TEXT)


def _shorten(event: HistoryEvent) -> dict[str, Any]:
    """Return what the pages need to know about an event; they ask for more when they show it."""
    names = ("number", "kind", "run_id", "at", "parent_id", "call_id", "tool_name")
    return {name: getattr(event, name) for name in names}
