"""Timings: cron with a zone, every so often, once; over daylight-saving days."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.model.schedule import Timing

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
UTC_ZONE = ZoneInfo("UTC")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def utc(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


def occurrences(text: str, zone: ZoneInfo, after: datetime, count: int) -> list[datetime]:
    """The next occurrences, each asked for from the one before, as a scheduler does."""
    timing, found = Timing(text, zone), []
    for _ in range(count):
        following = timing.next_after(after, began=BEGAN)
        assert following is not None
        found.append(following)
        after = following
    return found


def test_a_cron_expression_is_read_in_its_zone() -> None:
    assert occurrences("0 9 * * 1-5", BERLIN, utc(1, 2, 7), 3) == [
        utc(1, 2, 8),  # a Friday, 9 in Berlin
        utc(1, 5, 8),
        utc(1, 6, 8),
    ]


def test_a_morning_stays_a_morning_when_the_clocks_change() -> None:
    """09:00 in Berlin is 08:00 UTC in winter and 07:00 in summer."""
    assert occurrences("0 9 * * *", BERLIN, utc(3, 27, 12), 3) == [
        utc(3, 28, 8),
        utc(3, 29, 7),
        utc(3, 30, 7),
    ]


def test_a_time_in_the_gap_of_spring_is_not_lost() -> None:
    """02:30 does not exist on 29 March; it is run when the gap ends, and once."""
    assert occurrences("30 2 * * *", BERLIN, utc(3, 28, 12), 2) == [
        utc(3, 29, 1),
        utc(3, 30, 0, 30),
    ]


def test_a_time_in_the_fold_of_autumn_comes_once() -> None:
    """02:30 exists twice on 25 October."""
    assert occurrences("30 2 * * *", BERLIN, utc(10, 24, 12), 2) == [
        utc(10, 25, 0, 30),
        utc(10, 26, 1, 30),
    ]


@pytest.mark.parametrize("minutes", range(0, 130, 10))
def test_from_any_moment_of_the_fold_the_fixed_time_does_not_come_again(minutes: int) -> None:
    """A scheduler that looks again between the two must not find it twice."""
    moment = utc(10, 25, 0, 30) + timedelta(minutes=minutes)

    assert Timing("30 2 * * *", BERLIN).next_after(moment, began=BEGAN) == utc(10, 26, 1, 30)


def test_an_hourly_task_runs_every_hour_of_a_long_day_and_of_a_short_one() -> None:
    """25 hours in October, 23 in March."""
    for after in (utc(10, 24, 20), utc(3, 28, 20)):
        found = occurrences("0 * * * *", BERLIN, after, 12)
        assert {later - sooner for sooner, later in pairwise(found)} == {timedelta(hours=1)}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("@hourly", utc(1, 1, 1)),
        ("@daily", utc(1, 2, 0)),
        ("@midnight", utc(1, 2, 0)),
        ("@weekly", utc(1, 4, 0)),
        ("@monthly", utc(2, 1, 0)),
        ("@yearly", datetime(2027, 1, 1, tzinfo=UTC)),
        ("0 0 29 2 *", datetime(2028, 2, 29, tzinfo=UTC)),
        ("*/15 8-9 * * mon", utc(1, 5, 8)),
    ],
)
def test_names_and_forms_of_cron(text: str, first: datetime) -> None:
    assert Timing(text, UTC_ZONE).next_after(BEGAN, began=BEGAN) == first


@given(st.integers(10, 100_000), st.integers(0, 10_000_000))
def test_every_so_often_counts_from_the_beginning(seconds: int, later: int) -> None:
    """The next multiple after a moment, whatever was missed, whatever the clocks do."""
    moment = BEGAN + timedelta(seconds=later)
    following = Timing(f"every {seconds}s", BERLIN).next_after(moment, began=BEGAN)

    assert following is not None
    assert moment < following <= moment + timedelta(seconds=seconds)
    assert (following - BEGAN) % timedelta(seconds=seconds) == timedelta(0)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("every 90s", timedelta(seconds=90)),
        ("every 15m", timedelta(minutes=15)),
        ("every  2 h", timedelta(hours=2)),
        ("every 1d", timedelta(days=1)),
    ],
)
def test_units_of_every(text: str, length: timedelta) -> None:
    assert Timing(text, BERLIN).next_after(BEGAN, began=BEGAN) == BEGAN + length


def test_a_clock_that_is_set_back_before_the_beginning_finds_the_first_occurrence() -> None:
    """F12."""
    moment = BEGAN - timedelta(days=30)
    assert Timing("every 1h", BERLIN).next_after(moment, began=BEGAN) == BEGAN + timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "zone", "at"),
    [
        ("at 2026-12-24T18:00", BERLIN, utc(12, 24, 17)),
        ("at 2026-12-24 18:00", NEW_YORK, utc(12, 24, 23)),
        ("at 2026-12-24T18:00+00:00", BERLIN, utc(12, 24, 18)),
        ("at 2026-12-24T18:00Z", BERLIN, utc(12, 24, 18)),
    ],
)
def test_once_is_in_the_zone_unless_it_names_its_own(
    text: str, zone: ZoneInfo, at: datetime
) -> None:
    timing = Timing(text, zone)
    assert timing.next_after(BEGAN, began=BEGAN) == at
    assert timing.next_after(at, began=BEGAN) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sometimes",
        "every 5s",
        "every 0m",
        "every 999999d and more",
        "every -5m",
        "at noon",
        "at ",
        "60 * * * *",
        "* * * * * *",
        "* * * *",
        "@reboot",
        "0 0 31 2 *",
    ],
)
def test_what_is_no_timing_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(BadInput):
        Timing(text, BERLIN)
