"""What must follow the end of a session is run, at least once, and holds up nothing."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sessionary.actions import sweep, turns
from sessionary.engine.engine import Engine
from sessionary.model.message import message
from sessionary.model.reset import ResetPolicy
from sessionary.model.source import key_for
from sessionary.store.database import Store
from sessionary.testing.fakes import moment_of
from tests.engine import finalizers
from tests.support.engine_world import QUICK, EngineWorld


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    finalizers.calls.clear()
    finalizers.is_daemon.clear()
    yield
    finalizers.calls.clear()


async def ended(store: Store, name: str) -> tuple[EngineWorld, Engine, str]:
    """A world with such a finalizer, and a session that was just ended in it."""
    settings = replace(QUICK, finalizer=f"tests.engine.finalizers:{name}")
    world = EngineWorld(store, settings=settings)
    engine = await world.started()
    await world.asks(engine, "hello", chat="old")
    id = (await world.head("old")).id
    await world.asks(engine, "/new", chat="old")
    return world, engine, id


@pytest.mark.parametrize("name", ["note", "note_in_thread"])
async def test_it_is_called_once_with_the_session_and_the_reason(store: Store, name: str) -> None:
    _, engine, id = await ended(store, name)
    while await store.read(sweep.list_to_finalize):  # noqa: ASYNC110 - no one rings for it
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    await engine.stop()

    assert finalizers.calls == [(id, "new")]


async def test_no_exit_waits_for_its_thread(store: Store) -> None:
    """F2: a planned stop ends in time, whatever it does."""
    world, engine, _ = await ended(store, "note_in_thread")
    await world.until(lambda: bool(finalizers.is_daemon))
    await engine.stop()

    assert finalizers.is_daemon == [True]


async def test_one_that_fails_is_given_up_after_three_tries_with_a_log_line(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        world, engine, id = await ended(store, "fail")
        await world.until(lambda: len(finalizers.calls) == 3)
        await asyncio.sleep(0.2)
        await engine.stop()

    assert finalizers.calls == [(id, "new")] * 3
    assert "the archive is full" in caplog.text


async def test_one_that_hangs_holds_up_no_dead_turn(store: Store) -> None:
    """Whose process died learns of it, whatever someone else's program does."""
    world, engine, _ = await ended(store, "hang")
    await world.until(lambda: bool(finalizers.calls))
    await dying_turn(world)
    await world.until(lambda: "Interrupted" in "".join(world.adapter.texts("loopback:dying")))
    await engine.stop()

    assert len(finalizers.calls) == 1


async def dying_turn(world: EngineWorld) -> None:
    """A turn whose process has died, and whose lease has run out."""
    source = world.source("dying")
    moment = moment_of(world.clock, world.ids)
    await world.store.write(
        turns.begin_for_source,
        key_for(source),
        source,
        message("user", "help"),
        policy=ResetPolicy(),
        claim=turns.Claim("a dead process", 30),
        moment=moment,
    )
    world.clock.tick(60)
