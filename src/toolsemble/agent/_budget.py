"""Run budgets: prices, limits and usage, and the message to the model when a budget is used up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypeAlias

from toolsemble._runtime.checks import check_count, check_seconds, warn_deprecated
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.models._chat import TokenUsage

Row: TypeAlias = dict[str, float | None]
"""Prices per million tokens: input, output, cached and cache_write."""

_USER = "Prices.for_model"
_KEYS = {"input": "input_mtok", "output": "output_mtok", "cached": "cache_read_mtok", "cache_write": "cache_write_mtok"}
# Model name prefixes whose provider has another name in the price list; the others are the same.
_ALIASES = {"openai-chat": "openai", "openai-responses": "openai", "gemini": "google", "bedrock": "aws"}
_OWN_SERVERS = ("ollama", "lmstudio", "llamacpp", "vllm", "local")
_OR_NUMBERS = "or pass the numbers: Prices(input, output)"
_SHOWN = 80


def find_prices(model: str) -> tuple[Row, dict[int, Row]]:
    """Return a model's current prices, and the prices of each tier by its input token threshold.

    >>> row, tiers = find_prices("openai:gpt-4o")
    >>> sorted(row), tiers
    (['cache_write', 'cached', 'input', 'output'], {})
    """
    prefix, name = _split(model)
    snapshot = import_extra("genai_prices.data_snapshot", extra="prices", user=_USER).get_snapshot()
    provider = _find_provider(snapshot, prefix)
    found = provider.find_model(name, all_providers=snapshot.providers)
    if found is None:
        raise _unknown(
            "model", model, _add_prefix(prefix, get_close_matches(name, [each.id for each in provider.models]))
        )
    return _read_prices(model, found.get_prices(datetime.now(UTC)))


def _split(model: object) -> tuple[str, str]:
    prefix, colon, name = model.partition(":") if isinstance(model, str) else ("", "", "")
    if not (colon and prefix and name):
        raise ToolDefinitionError(f"{_USER} needs a name such as 'openai:gpt-4o', not {model!r:.80}")
    if prefix in _OWN_SERVERS:
        raise ToolDefinitionError(
            f"{_USER}: models of {prefix!r} have no list price; pass the numbers: Prices(input, output), 0 if free"
        )
    return prefix, name


def _find_provider(snapshot: Any, prefix: str) -> Any:
    providers = {each.id: each for each in snapshot.providers}
    known = _ALIASES.get(prefix, prefix)
    if known not in providers:
        raise _unknown("provider", prefix, get_close_matches(prefix, [*_ALIASES, *providers]))
    return providers[known]


def _read_prices(model: str, listed: Any) -> tuple[Row, dict[int, Row]]:
    prices = {name: getattr(listed, key) for name, key in _KEYS.items()}
    if prices["input"] is None and prices["output"] is None:
        raise ToolDefinitionError(f"{_USER}: {preview(model, _SHOWN)!r} is not priced by tokens; {_OR_NUMBERS}")
    starts = {tier.start for price in prices.values() for tier in getattr(price, "tiers", ())}
    return _row(prices, 0), {start: _row(prices, start + 1) for start in sorted(starts)}


def _row(prices: dict[str, Any], tokens: int) -> Row:
    """Return the prices of a request with this number of input tokens."""
    row = {name: None if price is None else float(_price_at(price, tokens)) for name, price in prices.items()}
    return {**row, "input": row["input"] or 0.0, "output": row["output"] or 0.0}


def _price_at(price: Any, tokens: int) -> Any:
    tiers = getattr(price, "tiers", None)
    if tiers is None:
        return price
    return next((tier.price for tier in reversed(tiers) if tokens > tier.start), price.base)


def _add_prefix(prefix: str, names: Iterable[str]) -> list[str]:
    return [f"{prefix}:{name}" for name in names]


def _unknown(what: str, name: str, near: list[str]) -> ToolDefinitionError:
    hint = f"similar: {', '.join(near)}; " if near else ""
    return ToolDefinitionError(f"{_USER}: the price list has no {what} {preview(name, _SHOWN)!r}; {hint}{_OR_NUMBERS}")


_MILLION = 1_000_000
_OPTIONAL = {"cached", "cache_write"}

Budget: TypeAlias = Literal["max_iterations", "max_turns", "max_tokens", "max_seconds", "max_cost", "loop"]
"""Why a run was stopped: the name of a used-up limit, or "loop" for repetition."""

StopReason: TypeAlias = (
    Literal[
        "answer",
        "immediate",
        "paused",
        "parked",
        "interrupted",
        "taken_over",
        "exit_early",
        "configuration_error",
        "error",
        "cancelled",
    ]
    | Budget
)
"""Why a run ended, or stopped in this process: it waits for a person ("paused", or "parked" in a journal), its process
is shutting down ("interrupted"), or another process drives it ("taken_over")."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per million tokens, in any currency.

    >>> Prices(input=2, output=8).cost(TokenUsage(input=500_000, output=250_000))
    3.0
    >>> Prices(2, 8, tiers={200_000: Prices(4, 12)}).cost(TokenUsage(input=500_000))
    2.0
    """

    input: float
    """The price of request tokens."""
    output: float
    """The price of reply tokens, including reasoning."""
    cached: float | None = None
    """The price of request tokens that the provider had cached; None: the same as ``input``."""
    cache_write: float | None = None
    """The price of request tokens that the provider wrote to its cache; None: the same as ``input``."""
    tiers: Mapping[int, Prices] = field(default_factory=dict, hash=False)
    """The prices of all tokens of a request with more than this many request tokens."""

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "cache_write"):
            value = getattr(self, name)
            if not (_is_number(value) and value >= 0) and not (name in _OPTIONAL and value is None):
                raise ToolDefinitionError(f"Prices {name} must be a number >= 0, not {value!r:.80}")
        _check_tiers(self.tiers)

    @classmethod
    def for_model(
        cls,
        model: str,
        *,
        input: float | None = None,
        output: float | None = None,
        cached: float | None = None,
        cache_write: float | None = None,
    ) -> Prices:
        """Return a model's current list prices, in US dollars (extra ``prices``); nothing is fetched.

        A price that is passed overrides the list price, in all tiers.

        :param model: a name such as ``"openai:gpt-4o"``; an unknown one raises ``ToolDefinitionError``

        >>> Prices.for_model("openai:gpt-4o", input=2).input
        2
        """
        row, tiers = find_prices(model)
        given = {"input": input, "output": output, "cached": cached, "cache_write": cache_write}
        own = {name: value for name, value in given.items() if value is not None}
        return cls(**{**row, **own}, tiers={start: cls(**{**each, **own}) for start, each in tiers.items()})  # type: ignore[arg-type]  # the list always has input and output

    def cost(self, usage: TokenUsage) -> float:
        """Return the price of these tokens."""
        tier = max((start for start in self.tiers if usage.input > start), default=None)
        if tier is not None:
            return self.tiers[tier].cost(usage)
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        fresh = (usage.input - usage.cached - usage.cache_write) * self.input
        kept = usage.cached * cached + usage.cache_write * written
        return (fresh + kept + usage.output * self.output) / _MILLION


def _check_tiers(tiers: Any) -> None:
    if not (isinstance(tiers, Mapping) and all(map(_is_tier, tiers.items()))):
        raise ToolDefinitionError(
            f"Prices tiers must map numbers of tokens to Prices without tiers, such as {{200_000: Prices(4, 12)}}, "
            f"not {tiers!r:.80}"
        )


def _is_tier(item: tuple[Any, Any]) -> bool:
    start, prices = item
    return type(start) is int and start >= 0 and isinstance(prices, Prices) and not prices.tiers


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a run, including nested agents.

    >>> Usage(input_tokens=100, output_tokens=20).total_tokens
    120
    """

    input_tokens: int = 0
    """Tokens of the requests, including cached ones."""
    output_tokens: int = 0
    """Tokens of the replies, including reasoning."""
    cached_tokens: int = 0
    """Tokens of the requests that the provider had cached."""
    model_calls: int = 0
    """The number of completed model requests."""
    tool_calls: int = 0
    """The number of tool calls that were executed."""
    cost: float = 0.0
    """The cost of the tokens, where prices are known."""
    model_seconds: float = 0.0
    """The seconds that the run's own model took, including the waits before retries."""
    tool_seconds: float = 0.0
    """The seconds that the run's own tool calls took, including reviews."""
    reasoning_tokens: int = 0
    """Tokens of the replies that were reasoning; included in ``output_tokens``."""
    cache_write_tokens: int = 0
    """Tokens of the requests that the provider wrote to its cache; included in ``input_tokens``."""

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
    toolsemble.ToolDefinitionError: Agent max_tokens must be an int >= 1, not 0
    """

    max_tool_calls: int = 25
    """Tool calls."""
    max_turns: int | None = None
    """Model replies, including replies to nested agents."""
    max_tokens: int | None = None
    """Tokens of requests and replies."""
    max_seconds: float | None = None
    """Seconds."""
    max_cost: float | None = None
    """The cost of the tokens."""
    max_depth: int = 5
    """Maximum nesting depth of agents as tools."""
    output_retries: int = 2
    """How many times the model may correct an invalid answer."""

    @property
    def max_iterations(self) -> int:
        """Deprecated: the old name of ``max_tool_calls``."""
        warn_deprecated("Limits.max_iterations", "Limits.max_tool_calls", removed_in="0.5")
        return self.max_tool_calls

    def __post_init__(self) -> None:
        for name in ("max_tool_calls", "max_depth", "output_retries"):
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
