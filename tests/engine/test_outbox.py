"""What waits in the outbox outlives a platform that is away, and a key that is refused."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sessionary.actions import outbox
from sessionary.clock import RandomIds, SystemClock
from sessionary.engine.ports import Capabilities
from sessionary.errors import NotAllowed, RetryLater
from sessionary.model.message import Text
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.tables.deliveries import SentMark
from sessionary.testing.fakes import FakeClock, SequentialIds, moment_of
from tests.support.engine_world import QUICK, EngineWorld

OUTAGE = timedelta(minutes=10)


async def outage(world: EngineWorld, error: BaseException) -> int:
    """A message is answered while its platform fails for ten minutes; how often it was tried."""
    tries = []
    back = world.clock.now() + OUTAGE

    def fails(delivery: Delivery) -> BaseException | None:
        tries.append(delivery.attempts)
        return error if world.clock.now() < back else None

    world.adapter.before = fails
    engine = await world.started()
    await world.says(engine, "hello")
    await world.until(lambda: bool(tries))
    while world.clock.now() < back + OUTAGE and not world.adapter.sent:
        await world.until_outbox_is_idle()
        world.clock.tick(20)
    await world.settle(engine)
    await engine.stop()
    return len(tries)


async def test_a_platform_that_is_away_for_ten_minutes_gets_what_waits(world: EngineWorld) -> None:
    """F13: that it may be asked again at once does not use up all tries at once."""
    await outage(world, RetryLater("it cannot be reached", after=1))

    assert world.adapter.texts("loopback:1") == ["re: hello"]


async def test_what_waits_for_a_refused_key_goes_out_once_it_is_good_again(
    world: EngineWorld,
) -> None:
    """F13: the owner is notified that nothing is lost."""
    tried = await outage(world, NotAllowed("the token is refused; nothing is lost"))

    assert world.adapter.texts("loopback:1") == ["re: hello"]
    assert tried > 1


async def test_a_reply_waits_for_what_is_open_in_its_channel(world: EngineWorld) -> None:
    refused: list[str] = []

    def refuses_once(delivery: Delivery) -> BaseException | None:
        refused.append(delivery.id)
        return RetryLater("slow down", after=40) if len(refused) == 1 else None

    world.adapter.before = refuses_once
    engine = await world.started()
    channel = world.source().channel
    assert channel is not None
    moment = moment_of(world.clock, world.ids)
    await world.store.write(
        outbox.enqueue, channel, (Text("first"),), profile="main", moment=moment
    )
    await world.until(lambda: bool(refused))
    await world.until_outbox_is_idle()
    await world.says(engine, "hello")
    await world.eventually(lambda: _has(world, deliveries=2))
    world.clock.tick(41)
    await world.settle(engine)
    await engine.stop()

    assert world.adapter.texts("loopback:1") == ["first", "re: hello"]


async def test_the_pieces_of_a_long_reply_are_sent_in_order(world: EngineWorld) -> None:
    world.adapter.capabilities = Capabilities(longest_text=10)
    engine = await world.started()
    for number in range(3):
        await world.asks(engine, f"{number} " + " ".join(f"word{each}" for each in range(9)))
    await engine.stop()

    sent = "".join(world.adapter.texts("loopback:1"))
    words = "".join(f"word{each}" for each in range(9))
    assert sent.replace(" ", "") == "".join(f"re:{number}{words}" for number in range(3))


async def test_a_reply_is_being_sent_when_it_is_written(world: EngineWorld) -> None:
    seen: list[DeliveryState] = []

    def look(delivery: Delivery) -> None:
        found = world.store.read(outbox.find, delivery.id, profile="main").result()
        assert (found.no, found.attempts, found.parts) == (delivery.no, 1, delivery.parts)
        seen.append(found.state)

    world.adapter.before = look
    engine = await world.started()
    await world.asks(engine, "hello")
    await world.asks(engine, "again")
    await engine.stop()

    assert seen == [DeliveryState.SENDING] * 2
    assert [each.state for each in await world.deliveries()] == [DeliveryState.SENT] * 2


async def test_a_reply_that_is_added_while_the_one_before_is_marked_is_sent_at_once(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL neither transaction sees the other: the mark finds nothing more, the reply waits for the mark."""
    store = open_store(migrated_url, create=True, clock=SystemClock(), ids=RandomIds())
    has_marked, may_commit = threading.Event(), threading.Event()
    mark_all_sent, claim, claims = outbox.mark_all_sent, outbox.claim, []

    def mark_and_wait(tx: Tx, marks: Sequence[SentMark], *, holder: str) -> bool:
        found = mark_all_sent(tx, marks, holder=holder)
        has_marked.set()
        may_commit.wait()
        return found

    def note_claim(tx: Tx, **facts: Any) -> list[Delivery]:
        claimed = claim(tx, **facts)
        claims.append(claimed)
        return claimed

    monkeypatch.setattr(outbox, "mark_all_sent", mark_and_wait)
    monkeypatch.setattr(outbox, "claim", note_claim)
    world = EngineWorld(store, settings=replace(QUICK, poll_seconds=300))
    try:
        engine = await world.started()
        await world.says(engine, "first", number="1")
        await world.until(has_marked.is_set)
        claims.clear()
        await world.says(engine, "second", number="2")
        await world.until(lambda: bool(claims))
        assert claims[0] == [], "the first one is still being sent"
        may_commit.set()
        await world.until(lambda: len(world.adapter.sent) == 2)
        await engine.stop()
    finally:
        may_commit.set()
        store.close()


async def test_marks_are_written_for_all_that_this_process_still_holds(store: Store) -> None:
    clock, ids = FakeClock(), SequentialIds()
    channels = [Channel("loopback", str(number)) for number in range(3)]
    for channel in (*channels, channels[0]):
        moment = moment_of(clock, ids)
        await store.write(outbox.enqueue, channel, (Text("x"),), profile="main", moment=moment)
    claimed = await store.write(outbox.claim, holder="a", seconds=60, now=clock.now())
    await store.write(outbox.abandon, claimed[2].id, reason="given up")
    marks = [SentMark(each.id, clock.now(), None) for each in claimed]

    assert await store.write(outbox.mark_all_sent, marks[1:], holder="a") is False
    assert await store.write(outbox.mark_all_sent, marks[:1], holder="another") is False
    assert await store.write(outbox.mark_all_sent, marks[:1], holder="a") is True, "one waits"
    states = [(await store.read(outbox.find, each.id, profile="main")).state for each in claimed]
    assert states == [DeliveryState.SENT, DeliveryState.SENT, DeliveryState.ABANDONED]


async def _has(world: EngineWorld, *, deliveries: int) -> bool:
    return len(await world.deliveries()) == deliveries
