"""Requests that wait in a store until somebody answers them, in this process or another one."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

from toolsemble.errors import ToolDefinitionError
from toolsemble.review.decision import ExitEarly, ReviewDecision
from toolsemble.review.request import ReviewRequest
from toolsemble.review.store import ReviewStore
from toolsemble.review.store_worker import Pending, StoreWorker

# How much longer than the request's own time: the call path decides what a timeout means, and comes first.
_GRACE = 0.25
# How long somebody who leaves waits for the store to take note.
_PARTING = 2.0


class QueueReview:
    """A handler whose requests wait in a store: anyone who can reach the store answers, even hours later.

    Each request waits for its own answer; those of concurrent calls share the store's transactions.

    :param store: where requests and answers meet
    :param poll: how many seconds pass between looks at the store

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

    def __init__(self, store: ReviewStore, *, poll: float = 0.05) -> None:
        if not callable(getattr(store, "take", None)):
            raise ToolDefinitionError(f"A queue takes a store, like SQLiteStore(path), not {type(store).__name__}")
        if not poll > 0:
            raise ToolDefinitionError(f"poll must be a number of seconds above 0, not {poll!r}")
        self.store = store
        self._poll = poll
        self._workers: dict[int, StoreWorker] = {}

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Give the decision that somebody puts into the store; the request is withdrawn when nobody waits any more."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + (request.timeout or 0) + _GRACE
        _check(request)
        worker = self._worker
        pending = worker.post(request)
        try:
            await self.announce(replace(request, id=await asyncio.wrap_future(pending.stored)))
            decision = await asyncio.wrap_future(pending.answer)
            if type(decision) is ExitEarly and decision.timed_out:
                await asyncio.sleep(ends - loop.time())
        except BaseException as error:
            worker.leave(pending)
            if not isinstance(error, GeneratorExit):  # a coroutine that is thrown away cannot wait
                await _wait_until_withdrawn(pending)
            raise
        return decision

    async def announce(self, request: ReviewRequest) -> None:
        """Do what has to be done between the moment a request is stored and its answer; here, nothing.

        The request has the id that it is stored under. An exception withdraws it.
        """

    @property
    def _worker(self) -> StoreWorker:
        # A fork has neither its parent's thread nor those who wait in the parent; setdefault lets one thread win.
        return self._workers.setdefault(os.getpid(), StoreWorker(self.store, self._poll))


async def _wait_until_withdrawn(pending: Pending) -> None:
    await asyncio.wait([asyncio.wrap_future(pending.withdrawn)], timeout=_PARTING)


def _check(request: ReviewRequest) -> None:
    """Raise for a request that cannot be written, before it fails those that are stored together with it."""
    request.to_json().encode()
    request.arguments_digest  # noqa: B018 - it is made to see that it can be
