"""Makes the compact table of prices from `genai-prices`: for a release, and for a checkout that was not built."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import genai_prices
import msgspec
from genai_prices import types
from genai_prices.data_snapshot import get_snapshot

from sessionary.prices.table import SCALE, Clause, ModelPrices, Price, Rates

_KINDS: tuple[tuple[type, str], ...] = (
    (types.ClauseEquals, "equals"),
    (types.ClauseStartsWith, "starts_with"),
    (types.ClauseEndsWith, "ends_with"),
    (types.ClauseContains, "contains"),
    (types.ClauseRegex, "regex"),
    (types.ClauseOr, "or_"),
    (types.ClauseAnd, "and_"),
)


def encoded_table() -> bytes:
    """Return the bytes of the table's file."""
    made = {
        "version": genai_prices.__version__,
        "providers": [_provider(each) for each in get_snapshot().providers],
    }
    return msgspec.json.encode(made)


def _provider(given: types.Provider) -> dict[str, Any]:
    return {
        "id": given.id,
        "api_pattern": given.api_pattern,
        "model_match": _clause(given.model_match),
        "provider_match": _clause(given.provider_match),
        "fallbacks": given.fallback_model_providers or [],
        "encoded_models": [_model(each) for each in given.models],
    }


def _model(given: types.ModelInfo) -> ModelPrices:
    match = _clause(given.match)
    assert match is not None
    prices = given.prices
    window = given.context_window or None
    if isinstance(prices, types.ModelPrice):
        return ModelPrices(match, [_price(prices)], window)
    return ModelPrices(match, [_price(each.prices, each.constraint) for each in prices], window)


def _clause(given: Any) -> Clause | None:
    if given is None:
        return None
    kind = next(name for each, name in _KINDS if isinstance(given, each))
    inner = getattr(given, kind)
    if isinstance(inner, str):
        # The library compares everything but patterns without regard to case.
        return Clause(kind, inner if kind == "regex" else inner.lower())
    return Clause(kind.strip("_"), "", [each for each in map(_clause, inner) if each is not None])


def _price(given: types.ModelPrice, constraint: Any = None) -> Price:
    tiered = [value for value in vars(given).values() if isinstance(value, types.TieredPrices)]
    starts = sorted({tier.start for value in tiered for tier in value.tiers})
    rates = [_rates(given, sent) for sent in (0, *(start + 1 for start in starts))]
    match constraint:
        case None:
            return Price(starts, rates)
        case types.StartDateConstraint(start_date=since):
            return Price(starts, rates, since)
        case types.TimeOfDateConstraint(start_time=begin, end_time=end):
            return Price(starts, rates, None, (_in_utc(begin), _in_utc(end)))
    raise TypeError(f"an unknown constraint: {constraint}")


def _in_utc(given: time) -> time:
    if given.tzinfo is None:
        return given
    return datetime.combine(date(1970, 1, 1), given).astimezone(UTC).time()


def _rates(price: types.ModelPrice, sent: int) -> Rates | None:
    """Return the rates if this many tokens are sent; None if the library has no price for them.

    Kinds of tokens without a price of their own cost what the kind costs that they are a part of.
    """
    try:
        price.calc_price(genai_prices.Usage())
    except (LookupError, ValueError):
        return None

    def dollars(name: str, otherwise: Decimal = Decimal(0)) -> Decimal:
        value = getattr(price, name)
        if isinstance(value, types.TieredPrices):
            tiers = [each.price for each in value.tiers if sent > each.start]
            value = tiers[-1] if tiers else value.base
        return otherwise if value is None else value

    # Dollars for a million tokens are microdollars for one.
    given = dollars("input_mtok")
    written = dollars("cache_write_mtok", given)
    each = (
        given,
        dollars("output_mtok"),
        dollars("cache_read_mtok", given),
        written,
        dollars("cache_write_1h_mtok", written),
        # Dollars for a thousand requests.
        dollars("requests_kcount") * 1_000,
    )
    # A few prices in the library were computed with floating point: 0.18000000000000002.
    for scale in (SCALE, SCALE**2):
        scaled = [value * scale for value in each]
        if all(value == int(value) for value in scaled):
            return msgspec.structs.replace(Rates(*map(int, scaled)), scale=scale)
    raise ValueError(f"The price {price} has more digits than a rate can hold.")
