"""Feeding the index from the log: after the commit, in batches, from a watermark."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from sessionary.clock import from_micros, to_micros
from sessionary.errors import Damaged
from sessionary.model import search_text
from sessionary.model.message import MAX_SEQ, SEQ_BITS
from sessionary.model.query import Query
from sessionary.model.search_text import AREAS, Origin, SearchText
from sessionary.model.tokenizer import GAP
from sessionary.store.database import REMEDY, Row, Tx
from sessionary.store.tables import entries
from sessionary.store.tables.blobs import Unpacker
from sessionary.store.tables.sessions import known

BATCH = 400
MOST_PLACES = 8000
MOST_OF_ONE = 250
MOST_DIFFERENT = 15_000
HASHED = "\ue003"
# A change makes up to three documents: what was said, its steps, the session's title.
PLACES = 4
TITLE_PLACE = 2


@dataclass(frozen=True, slots=True)
class IndexState:
    """How far the index has come, and how many changes it has not seen."""

    watermark: int
    behind: int
    # How far the newest change is from the watermark, though all of it is in the index.
    unsettled: int = 0


def state(tx: Tx) -> IndexState:
    """How far the index has come, as of this transaction."""
    row = tx.one("index_state")
    assert row is not None
    return IndexState(*row)


def step(tx: Tx, limit: int = BATCH) -> int:
    """Take the next changes into the index; how many there were. 0 means that it is complete."""
    handed_out = tx.one("handed_out")  # None on SQLite, which gives positions in commit order
    settled = tx.one("lock_index")
    if settled is None:
        tx.run("begin_index", store_id="")
        settled = (0,)
    rows = tx.all("feed_to_index", limit=limit)
    batch = _Batch(tx)
    for row in rows:
        batch.take(row)
    batch.flush()
    tx.run(
        "advance_watermark",
        seen=max((row[0] for row in rows), default=0),
        settled=settled[0],
        handed_out=handed_out and handed_out[0],
        complete=int(len(rows) < limit),
    )
    return len(rows)


def find_drift(tx: Tx) -> str | None:
    """Say where the index and the log disagree: a message that is not in it, or one that is no more."""
    unpacker = Unpacker(tx)
    after = 0
    while rows := tx.all("unindexed_entries", after=after, limit=BATCH):
        for number, role, at, body, profile, platform in rows:
            origin = Origin(profile, platform, number >> SEQ_BITS, from_micros(at))
            data = entries.readable(tx, number, body, unpacker)
            if data is not None and any(True for _ in search_text.of_entry(role, data, origin)):
                return f"{_entry(number)} is not in it"
        after = rows[-1][0]
    # What was deleted a moment ago may still be there until the index has seen it.
    if state(tx).behind == 0:
        for (number,) in tx.all("stray_docs"):
            return f"{_entry(number)} is in it, but not in the log"
    return None


def _entry(number: int) -> str:
    return f"entry {number & MAX_SEQ} of session number {number >> SEQ_BITS}"


def clear(tx: Tx) -> None:
    """Forget everything; the next steps make it again."""
    tx.one("lock_index")
    tx.run("clear_index")


def hashed(word: str) -> str:
    """One of 65,536 words that stands for this one, where a text has too many to keep."""
    return f"{HASHED}{crc32(word.encode()) & 0xFFFF:x}"


class _Batch:
    """Changes on their way into the index."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._docs: list[dict[str, Any]] = []
        self._titles: dict[int, str | None] = {}
        self._unpacker = Unpacker(tx)

    def take(self, row: Row) -> None:
        """Take one change in; the order of changes is kept."""
        position, session_no, seq, what, role, at, body, profile, platform, title, *state = row
        purged, is_within = state
        if profile is None:
            known(None, session_no)
        # A purged session may have come back, with fewer entries, from an older export.
        if what == "entry" and is_within and body is None and purged is None:
            raise Damaged(
                f"Entry {seq} of session number {session_no} is missing from the log: "
                f"the store is damaged. {REMEDY}"
            )
        if what == "gone":
            self._forget_session(session_no)
        elif what in ("entry", "head"):
            origin = Origin(profile, platform, session_no, from_micros(at or 0))
            self._name(position, None if purged is not None else title, origin)
            if body is not None:
                number = session_no << SEQ_BITS | seq
                data = entries.readable(self._tx, number, body, self._unpacker)
                for made in [] if data is None else search_text.of_entry(role, data, origin):
                    self._add(position, AREAS.index(made.area), seq, at, made)

    def flush(self) -> None:
        """Write what was gathered."""
        if self._docs:
            self._tx.many("insert_doc", self._docs)
            self._tx.many("insert_words", self._docs)
            self._docs.clear()

    def _add(self, position: int, place: int, seq: int, at: int, made: SearchText) -> None:
        is_long = _is_long(made.words)
        doc = {
            "no": position * PLACES + place,
            "entry_no": made.session_no << SEQ_BITS | seq,
            "at": at,
            "length": len(made.words),
            "words": " ".join(made.words),
            "is_long": int(is_long),
            "loose": " ".join(_loose(made.words)) if is_long else "",
        }
        self._docs.append(doc)

    def _name(self, position: int, title: str | None, origin: Origin) -> None:
        """Index a session's title when it is not the one that was indexed last."""
        no = origin.session_no
        if no not in self._titles:
            known = self._tx.one("indexed_title", session_no=no)
            self._titles[no] = None if known is None else known[1]
        if self._titles[no] == title:
            return
        self._forget_title(no)
        if title is not None:
            made = search_text.of_title(title, origin)
            self._add(position, TITLE_PLACE, 0, to_micros(origin.at), made)
            doc_no = position * PLACES + TITLE_PLACE
            self._tx.run("set_indexed_title", session_no=no, doc_no=doc_no, title=title)
        self._titles[no] = title

    def _forget_session(self, session_no: int) -> None:
        self.flush()
        self._forget_title(session_no)
        self._titles[session_no] = None
        # What a fork still reads stays; a purge may also have released what ancestors had kept.
        for ancestor_no, *_ in self._tx.all("ancestors", no=session_no):
            facets = [[search_text.of_session(ancestor_no)]]
            for asked in self._tx.match(Query(""), facets, below=None):
                found = self._tx.all("docs_without_entry", **asked)
                self._forget([row[0] for row in found])

    def _forget_title(self, session_no: int) -> None:
        known = self._tx.one("indexed_title", session_no=session_no)
        if known is not None:
            self.flush()
            self._forget([known[0]])
            self._tx.run("forget_title", session_no=session_no)

    def _forget(self, numbers: Iterable[int]) -> None:
        rows = [{"no": no} for no in numbers]
        if rows:
            self._tx.many("delete_words", rows)
            self._tx.many("delete_doc", rows)


def _is_long(found: list[str]) -> bool:
    """Whether PostgreSQL could not keep the place of every word: 16,383 in all, 255 of one."""
    if len(found) <= MOST_OF_ONE:
        return False
    if len(found) > MOST_PLACES:
        return True
    if len(found) - len(set(found)) < MOST_OF_ONE:
        return False  # not even if all that is there more than once were one word
    counts = Counter(found)
    del counts[GAP]
    return max(counts.values()) > MOST_OF_ONE


def _loose(found: list[str]) -> Iterable[str]:
    """Each word once, or hashed where even that is more than a vector holds. Facets come first."""
    different = dict.fromkeys(found)
    if len(different) <= MOST_DIFFERENT:
        return different
    kept = [word for word in different if search_text.is_facet(word)]
    return [*kept, HASHED, *dict.fromkeys(map(hashed, different))]
