"""What a run has spent, with what agents inside it have."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextvars import ContextVar
from typing import Any

from toolsemble.agent.budget import Limits, Prices, Stop, Usage
from toolsemble.models.chat import TokenUsage
from toolsemble.runtime.fork_locks import fork_safe_lock

LAST_ANSWER = 5.0
"""How many seconds the last answer of a run has at least whose time, or another budget, is used up."""


class Tally:
    """The limits of one run, and what counts against them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._lock = fork_safe_lock(self)
        self.begin()
        self.input = self.output = self.cached = self.replies = self.calls = 0
        self.cost = 0.0
        # Of requests that agents inside have sent and that are not answered yet, and of the longest reply so far.
        self.in_flight = self.reserved_tokens = self.most_tokens = 0
        self.reserved_cost = self.most_cost = 0.0
        self.waiting: deque[Any] = deque()

    def begin(self) -> None:
        """Start the clock."""
        self.started = time.monotonic()
        most = self.limits.max_seconds
        self.ends = None if most is None else self.started + most

    @property
    def lock(self) -> threading.RLock:
        """For those who count here, in several threads."""
        return self._lock

    def calls_left(self) -> int:
        """How many calls may still be made."""
        return self.limits.max_iterations - self.calls

    def over(self) -> Stop | None:
        """Give the first budget that is used up, of those that agents inside share."""
        limits = self.limits
        if limits.max_turns is not None and self.replies >= limits.max_turns:
            return Stop("max_turns", f"Maximum turns ({limits.max_turns})")
        if limits.max_tokens is not None and self.input + self.output >= limits.max_tokens:
            return Stop("max_tokens", f"Maximum tokens ({limits.max_tokens})")
        if self.ends is not None and time.monotonic() >= self.ends:
            return self.out_of_time()
        if limits.max_cost is not None and self.cost >= limits.max_cost:
            return Stop("max_cost", f"Maximum cost ({limits.max_cost:g})")
        return None

    @property
    def has_limits(self) -> bool:
        """Whether something is limited that each request takes of."""
        limits = self.limits
        return not (limits.max_turns is limits.max_tokens is limits.max_cost is limits.max_seconds is None)

    def count(self, usage: TokenUsage, cost: float) -> None:
        """Count a reply."""
        self.replies += 1
        self.input += usage.input
        self.output += usage.output
        self.cached += usage.cached
        self.cost += cost
        self.most_tokens = max(self.most_tokens, usage.total)
        self.most_cost = max(self.most_cost, cost)

    def needed(self, tokens: int, cost: float) -> tuple[int, float]:
        """Return what to reserve for a request: what it may take, and no less than the longest reply so far took."""
        return max(tokens, self.most_tokens), max(cost, self.most_cost)

    def has_room(self, tokens: int, cost: float) -> bool:
        """Whether a request fits beside those in flight; one that is alone does, whatever it takes."""
        if not self.in_flight:
            return True
        limits, spent = self.limits, self.input + self.output + self.reserved_tokens
        return (
            (limits.max_turns is None or self.replies + self.in_flight < limits.max_turns)
            and (limits.max_tokens is None or spent + tokens <= limits.max_tokens)
            and (limits.max_cost is None or self.cost + self.reserved_cost + cost <= limits.max_cost)
        )

    def reserve(self, tokens: int, cost: float) -> None:
        """Count a request that is sent now."""
        self.in_flight += 1
        self.reserved_tokens += tokens
        self.reserved_cost += cost

    def give_back(self, tokens: int, cost: float) -> None:
        """Count a request as answered or given up, which had reserved this much."""
        self.in_flight -= 1
        self.reserved_tokens -= tokens
        self.reserved_cost = self.reserved_cost - cost if self.in_flight else 0.0  # sums of floats drift

    def out_of_time(self) -> Stop:
        """Give the time as used up."""
        return Stop("max_seconds", f"Maximum time ({self.limits.max_seconds:g} s)")


class Spending:
    """What one run has spent; what an agent inside spends counts for the runs around it, too.

    >>> spending = Spending(Limits(max_iterations=3), None, None)
    >>> spending.claim(2), spending.claim(2)
    (2, 1)
    >>> spending.out_of_calls().said
    'Maximum tool iterations (3)'
    """

    def __init__(self, limits: Limits, prices: Prices | None, parent: Spending | None) -> None:
        self.prices: Prices | None = prices if prices is not None or parent is None else parent.prices
        self._own = Tally(limits)
        self.line: tuple[Tally, ...] = (self._own,) if parent is None else (self._own, *parent.line)
        self.deadline: float | None
        """When the time is up, here or around it, on the clock of ``time.monotonic``."""
        # One lock for all that count together: agents inside may run side by side, in other threads.
        self._shared = self.line[-1]
        self.begin()
        self._turns = 0
        self._model_seconds = self._tool_seconds = 0.0

    def begin(self) -> None:
        """Start the clock of the run: it may have been asked for long before somebody wanted its first event."""
        self._own.begin()
        self.deadline = min((each.ends for each in self.line if each.ends is not None), default=None)

    @property
    def started(self) -> float:
        """When the run began, on the clock of ``time.monotonic``."""
        return self._own.started

    @property
    def turns(self) -> int:
        """How many times the model has answered."""
        return self._turns

    def check_depth(self) -> None:
        """Refuse a run that is too deep inside others."""
        deepest = min(each.limits.max_depth for each in self.line)
        if len(self.line) - 1 > deepest:
            raise RecursionError(f"Agents use agents as tools more than {deepest} deep")

    def add_reply(self, usage: TokenUsage, seconds: float) -> None:
        """Count a reply of the run's own model."""
        cost = 0.0 if self.prices is None else self.prices.cost(usage)
        self._turns += 1
        self.add_model_seconds(seconds)
        with self._shared.lock:
            for each in self.line:
                each.count(usage, cost)

    def claim(self, count: int) -> int:
        """Count calls that are about to be made, as many as may still be; give how many those are."""
        with self._shared.lock:
            granted = max(min(count, *[each.calls_left() for each in self.line]), 0)
            for each in self.line:
                each.calls += granted
        return granted

    def add_model_seconds(self, seconds: float) -> None:
        """Count the time that the run's own model took."""
        self._model_seconds += seconds

    def add_tool_seconds(self, seconds: float) -> None:
        """Count the time that calls side by side took."""
        self._tool_seconds += seconds

    @property
    def outer(self) -> tuple[Tally, ...]:
        """The tallies of the runs around this one, the nearest first."""
        return self.line[1:]

    @property
    def waiting(self) -> deque[Any]:
        """The requests of agents inside the outermost run that wait for room, the first one in front."""
        return self._shared.waiting

    @property
    def lock(self) -> threading.RLock:
        """What those hold who look at what has been spent, or change it."""
        return self._shared.lock

    def last_deadline(self) -> float | None:
        """Return when the last answer must be there, which begins now: as long as the run had, at least some seconds.

        None when the time is not limited, here or around it.
        """
        most = self._own.limits.max_seconds
        own = None if most is None else time.monotonic() + max(most, LAST_ANSWER)
        ends = [end for end in (own, *(each.ends for each in self.outer)) if end is not None]
        return min(ends, default=None)

    def exhausted(self) -> Stop | None:
        """Give the first budget that is used up, other than that of calls."""
        for each in self.line:
            stop = each.over()
            if stop is not None:
                return stop
        return None

    def out_of_calls(self) -> Stop:
        """Give the budget of calls as used up, whoever's it is."""
        most = min(self.line, key=Tally.calls_left).limits.max_iterations
        return Stop("max_iterations", f"Maximum tool iterations ({most})")

    def out_of_time(self) -> Stop:
        """Give the time as used up, whoever's it is."""
        return next(each for each in self.line if each.ends == self.deadline).out_of_time()

    def usage(self) -> Usage:
        """Give what has been spent so far."""
        own = self._own
        with self._shared.lock:
            return Usage(
                own.input,
                own.output,
                own.cached,
                own.replies,
                own.calls,
                own.cost,
                self._model_seconds,
                self._tool_seconds,
            )


current_spending: ContextVar[Spending | None] = ContextVar("toolsemble.spending", default=None)
"""What the run around this code spends; None outside of one."""
