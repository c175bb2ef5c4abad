"""What a run may spend, what it has spent, and what it is told when nothing is left."""

from __future__ import annotations

import math
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from toolsemble.errors import ToolDefinitionError
from toolsemble.models.chat import TokenUsage

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in any currency.

    >>> Prices(input=2, output=8).cost(TokenUsage(input=500_000, output=250_000))
    3.0
    """

    input: float
    """Of the request."""
    output: float
    """Of the reply."""
    cached: float | None = None
    """Of the part of the request that the provider had kept; None for the same as the rest."""

    def cost(self, usage: TokenUsage) -> float:
        """Give the price of these tokens."""
        cached = self.input if self.cached is None else self.cached
        fresh = (usage.input - usage.cached) * self.input
        return (fresh + usage.cached * cached + usage.output * self.output) / _MILLION


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has spent, with what agents spent that it used as tools.

    >>> Usage(input_tokens=100, output_tokens=20).total_tokens
    120
    """

    input_tokens: int = 0
    """Tokens of the requests, the cached ones among them."""
    output_tokens: int = 0
    """Tokens of the replies."""
    cached_tokens: int = 0
    """Tokens of the requests that the provider had kept from before."""
    model_calls: int = 0
    """How many times a model was asked."""
    tool_calls: int = 0
    """How many calls of tools were executed."""
    cost: float = 0.0
    """What the tokens cost, where prices are known."""
    model_seconds: float = 0.0
    """How long the run's own model took, waiting for another try included."""
    tool_seconds: float = 0.0
    """How long the run's own turns of tool calls took, reviews included."""

    @property
    def total_tokens(self) -> int:
        """Tokens of requests and replies."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may spend; None is for no limit.

    >>> Limits(max_tokens=0)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Agent max_tokens must be a number above 0, not 0
    """

    max_iterations: int = 25
    """Calls of tools."""
    max_turns: int | None = None
    """Times that the model is asked."""
    max_tokens: int | None = None
    """Tokens of requests and replies."""
    max_seconds: float | None = None
    """Seconds."""
    max_cost: float | None = None
    """The price of the tokens."""
    max_depth: int = 5
    """How deep agents may use agents as tools."""
    output_retries: int = 2
    """Further times that an answer is asked for which does not fit."""

    def __post_init__(self) -> None:
        for name in ("max_iterations", "max_depth", "output_retries"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ToolDefinitionError(f"Agent {name} must be a whole number from 0 on, not {value!r}")
        for name in ("max_turns", "max_tokens", "max_seconds", "max_cost"):
            value = getattr(self, name)
            fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if value is not None and not (fits and value > 0):
                raise ToolDefinitionError(f"Agent {name} must be a number above 0, not {value!r}")


class Stop(NamedTuple):
    """A budget that is used up."""

    name: str
    """The setting that says how much there was."""
    said: str
    """What it was, in words."""

    @property
    def text(self) -> str:
        """What the model is told in place of a result."""
        return (
            f"STOP: {self.said} reached. You must provide your best final answer now based on information "
            "gathered so far."
        )


class Spending:
    """What one run has spent; what an agent inside spends counts for those around it, too.

    >>> spending = Spending(Limits(max_tokens=100), None, None)
    >>> spending.add_reply(TokenUsage(90, 20), 0.5)
    >>> spending.exhausted().name
    'max_tokens'
    """

    def __init__(self, limits: Limits, prices: Prices | None, parent: Spending | None) -> None:
        self.limits = limits
        self.prices: Prices | None = prices if prices is not None or parent is None else parent.prices
        self._depth: int = 0 if parent is None else parent._depth + 1  # noqa: SLF001 - of this class
        self._max_depth: int = limits.max_depth
        if parent is not None:
            self._max_depth = min(limits.max_depth, parent._max_depth)  # noqa: SLF001 - of this class
        self.started = time.monotonic()
        self._parent = parent
        self._lock = threading.Lock()  # agents inside may run in other threads
        self._turns = 0
        self._iterations = 0
        self._input = self._output = self._cached = self._models = self._tools = 0
        self._cost = self._model_seconds = self._tool_seconds = 0.0

    @property
    def deadline(self) -> float | None:
        """When the time is up, here or around it, on the clock of ``time.monotonic``."""
        own = None if self.limits.max_seconds is None else self.started + self.limits.max_seconds
        outer = None if self._parent is None else self._parent.deadline
        return own if outer is None else outer if own is None else min(own, outer)

    @property
    def turns(self) -> int:
        """How many times the model has answered."""
        return self._turns

    @property
    def calls_left(self) -> int:
        """How many calls may still be made."""
        return self.limits.max_iterations - self._iterations

    def check_depth(self) -> None:
        """Refuse a run that is too deep inside others."""
        if self._depth > self._max_depth:
            raise RecursionError(f"Agents use agents as tools more than {self._max_depth} deep")

    def add_reply(self, usage: TokenUsage, seconds: float) -> None:
        """Count a reply of the run's own model."""
        self._turns += 1
        self._model_seconds += seconds
        self.count(usage, 0.0 if self.prices is None else self.prices.cost(usage), models=1)

    def add_calls(self, count: int, seconds: float) -> None:
        """Count calls of tools that were made side by side."""
        self._iterations += count
        self._tool_seconds += seconds
        self.count(TokenUsage(), 0.0, tools=count)

    def exhausted(self) -> Stop | None:
        """Give the first budget that is used up, other than that of calls."""
        limits = self.limits
        if limits.max_turns is not None and self._turns >= limits.max_turns:
            return Stop("max_turns", f"Maximum turns ({limits.max_turns})")
        return self.over()

    def out_of_calls(self) -> Stop:
        """Give the budget of calls as one that is used up."""
        return Stop("max_iterations", f"Maximum tool iterations ({self.limits.max_iterations})")

    def out_of_time(self) -> Stop:
        """Give the time as used up, whoever's it is."""
        limit = self.limits.max_seconds
        if self._parent is not None and (limit is None or self.started + limit != self.deadline):
            return self._parent.out_of_time()
        return Stop("max_seconds", f"Maximum time ({limit:g} s)")

    def usage(self) -> Usage:
        """Give what has been spent so far."""
        with self._lock:
            return Usage(
                self._input,
                self._output,
                self._cached,
                self._models,
                self._tools,
                self._cost,
                self._model_seconds,
                self._tool_seconds,
            )

    def count(self, usage: TokenUsage, cost: float, *, models: int = 0, tools: int = 0) -> None:
        """Count what was spent, here and around it."""
        with self._lock:
            self._models += models
            self._tools += tools
            self._input += usage.input
            self._output += usage.output
            self._cached += usage.cached
            self._cost += cost
        if self._parent is not None:
            self._parent.count(usage, cost, models=models, tools=tools)

    def over(self) -> Stop | None:
        """Give the first budget that is used up, of those that agents inside share."""
        limits = self.limits
        if limits.max_tokens is not None and self._input + self._output >= limits.max_tokens:
            return Stop("max_tokens", f"Maximum tokens ({limits.max_tokens})")
        if limits.max_seconds is not None and time.monotonic() >= self.started + limits.max_seconds:
            return Stop("max_seconds", f"Maximum time ({limits.max_seconds:g} s)")
        if limits.max_cost is not None and self._cost >= limits.max_cost:
            return Stop("max_cost", f"Maximum cost ({limits.max_cost:g})")
        return None if self._parent is None else self._parent.over()


current_spending: ContextVar[Spending | None] = ContextVar("toolsemble.spending", default=None)
"""What the run around this code spends; None outside of one."""
