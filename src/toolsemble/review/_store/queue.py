"""A reviewer that stores requests until they are answered, in this process or another one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._asking.open_question import is_interrupted, note_stored, note_waiting
from toolsemble.review._request import LOGGER, ExitEarly, ReviewDecision, Reviewer, ReviewRequest
from toolsemble.review._store.store import ReviewStoreProtocol

T = TypeVar("T")

_TOLD_POLL = 2.0  # seconds between polls of a store with notifications


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A submitted request; compared by identity."""

    request: ReviewRequest
    stored: Future[str] = field(default_factory=Future)
    """The id under which it is stored, once it is."""
    answer: Future[ReviewDecision] = field(default_factory=Future)
    """The decision, once it is made."""
    withdrawn: Future[None] = field(default_factory=Future)
    """Done when the request is withdrawn or left open, after the caller has cancelled it."""


_Release: TypeAlias = Callable[[Iterable[str]], object]
_Watch: TypeAlias = Callable[[Callable[[], object]], Callable[[], None] | None]


def _find_optional(store: ReviewStoreProtocol) -> tuple[_Release | None, _Watch | None]:
    """Return a store's methods ``release`` and ``watch``, or None for a missing one."""
    release, watch = getattr(store, "release", None), getattr(store, "watch", None)
    return release if callable(release) else None, watch if callable(watch) else None


class StoreWorker:
    """A thread that stores the requests of one process and waits for their answers.

    A thousand concurrent requests cost a few transactions, and no event loop waits for a disk. The thread runs while
    requests are pending. A store with notifications is polled rarely, in case one is lost.
    """

    def __init__(self, store: ReviewStoreProtocol, poll: float) -> None:
        self._store = store
        self._release, self._watch = _find_optional(store)
        self.poll = poll
        """Seconds between checks of the store."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._new: list[Pending] = []
        self._left: dict[Pending, bool] = {}
        self._waiting: dict[str, Pending] = {}
        self._news = False
        self._unwatch: Callable[[], None] | None = None

    def post(self, request: ReviewRequest) -> Pending:
        """Submit a request; return its pending state."""
        pending = Pending(request)
        with self._changing():
            self._new.append(pending)
        return pending

    def leave(self, pending: Pending, *, keep: bool = False) -> None:
        """Cancel a pending request.

        :param keep: whether it stays open for a later run with the same question, if the store supports that
        """
        pending.stored.cancel()
        pending.answer.cancel()
        with self._changing():
            self._left[pending] = keep

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Start the thread if necessary, and wake it up after the block."""
        with self._changed:
            if self._thread is None:
                self._unwatch = None if self._watch is None else self._watch(self._notice)
                thread = threading.Thread(target=self._run, name="toolsemble-review-store", daemon=True)
                thread.start()
                self._thread = thread
            yield
            self._changed.notify()

    def _notice(self) -> None:
        """Poll the store again; called in the store's thread."""
        with self._changed:
            self._news = True
            self._changed.notify()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            new, left = work
            stored = self._ask([pending for pending in new if not pending.stored.cancelled()])
            self._let_go(left)
            self._take()
            # Last: an answer from before a crash is available at once, and no one has to be asked.
            for id_, pending in stored:
                _set_result(pending.stored, id_)

    def _next(self) -> tuple[list[Pending], dict[Pending, bool]] | None:
        """Return the new requests and the cancelled ones; None when idle."""
        with self._changed:
            if not self._new and not self._left:
                if not self._waiting:
                    self._thread = None
                    if self._unwatch is not None:
                        self._unwatch()
                    return None
                if not self._news:
                    self._changed.wait(self.poll if self._unwatch is None else max(self.poll, _TOLD_POLL))
            work = self._new, self._left
            self._new, self._left, self._news = [], {}, False
            return work

    def _ask(self, requests: list[Pending]) -> list[tuple[str, Pending]]:
        """Store requests; return them with their stored ids."""
        if not requests:
            return []
        try:
            ids = self._store.ask([pending.request for pending in requests], held=self._waiting)
        except Exception as error:  # raised in each waiting call
            _set_exception([pending.stored for pending in requests], error)
            return []
        self._waiting.update(zip(ids, requests, strict=True))
        return list(zip(ids, requests, strict=True))

    def _let_go(self, left: Mapping[Pending, bool]) -> None:
        """Withdraw the cancelled requests, or leave them open."""
        ids: dict[bool, list[str]] = {True: [], False: []}
        for id_ in [id_ for id_, pending in self._waiting.items() if pending in left]:
            ids[self._release is not None and left[self._waiting.pop(id_)]].append(id_)
        self._close(ids[True], self._release)
        self._close(ids[False], self._store.withdraw)
        for pending in left:
            _set_result(pending.withdrawn, None)

    def _close(self, ids: list[str], close: Any) -> None:
        try:
            if ids:
                close(ids)
        except Exception:  # there is no caller left; an answer will not be used
            LOGGER.warning("Requests could not be withdrawn", exc_info=True)

    def _take(self) -> None:
        if not self._waiting:
            return
        try:
            decisions = self._store.take({id_: pending.request for id_, pending in self._waiting.items()})
        except ConnectionError as error:
            LOGGER.warning("%s; polling for answers again", error)
            return
        except Exception as error:  # raised in each waiting call
            requests, self._waiting = self._waiting, {}
            _set_exception([pending.answer for pending in requests.values()], error)
            self._close(list(requests), self._store.withdraw)
            return
        for id_, decision in decisions.items():
            _set_result(self._waiting.pop(id_).answer, decision)


class _Workers:
    """The workers of this process, by process and store."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._workers: WeakValueDictionary[tuple[int, int], StoreWorker] = WeakValueDictionary()

    def get(self, store: ReviewStoreProtocol, poll: float) -> StoreWorker:
        # A worker keeps its store alive: no other object can have its address meanwhile.
        key = os.getpid(), id(store)
        with self._lock:
            worker = self._workers.get(key)
            if worker is None:
                worker = self._workers[key] = StoreWorker(store, poll)
            worker.poll = min(worker.poll, poll)
            return worker


_WORKERS = _Workers()


def get_worker(store: ReviewStoreProtocol, poll: float) -> StoreWorker:
    """Return the worker of a store in this process, shared by all reviewers that use the store.

    A forked child gets its own worker: it has neither the thread nor the waiting calls of its parent.
    """
    return _WORKERS.get(store, poll)


def _set_result(future: Future[T], value: T) -> None:
    if future.set_running_or_notify_cancel():  # the caller may just have cancelled it
        future.set_result(value)


def _set_exception(futures: Iterable[Future[T]], error: Exception) -> None:
    for future in futures:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)


# Seconds beyond the timeout of a request: the call path handles timeouts and must come first.
_GRACE = 0.25
# Seconds to wait for a request to be withdrawn.
_WITHDRAW_TIMEOUT = 2.0


class QueueReview(Reviewer):
    """A reviewer that puts requests into a store: any client of the store can answer, even hours later.

    Each request waits for its own answer; requests of concurrent calls share transactions. If the process dies, a call
    with the same run, tool and arguments reuses the pending request, or an answer given meanwhile; the program has to
    choose the ``run_id``.

    :param store: the store of requests and answers
    :param poll: seconds between checks of the store

    >>> from toolsemble.review import Continue, MemoryStore
    >>> async def approve(store, request):
    ...     asked = asyncio.create_task(QueueReview(store).review(request))
    ...     while not store.pending():
    ...         await asyncio.sleep(0.01)
    ...     store.answer(store.pending()[0], Continue(), person="ada")
    ...     return await asked
    >>> with MemoryStore() as store:
    ...     asyncio.run(approve(store, ReviewRequest("Deletes a file", "delete", "old.log")))
    Continue(always=None)
    """

    sends_event = True
    """This reviewer sends ``review_requested`` itself, once the request is stored."""
    has_store = True

    def __init__(self, store: ReviewStoreProtocol, *, poll: float = 0.05) -> None:
        if not callable(getattr(store, "take", None)):
            raise ToolDefinitionError(
                f"QueueReview needs a store, such as ReviewStore(path), not {type(store).__name__}"
            )
        if not poll > 0:
            raise ToolDefinitionError(f"poll must be a number of seconds > 0, not {poll!r}")
        self.store = store
        self._watch = _find_optional(store)[1]
        self._poll = poll
        self._workers: dict[int, StoreWorker] = {}

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the decision from the store; withdraw the request when the wait is cancelled.

        If the run was cancelled and has its own id, the request stays open: the same run may ask again. So does every
        request of a journaled run.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + (request.timeout or 0) + _GRACE
        # A request that cannot be serialized would fail the requests that are stored with it.
        request.to_json().encode()
        request.arguments_digest  # noqa: B018 - computed as a check
        worker = self._worker
        pending = worker.post(request)
        try:
            stored = replace(request, id=await asyncio.wrap_future(pending.stored))
            # There may already be an answer from before a crash; then no one is asked.
            waits = not pending.answer.done()
            if note_stored(stored, waits=waits):
                await self.announce(stored)
            if waits:
                note_waiting()
            decision = await asyncio.wrap_future(pending.answer)
            if type(decision) is ExitEarly and decision.timed_out:
                await asyncio.sleep(ends - loop.time())
        except BaseException as error:
            is_failed = isinstance(error, Exception)  # no reviewer could be notified
            worker.leave(pending, keep=not is_failed and (request.durable or (request.resumable and is_interrupted())))
            if not isinstance(error, GeneratorExit):  # a coroutine that is closed cannot wait
                await asyncio.wait([asyncio.wrap_future(pending.withdrawn)], timeout=_WITHDRAW_TIMEOUT)
            raise
        return decision

    def find_open(self, ids: Iterable[str]) -> set[str]:
        """Return which of the requests are still pending."""
        return {request.id for request in self.store.pending()} & set(ids)

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, when a request may have an answer; None without notifications."""
        return None if self._watch is None else self._watch(changed)

    def withdraw(self, ids: Iterable[str]) -> None:
        """Close the requests of a cancelled run; an answer would not be used."""
        self.store.withdraw(ids)

    async def announce(self, request: ReviewRequest) -> None:
        """Announce a stored request to reviewers; a hook for subclasses.

        The request has its stored id. An exception withdraws it.
        """

    @property
    def _worker(self) -> StoreWorker:
        worker = self._workers.get(os.getpid())
        if worker is None:
            worker = self._workers[os.getpid()] = get_worker(self.store, self._poll)
        return worker
