"""The question to the reviewer of a journaled call: it can be left open, and asked again by another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator
from dataclasses import replace
from functools import partial
from typing import Any

from toolsemble._engine.work.body import Work
from toolsemble._engine.work.thread import RunInThread
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble._vocabulary.place import AskedQuestion, Place
from toolsemble.review import Continue, Edit, ExitEarly, ReviewDecision, ReviewHandler, ReviewRequest
from toolsemble.review._database import binding
from toolsemble.review._question import ask, find_stored, watch_stored


def prepare_question(
    handler: ReviewHandler, request: ReviewRequest, place: Place
) -> Generator[Work, Any, tuple[ParkingReview, ReviewRequest, bool, ReviewDecision | None]]:
    """Return the reviewer and the request of a journaled call, whether its time is over, and the recorded decision.

    The time counts from the first question, also if that was asked by a process that has ended.
    """
    note = partial(place.run.note_question, place.path, binding(request))
    asked: AskedQuestion = yield RunInThread(note, in_place=place.run.in_place)
    if asked.outdated:
        yield RunInThread(partial(_withdraw, handler, asked.outdated))
    review, request = ParkingReview(handler, place, asked), replace(request, id=asked.id)
    answer = None if _has_store(handler) else read_answer(asked.answer)
    if answer is not None or not request.timeout:
        return review, request, False, answer
    left = asked.at + request.timeout - time.time()
    return (review, replace(request, timeout=left), False, None) if left > 0 else (review, request, True, None)


class ParkingReview:
    """A reviewer of a journaled call: it waits for the reviewer inside, and ends the run if that takes too long."""

    sends_event = True
    """The event is sent when the reviewer inside is asked."""

    def __init__(self, handler: Any, place: Place, asked: AskedQuestion) -> None:
        self._handler = handler
        self._place = place
        self._asked = asked
        self.is_known = asked.is_known
        """Whether people know the question already: the run was parked with it."""

    async def review(self, request: ReviewRequest) -> Any:
        """Return the answer, or raise :class:`CallPausedError` to leave the question open."""
        asking = ask(self._handler, request)
        if not _has_store(self._handler):
            answer = await asking
            if (written := write_answer(answer)) is not None:
                await RunInThread(partial(self._place.run.record_answer, self._asked, written)).ado()
            return answer
        stored = asyncio.Event()
        watch_stored(stored.set)
        answering, run = asyncio.ensure_future(asking), self._place.run
        try:
            await _wait_for_one(answering, stored.wait())  # an earlier answer is used, however short the time is
            run.note_asking(find_stored(request).id, self._handler)
            await _wait_for_one(answering, run.wait_for_drain(), seconds=run.park_after)
            if answering.done():
                run.note_answer(find_stored(request).id)
                return answering.result()
        finally:
            answering.cancel()  # an open question stays in the store: the run asks it again
            await asyncio.wait([answering])
        paused = CallPausedError(f"Tool '{request.tool_name}' waits for approval", request=find_stored(request))
        paused.reviewer = self._handler
        raise paused


def _has_store(handler: Any) -> bool:
    """Return whether a reviewer has a store, which knows its questions and has the signed answers."""
    return callable(getattr(handler, "find_open", None))


def write_answer(answer: object) -> dict[str, Any] | None:
    """Return a decision as JSON values; None for anything else, and for a question that was not answered in time.

    >>> write_answer(Continue())
    {'decision': 'continue'}
    """
    if type(answer) is Continue:
        return {"decision": "continue"}
    if type(answer) is Edit and type(answer.revised) is str:
        return {"decision": "edit", "revised": answer.revised}
    if type(answer) is ExitEarly and not answer.timed_out:
        return {"decision": "reject", "reason": str(answer.reason or "")}
    return None


def read_answer(values: Any) -> ReviewDecision | None:
    """Return the decision that :func:`write_answer` wrote; None for anything else.

    >>> read_answer({"decision": "reject", "reason": "too much"})
    ExitEarly(reason='too much', timed_out=False)
    """
    match values:
        case {"decision": "continue"}:
            return Continue()
        case {"decision": "edit", "revised": str(revised)}:
            return Edit(revised)
        case {"decision": "reject", "reason": str(reason)}:
            return ExitEarly(reason)
    return None


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


def _withdraw(handler: Any, id: str) -> None:
    """Close a question that another one replaces."""
    withdraw = getattr(handler, "withdraw", None)
    if callable(withdraw):
        withdraw([id])
