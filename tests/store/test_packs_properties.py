"""A store that packs all the time tells the same story as one that never does."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessionary.actions import verify
from sessionary.actions.retention import pack
from sessionary.actions.search import search
from sessionary.actions.search.search import SearchOptions
from sessionary.actions.sessions import revise
from sessionary.clock import RandomIds, SystemClock
from sessionary.store import copy_store
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.tables import retention
from tests.store.conftest import opened
from tests.store.operations import OPERATIONS, Story, do, plain
from tests.support.transfer import exported
from tests.support.world import ANN, World

MOMENTS = st.tuples(st.sampled_from(range(len(OPERATIONS))), st.integers(0, 11), st.integers(0, 11))


class Ended(Exception):
    """The process ends between two transactions."""


class Mortal:
    """A store whose process ends after some writes."""

    def __init__(self, store: Store, writes: int) -> None:
        self._store, self._left = store, writes

    def write(self, *args: Any, **kwargs: Any) -> Any:
        if self._left == 0:
            raise Ended
        self._left -= 1
        return self._store.write(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def packed(world: World, writes: int = 1000) -> None:
    before = world.clock.now() + timedelta(days=1)
    mortal: Any = Mortal(world.store, writes)
    try:
        pack.pack(mortal, profile="main", before=before)
    except Ended:
        # The next time goes on from here.
        return


def count(tx: Tx) -> int:
    row = tx.one("size_of_packs")
    assert row is not None
    return int(row[0])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(moments=st.lists(MOMENTS, min_size=20, max_size=50))
def test_packing_changes_no_story(
    request: pytest.FixtureRequest, kind: str, moments: list[tuple[int, int, int]]
) -> None:
    url = "sqlite::memory:" if kind == "sqlite" else request.getfixturevalue("emptied")()
    stores = [opened("sqlite::memory:"), opened(url)]
    try:
        plain_one, packing = (Story(World(store)) for store in stores)
        for number, a, b in ((0, 0, 0), (0, 1, 6), (3, 0, 0), (4, 0, 0), *moments):
            results = [do(story, OPERATIONS[number], a, b) for story in (plain_one, packing)]
            assert results[0] == results[1], OPERATIONS[number].__name__
            packed(packing.world, writes=b)
        packed(packing.world)
        assert plain(packing.world.everything()) == plain(plain_one.world.everything())
        assert exported(stores[1]) == exported(stores[0])
        assert verify.verify(stores[1]).broken == ()
        assert verify.rebuild(stores[1]) == 0
    finally:
        for store in stores:
            store.close()


@pytest.mark.parametrize("way", ["sqlite to postgres", "postgres to sqlite"])
def test_packs_go_to_the_other_database(way: str, emptied: Callable[[], str]) -> None:
    urls = ["sqlite::memory:", emptied()]
    first, second = urls if way.startswith("sqlite") else urls[::-1]
    source = opened(first)
    target = open_store(second, create=True, clock=SystemClock(), ids=RandomIds(), half_copied=True)
    try:
        world = World(source)
        made = world.session(*(f"words {n}" for n in range(30)), source=ANN)
        packed(world)
        copy_store.copy_store(source, target)
        there = World(target, name="there")
        there.session("later", source=ANN)
        packed(there)

        assert there.texts(made) == world.texts(made)
        assert target.read(count).result() == 2
        assert verify.verify(target).broken == ()
    finally:
        source.close()
        target.close()


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def test_large_texts_are_not_heaped_into_one_pack(world: World) -> None:
    made = world.session("hello", source=ANN)
    for number in range(6):
        world.append_text(made, f"{number}" * (retention.PACK_BYTES // 2))
    before = world.everything()

    packed(world)

    assert world.read(count) == 3
    assert world.everything() == before


def test_a_session_of_many_marks_is_packed_to_its_end(world: World) -> None:
    made = world.session("one", "two", source=ANN)
    packed(world)
    world.write(_many_marks, made, at=world.clock.now())
    world.append_text(made, "three")
    before = world.everything()

    packed(world)

    assert world.read(count) == 2
    assert list(pack.candidates(world.store, profile="main", before=world.moment().now)) == []
    assert world.everything() == before


def _many_marks(tx: Tx, id: str, *, at: Any) -> None:
    for _ in range(retention.PACK_ENTRIES + 5):
        revise.retract(tx, id, profile="main", after=1, at=at)


def test_what_is_damaged_can_be_purged(world: World) -> None:
    made = world.session("a", "b", source=ANN)
    packed(world)
    world.write(lambda tx: tx.run("delete_pack", no=1))
    other = world.session("c", "d", source=ANN)
    packed(world)

    world.purge(made)
    world.purge(other)

    assert world.read(count) == 0
    assert verify.verify(world.store).broken == ()


def test_who_reads_while_it_is_packed_reads_the_same(world: World) -> None:
    made = world.session(*(f"words {n}" for n in range(250)), source=ANN)
    world.append_text(made, "large " * 20_000)
    branch = world.fork(made, 240).id
    world.append_text(branch, "mine")
    wanted = [(world.texts(made), world.texts(branch))]
    no = world.head(made).no

    def read() -> list[Any]:
        return [(world.texts(made), world.texts(branch)) for _ in range(8)]

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        while not all(each.done() for each in readers):
            packed(world)
            world.write(retention.unpack, no)

    assert all(found == wanted[0] for each in readers for found in each.result())


def test_purged_words_of_a_packed_session_are_in_no_file(tmp_path: Path, world: World) -> None:
    made = world.session("okapi " * 5000, "an okapi", source=ANN)
    branch = world.fork(made, 1).id
    world.append_text(branch, "mine")
    packed(world)
    finds(world, "okapi")

    world.purge(branch)
    world.purge(made)
    finds(world, "okapi")
    world.store.rebuild_index().result()
    world.store.close()

    for file in filter(Path.is_file, tmp_path.rglob("*")):
        assert b"okapi" not in file.read_bytes(), file


def finds(world: World, word: str) -> int:
    found = world.store.search(
        search.search,
        word,
        profile="main",
        options=SearchOptions(all_hits=True),
        now=world.clock.now(),
    ).result()
    return len(found.hits)
