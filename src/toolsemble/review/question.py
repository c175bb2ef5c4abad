"""One question to a reviewer: put with a time limit, and always ended by a clear decision."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from toolsemble.errors import ReviewTimeoutError
from toolsemble.preview import preview
from toolsemble.review.decision import Continue, Edit, ExitEarly, ReviewDecision
from toolsemble.review.request import OnTimeout, ReviewHandler, ReviewRequest
from toolsemble.workers import ThreadPerJob, awaitable, finish, is_async

if TYPE_CHECKING:
    import asyncio

LOGGER = logging.getLogger("toolsemble.review")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

# A reviewer who never answers must not keep the program from ending.
_REVIEWERS = ThreadPerJob(daemon=True)
_SHOWN = 200

_gone: ContextVar[threading.Event | None] = ContextVar("toolsemble.gone", default=None)
_round: ContextVar[Round | None] = ContextVar("toolsemble.round", default=None)


class Question:
    """A request and who is to answer it, to be put in a sync or an async way; it gives a decision.

    Every answer that is none, every exception and every interruption is an :class:`ExitEarly`.

    >>> class Silent:
    ...     def review(self, request):
    ...         return None
    >>> Question(Silent(), ReviewRequest("Deletes a file", "delete", "old.log")).do()
    ExitEarly(reason='the answer was not a decision', timed_out=False)
    """

    __slots__ = ("_handler", "_request")

    def __init__(self, handler: ReviewHandler, request: ReviewRequest) -> None:
        self._handler = handler
        self._request = request

    def do(self) -> ReviewDecision:
        """Ask, and wait in this thread; raise only :class:`ReviewTimeoutError` and what must end the program."""
        try:
            return finish(self.ado())
        except KeyboardInterrupt:
            if is_async(self._handler.review):
                raise  # nobody sits at a prompt: it is the program that is meant
            return self._decided(ExitEarly("the prompt was interrupted"))

    async def ado(self) -> ReviewDecision:
        """Ask without holding up the event loop."""
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        request, seconds = self._request, self._request.timeout or None
        LOGGER.info("asked: %s(%s)", request.tool_name, preview(request.arguments_text, _SHOWN), extra=_facts(request))
        token = _gone.set(gone := threading.Event())
        ends = None if seconds is None else asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(ends) as limit:
                answer = await ask(self._handler, self._request)
        except (Exception, KeyboardInterrupt, asyncio.CancelledError) as error:  # noqa: BLE001 - each is a refusal
            return self._late() if limit.expired() else self._failed(error)
        finally:
            gone.set()
            _gone.reset(token)
        # A handler that holds on to its turn, or to the thread, may come with an answer when time is up.
        late = limit.expired() or (ends is not None and asyncio.get_running_loop().time() > ends)
        return self._late() if late else self._decided(_clear(answer))

    def _failed(self, error: BaseException) -> ReviewDecision:
        import asyncio  # noqa: PLC0415 - as above

        if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
            LOGGER.info("withdrawn: %s", self._request.tool_name, extra=_facts(self._request))
            raise error
        if isinstance(error, KeyboardInterrupt):
            return self._decided(ExitEarly("the prompt was interrupted"))
        LOGGER.warning(
            "The reviewer of '%s' failed", self._request.tool_name, exc_info=error, extra=_facts(self._request)
        )
        return ExitEarly("the reviewer failed to answer")

    def _late(self) -> ReviewDecision:
        request = self._request
        LOGGER.warning("expired: %s", request.tool_name, extra=_facts(request))
        if request.on_timeout is OnTimeout.CONTINUE:
            return Continue()
        if request.on_timeout is OnTimeout.FAIL:
            raise ReviewTimeoutError(
                f"Nobody answered the review of '{request.tool_name}' within {request.timeout:g} s"
            )
        return ExitEarly(f"no answer within {request.timeout:g} s", timed_out=True)

    def _decided(self, decision: ReviewDecision) -> ReviewDecision:
        LOGGER.info("decided: %s: %s", self._request.tool_name, decision, extra=_facts(self._request))
        return decision


class Round:
    """The requests that the calls of one turn make at the same time, put to each handler together."""

    def __init__(self) -> None:
        self._open: dict[int, dict[str, tuple[ReviewRequest, asyncio.Future[Any]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, handler: Any, request: ReviewRequest) -> Any:
        """Give the answer to one request, which is put with the others that are made before the loop comes round."""
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        loop = asyncio.get_running_loop()
        asked = self._open.get(id(handler))
        if asked is None:
            asked = self._open[id(handler)] = {}
            loop.call_soon(self._put, handler)
        asked[request.id] = request, loop.create_future()
        answer = await asked[request.id][1]
        return await answer if awaitable(answer) else answer

    def _put(self, handler: Any) -> None:
        import asyncio  # noqa: PLC0415 - as above

        asked = self._open.pop(id(handler))
        task = asyncio.get_running_loop().create_task(_answered(handler, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def leave(_: asyncio.Future[Any]) -> None:
            if all(future.done() for _, future in asked.values()):
                task.cancel()  # nobody waits any more

        for _, future in asked.values():
            future.add_done_callback(leave)


async def _answered(handler: Any, asked: Mapping[str, tuple[ReviewRequest, asyncio.Future[Any]]]) -> None:
    """Hand each answer to whoever asked, by the request's id; an answer that is missing is none."""
    answers: Any = {}
    failure: BaseException | None = None
    try:
        answers = await _called(handler.review_all, [request for request, _ in asked.values()])
    except BaseException as error:  # noqa: BLE001 - each of those who asked gets it
        failure = error
    for key, (_, future) in asked.items():
        if future.done():
            continue
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(answers.get(key) if isinstance(answers, Mapping) else None)


@contextmanager
def asked_together() -> Iterator[None]:
    """Put the requests that are made inside at the same time to handlers together, where they can take several."""
    token = _round.set(Round())
    try:
        yield
    finally:
        _round.reset(token)


def nobody_waits() -> bool:
    """Whether whoever asked has gone, because time is up or the run was cancelled; a handler may then stop.

    >>> nobody_waits()
    False
    """
    gone = _gone.get()
    return gone is not None and gone.is_set()


async def ask(handler: Any, request: ReviewRequest) -> Any:
    """Give a handler's answer, whatever it is; requests of one turn are put together where it can take several.

    This is how a handler that wraps another one passes requests on.
    """
    together = _round.get()
    if together is not None and callable(getattr(handler, "review_all", None)):
        return await together.answer(handler, request)
    return await _called(handler.review, request)


async def _called(method: Callable[[Any], Any], given: Any) -> Any:
    """Give what a handler's method gives: async ones run in place, others in a thread of their own."""
    import asyncio  # noqa: PLC0415 - as above

    answer = method(given) if is_async(method) else await asyncio.wrap_future(_REVIEWERS.submit(method, given))
    return await answer if awaitable(answer) else answer


def _clear(answer: Any) -> ReviewDecision:
    """Give a decision: the answer, if it is one, else a refusal."""
    if isinstance(answer, (Continue, ExitEarly)) or (isinstance(answer, Edit) and isinstance(answer.revised, str)):
        return answer
    return ExitEarly("the answer was not a decision")


def _facts(request: ReviewRequest) -> dict[str, Any]:
    return {
        "review_id": request.id,
        "tool": request.tool_name,
        "call_id": request.call_id,
        "run_id": request.run_id,
        "agent_role": request.agent_role,
    }
