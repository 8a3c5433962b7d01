"""A store that is away for a minute in the middle of things: nothing is lost, nothing comes twice."""

import asyncio
import threading
from typing import Any

import pytest

from sessionary.actions import outbox
from sessionary.engine.turn import budgets
from sessionary.model.turn import TurnState
from sessionary.store.database import Store, Tx
from tests.engine.away import AwayStore
from tests.support.engine_world import TIMEOUT_SECONDS, EngineWorld

ANSWERED = ["hello", "", "", "re: hello"]


@pytest.fixture
def away(store: Store, world: EngineWorld) -> AwayStore:
    """The store of every engine from now on."""
    found = AwayStore(store)
    world.use(store=found)
    return found


async def answered_after_absence(world: EngineWorld, away: AwayStore, action: Any) -> None:
    """A turn in which the store refuses this action again and again, until it is back."""
    away.is_away, away.away = True, frozenset({action})
    engine = await world.started()
    await world.says(engine, "hello")
    await world.until(lambda: away.refused > 2)
    away.is_away = False
    await world.settle(engine)
    await engine.stop()


async def test_an_answer_waits_for_a_store_that_is_away_at_the_end_of_the_turn(
    world: EngineWorld, away: AwayStore
) -> None:
    await answered_after_absence(world, away, budgets.end)

    assert await world.texts() == ANSWERED
    assert world.adapter.texts("loopback:1") == ["re: hello"]


async def test_a_turn_waits_for_a_store_that_is_away_between_its_steps(
    world: EngineWorld, away: AwayStore
) -> None:
    await answered_after_absence(world, away, budgets.step)

    assert await world.texts() == ANSWERED


@pytest.mark.parametrize("action", [budgets.step, budgets.end])
async def test_a_commit_whose_answer_is_lost_is_not_written_twice(
    world: EngineWorld, away: AwayStore, action: Any
) -> None:
    away.loses.add(action)
    engine = await world.started()
    await world.says(engine, "hello")
    await world.settle(engine)
    await engine.stop()

    assert await world.texts() == ANSWERED
    assert [turn.state for turn in await world.turns()] == [TurnState.DONE]
    assert world.adapter.texts("loopback:1") == ["re: hello"]


async def test_what_was_sent_is_marked_when_the_store_is_back(
    world: EngineWorld, away: AwayStore
) -> None:
    """P8: what the platform has surely taken is not sent again."""
    await answered_after_absence(world, away, outbox.mark_all_sent)

    assert world.adapter.texts("loopback:1") == ["re: hello"]


async def test_a_turn_that_is_stopped_while_a_step_is_written_says_it_once(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there, may_go_on = threading.Event(), threading.Event()
    step = budgets.step

    def held(tx: Tx, *args: Any, **kwargs: Any) -> Any:
        is_there.set()
        assert may_go_on.wait(TIMEOUT_SECONDS)
        return step(tx, *args, **kwargs)

    monkeypatch.setattr(budgets, "step", held)
    engine = await world.started()
    await world.says(engine, "hello")
    assert await asyncio.to_thread(is_there.wait, TIMEOUT_SECONDS)
    stopping = asyncio.create_task(engine.stop())
    await world.until(lambda: engine.turns._stopping)
    may_go_on.set()
    await stopping

    assert await world.texts() == ["hello", ""]
