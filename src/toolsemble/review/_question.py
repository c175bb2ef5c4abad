"""Asking a reviewer: with a timeout, in a thread or an event loop, and always ending in a decision."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble._runtime.event_loops import Outcome, capture_outcome, finish, is_async, is_awaitable, unwrap_outcome
from toolsemble._runtime.text import HIDDEN, preview
from toolsemble._runtime.threads import ThreadPerJob, wait_for
from toolsemble._runtime.watchers import tell
from toolsemble._runtime.work_clock import WaitingForPerson
from toolsemble._schema.masking import mask_error, mask_text
from toolsemble._vocabulary.errors import CallPausedError, JournalError, ReviewTimeoutError, RunError
from toolsemble.review._request import (
    LOGGER,
    Continue,
    Edit,
    ExitEarly,
    ReviewDecided,
    ReviewDecision,
    ReviewHandler,
    ReviewRequest,
    ReviewRequested,
)
from toolsemble.review._terms import OnTimeout

if TYPE_CHECKING:
    import asyncio

# Daemon threads: a reviewer who never answers must not keep the program running.
_REVIEWERS = ThreadPerJob(daemon=True)
_LEEWAY = 0.1  # seconds for an abandoned handler to end
_INTERRUPTED = ExitEarly("the prompt was interrupted")
_ABANDONED: set[asyncio.Task[Any]] = set()  # abandoned answers, until they have ended

Check: TypeAlias = Callable[[str], str]

_question: ContextVar[OpenQuestion | None] = ContextVar("toolsemble.question", default=None)
_batch: ContextVar[Batch | None] = ContextVar("toolsemble.batch", default=None)


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


class Question:
    """A request and its reviewer, to be asked synchronously or asynchronously; the result is a decision.

    An exception, an interrupt, and any answer that is not a decision is an :class:`ExitEarly`.

    >>> class Silent:
    ...     def review(self, request):
    ...         return None
    >>> Question(Silent(), ReviewRequest("Deletes a file", "delete", "old.log")).do()
    ExitEarly(reason='the answer was not a decision', timed_out=False)
    """

    __slots__ = ("_handler", "_question", "_request")

    def __init__(
        self, handler: ReviewHandler, request: ReviewRequest, check: Check | None = None, *, is_known: bool = False
    ) -> None:
        """Store what to ask.

        :param check: returns what is wrong with the text of an edit, or ""; None: edits cannot be checked here
        :param is_known: whether an earlier process of the run has told people of it, so that they are not told again
        """
        self._handler = handler
        self._request = request
        self._question = OpenQuestion(request, check, is_known=is_known)

    def do(self) -> ReviewDecision:
        """Ask, and wait in this thread; raise only errors that a reviewer may cause, and what must end the program."""
        # In an event loop of another thread: a handler that blocks its loop does not block this thread.
        asking = _InThread(self.ado())
        timeout = self._request.timeout
        seconds = min(timeout + 3 * _LEEWAY, threading.TIMEOUT_MAX) if timeout else None
        try:
            with WaitingForPerson():
                return asking.decision.result() if wait_for(asking.decision, seconds) else self.expire()
        except KeyboardInterrupt:
            if not self._question.prompts:
                raise  # no prompt is open: the interrupt is meant for the program
            return self._log_decision(_INTERRUPTED)
        finally:
            self._question.abandoned.set()
            asking.leave()

    async def ado(self) -> ReviewDecision:
        """Ask without blocking the event loop."""
        with WaitingForPerson():
            decision = await self._ask()
        # A rule may have decided without asking anybody.
        self._question.announce(self._request)
        tell(ReviewDecided(self._question.request or self._request, self._mask(decision)))
        return decision

    async def _ask(self) -> ReviewDecision:
        import asyncio

        request = self._request
        if not self._question.is_known:
            shown = preview(request.arguments_text)
            LOGGER.info("asked: %s(%s)", request.tool_name, shown, extra=_log_fields(request))
        ends = time.monotonic() + request.timeout if request.timeout else None
        token = _question.set(self._question)
        answering = asyncio.ensure_future(capture_outcome(ask(self._handler, request)))
        try:
            # The answer is a separate task: one that ignores its cancellation is abandoned.
            done, _ = await asyncio.wait([answering], timeout=request.timeout or None)
        except asyncio.CancelledError:
            self._question.interrupted = True
            what = "interrupted" if request.resumable else "withdrawn"
            LOGGER.info("%s: %s", what, request.tool_name, extra=_log_fields(request))
            raise
        finally:
            self._question.abandoned.set()
            _question.reset(token)
            if not answering.done():
                await _leave(answering)
        # A handler that blocks the loop may answer after the deadline.
        late = not done or (ends is not None and time.monotonic() > ends)
        return self.expire() if late else self._evaluate(*answering.result())

    def _evaluate(self, answer: Any, error: BaseException | None) -> ReviewDecision:
        if isinstance(error, (SystemExit, CallPausedError, RunError, JournalError)):
            raise error
        if isinstance(error, KeyboardInterrupt):
            return self._log_decision(_INTERRUPTED)
        if error is not None:
            name = self._request.tool_name
            shown = mask_error(error)
            LOGGER.warning("The reviewer of '%s' failed", name, exc_info=shown, extra=_log_fields(self._request))
            return ExitEarly("the reviewer failed to answer")
        return self._log_decision(_check_answer(answer))

    def expire(self) -> ReviewDecision:
        """Return the decision for a question whose time is over; raise if its request says so."""
        request = self._request
        within = f"within {request.timeout:g} s"
        LOGGER.warning("expired: %s", request.tool_name, extra=_log_fields(request))
        if request.on_timeout is OnTimeout.CONTINUE:
            return Continue()
        if request.on_timeout is OnTimeout.FAIL:
            raise ReviewTimeoutError(f"Nobody answered the review of '{request.tool_name}' {within}")
        return ExitEarly(f"no answer {within}", timed_out=True)

    def _log_decision(self, decision: ReviewDecision) -> ReviewDecision:
        LOGGER.info("decided: %s: %s", self._request.tool_name, self._mask(decision), extra=_log_fields(self._request))
        return decision

    def _mask(self, decision: ReviewDecision) -> ReviewDecision:
        """Return a decision for logs and events: an edit of secret arguments is masked."""
        if type(decision) is ExitEarly:
            return replace(decision, reason=decision.reason and mask_text(str(decision.reason)))
        if type(decision) is Edit:
            return replace(decision, revised=HIDDEN if self._request.hidden_digest else mask_text(decision.revised))
        return decision


class _InThread:
    """A question in an event loop of another thread, which may outlive the wait for the decision."""

    def __init__(self, asking: Coroutine[Any, Any, ReviewDecision]) -> None:
        self.decision: Future[ReviewDecision] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        _REVIEWERS.submit(finish, self._ask(asking))

    async def _ask(self, asking: Coroutine[Any, Any, ReviewDecision]) -> None:
        import asyncio

        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            self.decision.set_result(await asking)
        except BaseException as error:  # raised in the waiting thread
            self.decision.set_exception(error)

    def leave(self) -> None:
        """Cancel the question if it is still open."""
        if not self.decision.done() and self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has ended in the meantime
                self._loop.call_soon_threadsafe(self._task.cancel)


async def _leave(answering: asyncio.Task[Any]) -> None:
    """Cancel an abandoned answer; keep a reference to one that takes longer to end."""
    import asyncio

    _ABANDONED.add(answering)
    answering.add_done_callback(_ABANDONED.discard)
    answering.cancel()
    await asyncio.wait([answering], timeout=_LEEWAY)


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


@contextmanager
def batch_requests() -> Iterator[None]:
    """Send concurrent requests of the block to a handler in one list, if it has ``review_all``."""
    import asyncio

    token = _batch.set(Batch(asyncio.get_running_loop()))
    try:
        yield
    finally:
        _batch.reset(token)


def is_abandoned() -> bool:
    """Return whether the current question is abandoned, by timeout or cancellation; a handler may then stop.

    >>> is_abandoned()
    False
    """
    asked = _question.get()
    return asked is not None and asked.abandoned.is_set()


def is_interrupted() -> bool:
    """Return whether the run of the current question was cancelled; a timeout, or another reviewer, does not count.

    >>> is_interrupted()
    False
    """
    asked = _question.get()
    return asked is not None and asked.interrupted


def can_check_edits() -> bool:
    """Return whether the call path of the current question can check an edit before it is the decision."""
    asked = _question.get()
    return asked is not None and asked.check is not None


def check_edit(revised: str) -> str:
    """Return what is wrong with the text of an edit for the current question; "" if it fits, or is not known.

    >>> check_edit('{"boxes": 500}')
    ''
    """
    asked = _question.get()
    return "" if asked is None or asked.check is None else asked.check(revised)


def note_stored(request: ReviewRequest, *, waits: bool) -> bool:
    """Record that the current question is in a store, under the id of this request, and send the event for it.

    Return whether people have to be told of it.

    :param waits: whether it waits for an answer; there is no event for one that was answered before a crash
    """
    asked = _question.get()
    if asked is None:
        return waits
    if waits:
        asked.announce(request)
    elif not asked.announced:
        asked.announced, asked.request = True, request
    return waits and not asked.is_known


def note_waiting() -> None:
    """Record that people know the current question, and that it waits for an answer."""
    asked = _question.get()
    if asked is not None and asked.on_stored is not None:
        asked.on_stored()


def watch_stored(notify: Callable[[], object]) -> None:
    """Call a function when the current question is in a store, people know it, and there is no earlier answer to it.

    >>> watch_stored(print)
    """
    asked = _question.get()
    if asked is not None:
        asked.on_stored = notify


def find_stored(request: ReviewRequest) -> ReviewRequest:
    """Return the current question as a store has it, under another id if it was asked before; else the request.

    >>> find_stored(ReviewRequest("Deletes a file", "delete", "old.log", id="q1")).id
    'q1'
    """
    asked = _question.get()
    return request if asked is None or asked.request is None else asked.request


async def ask(handler: Any, request: ReviewRequest) -> Any:
    """Return the answer of a handler, whatever it is; requests of one turn are batched if it has ``review_all``.

    A handler that wraps another one uses this to pass requests on. The event that a reviewer is asked is sent before,
    unless the handler has a true ``sends_event``: it sends it itself, or passes the request on.
    """
    import asyncio

    asked = _question.get()
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

    asked = _question.get() or OpenQuestion()
    asked.prompts += 1
    try:
        return unwrap_outcome(await asyncio.wrap_future(_REVIEWERS.submit(run)))
    finally:
        asked.prompts -= 1


def _check_answer(answer: Any) -> ReviewDecision:
    """Return the answer if it is one of the three decisions, else a rejection.

    Compared by type: an object can pretend to be an instance of any class, as a mock does, and the call path does not
    know what a subclass means.
    """
    kind = type(answer)
    if kind is Continue or kind is ExitEarly:
        return answer  # type: ignore[no-any-return]  # just checked
    if kind is Edit and issubclass(type(answer.revised), str):
        revised = str.__str__(answer.revised)  # a subclass of str may compare equal to anything
        return Edit(revised, person=answer.person)
    return ExitEarly("the answer was not a decision")


def _log_fields(request: ReviewRequest) -> dict[str, Any]:
    return {
        "review_id": request.id,
        "tool": request.tool_name,
        "call_id": request.call_id,
        "run_id": request.run_id,
        "agent_role": request.agent_role,
        "memory_id": request.memory_id,
    }
