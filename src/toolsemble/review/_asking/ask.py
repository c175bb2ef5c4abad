"""Pass requests to a handler: in place or in a thread, and the requests of one turn together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble._runtime.event_loops import Outcome, is_async, is_awaitable, unwrap_outcome
from toolsemble._runtime.threads import ThreadPerJob
from toolsemble.review._asking.open_question import CURRENT, OpenQuestion
from toolsemble.review._request import (
    BatchReviewer,
    ReviewDecision,
    Reviewer,
    ReviewHandler,
    ReviewRequest,
    to_reviewer,
)

if TYPE_CHECKING:
    import asyncio

ReviewAll: TypeAlias = Callable[[list[ReviewRequest]], Any]
"""The method of a batch reviewer."""

# Daemon threads: a reviewer who never answers must not keep the program running.
REVIEWERS = ThreadPerJob(daemon=True)

_batch: ContextVar[Batch | None] = ContextVar("toolsemble.batch", default=None)


async def ask(handler: ReviewHandler, request: ReviewRequest) -> Any:
    """Return the answer of a handler, whatever it is; requests of one turn are batched for a batch reviewer.

    The event that a reviewer is asked is sent before, unless the handler has a true ``sends_event``: it sends the event
    itself, or passes the request on.
    """
    import asyncio

    reviewer, asked = to_reviewer(handler), CURRENT.get()
    if asked is not None and not reviewer.sends_event:
        asked.announce(request)
    together = _batch.get()
    # A tool in another thread asks in another loop, which cannot wake up this one.
    ours = together is not None and together.loop is asyncio.get_running_loop()
    if together is not None and ours and isinstance(reviewer, BatchReviewer):
        return await together.answer(reviewer.review_all, request)
    return await _call(reviewer.review, request)


class OuterReviewer(Reviewer):
    """The base class of reviewers that decide themselves, or pass requests on to another reviewer.

    >>> from toolsemble import ExitEarly, Toolbox, ToolCall, tool
    >>> from toolsemble.review import AutoApprove
    >>> class Limit(OuterReviewer):
    ...     async def review(self, request):
    ...         return ExitEarly("too much") if request.arguments["amount"] > 100 else await self.pass_on(request)
    >>> @tool(requires_approval=True)
    ... def pay(amount: int) -> str:
    ...     return f"paid {amount}"
    >>> box = Toolbox([pay], review=Limit(AutoApprove()))
    >>> [box.execute(ToolCall("pay", {"amount": amount})).text for amount in (20, 500)]
    ['paid 20', 'Error: Rejected by reviewer: too much']
    """

    sends_event = True
    """The reviewer inside sends ``review_requested``, or else the call path."""

    def __init__(self, inside: ReviewHandler) -> None:
        """Set the reviewer that requests are passed on to."""
        self._inside = to_reviewer(inside)
        self.has_store, self.pauses = self._inside.has_store, self._inside.pauses

    async def pass_on(self, request: ReviewRequest) -> ReviewDecision:
        """Return the decision of the reviewer inside; a batch reviewer gets the requests of a turn together."""
        decision: ReviewDecision = await ask(self._inside, request)
        return decision

    def find_open(self, ids: Iterable[str]) -> set[str]:
        """Return which of these requests still wait for the reviewer inside."""
        return self._inside.find_open(ids)

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function when the reviewer inside may have an answer."""
        return self._inside.watch(changed)

    def withdraw(self, ids: Iterable[str]) -> object:
        """Close requests of the reviewer inside."""
        return self._inside.withdraw(ids)


async def _call(method: Callable[[Any], Any], given: Any) -> Any:
    """Return the result of a handler's method: async ones run in place, others in a thread."""
    answer = method(given) if is_async(method) else await _call_in_thread(method, given)
    return await answer if is_awaitable(answer) else answer


async def _call_in_thread(method: Callable[[Any], Any], given: Any) -> Any:
    import asyncio

    def run() -> Outcome:
        try:
            return [method(given), None]
        except BaseException as error:  # raised below; futures do not carry every exception
            return [None, error]

    asked = CURRENT.get() or OpenQuestion()
    asked.prompts += 1
    try:
        return unwrap_outcome(await asyncio.wrap_future(REVIEWERS.submit(run)))
    finally:
        asked.prompts -= 1


@contextmanager
def batch_requests() -> Iterator[None]:
    """Send concurrent requests of the block to a handler in one list, if it is a batch reviewer."""
    import asyncio

    token = _batch.set(Batch(asyncio.get_running_loop()))
    try:
        yield
    finally:
        _batch.reset(token)


class Batch:
    """The requests that the calls of one turn make at the same time, passed to each handler in one list."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # By the bound method, which is equal for the same object.
        self._open: dict[ReviewAll, dict[str, tuple[ReviewRequest, asyncio.Future[Any]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, review_all: ReviewAll, request: ReviewRequest) -> Any:
        """Return the answer to one request; it is sent with the others of the same loop iteration."""
        asked = self._open.get(review_all)
        if asked is None:
            asked = self._open[review_all] = {}
            self.loop.call_soon(self._send, review_all)
        asked[request.id] = request, self.loop.create_future()
        answer = await asked[request.id][1]
        return await answer if is_awaitable(answer) else answer

    def _send(self, review_all: ReviewAll) -> None:
        asked = self._open.pop(review_all)
        task = self.loop.create_task(_ask_batch(review_all, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def leave(_: asyncio.Future[Any]) -> None:
            if all(future.done() for _, future in asked.values()):
                task.cancel()  # no call waits any more

        for _, future in asked.values():
            future.add_done_callback(leave)


async def _ask_batch(review_all: ReviewAll, asked: Mapping[str, tuple[ReviewRequest, asyncio.Future[Any]]]) -> None:
    """Pass the answers to the waiting calls, by the ids of the requests; a missing answer is None."""
    answers: dict[str, Any] = {}
    failure: BaseException | None = None
    try:
        given = await _call(review_all, [request for request, _ in asked.values()])
        answers = dict(given) if isinstance(given, Mapping) else {}
    except BaseException as error:  # raised in each waiting call
        failure = RuntimeError("the handler failed") if isinstance(error, StopIteration) else error
    for key, (_, future) in asked.items():
        answer: Any = answers.get(key)
        if future.done():
            if inspect.iscoroutine(answer):
                answer.close()  # it will not be awaited
        elif failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(answer)
