"""A thread that does a store's work for all who wait, in groups."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from toolsemble.review.audit import LOGGER
from toolsemble.review.decision import ReviewDecision
from toolsemble.review.request import ReviewRequest
from toolsemble.review.store import ReviewStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """A request on its way, told from all others by being itself."""

    request: ReviewRequest
    """What is asked."""
    stored: Future[str] = field(default_factory=Future)
    """The id that it is stored under, once it is."""
    answer: Future[ReviewDecision] = field(default_factory=Future)
    """The decision, once it is there."""
    gone: Future[None] = field(default_factory=Future)
    """Done when nobody can answer it any more, after whoever asked has left."""


class Mailbox:
    """The letters of one process to one store.

    A thousand requests at a time cost a few transactions, and no event loop waits for a disk. The thread is there
    while somebody waits.

    >>> from toolsemble.review import Continue, MemoryStore
    >>> with MemoryStore() as store:
    ...     letter = Mailbox(store, 0.05).post(ReviewRequest("Deletes a file", "delete", "old.log"))
    ...     id = letter.stored.result(60)
    ...     receipt = store.answer(store.pending()[0], Continue())
    ...     letter.answer.result(60)
    Continue(always=None)
    """

    def __init__(self, store: ReviewStore, poll: float) -> None:
        self._store = store
        self._poll = poll
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._new: list[Letter] = []
        self._left: list[Letter] = []
        self._waiting: dict[str, Letter] = {}

    def post(self, request: ReviewRequest) -> Letter:
        """Give a letter, which the thread will store and wait for."""
        letter = Letter(request)
        self._hand_over(letter, leaves=False)
        return letter

    def leave(self, letter: Letter) -> None:
        """Say that nobody waits for a letter any more."""
        letter.stored.cancel()
        letter.answer.cancel()
        self._hand_over(letter, leaves=True)

    def _hand_over(self, letter: Letter, *, leaves: bool) -> None:
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="toolsemble-mailbox", daemon=True)
                thread.start()
                self._thread = thread
            (self._left if leaves else self._new).append(letter)
            self._changed.notify()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            new, left = work
            self._ask([letter for letter in new if not letter.stored.cancelled()])
            self._withdraw(left)
            self._take()

    def _next(self) -> tuple[list[Letter], list[Letter]] | None:
        """Give the letters that are new and those that nobody waits for any more; None when there is nothing to do."""
        with self._changed:
            if not self._new and not self._left:
                if not self._waiting:
                    self._thread = None
                    return None
                self._changed.wait(self._poll)
            work = self._new, self._left
            self._new, self._left = [], []
            return work

    def _ask(self, letters: list[Letter]) -> None:
        if not letters:
            return
        try:
            ids = self._store.ask([letter.request for letter in letters], held=self._waiting)
        except Exception as error:  # noqa: BLE001 - each of those who asked gets it
            _fail([letter.stored for letter in letters], error)
            return
        self._waiting.update(zip(ids, letters, strict=True))
        for id_, letter in zip(ids, letters, strict=True):
            _give(letter.stored, id_)

    def _withdraw(self, left: list[Letter]) -> None:
        leavers = set(left)
        ids = [id_ for id_, letter in self._waiting.items() if letter in leavers]
        for id_ in ids:
            del self._waiting[id_]
        self._close(ids)
        for letter in left:
            _give(letter.gone, None)

    def _close(self, ids: list[str]) -> None:
        try:
            if ids:
                self._store.withdraw(ids)
        except Exception:  # noqa: BLE001 - nobody is left to tell; an answer that comes will not be used
            LOGGER.warning("Requests could not be withdrawn", exc_info=True)

    def _take(self) -> None:
        if not self._waiting:
            return
        try:
            decisions = self._store.take({id_: letter.request for id_, letter in self._waiting.items()})
        except Exception as error:  # noqa: BLE001 - each of those who wait gets it
            letters, self._waiting = self._waiting, {}
            _fail([letter.answer for letter in letters.values()], error)
            self._close(list(letters))
            return
        for id_, decision in decisions.items():
            _give(self._waiting.pop(id_).answer, decision)


def _give(future: Future[T], value: T) -> None:
    if future.set_running_or_notify_cancel():  # whoever asked may have left in this moment
        future.set_result(value)


def _fail(futures: Iterable[Future[T]], error: Exception) -> None:
    for future in futures:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
