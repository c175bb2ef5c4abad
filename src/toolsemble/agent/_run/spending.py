"""The spending of a run, including nested agents, and its limits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from operator import itemgetter
from typing import Any, NamedTuple

from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._runtime.work_clock import RunDeadline, WorkClock
from toolsemble._vocabulary.errors import LimitReachedError
from toolsemble.agent._budget import Limits, Prices, Stop, Usage
from toolsemble.agent._conversation import estimate_tokens
from toolsemble.models._chat import ChatRequest, TokenUsage

LAST_ANSWER = 5.0
"""Minimum seconds for the final answer of a run whose time, or another budget, is used up."""


class TooDeepError(LimitReachedError, RecursionError):
    """Agents are nested more than ``max_depth`` deep."""


class Tally:
    """The limits of one run, and the counters against them."""

    def __init__(self, limits: Limits, clock: WorkClock) -> None:
        self.limits = limits
        self.clock = clock
        self._lock = fork_safe_lock(self)
        self.begin()
        self.input = self.output = self.cached = self.replies = self.calls = 0
        self.reasoning = self.cache_write = 0
        self.cost = 0.0
        # Reserved by in-flight requests of nested agents, and used by the longest reply so far.
        self.in_flight = self.reserved_tokens = self.most_tokens = 0
        self.reserved_cost = self.most_cost = 0.0
        self.waiting: deque[Any] = deque()

    def begin(self) -> None:
        """Start the clock."""
        self.started = time.monotonic()

    @property
    def ends(self) -> float | None:
        """When its time is up, by ``time.monotonic``, if it does not wait for a person from now on."""
        most = self.limits.max_seconds
        return None if most is None else self.started + most + self.clock.find_waited()

    @property
    def lock(self) -> threading.RLock:
        """The lock of the counters."""
        return self._lock

    def calls_left(self) -> int:
        """Return the number of calls left."""
        return self.limits.max_tool_calls - self.calls

    def find_exhausted(self) -> Stop | None:
        """Return the first used-up budget that nested agents share; None if there is none."""
        limits = self.limits
        if limits.max_turns is not None and self.replies >= limits.max_turns:
            return Stop("max_turns", f"Maximum turns ({limits.max_turns})")
        if limits.max_tokens is not None and self.input + self.output >= limits.max_tokens:
            return Stop("max_tokens", f"Maximum tokens ({limits.max_tokens})")
        if limits.max_seconds is not None and time.monotonic() >= (self.ends or 0.0):
            return self.out_of_time()
        if limits.max_cost is not None and self.cost >= limits.max_cost:
            return Stop("max_cost", f"Maximum cost ({limits.max_cost:g})")
        return None

    @property
    def has_limits(self) -> bool:
        """Return whether there is a limit on model requests."""
        limits = self.limits
        return not (limits.max_turns is limits.max_tokens is limits.max_cost is limits.max_seconds is None)

    def count(self, usage: TokenUsage, cost: float) -> None:
        """Count a reply."""
        self.replies += 1
        self.input += usage.input
        self.output += usage.output
        self.cached += usage.cached
        self.reasoning += usage.reasoning
        self.cache_write += usage.cache_write
        self.cost += cost
        self.most_tokens = max(self.most_tokens, usage.total)
        self.most_cost = max(self.most_cost, cost)

    def compute_reserve(self, tokens: int, cost: float) -> tuple[int, float]:
        """Return the amount to reserve for a request: its estimate, but at least the longest reply so far."""
        return max(tokens, self.most_tokens), max(cost, self.most_cost)

    def has_room(self, tokens: int, cost: float) -> bool:
        """Return whether a request fits beside the requests in flight; a single request always does."""
        if not self.in_flight:
            return True
        limits, spent = self.limits, self.input + self.output + self.reserved_tokens
        return (
            (limits.max_turns is None or self.replies + self.in_flight < limits.max_turns)
            and (limits.max_tokens is None or spent + tokens <= limits.max_tokens)
            and (limits.max_cost is None or self.cost + self.reserved_cost + cost <= limits.max_cost)
        )

    def reserve(self, tokens: int, cost: float) -> None:
        """Reserve this amount for a request."""
        self.in_flight += 1
        self.reserved_tokens += tokens
        self.reserved_cost += cost

    def release(self, tokens: int, cost: float) -> None:
        """Release the reserve of a completed or cancelled request."""
        self.in_flight -= 1
        self.reserved_tokens -= tokens
        self.reserved_cost = self.reserved_cost - cost if self.in_flight else 0.0  # sums of floats drift

    def out_of_time(self) -> Stop:
        """Return the stop for the time limit."""
        return Stop("max_seconds", f"Maximum time ({self.limits.max_seconds:g} s)")


class Spending:
    """The spending of one run; it also counts for the enclosing runs."""

    def __init__(self, limits: Limits, prices: Prices | None, parent: Spending | None) -> None:
        self.prices: Prices | None = prices if prices is not None or parent is None else parent.prices
        self.clock: WorkClock = WorkClock(None if parent is None else parent.clock)
        """Stops while the run only waits for people."""
        self._own = Tally(limits, self.clock)
        self.tallies: tuple[Tally, ...] = (self._own,) if parent is None else (self._own, *parent.tallies)
        # One lock for all nested runs: they may run in parallel, in other threads.
        self._shared = self.tallies[-1]
        self.has_deadline = any(each.limits.max_seconds is not None for each in self.tallies)
        """Whether this run or an enclosing one has a time limit."""
        self.outer = self.tallies[1:]
        """The tallies of the enclosing runs, the nearest first."""
        self.waiting = self._shared.waiting
        """The queue of waiting requests of nested agents, shared by all runs inside the outermost one."""
        self.begin()
        self.turns = 0
        """The number of model replies."""
        self.model_seconds = self.tool_seconds = 0.0  # of the run's own model and tool calls

    def begin(self) -> None:
        """Start the run's clock; a run may be created long before its first event is requested."""
        self._own.begin()

    @property
    def deadline(self) -> float | None:
        """When this run, or an enclosing one, runs out of time, by ``time.monotonic``; None: never."""
        return RunDeadline.of(self._find_deadline) if self.has_deadline else None

    def _find_deadline(self) -> float:
        return min(each.ends for each in self.tallies if each.ends is not None)

    @property
    def worked(self) -> float:
        """The seconds that the run has worked, without waits for people."""
        return time.monotonic() - self._own.started - self.clock.find_waited()

    def restore(self, usage: Usage, turns: int, seconds: float) -> None:
        """Restore the spending of a paused run; the pause does not count."""
        own = self._own
        own.input, own.output, own.cached = usage.input_tokens, usage.output_tokens, usage.cached_tokens
        own.reasoning, own.cache_write = usage.reasoning_tokens, usage.cache_write_tokens
        own.replies, own.calls, own.cost = usage.model_calls, usage.tool_calls, usage.cost
        self.turns, self.model_seconds, self.tool_seconds = turns, usage.model_seconds, usage.tool_seconds
        self.advance(seconds)

    @property
    def started(self) -> float:
        """The start of the run, by ``time.monotonic``."""
        return self._own.started

    def check_depth(self) -> None:
        """Raise :class:`TooDeepError` if the run is nested too deeply."""
        deepest = min(each.limits.max_depth for each in self.tallies)
        if len(self.tallies) - 1 > deepest:
            raise TooDeepError(f"Agents are nested more than {deepest} deep (max_depth)")

    def add_reply(self, usage: TokenUsage, seconds: float) -> None:
        """Count a reply of the run's own model."""
        cost = 0.0 if self.prices is None else self.prices.cost(usage)
        self.turns += 1
        self.model_seconds += seconds
        with self._shared.lock:
            for each in self.tallies:
                each.count(usage, cost)

    def add_inner(self, amounts: Sequence[float]) -> None:
        """Count the usage of nested agents, in the field order of :class:`Usage`."""
        tokens_in, tokens_out, cached, replies, calls, cost, _, _, reasoning, written = amounts
        with self._shared.lock:
            for each in self.tallies:
                each.input += int(tokens_in)
                each.output += int(tokens_out)
                each.cached += int(cached)
                each.replies += int(replies)
                each.calls += int(calls)
                each.cost += cost
                each.reasoning += int(reasoning)
                each.cache_write += int(written)

    def advance(self, seconds: float) -> None:
        """Count the time that the run has worked in another process."""
        self._own.started -= seconds

    def price(self, usage: TokenUsage) -> float | None:
        """Return the cost of these tokens; None without prices."""
        return None if self.prices is None else self.prices.cost(usage)

    def claim(self, count: int) -> int:
        """Count calls to be made, up to the limit; return their number."""
        with self._shared.lock:
            granted = max(min(count, *[each.calls_left() for each in self.tallies]), 0)
            for each in self.tallies:
                each.calls += granted
        return granted

    def unclaim(self, count: int) -> None:
        """Uncount calls that were not made."""
        with self._shared.lock:
            for each in self.tallies:
                each.calls -= count

    @property
    def lock(self) -> threading.RLock:
        """The lock to hold when reading or changing the spending."""
        return self._shared.lock

    def last_deadline(self) -> float | None:
        """Return the deadline of the final answer: now plus ``max_seconds``, or at least :data:`LAST_ANSWER`.

        None if neither this run nor an enclosing one has a time limit.
        """
        most = self._own.limits.max_seconds
        own = None if most is None else time.monotonic() + max(most, LAST_ANSWER)
        ends = [end for end in (own, *(each.ends for each in self.outer)) if end is not None]
        return min(ends, default=None)

    def find_exhausted(self) -> Stop | None:
        """Return the first used-up budget, except the call budget; None if there is none."""
        for each in self.tallies:
            stop = each.find_exhausted()
            if stop is not None:
                return stop
        return None

    def out_of_calls(self) -> Stop:
        """Return the stop for the call limit of this run or an enclosing one."""
        most = min(self.tallies, key=Tally.calls_left).limits.max_tool_calls
        return Stop("max_iterations", f"Maximum tool iterations ({most})")

    def out_of_time(self) -> Stop:
        """Return the stop for the time limit of this run or an enclosing one."""
        timed = [(each.ends, each) for each in self.tallies if each.ends is not None]
        return min(timed, key=itemgetter(0))[1].out_of_time()

    def usage(self) -> Usage:
        """Return the usage so far."""
        own = self._own
        with self._shared.lock:
            return Usage(
                own.input,
                own.output,
                own.cached,
                own.replies,
                own.calls,
                own.cost,
                self.model_seconds,
                self.tool_seconds,
                own.reasoning,
                own.cache_write,
            )


current_spending: ContextVar[Spending | None] = ContextVar("toolsemble.spending", default=None)
"""The spending of the current run; None outside a run."""


REPLY_TOKENS = 4096
"""Tokens to reserve for a reply, unless the agent's settings limit it, or an earlier reply was longer."""

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # the providers' names for the reply limit


# The queue of the run whose request this code serves: a model made of agents must not wait for itself.
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
    """Estimate the reserve of a request: its own tokens plus a reply.

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
        """Wake up the waiting task, with an error if it cannot be admitted; thread-safe."""
        try:
            self._loop.call_soon_threadsafe(self._resolve, problem)
        except RuntimeError:  # the loop is closed, and no task is waiting
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
    """A context manager that waits for budget in the enclosing runs for one request, and holds it until the end.

    Requests wait in one FIFO queue. A request is always admitted when no other is in flight: the reply that uses up a
    budget may exceed it.
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
    """Admit the requests at the head of the queue that fit; fail requests whose budget is used up."""
    while queue:
        problem = None
        try:
            if not queue[0].begin():
                return
        except OuterBudgetError as used_up:
            problem = used_up
        queue.popleft().notify(problem)
