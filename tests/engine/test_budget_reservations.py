"""A running turn reserves what it is expected to use: asking at once passes no budget."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from sessionary.actions import verify
from sessionary.actions.budgets import periods
from sessionary.actions.inbox import receive
from sessionary.clock import RandomIds, SystemClock
from sessionary.config.engine import Budget
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.engine.turn import loop
from sessionary.model.access import BudgetUse
from sessionary.model.message import message, text_of
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.store.tables import access, deliveries, upkeep
from tests.engine.engine_child import TOKENS_PER_TURN
from tests.support.engine_world import QUICK, TIMEOUT_SECONDS, EngineWorld
from tests.support.fork_server import ForkedProcess, ForkServer

CHATS = 15


class GatedRunner:
    """Uses 60 tokens per turn, once the test opens the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.running = 0

    async def run(self, _: TurnRequest) -> AsyncIterator[Event]:
        self.running += 1
        await self.gate.wait()
        used = Usage(model="scripted", input_tokens=TOKENS_PER_TURN)
        yield Step(message("assistant", "done"), used)

    async def close(self) -> None:
        """Nothing is held."""


def limited(store: Store, budget: Budget) -> EngineWorld:
    return EngineWorld(store, settings=replace(QUICK, budgets={"person": budget}))


async def spent(world: EngineWorld, scope: str = "person:loopback:u") -> BudgetUse:
    day = periods(world.clock.now())[0]
    return await world.store.read(access.get_budget_use, scope, day, profile="main")


@pytest.mark.parametrize(
    ("reserve", "at_once", "tokens"),
    # Without a setting one turn reserves all that is left of so small a budget.
    [(None, 1, 120), (TOKENS_PER_TURN, 2, 120), (10, 10, 600)],
)
async def test_chats_of_one_person_at_once_keep_to_their_budget(
    store: Store, reserve: int | None, at_once: int, tokens: int
) -> None:
    """15 chats, a budget of 100, 60 tokens per turn, two engines: passed only by what reservations lacked."""
    world = limited(store, Budget(tokens=100, reserve_tokens=reserve))
    runner = GatedRunner()
    engines = [await world.started(runner=runner) for _ in range(2)]
    asked = [
        world.says(engines[chat % 2], "hello", chat=str(chat), number=str(chat))
        for chat in range(CHATS)
    ]
    await asyncio.gather(*asked)
    await world.until(lambda: runner.running == at_once)
    meanwhile = await spent(world)
    runner.gate.set()
    await world.settle(engines[0])
    for engine in engines:
        await engine.stop()
    after = await spent(world)

    assert meanwhile.tokens + meanwhile.reserved_tokens <= 100
    assert after.tokens == tokens
    assert (after.reserved_tokens, after.reserved_microusd) == (0, 0)
    notices = [text for _, text in world.adapter.sent if text.startswith("The budget")]
    assert len(notices) == CHATS - tokens // TOKENS_PER_TURN, "every refused message got a reason"


async def test_money_is_reserved_as_tokens_are(store: Store) -> None:
    """A budget of 1 dollar, 60 cents reserved by each turn: the second gets the rest, the third waits."""
    budget = Budget(microusd=1_000_000, reserve_microusd=600_000)
    world = limited(store, budget)
    runner = GatedRunner()
    engine = await world.started(runner=runner)
    for chat in "123":
        await world.says(engine, "hello", chat=chat, number=chat)
    await world.until(lambda: runner.running == 2)
    meanwhile = await spent(world)
    runner.gate.set()
    await world.settle(engine)
    await engine.stop()

    assert meanwhile.reserved_microusd == 1_000_000
    assert runner.running == 3, "nothing was used, so the waiting messages were answered"


async def test_a_step_moves_its_use_from_the_reservation(store: Store) -> None:
    """What was used is not counted twice while the turn goes on."""
    world = limited(store, Budget(tokens=1000, reserve_tokens=100))
    gate = asyncio.Event()

    class TwoCalls(GatedRunner):
        async def run(self, _: TurnRequest) -> AsyncIterator[Event]:
            call = {"type": "tool_call", "id": "c", "name": "look", "arguments": {}}
            yield Step(message("assistant", [call]), Usage(model="m", input_tokens=30))
            self.running += 1
            await gate.wait()
            found = {"type": "tool_result", "call_id": "c", "name": "look", "content": "42"}
            yield Step(message("tool", [found]))
            yield Step(message("assistant", "done"), Usage(model="m", input_tokens=200))

    runner = TwoCalls()
    engine = await world.started(runner=runner)
    await world.says(engine, "hello")
    await world.until(lambda: runner.running == 1)
    meanwhile = await spent(world)
    gate.set()
    await world.settle(engine)
    await engine.stop()

    assert (meanwhile.tokens, meanwhile.reserved_tokens) == (30, 70)
    assert (await spent(world)).tokens == 230
    assert (await spent(world)).reserved_tokens == 0


@pytest.mark.parametrize("how", ["stopped", "failed", "killed"])
async def test_a_turn_that_does_not_finish_frees_what_it_reserved(store: Store, how: str) -> None:
    world = limited(store, Budget(tokens=100))
    if how == "killed":
        # The state that a process leaves behind that is killed right after its turn began.
        context, source = world.context(), world.source("dead", "1")
        key = context.key(source)
        await store.write(receive, key, source, message("user", "hello"), moment=context.moment())
        begun = await store.write(loop.begin, key, context=context, moment=context.moment())
        assert begun.begun is not None
    else:

        class Failing(GatedRunner):
            async def run(self, _: TurnRequest) -> AsyncIterator[Event]:
                self.running += 1
                yield Delta("one moment")
                await self.gate.wait()
                raise ValueError("broken")

        runner = Failing()
        engine = await world.started(runner=runner)
        await world.says(engine, "hello", chat="dead")
        await world.until(lambda: runner.running == 1)
        if how == "stopped":
            await engine.stop()
        else:
            runner.gate.set()
            await world.settle(engine)
            await engine.stop()
    before = await spent(world)
    engine = await world.started()
    world.clock.tick(QUICK.lease_seconds + 1)
    await world.says(engine, "after", chat="2", number="2")
    await world.settle(engine)
    await engine.stop()

    assert before.reserved_tokens == (100 if how == "killed" else 0)
    assert "re: after" in world.adapter.texts("loopback:2")
    assert (await world.turns("dead"))[0].state is not TurnState.RUNNING
    assert (await spent(world)).reserved_tokens == 0


async def test_a_message_that_waits_for_a_budget_keeps_its_place(store: Store) -> None:
    """Nobody behind it in the same conversation overtakes it."""
    world = limited(store, Budget(tokens=100))
    thread = {"chat_type": "group", "thread_id": "t"}
    runner = GatedRunner()
    engine = await world.started(runner=runner)
    await world.says(engine, "elsewhere", chat="2", number="0")
    await world.until(lambda: runner.running == 1)
    await world.says(engine, "first", number="1", **thread)
    await world.says(engine, "second", number="2", user_id="v", user_name="v", **thread)
    found = await store.read(upkeep.backlog)
    runner.gate.set()
    await world.settle(engine)
    await engine.stop()

    assert found.waiting_arrivals == 2
    assert [text for text in await world.texts(**thread) if text != "done"] == ["first", "second"]


async def test_messages_that_wait_for_a_budget_keep_nobody_else_waiting(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many chats of one person wait, another person's second message is found behind them."""
    monkeypatch.setattr(loop, "KEYS_PER_ROUND", 2)
    world = limited(store, Budget(tokens=100))
    runner = GatedRunner()
    engine = await world.started(runner=runner)
    for chat in range(9):
        await world.says(engine, "mine", chat=f"m{chat}", number=f"m{chat}")
    await world.until(lambda: runner.running == 1)
    hers = {"user_id": "v", "user_name": "v"}
    context, source = world.context(), world.source("hers", "1", **hers)
    await store.write(
        receive, context.key(source), source, message("user", "hello"), moment=context.moment()
    )

    await world.until(lambda: runner.running == 2)

    assert (await store.read(upkeep.backlog)).waiting_arrivals == 8
    runner.gate.set()
    await world.settle(engine)
    await engine.stop()
    # With it comes a warning about the budget: before it, if the machine is slow.
    assert "done" in world.adapter.texts("loopback:hers")


def test_a_reservation_without_its_turn_is_found_and_taken_away(store: Store) -> None:
    store.write(
        access.insert_reservation, "gone", "person:a:b", profile="main", tokens=5, cost_microusd=0
    ).result()

    found = verify.verify(store).broken
    rebuilt = verify.rebuild(store)

    assert [each.where for each in found] == ["person:a:b"]
    assert (rebuilt, verify.verify(store).broken) == (1, ())


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    found: str = request.getfixturevalue("migrated_url")
    return found


@pytest.mark.parametrize("is_killed", [False, True])
def test_two_processes_keep_to_one_budget_although_one_is_killed(
    url: str, tmp_path: Path, *, is_killed: bool
) -> None:
    """80 chats of one person in two processes; 16 turns of 60 tokens fit into 1,000, the 17th passes it by 20."""
    store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    arrivals = [f"{number}.0" for number in range(80)]
    # No turn loses its lease on a busy machine; what the dead hold is free again after five seconds.
    order = {"person": "u", "budget_tokens": 1000, "lease_seconds": 5 if is_killed else 600}
    # The middle of a month, so that the budget does not begin again during the test.
    now = SystemClock().now()
    clock_days = 15 - now.day
    month = periods(now + timedelta(days=clock_days))[1]
    with ForkServer(tmp_path, "tests.engine.engine_child") as forks:
        first = forks.fork(url, arrivals=arrivals[:40], clock_days=clock_days, **order)
        second = forks.fork(url, arrivals=arrivals[40:], clock_days=clock_days, **order)
        if is_killed:
            until = time.monotonic() + TIMEOUT_SECONDS
            while not second.lines():  # it has taken in its first message
                assert time.monotonic() < until, "the second process took nothing in"
                time.sleep(0.002)
            forks.kill(second)
            _until_quiet(store, first, len(arrivals) // 2)
        else:
            _until_quiet(store, first, len(arrivals) // 2)
            _until_quiet(store, second, len(arrivals) // 2)
    found = store.read(access.get_budget_use, "person:loopback:u", month, profile="main").result()
    sent = store.read(deliveries.list_page, profile="main", before=2**62, limit=500).result()
    store.close()
    texts = [text_of(each.parts) for each in sent]
    warned = sorted(int(text.partition(" %")[0]) for text in texts if "% of the budget" in text)

    assert found.reserved_tokens == 0
    if is_killed:
        # A turn that was killed may have used half: then the last one passes the budget by more.
        assert found.tokens < 1000 + TOKENS_PER_TURN
        assert len(warned) == len(set(warned)), "nobody was warned twice"
    else:
        assert found.tokens == 1020
        assert warned == [50, 80, 100]


def _until_quiet(store: Store, living: ForkedProcess, came: int) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while True:
        found = store.read(upkeep.backlog).result()
        acknowledged = sum("ack" in line for line in living.lines())
        is_busy = found.waiting_arrivals or found.running_turns or found.open_deliveries
        if acknowledged == came and not is_busy:
            return
        assert living.is_alive(), living.lines()[-1:]
        assert time.monotonic() < until, f"not quiet: {found}, {acknowledged} messages came"
        time.sleep(0.05)
