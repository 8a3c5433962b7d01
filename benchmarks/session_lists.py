"""The newest fifty heads by activity, in stores of any size."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from benchmarks import populate
from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Goal, Results, Scale, repeat
from benchmarks.raw import KnownStore, RawLog
from benchmarks.texts import sql
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from sessionary.store.database import Store
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.db_file import SqliteTx

THROUGH = "sessionary, store.read"
WITHIN = "sessionary, in a transaction"
FLOOR = "raw SELECT of 50 rows"
KNOWN = "activity made from the messages"
EVERYTHING = SessionFilters()


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """Each size on its own, then the sizes beside each other."""
    with ExitStack() as stack:
        compared = []
        for size in scale.sizes[1:]:
            path = populate.build(folder, size)
            store = stack.enter_context(closing(populate.opened(path)))
            within = SqliteTx(stack.enter_context(closing(db_file.connect_reader(str(path)))))
            raw = stack.enter_context(closing(RawLog(folder / f"list-{size}.db", sessions=size)))
            known = _known(folder / f"list-known-{size}.db", min(size, 10_000))
            stack.enter_context(closing(known))
            contestants = (
                Contestant(THROUGH, "product", repeat(partial(_through, store))),
                Contestant(WITHIN, "product", repeat(partial(_within, within))),
                Contestant(FLOOR, "floor", repeat(partial(_raw, raw))),
                Contestant(
                    f"{KNOWN}, {min(size, 10_000):,}",
                    "peer",
                    repeat(partial(_made, known)),
                ),
            )
            goal = at_most(1, "ms in the store", lambda got: got.p50(WITHIN) * 1000)
            yield Case(f"{size:,} sessions", contestants, (goal,), by="p50")
            name = f"{WITHIN}, {size:,} sessions"
            compared.append(Contestant(name, "product", repeat(partial(_within, within))))
        yield Case("by size of the store", tuple(compared), (_flat(compared),), by="p50")


def _flat(compared: list[Contestant]) -> Goal:
    def grown(got: Results) -> float:
        return got.ratio(compared[-1].name, compared[0].name, "p50")

    return at_most(1.2, "times the smallest", grown, of="the largest")


def _through(store: Store) -> None:
    assert store.read(list_sessions, EVERYTHING, profile=populate.PROFILE).result().items


def _within(tx: SqliteTx) -> None:
    assert list_sessions(tx, EVERYTHING, profile=populate.PROFILE).items


def _raw(raw: RawLog) -> None:
    assert raw.connection.execute(sql()["floor_list"]).fetchall()


def _made(known: KnownStore) -> None:
    assert known.connection.execute(sql()["peer_list"]).fetchall()


def _known(path: Path, sessions: int) -> KnownStore:
    known = KnownStore(path, sessions=sessions)
    known.connection.execute("BEGIN")
    known.connection.executemany(
        sql()["peer_message"],
        (
            (str(no), "user", f"message {turn}", no + turn)
            for turn in range(4)
            for no in range(sessions)
        ),
    )
    known.connection.execute("COMMIT")
    return known
