"""One question to a reviewer: put with a time limit, and always ended by a clear decision."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolsemble.errors import ReviewTimeoutError
from toolsemble.masking.secrets import masked, masked_error
from toolsemble.observers.watchers import tell
from toolsemble.review.audit import LOGGER
from toolsemble.review.decision import Continue, Edit, ExitEarly, ReviewDecision
from toolsemble.review.events import ReviewDecided, ReviewRequested
from toolsemble.review.request import OnTimeout, ReviewHandler, ReviewRequest
from toolsemble.runtime.concurrency import ThreadPerJob, finish, is_async, is_awaitable, wait_for
from toolsemble.runtime.text import preview
from toolsemble.schema.display import HIDDEN

if TYPE_CHECKING:
    import asyncio

# A reviewer who never answers must not keep the program from ending.
_REVIEWERS = ThreadPerJob(daemon=True)
_LEEWAY = 0.1  # how many seconds a handler has to end when nobody waits for it
_INTERRUPTED = ExitEarly("the prompt was interrupted")
_LEFT: set[asyncio.Task[Any]] = set()  # answers that nobody waits for, until they have ended

_asked: ContextVar[Asked | None] = ContextVar("toolsemble.asked", default=None)
_round: ContextVar[Round | None] = ContextVar("toolsemble.round", default=None)


class Asked:
    """One question while it is open: whether whoever asked still waits, and how many people sit at a prompt for it."""

    __slots__ = ("gone", "prompts")

    def __init__(self) -> None:
        self.gone = threading.Event()
        self.prompts = 0


class Question:
    """A request and who is to answer it, to be put in a sync or an async way; it gives a decision.

    Every answer that is none, every exception and every interruption is an :class:`ExitEarly`.

    >>> class Silent:
    ...     def review(self, request):
    ...         return None
    >>> Question(Silent(), ReviewRequest("Deletes a file", "delete", "old.log")).do()
    ExitEarly(reason='the answer was not a decision', timed_out=False)
    """

    __slots__ = ("_asked", "_handler", "_request")

    def __init__(self, handler: ReviewHandler, request: ReviewRequest) -> None:
        self._handler = handler
        self._request = request
        self._asked = Asked()

    def do(self) -> ReviewDecision:
        """Ask, and wait in this thread; raise only :class:`ReviewTimeoutError` and what must end the program."""
        # In an event loop of another thread: a handler that holds up its loop does not hold up this one.
        aside = _Aside(self.ado())
        timeout = self._request.timeout
        seconds = min(timeout + 3 * _LEEWAY, threading.TIMEOUT_MAX) if timeout else None
        try:
            return aside.decision.result() if wait_for(aside.decision, seconds) else self._late()
        except KeyboardInterrupt:
            if not self._asked.prompts:
                raise  # nobody sits at a prompt: it is the program that is meant
            return self._decided(_INTERRUPTED)
        finally:
            self._asked.gone.set()
            aside.leave()

    async def ado(self) -> ReviewDecision:
        """Ask without holding up the event loop."""
        tell(ReviewRequested(self._request))
        decision = await self._put()
        tell(ReviewDecided(self._request, self._shown(decision)))
        return decision

    async def _put(self) -> ReviewDecision:
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        request = self._request
        LOGGER.info("asked: %s(%s)", request.tool_name, preview(request.arguments_text), extra=_facts(request))
        ends = time.monotonic() + request.timeout if request.timeout else None
        token = _asked.set(self._asked)
        answering = asyncio.ensure_future(_outcome(self._handler, request))
        try:
            # The answer is a task of its own: one that does not let itself be cancelled is left behind.
            done, _ = await asyncio.wait([answering], timeout=request.timeout or None)
        except asyncio.CancelledError:
            LOGGER.info("withdrawn: %s", request.tool_name, extra=_facts(request))
            raise
        finally:
            self._asked.gone.set()
            _asked.reset(token)
            if not answering.done():
                await _leave(answering)
        # A handler that holds up the loop may come with an answer when time is up.
        late = not done or (ends is not None and time.monotonic() > ends)
        return self._late() if late else self._settled(*answering.result())

    def _settled(self, answer: Any, error: BaseException | None) -> ReviewDecision:
        if isinstance(error, SystemExit):
            raise error
        if isinstance(error, KeyboardInterrupt):
            return self._decided(_INTERRUPTED)
        if error is not None:
            name = self._request.tool_name
            shown = masked_error(error)
            LOGGER.warning("The reviewer of '%s' failed", name, exc_info=shown, extra=_facts(self._request))
            return ExitEarly("the reviewer failed to answer")
        return self._decided(_clear(answer))

    def _late(self) -> ReviewDecision:
        request = self._request
        within = f"within {request.timeout:g} s"
        LOGGER.warning("expired: %s", request.tool_name, extra=_facts(request))
        if request.on_timeout is OnTimeout.CONTINUE:
            return Continue()
        if request.on_timeout is OnTimeout.FAIL:
            raise ReviewTimeoutError(f"Nobody answered the review of '{request.tool_name}' {within}")
        return ExitEarly(f"no answer {within}", timed_out=True)

    def _decided(self, decision: ReviewDecision) -> ReviewDecision:
        LOGGER.info("decided: %s: %s", self._request.tool_name, self._shown(decision), extra=_facts(self._request))
        return decision

    def _shown(self, decision: ReviewDecision) -> ReviewDecision:
        """Give a decision as others are told of it: what a reviewer wrote in place of secrets is secret, too."""
        if type(decision) is ExitEarly:
            return replace(decision, reason=decision.reason and masked(str(decision.reason)))
        if type(decision) is Edit:
            return Edit(HIDDEN if self._request.hidden_digest else masked(decision.revised))
        return decision


class _Aside:
    """A question in an event loop of another thread; whoever waits for the decision does not wait for its end."""

    def __init__(self, asking: Coroutine[Any, Any, ReviewDecision]) -> None:
        self.decision: Future[ReviewDecision] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        _REVIEWERS.submit(finish, self._ask(asking))

    async def _ask(self, asking: Coroutine[Any, Any, ReviewDecision]) -> None:
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            self.decision.set_result(await asking)
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            self.decision.set_exception(error)

    def leave(self) -> None:
        """Withdraw the question if it is still open."""
        if not self.decision.done() and self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._task.cancel)


async def _outcome(handler: Any, request: ReviewRequest) -> tuple[Any, BaseException | None]:
    # Returned, not raised: futures and tasks do not carry every kind of exception.
    try:
        return await ask(handler, request), None
    except BaseException as error:  # noqa: BLE001 - the question decides what becomes of it
        return None, error


async def _leave(answering: asyncio.Task[Any]) -> None:
    """Cancel an answer that nobody waits for; one that takes its time to end is kept until it has."""
    import asyncio  # noqa: PLC0415 - as above

    _LEFT.add(answering)
    answering.add_done_callback(_LEFT.discard)
    answering.cancel()
    await asyncio.wait([answering], timeout=_LEEWAY)


class Round:
    """The requests that the calls of one turn make at the same time, put to each handler together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._open: dict[int, dict[str, tuple[ReviewRequest, asyncio.Future[Any]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, handler: Any, request: ReviewRequest) -> Any:
        """Give the answer to one request, which is put with the others that are made before the loop comes round."""
        asked = self._open.get(id(handler))
        if asked is None:
            asked = self._open[id(handler)] = {}
            self.loop.call_soon(self._put, handler)
        asked[request.id] = request, self.loop.create_future()
        answer = await asked[request.id][1]
        return await answer if is_awaitable(answer) else answer

    def _put(self, handler: Any) -> None:
        asked = self._open.pop(id(handler))
        task = self.loop.create_task(_answered(handler, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def leave(_: asyncio.Future[Any]) -> None:
            if all(future.done() for _, future in asked.values()):
                task.cancel()  # nobody waits any more

        for _, future in asked.values():
            future.add_done_callback(leave)


async def _answered(handler: Any, asked: Mapping[str, tuple[ReviewRequest, asyncio.Future[Any]]]) -> None:
    """Hand each answer to whoever asked, by the request's id; an answer that is missing is none."""
    answers: dict[str, Any] = {}
    failure: BaseException | None = None
    try:
        given = await _called(handler.review_all, [request for request, _ in asked.values()])
        answers = dict(given) if isinstance(given, Mapping) else {}
    except BaseException as error:  # noqa: BLE001 - each of those who asked gets it
        failure = RuntimeError("the handler failed") if isinstance(error, StopIteration) else error
    for key, (_, future) in asked.items():
        answer: Any = answers.get(key)
        if future.done():
            if inspect.iscoroutine(answer):
                answer.close()  # nobody will await it
        elif failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(answer)


@contextmanager
def asked_together() -> Iterator[None]:
    """Put the requests that are made inside at the same time to handlers together, where they can take several."""
    import asyncio  # noqa: PLC0415 - sync programs never pay for it

    token = _round.set(Round(asyncio.get_running_loop()))
    try:
        yield
    finally:
        _round.reset(token)


def nobody_waits() -> bool:
    """Whether whoever asked has gone, because time is up or the run was cancelled; a handler may then stop.

    >>> nobody_waits()
    False
    """
    asked = _asked.get()
    return asked is not None and asked.gone.is_set()


async def ask(handler: Any, request: ReviewRequest) -> Any:
    """Give a handler's answer, whatever it is; requests of one turn are put together where it can take several.

    This is how a handler that wraps another one passes requests on.
    """
    import asyncio  # noqa: PLC0415 - as above

    together = _round.get()
    # A tool that runs in a thread of its own asks in a loop of its own, which cannot wake up another.
    ours = together is not None and together.loop is asyncio.get_running_loop()
    if together is not None and ours and callable(getattr(handler, "review_all", None)):
        return await together.answer(handler, request)
    return await _called(handler.review, request)


async def _called(method: Callable[[Any], Any], given: Any) -> Any:
    """Give what a handler's method gives: async ones run in place, others in a thread of their own."""
    answer = method(given) if is_async(method) else await _prompted(method, given)
    return await answer if is_awaitable(answer) else answer


async def _prompted(method: Callable[[Any], Any], given: Any) -> Any:
    import asyncio  # noqa: PLC0415 - as above

    def sit() -> tuple[Any, BaseException | None]:
        try:
            return method(given), None
        except BaseException as error:  # noqa: BLE001 - raised below; futures do not carry every kind
            return None, error

    asked = _asked.get() or Asked()
    asked.prompts += 1
    try:
        answer, error = await asyncio.wrap_future(_REVIEWERS.submit(sit))
    finally:
        asked.prompts -= 1
    if error is not None:
        raise error
    return answer


def _clear(answer: Any) -> ReviewDecision:
    """Return the answer, if it is one of the three decisions, else a refusal.

    By its type, which nothing can pretend to be: an object can say of itself that it is of any class, as a mock does,
    and a subclass may mean something that the call path does not know.
    """
    kind = type(answer)
    if kind is Continue or kind is ExitEarly:
        return answer  # type: ignore[no-any-return]  # just looked at
    if kind is Edit and issubclass(type(answer.revised), str):
        return Edit(str.__str__(answer.revised))  # a text of somebody's own class may say that it equals any other
    return ExitEarly("the answer was not a decision")


def _facts(request: ReviewRequest) -> dict[str, Any]:
    return {
        "review_id": request.id,
        "tool": request.tool_name,
        "call_id": request.call_id,
        "run_id": request.run_id,
        "agent_role": request.agent_role,
    }
