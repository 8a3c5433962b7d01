"""What a model call costs, from the `genai-prices` table.

The table is slow. Between its thresholds a price is a fixed rate for each kind of token, so the rates are
looked up once and the cost is computed from them, exact to the microdollar.
"""

from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, TieredPrices
from msgspec.structs import replace

from sessionary.model.usage import MAX_COST_MICROUSD, CostStatus, Usage

SOURCE = "genai-prices"
VERSION = genai_prices.__version__
_MICRO = Decimal(1_000_000)
# A rate is a whole number of billionths of a microdollar.
_SCALE = 1_000_000_000
_PROBE = 1_000
# Programs that run models on the user's machine: their calls have no price.
_LOCAL = frozenset(
    {
        *("ollama", "lmstudio", "lm-studio", "lm_studio", "llama.cpp", "llamacpp", "llama-cpp"),
        *("vllm", "sglang", "mlx", "localai", "local", "koboldcpp", "jan", "gpt4all", "oss"),
        *("transformers", "llamafile", "tgi", "exo", "omlx"),
    }
)
# By the id of the table's price object; the table has some thousands.
_rates_by_price: dict[int, "_TieredRates"] = {}


class Tokens(NamedTuple):
    """The tokens that a call used."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    # The part of `cache_write` that is kept for an hour: Anthropic charges twice the input price for it.
    cache_write_1h: int = 0


class Cost(NamedTuple):
    """What a call costs, and whose price it is."""

    microusd: int
    provider: str
    # Where the price is from; it also says if the call's provider is not in the table.
    source: str = SOURCE


def load() -> None:
    """Load the table now; otherwise the first price does it."""
    get_snapshot()


def priced(usage: Usage, *, at: datetime) -> Usage:
    """Return the usage with its cost at the time of the call; an unknown model's cost stays unknown."""
    found = cost_of(usage, at=at)
    if found is None:
        return usage
    return replace(
        usage,
        provider=usage.provider or found.provider,
        cost_microusd=found.microusd,
        cost_status=CostStatus.ESTIMATED,
        price_source=found.source,
        price_version=VERSION,
    )


def cost_of(usage: Usage, *, at: datetime) -> Cost | None:
    """Return what a call costs; None if its cost is known already, or its price is unknown."""
    if usage.cost_microusd is not None or usage.model is None:
        return None
    tokens = Tokens(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.cache_write_1h_tokens,
    )
    by = (usage.provider, usage.base_url)
    return cost_of_tokens(tokens, usage.model, at=usage.at or at, by=by)


def cost_of_tokens(
    tokens: Tokens, model: str, *, at: datetime, by: tuple[str | None, str | None] = (None, None)
) -> Cost | None:
    """Return what a model's tokens cost, by a provider's name or address; None if unknown."""
    sent = tokens.input + tokens.cache_read + tokens.cache_write
    if not (sent or tokens.output or tokens.reasoning):
        return None  # nothing was counted: the cost is unknown, not zero
    found = _model(model, *by)
    if found is None:
        return None
    provider, info, source = found
    prices = info.prices
    # Most models have one price that does not change.
    price = prices if prices.__class__ is ModelPrice else info.get_prices(at)
    rates = _rates(price, sent)
    try:
        microusd = (
            _rounded(_table_price(price, tokens)) if rates is None else rates.microusd(tokens)
        )
    except (LookupError, ValueError):
        return None
    # An implausible cost is treated as unknown; the tokens are kept.
    return Cost(microusd, provider, source) if microusd <= MAX_COST_MICROUSD else None


@dataclass(frozen=True, slots=True)
class _Rates:
    """The price of one token of each kind."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_1h: int

    def microusd(self, tokens: Tokens) -> int:
        sent, output, cache_read, cache_write, _, cache_write_1h = tokens
        total = (
            self.input * sent
            + self.output * output
            + self.cache_read * cache_read
            + self.cache_write * (cache_write - cache_write_1h)
            + self.cache_write_1h * cache_write_1h
        )
        return (total + _SCALE // 2) // _SCALE


@lru_cache(maxsize=1024)
def _model(
    name: str, provider: str | None, base_url: str | None
) -> tuple[str, ModelInfo, str] | None:
    """Return the provider, the model, and where its price is from.

    It is looked up by the provider's name, its address, or the model alone. People give a provider any name
    (`model_provider = "codex"`): if the table does not have it but knows the model, the price is its maker's,
    and the source says so. Not for an address or a program that runs models locally: that service may charge
    another price, or nothing.
    """
    given: dict[str, Any] = {}
    if provider is not None:
        given = {"provider_id": provider}
    elif base_url is not None:
        given = {"provider_api_url": base_url}
    try:
        found = genai_prices.calc_price(genai_prices.Usage(), name, **given)
    except (LookupError, ValueError):
        if provider is None or base_url is not None or _is_known(provider) or _is_local(provider):
            return None
        maker = _model(name, None, None)
        if maker is None:
            return None
        return maker[0], maker[1], f"{SOURCE}: price of {maker[0]}, provider {provider} is unknown"
    return found.provider.id, found.model, SOURCE


def _is_known(provider: str) -> bool:
    """Whether the table has a provider of that name."""
    try:
        get_snapshot().find_provider(None, provider, None)
    except LookupError:
        return False
    return True


def _is_local(provider: str) -> bool:
    """Whether a name is an address, or a program that runs models locally."""
    name = provider.lower()
    return name in _LOCAL or "." in name or ":" in name or "/" in name or name == "localhost"


def _rates(price: ModelPrice, sent: int) -> _Rates | None:
    """Return the rates for a call that sent this many tokens; None if no fixed rates apply."""
    known = _rates_by_price.get(id(price))
    if known is None:
        known = _rates_by_price[id(price)] = _TieredRates(price)
    return known.rates(sent)


class _TieredRates:
    """The rates of a price between the thresholds of what is sent.

    It keeps the price alive, so that its id is not used again.
    """

    def __init__(self, price: ModelPrice) -> None:
        self._price = price
        tiered = [value for value in vars(price).values() if isinstance(value, TieredPrices)]
        self._starts = sorted({tier.start for value in tiered for tier in value.tiers})
        self._steps: dict[int, _Rates | None] = {}

    def rates(self, sent: int) -> _Rates | None:
        step = bisect_left(self._starts, sent)
        if step not in self._steps:
            above = self._starts[step - 1] if step else 0
            below = self._starts[step] if step < len(self._starts) else above + 2 * _PROBE
            is_wide = below - above > _PROBE
            self._steps[step] = _sample_rates(self._price, above + _PROBE) if is_wide else None
        return self._steps[step]


def _sample_rates(price: ModelPrice, sent: int) -> _Rates | None:
    """Derive the rates from sample prices; None if they do not give what the table says."""
    try:
        none = _table_price(price, Tokens(input=sent))
        asked = [
            none / sent,
            (_table_price(price, Tokens(input=sent, output=_PROBE)) - none) / _PROBE,
            _table_price(price, Tokens(cache_read=sent)) / sent,
            _table_price(price, Tokens(cache_write=sent)) / sent,
            _table_price(price, Tokens(cache_write=sent, cache_write_1h=sent)) / sent,
        ]
        mixed = Tokens(input=sent - 3, output=7, cache_read=1, cache_write=2, cache_write_1h=1)
        exact = _table_price(price, mixed)
    except (LookupError, ValueError):
        return None
    rates = [each * _MICRO * _SCALE for each in asked]
    if any(rate != int(rate) or rate < 0 for rate in rates):
        return None
    made = _Rates(*map(int, rates))
    return made if made.microusd(mixed) == _rounded(exact) else None


def _table_price(price: ModelPrice, tokens: Tokens) -> Decimal:
    return price.calc_price(_for_table(tokens))["total_price"]


def _rounded(dollars: Decimal) -> int:
    return int((dollars * _MICRO).to_integral_value(ROUND_HALF_UP))


def _for_table(tokens: Tokens) -> genai_prices.Usage:
    """Convert to the table's counts, where cached tokens are part of the input."""
    return genai_prices.Usage(
        input_tokens=tokens.input + tokens.cache_read + tokens.cache_write,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
        cache_write_1h_tokens=tokens.cache_write_1h,
    )
