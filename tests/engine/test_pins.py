"""A pinned message stays word for word in what the model reads, whatever is compacted."""

import asyncio
from dataclasses import replace

import pytest

from sessionary.actions import turns, verify
from sessionary.actions.sessions import edit, log, pins, read, revise
from sessionary.engine.engine import Engine
from sessionary.errors import Conflict, NotFound
from sessionary.model.message import Role, message
from sessionary.model.source import Person
from sessionary.model.transcript import RECORD
from sessionary.store.database import Tx
from tests.engine.test_sent_context import WINDOW, ModelLikeRunner
from tests.support.engine_world import EngineWorld

ADA = Person("u", name="Ada")


async def filled(world: EngineWorld, count: int = 3) -> tuple[Engine, str]:
    """A chat with some rounds: user, assistant (tool call), tool, assistant; its session."""
    engine = await world.started()
    for number in range(count):
        await world.asks(engine, f"question {number}")
    return engine, (await world.head()).id


async def pin(world: EngineWorld, id: str, seq: int) -> None:
    await world.store.write(
        pins.pin_message, id, seq, profile="main", by=ADA, moment=world.context().moment()
    )


async def pinned(world: EngineWorld, id: str) -> list[int]:
    found = await world.store.read(pins.list_pinned_messages, id, profile="main")
    return [entry.seq for entry in found]


async def test_a_pinned_message_survives_compaction(world: EngineWorld) -> None:
    runner = ModelLikeRunner(fits=WINDOW)
    world.settings = replace(world.settings, compact_at_percent=70)
    engine = await world.started(runner=runner)
    secret = "The door code is 4711."
    await world.asks(engine, secret)
    id = (await world.head()).id
    await pin(world, id, 1)
    for number in range(8):
        await world.asks(engine, f"question {number}: {'words ' * 100}")
    await engine.stop()

    context = await world.store.read(read.read_context, id, profile="main")
    compaction = await world.store.read(read.get_compaction, await world.head())

    assert compaction is not None
    assert compaction.through > 10
    assert compaction.kept == (1,)
    assert str(context[0]["content"]).startswith("[Summary")
    assert context[1] == {"role": "user", "content": secret}
    assert all(secret in str(sent) for sent in runner.sent), "in each call the model read it"


async def test_each_change_is_a_record_that_the_model_does_not_read(world: EngineWorld) -> None:
    engine, id = await filled(world)
    before = await world.store.read(read.read_context, id, profile="main")
    await pin(world, id, 5)
    await pin(world, id, 1)
    await pin(world, id, 1)
    moment = world.context().moment()
    both = await pinned(world, id)
    await world.store.write(pins.unpin_message, id, 5, profile="main", by=None, moment=moment)
    await engine.stop()

    messages = await world.messages(id)
    records = [each for each in messages if RECORD in each.extra]
    assert both == [1, 5]
    assert await pinned(world, id) == [1]
    assert [each.extra[RECORD] for each in records] == [
        {"kind": "pin", "seq": 5},
        {"kind": "pin", "seq": 1},
        {"kind": "unpin", "seq": 5},
    ]
    assert [each.person for each in records] == [ADA, ADA, None]
    assert await world.store.read(read.read_context, id, profile="main") == before


async def test_a_summary_that_someone_gives_keeps_the_pins_too(world: EngineWorld) -> None:
    engine, id = await filled(world)
    await engine.stop()
    await pin(world, id, 5)
    now = world.clock.now()

    await world.store.write(revise.compact, id, "so far", profile="main", through=8, at=now)

    context = await world.store.read(read.read_context, id, profile="main")
    assert [chat["content"] for chat in context][1] == "question 1"


async def test_what_was_compacted_is_read_again_when_it_is_pinned(world: EngineWorld) -> None:
    engine, id = await filled(world)
    await engine.stop()
    now = world.clock.now()
    await world.store.write(revise.compact, id, "so far", profile="main", through=8, at=now)
    before = await world.store.read(read.read_context, id, profile="main")

    for seq in (5, 4, 9):
        await pin(world, id, seq)

    after = await world.store.read(read.read_context, id, profile="main")
    answer = {"role": "assistant", "content": "re: question 0"}
    question = {"role": "user", "content": "question 1"}
    assert after == [before[0], answer, question, *before[1:]]
    found = await asyncio.to_thread(verify.verify, world.store)
    assert found.broken == ()


async def test_what_cannot_be_pinned_is_refused(world: EngineWorld) -> None:
    engine, id = await filled(world, 1)
    await engine.stop()

    for seq in (2, 3, 99):  # a call without words, a tool's result, nothing
        with pytest.raises(NotFound, match=f"no message {seq}"):
            await pin(world, id, seq)
    with pytest.raises(NotFound, match="not pinned"):
        await world.store.write(
            pins.unpin_message,
            id,
            1,
            profile="main",
            by=None,
            moment=world.context().moment(),
        )
    await pin(world, id, 4)
    await world.store.write(revise.retract, id, profile="main", after=3, at=world.clock.now())
    assert await pinned(world, id) == [], "it was taken back"
    with pytest.raises(NotFound):
        await pin(world, id, 4)


async def test_at_most_twenty_messages_are_pinned(world: EngineWorld) -> None:
    engine, id = await filled(world, 1)
    await engine.stop()
    moment = world.context().moment()

    def add_and_pin(tx: Tx, number: int) -> None:
        added = log.append(tx, id, message("user", f"{number}"), profile="main", at=moment.now)
        pins.pin_message(tx, id, added.seq, profile="main", by=None, moment=moment)

    for number in range(pins.MOST_PINS):
        await world.store.write(add_and_pin, number)
    with pytest.raises(Conflict, match="20 messages are pinned"):
        await pin(world, id, 1)


async def test_nothing_is_pinned_while_a_turn_is_running(world: EngineWorld) -> None:
    engine, id = await filled(world, 1)
    await engine.stop()
    claim = turns.Claim("engine-9", 30)
    moment = world.context().moment()
    await world.store.write(
        turns.begin_in_session,
        id,
        message("user", "go"),
        profile="main",
        claim=claim,
        moment=moment,
    )

    with pytest.raises(Conflict, match="turn is running"):
        await pin(world, id, 1)
    assert await pinned(world, id) == []


async def test_a_fork_inherits_the_pins_of_its_history(world: EngineWorld) -> None:
    engine, id = await filled(world)
    await engine.stop()
    await pin(world, id, 1)
    await pin(world, id, 5)
    moment = world.context().moment()

    early = await world.store.write(edit.fork, id, profile="main", moment=moment, at_seq=4)
    late = await world.store.write(edit.fork, id, profile="main", moment=moment)
    first = await world.store.write(edit.fork, id, profile="main", moment=moment, at_seq=1)
    await pin(world, early.id, 4)

    assert await pinned(world, early.id) == [1, 4]
    assert await pinned(world, late.id) == [1, 5]
    assert await pinned(world, first.id) == [1]
    assert await pinned(world, id) == [1, 5], "what is pinned in a fork is not pinned here"


async def test_the_chat_commands(world: EngineWorld) -> None:
    engine, id = await filled(world)

    assert await world.asks(engine, "/pin list") == [
        "Nothing is pinned here. /pin pins your last message."
    ]
    [own] = await world.asks(engine, "/pin")
    [reply] = await world.asks(engine, "/pin 1")
    assert "Pinned “question 2”" in own
    assert "Pinned “re: question 2”" in reply
    assert await world.asks(engine, "/pin list") == ["1. question 2\n2. re: question 2"]
    assert await world.asks(engine, "/unpin 1") == ["Unpinned “question 2”."]
    assert await world.asks(engine, "/unpin 5") == [
        "There is no pinned message 5; /pin list shows what is pinned."
    ]
    assert await world.asks(engine, "/unpin") == ["Unpinned “re: question 2”."]
    assert await world.asks(engine, "/unpin") == ["Nothing is pinned here."]
    assert await world.asks(engine, "/pin 99") == ["Only 6 messages can be pinned here."]
    await engine.stop()
    assert [each.role for each in await world.messages(id)].count(Role.SYSTEM) == 4
