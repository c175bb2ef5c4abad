"""Admission of model requests in nested runs: requests in flight count against the budgets of the enclosing runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

from toolsemble.agent._budget import Prices, Stop
from toolsemble.agent._spending import Spending, Tally
from toolsemble.agent._window import estimate_tokens
from toolsemble.models._chat import ChatRequest, TokenUsage

REPLY_TOKENS = 4096
"""Tokens to reserve for a reply, unless the agent's settings limit it or an earlier reply was longer."""

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # the providers' names for the reply limit


# The queue of the run whose request this code answers: a model that consists of agents must not wait for itself.
_current_queue: ContextVar[object] = ContextVar("toolsemble.asking", default=None)


class OuterBudgetError(Exception):
    """A budget of an enclosing run is used up, so the model is not called.

    >>> OuterBudgetError(Stop("max_tokens", "Maximum tokens (300)")).stop.name
    'max_tokens'
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.summary)
        self.stop = stop


class Reserve(NamedTuple):
    """The most that one request is expected to use."""

    tokens: int
    """Tokens of the request and the reply."""
    cost: float
    """Their price."""


def estimate_reserve(request: ChatRequest, prices: Prices | None) -> Reserve:
    """Return the estimated reserve of a request: its own tokens, and those of a reply.

    >>> from toolsemble.models import UserMessage
    >>> estimate_reserve(ChatRequest([UserMessage("hello")]), Prices(input=1, output=2))
    Reserve(tokens=4101, cost=0.008197)
    """
    usage = TokenUsage(sum(map(estimate_tokens, request.messages)), _reply_limit(request.settings))
    return Reserve(usage.total, 0.0 if prices is None else prices.cost(usage))


def _reply_limit(settings: Mapping[str, Any]) -> int:
    return next((most for most in map(settings.get, _LIMITS) if type(most) is int and most > 0), REPLY_TOKENS)


class _Request:
    """A request of a nested agent: it waits for its turn, reserves tokens, and releases them."""

    def __init__(self, outer: tuple[Tally, ...], reserve: Reserve) -> None:
        self._outer = outer
        self._reserve = reserve
        self._held: list[tuple[Tally, Reserve]] = []
        self._loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = self._loop.create_future()
        """Done when :meth:`notify` has been called for this request."""

    def begin(self) -> bool:
        """Reserve in all enclosing runs or in none; return whether it did. Raise if a budget is used up."""
        check_outer(self._outer)
        needs = [(tally, tally.compute_reserve(*self._reserve)) for tally in self._outer]
        if not all(tally.has_room(*needed) for tally, needed in needs):
            return False
        for tally, needed in needs:
            tally.reserve(*needed)
            self._held.append((tally, Reserve(*needed)))
        return True

    def end(self) -> None:
        """Release what was reserved."""
        while self._held:
            tally, needed = self._held.pop()
            tally.release(*needed)

    def notify(self, problem: OuterBudgetError | None) -> None:
        """Wake the waiting task, with an error if its turn will never come; thread-safe."""
        try:
            self._loop.call_soon_threadsafe(self._resolve, problem)
        except RuntimeError:  # the loop is closed, and nobody is waiting
            self.end()

    def _resolve(self, problem: OuterBudgetError | None) -> None:
        if not self.turn.done():
            self.turn.set_result(None) if problem is None else self.turn.set_exception(problem)


def check_outer(outer: tuple[Tally, ...]) -> None:
    """Raise :class:`OuterBudgetError` if an enclosing run has used up a budget.

    >>> check_outer(())
    """
    for tally in outer:
        stop = tally.find_exhausted()
        if stop is not None:
            raise OuterBudgetError(stop)


class Admission:
    """A context manager that waits for room in the enclosing runs for one request, and holds it until the end.

    Requests wait in one queue, first come, first served. A request is always admitted when no other is in flight: a
    budget may be exceeded by the reply that uses it up.
    """

    def __init__(self, spending: Spending, request: ChatRequest) -> None:
        self._spending = spending
        self._chat_request = request
        self._pending: _Request | None = None

    async def __aenter__(self) -> None:
        outer = tuple(tally for tally in self._spending.outer if tally.has_limits)
        if not outer or _current_queue.get() is self._spending.waiting:
            check_outer(outer)
            return
        self._pending = request = _Request(outer, estimate_reserve(self._chat_request, self._spending.prices))
        queue = self._spending.waiting
        with self._spending.lock:
            begun = not queue and request.begin()
            if not begun:
                queue.append(request)
        if not begun:
            try:
                await request.turn
            except BaseException:
                self._leave(request)
                raise
        self._before = _current_queue.set(queue)

    async def __aexit__(self, *_: object) -> None:
        if self._pending is not None:
            self._leave(self._pending)
            with suppress(ValueError):  # an abandoned run may be closed in another context, by the garbage collector
                _current_queue.reset(self._before)

    def _leave(self, request: _Request) -> None:
        queue = self._spending.waiting
        with self._spending.lock:
            if request in queue:
                queue.remove(request)
            request.end()
            _admit_next(queue)


def _admit_next(queue: deque[Any]) -> None:
    """Start the requests at the front of the queue that have room; fail those whose budget is used up."""
    while queue:
        problem = None
        try:
            if not queue[0].begin():
                return
        except OuterBudgetError as used_up:
            problem = used_up
        queue.popleft().notify(problem)
