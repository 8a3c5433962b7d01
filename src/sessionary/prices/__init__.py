"""What a model call costs, and how much a model reads: the data of `genai-prices`, in a compact table.

The table is made when a release is built.

Importing that library takes 0.6 s of CPU (pydantic, an HTTP client, 1.5 MB of source); reading the table takes a few
milliseconds. A price is a fixed rate for each kind of token, so a call's cost is a few multiplications, exact to
the microdollar.
"""

from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from sessionary.model.usage import MAX_COST_MICROUSD, CostStatus, Usage
from sessionary.prices.table import ModelPrices, PriceTable, Tokens, read_table

__all__ = [
    "SOURCE",
    "Cost",
    "PricedModel",
    "Tokens",
    "cost_of",
    "cost_of_tokens",
    "find_model",
    "load",
    "priced",
    "version",
    "window_of",
]

SOURCE = "genai-prices"
# Programs that run models on the user's machine: their calls have no price.
_LOCAL = frozenset(
    {
        *("ollama", "lmstudio", "lm-studio", "lm_studio", "llama.cpp", "llamacpp", "llama-cpp"),
        *("vllm", "sglang", "mlx", "localai", "local", "koboldcpp", "jan", "gpt4all", "oss"),
        *("transformers", "llamafile", "tgi", "exo", "omlx"),
    }
)


class Cost(NamedTuple):
    """What a call costs, and whose price it is."""

    microusd: int
    provider: str
    # Where the price is from; it also says if the call's provider is not in the table.
    source: str = SOURCE


@lru_cache(maxsize=1)
def load() -> PriceTable:
    """Return the table; the first call reads it."""
    return read_table()


def version() -> str:
    """Return which version of `genai-prices` the prices are from."""
    return load().version


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
        price_version=version(),
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
    found = find_model(model, *by)
    microusd = None if found is None else found.microusd(tokens, at)
    if found is None or microusd is None:
        return None
    return Cost(microusd, found.provider, found.source)


class PricedModel(NamedTuple):
    """A model whose price is known: whose price it is, and where it is from."""

    provider: str
    prices: ModelPrices
    source: str
    version: str

    def microusd(self, tokens: Tokens, at: datetime) -> int | None:
        """Return what a call costs at a time; None if that is unknown."""
        if not any(tokens):
            return None  # nothing was counted: the cost is unknown, not zero
        found = self.prices.microusd(tokens, at)
        # An implausible cost is treated as unknown; the tokens are kept.
        return None if found is None or found > MAX_COST_MICROUSD else found


@lru_cache(maxsize=1024)
def find_model(
    name: str, provider: str | None = None, base_url: str | None = None
) -> PricedModel | None:
    """Return a model, found by the provider's name, its address, or the model's name alone; None if it is unknown.

    People give a provider any name (`model_provider = "codex"`): if the table does not have it but knows the
    model, the price is its maker's, and the source says so. Not for an address or a program that runs models
    locally: that service may charge another price, or nothing.
    """
    table = load()
    # The name comes before the address.
    found = table.find(name, provider, None if provider is not None else base_url)
    if found is not None:
        return PricedModel(found[0].id, found[1], SOURCE, table.version)
    if provider is None or base_url is not None or _is_local(provider):
        return None
    if table.provider_named(provider) is not None:
        return None
    maker = find_model(name)
    if maker is None:
        return None
    source = f"{SOURCE}: price of {maker.provider}, provider {provider} is unknown"
    return maker._replace(source=source)


def window_of(model: str, provider: str | None = None, base_url: str | None = None) -> int | None:
    """Return how many tokens a model reads at once; None if that is unknown.

    A program that runs models locally has the window that it was started with, which nobody else knows.
    """
    if provider is not None and _is_local(provider):
        return None
    found = find_model(model, provider, base_url)
    if found is None:
        return None
    if found.prices.window is not None:
        return found.prices.window
    # The library lacks some windows for one provider and has them for another: its maker, or OpenRouter.
    others = (
        find_model(model.rpartition("/")[2]),
        find_model(f"{found.provider}/{model}", "openrouter"),
    )
    return next((each.prices.window for each in others if each and each.prices.window), None)


def _is_local(provider: str) -> bool:
    """Whether a name is an address, or a program that runs models locally."""
    name = provider.lower()
    return name in _LOCAL or "." in name or ":" in name or "/" in name or name == "localhost"
