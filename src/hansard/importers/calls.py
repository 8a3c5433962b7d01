"""One model call, from what a tool noted of it."""

import math
from datetime import datetime
from typing import Any

from hansard.formats import shape
from hansard.model.usage import CostStatus, Usage

_MICRO = 1_000_000
_MOST_DOLLARS = 2**53 / _MICRO


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
    """The call by its tokens (`input`, `output`, `cache_read`, `cache_write`, `reasoning`).

    None when nothing was counted. What a tool says that a call cost is its estimate, from a price
    list of its own, unless `is_reported`; a cost of 0 says that the tool did not know.
    """
    counted: dict[str, Any] = {f"{name}_tokens": shape.count(n) for name, n in tokens.items()}
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


def _microdollars(dollars: object) -> int | None:
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not math.isfinite(dollars) or not 0 < dollars < _MOST_DOLLARS:
        return None
    return round(dollars * _MICRO)
