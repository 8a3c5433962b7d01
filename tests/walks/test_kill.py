"""Killed at any instant, a process leaves a record in which every answer it gave is true."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from sessionary.actions import inbox, turns, verify
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.model.message import message
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.support.dead_turns import interrupt_dead_turns
from tests.support.fork_server import ForkedProcess, ForkServer
from tests.support.postgres import Server
from tests.walks.history import History, Verdict, judge, read_all
from tests.walks.writing_child import CHATS, NEVER, PROFILE, key_of, source_of

SEED = 20240607
THREADS = 3
AT_ONCE = 2


@dataclass
class Tally:
    """What the whole test has seen."""

    kills: int = 0
    acknowledged: int = 0
    unanswered: int = 0
    interrupted: int = 0

    def __str__(self) -> str:
        return (
            f"kills={self.kills} acknowledged={self.acknowledged} unanswered={self.unanswered} "
            f"interrupted={self.interrupted} lost=0 doubled=0 half-done=0"
        )


@dataclass
class Generation:
    """One store, and the processes that have written to it."""

    url: str
    forks: ForkServer
    rng: random.Random
    children: list[ForkedProcess] = field(default_factory=list)
    running: list[ForkedProcess] = field(default_factory=list)

    def start_one(self) -> None:
        dead = [child for child in self.children if child not in self.running]
        lost_answers = self.history(dead[-1:]).unanswered_appends()
        child = self.forks.fork(
            self.url, threads=THREADS, seed=self.rng.randrange(2**30), retry=lost_answers
        )
        self.children.append(child)
        self.running.append(child)

    def wait_for_answers(self) -> None:
        """Wait until each running process has had an answer, even on a busy machine."""
        until = time.monotonic() + 20
        while any(len(child.lines()) < 5 for child in self.running) and time.monotonic() < until:
            self.forks.let_run(0.005)

    def kill_one(self) -> None:
        child = self.rng.choice(self.running)
        self.forks.kill(child)
        self.running.remove(child)

    def history(self, children: list[ForkedProcess]) -> History:
        return History.of(line for child in children for line in child.lines())

    def check(self) -> Verdict | None:
        """Check what is stored now, while the running processes go on writing."""
        before = self.history(self.children)
        assert before.crashes == []
        if not before.answered:
            return None  # no process has opened the store yet
        with opened(self.url) as store:
            stored = store.read(read_all, before.received()).result()
            checked = verify.verify(store)
        verdict = judge(before, stored, self.history(self.children))
        assert verdict.complaints() == {}
        assert checked.broken == ()
        return verdict


class opened:  # noqa: N801
    """A store for the length of a block: between checks the test has no connection of its own."""

    def __init__(self, url: str) -> None:
        self._store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *_: object) -> None:
        self._store.close()


def kill_again_and_again(generation: Generation, kills: int, tally: Tally) -> None:
    while kills > 0:
        while len(generation.running) < AT_ONCE:
            generation.start_one()
        if generation.rng.random() < 0.7:
            generation.wait_for_answers()  # the rest may die while they open the store
        both = generation.rng.random() < 0.3 and kills > 1
        pause = generation.rng.choice((0.02, 0.1, 0.25)) * generation.rng.random()
        generation.forks.let_run(pause)
        for _ in range(2 if both else 1):
            generation.kill_one()
            kills -= 1
            tally.kills += 1
        generation.check()
    while generation.running:
        generation.kill_one()
        tally.kills += 1
    verdict = generation.check()
    history = generation.history(generation.children)
    tally.acknowledged += 0 if verdict is None else verdict.acknowledged
    tally.unanswered += len(history.tried) - len(history.answered) - len(history.refused)


def go_on(generation: Generation) -> int:
    """Sweep the leases of the dead, then take a turn in every chat; how many turns were dead."""
    with opened(generation.url) as store:
        later = Moment(SystemClock().now() + timedelta(hours=1), RandomIds())
        dead = store.write(interrupt_dead_turns, moment=later).result()
        claim = turns.Claim("the running", 30)
        for chat in range(CHATS):
            key, prompt = key_of(chat), message("user", f"alive {chat}")
            store.write(inbox.receive, key, source_of(chat), prompt, moment=later).result()
            begun = store.write(turns.begin, key, policy=NEVER, claim=claim, moment=later).result()
            assert begun is not None
            assert begun.prompts[-1].seq > 0
            store.write(
                turns.end, begun.lease, turns.Ending(), profile=PROFILE, moment=later
            ).result()
        assert verify.verify(store).broken == ()
        return len(dead)


def run(urls: Iterator[str], folder: Path, *, generations: int, kills: int) -> Tally:
    tally = Tally()
    rng = random.Random(SEED)
    with ForkServer(folder) as forks:
        for _ in range(generations):
            generation = Generation(next(urls), forks, rng)
            kill_again_and_again(generation, kills, tally)
            tally.interrupted += go_on(generation)
    return tally


@pytest.mark.timeout(900)
def test_two_hundred_kills_lose_nothing_on_sqlite(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    urls = (f"sqlite:///{tmp_path}/store{n}.db" for n in range(100))

    tally = run(urls, tmp_path, generations=10, kills=20)

    record_property("counts", str(tally))
    assert tally.kills >= 200
    assert tally.acknowledged > 1000
    assert tally.interrupted > 0


@pytest.mark.timeout(900)
def test_forty_kills_lose_nothing_on_postgresql(
    tmp_path: Path, postgres: Server, record_property: Callable[[str, object], None]
) -> None:
    urls = (postgres.create_database() for _ in range(100))

    tally = run(urls, tmp_path, generations=2, kills=20)

    record_property("counts", str(tally))
    assert tally.kills >= 40
    assert tally.acknowledged > 100
