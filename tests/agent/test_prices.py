from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from genai_prices import data_snapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
)

from toolsemble import Agent, Prices, ToolDefinitionError
from toolsemble.models import ScriptedModel, TokenUsage


def model(name: str, prices) -> ModelInfo:
    return ModelInfo(id=name, match=ClauseEquals(equals=name), prices=prices)


def tiered(base: str, above: str, start: int = 200_000) -> TieredPrices:
    return TieredPrices(base=Decimal(base), tiers=[Tier(start=start, price=Decimal(above))])


TOMORROW = date.today() + timedelta(days=2)  # noqa: DTZ011 - two days are later in every zone
PRICES = {
    "plain": ModelPrice(input_mtok=Decimal("2.5"), output_mtok=Decimal(10), cache_read_mtok=Decimal("1.25")),
    "stairs": ModelPrice(
        input_mtok=tiered("1", "2"), output_mtok=tiered("10", "15"), cache_write_mtok=tiered("3", "4", 100_000)
    ),
    "searches": ModelPrice(web_searches_kcount=Decimal(10)),
    "vectors": ModelPrice(input_mtok=Decimal("0.1")),
    "rising": [
        ConditionalPrice(prices=ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(1))),
        ConditionalPrice(
            StartDateConstraint(start_date=TOMORROW), prices=ModelPrice(input_mtok=Decimal(9), output_mtok=Decimal(9))
        ),
    ],
}


@pytest.fixture(autouse=True)
def price_list():
    models = [model(name, prices) for name, prices in PRICES.items()]
    names = ("openai", "aws", "google", "anthropic")
    providers = [Provider(id=name, name=name, api_pattern=name, models=models) for name in names]
    data_snapshot.set_custom_snapshot(data_snapshot.DataSnapshot(providers=providers, from_auto_update=False))
    yield
    data_snapshot.set_custom_snapshot(None)


@pytest.mark.parametrize("prefix", ["openai", "openai-chat", "openai-responses", "bedrock", "google", "gemini"])
def test_returns_the_list_prices_of_a_model(prefix):
    assert Prices.for_model(f"{prefix}:plain") == Prices(2.5, 10.0, cached=1.25)


def test_returns_the_prices_of_the_package_without_a_network():
    data_snapshot.set_custom_snapshot(None)
    assert Prices.for_model("openai:gpt-4o") == Prices(2.5, 10.0, cached=1.25)


def test_tiers_apply_to_all_tokens_of_a_long_request():
    prices = Prices.for_model("anthropic:stairs")
    assert prices == Prices(
        1.0,
        10.0,
        cache_write=3.0,
        tiers={100_000: Prices(1.0, 10.0, cache_write=4.0), 200_000: Prices(2.0, 15.0, None, 4.0)},
    )
    assert prices.cost(TokenUsage(200_000, 100_000)) == pytest.approx(0.2 + 1)
    assert prices.cost(TokenUsage(200_001, 100_000)) == pytest.approx(0.400002 + 1.5)


def test_tokens_written_to_the_cache_have_their_own_price():
    usage = TokenUsage(1_000_000, 0, cached=200_000, cache_write=300_000)
    assert Prices(2, 8, cached=1, cache_write=4).cost(usage) == pytest.approx(0.5 * 2 + 0.2 + 1.2)
    assert Prices(2, 8).cost(usage) == 2


def test_a_passed_price_replaces_the_list_price_in_all_tiers():
    prices = Prices.for_model("openai:stairs", output=7, cached=0, cache_write=5)
    assert prices == Prices(1.0, 7, 0, 5, tiers={100_000: Prices(1.0, 7, 0, 5), 200_000: Prices(2.0, 7, 0, 5)})
    assert Prices.for_model("openai:plain", input=3).input == 3


def test_prices_are_valid_today():
    assert datetime.now(UTC).date() < TOMORROW
    assert Prices.for_model("openai:rising") == Prices(1.0, 1.0)


def test_a_model_without_a_price_for_replies_has_free_ones():
    assert Prices.for_model("openai:vectors") == Prices(0.1, 0.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openai:plane", r"has no model 'openai:plane'; similar: openai:plain; or pass the numbers: Prices\(input"),
        ("openai:xyz", r"has no model 'openai:xyz'; or pass the numbers"),
        ("opnai:plain", r"has no provider 'opnai'; similar: openai"),
        ("openai:searches", "'openai:searches' is not priced by tokens"),
        ("ollama:qwen3", r"models of 'ollama' have no list price; pass the numbers: Prices\(input, output\), 0 if"),
        ("local", "needs a name such as 'openai:gpt-4o', not 'local'"),
        ("plain", "needs a name such as 'openai:gpt-4o', not 'plain'"),
        ("openai:", "needs a name such as 'openai:gpt-4o'"),
        (None, "needs a name such as 'openai:gpt-4o', not None"),
        ("openai:" + "x" * 500, "xxx[.][.][.]'"),
    ],
)
def test_rejects_names_without_a_price(name, message):
    with pytest.raises(ToolDefinitionError, match=message):
        Prices.for_model(name)


@pytest.mark.parametrize(
    "tiers",
    [
        7,
        {"1": Prices(1, 1)},
        {-1: Prices(1, 1)},
        {True: Prices(1, 1)},
        {5: 7},
        {5: Prices(1, 1, tiers={9: Prices(1, 1)})},
    ],
)
def test_rejects_tiers_that_are_not_prices(tiers):
    with pytest.raises(ToolDefinitionError, match="Prices tiers must map numbers of tokens to Prices without tiers"):
        Prices(1, 1, tiers=tiers)


def test_rejects_a_negative_price_in_place_of_the_list_price():
    with pytest.raises(ToolDefinitionError, match="Prices output must be a number >= 0, not -1"):
        Prices.for_model("openai:plain", output=-1)


def test_says_which_extra_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    with pytest.raises(ToolDefinitionError, match=r"Prices.for_model needs the package .*\[prices\]'"):
        Prices.for_model("openai:plain")


async def test_a_run_costs_the_list_price():
    model = ScriptedModel(["hi"], usage=TokenUsage(1_000_000, 100_000, reasoning=60_000, cache_write=7))
    usage = (await Agent(model, prices=Prices.for_model("openai:plain")).run("go")).usage
    assert (usage.cost, usage.reasoning_tokens, usage.cache_write_tokens) == (3.5, 60_000, 7)


def test_prices_with_tiers_are_hashable():
    assert len({Prices(1, 1, tiers={9: Prices(1, 1)}), Prices(1, 1, tiers={9: Prices(1, 1)})}) == 1
