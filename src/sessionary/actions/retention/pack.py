"""Pack sessions that have been quiet for long: the same words in less room, read and found as before."""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sessionary.clock import to_micros
from sessionary.errors import Damaged
from sessionary.model import codec
from sessionary.model import message as parts_of
from sessionary.model.message import MAX_SEQ, Attachment
from sessionary.model.session import Segment, SessionFolder, SessionHead
from sessionary.store.database import Row, Store, Tx
from sessionary.store.tables import blobs, entries, sessions
from sessionary.store.tables.blobs import Unpacker

PAGE = 200
# What goes into one pack, and into one short transaction.
ENTRIES = 200
BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Packed:
    """What packing did: sessions and messages, and their bytes before and after."""

    sessions: int = 0
    messages: int = 0
    before: int = 0
    after: int = 0
    damaged: "tuple[DamagedSession, ...]" = ()

    def __add__(self, more: "Packed") -> "Packed":
        return Packed(
            self.sessions + more.sessions,
            self.messages + more.messages,
            self.before + more.before,
            self.after + more.after,
            self.damaged + more.damaged,
        )


@dataclass(frozen=True, slots=True)
class DamagedSession:
    """A session that was left as it is, because some of its words cannot be read."""

    session_id: str
    reason: str


def candidates(store: Store, *, profile: str, before: datetime) -> Iterator[tuple[int, str]]:
    """Sessions that nobody has spoken in since a time and that are not packed."""
    after = 0
    while page := store.read(_page, profile, before, after).result():
        for no, id in page:
            after = no
            yield no, id


def pack(
    store: Store,
    *,
    profile: str,
    before: datetime,
    progress: Callable[[int], None] = lambda _: None,
) -> Packed:
    """Pack every candidate, a short transaction at a time; writers are not held up.

    One with words that cannot be read is left as it is, and named; the others are packed.
    """
    total = Packed()
    for no, id in candidates(store, profile=profile, before=before):
        total += _pack_session(store, no, id)
        progress(total.sessions)
    return total


def unpack(tx: Tx, no: int, *, among: Container[int] | None = None) -> int:
    """Put a session's words back into its log; how many packs there were."""
    rows = tx.all("packs_of_session", session_no=no)
    found = [row for row in rows if among is None or row[0] in among]
    for pack_no, first, last in found:
        unpacker = Unpacker(tx)
        rows = _rows(tx, no, first, last)
        packed = [row for row in rows if row[5] == blobs.pack_mark(pack_no)]
        _rewrite(tx, packed, [unpacker.text(row[0], row[5]) for row in packed])
        tx.run("delete_pack", no=pack_no)
    return len(found)


def _pack_session(store: Store, no: int, id: str) -> Packed:
    done, made = Packed(), set[int]()
    try:
        while (step := store.write(_pack_some, no).result()) is not None:
            pack_no, packed = step
            made.add(pack_no)
            done += packed
    except Damaged as error:
        store.write(unpack, no, among=made).result()
        return Packed(damaged=(DamagedSession(id, str(error)),))
    return replace(done, sessions=1) if made else done


def _page(tx: Tx, profile: str, before: datetime, after: int) -> list[tuple[int, str]]:
    rows = tx.all(
        "page_to_pack", profile=profile, before=to_micros(before), after=after, limit=PAGE
    )
    return [(row[0], row[1]) for row in rows]


def _pack_some(tx: Tx, no: int) -> tuple[int, Packed] | None:
    """Pack the next messages of a session: the pack's number, and what is in it; None at the end."""
    tx.one("lock_session_no", no=no)
    head = sessions.get_by_no(tx, no)
    if head.running or head.folder is SessionFolder.GONE:
        return None
    chosen = _next_texts(tx, head)
    if not chosen:
        return None
    made = blobs.put_pack(tx, no, {row[0] & MAX_SEQ: text for row, text in chosen})
    _rewrite(tx, [row for row, _ in chosen], [blobs.pack_mark(made.no)] * len(chosen))
    return made.no, Packed(0, len(chosen), made.size, made.packed_size)


def _next_texts(tx: Tx, head: SessionHead) -> list[tuple[Row, str]]:
    """The next messages with their whole words: few enough for a short transaction."""
    row = tx.one("packed_through", session_no=head.no)
    first = max(row[0] if row else 0, head.base_seq) + 1
    chosen: list[tuple[Row, str]] = []
    while not chosen and first <= head.last_seq:
        size, unpacker = 0, Unpacker(tx)
        stretch = Segment(head.no, head.id, first, min(head.last_seq, first + ENTRIES - 1))
        for each in entries.read_rows(tx, stretch, limit=ENTRIES):
            # Marks are few and asked for by themselves: they stay as they are.
            if each[1] != "message" or each[5].startswith(blobs.PACK_MARK):
                continue
            text = entries.text_of(tx, each[0], each[5], unpacker)
            chosen.append((each, text))
            size += len(text)
            if size > BYTES:
                break
        first += ENTRIES
    return chosen


def _rows(tx: Tx, no: int, first: int, last: int) -> list[Row]:
    return tx.all(
        "read_entries",
        first=entries.entry_no(no, first),
        last=entries.entry_no(no, last),
        limit=last - first + 1,
    )


def _rewrite(tx: Tx, rows: Sequence[Row], texts: Sequence[str]) -> None:
    """Write entries anew with other words for the same: nothing else of them changes."""
    if not rows:
        return
    tx.many("mark_rewriting", [{"entry_no": row[0]} for row in rows])
    for row, text in zip(rows, texts, strict=True):
        entries.rewrite(tx, row, text)
        _release(tx, row[0], row[5], text)
    tx.run("unmark_rewriting_between", first=rows[0][0], last=rows[-1][0])


def _release(tx: Tx, number: int, before: str, after: str) -> None:
    """Large texts that went into a pack are no longer needed beside the log."""
    if blobs.MARK not in before or not after.startswith(blobs.PACK_MARK):
        return
    attached = {
        part.blob
        for data in codec.decode(before)["parts"]
        if isinstance(part := parts_of.from_json(data), Attachment)
    }
    for (name,) in tx.all("blobs_of_entries", first=number, last=number):
        if name not in attached:
            tx.run("delete_blob_ref", hash=name, entry_no=number)
            tx.run("delete_blob_if_unused", hash=name)
