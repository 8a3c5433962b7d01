"""Pack sessions that have been quiet for long: the same words in less space, read and searched as before."""

from collections.abc import Callable, Iterator
from datetime import datetime

from msgspec import Struct

from sessionary.errors import Damaged
from sessionary.model.session import SessionFolder
from sessionary.store.database import Store, Tx
from sessionary.store.tables import retention, sessions
from sessionary.store.tables.retention import PackedEntries

PAGE = 200


class DamagedSession(Struct, frozen=True):
    """A session that was left as it is, because some of its words cannot be read."""

    session_id: str
    reason: str


class PackResult(Struct, frozen=True):
    """What was packed: sessions and messages, and their bytes before and after."""

    sessions: int = 0
    messages: int = 0
    before: int = 0
    after: int = 0
    damaged: tuple[DamagedSession, ...] = ()


def candidates(store: Store, *, profile: str, before: datetime) -> Iterator[tuple[int, str]]:
    """Numbers and ids of the sessions that have been quiet since a time and are not packed."""
    after = 0
    find = retention.unpacked_sessions
    while page := store.read(
        find, profile=profile, before=before, after=after, limit=PAGE
    ).result():
        yield from page
        after = page[-1][0]


def pack(
    store: Store,
    *,
    profile: str,
    before: datetime,
    progress: Callable[[int], None] = lambda _: None,
) -> PackResult:
    """Pack every candidate in short transactions, so that writers do not wait.

    A session with words that cannot be read is left as it is and named in the result.
    """
    made: list[PackedEntries] = []
    damaged: list[DamagedSession] = []
    count = 0
    for no, id in candidates(store, profile=profile, before=before):
        packs: list[PackedEntries] = []
        try:
            while (done := store.write(_pack_next, no).result()) is not None:
                packs.append(done)
        except Damaged as error:
            store.write(retention.unpack, no, among={each.pack_no for each in packs}).result()
            damaged.append(DamagedSession(id, str(error)))
        else:
            made += packs
            count += bool(packs)
        progress(count)
    return PackResult(
        sessions=count,
        messages=sum(each.messages for each in made),
        before=sum(each.size for each in made),
        after=sum(each.packed_size for each in made),
        damaged=tuple(damaged),
    )


def _pack_next(tx: Tx, no: int) -> PackedEntries | None:
    sessions.lock_session_no(tx, no)
    head = sessions.get_by_no(tx, no)
    if head.running or head.folder is SessionFolder.GONE:
        return None
    return retention.pack_next(tx, head)
