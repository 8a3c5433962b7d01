"""Resets end to end: when, who is notified, what recovery leaves alone."""

from datetime import UTC, datetime, time, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from sessionary.actions import schedules, sweep
from sessionary.actions.schedules import ScheduleSpec
from sessionary.actions.sessions import holds
from sessionary.engine.engine import Engine
from sessionary.model.message import text_of
from sessionary.model.reset import Policies, ResetMode, ResetPolicy
from sessionary.model.schedule import Timing
from sessionary.model.session import EndReason
from sessionary.store.database import Store
from sessionary.testing.fakes import moment_of
from tests.support.crash import CrashPoint
from tests.support.engine_world import EngineWorld

BERLIN = ZoneInfo("Europe/Berlin")
IDLE = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(minutes=60))
NOTICE = "New session: nothing was said for a while. Send /resume to go on with an earlier one."


def utc(*moment: int) -> datetime:
    year, month, day, hour, minute = moment
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def world_with(store: Store, policy: ResetPolicy) -> EngineWorld:
    return EngineWorld(store, policies=Policies(policy))


def prompts(world: EngineWorld) -> list[str]:
    return [request.system_prompt for request in world.runner.requests]


async def sweeps(engine: Engine, world: EngineWorld) -> list[str]:
    """One sweep as the loop does it; the reasons of the sessions it ended."""
    moment = moment_of(world.clock, world.ids)
    ended = await world.store.write(
        sweep.end_expired_sessions, engine.context.policies, moment=moment
    )
    return [each.reason for each in ended]


async def test_an_idle_session_is_reset_and_person_and_agent_are_notified_once(
    store: Store,
) -> None:
    """One notice with the reason and the way back; the agent in the first turn only."""
    world = world_with(store, IDLE)
    engine = await world.started()
    await world.asks(engine, "hello")
    old = await world.head()
    world.clock.tick(hours=2)

    first = await world.asks(engine, "again")
    second = await world.asks(engine, "and more")
    await engine.stop()

    assert first == [NOTICE, "re: again"]
    assert second == ["re: and more"]
    assert [("nobody had written" in prompt) for prompt in prompts(world)] == [False, True, False]
    new = await world.head()
    assert (new.parent_id, str(new.lineage)) == (old.id, "reset")
    ended = await store.read(lambda tx: tx.one("get_head_by_no", no=old.no))
    assert ended is not None
    assert EndReason.IDLE in ended


async def test_a_daily_reset_names_the_new_day(store: Store) -> None:
    """By the hour of the configured zone."""
    policy = ResetPolicy(mode=ResetMode.DAILY, daily_at=time(4), zone=BERLIN)
    world = world_with(store, policy)
    world.clock.set(datetime(2026, 6, 1, 1, 59, tzinfo=UTC))  # 03:59 in Berlin
    engine = await world.started()
    await world.asks(engine, "late")
    world.clock.tick(120)

    sent = await world.asks(engine, "early")
    await engine.stop()

    assert sent[0].startswith("New session: a new day has begun.")
    assert "ended at its daily hour" in prompts(world)[-1]


async def test_of_both_reasons_idle_is_given(store: Store) -> None:
    """Both: idle is tested first, and is then the reason given."""
    world = world_with(store, ResetPolicy(mode=ResetMode.BOTH, idle=timedelta(hours=1)))
    engine = await world.started()
    await world.asks(engine, "hello")
    world.clock.tick(days=2)

    sent = await world.asks(engine, "again")
    await engine.stop()

    assert sent[0] == NOTICE


@pytest.mark.parametrize(
    "policy",
    [
        ResetPolicy(mode=ResetMode.IDLE, notify=False),
        ResetPolicy(mode=ResetMode.IDLE, notify_exclude=frozenset({"loopback"})),
    ],
    ids=["notices off", "platform excluded"],
)
async def test_no_notice_where_none_is_wanted(store: Store, policy: ResetPolicy) -> None:
    """The agent is notified all the same."""
    world = world_with(store, policy)
    engine = await world.started()
    await world.asks(engine, "hello")
    world.clock.tick(days=3)

    sent = await world.asks(engine, "again")
    await engine.stop()

    assert sent == ["re: again"]
    assert "nobody had written" in prompts(world)[-1]


async def test_no_notice_of_a_session_in_which_nothing_is_left(store: Store) -> None:
    """The old session had no activity: everything in it was taken back."""
    world = world_with(store, IDLE)
    engine = await world.started()
    await world.asks(engine, "hello")
    await world.asks(engine, "/undo")
    world.clock.tick(hours=2)

    sent = await world.asks(engine, "again")
    await engine.stop()

    assert sent == ["re: again"]


async def test_no_notice_after_a_manual_reset(store: Store) -> None:
    """Who sent /new knows it."""
    world = world_with(store, IDLE)
    engine = await world.started()
    await world.asks(engine, "hello")
    await world.asks(engine, "/new")

    sent = await world.asks(engine, "again")
    await engine.stop()

    assert sent == ["re: again"]
    assert "conversation before this one" not in prompts(world)[-1]


async def test_the_sweep_ends_what_the_message_path_would_and_the_notice_is_the_same(
    store: Store,
) -> None:
    """One rule; exactly at the limit neither resets, a moment later both do."""
    world = world_with(store, IDLE)
    engine = Engine(world.context())  # no loops: this test sweeps by hand
    live = await world.started()
    await world.asks(live, "hello")
    await live.stop()
    last = (await world.head()).last_active_at

    world.clock.set(last + timedelta(minutes=60))
    assert await sweeps(engine, world) == []
    world.clock.tick(0.000001)
    assert await sweeps(engine, world) == ["idle"]
    assert await sweeps(engine, world) == []

    live = await world.started()
    sent = await world.asks(live, "again")
    await live.stop()
    assert sent == [NOTICE, "re: again"]
    assert "nobody had written" in prompts(world)[-1]


async def test_a_hold_keeps_a_session_until_it_is_released_or_runs_out(store: Store) -> None:
    """On the message path and in the sweep."""
    world = world_with(store, IDLE)
    engine = await world.started()
    await world.asks(engine, "hello")
    head = await world.head()
    until = world.clock.now() + timedelta(hours=5)
    await store.write(holds.hold, head.id, "build", profile="main", until=until)
    world.clock.tick(hours=2)

    assert await sweeps(engine, world) == []
    assert await world.asks(engine, "still here") == ["re: still here"]
    world.clock.tick(hours=4)
    assert (await world.asks(engine, "later"))[0] == NOTICE
    await engine.stop()


async def test_a_reset_survives_the_process_that_made_it(store: Store) -> None:
    """It dies right after the reset; the notice comes, the reset stays, once."""
    world = world_with(store, IDLE)
    engine = await world.started()
    await world.asks(engine, "hello")
    await engine.stop()
    old = await world.head()
    world.clock.tick(hours=2)
    crash = CrashPoint()

    def die() -> None:
        crash.crashed = True
        crash.step()

    world.runner.between = die
    dying = await world.started(crash)
    await world.says(dying, "again", number="2")
    await world.until(lambda: crash.crashed)
    await dying.stop()
    new = await world.head()
    active = new.last_active_at

    world.runner.between = lambda: None
    world.clock.tick(300)
    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    after = await world.head()
    assert (after.id, after.last_active_at) == (new.id, active)
    assert after.id != old.id
    sent = world.adapter.texts("loopback:1")
    assert [text_of(each.parts) for each in await world.deliveries()].count(NOTICE) == 1
    # The process may have sent it and died before it marked that: then it is sent once more.
    assert sent.count(NOTICE) in (1, 2)
    assert sent[-1].startswith("Interrupted: the agent stopped responding.")


def _has_sent_more(world: EngineWorld, than: int) -> bool:
    return len(world.adapter.texts("loopback:1")) > than


async def test_a_scheduled_task_is_no_activity_of_the_chat_it_delivers_to(store: Store) -> None:
    """A job does not keep a conversation young, nor does what it delivers."""
    world = world_with(store, IDLE)
    engine = await world.started()
    await world.asks(engine, "hello")
    plan = ScheduleSpec("tick", Timing("every 30m", BERLIN), "tock", origin=world.source())
    await store.write(schedules.add, plan, profile="main", moment=moment_of(world.clock, world.ids))
    for _ in range(3):
        sent_before = len(world.adapter.texts("loopback:1"))
        world.clock.tick(1800)
        # Not for a run that can be seen: on a slow machine it may be over before we look.
        await world.until(partial(_has_sent_more, world, sent_before))
        await world.settle(engine)

    sent = await world.asks(engine, "again")
    await engine.stop()

    assert NOTICE in sent
    assert world.adapter.texts("loopback:1").count("re: tock") >= 2


async def test_a_clock_that_is_set_back_resets_nothing(store: Store) -> None:
    """F12: nothing is over in the past; when the time comes again, the rule holds again."""
    world = world_with(store, ResetPolicy(mode=ResetMode.BOTH, idle=timedelta(hours=1)))
    engine = await world.started()
    await world.asks(engine, "hello")
    before = await world.head()
    world.clock.tick(days=-30)

    assert await world.asks(engine, "in the past") == ["re: in the past"]
    after = await world.head()
    assert (after.id, after.last_active_at) == (before.id, before.last_active_at)
    world.clock.tick(days=30, hours=2)
    assert (await world.asks(engine, "again"))[0] == NOTICE
    await engine.stop()


@pytest.mark.parametrize(
    ("before", "after", "resets"),
    [
        # The clocks go from 2 to 3 at 01:00 UTC: 02:30 is not there, the day begins at the gap.
        (utc(2026, 3, 29, 0, 30), utc(2026, 3, 29, 0, 59), False),
        (utc(2026, 3, 29, 0, 30), utc(2026, 3, 29, 1, 0), True),
        # They go from 3 to 2 at 01:00 UTC: 02:30 comes twice, the first time counts.
        (utc(2026, 10, 25, 0, 20), utc(2026, 10, 25, 0, 31), True),
        (utc(2026, 10, 25, 0, 31), utc(2026, 10, 25, 1, 31), False),
    ],
)
async def test_on_a_daylight_saving_day_the_day_begins_once(
    store: Store, before: datetime, after: datetime, resets: bool
) -> None:
    """Daily at 02:30 in Berlin."""
    policy = ResetPolicy(mode=ResetMode.DAILY, daily_at=time(2, 30), zone=BERLIN)
    world = world_with(store, policy)
    world.clock.set(before)
    engine = await world.started()
    await world.asks(engine, "hello")
    world.clock.set(after)

    sent = await world.asks(engine, "again")
    await engine.stop()

    assert (len(sent) == 2) is resets


async def test_another_zone_moves_the_boundary_and_nothing_else(store: Store) -> None:
    """The same store under a configuration with another zone."""
    daily = ResetPolicy(mode=ResetMode.DAILY, daily_at=time(4), zone=BERLIN)
    world = world_with(store, daily)
    world.clock.set(datetime(2026, 6, 1, 1, 0, tzinfo=UTC))
    engine = await world.started()
    await world.asks(engine, "hello")
    await engine.stop()
    first = await world.head()

    elsewhere = ResetPolicy(
        mode=ResetMode.DAILY, daily_at=time(4), zone=ZoneInfo("America/New_York")
    )
    moved = EngineWorld(store, policies=Policies(elsewhere))
    moved.ids, moved.clock, moved.adapter = world.ids, world.clock, world.adapter
    world.clock.set(datetime(2026, 6, 1, 3, 0, tzinfo=UTC))  # 05:00 in Berlin, 23:00 in New York
    engine = await moved.started()
    await moved.says(engine, "again", number="2")
    await moved.settle(engine)
    assert (await moved.head()).id == first.id
    world.clock.set(datetime(2026, 6, 1, 8, 1, tzinfo=UTC))
    await moved.says(engine, "later", number="3")
    await moved.settle(engine)
    await engine.stop()

    assert (await moved.head()).id != first.id
