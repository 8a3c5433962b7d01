"""The compact table of prices: read from a file beside this module, and searched as `genai-prices` searches its own.

`hatch_build.py` makes the file from the library. A checkout in which nothing was built yet uses the library directly.
"""

import re
from bisect import bisect_left
from datetime import UTC, date, datetime, time
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

PATH = Path(__file__).with_name("table.json")
# A rate is a whole number of billionths of a microdollar, unless its `scale` says otherwise.
SCALE = 1_000_000_000
# LiteLLM and OpenRouter write the date of a model without dashes.
_COMPACT_DATE = re.compile(r"(-)(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")


class Tokens(NamedTuple):
    """The tokens that a call used."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    # The part of `cache_write` that is kept for an hour: Anthropic charges twice the input price for it.
    cache_write_1h: int = 0


class Rates(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The price of one token of each kind, and of a request."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_1h: int
    request: int = 0
    scale: int = SCALE


class Price(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The rates of a model, by how many tokens are sent; those of some models change with the date or the hour.

    `rates` has one item more than `starts`: what is sent above a start costs the next rates. Where there are no
    rates, the cost is unknown.
    """

    starts: list[int]
    rates: list[Rates | None]
    since: date | None = None
    # From the first time of the day, in UTC, to the second.
    hours: tuple[time, time] | None = None

    def is_valid(self, at: datetime) -> bool:
        """Whether a call at that time costs this."""
        moment = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if self.since is not None:
            return moment.date() >= self.since
        if self.hours is None:
            return True
        (begin, end), now = self.hours, moment.time()
        return now >= begin or now < end if end < begin else begin <= now < end


class Clause(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A rule that a name satisfies or not."""

    kind: str
    text: str = ""
    clauses: "list[Clause]" = []

    def matches(self, name: str) -> bool:
        """Whether a name in lower case satisfies the rule."""
        match self.kind:
            case "equals":
                return name == self.text
            case "starts_with":
                return name.startswith(self.text)
            case "ends_with":
                return name.endswith(self.text)
            case "contains":
                return self.text in name
            case "regex":
                return re.search(self.text, name) is not None
            case "or":
                return any(each.matches(name) for each in self.clauses)
            case _:
                return all(each.matches(name) for each in self.clauses)


class ModelPrices(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A model: the rule for its names, and its prices; the last price that is valid at a time counts.

    `window` is how many tokens it reads at once; a table of an older release does not have it.
    """

    match: Clause
    prices: list[Price]
    window: int | None = None

    def microusd(self, tokens: Tokens, at: datetime) -> int | None:
        """Return what a call costs; None if that is unknown."""
        prices = self.prices
        price = prices[0]
        if len(prices) > 1:
            price = next((each for each in reversed(prices) if each.is_valid(at)), price)
        sent, output, cache_read, cache_write, _, cache_write_1h = tokens
        starts = price.starts
        step = bisect_left(starts, sent + cache_read + cache_write) if starts else 0
        rates = price.rates[step]
        if rates is None:
            return None
        total = (
            rates.input * sent
            + rates.output * output
            + rates.cache_read * cache_read
            + rates.cache_write * (cache_write - cache_write_1h)
            + rates.cache_write_1h * cache_write_1h
            + rates.request
        )
        scale = rates.scale
        return (total + scale // 2) // scale


class PricedProvider(msgspec.Struct, frozen=True, dict=True):
    """A company that serves models, and how it is recognized."""

    id: str
    api_pattern: str
    model_match: Clause | None
    provider_match: Clause | None
    # Providers whose models it serves too.
    fallbacks: list[str]
    # Decoded when the provider is asked for: that takes most of the time, and a store has calls of few providers.
    encoded_models: msgspec.Raw

    @cached_property
    def models(self) -> list[ModelPrices]:
        """The models that it serves."""
        return msgspec.json.decode(self.encoded_models, type=list[ModelPrices])

    def find_own(self, name: str) -> ModelPrices | None:
        """Return the first of its models with that name."""
        return next((each for each in self.models if each.match.matches(name)), None)


class PriceTable(msgspec.Struct, frozen=True):
    """All prices, and the version of the library that they are from."""

    version: str
    providers: list[PricedProvider]

    def find(
        self, name: str, provider_id: str | None, address: str | None
    ) -> tuple[PricedProvider, ModelPrices] | None:
        """Return the provider and the prices of a model, by the provider's name, its address, or the model alone."""
        name = name.lower()
        if provider_id is not None and provider_id.lower() == "litellm":
            # The model's name begins with that of the provider behind the proxy.
            behind, slash, rest = name.partition("/")
            if behind and slash and self.provider_named(behind) is not None:
                provider_id, name = behind, rest
        provider = self._provider(name, provider_id, address)
        if provider is None:
            return None
        dashed = _COMPACT_DATE.sub(_with_dashes, name)
        for each in dict.fromkeys((name, dashed)):
            found = self._model(provider, each)
            if found is not None:
                return provider, found
        return None

    def provider_named(self, provider_id: str) -> PricedProvider | None:
        """Return the provider with an id, or with a name that is known for it."""
        name = provider_id.lower().strip()
        for each in self.providers:
            if each.id == name:
                return each
        for each in self.providers:
            if each.provider_match is not None and each.provider_match.matches(name):
                return each
        return None

    def _provider(
        self, name: str, provider_id: str | None, address: str | None
    ) -> PricedProvider | None:
        if provider_id is not None:
            found = self.provider_named(provider_id)
            if found is not None or provider_id.lower() != "litellm":
                return found
        for each in self.providers:
            if address is not None:
                if re.match(each.api_pattern, address):
                    return each
            elif name and each.model_match is not None and each.model_match.matches(name):
                return each
        return None

    def _model(self, provider: PricedProvider, name: str) -> ModelPrices | None:
        found = provider.find_own(name)
        for id in provider.fallbacks:
            if found is not None:
                break
            other = next((each for each in self.providers if each.id == id), None)
            found = None if other is None else other.find_own(name)
        return found


def _with_dashes(found: re.Match[str]) -> str:
    year, month, day = map(int, found.group(2, 3, 4))
    try:
        date(year, month, day)
    except ValueError:
        return found.group()
    return f"-{year:04d}-{month:02d}-{day:02d}"


def read_table() -> PriceTable:
    """Read the table that was built; without one, make it from the library."""
    try:
        return decode(PATH.read_bytes())
    except FileNotFoundError:
        # A checkout that was not built: 0.6 s of CPU.
        from sessionary.prices import library

        return decode(library.encoded_table())


def decode(data: bytes) -> PriceTable:
    """Return the table in the bytes of its file."""
    return msgspec.json.decode(data, type=PriceTable)
