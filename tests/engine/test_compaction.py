"""Compaction by the engine when something comes between: a stop, an undo, a store that is away, a budget."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from sessionary.actions import budgets, turns
from sessionary.actions.sessions import edit, log, read, revise
from sessionary.config.engine import Budget
from sessionary.engine import engine as engine_module
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.engine.turn import compaction
from sessionary.model import transcript
from sessionary.model.message import Compaction, message
from sessionary.model.tokens import estimate
from sessionary.model.transcript import Chat
from sessionary.model.usage import Usage
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, sessions
from sessionary.testing.fakes import moment_of, scripted_agent
from tests.engine.away import AwayStore
from tests.support.engine_world import TIMEOUT_SECONDS, EngineWorld

WINDOW = 2_000
# About 350 tokens: four of them are more than 70 % of the window, three are not.
LONG = "kettle " * 200


@dataclass
class SmallModel:
    """A runner whose model reads little; it fits the context before it answers, as a model agent does."""

    read: list[list[Chat]] = field(default_factory=list)
    answer: str = "yes"

    def window(self, model: str | None = None) -> int | None:
        """The model's window."""
        return WINDOW

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        context = await request.services.fit(window=WINDOW) or request.context
        self.read.append(list(context))
        used = Usage(
            model="small",
            input_tokens=sum(map(transcript.chat_tokens, context)),
            output_tokens=estimate(self.answer),
            call_id=f"call/{request.turn_id}",
        )
        yield Step(message("assistant", self.answer), used)

    async def close(self) -> None:
        """Do nothing."""


@dataclass
class Summaries:
    """A summarizer that a test can hold back."""

    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    at_asked: Callable[[], None] = lambda: None
    asked: int = 0

    async def summarize(self, context: object, **_: Any) -> tuple[str, Usage]:
        self.asked += 1
        self.is_asked.set()
        self.at_asked()
        await self.gate.wait()
        used = Usage(model="small", input_tokens=500, output_tokens=7, task="summary")
        return "They spoke.", used


@pytest.fixture
def summaries() -> Summaries:
    found = Summaries()
    found.gate.set()
    return found


@pytest.fixture
def model(world: EngineWorld, summaries: Summaries) -> SmallModel:
    found = SmallModel()
    agent = replace(scripted_agent(found), summarizer=summaries)
    world.use(agent_for=lambda _, __: agent)
    return found


async def nearly_full(world: EngineWorld) -> Engine:
    """An engine, with a session whose context is a little below the threshold."""
    engine = await world.started()
    for _ in range(3):
        await world.asks(engine, LONG)
    return engine


async def compactions(world: EngineWorld) -> list[Compaction]:
    head = await world.head()
    found = await world.store.read(
        entries.marks, await world.store.read(sessions.segments, head.no)
    )
    return [mark.body for mark in found if isinstance(mark.body, Compaction)]


async def test_a_stop_does_not_wait_for_the_summary_after_a_turn(
    world: EngineWorld,
    model: SmallModel,
    summaries: Summaries,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "STOP_SECONDS", 2 * TIMEOUT_SECONDS)
    summaries.gate.clear()
    engine = await nearly_full(world)
    model.answer = LONG
    await world.says(engine, "hello", number="last")
    await summaries.is_asked.wait()

    async with asyncio.timeout(TIMEOUT_SECONDS):
        await engine.stop()

    assert await compactions(world) == []
    summaries.gate.set()
    engine = await world.started()
    await world.asks(engine, "hello")
    await engine.stop()
    assert len(await compactions(world)) == 1
    assert {turn.state for turn in await world.turns()} == {"done"}


async def test_what_is_taken_back_while_it_is_summarized_stays_out_of_the_context(
    world: EngineWorld, model: SmallModel, summaries: Summaries
) -> None:
    engine = await nearly_full(world)
    summaries.gate.clear()
    model.answer = LONG
    await world.says(engine, "a secret", number="secret")
    await summaries.is_asked.wait()
    head = await world.head()

    await world.store.write(revise.undo, head.id, profile="main", rounds=1, at=world.clock.now())
    summaries.gate.set()
    await world.settle(engine)
    model.answer = "yes"
    await world.asks(engine, "hello")
    await engine.stop()

    assert await compactions(world) == []
    assert "secret" not in str(model.read[-1])


async def test_undo_back_before_a_compaction_brings_back_what_it_replaced(
    world: EngineWorld, model: SmallModel
) -> None:
    engine = await world.started()
    for text in ("one", "two", LONG, LONG, LONG, LONG):
        await world.asks(engine, text)
    assert len(await compactions(world)) == 1

    await world.asks(engine, "/undo 5")
    await world.asks(engine, "five")
    await engine.stop()

    assert [chat["content"] for chat in model.read[-1]] == ["one", "yes", "five"]


@pytest.mark.parametrize(
    "action", [compaction.read_session_context, compaction.store_compaction], ids=["read", "write"]
)
async def test_a_compaction_in_a_turn_waits_for_the_store(
    store: Store, world: EngineWorld, model: SmallModel, summaries: Summaries, action: Any
) -> None:
    away = AwayStore(store)
    world.use(store=away)
    engine = await nearly_full(world)
    away.is_away, away.away = True, frozenset({action})
    await world.says(engine, LONG, number="last")
    await world.until(lambda: away.refused > 2)
    away.is_away = False
    await world.settle(engine)
    await engine.stop()

    assert {turn.state for turn in await world.turns()} == {"done"}
    assert len(await compactions(world)) == 1
    assert summaries.asked == 1


async def test_a_compaction_whose_answer_is_lost_is_not_written_twice(
    store: Store, world: EngineWorld, model: SmallModel
) -> None:
    away = AwayStore(store)
    world.use(store=away)
    engine = await nearly_full(world)
    away.loses.add(compaction.store_compaction)
    await world.asks(engine, LONG)
    await engine.stop()

    assert {turn.state for turn in await world.turns()} == {"done"}
    assert len(await compactions(world)) == 1


async def used_tokens(world: EngineWorld) -> int:
    [status] = await world.store.read(
        budgets.list_status, world.settings.budgets, profile="main", now=world.clock.now()
    )
    return status.used_tokens


@pytest.mark.parametrize("how", ["after", "within", "asked"])
async def test_what_a_summary_uses_counts_against_the_budget(
    world: EngineWorld, model: SmallModel, how: str
) -> None:
    world.settings = replace(world.settings, budgets={"person": Budget(tokens=10**6)})
    engine = await nearly_full(world)
    match how:
        case "within":
            await world.asks(engine, LONG)
        case "after":
            model.answer = LONG
            await world.asks(engine, "hello")
        case _:
            await world.asks(engine, "/compact")
            await world.until(lambda: "Compacted" in world.adapter.sent[-1][1])
    await engine.stop()

    assert len(await compactions(world)) == 1
    head = await world.head()
    counted = head.usage.input_tokens + head.usage.output_tokens
    assert counted > 507
    assert await used_tokens(world) == counted


async def test_a_turn_whose_summary_uses_up_its_budget_ends_before_the_model_is_called(
    world: EngineWorld, model: SmallModel
) -> None:
    # The three turns before use about 2,200.
    world.settings = replace(world.settings, budgets={"person": Budget(tokens=2_500)})
    engine = await nearly_full(world)
    told = await world.asks(engine, LONG)
    await engine.stop()

    assert [turn.state for turn in await world.turns()] == ["done", "done", "done", "failed"]
    assert len(model.read) == 3
    assert "budget" in " ".join(told)


async def test_a_turn_that_goes_on_still_knows_its_prompts(world: EngineWorld) -> None:
    """A compaction keeps them word for word."""
    engine = await world.started()
    await world.asks(engine, "hello")
    await engine.stop()
    head, moment = await world.head(), moment_of(world.clock, world.ids)
    claim = turns.Claim("engine-9", 30, resumable=True)
    begun = await world.store.write(
        turns.begin_in_session,
        head.id,
        message("user", "the task"),
        profile="main",
        claim=claim,
        moment=moment,
    )
    await world.store.write(turns.release, begun.lease, reason="the server stopped")

    taken = await world.store.write(
        turns.take_over, begun.lease.turn_id, claim=claim, attempts=3, moment=moment
    )

    assert isinstance(taken, turns.Begun)
    assert taken.resumption is not None
    assert taken.resumption.prompts == tuple(each.seq for each in begun.prompts)


@pytest.mark.parametrize("seed", range(5))
async def test_the_marks_in_effect_are_those_that_all_marks_lead_to(
    store: Store, world: EngineWorld, seed: int
) -> None:
    """Of many compactions only one is read; forks and retractions change which."""
    rng, moment = Random(seed), moment_of(world.clock, world.ids)

    def grow(tx: Tx, id: str) -> None:
        for _ in range(40):
            last = sessions.get(tx, id, profile="main").last_seq  # type: ignore[union-attr]
            match rng.randrange(5) if last > 3 else 0:
                case 1:
                    revise.compact(
                        tx, id, "sum", profile="main", through=rng.randint(1, last), at=moment.now
                    )
                case 2:
                    after = rng.randint(max(0, last - 8), last - 1)
                    revise.retract(tx, id, profile="main", after=after, at=moment.now)
                case _:
                    log.append(tx, id, message("user", "tea"), profile="main", at=moment.now)

    def compare(tx: Tx, id: str) -> None:
        head = read.get_head(tx, id, profile="main")
        for through in range(1, head.last_seq + 1):
            segments = sessions.segments(tx, head.no, through=through)
            everything = entries.marks(tx, segments)
            found = entries.marks_in_effect(tx, segments)
            assert transcript.latest_compaction(found) == transcript.latest_compaction(everything)
            assert transcript.retracted(found) == transcript.retracted(everything)
            assert len([mark for mark in found if isinstance(mark.body, Compaction)]) <= 1

    engine = await world.started()
    await world.asks(engine, "hello")
    await engine.stop()
    head = await world.head()
    await store.write(grow, head.id)
    child = await store.write(edit.fork, head.id, profile="main", moment=moment)
    await store.write(grow, child.id)

    await store.read(compare, head.id)
    await store.read(compare, child.id)
