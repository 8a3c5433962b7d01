"""Turns that another process continues, and those that it must leave alone."""

from dataclasses import replace

from sessionary.model.turn import TurnState
from sessionary.store.database import Store
from tests.support.engine_world import QUICK, EngineWorld
from tests.support.misbehaving_runner import MisbehavingRunner


async def test_a_process_does_not_take_over_its_own_turn(store: Store) -> None:
    """It is only late: a busy process may renew a lease after it has run out, if nobody else takes the turn."""
    # The heartbeat looks once a second, so that the lease is over when the process looks for dead turns.
    settings = replace(QUICK, poll_seconds=30, sweep_seconds=300)
    world = EngineWorld(store, settings=settings)
    runner = MisbehavingRunner(["words", MisbehavingRunner.HANG, " after"])
    engine = await world.started(runner=runner)
    await world.says(engine, "hello")
    await world.until(lambda: runner.hanging == 1)
    (turn,) = await world.turns()

    world.clock.tick(100)
    await engine.turns.take_over([turn.id])
    runner.release.set()
    await world.settle(engine)
    await engine.stop()

    (ended,) = await world.turns()
    assert (ended.state, ended.epoch, ended.resumed) == (TurnState.DONE, turn.epoch, 0)
    assert world.adapter.texts("loopback:1") == ["words after"]
