"""When a session is over by itself F12)."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.model.reset import Policies, ResetMode, ResetPolicy, ResetReason
from sessionary.model.source import Source

TICK = timedelta(microseconds=1)
NOON = datetime(2026, 6, 10, 12, tzinfo=UTC)
IDLE = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(hours=1))
BERLIN = ZoneInfo("Europe/Berlin")


def daily(at: time = time(4), zone: str = "UTC") -> ResetPolicy:
    return ResetPolicy(mode=ResetMode.DAILY, daily_at=at, zone=ZoneInfo(zone))


def assert_boundary(policy: ResetPolicy, expected: datetime) -> None:
    """Say that a session resets exactly at `expected`, neither a microsecond before nor late."""
    before = expected - TICK
    assert policy.due(last_active=before, now=before) is None
    assert policy.due(last_active=before - timedelta(minutes=90), now=before) is None
    assert policy.due(last_active=before, now=expected) is ResetReason.DAILY
    assert policy.due(last_active=expected, now=expected + timedelta(minutes=90)) is None
    assert policy.next_due(last_active=before) == expected


def test_a_policy_never_resets_by_default() -> None:
    policy = ResetPolicy()

    assert policy.due(last_active=NOON, now=NOON + timedelta(days=9999)) is None
    assert policy.next_due(last_active=NOON) is None


def test_the_fields_have_the_defaults_of_the_rule() -> None:
    policy = ResetPolicy()

    assert policy.mode is ResetMode.NONE
    assert policy.idle == timedelta(minutes=1440)
    assert policy.daily_at == time(4)
    assert policy.zone == ZoneInfo("UTC")
    assert policy.notify


@pytest.mark.parametrize("bad", [timedelta(0), timedelta(-1)])
def test_an_idle_time_that_has_always_passed_is_refused(bad: timedelta) -> None:
    with pytest.raises(BadInput):
        ResetPolicy(idle=bad)


def test_a_daily_hour_with_a_zone_of_its_own_is_refused() -> None:
    with pytest.raises(BadInput):
        ResetPolicy(daily_at=time(4, tzinfo=UTC))


def test_the_platform_chooses_before_the_chat_type_before_the_default() -> None:
    default, by_type, by_platform = daily(time(1)), daily(time(2)), daily(time(3))
    policies = Policies(default, {"group": by_type}, {"slack": by_platform})

    assert policies.choose(Source("telegram", "5")) is default
    assert policies.choose(Source("telegram", "5", chat_type="group")) is by_type
    assert policies.choose(Source("slack", "5", chat_type="group")) is by_platform


def test_idle_is_due_only_after_the_whole_time_has_passed() -> None:
    end = NOON + timedelta(hours=1)

    assert IDLE.due(last_active=NOON, now=end) is None
    assert IDLE.due(last_active=NOON, now=end + TICK) is ResetReason.IDLE
    assert IDLE.next_due(last_active=NOON) == end


def test_daily_is_due_at_the_hour_for_what_happened_before_it() -> None:
    assert_boundary(daily(), datetime(2026, 6, 10, 4, tzinfo=UTC))


def test_before_the_hour_yesterdays_boundary_counts() -> None:
    now = datetime(2026, 6, 10, 3, 59, tzinfo=UTC)

    assert daily().due(last_active=datetime(2026, 6, 9, 4, tzinfo=UTC), now=now) is None
    assert daily().due(last_active=datetime(2026, 6, 9, 3, tzinfo=UTC), now=now) is (
        ResetReason.DAILY
    )


def test_when_both_are_due_idle_is_the_reason() -> None:
    both = ResetPolicy(mode=ResetMode.BOTH, idle=timedelta(hours=1))
    evening = datetime(2026, 6, 9, 20, tzinfo=UTC)

    assert both.due(last_active=evening, now=NOON) is ResetReason.IDLE
    assert both.due(last_active=NOON.replace(hour=3, minute=50), now=NOON.replace(hour=4)) is (
        ResetReason.DAILY
    )
    assert both.next_due(last_active=evening) == evening + timedelta(hours=1)
    assert both.next_due(last_active=NOON.replace(hour=3, minute=50)) == NOON.replace(hour=4)


def test_the_hour_is_the_wall_clocks_in_the_policys_zone_in_summer_and_winter() -> None:
    berlin = daily(zone="Europe/Berlin")

    assert_boundary(berlin, datetime(2026, 7, 1, 2, tzinfo=UTC))
    assert_boundary(berlin, datetime(2026, 12, 1, 3, tzinfo=UTC))


def test_on_the_day_the_clocks_go_forward_the_hour_after_the_gap_is_as_ever() -> None:
    """29 March 2026, 02:00 becomes 03:00."""
    assert_boundary(daily(time(4), "Europe/Berlin"), datetime(2026, 3, 29, 2, tzinfo=UTC))


@pytest.mark.parametrize("at", [time(2), time(2, 30), time(2, 59, 59, 999999)])
def test_an_hour_that_the_clocks_jump_over_is_the_first_instant_after_the_jump(at: time) -> None:
    """29 March 2026, 02:00 becomes 03:00."""
    assert_boundary(daily(at, "Europe/Berlin"), datetime(2026, 3, 29, 1, tzinfo=UTC))


def test_on_the_day_the_clocks_go_back_the_hour_after_the_fold_is_as_ever() -> None:
    """25 October 2026, 03:00 becomes 02:00."""
    assert_boundary(daily(time(4), "Europe/Berlin"), datetime(2026, 10, 25, 3, tzinfo=UTC))


def test_an_hour_that_comes_twice_counts_the_first_time_only() -> None:
    """25 October 2026, 03:00 becomes 02:00."""
    assert_boundary(daily(time(2, 30), "Europe/Berlin"), datetime(2026, 10, 25, 0, 30, tzinfo=UTC))


def test_a_half_hour_change_of_the_clocks_is_understood() -> None:
    """Lord Howe, 4 October 2026, 02:00 becomes 02:30."""
    boundary = datetime(2026, 10, 3, 15, 30, tzinfo=UTC)

    assert_boundary(daily(time(2, 15), "Australia/Lord_Howe"), boundary)


def test_a_jump_over_midnight_is_understood() -> None:
    """Beirut, 26 March 2022, 24:00 becomes 01:00 of the 27th."""
    assert_boundary(daily(time(0, 30), "Asia/Beirut"), datetime(2022, 3, 26, 22, tzinfo=UTC))


def test_a_midnight_that_comes_twice_counts_the_first_time_only() -> None:
    """Azores, 25 October 2026, 01:00 becomes 00:00."""
    boundary = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)

    assert_boundary(daily(time(0, 30), "Atlantic/Azores"), boundary)


def test_an_evening_that_comes_again_after_midnight_does_not_undo_the_boundary() -> None:
    """St John's, 7 November 2010, 00:01 becomes 23:01 of the 6th."""
    policy, boundary = daily(time(0), "America/St_Johns"), datetime(2010, 11, 7, 2, 30, tzinfo=UTC)
    evening_again = boundary + timedelta(minutes=15)

    assert_boundary(policy, boundary)
    assert policy.due(last_active=boundary - TICK, now=evening_again) is ResetReason.DAILY


def test_a_day_that_a_country_skipped_has_its_boundary_at_the_next_midnight() -> None:
    """Samoa had no 30 December 2011."""
    assert_boundary(daily(time(4), "Pacific/Apia"), datetime(2011, 12, 30, 10, tzinfo=UTC))


zones = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/St_Johns",
        "Pacific/Apia",
        "Australia/Lord_Howe",
        "Asia/Beirut",
    ]
)
moments = st.integers(0, 25 * 366 * 24 * 60).map(
    lambda minutes: datetime(2005, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
)
policies = st.builds(
    lambda mode, hours, at, zone: ResetPolicy(
        mode=mode, idle=timedelta(hours=hours), daily_at=at, zone=ZoneInfo(zone)
    ),
    st.sampled_from(["idle", "daily", "both"]),
    st.integers(1, 50),
    st.times(),
    zones,
)


@given(policies, moments)
def test_a_session_goes_on_until_its_reset_time_and_not_after(
    policy: ResetPolicy, last_active: datetime
) -> None:
    end = policy.next_due(last_active=last_active)

    assert end is not None
    assert end > last_active
    assert policy.due(last_active=last_active, now=end - TICK) is None
    assert policy.due(last_active=last_active, now=end + TICK) is not None


@given(policies, moments, st.timedeltas(TICK, timedelta(days=4000)))
def test_a_clock_that_was_set_back_resets_nothing(
    policy: ResetPolicy, last_active: datetime, back: timedelta
) -> None:
    """F12."""
    assert policy.due(last_active=last_active, now=last_active - back) is None


def test_elapsed_time_is_counted_across_a_change_of_the_clocks() -> None:
    """One hour of a night with a fold is one hour, whatever zone the times are given in."""
    last_active = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    now = datetime(2026, 10, 25, 3, 15, tzinfo=BERLIN)

    assert IDLE.due(last_active=last_active, now=now) is ResetReason.IDLE


def test_an_endless_idle_time_never_comes_due() -> None:
    policy = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta.max)

    assert policy.next_due(last_active=NOON) is None
    assert policy.due(last_active=NOON, now=NOON + timedelta(days=9999)) is None


def test_a_time_without_a_zone_is_refused() -> None:
    naive = NOON.replace(tzinfo=None)

    with pytest.raises(ValueError, match="zone"):
        IDLE.due(last_active=naive, now=NOON)
    with pytest.raises(ValueError, match="zone"):
        IDLE.next_due(last_active=naive)


def test_webhook_and_api_get_no_notice_and_nobody_does_when_notices_are_off() -> None:
    assert ResetPolicy().notifies("telegram")
    assert not ResetPolicy().notifies("webhook")
    assert not ResetPolicy().notifies("api")
    assert not ResetPolicy(notify=False).notifies("telegram")
