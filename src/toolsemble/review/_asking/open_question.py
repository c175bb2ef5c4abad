"""The question that is open in this context, as its handlers and stores see it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias

from toolsemble._runtime.watchers import tell
from toolsemble.review._request import ReviewRequest, ReviewRequested

Check: TypeAlias = Callable[[str], str]

CURRENT: ContextVar[OpenQuestion | None] = ContextVar("toolsemble.question", default=None)


class OpenQuestion:
    """The state of an open question: whether it is abandoned, and how many prompts are open for it."""

    __slots__ = ("abandoned", "announced", "check", "interrupted", "is_known", "on_stored", "prompts", "request")

    def __init__(
        self, request: ReviewRequest | None = None, check: Check | None = None, *, is_known: bool = False
    ) -> None:
        self.abandoned = threading.Event()
        self.check = check
        self.prompts = 0
        self.request = request
        self.announced = False
        self.is_known = is_known
        self.interrupted = False
        self.on_stored: Callable[[], object] | None = None

    def announce(self, request: ReviewRequest) -> None:
        """Send the event that a reviewer is asked, once."""
        if not self.announced:
            self.announced, self.request = True, request
            if not self.is_known:
                tell(ReviewRequested(request))


def is_abandoned() -> bool:
    """Return whether the current question is abandoned, by timeout or cancellation; a handler may then stop.

    >>> is_abandoned()
    False
    """
    asked = CURRENT.get()
    return asked is not None and asked.abandoned.is_set()


def is_interrupted() -> bool:
    """Return whether the run of the current question was cancelled; a timeout, or another reviewer, does not count.

    >>> is_interrupted()
    False
    """
    asked = CURRENT.get()
    return asked is not None and asked.interrupted


def can_check_edits() -> bool:
    """Return whether the call path of the current question can check an edit before it is the decision."""
    asked = CURRENT.get()
    return asked is not None and asked.check is not None


def check_edit(revised: str) -> str:
    """Return what is wrong with the text of an edit for the current question; "" if it fits, or is not known.

    >>> check_edit('{"boxes": 500}')
    ''
    """
    asked = CURRENT.get()
    return "" if asked is None or asked.check is None else asked.check(revised)


def note_stored(request: ReviewRequest, *, waits: bool) -> bool:
    """Record that the current question is in a store, under the id of this request, and send the event for it.

    Return whether people have to be told of it.

    :param waits: whether it waits for an answer; there is no event for one that was answered before a crash
    """
    asked = CURRENT.get()
    if asked is None:
        return waits
    if waits:
        asked.announce(request)
    elif not asked.announced:
        asked.announced, asked.request = True, request
    return waits and not asked.is_known


def note_waiting() -> None:
    """Record that people know the current question, and that it waits for an answer."""
    asked = CURRENT.get()
    if asked is not None and asked.on_stored is not None:
        asked.on_stored()


def watch_stored(notify: Callable[[], object]) -> None:
    """Call a function when the current question is in a store, people know it, and there is no earlier answer to it.

    >>> watch_stored(print)
    """
    asked = CURRENT.get()
    if asked is not None:
        asked.on_stored = notify


def find_stored(request: ReviewRequest) -> ReviewRequest:
    """Return the current question as a store has it, under another id if it was asked before; else the request.

    >>> find_stored(ReviewRequest("Deletes a file", "delete", "old.log", id="q1")).id
    'q1'
    """
    asked = CURRENT.get()
    return request if asked is None or asked.request is None else asked.request
