"""Budgets of a run: prices, limits and usage, and the message to the model when a budget is used up."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, TypeAlias

from toolsemble.errors import ToolDefinitionError
from toolsemble.models.chat import TokenUsage
from toolsemble.runtime.checks import check_count, check_seconds

_MILLION = 1_000_000

Budget: TypeAlias = Literal["max_iterations", "max_turns", "max_tokens", "max_seconds", "max_cost", "loop"]
"""Why a run was stopped: the name of a used-up limit, or "loop" for repetition."""

StopReason: TypeAlias = (
    Literal["answer", "immediate", "exit_early", "configuration_error", "error", "cancelled"] | Budget
)
"""Why a run ended."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a million tokens, in any currency.

    >>> Prices(input=2, output=8).cost(TokenUsage(input=500_000, output=250_000))
    3.0
    """

    input: float
    """The price of request tokens."""
    output: float
    """The price of reply tokens."""
    cached: float | None = None
    """The price of request tokens that the provider had cached; None: the same as ``input``."""

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached"):
            value = getattr(self, name)
            if not (_is_number(value) and value >= 0) and not (name == "cached" and value is None):
                raise ToolDefinitionError(f"Prices {name} must be a number >= 0, not {value!r:.80}")

    def cost(self, usage: TokenUsage) -> float:
        """Return the price of these tokens."""
        cached = self.input if self.cached is None else self.cached
        fresh = (usage.input - usage.cached) * self.input
        return (fresh + usage.cached * cached + usage.output * self.output) / _MILLION


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a run, including that of nested agents.

    >>> Usage(input_tokens=100, output_tokens=20).total_tokens
    120
    """

    input_tokens: int = 0
    """Tokens of the requests, including cached ones."""
    output_tokens: int = 0
    """Tokens of the replies."""
    cached_tokens: int = 0
    """Tokens of the requests that the provider had cached."""
    model_calls: int = 0
    """The number of model requests that were answered."""
    tool_calls: int = 0
    """The number of tool calls that were executed."""
    cost: float = 0.0
    """The price of the tokens, where prices are known."""
    model_seconds: float = 0.0
    """The seconds that the run's own model took, including the waits before retries."""
    tool_seconds: float = 0.0
    """The seconds that the run's own tool calls took, including reviews."""

    @property
    def total_tokens(self) -> int:
        """Tokens of requests and replies."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run; None: no limit.

    >>> Limits(max_tokens=0)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Agent max_tokens must be an int >= 1, not 0
    """

    max_iterations: int = 25
    """Tool calls."""
    max_turns: int | None = None
    """Replies of the model, including those of nested agents."""
    max_tokens: int | None = None
    """Tokens of requests and replies."""
    max_seconds: float | None = None
    """Seconds."""
    max_cost: float | None = None
    """The price of the tokens."""
    max_depth: int = 5
    """How deep agents may be nested as tools."""
    output_retries: int = 2
    """How many times the model may correct an invalid answer."""

    def __post_init__(self) -> None:
        for name in ("max_iterations", "max_depth", "output_retries"):
            check_count(f"Agent {name}", getattr(self, name), least=0)
        for name in ("max_turns", "max_tokens"):
            value = getattr(self, name)
            if value is not None:
                check_count(f"Agent {name}", value, least=1)
        if self.max_seconds is not None:
            check_seconds("Agent max_seconds", self.max_seconds)
        cost = self.max_cost
        if cost is not None and not (_is_number(cost) and cost > 0):
            raise ToolDefinitionError(f"Agent max_cost must be a number > 0, not {cost!r:.80}")


LIMITS = tuple(each.name for each in fields(Limits))
"""The names of the limits, which are settings of agents and runs."""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf


class Stop(NamedTuple):
    """A budget that is used up."""

    name: Budget
    """The name of the setting."""
    summary: str
    """The limit, in words."""

    @property
    def text(self) -> str:
        """The message to the model in place of a result."""
        return (
            f"STOP: {self.summary} reached. You must provide your best final answer now based on information "
            "gathered so far."
        )
