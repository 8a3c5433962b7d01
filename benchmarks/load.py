"""Opening a long session: all of it, its last 200 messages, what the model reads."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks import populate
from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Scale, repeat
from benchmarks.raw import BODY, TEXT, KnownStore, RawLog
from benchmarks.texts import sql
from sessionary.actions.sessions import read
from sessionary.model import codec
from sessionary.store.database import Store

ALL = "sessionary, all"
LAST = "sessionary, the last 200"
CONTEXT = "sessionary, context"
FLOOR = "raw range scan, JSON read"
KNOWN = "rows in order of arrival"
SESSION = 1
OTHERS = 5
_CHUNK = 2_000


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """One session of many messages."""
    count = scale.messages
    with ExitStack() as stack:
        store = stack.enter_context(closing(populate.opened(folder / "load.db")))
        session = store.write(populate.open_plain, 1).result()[0]
        for first in range(0, count, _CHUNK):
            store.write(populate.fill, session, first, min(_CHUNK, count - first)).result()
        raw = stack.enter_context(closing(_raw(folder / "load-raw.db", count)))
        known = stack.enter_context(closing(_known(folder / "load-known.db", count)))
        yield Case(
            f"{count:,} messages",
            (
                Contestant(ALL, "product", repeat(lambda: _all(store, session, count))),
                Contestant(FLOOR, "floor", repeat(lambda: _scan(raw, count))),
                Contestant(LAST, "product", repeat(lambda: _last(store, session))),
                Contestant(CONTEXT, "product", repeat(lambda: _context(store, session))),
                Contestant(KNOWN, "peer", repeat(lambda: _select(known, count))),
            ),
            (
                at_most(2, "times the floor", lambda got: got.ratio(ALL, FLOOR, "p50"), of="all"),
                at_most(2, "ms", lambda got: got.p50(LAST) * 1000, of="the last 200"),
            ),
            by="p50",
        )


def _all(store: Store, session: str, count: int) -> None:
    found = store.read(read.read_transcript, session, profile=populate.PROFILE).result()
    assert len(found) == count


def _last(store: Store, session: str) -> None:
    found = store.read(read.read_window, session, profile=populate.PROFILE, limit=200).result()
    assert len(found.entries) == 200


def _context(store: Store, session: str) -> None:
    assert store.read(read.read_context, session, profile=populate.PROFILE).result()


def _raw(path: Path, count: int) -> RawLog:
    raw = RawLog(path, sessions=OTHERS)
    raw.connection.execute("BEGIN")
    rows = ((SESSION << 24 | seq, "user", seq, BODY) for seq in range(1, count + 1))
    raw.connection.executemany(sql()["floor_entry"], rows)
    raw.connection.execute("COMMIT")
    return raw


def _scan(raw: RawLog, count: int) -> None:
    span = (SESSION << 24, SESSION + 1 << 24)
    rows: Any = raw.connection.execute(sql()["floor_load"], span).fetchall()
    assert len([(role, at, codec.decode(body)) for role, at, body in rows]) == count


def _known(path: Path, count: int) -> KnownStore:
    known = KnownStore(path, sessions=OTHERS)
    known.connection.execute("BEGIN")
    for seq in range(count):
        for session in range(OTHERS):
            row = (str(session), "user", json.dumps({"content": TEXT}), float(seq))
            known.connection.execute(sql()["peer_message"], row).fetchall()
    known.connection.execute("COMMIT")
    return known


def _select(known: KnownStore, count: int) -> None:
    rows: Any = known.connection.execute(sql()["peer_load"], (str(SESSION),)).fetchall()
    assert len([{"role": row[0], **json.loads(row[1]), "at": row[2]} for row in rows]) == count
