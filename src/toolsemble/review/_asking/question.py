"""Asking a reviewer: with a timeout, in a thread or an event loop, always with a decision as the result."""

from __future__ import annotations

import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolsemble._runtime.event_loops import capture_outcome, finish
from toolsemble._runtime.text import HIDDEN, preview
from toolsemble._runtime.threads import wait_for
from toolsemble._runtime.watchers import tell
from toolsemble._runtime.work_clock import WaitingForPerson
from toolsemble._schema.masking import mask_error, mask_text
from toolsemble._vocabulary.errors import CallPausedError, JournalError, ReviewTimeoutError, RunError
from toolsemble.review import _request as reviews
from toolsemble.review._asking.ask import REVIEWERS, ask
from toolsemble.review._asking.open_question import CURRENT, Check, OpenQuestion
from toolsemble.review._terms import OnTimeout

if TYPE_CHECKING:
    import asyncio

_LEEWAY = 0.1  # seconds for an abandoned handler to end

_INTERRUPTED = reviews.ExitEarly("the prompt was interrupted")
_ABANDONED: set[asyncio.Task[Any]] = set()  # abandoned answers, until they have ended


class Question:
    """A request and its reviewer, to be asked synchronously or asynchronously; the result is a decision.

    An exception, an interrupt, and any answer that is not a decision is an :class:`ExitEarly`.
    """

    __slots__ = ("_handler", "_question", "_request")

    def __init__(
        self,
        handler: reviews.ReviewHandler,
        request: reviews.ReviewRequest,
        check: Check | None = None,
        *,
        is_known: bool = False,
    ) -> None:
        """Store the question.

        :param check: returns what is wrong with the text of an edit, or ""; None: edits cannot be checked here
        :param is_known: whether an earlier process of the run has notified people, so that they are not notified again
        """
        self._handler = handler
        self._request = request
        self._question = OpenQuestion(request, check, is_known=is_known)

    def do(self) -> reviews.ReviewDecision:
        """Ask, and wait in this thread; raise only errors that a reviewer may cause, and ones that end the program."""
        # In another thread's event loop: a handler that blocks its loop does not block this thread.
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

    async def ado(self) -> reviews.ReviewDecision:
        """Ask without blocking the event loop."""
        with WaitingForPerson():
            decision = await self._ask()
        # A rule may have decided without asking a person.
        self._question.announce(self._request)
        tell(reviews.ReviewDecided(self._question.request or self._request, self._mask(decision)))
        return decision

    async def _ask(self) -> reviews.ReviewDecision:
        import asyncio

        request = self._request
        if not self._question.is_known:
            shown = preview(request.arguments_text)
            reviews.LOGGER.info("asked: %s(%s)", request.tool_name, shown, extra=_log_fields(request))
        ends = time.monotonic() + request.timeout if request.timeout else None
        token = CURRENT.set(self._question)
        answering = asyncio.ensure_future(capture_outcome(ask(self._handler, request)))
        try:
            # The answer is a separate task: a task that ignores its cancellation is abandoned.
            done, _ = await asyncio.wait([answering], timeout=request.timeout or None)
        except asyncio.CancelledError:
            self._question.interrupted = True
            what = "interrupted" if request.resumable else "withdrawn"
            reviews.LOGGER.info("%s: %s", what, request.tool_name, extra=_log_fields(request))
            raise
        finally:
            self._question.abandoned.set()
            CURRENT.reset(token)
            if not answering.done():
                await _leave(answering)
        # A handler that blocks the loop may answer after the deadline.
        late = not done or (ends is not None and time.monotonic() > ends)
        return self.expire() if late else self._evaluate(*answering.result())

    def _evaluate(self, answer: Any, error: BaseException | None) -> reviews.ReviewDecision:
        if isinstance(error, (SystemExit, CallPausedError, RunError, JournalError)):
            raise error
        if isinstance(error, KeyboardInterrupt):
            return self._log_decision(_INTERRUPTED)
        if error is not None:
            name = self._request.tool_name
            shown = mask_error(error)
            reviews.LOGGER.warning(
                "The reviewer of '%s' failed", name, exc_info=shown, extra=_log_fields(self._request)
            )
            return reviews.ExitEarly("the reviewer failed to answer")
        return self._log_decision(_check_answer(answer))

    def expire(self) -> reviews.ReviewDecision:
        """Return the decision for an expired question; raise if its request says so."""
        request = self._request
        within = f"within {request.timeout:g} s"
        reviews.LOGGER.warning("expired: %s", request.tool_name, extra=_log_fields(request))
        if request.on_timeout is OnTimeout.CONTINUE:
            return reviews.Continue()
        if request.on_timeout is OnTimeout.FAIL:
            raise ReviewTimeoutError(f"No answer to the review of '{request.tool_name}' {within}")
        return reviews.ExitEarly(f"no answer {within}", timed_out=True)

    def _log_decision(self, decision: reviews.ReviewDecision) -> reviews.ReviewDecision:
        reviews.LOGGER.info(
            "decided: %s: %s", self._request.tool_name, self._mask(decision), extra=_log_fields(self._request)
        )
        return decision

    def _mask(self, decision: reviews.ReviewDecision) -> reviews.ReviewDecision:
        """Return a decision for logs and events, with an edit of secret arguments masked."""
        if type(decision) is reviews.ExitEarly:
            return replace(decision, reason=decision.reason and mask_text(str(decision.reason)))
        if type(decision) is reviews.Edit:
            return replace(decision, revised=HIDDEN if self._request.hidden_digest else mask_text(decision.revised))
        return decision


def _check_answer(answer: Any) -> reviews.ReviewDecision:
    """Return the answer if it is one of the three decisions, else a rejection.

    Compared by exact type: an object can claim to be an instance of any class, as a mock does, and the meaning of a
    subclass is unknown.
    """
    kind = type(answer)
    if kind is reviews.Continue or kind is reviews.ExitEarly:
        return answer  # type: ignore[no-any-return]  # just checked
    if kind is reviews.Edit and issubclass(type(answer.revised), str):
        revised = str.__str__(answer.revised)  # a subclass of str may compare equal to anything
        return reviews.Edit(revised, person=answer.person)
    return reviews.ExitEarly("the answer was not a decision")


class _InThread:
    """A question in another thread's event loop, which may outlive the wait for the decision."""

    def __init__(self, asking: Coroutine[Any, Any, reviews.ReviewDecision]) -> None:
        self.decision: Future[reviews.ReviewDecision] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        REVIEWERS.submit(finish, self._ask(asking))

    async def _ask(self, asking: Coroutine[Any, Any, reviews.ReviewDecision]) -> None:
        import asyncio

        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            self.decision.set_result(await asking)
        except BaseException as error:  # raised in the waiting thread
            self.decision.set_exception(error)

    def leave(self) -> None:
        """Cancel the question if it is still pending."""
        if not self.decision.done() and self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has ended in the meantime
                self._loop.call_soon_threadsafe(self._task.cancel)


async def _leave(answering: asyncio.Task[Any]) -> None:
    """Cancel an abandoned answer; keep a reference to a task that takes longer to end."""
    import asyncio

    _ABANDONED.add(answering)
    answering.add_done_callback(_ABANDONED.discard)
    answering.cancel()
    await asyncio.wait([answering], timeout=_LEEWAY)


def _log_fields(request: reviews.ReviewRequest) -> dict[str, Any]:
    return {
        "review_id": request.id,
        "tool": request.tool_name,
        "call_id": request.call_id,
        "run_id": request.run_id,
        "agent_role": request.agent_role,
        "memory_id": request.memory_id,
    }
