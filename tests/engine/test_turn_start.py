"""A message and the beginning of its turn are one transaction where nothing stands between them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sessionary.config.engine import EngineSettings
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Agent, Event, Step, TurnRequest
from sessionary.errors import BadInput
from sessionary.model.message import message
from sessionary.model.source import Source, key_for
from sessionary.model.turn import TurnState
from sessionary.store.database import Store
from sessionary.store.tables import upkeep
from sessionary.testing.fakes import ScriptedRunner
from tests.support.engine_world import QUICK, EngineWorld

# Nobody looks by itself: what runs was begun with its message, or after another turn's end.
ALONE: EngineSettings = replace(QUICK, poll_seconds=60, sweep_seconds=600)


class Held(ScriptedRunner):
    """Answers when the gate is open."""

    def __init__(self) -> None:
        super().__init__(lambda request: [Step(message("assistant", _answer(request)))])
        self.gate = asyncio.Event()

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Wait, then answer."""
        await self.gate.wait()
        async for event in super().run(request):
            yield event


def _answer(request: TurnRequest) -> str:
    return f"re: {request.context[-1]['content']}"


async def test_a_message_that_was_received_is_in_its_session_already(store: Store) -> None:
    """Durable when it returns; and where no turn runs, one has begun."""
    world = EngineWorld(store, settings=ALONE)
    world.runner = held = Held()
    engine = await world.started()
    await _is_looking(world, engine)
    await world.says(engine, "at once")
    assert await world.texts() == ["at once"]
    assert [turn.state for turn in await world.turns()] == [TurnState.RUNNING]
    held.gate.set()
    await world.settle(engine)
    await engine.stop()
    assert await world.texts() == ["at once", "re: at once"]


async def test_a_second_message_waits_for_the_turn_that_runs(store: Store) -> None:
    """One turn at a time; what comes meanwhile is kept and answered after it."""
    world = EngineWorld(store, settings=ALONE)
    world.runner = held = Held()
    engine = await world.started()
    await _is_looking(world, engine)
    await world.says(engine, "one", number="1")
    await world.says(engine, "two", number="2")
    assert (await store.read(upkeep.backlog)).waiting_arrivals == 1
    held.gate.set()
    await world.settle(engine)
    await engine.stop()
    assert await world.texts() == ["one", "re: one", "two", "re: two"]


async def test_no_more_turns_are_begun_than_may_run(store: Store) -> None:
    """A flood fills the inbox, not the process."""
    world = EngineWorld(store, settings=replace(ALONE, most_turns=3))
    world.runner = held = Held()
    engine = await world.started()
    await _is_looking(world, engine)
    chats = [str(number) for number in range(20)]
    await asyncio.gather(*(world.says(engine, "hello", chat=chat) for chat in chats))
    found = await store.read(upkeep.backlog)
    assert (found.running_turns, found.waiting_arrivals) == (3, 17)
    held.gate.set()
    await world.settle(engine)
    await engine.stop()
    assert [await world.texts(chat) for chat in chats] == [["hello", "re: hello"]] * 20


async def test_a_turn_runs_although_the_caller_that_sent_its_message_is_gone(store: Store) -> None:
    """P7: begun in the record means that someone runs it."""
    world = EngineWorld(store, settings=ALONE)
    world.runner = held = Held()
    held.gate.set()
    engine = await world.started()
    await _is_looking(world, engine)
    bringing = asyncio.create_task(world.says(engine, "from one who goes"))
    await asyncio.sleep(0)
    bringing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bringing
    await world.until(lambda: bool(world.adapter.texts("loopback:1")))
    await world.settle(engine)
    await engine.stop()
    assert await world.texts() == ["from one who goes", "re: from one who goes"]


async def test_a_message_is_kept_although_its_turn_cannot_begin(store: Store) -> None:
    """P1: what is wrong with the agent is not wrong with the message."""
    world = EngineWorld(store, settings=ALONE)

    def agent_for(_: Source, __: str | None) -> Agent:
        raise BadInput("There is no such agent.")

    world.use(agent_for=agent_for)
    engine = await world.started()
    await _is_looking(world, engine)
    received = await engine.receive(world.source(), message("user", "hello"))
    assert received.new
    await world.settle(engine)
    await engine.stop()
    assert "There is no such agent." in world.adapter.texts("loopback:1")[0]


async def _is_looking(world: EngineWorld, engine: Engine) -> None:
    """Until the loop of turns stands ready."""

    def has_room() -> bool:
        with engine.turns.reserve_slot(key_for(world.source("nobody"))) as may_begin:
            return may_begin

    await world.until(has_room)
