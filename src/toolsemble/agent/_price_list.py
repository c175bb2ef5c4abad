"""The prices of models by name, from the data inside of the package genai-prices; nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, TypeAlias

from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolDefinitionError

Row: TypeAlias = dict[str, float | None]
"""The prices of a million tokens: input, output, cached and cache_write."""

_USER = "Prices.for_model"
_KEYS = {"input": "input_mtok", "output": "output_mtok", "cached": "cache_read_mtok", "cache_write": "cache_write_mtok"}
# Prefixes of model names whose provider has another name in the list; others have the same.
_ALIASES = {"openai-chat": "openai", "openai-responses": "openai", "gemini": "google", "bedrock": "aws"}
_OWN_SERVERS = ("ollama", "lmstudio", "llamacpp", "vllm", "local")
_OR_NUMBERS = "or pass the numbers: Prices(input, output)"
_SHOWN = 80


def find_prices(model: str) -> tuple[Row, dict[int, Row]]:
    """Return the prices of a model as of now, and those of each tier by the input tokens above which it applies.

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
