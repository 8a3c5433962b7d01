"""The pieces that several importers share: times, contents, model calls."""

from datetime import UTC, datetime

import pytest

from sessionary.importers.base.content import call_usage, parse_time
from sessionary.model.usage import CostStatus

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "written",
    [
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:00:00.000Z",
        "2026-03-01 12:00:00",
        "2026-03-01T14:00:00+02:00",
        NOON.timestamp(),
        int(NOON.timestamp() * 1000),
        int(NOON.timestamp() * 1_000_000),
        str(int(NOON.timestamp())),
    ],
)
def test_a_time_is_understood_however_it_is_written(written: object) -> None:
    assert parse_time(written) == NOON


@pytest.mark.parametrize(
    "rubbish",
    [None, "", "soon", True, -1, 0, 1e300, float("nan"), [], "99999-01-01", "inf", 10**40],
)
def test_what_is_no_time_is_none(rubbish: object) -> None:
    assert parse_time(rubbish) is None


def test_a_call_that_counted_nothing_is_no_call() -> None:
    assert call_usage("tool", "1", input=None, output="many", dollars=0) == ()


def test_what_a_tool_thinks_a_call_cost_is_an_estimate() -> None:
    (used,) = call_usage("tool", "1", model="m", input=10, output=5, dollars=0.25)

    assert (used.cost_microusd, used.cost_status) == (250_000, CostStatus.ESTIMATED)
    assert (used.call_id, used.input_tokens, used.output_tokens) == ("tool:1", 10, 5)
