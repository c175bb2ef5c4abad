"""The question to the reviewer of a journaled call: it can be left open, and asked again by another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator
from dataclasses import replace
from functools import partial
from typing import Any

from toolsemble.errors import CallPausedError, RunCancelledError
from toolsemble.place import Place
from toolsemble.review.database import binding
from toolsemble.review.question import ask, find_stored, watch_stored
from toolsemble.review.request import ReviewHandler, ReviewRequest, digest
from toolsemble.work.body import Work
from toolsemble.work.thread import RunInThread


def prepare_question(
    handler: ReviewHandler, request: ReviewRequest, place: Place
) -> Generator[Work, Any, tuple[ReviewHandler, ReviewRequest, bool]]:
    """Return the reviewer and the request of a journaled call, and whether its time is over.

    The time counts from the first question, also if that was asked by a process that has ended.
    """
    asked_at, token = yield RunInThread(partial(place.run.note_question, place.path), in_place=place.run.in_place)
    handler = ParkingReview(handler, place)
    # The same question has the same id in every process, and only this call has it: an answer is found again by it.
    request = replace(request, id=digest([token, binding(request)])[:32])
    if not request.timeout:
        return handler, request, False
    left = asked_at + request.timeout - time.time()
    return (handler, replace(request, timeout=left), False) if left > 0 else (handler, request, True)


class ParkingReview:
    """A reviewer of a journaled call: it waits for the reviewer inside, and ends the run if that takes too long."""

    sends_event = True
    """The event is sent when the reviewer inside is asked."""

    def __init__(self, handler: Any, place: Place) -> None:
        self._handler = handler
        self._place = place

    async def review(self, request: ReviewRequest) -> Any:
        """Return the answer, or raise :class:`CallPausedError` to leave the question open."""
        asking = ask(self._handler, request)
        if not callable(getattr(self._handler, "find_open", None)):
            return await asking
        stored = asyncio.Event()
        watch_stored(stored.set)
        answering, cancelled = asyncio.ensure_future(asking), False
        try:
            await _wait_for_one(answering, stored.wait())  # an earlier answer is used, however short the time is
            await _wait_for_one(answering, self._place.run.wait_for_drain(), seconds=self._place.run.park_after)
            if answering.done():
                return answering.result()
        except RunCancelledError:
            cancelled = True
            raise
        finally:
            if not answering.done():
                answering.cancel()  # the question stays in the store: the run asks it again
                await asyncio.wait([answering])
            if cancelled:
                await _withdraw(self._handler, find_stored(request))
        paused = CallPausedError(f"Tool '{request.tool_name}' waits for approval", request=find_stored(request))
        paused.reviewer = self._handler
        raise paused


async def _wait_for_one(
    answering: asyncio.Future[Any], event: Coroutine[Any, Any, Any], seconds: float | None = None
) -> None:
    """Wait until there is an answer, an event happens, or the time is over."""
    happening = asyncio.ensure_future(event)
    try:
        await asyncio.wait([answering, happening], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if happening.done() and not answering.done():
            happening.result()
    finally:
        happening.cancel()


async def _withdraw(handler: Any, request: ReviewRequest) -> None:
    """Close the question of a run that was cancelled."""
    withdraw = getattr(handler, "withdraw", None)
    if callable(withdraw):
        await RunInThread(partial(withdraw, [request.id])).ado()
