"""Sessions that came from sessions, more often than a program may call itself."""

import sys

import pytest

from sessionary.actions.search.search import SearchOptions, search
from sessionary.actions.sessions import log
from sessionary.clock import to_micros
from sessionary.model.message import message
from sessionary.model.session import Lineage, Opening, SessionFolder
from sessionary.store.database import Store, Tx
from sessionary.store.tables import sessions
from sessionary.store.tables.retention import TOMBSTONE_SOURCE
from sessionary.store.tables.sessions import Inheritance
from tests.support.world import ANN, World

LENGTH = sys.getrecursionlimit() + 100


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@pytest.fixture
def line(world: World) -> list[int]:
    """The numbers of sessions, each forked from the one before it after one more message."""
    return world.write(_make, world)


def _make(tx: Tx, world: World) -> list[int]:
    made: list[int] = []
    now = world.clock.now()
    for place in range(LENGTH):
        inherited = Inheritance(made[-1], Lineage.FORK, base_seq=place) if made else None
        id = f"link-{place:05}"
        made.append(sessions.insert(tx, id, Opening("main", ANN), at=now, inherited=inherited))
        new_message = message("user", f"word{place}")
        log.append(tx, id, new_message, profile="main", at=now)
    return made


def bury(world: World, numbers: list[int]) -> None:
    def act(tx: Tx) -> None:
        for no in numbers:
            tx.run("bury_session", no=no, at=to_micros(world.clock.now()), source=TOMBSTONE_SOURCE)

    world.write(act)


def entries_left(world: World) -> int:
    return int(world.read(_count)[1])


def _count(tx: Tx) -> tuple[int, int]:
    row = tx.one("count_content")
    assert row is not None
    return row[0], row[1]


def test_what_the_last_of_a_long_line_reads_stays_until_it_goes(
    world: World, line: list[int]
) -> None:
    last = f"link-{LENGTH - 1:05}"
    bury(world, line[1:-1])

    purged = world.purge("link-00000")

    assert (purged.entries, purged.kept_for_others) == (0, 1)
    assert world.texts(last) == [f"word{place}" for place in range(LENGTH)]
    world.purge(last)
    assert entries_left(world) == 0


def test_the_first_of_a_long_line_of_purged_ones_goes_whole(world: World, line: list[int]) -> None:
    bury(world, line[1:])

    purged = world.purge("link-00000")

    assert (purged.entries, purged.kept_for_others) == (1, 0)


def test_words_that_only_the_last_of_a_long_line_shows_are_found_in_it(
    world: World, line: list[int]
) -> None:
    def trash(tx: Tx) -> None:
        for no in line[:-1]:
            tx.run("set_folder", no=no, folder=SessionFolder.TRASH, archived=0, trashed_at=1)

    world.write(trash)
    options, now = SearchOptions(all_hits=True), world.clock.now()

    found = world.store.search(search, "word0", profile="main", options=options, now=now).result()

    assert [(hit.session.no, hit.seq) for hit in found] == [(line[-1], 1)]
