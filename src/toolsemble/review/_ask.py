"""Pass requests to a handler: in place or in a thread, and the requests of one turn together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from toolsemble._runtime.event_loops import Outcome, is_async, is_awaitable, unwrap_outcome
from toolsemble._runtime.threads import ThreadPerJob
from toolsemble.review._open_question import CURRENT, OpenQuestion
from toolsemble.review._request import ReviewRequest

if TYPE_CHECKING:
    import asyncio

# Daemon threads: a reviewer who never answers must not keep the program running.
REVIEWERS = ThreadPerJob(daemon=True)

_batch: ContextVar[Batch | None] = ContextVar("toolsemble.batch", default=None)


async def ask(handler: Any, request: ReviewRequest) -> Any:
    """Return the answer of a handler, whatever it is; requests of one turn are batched if it has ``review_all``.

    A handler that wraps another one uses this to pass requests on. The event that a reviewer is asked is sent before,
    unless the handler has a true ``sends_event``: it sends it itself, or passes the request on.
    """
    import asyncio

    asked = CURRENT.get()
    if asked is not None and getattr(handler, "sends_event", False) is not True:
        asked.announce(request)
    together = _batch.get()
    # A tool in another thread asks in another loop, which cannot wake up this one.
    ours = together is not None and together.loop is asyncio.get_running_loop()
    if together is not None and ours and callable(getattr(handler, "review_all", None)):
        return await together.answer(handler, request)
    return await _call(handler.review, request)


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
    """Send concurrent requests of the block to a handler in one list, if it has ``review_all``."""
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
        self._open: dict[int, dict[str, tuple[ReviewRequest, asyncio.Future[Any]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, handler: Any, request: ReviewRequest) -> Any:
        """Return the answer to one request; it is sent with the others of the same loop iteration."""
        asked = self._open.get(id(handler))
        if asked is None:
            asked = self._open[id(handler)] = {}
            self.loop.call_soon(self._send, handler)
        asked[request.id] = request, self.loop.create_future()
        answer = await asked[request.id][1]
        return await answer if is_awaitable(answer) else answer

    def _send(self, handler: Any) -> None:
        asked = self._open.pop(id(handler))
        task = self.loop.create_task(_ask_batch(handler, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def leave(_: asyncio.Future[Any]) -> None:
            if all(future.done() for _, future in asked.values()):
                task.cancel()  # no call waits any more

        for _, future in asked.values():
            future.add_done_callback(leave)


async def _ask_batch(handler: Any, asked: Mapping[str, tuple[ReviewRequest, asyncio.Future[Any]]]) -> None:
    """Pass the answers to the waiting calls, by the ids of the requests; a missing answer is None."""
    answers: dict[str, Any] = {}
    failure: BaseException | None = None
    try:
        given = await _call(handler.review_all, [request for request, _ in asked.values()])
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
