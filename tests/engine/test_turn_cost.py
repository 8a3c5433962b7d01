"""What a turn costs the database: statements, commits, write jobs and round trips, which must not creep up."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.model.message import message
from sessionary.store.database import Pending, Store
from sessionary.store.open import open_store
from tests.support.crash import CrashingStore, CrashPoint
from tests.support.engine_world import QUICK, TIMEOUT_SECONDS, EngineWorld
from tests.support.statement_counter import StatementCounter, counted_postgres, counted_sqlite

TURNS = 20


@dataclass(frozen=True, slots=True)
class TurnCost:
    """The most that a turn may cost."""

    statements: float
    commits: float
    write_jobs: float
    reads: float
    # SQLite has none.
    round_trips: float = 0.0

    def __str__(self) -> str:
        counts = f"{self.statements:g} statements in {self.commits:g} transactions"
        jobs = f"{self.write_jobs:g} write jobs, {self.reads:g} reads"
        return f"{counts}, {jobs}, {self.round_trips:g} round trips"


LIMITS = {
    "sqlite": TurnCost(statements=13.5, commits=3.5, write_jobs=3.5, reads=0.5),
    # There a transaction that only reads is committed, too.
    "postgres": TurnCost(statements=14.5, commits=3.5, write_jobs=3.5, reads=0.5, round_trips=9),
}


class CountingStore(CrashingStore):
    """Counts the calls of a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, CrashPoint())
        self.writes: list[Pending[Any]] = []
        self.reads: list[Pending[Any]] = []

    def write(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Count it."""
        self.writes.append(self._store.write(action, *args, **kwargs))
        return self.writes[-1]

    def read(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Count it."""
        self.reads.append(self._store.read(action, *args, **kwargs))
        return self.reads[-1]

    async def finish(self) -> None:
        """Wait until everything that was called has its outcome."""
        while open_calls := [each for each in (*self.writes, *self.reads) if not each._done]:
            await open_calls[0].wait_uncancellable()


@pytest.fixture
def counter() -> StatementCounter:
    return StatementCounter()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(
    database: str, counter: StatementCounter, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[CountingStore]:
    with ExitStack() as stack:
        if database == "sqlite":
            stack.enter_context(counted_sqlite(counter))
            url = str(tmp_path / "sessionary.db")
        else:
            given = request.getfixturevalue("migrated_url")
            url = stack.enter_context(counted_postgres(given, counter))
        opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
        stack.callback(opened.close)
        yield CountingStore(opened)


def _echo(request: TurnRequest) -> list[Event]:
    text = str(request.context[-1]["content"])
    return [Delta(text), Step(message("assistant", text, finish_reason="stop"))]


async def test_a_turn_costs_no_more_than_it_did(
    store: CountingStore,
    counter: StatementCounter,
    database: str,
    record_property: Callable[[str, object], None],
) -> None:
    # Only what a turn causes is counted: nothing polls meanwhile.
    rarely = replace(QUICK, poll_seconds=300, sweep_seconds=300, lease_seconds=3000)
    world = EngineWorld(store, settings=rarely)
    world.runner.answer = _echo
    engine = await world.started()

    async def turn(number: int) -> None:
        await world.says(engine, f"hello {number}", number=str(number))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await world.until(lambda: len(world.adapter.sent) > number and not engine.turns.turns)
            # What the end of a turn wakes up begins in the next rounds of the event loop.
            for _ in range(20):
                await store.finish()
                await asyncio.sleep(0)

    for number in range(5):
        await turn(number)
    # Nothing is asked for a title any more.
    await world.says(engine, "/title A conversation", number="title")
    await world.until(lambda: len(world.adapter.sent) == 6)
    world.adapter.sent.pop()
    await store.finish()
    counter.clear()
    store.writes.clear()
    store.reads.clear()
    for number in range(5, 5 + TURNS):
        await turn(number)
    cost = TurnCost(
        counter.statements / TURNS,
        counter.commits / TURNS,
        len(store.writes) / TURNS,
        len(store.reads) / TURNS,
        counter.round_trips / TURNS if database == "postgres" else 0.0,
    )
    found = "\n".join(f"{count / TURNS:5.2f} {name}" for name, count in counter.names.most_common())
    print(f"a turn on {database}:\n{found}")
    record_property("turn cost", str(cost))
    await engine.stop()

    limit = LIMITS[database]
    assert cost.statements <= limit.statements, found
    assert cost.commits <= limit.commits, found
    assert cost.write_jobs <= limit.write_jobs
    assert cost.reads <= limit.reads
    assert cost.round_trips <= limit.round_trips, found
