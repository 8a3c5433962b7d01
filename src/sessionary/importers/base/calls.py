"""One model call, from what a tool noted of it."""

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sessionary.clock import to_micros
from sessionary.formats import shape
from sessionary.importers.base.events import TokenUsage
from sessionary.model.usage import MAX_COST_MICROUSD, CostStatus, Usage
from sessionary.prices import VERSION, Tokens, cost_of, cost_of_tokens
from sessionary.store.tables import usage
from sessionary.store.tables.sessions import column
from sessionary.store.tables.usage import UsageRow

_MICRO = 1_000_000
_MOST_DOLLARS = MAX_COST_MICROUSD / _MICRO


def one(
    tool: str,
    id: str,
    *,
    model: str | None = None,
    provider: str | None = None,
    at: datetime | None = None,
    dollars: object = None,
    is_reported: bool = False,
    **tokens: object,
) -> tuple[Usage, ...]:
    """The call by its tokens (`input`, `output`, `cache_read`, `cache_write`, `reasoning`, `cache_write_1h`).

    None when nothing was counted. What a tool says that a call cost is its estimate, from a price
    list of its own, unless `is_reported`; a cost of 0 says that the tool did not know.
    """
    counted: dict[str, Any] = {f"{name}_tokens": shape.count(n) for name, n in tokens.items()}
    if "cache_write_1h_tokens" in counted:
        most = counted.get("cache_write_tokens", 0)
        counted["cache_write_1h_tokens"] = min(counted["cache_write_1h_tokens"], most)
    cost = _microdollars(dollars)
    if not any(counted.values()) and cost is None:
        return ()
    status = CostStatus.REPORTED if is_reported else CostStatus.ESTIMATED
    return (
        Usage(
            model=model,
            provider=provider,
            cost_microusd=cost,
            cost_status=CostStatus.UNKNOWN if cost is None else status,
            price_source=None if cost is None else tool,
            call_id=f"{tool}:{id}",
            at=at,
            **counted,
        ),
    )


def kept(used: Iterable[Usage | TokenUsage], *, now: datetime) -> list[UsageRow]:
    """Calls as the ledger keeps them, with our price where their tool told none."""
    return [
        _of_tokens(each) if isinstance(each, TokenUsage) else _of_usage(each, now=now)
        for each in used
    ]


def _of_tokens(used: TokenUsage) -> UsageRow:
    tokens = Tokens(
        used.input_tokens,
        used.output_tokens,
        used.cache_read_tokens,
        used.cache_write_tokens,
        cache_write_1h=used.cache_write_1h_tokens,
    )
    cost = cost_of_tokens(tokens, used.model, at=used.at)
    provider = None if cost is None else cost.provider
    # The ledger counts all cache writes together: the sixth number is only for the price.
    known = column(used.call_id), to_micros(used.at), usage.word(used.model), provider
    if cost is None:
        return UsageRow(*known, None, None, None, *tokens[:5])
    status = CostStatus.ESTIMATED
    return UsageRow(
        *known, None, None, None, *tokens[:5], cost.microusd, status, cost.source, VERSION
    )


def _of_usage(used: Usage, *, now: datetime) -> UsageRow:
    call, cost = usage.call_of(used, at=now), cost_of(used, at=now)
    if cost is None:
        return call
    return call._replace(
        provider=call.provider or cost.provider,
        cost_microusd=cost.microusd,
        cost_status=CostStatus.ESTIMATED,
        price_source=cost.source,
        price_version=VERSION,
    )


def _microdollars(dollars: object) -> int | None:
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not math.isfinite(dollars) or not 0 < dollars < _MOST_DOLLARS:
        return None
    return round(dollars * _MICRO)
