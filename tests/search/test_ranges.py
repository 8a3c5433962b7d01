"""An index of several tables: what is asked of each, and that nothing is lost between them."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sessionary.actions.sessions import log, projects
from sessionary.model.message import message
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.store.database import Tx
from sessionary.store.search import fts5
from sessionary.store.tables import sessions
from sessionary.testing.fakes import START
from tests.search.conftest import Library, opened

DAYS = 200
PLACE = Source("web", "web-chat")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Small tables of small blocks; a session for each day, in an order that is not that of time."""
    monkeypatch.setattr(fts5, "BLOCK_BITS", 4)
    monkeypatch.setattr(fts5, "SHARD_BITS", 8)
    store = opened(f"sqlite:///{tmp_path}/sessionary.db")
    library = Library(store)
    for name in ("Even", "Third"):
        library.write(projects.add, name, profile="main", moment=library.moment())
    library.write(_fill, library)
    yield library
    store.close()


def _fill(tx: Tx, library: Library) -> None:
    for turn in range(2):
        for day in _order():
            id = f"session{day:03}"
            at = START + timedelta(days=day, hours=turn)
            if turn == 0:
                sessions.insert(tx, id, Opening("main", PLACE), at=at)
                if day % 2 == 0:
                    projects.move_session(tx, id, "Even", profile="main")
            log.append(tx, id, message("user", f"plum {day}"), profile="main", at=at)


def _order() -> list[int]:
    """The second half first, as when older records are imported."""
    return [*range(DAYS // 2, DAYS), *range(DAYS // 2)]


def _day(number: int) -> datetime:
    return START + timedelta(days=number)


def _found(library: Library, typed: str) -> list[int]:
    """The days of all hits, newest written first, over every page."""
    days: list[int] = []
    cursor = None
    while True:
        found = library.find(typed, sort="newest", all_hits=True, limit=200, cursor=cursor)
        days += [int(hit.text.split()[1]) for hit in found]
        cursor = found.next
        if cursor is None:
            return days


def _expected(wanted: set[int]) -> list[int]:
    return [day for day in _order() if day in wanted][::-1] * 2


def test_the_words_are_in_several_tables(library: Library) -> None:
    assert _found(library, "plum") == _expected(set(range(DAYS)))
    shards = library.store.search(lambda tx: tx.all("index_shards")).result()
    assert len(shards) > 4


def test_a_project_of_many_sessions_is_found_in_every_table(library: Library) -> None:
    even = set(range(0, DAYS, 2))

    assert _found(library, "plum in:Even") == _expected(even)

    for day in range(0, DAYS, 6):
        library.write(projects.move_session, f"session{day:03}", "Third", profile="main")
    assert _found(library, "plum in:Even") == _expected(even - set(range(0, DAYS, 6)))
    assert _found(library, "plum in:Third") == _expected(set(range(0, DAYS, 6)))
    assert _found(library, "plum in:Even in:Third") == _expected(even)
    assert _found(library, "148 in:Even") == [148, 148]
    assert _found(library, "151 in:Even") == []


@pytest.mark.parametrize(
    ("first", "beyond"), [(10, 30), (95, 105), (0, 1), (150, DAYS), (99, 100), (-9, 0)]
)
def test_times_are_exact_whatever_order_they_were_written_in(
    library: Library, first: int, beyond: int
) -> None:
    within = f"after:{_day(first):%Y-%m-%dT%H:%M} before:{_day(beyond):%Y-%m-%dT%H:%M}"
    wanted = {day for day in range(DAYS) if first <= day < beyond}

    assert _found(library, f"plum {within}") == _expected(wanted)
    assert _found(library, f"plum {within} in:Even") == _expected(
        {day for day in wanted if day % 2 == 0}
    )
    assert {int(hit.text.split()[1]) for hit in library.hits(f"plum {within}")} == wanted


def test_words_beside_facts_are_counted_as_without_them(library: Library) -> None:
    session = library.session("fig fig fig", "fig")
    for typed in (
        "fig",
        "fig source:telegram",
        "fig role:user role:assistant",
        f"session:{session} fig",
    ):
        scores = {hit.text: hit.score for hit in library.hits(typed)}
        assert scores == {"fig fig fig": round(3 / 4.2, 6), "fig": round(1 / 2.2, 6)}, typed
