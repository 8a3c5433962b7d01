"""Costs are the table's, to the microdollar, whatever way they are counted."""

import random
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot
from msgspec.structs import replace

from sessionary.errors import BadInput
from sessionary.model.usage import CostStatus, Usage
from sessionary.prices import cost_of, priced

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def by_the_table(usage: Usage, at: datetime) -> int | None:
    try:
        found = genai_prices.calc_price(
            genai_prices.Usage(
                input_tokens=usage.input_tokens
                + usage.cache_read_tokens
                + usage.cache_write_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                cache_write_1h_tokens=usage.cache_write_1h_tokens,
            ),
            usage.model or "",
            provider_id=usage.provider,
            genai_request_timestamp=at,
        )
    except (LookupError, ValueError):
        return None
    return int((found.total_price * Decimal(1_000_000)).to_integral_value(ROUND_HALF_UP))


@pytest.mark.parametrize(
    "provider", ["anthropic", "openai", "google", "deepseek", "groq", "mistral"]
)
def test_every_model_costs_what_the_table_says(provider: str) -> None:
    rng = random.Random(provider)
    models = next(each.models for each in get_snapshot().providers if each.id == provider)
    for model in models:
        for scale in (10, 3_000, 150_000, 400_000):
            written = rng.randrange(scale)
            usage = Usage(
                model=model.id,
                provider=provider,
                input_tokens=rng.randrange(1, scale),
                output_tokens=rng.randrange(scale),
                cache_read_tokens=rng.randrange(scale),
                cache_write_tokens=written,
                cache_write_1h_tokens=rng.randrange(written + 1),
            )
            found = cost_of(usage, at=NOON)
            assert (None if found is None else found.microusd) == by_the_table(usage, NOON), usage


def test_thresholds_are_where_the_table_has_them() -> None:
    for sent in (199_999, 200_000, 200_001, 200_002):
        usage = Usage(model="claude-sonnet-4-5", input_tokens=sent - 5, cache_read_tokens=5)
        found = cost_of(usage, at=NOON)
        assert found is not None
        assert found.microusd == by_the_table(usage, NOON)


def test_a_price_is_that_of_its_day() -> None:
    for at in (datetime(2025, 1, 1, tzinfo=UTC), NOON, datetime(2026, 3, 1, 17, tzinfo=UTC)):
        usage = Usage(model="deepseek-chat", provider="deepseek", input_tokens=999, output_tokens=7)
        found = cost_of(usage, at=at)
        assert found is not None
        assert found.microusd == by_the_table(usage, at)


def test_what_is_not_known_is_not_free() -> None:
    unknown = Usage(model="gpt-of-my-own", input_tokens=5)
    nothing = Usage(model="claude-sonnet-4-5")

    assert priced(unknown, at=NOON) == unknown
    assert priced(nothing, at=NOON).cost_status is CostStatus.UNKNOWN


def test_what_is_cached_for_an_hour_costs_twice_the_input() -> None:
    sent = Usage(model="claude-sonnet-4-5", input_tokens=100_000)
    for_minutes = Usage(model="claude-sonnet-4-5", cache_write_tokens=100_000)
    for_an_hour = replace(for_minutes, cache_write_1h_tokens=100_000)
    half = replace(for_minutes, cache_write_1h_tokens=50_000)

    costs = [priced(each, at=NOON).cost_microusd for each in (sent, for_minutes, for_an_hour, half)]

    assert costs == [300_000, 375_000, 600_000, 487_500]


def test_what_is_cached_for_an_hour_is_a_part_of_what_is_cached() -> None:
    with pytest.raises(BadInput, match="cache_write_1h_tokens is a part of cache_write_tokens"):
        Usage(model="claude-sonnet-4-5", cache_write_tokens=5, cache_write_1h_tokens=6)


def test_a_known_model_behind_an_unknown_provider_is_estimated_and_says_why() -> None:
    own = priced(Usage(model="gpt-5-codex", provider="codex", input_tokens=1_000_000), at=NOON)
    maker = priced(Usage(model="gpt-5-codex", provider="openai", input_tokens=1_000_000), at=NOON)

    assert own.cost_microusd == maker.cost_microusd
    assert own.cost_status is CostStatus.ESTIMATED
    assert own.provider == "codex"
    assert own.price_source == "genai-prices: price of openai, provider codex is unknown"
    assert maker.price_source == "genai-prices"


@pytest.mark.parametrize(
    "usage",
    [
        Usage(model="gpt-5-codex", provider="ollama", input_tokens=10),
        Usage(model="gpt-5-codex", provider="127.0.0.1:8000", input_tokens=10),
        Usage(model="gpt-5-codex", provider="mine", base_url="http://box:8000", input_tokens=10),
        Usage(model="no-such-model", provider="codex", input_tokens=10),
        Usage(model="claude-sonnet-4-5", provider="openai", input_tokens=10),
    ],
)
def test_what_nobody_can_price_stays_unknown(usage: Usage) -> None:
    assert priced(usage, at=NOON) == usage
