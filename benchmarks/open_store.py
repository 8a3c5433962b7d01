"""Opening the store and the first read, in stores of any size."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw

from benchmarks import populate
from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Goal, Scale, repeat
from benchmarks.raw import RawLog
from benchmarks.texts import sql
from sessionary.actions.sessions.lists import SessionFilters, list_sessions

FLOOR = "raw open and SELECT"


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """Open, list, close: the same work whatever the size."""
    contestants = []
    goals = []
    for size in scale.sizes[1:]:
        path = populate.build(folder, size)
        name = f"sessionary, {size:,} sessions"
        contestants.append(Contestant(name, "product", repeat(partial(_open, path))))
        goals.append(_quick(size, name))
    raw = folder / "open-raw.db"
    RawLog(raw, sessions=scale.sizes[1]).close()
    contestants.append(Contestant(FLOOR, "floor", repeat(lambda: _open_raw(raw))))
    yield Case("open, list, close", tuple(contestants), tuple(goals), by="p50")


def _quick(size: int, name: str) -> Goal:
    return at_most(20, "ms", lambda got: got.p50(name) * 1000, of=f"{size:,} sessions")


def _open(path: Path) -> None:
    store = populate.opened(path)
    assert store.read(list_sessions, SessionFilters(), profile=populate.PROFILE).result().items
    store.close()


def _open_raw(path: Path) -> None:
    connection = apsw.Connection(str(path))
    assert connection.execute(sql()["floor_list"]).fetchall()
    connection.close()
