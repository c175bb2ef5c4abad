"""When an agent inside another run may ask its model: what is in flight counts before it has been paid for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

from toolsemble.agent.budget import Prices, Stop
from toolsemble.agent.spending import Spending, Tally
from toolsemble.agent.window import estimated_tokens
from toolsemble.models.chat import ChatRequest, TokenUsage

ROOM = 4096
"""Tokens that are reserved for a reply, unless the settings of the agent limit it or a longer one has come before."""

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # as providers call the length of one reply


# The line of the run whose request this code answers: a model that is made of agents must not wait for itself.
_asking: ContextVar[object] = ContextVar("toolsemble.asking", default=None)


class OuterBudgetError(Exception):
    """A budget of a run around this one is used up, so the model is not asked.

    >>> OuterBudgetError(Stop("max_tokens", "Maximum tokens (300)")).stop.name
    'max_tokens'
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.said)
        self.stop = stop


class Reserve(NamedTuple):
    """What one request is expected to take at most."""

    tokens: int
    """Tokens of the request and the reply."""
    cost: float
    """Their price."""


def reserve_for(request: ChatRequest, prices: Prices | None) -> Reserve:
    """Return what a request may take: about what it says, and the room for a reply.

    >>> from toolsemble.models import UserMessage
    >>> reserve_for(ChatRequest([UserMessage("hello")]), Prices(input=1, output=2))
    Reserve(tokens=4101, cost=0.008197)
    """
    usage = TokenUsage(sum(map(estimated_tokens, request.messages)), _room(request.settings))
    return Reserve(usage.total, 0.0 if prices is None else prices.cost(usage))


def _room(settings: Mapping[str, Any]) -> int:
    return next((most for most in map(settings.get, _LIMITS) if type(most) is int and most > 0), ROOM)


class _Request:
    """One request of an agent inside: it waits for its turn, reserves, and gives back what it has reserved."""

    def __init__(self, outer: tuple[Tally, ...], reserve: Reserve) -> None:
        self._outer = outer
        self._reserve = reserve
        self._held: list[tuple[Tally, Reserve]] = []
        self._loop = asyncio.get_running_loop()
        self._turn: asyncio.Future[None] = self._loop.create_future()

    def begin(self) -> bool:
        """Reserve in every run around this one, or in none; return whether it did. Raise when one has nothing left."""
        check_outer(self._outer)
        needs = [(tally, tally.needed(*self._reserve)) for tally in self._outer]
        if not all(tally.has_room(*needed) for tally, needed in needs):
            return False
        for tally, needed in needs:
            tally.reserve(*needed)
            self._held.append((tally, Reserve(*needed)))
        return True

    def end(self) -> None:
        """Give back what was reserved."""
        while self._held:
            tally, needed = self._held.pop()
            tally.give_back(*needed)

    async def turn(self) -> None:
        """Wait until :meth:`call` has been called for this request."""
        await self._turn

    def call(self, problem: OuterBudgetError | None) -> None:
        """Tell whoever waits for the turn that it has come, or will not; in any thread."""
        try:
            self._loop.call_soon_threadsafe(self._tell, problem)
        except RuntimeError:  # the loop is closed, and nobody waits any more
            self.end()

    def _tell(self, problem: OuterBudgetError | None) -> None:
        if not self._turn.done():
            self._turn.set_result(None) if problem is None else self._turn.set_exception(problem)


def check_outer(outer: tuple[Tally, ...]) -> None:
    """Raise an :class:`OuterBudgetError` when one of the runs around this one has used a budget up.

    >>> check_outer(())
    """
    for tally in outer:
        stop = tally.over()
        if stop is not None:
            raise OuterBudgetError(stop)


class Admission:
    """Room for one request in the runs around this one: waited for at the beginning of a block, kept until its end.

    Requests wait in one line, those that came first in front. One that finds nothing else in flight need not fit: a
    budget is used up by the reply that exceeds it.
    """

    def __init__(self, spending: Spending, request: ChatRequest) -> None:
        self._spending = spending
        self._request = request
        self._asking: _Request | None = None

    async def __aenter__(self) -> None:
        outer = tuple(tally for tally in self._spending.outer if tally.has_limits)
        if not outer or _asking.get() is self._spending.waiting:
            check_outer(outer)
            return
        self._asking = asking = _Request(outer, reserve_for(self._request, self._spending.prices))
        line = self._spending.waiting
        with self._spending.lock:
            begun = not line and asking.begin()
            if not begun:
                line.append(asking)
        if not begun:
            try:
                await asking.turn()
            except BaseException:
                self._leave(asking)
                raise
        self._before = _asking.set(line)

    async def __aexit__(self, *_: object) -> None:
        if self._asking is not None:
            self._leave(self._asking)
            with suppress(ValueError):  # a run that was dropped in the middle is closed wherever the collector runs
                _asking.reset(self._before)

    def _leave(self, asking: _Request) -> None:
        line = self._spending.waiting
        with self._spending.lock:
            if asking in line:
                line.remove(asking)
            asking.end()
            _call_next(line)


def _call_next(line: deque[Any]) -> None:
    """Let those at the front of the line begin for whom there is room, and tell those for whom there will be none."""
    while line:
        problem = None
        try:
            if not line[0].begin():
                return
        except OuterBudgetError as used_up:
            problem = used_up
        line.popleft().call(problem)
