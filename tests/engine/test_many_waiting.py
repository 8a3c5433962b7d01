"""Thousands of turns that wait for people: they are rows, and nothing else."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sessionary.actions import turns
from sessionary.actions.sessions import edit
from sessionary.config.engine import AccessPolicy
from sessionary.engine import questions
from sessionary.engine.context import EngineContext
from sessionary.engine.policy import Asking
from sessionary.model.message import message
from sessionary.model.question import NewQuestion, QuestionKind
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.store.database import Store, Tx
from sessionary.store.tables import upkeep
from tests.support.engine_world import QUICK, EngineWorld
from tests.support.statement_counter import counted_sqlite_steps

TURNS = 10_000
ROUNDS = 20
SEND = NewQuestion(
    name="1", kind=QuestionKind.APPROVAL, text="", tool="send", arguments={"to": "Ann"}
)
Record = Callable[[str, object], None]


@pytest.fixture
def sqlite_steps() -> Iterator[Callable[[], int]]:
    """How many steps SQLite has taken. A test must ask for it before its store; on PostgreSQL it tells nothing."""
    with counted_sqlite_steps() as steps:
        yield steps


def ask_many(tx: Tx, context: EngineContext, first: int, count: int) -> None:
    """Open sessions whose turn has asked something, and waits."""
    moment = context.moment()
    for number in range(first, first + count):
        source = Source("web", f"w{number}")
        id = edit.open_session(tx, Opening("main", source), moment=moment)
        begun = turns.begin_in_session(
            tx,
            id,
            message("user", "go"),
            profile="main",
            claim=turns.Claim(context.holder, 30, "assistant", resumable=True),
            moment=moment,
        )
        asking = Asking((source,), "assistant")
        questions.park(tx, begun.lease, [SEND], asking=asking, context=context, moment=moment)


@pytest.mark.timeout(900)  # on a loaded machine the writing of the turns takes minutes
async def test_ten_thousand_waiting_turns_hold_no_memory_and_cost_nothing_per_sweep(
    sqlite_steps: Callable[[], int], store: Store, record_property: Record
) -> None:
    settings = replace(
        QUICK, sweep_seconds=300, poll_seconds=300, access={"loopback": AccessPolicy(everyone=True)}
    )
    world = EngineWorld(store, settings=settings)
    engine = await world.started()
    context = world.context()

    async def rounds() -> tuple[float, float]:
        """Return SQLite's steps for one sweep and one look for turns to continue, and the memory that is held after."""
        await engine.sweeper.sweep()
        gc.collect()
        before = sqlite_steps()
        for _ in range(ROUNDS):
            await engine.sweeper.sweep()
            await store.read(turns.list_released, profile="main", limit=64)
        gc.collect()
        return (sqlite_steps() - before) / ROUNDS, tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        steps_alone, memory_alone = await rounds()
        for first in range(0, TURNS, 500):
            await store.write(ask_many, context, first, 500)
        steps, memory = await rounds()
    finally:
        tracemalloc.stop()
    await engine.stop()

    assert (await store.read(upkeep.backlog)).running_turns == 0
    grown = memory - memory_alone
    record_property(
        "waiting",
        f"{TURNS:,} waiting turns: "
        + (
            f"SQLite's steps per sweep {steps_alone:.0f} without them, {steps:.0f} with them; "
            * bool(steps)
        )
        + f"Python's memory {grown / 1024:+.0f} kB, {grown / TURNS:.1f} bytes for each turn",
    )
    # One turn in memory would be thousands of bytes.
    assert grown < 100 * TURNS
    assert steps <= steps_alone * 1.1 + 50
