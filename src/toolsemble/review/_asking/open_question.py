"""The question that is open in this context, for its handlers and stores."""

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
        """Send the event ``review_requested``, once."""
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
    """Return whether the current question's call path can check an edit before it becomes the decision."""
    asked = CURRENT.get()
    return asked is not None and asked.check is not None


def check_edit(revised: str) -> str:
    """Return what is wrong with an edit for the current question; "" if it is valid, or cannot be checked.

    >>> check_edit('{"boxes": 500}')
    ''
    """
    asked = CURRENT.get()
    return "" if asked is None or asked.check is None else asked.check(revised)


def note_stored(request: ReviewRequest, *, waits: bool) -> bool:
    """Record that the current question is stored under this request's id, and send its event.

    Return whether people have to be notified.

    :param waits: whether it is pending; there is no event for a question that was answered before a crash
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
    """Record that people were notified of the current question, and that it is pending."""
    asked = CURRENT.get()
    if asked is not None and asked.on_stored is not None:
        asked.on_stored()


def watch_stored(notify: Callable[[], object]) -> None:
    """Call a function when the current question is stored, people were notified, and it has no earlier answer.

    >>> watch_stored(print)
    """
    asked = CURRENT.get()
    if asked is not None:
        asked.on_stored = notify


def find_stored(request: ReviewRequest) -> ReviewRequest:
    """Return the stored copy of the current question, whose id differs if it was asked before; else the request.

    >>> find_stored(ReviewRequest("Deletes a file", "delete", "old.log", id="q1")).id
    'q1'
    """
    asked = CURRENT.get()
    return request if asked is None or asked.request is None else asked.request
