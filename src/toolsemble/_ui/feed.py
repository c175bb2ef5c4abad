"""A history's event stream as server-sent events, with event numbers as ids."""

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
"""The polling interval of the history, in seconds."""
_SLOW = 15  # polls between checks of the other files
_QUIET = 300  # polls between keep-alive comments
_MAX_TEXT = 0
_MAX_EVENTS = 500


async def feed(request: Request) -> Response:
    """Stream the events after an id, and the counts of pending approvals when they change."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or ""
    if text and not (text.isascii() and text.isdigit() and len(text) < 16):  # noqa: PLR2004 - fits SQLite's integers
        return refuse(400, "'after' must be the number of an event")
    stream = follow(request.app.state.interface, int(text) if text else None, partial(find_person, request))
    return StreamingResponse(stream, media_type="text/event-stream")


def find_person(request: Request) -> Person | None:
    """Return a request's current user; None if signed out, or if the people file is unreadable."""
    try:
        person: Person | None = request.state.find_person()
    except ToolsembleError:
        return None
    return person


async def follow(
    interface: Interface, after: int | None, is_signed_in: Callable[[], object] = lambda: True
) -> AsyncIterator[str]:
    """Yield a stream's messages until the client disconnects or its user is signed out."""
    last = await run_in_threadpool(_find_last, interface)
    # Numbers are never reused: a greater one belongs to a deleted history.
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
    """Return the counts of pending approvals and unknown outcomes, and marks that change with the files."""
    try:
        return _count(interface.folder)
    except ToolsembleError:
        return {"approvals": 0, "outcomes": 0, "waiting": "", "durable": 0}  # the pages show the problem


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
    # A text may contain line separators that JSON does not escape.
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
    """Return the part of an event that lists need; pages fetch the rest on demand."""
    names = ("number", "kind", "run_id", "at", "parent_id", "call_id", "tool_name")
    return {name: getattr(event, name) for name in names}
