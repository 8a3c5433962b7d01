"""What a model call costs, from the `genai-prices` table; none by hand."""

from dataclasses import replace
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import genai_prices

from hansard.model.usage import TOKEN_FIELDS, CostStatus, Usage

SOURCE = "genai-prices"


def priced(usage: Usage, *, at: datetime) -> Usage:
    """The usage with its cost, estimated as of the time of the call. An unknown model's cost stays unknown."""
    if usage.cost_microusd is not None or usage.model is None:
        return usage
    if not any(getattr(usage, name) for name in TOKEN_FIELDS):
        return usage  # nothing was counted: that is unknown, not free
    try:
        price = genai_prices.calc_price(
            genai_prices.Usage(
                # The table counts cached tokens as a part of the input; we count them apart.
                input_tokens=usage.input_tokens
                + usage.cache_read_tokens
                + usage.cache_write_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
            ),
            usage.model,
            genai_request_timestamp=usage.at or at,
            **_provider(usage),
        )
    except (LookupError, ValueError):
        return usage
    return replace(
        usage,
        provider=usage.provider or price.provider.id,
        cost_microusd=int(
            (price.total_price * Decimal(1_000_000)).to_integral_value(ROUND_HALF_UP)
        ),
        cost_status=CostStatus.ESTIMATED,
        price_source=SOURCE,
        price_version=genai_prices.__version__,
    )


def _provider(usage: Usage) -> dict[str, Any]:
    """How the table shall find the provider: by name, by address, or by the model alone."""
    if usage.provider is not None:
        return {"provider_id": usage.provider}
    return {} if usage.base_url is None else {"provider_api_url": usage.base_url}
