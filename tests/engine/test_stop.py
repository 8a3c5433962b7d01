"""A planned stop: what a loop has just claimed is in someone's hands, never between them."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sessionary.actions import outbox, schedules
from sessionary.actions.schedules import ScheduleSpec
from sessionary.engine.engine import Engine
from sessionary.model.message import Text
from sessionary.model.schedule import RunState, Timing
from sessionary.store.database import Tx
from sessionary.store.tables import upkeep
from sessionary.testing.fakes import moment_of
from tests.support.engine_world import TIMEOUT_SECONDS, EngineWorld


class Held:
    """An action that claims when it may; until then its transaction stands still."""

    def __init__(self, claim: Callable[..., list[Any]]) -> None:
        self._claim = claim
        self.is_there = threading.Event()
        self.may_go_on = threading.Event()

    def __call__(self, tx: Tx, **what: Any) -> list[Any]:
        self.is_there.set()
        assert self.may_go_on.wait(TIMEOUT_SECONDS)
        return self._claim(tx, **what)

    async def stops(self, engine: Engine) -> None:
        """Stop the engine while its loop claims."""
        assert await asyncio.to_thread(self.is_there.wait, TIMEOUT_SECONDS)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0.05)
        self.may_go_on.set()
        await stopping


async def test_a_delivery_claimed_while_the_engine_stops_is_sent(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F2: or it would wait for the end of its lease, which no one holds."""
    held = Held(outbox.claim)
    monkeypatch.setattr(outbox, "claim", held)
    channel = world.source().channel
    assert channel is not None
    moment = moment_of(world.clock, world.ids)
    await world.store.write(
        outbox.enqueue, channel, (Text("good evening"),), profile="main", moment=moment
    )
    await held.stops(await world.started())

    assert world.adapter.texts("loopback:1") == ["good evening"]
    assert (await world.store.read(upkeep.backlog)).open_deliveries == 0


async def test_a_run_claimed_while_the_engine_stops_ends_in_the_record(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P9: never lost silently, and no turn is left that nobody runs."""
    held = Held(schedules.claim_due)
    monkeypatch.setattr(schedules, "claim_due", held)
    plan = ScheduleSpec(
        "tick", Timing("every 1h", ZoneInfo("UTC")), "tock", origin=world.source("home")
    )
    moment = moment_of(world.clock, world.ids)
    await world.store.write(schedules.add, plan, profile="main", moment=moment)
    world.clock.tick(3600)
    await held.stops(await world.started())

    (run,) = await world.store.read(schedules.list_runs, "tick", profile="main")
    assert (run.state, run.reason) == (RunState.FAILED, "the server stopped")
    assert (await world.store.read(upkeep.backlog)).running_turns == 0
