"""What model calls use and cost."""

from typing import Any

import pytest

from sessionary.errors import BadInput
from sessionary.model.usage import (
    MAX_COST_MICROUSD,
    MAX_TOKENS,
    TOKEN_FIELDS,
    CostStatus,
    Usage,
    UsageTotal,
)


@pytest.mark.parametrize("name", [*TOKEN_FIELDS, "cost_microusd"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "7", MAX_COST_MICROUSD + 1, 2**53])
def test_what_is_not_a_whole_number_from_nought_up_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=name):
        Usage(**{name: value})


@pytest.mark.parametrize("name", TOKEN_FIELDS)
def test_a_call_may_use_up_to_the_bound_and_no_more(name: str) -> None:
    most: dict[str, Any] = {name: MAX_TOKENS}
    more: dict[str, Any] = {name: MAX_TOKENS + 1}

    assert getattr(Usage(**most), name) == MAX_TOKENS
    with pytest.raises(BadInput, match=f"from 0 to {MAX_TOKENS:,}"):
        Usage(**more)


@pytest.mark.parametrize("status", [CostStatus.ESTIMATED, CostStatus.REPORTED, CostStatus.INCLUDED])
def test_a_cost_that_is_known_needs_a_number(status: CostStatus) -> None:
    with pytest.raises(BadInput, match="needs cost_microusd"):
        Usage(cost_status=status)


def test_a_number_without_a_status_was_reported() -> None:
    assert Usage(cost_microusd=0).cost_status is CostStatus.REPORTED
    assert Usage(cost_microusd=5, cost_status=CostStatus.PARTIAL).cost_status == "reported"
    assert Usage().cost_status is CostStatus.UNKNOWN


@pytest.mark.parametrize(
    ("total", "cost", "status"),
    [
        (UsageTotal(), None, None),
        (UsageTotal(calls=2, unknown_cost_calls=2), None, CostStatus.UNKNOWN),
        (UsageTotal(calls=2, unknown_cost_calls=1, known_cost_microusd=5), 5, CostStatus.PARTIAL),
        (UsageTotal(calls=2, estimated_calls=1, known_cost_microusd=5), 5, CostStatus.ESTIMATED),
        (UsageTotal(calls=2, known_cost_microusd=0), 0, CostStatus.REPORTED),
    ],
    ids=["no call", "unknown", "partly known", "estimated", "free"],
)
def test_a_sum_says_how_well_it_is_known(
    total: UsageTotal, cost: int | None, status: CostStatus | None
) -> None:
    """Never 0 for unknown."""
    assert (total.cost_microusd, total.cost_status) == (cost, status)
