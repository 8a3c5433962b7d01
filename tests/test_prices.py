"""Costs are the table's, to the microdollar, whatever way they are counted."""

import json
import random
import subprocess
import sys
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice, StartDateConstraint, TimeOfDateConstraint
from msgspec.structs import replace

from sessionary import prices
from sessionary.errors import BadInput
from sessionary.model.usage import CostStatus, Usage
from sessionary.prices import cost_of, library, priced
from sessionary.prices.table import PATH, decode

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


def tokens_for(rng: random.Random, scale: int, **names: Any) -> Usage:
    written = rng.randrange(scale)
    return Usage(
        **names,
        input_tokens=rng.randrange(1, scale),
        output_tokens=rng.randrange(scale),
        cache_read_tokens=rng.choice((0, rng.randrange(scale))),
        cache_write_tokens=written,
        cache_write_1h_tokens=rng.choice((0, rng.randrange(written + 1))),
    )


def assert_the_same(usage: Usage, at: datetime) -> None:
    found = cost_of(usage, at=at)
    assert (None if found is None else found.microusd) == by_the_table(usage, at), (usage, at)


def tokens_in(usage: Usage) -> prices.Tokens:
    return prices.Tokens(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        cache_write_1h=usage.cache_write_1h_tokens,
    )


PROVIDERS = [each.id for each in get_snapshot().providers]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_model_costs_what_the_table_says(provider: str) -> None:
    rng = random.Random(provider)
    models = next(each.models for each in get_snapshot().providers if each.id == provider)
    for model in models:
        for scale in (10, 150_000, 400_000):
            assert_the_same(tokens_for(rng, scale, model=model.id, provider=provider), NOON)


def test_a_price_that_changes_is_that_of_the_call_s_day_and_hour() -> None:
    rng = random.Random(1)
    for provider in get_snapshot().providers:
        for model in provider.models:
            if isinstance(model.prices, ModelPrice):
                continue
            times = [NOON]
            for price in model.prices:
                match price.constraint:
                    case StartDateConstraint(start_date=day):
                        first = datetime.combine(day, time(), UTC)
                        times += [first, first - timedelta(microseconds=1)]
                        times.append(first.astimezone(timezone(timedelta(hours=-8))))
                    case TimeOfDateConstraint(start_time=begin, end_time=end):
                        for each in (begin, end):
                            edge = datetime.combine(NOON, each).astimezone(UTC)
                            times += [edge, edge - timedelta(microseconds=1)]
            for at in times:
                usage = tokens_for(rng, 300_000, model=model.id, provider=provider.id)
                assert_the_same(usage, at)


def names_of(clause: Any) -> list[str]:
    """Names that a rule mentions, and names that nearly match it."""
    texts = [value for value in vars(clause).values() if isinstance(value, str)]
    inner = [each for value in vars(clause).values() if isinstance(value, list) for each in value]
    made = [f"{before}{text}{after}" for text in texts for before, after in AROUND]
    return [*made, *(name for each in inner for name in names_of(each))]


AROUND = (("", ""), ("", "-20251231"), ("", "-20251332"), ("", ":free"), ("x/", "-2025-12-31"))


def test_names_are_understood_as_the_table_does() -> None:
    rng = random.Random(2)
    names = {
        name
        for provider in get_snapshot().providers
        for model in provider.models
        for name in names_of(model.match)
    }
    chosen = rng.sample(sorted(names), 2_000)
    known = [*PROVIDERS, "Anthropic ", "google-vertex", "AZURE-openai", ""]
    for name in chosen:
        assert_the_same(tokens_for(rng, 5_000, model=name), NOON)
        assert_the_same(tokens_for(rng, 5_000, model=name.upper()), NOON)
    for name in chosen[:500]:
        # Asked of the table itself: we let a model behind an unknown provider cost what its maker asks.
        used = tokens_for(rng, 5_000, model=f"{rng.choice(PROVIDERS)}/{name}", provider="LiteLLM")
        found = prices.load().find(used.model or "", used.provider, None)
        cost = None if found is None else found[1].microusd(tokens_in(used), NOON)
        assert cost == by_the_table(used, NOON), used
    for provider in known:
        if provider not in PROVIDERS and get_or_none(provider) is None:
            continue  # an unknown provider: see below
        for name in chosen[:40]:
            usage = tokens_for(rng, 5_000, model=name, provider=provider)
            assert_the_same(usage, NOON)


def get_or_none(provider: str) -> object:
    try:
        return get_snapshot().find_provider(None, provider, None)
    except LookupError:
        return None


@pytest.mark.parametrize(
    "address",
    ["https://api.anthropic.com/v1", "https://api.openai.com", "https://openrouter.ai/api/v1"],
)
def test_a_provider_is_known_by_its_address(address: str) -> None:
    for model in ("claude-sonnet-4-5", "gpt-5", "anthropic/claude-sonnet-4.5", "none-of-these"):
        used = Usage(model=model, base_url=address, input_tokens=1_000, output_tokens=7)
        try:
            wanted = genai_prices.calc_price(
                genai_prices.Usage(input_tokens=1_000, output_tokens=7),
                model,
                provider_api_url=address,
                genai_request_timestamp=NOON,
            ).total_price
        except LookupError:
            assert cost_of(used, at=NOON) is None
            continue
        found = cost_of(used, at=NOON)
        assert found is not None
        assert found.microusd == int((wanted * 1_000_000).to_integral_value(ROUND_HALF_UP))


def test_the_table_that_is_built_has_all_prices_and_their_version(tmp_path: Path) -> None:
    built = tmp_path / "table.json"
    built.write_bytes(library.encoded_table())

    table = decode(built.read_bytes())

    assert table.version == genai_prices.__version__ == prices.version()
    assert {each.id: len(each.models) for each in table.providers} == {
        each.id: len(each.models) for each in get_snapshot().providers
    }


def test_every_window_is_the_library_s() -> None:
    for provider in get_snapshot().providers:
        for model in provider.models:
            found = provider.find_model(model.id)
            if found is not None and found.context_window:
                assert prices.window_of(model.id, provider.id) == found.context_window, model.id


@pytest.mark.parametrize(
    ("model", "provider", "window"),
    [
        ("claude-sonnet-4-5", None, 200_000),
        ("claude-sonnet-4-5", "anthropic", 200_000),
        ("gpt-5-codex", "codex", 400_000),
        # Their provider's entry has no window.
        ("gemini-2.5-pro", "google", 1_048_576),
        ("anthropic/claude-3.5-sonnet", "openrouter", 200_000),
        ("no-such-model", None, None),
        ("no-such-model", "openai", None),
        ("gpt-5", "ollama", None),
        ("gpt-5", "127.0.0.1:8000", None),
    ],
)
def test_a_window_is_found_by_name(model: str, provider: str | None, window: int | None) -> None:
    assert prices.window_of(model, provider) == window


def test_a_window_depends_on_the_endpoint() -> None:
    assert prices.window_of("gpt-5", base_url="https://api.openai.com/v1") == 400_000
    assert prices.window_of("gpt-5", base_url="http://127.0.0.1:8000/v1") is None


def test_a_table_without_windows_is_still_read() -> None:
    old = json.loads(library.encoded_table())
    for provider in old["providers"]:
        provider["encoded_models"] = [model[:2] for model in provider["encoded_models"]]

    table = decode(json.dumps(old).encode())

    found = table.find("claude-sonnet-4-5", "anthropic", None)
    assert found is not None
    assert found[1].window is None
    assert found[1].microusd(prices.Tokens(input=1_000_000), NOON) == 6_000_000


def test_a_cost_needs_neither_the_library_nor_the_other_providers() -> None:
    code = (
        "import sys; from datetime import UTC, datetime; from sessionary import prices;"
        "from sessionary.model.usage import Usage;"
        "used = Usage(model='claude-sonnet-4-5', input_tokens=1_000_000);"
        "print(prices.priced(used, at=datetime(2026, 3, 1, tzinfo=UTC)).cost_microusd);"
        "print('genai_prices' in sys.modules, 'pydantic' in sys.modules);"
        "print([each.id for each in prices.load().providers if 'models' in vars(each)])"
    )
    assert PATH.is_file(), "not built: python hatch_build.py"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert done.stdout.splitlines() == ["6000000", "False False", "['anthropic']"]


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
