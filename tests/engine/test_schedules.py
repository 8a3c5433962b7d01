"""Scheduled tasks run once, delivered where they belong, never lost silently."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sessionary.actions import access, schedules
from sessionary.actions.schedules import ScheduleSpec
from sessionary.config.engine import Budget
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.errors import BadInput, Conflict
from sessionary.model.message import message
from sessionary.model.prompt import HomeAddress
from sessionary.model.schedule import Run, RunState, Timing
from sessionary.model.session import Kind, SessionFolder
from sessionary.model.source import Source
from sessionary.store.database import Store
from sessionary.testing.fakes import moment_of
from tests.support.crash import CrashPoint
from tests.support.engine_world import QUICK, TIMEOUT_SECONDS, EngineWorld
from tests.support.misbehaving_runner import MisbehavingRunner

BERLIN = ZoneInfo("Europe/Berlin")


async def planned(world: EngineWorld, timing: str = "every 1h", **plan: Any) -> None:
    """A schedule `tick` that asks `tock`."""
    given = {"origin": world.source("home"), "prompt": "tock", **plan}
    moment = moment_of(world.clock, world.ids)
    await world.store.write(
        schedules.add,
        ScheduleSpec("tick", Timing(timing, BERLIN), **given),
        profile="main",
        moment=moment,
    )


async def runs(world: EngineWorld) -> list[Run]:
    return list(reversed(await world.store.read(schedules.list_runs, "tick", profile="main")))


async def later(world: EngineWorld, *engines: Engine, seconds: float = 3600) -> None:
    """Let time pass, and what is due then run to its end."""
    before = await runs(world)
    world.clock.tick(seconds)
    await ended(world, len(before) + 1)
    for engine in engines:
        await world.settle(engine)


async def ended(world: EngineWorld, count: int) -> None:
    """Wait until so many runs are over."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            found = [run.state for run in await runs(world)]
            if len(found) >= count and RunState.RUNNING not in found:
                return
            await asyncio.sleep(0.005)


class Looks:
    """Counts how often an engine has looked for what is due."""

    def __init__(self, world: EngineWorld, engine: Engine) -> None:
        self._world = world
        self._count = 0
        self._run_due = engine.scheduler.run_due
        engine.scheduler.run_due = self._counted  # type: ignore[method-assign]

    async def _counted(self) -> int:
        found = await self._run_due()
        self._count += 1
        return found

    async def again(self) -> None:
        """Wait until it has looked at the time that is now; the look under way may not have."""
        wanted = self._count + 2
        await self._world.until(lambda: self._count >= wanted)


def answering(text: str) -> Callable[[TurnRequest], list[Event]]:
    return lambda _: [Step(message("assistant", text))]


async def test_a_run_is_a_session_of_its_own_and_is_delivered_to_its_origin(
    world: EngineWorld,
) -> None:
    """Of kind job, listed apart from chats."""
    engine = await world.started()
    await planned(world)
    await later(world, engine)
    await later(world, engine)
    await engine.stop()

    assert [run.state for run in await runs(world)] == [RunState.DONE, RunState.DONE]
    assert world.adapter.texts("loopback:home") == ["re: tock", "re: tock"]
    jobs = await world.sessions(SessionFolder.AUTOMATION)
    assert [(head.kind, head.title) for head in jobs] == [
        (Kind.JOB, "tick #2"),
        (Kind.JOB, "tick"),
    ]
    assert await world.sessions() == []
    assert [run.session_id for run in await runs(world)] == [head.id for head in reversed(jobs)]


async def test_two_schedulers_run_an_occurrence_once(world: EngineWorld) -> None:
    """P9."""
    engines = [await world.started() for _ in range(3)]
    await planned(world)
    for _ in range(3):
        await later(world, *engines)
    for engine in engines:
        await engine.stop()

    assert len(await runs(world)) == 3
    assert len(world.runner.requests) == 3


@pytest.mark.parametrize(
    ("to", "channel"),
    [
        ("loopback", "loopback:den"),
        ("loopback:42", "loopback:42"),
        ("loopback:42:7", "loopback:42:7"),
        ("origin", "loopback:home"),
        ("local", None),
    ],
)
async def test_output_goes_where_it_was_sent(
    world: EngineWorld, to: str, channel: str | None
) -> None:
    """Origin, local, a platform's home, platform:chat[:thread]."""
    moment = moment_of(world.clock, world.ids)
    home = HomeAddress("loopback", "den")
    await world.store.write(access.set_home, home, profile="main", moment=moment)
    engine = await world.started()
    await planned(world, deliver_to=to)
    await later(world, engine)
    await engine.stop()

    assert world.adapter.sent == ([] if channel is None else [(channel, "re: tock")])
    (run,) = await runs(world)
    assert run.session_id is not None
    assert (await world.texts_of(run.session_id))[-1] == "re: tock"


async def test_a_platform_without_a_home_is_named_in_the_run(world: EngineWorld) -> None:
    """P9: not delivered is visible."""
    engine = await world.started()
    await planned(world, deliver_to="loopback")
    await later(world, engine)
    await engine.stop()

    (run,) = await runs(world)
    assert (run.state, run.reason) == (
        RunState.DONE,
        "not delivered: loopback has no home channel; send /sethome",
    )


async def test_what_another_process_has_the_channel_for_waits_in_the_outbox(
    store: Store,
) -> None:
    """P8: a scheduler without the adapter does not drop the output."""
    world = EngineWorld(store)
    without = EngineWorld(store, adapters={}, deliverable=frozenset())
    without.ids, without.clock = world.ids, world.clock
    await planned(without, deliver_to="loopback:42")
    lonely = await without.started()
    without.clock.tick(3600)
    await ended(without, 1)
    await lonely.stop()

    engine = await world.started()
    await world.settle(engine)
    await engine.stop()
    assert world.adapter.sent == [("loopback:42", "re: tock")]


@pytest.mark.parametrize(
    ("reply", "sent"),
    [
        ("[SILENT]", []),
        ("  [SILENT]\n", []),
        ("[SILENT] but not quite", ["[SILENT] but not quite"]),
        ("[silent]", ["[silent]"]),
    ],
)
async def test_a_silent_run_is_not_delivered(
    world: EngineWorld, reply: str, sent: list[str]
) -> None:
    """A reply of exactly [SILENT]."""
    world.runner.answer = answering(reply)
    engine = await world.started()
    await planned(world)
    await later(world, engine)
    await engine.stop()

    assert world.adapter.texts("loopback:home") == sent
    assert [run.state for run in await runs(world)] == [RunState.DONE]


async def test_in_a_chat_the_text_silent_is_delivered(world: EngineWorld) -> None:
    """Only a scheduled run can be silent."""
    world.runner.answer = answering("[SILENT]")
    engine = await world.started()
    assert await world.asks(engine, "hello") == ["[SILENT]"]
    await engine.stop()


async def test_a_failure_is_always_delivered(world: EngineWorld) -> None:
    """With the task's name and the reason."""
    engine = await world.started(runner=MisbehavingRunner(["[SILENT]", ValueError("boom")]))
    await planned(world)
    await later(world, engine)
    await engine.stop()

    (run,) = await runs(world)
    assert (run.state, run.reason) == (RunState.FAILED, "ValueError: boom")
    assert world.adapter.texts("loopback:home") == [
        "The scheduled task “tick” did not finish: ValueError: boom."
    ]


async def test_a_run_that_cannot_begin_is_failed_and_delivered(store: Store) -> None:
    """P9: its agent is not there."""
    world = EngineWorld(store)

    def missing(_: Source, name: str | None) -> Any:
        raise BadInput(f"There is no agent {name!r}.")

    world.use(agent_for=missing)
    engine = await world.started()
    await planned(world, agent="x")
    await later(world, engine)
    await world.settle(engine)
    await engine.stop()

    (run,) = await runs(world)
    assert (run.state, run.session_id) == (RunState.FAILED, None)
    assert world.adapter.texts("loopback:home") == [
        "The scheduled task “tick” did not finish: There is no agent 'x'."
    ]


async def test_a_run_whose_process_died_is_failed_and_delivered(world: EngineWorld) -> None:
    """P9: once, by whichever process notices; its text is kept."""
    crash = CrashPoint()
    world.runner.between = partial(_crash_now, crash)
    await planned(world)
    world.clock.tick(3600)
    dying = await world.started(crash)
    await world.until(lambda: crash.crashed)
    await dying.stop()
    assert [run.state for run in await runs(world)] == [RunState.RUNNING]

    world.runner.between = lambda: None
    world.clock.tick(120)
    engines = [await world.started() for _ in range(2)]
    await ended(world, 1)
    for engine in engines:
        await world.settle(engine)
        await engine.stop()

    run = (await runs(world))[0]
    assert (run.state, run.reason) == (RunState.FAILED, "the process that ran it died")
    assert world.adapter.texts("loopback:home") == [
        "The scheduled task “tick” did not finish: the process that ran it died."
    ]


def _crash_now(crash: CrashPoint) -> None:
    crash.crashed = True
    crash.step()


async def test_a_run_that_had_ended_when_its_process_died_is_done(world: EngineWorld) -> None:
    """P9: the reply is on its way, so the run is not marked as failed."""
    await planned(world)
    world.clock.tick(3600)
    crash = CrashPoint()
    dying = await world.started(crash)
    bus = dying.context.bus
    with bus.listen() as events:
        while (live := await events.get()) is None or live.kind != "ended":
            pass
        crash.crashed = True
    await dying.stop()
    world.clock.tick(120)
    engine = await world.started()
    await ended(world, 1)
    await world.settle(engine)
    await engine.stop()

    assert (await runs(world))[0].state is RunState.DONE
    # The process may have sent the reply and died before it marked that: then it is sent once more.
    assert world.adapter.texts("loopback:home") in (["re: tock"], ["re: tock"] * 2)


async def test_a_missed_run_is_made_up_for_once(world: EngineWorld) -> None:
    """Many were missed; the latest is run when the system is back."""
    await planned(world, "every 10m", grace=timedelta(minutes=30))
    world.clock.tick(0, hours=9.1)
    engine = await world.started()
    await ended(world, 1)
    await world.settle(engine)
    await engine.stop()

    (run,) = await runs(world)
    assert run.began_at - run.due_at == timedelta(minutes=6)
    assert world.adapter.texts("loopback:home") == ["re: tock"]


async def test_a_run_missed_for_longer_than_its_grace_is_skipped_and_recorded(
    world: EngineWorld,
) -> None:
    """P9: and the next one comes as always."""
    await planned(world, "0 6 * * *", grace=timedelta(hours=1))
    world.clock.set(datetime(2026, 3, 3, 6, 30, tzinfo=UTC))  # 07:30 in Berlin
    engine = await world.started()
    await ended(world, 1)
    assert [(run.state, run.reason) for run in await runs(world)] == [
        (RunState.SKIPPED, "missed for longer than its grace")
    ]
    world.clock.set(datetime(2026, 3, 4, 5, 0, tzinfo=UTC))
    await ended(world, 2)
    await world.settle(engine)
    await engine.stop()

    assert [run.state for run in await runs(world)] == [RunState.SKIPPED, RunState.DONE]


async def test_a_long_absence_is_not_counted_up_minute_by_minute(world: EngineWorld) -> None:
    """P9, F20: a year of minutes costs nothing, and one run."""
    await planned(world, "* * * * *", grace=timedelta(minutes=5))
    world.clock.tick(days=365)
    engine = await world.started()
    await ended(world, 1)
    await engine.stop()


async def test_a_clock_set_back_does_not_run_an_occurrence_again(world: EngineWorld) -> None:
    """F12: an occurrence is keyed by its scheduled time."""
    engine = await world.started()
    await planned(world, "0 12 * * *")
    world.clock.set(datetime(2026, 3, 2, 11, 0, tzinfo=UTC))
    await ended(world, 1)
    await world.settle(engine)
    looks = Looks(world, engine)
    world.clock.tick(-7200)
    await looks.again()
    world.clock.tick(7200)
    await looks.again()
    await engine.stop()

    assert len(await runs(world)) == 1


async def test_in_the_hour_that_comes_twice_a_task_runs_once(world: EngineWorld) -> None:
    """02:30 on 25 October, looked at every ten minutes of both hours."""
    world.clock.set(datetime(2026, 10, 24, 12, 0, tzinfo=UTC))
    engine = await world.started()
    await planned(world, "30 2 * * *")
    world.clock.set(datetime(2026, 10, 25, 0, 20, tzinfo=UTC))
    looks = Looks(world, engine)
    for _ in range(12):
        world.clock.tick(600)
        await looks.again()
        await world.settle(engine)
    await ended(world, 1)
    await engine.stop()

    assert [run.due_at for run in await runs(world)] == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC)]


async def test_once_is_once(world: EngineWorld) -> None:
    engine = await world.started()
    await planned(world, "at 2026-03-02T12:00")
    await later(world, engine, seconds=7200)
    world.clock.tick(days=400)
    await Looks(world, engine).again()
    await engine.stop()

    assert len(await runs(world)) == 1
    assert (await world.store.read(schedules.get, "tick", profile="main")).next_at is None


async def test_what_is_paused_or_removed_does_not_run(world: EngineWorld) -> None:
    """What was missed meanwhile is not made up for."""
    engine = await world.started()
    await planned(world)

    async def pause(*, paused: bool) -> None:
        now = world.clock.now()
        await world.store.write(schedules.pause, "tick", profile="main", paused=paused, now=now)

    looks = Looks(world, engine)
    await pause(paused=True)
    world.clock.tick(hours=3)
    await looks.again()
    await pause(paused=False)
    await looks.again()
    assert await runs(world) == []
    await later(world, engine)
    await world.store.write(schedules.remove, "tick", profile="main", now=world.clock.now())
    world.clock.tick(hours=3)
    await looks.again()
    await engine.stop()
    assert len(world.runner.requests) == 1


async def test_a_schedule_belongs_to_its_profile(store: Store) -> None:
    """An engine of another profile does not run it."""
    world = EngineWorld(store)
    elsewhere = EngineWorld(store, profile="other")
    elsewhere.ids, elsewhere.clock = world.ids, world.clock
    engine = await elsewhere.started()
    await planned(world)
    world.clock.tick(hours=2)
    await Looks(world, engine).again()
    await engine.stop()

    assert await runs(world) == []


async def test_long_output_is_split_and_nothing_of_it_is_lost(world: EngineWorld) -> None:
    """Pieces of what the platform takes, in order, each delivered by itself."""
    text = "\n\n".join(f"Paragraph {number}: " + "word " * 100 for number in range(40)).strip()
    world.runner.answer = answering(text)
    engine = await world.started()
    await planned(world)
    await later(world, engine)
    await engine.stop()

    sent = world.adapter.texts("loopback:home")
    assert len(sent) > 4
    assert all(len(piece) <= world.adapter.capabilities.longest_text for piece in sent)
    assert " ".join("\n\n".join(sent).split()) == " ".join(text.split())


async def test_a_used_up_budget_fails_the_run_and_says_so(store: Store) -> None:
    """Budgets: per schedule."""
    settings = replace(QUICK, budgets={"schedule:tick": Budget(tokens=10)})
    world = EngineWorld(store, settings=settings)
    engine = await world.started()
    await planned(world)
    await later(world, engine)
    await later(world, engine)
    await world.settle(engine)
    await engine.stop()

    assert [run.state for run in await runs(world)] == [RunState.DONE, RunState.FAILED]
    assert world.adapter.texts("loopback:home") == [
        "re: tock",
        (
            "The scheduled task “tick” did not finish: its budget for the day is used up. "
            "It begins again on 2026-03-03 at 00:00 UTC."
        ),
    ]


async def test_a_planned_stop_fails_a_run_visibly(store: Store) -> None:
    """F2, P9."""
    world = EngineWorld(store)
    misbehaving = MisbehavingRunner(["words", MisbehavingRunner.HANG])
    engine = await world.started(runner=misbehaving)
    await planned(world)
    world.clock.tick(3600)
    await world.until(lambda: misbehaving.hanging == 1)
    await engine.stop()

    (run,) = await runs(world)
    assert (run.state, run.reason) == (RunState.FAILED, "the server stopped")
    after = await world.started()
    await world.settle(after)
    await after.stop()
    assert world.adapter.texts("loopback:home") == [
        "The scheduled task “tick” did not finish: the server stopped."
    ]


def test_a_schedule_that_makes_no_sense_is_refused(store: Store) -> None:
    world = EngineWorld(store)
    moment = moment_of(world.clock, world.ids)
    good = ScheduleSpec("tick", Timing("@daily", BERLIN), "tock")

    def add(plan: ScheduleSpec) -> Any:
        return store.write(schedules.add, plan, profile="main", moment=moment).result()

    add(good)
    with pytest.raises(Conflict, match="'tick' already"):
        add(good)
    for bad in (
        ScheduleSpec("", good.timing, "tock"),
        ScheduleSpec("a", good.timing, " "),
        ScheduleSpec("a", good.timing, "tock", deliver_to="loopback:"),
        ScheduleSpec("a", good.timing, "tock", deliver_to=""),
        ScheduleSpec("a", Timing("at 2020-01-01", BERLIN), "tock"),
    ):
        with pytest.raises(BadInput):
            add(bad)
