"""A history's event stream as server-sent events, with event numbers as ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from toolsemble._ui.endpoint import read_number
from toolsemble._ui.guard import refuse
from toolsemble._ui.interface import DataFolder, Interface
from toolsemble._ui.people import Person
from toolsemble._vocabulary.errors import ToolsembleError
from toolsemble.telemetry._history_records import HistoryEvent

POLL = 0.03
"""Seconds between two polls of the history."""
_SLOW = 15  # polls until the other files are read, too
_QUIET = 20  # of these until a comment says that the connection lives
_MAX_EVENTS = 500


async def feed(request: Request) -> Response:
    """Stream the events after an id, and the counts of pending approvals when they change."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or ""
    after = read_number(text)
    if text and after is None:
        return refuse(400, "'after' must be the number of an event")
    stream = follow(request.app.state.interface, after, partial(find_person, request))
    return StreamingResponse(stream, media_type="text/event-stream")


def find_person(request: Request) -> Person | None:
    """Return a request's current user; None if signed out, or if the people file is unreadable."""
    try:
        person: Person | None = request.state.find_person()
    except ToolsembleError:
        return None
    return person


class Batch(NamedTuple):
    """Some events, as they are sent to pages."""

    size: int = 0
    """The number of events."""
    last: int = 0
    """The number of the last one."""
    message: str = ""
    """The message to a page; empty without events."""


NOTHING = Batch()


class Poller:
    """Polls the data folder of a server for all of its open pages, in one task; an idle server polls nothing."""

    def __init__(self, interface: Interface) -> None:
        self.loop = asyncio.get_running_loop()
        """The event loop of the pages."""
        self.last = 0
        """The number of the latest event."""
        self.waiting: dict[str, Any] = {}
        """What :func:`count_waiting` returned last; empty before the first time."""
        self.rounds = 0
        """How often all files were read; pages are woken up each time."""
        self._interface = interface
        self._pages = 0
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._batch: tuple[tuple[int, int], asyncio.Future[Batch]] | None = None
        self.changed = asyncio.Event()
        """Set at the next change, and replaced by a new one."""

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Poll until the blocks of all pages end."""
        if self._task is None:
            self._error, self.waiting = None, {}
            self._task = asyncio.create_task(self._poll())
        self._pages += 1
        try:
            yield
        finally:
            self._pages -= 1
            if not self._pages and self._task is not None:
                self._task.cancel()
                self._task = None

    async def read_events(self, after: int) -> Batch:
        """Return the events that come after a number; pages that are at the same event share the query."""
        key = after, self.last
        if self._batch is None or self._batch[0] != key:
            self._batch = key, asyncio.ensure_future(run_in_threadpool(_read_batch, self._interface, after))
        return await asyncio.shield(self._batch[1])  # a page that leaves does not end the query of the others

    async def wait(self, changed: asyncio.Event) -> None:
        """Wait until this event is set; raise the error that ended the polling."""
        if self._error is None:
            await changed.wait()
        if self._error is not None:
            raise self._error

    async def _poll(self) -> None:
        try:
            while True:
                await self._read_all()
                self._wake()
                for _ in range(_SLOW):
                    await asyncio.sleep(POLL)
                    last = await run_in_threadpool(_find_last, self._interface)
                    if last != self.last:
                        self.last = last
                        self._wake()
        except Exception as error:  # raised in the stream of each page, which the browser opens again
            self._error, self._task = error, None
            self._wake()

    async def _read_all(self) -> None:
        self.last = await run_in_threadpool(_find_last, self._interface)
        self.waiting = await run_in_threadpool(count_waiting, self._interface)
        self.rounds += 1

    def _wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


def find_poller(interface: Interface) -> Poller:
    """Return the poller of the pages of this event loop."""
    poller: Poller | None = interface.poller
    if poller is None or poller.loop is not asyncio.get_running_loop():
        poller = interface.poller = Poller(interface)
    return poller


async def follow(
    interface: Interface, after: int | None, is_signed_in: Callable[[], object] = lambda: True
) -> AsyncIterator[str]:
    """Yield a stream's messages until the client disconnects or its user is signed out."""
    last = await run_in_threadpool(_find_last, interface)
    # Numbers are never reused: a greater one belongs to a deleted history.
    seen = last if after is None or after > last else after
    yield write_message("hello", {"number": seen}, seen) + "retry: 700\n\n"
    known: dict[str, Any] = {}
    poller, quiet_since = find_poller(interface), 0
    with poller.polling():
        while is_signed_in():
            changed = poller.changed  # before the files are read: what changes meanwhile is not missed
            batch = await poller.read_events(seen) if poller.last != seen else NOTHING
            if batch.message:
                seen = batch.last
                yield batch.message
            if poller.waiting != known:
                known = poller.waiting
                yield write_message("changed", known)
            if poller.rounds - quiet_since >= _QUIET:
                quiet_since = poller.rounds
                yield ": alive\n\n"
            if batch.size < _MAX_EVENTS:
                await poller.wait(changed)


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


def _read_batch(interface: Interface, after: int) -> Batch:
    history = interface.folder.history()
    found = [] if history is None else history.events(after, limit=_MAX_EVENTS, values=False)
    if not found:
        return NOTHING
    last = found[-1].number
    return Batch(len(found), last, write_message("events", [_shorten(each) for each in found], last))


def _shorten(event: HistoryEvent) -> dict[str, Any]:
    """Return the part of an event that lists need; pages fetch the rest on demand."""
    names = ("number", "kind", "run_id", "at", "parent_id", "call_id", "tool_name")
    return {name: getattr(event, name) for name in names}
