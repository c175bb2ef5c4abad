"""A reviewer that stores requests until they are answered, in this process or another one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._decision import ExitEarly, ReviewDecision
from toolsemble.review._question import is_interrupted, note_stored, note_waiting
from toolsemble.review._request import ReviewRequest
from toolsemble.review._store import ReviewStore
from toolsemble.review._store_worker import StoreWorker, get_worker

# Seconds beyond the timeout of a request: the call path handles timeouts and must come first.
_GRACE = 0.25
# Seconds to wait for a request to be withdrawn.
_WITHDRAW_TIMEOUT = 2.0


class QueueReview:
    """A reviewer that puts requests into a store: anyone who can reach the store can answer, even hours later.

    Each request waits for its own answer; those of concurrent calls share transactions. If the process dies, a call of
    the same run, tool and arguments takes up the question, or the answer that was given meanwhile; the program has to
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

    def __init__(self, store: ReviewStore, *, poll: float = 0.05) -> None:
        if not callable(getattr(store, "take", None)):
            raise ToolDefinitionError(
                f"QueueReview needs a store, such as SQLiteStore(path), not {type(store).__name__}"
            )
        if not poll > 0:
            raise ToolDefinitionError(f"poll must be a number of seconds > 0, not {poll!r}")
        self.store = store
        self._poll = poll
        self._workers: dict[int, StoreWorker] = {}

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the decision from the store; withdraw the request when the wait is cancelled.

        If the run was cancelled and has an id of its own, the request stays open: the same run may ask again. So does
        every request of a run with a journal.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + (request.timeout or 0) + _GRACE
        # A request that cannot be serialized would fail those that are stored with it.
        request.to_json().encode()
        request.arguments_digest  # noqa: B018 - computed to see that it can be
        worker = self._worker
        pending = worker.post(request)
        try:
            stored = replace(request, id=await asyncio.wrap_future(pending.stored))
            # An answer from before a crash may be there already; then nobody is asked.
            waits = not pending.answer.done()
            if note_stored(stored, waits=waits):
                await self.announce(stored)
            if waits:
                note_waiting()
            decision = await asyncio.wrap_future(pending.answer)
            if type(decision) is ExitEarly and decision.timed_out:
                await asyncio.sleep(ends - loop.time())
        except BaseException as error:
            is_failed = isinstance(error, Exception)  # nobody could be told of it
            worker.leave(pending, keep=not is_failed and (request.durable or (request.resumable and is_interrupted())))
            if not isinstance(error, GeneratorExit):  # a coroutine that is closed cannot wait
                await asyncio.wait([asyncio.wrap_future(pending.withdrawn)], timeout=_WITHDRAW_TIMEOUT)
            raise
        return decision

    def find_open(self, ids: Iterable[str]) -> set[str]:
        """Return which of the requests still wait for an answer."""
        return {request.id for request in self.store.pending()} & set(ids)

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, when a request may be answered; None if the store does not tell."""
        watch = getattr(self.store, "watch", None)
        return watch(changed) if callable(watch) else None

    def withdraw(self, ids: Iterable[str]) -> None:
        """Close requests whose run was cancelled; an answer to them would not be used."""
        self.store.withdraw(ids)

    async def announce(self, request: ReviewRequest) -> None:
        """Announce a stored request to reviewers; does nothing here, for subclasses.

        The request has the id that it is stored under. An exception withdraws it.
        """

    @property
    def _worker(self) -> StoreWorker:
        worker = self._workers.get(os.getpid())
        if worker is None:
            worker = self._workers[os.getpid()] = get_worker(self.store, self._poll)
        return worker
