"""Feeds the index from the log: after the commit, in batches, from a watermark on."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any, NamedTuple
from zlib import crc32

from msgspec import Struct

from sessionary.clock import from_micros, to_micros
from sessionary.errors import Damaged
from sessionary.model import search_text
from sessionary.model.message import MAX_SEQ, SEQ_BITS
from sessionary.model.query import Query
from sessionary.model.search_text import AREAS, Origin, SearchText
from sessionary.model.tokenizer import GAP
from sessionary.store.database import REMEDY, Tx
from sessionary.store.queries import pg_array_literal
from sessionary.store.tables import entries
from sessionary.store.tables.blobs import Unpacker
from sessionary.store.tables.sessions import missing as missing_session

BATCH = 400
# A long backlog is taken in larger batches: fewer commits here, fewer merges in SQLite.
LARGE_BATCH = 4000
# Longer texts are indexed without the positions of their words: see `_is_long`.
MAX_POSITIONS = 8000
MAX_OF_ONE_WORD = 250
# Of a text with more different words than this, the words are hashed.
MAX_WORDS = 15_000
HASHED = "\ue003"
# A change makes up to three documents: the text, its steps, the session's title.
DOCS_PER_CHANGE = 4
TITLE_DOC = 2


class IndexState(Struct, frozen=True):
    """How far the index has come: every change up to the watermark, and how many it has not seen.

    `unsettled` is the distance from the watermark to the newest change, whether that was seen or not.
    """

    watermark: int
    behind: int
    unsettled: int = 0


class FeedRow(NamedTuple):
    """A change of the feed, with the entry and the session that it is about, if they are there."""

    position: int
    session_no: int
    seq: int
    what: str
    role: str | None
    at: int | None
    body: str | None
    profile: str | None
    platform: str | None
    title: str | None
    purged_at: int | None
    is_within: int | None


def state(tx: Tx) -> IndexState:
    """How far the index has come, as of this transaction."""
    row = tx.one("index_state")
    assert row is not None
    return IndexState(*row)


def batch_for(behind: int) -> int:
    """How many changes to index at a time, for a backlog of this size."""
    return BATCH if behind <= 2 * BATCH else LARGE_BATCH


def step(tx: Tx, limit: int = BATCH) -> int:
    """Take the next changes into the index; return how many. Fewer than `limit` were the last ones.

    On PostgreSQL a position is handed out before its transaction commits. What was handed out when a
    round began is settled once every transaction of that time has ended: up to there the watermark
    follows the batches. A batch costs the same whatever was indexed before it.
    """
    # SQLite has none of these three: its positions are in commit order, and its index has one writer.
    handed_out = tx.one("handed_out")
    state_row = tx.one("lock_index")
    if state_row is None:
        tx.run("add_index_state")
    settled = 0 if state_row is None else state_row[0]
    newest_taken = None if settled else tx.one("newest_taken")
    rows: list[FeedRow] = []
    if newest_taken is not None:
        # Somebody's transaction is still running. Until it ends, the marks pile up above the watermark:
        # begin behind them, and look between them, for what has committed late, at the end.
        rows = _feed(tx, after=newest_taken[0], settled=0, limit=limit)
    if len(rows) < limit:
        rows += _feed(tx, after=0, settled=settled, limit=limit - len(rows))
    is_complete = len(rows) < limit
    if not is_complete:
        tx.run("index_in_bulk")
    elif not rows:
        tx.one("sort_words")
    batch = _Batch(tx, rows)
    # PostgreSQL sorts in the words of one part while we split the texts of the next.
    with tx.overlapped():
        for row in rows:
            batch.take(row)
        batch.finish()
    tx.run(
        "advance_watermark",
        last=max((row.position for row in rows), default=0),
        settled=settled,
        handed_out=None if handed_out is None else handed_out[0],
        complete=int(is_complete),
    )
    return len(rows)


def _feed(tx: Tx, *, after: int, settled: int, limit: int) -> list[FeedRow]:
    """Changes that are not indexed yet, in the order of their positions."""
    found = tx.all("feed_to_index", after=after, settled=settled, limit=limit)
    return list(starmap(FeedRow, found))


def find_drift(tx: Tx) -> str | None:
    """Say where index and log disagree: a message that is not indexed, or one that is gone from the log."""
    unpacker = Unpacker(tx)
    after = 0
    while rows := tx.all("unindexed_entries", after=after, limit=BATCH):
        for number, role, at, body, profile, platform in rows:
            origin = Origin(profile, platform, number >> SEQ_BITS, from_micros(at))
            data = entries.readable(tx, number, body, unpacker)
            if data is not None and any(
                True for _ in search_text.entry_documents(role, data, origin)
            ):
                return f"{_entry(number)} is not in it"
        after = rows[-1][0]
    # What was deleted a moment ago stays in the index until it has seen the deletion.
    if state(tx).behind == 0:
        for (number,) in tx.all("stray_docs"):
            return f"{_entry(number)} is in it, but not in the log"
    return None


def _entry(number: int) -> str:
    return f"entry {number & MAX_SEQ} of session number {number >> SEQ_BITS}"


def clear(tx: Tx) -> None:
    """Delete all content of the index; the next steps make it again."""
    tx.one("lock_index")
    tx.run("clear_index")


def hashed(word: str) -> str:
    """One of 65,536 words that stands for this one in a text that has too many words."""
    return f"{HASHED}{crc32(word.encode()) & 0xFFFF:x}"


class _IndexedTitle(NamedTuple):
    """A title as it was indexed last, and the number of its document."""

    doc_no: int
    title: str


class _Batch:
    """Changes on their way into the index."""

    def __init__(self, tx: Tx, rows: Sequence[FeedRow]) -> None:
        self._tx = tx
        self._docs: list[dict[str, Any]] = []
        self._unpacker = Unpacker(tx)
        numbers = pg_array_literal({row.session_no for row in rows})
        self._titles = {
            session_no: _IndexedTitle(doc_no, title)
            for session_no, doc_no, title in (
                tx.all("indexed_titles", numbers=numbers) if rows else ()
            )
        }
        self._retitled: set[int] = set()

    def take(self, row: FeedRow) -> None:
        """Take one change in; changes are taken in order."""
        if row.profile is None or row.platform is None:
            raise missing_session(row.session_no)
        # A purged session may have come back, with fewer entries, from an older export.
        if row.what == "entry" and row.is_within and row.body is None and row.purged_at is None:
            raise Damaged(
                f"Entry {row.seq} of session number {row.session_no} is missing from the log: "
                f"the store is damaged. {REMEDY}"
            )
        if row.what == "gone":
            self._forget_session(row.session_no)
        elif row.what in ("entry", "head"):
            at = row.at or 0
            origin = Origin(row.profile, row.platform, row.session_no, from_micros(at))
            self._index_title(
                row.position, None if row.purged_at is not None else row.title, origin
            )
            if row.body is not None:
                number = row.session_no << SEQ_BITS | row.seq
                data = entries.readable(self._tx, number, row.body, self._unpacker)
                for made in (
                    [] if data is None else search_text.entry_documents(row.role, data, origin)
                ):
                    self._add(row.position, AREAS.index(made.area), row.seq, at, made)

    def finish(self) -> None:
        """Write what was taken in."""
        self._flush()
        titles = [
            {"session_no": no, "doc_no": self._titles[no].doc_no, "title": self._titles[no].title}
            for no in self._retitled
            if no in self._titles
        ]
        if titles:
            self._tx.many("set_indexed_title", titles)
        gone = [{"session_no": no} for no in self._retitled if no not in self._titles]
        if gone:
            self._tx.many("forget_title", gone)

    def _flush(self) -> None:
        """Write the documents that were made so far."""
        if self._docs:
            self._tx.many("insert_doc", self._docs)
            self._tx.many("insert_words", self._docs)
            self._docs.clear()

    def _add(self, position: int, doc: int, seq: int, at: int, made: SearchText) -> None:
        is_long = _is_long(made.words)
        row = {
            "no": position * DOCS_PER_CHANGE + doc,
            "entry_no": made.session_no << SEQ_BITS | seq,
            "at": at,
            "length": len(made.words),
            "words": " ".join(made.words),
            "is_long": int(is_long),
            "loose": " ".join(_loose(made.words)) if is_long else "",
        }
        self._docs.append(row)
        if len(self._docs) >= BATCH:
            self._flush()

    def _index_title(self, position: int, title: str | None, origin: Origin) -> None:
        """Index a session's title when it is not the one that was indexed last."""
        no = origin.session_no
        known = self._titles.get(no)
        if title == (None if known is None else known.title):
            return
        self._forget_title(no)
        if title is not None:
            made = search_text.title_document(title, origin)
            self._add(position, TITLE_DOC, 0, to_micros(origin.at), made)
            self._titles[no] = _IndexedTitle(position * DOCS_PER_CHANGE + TITLE_DOC, title)
            self._retitled.add(no)

    def _forget_session(self, session_no: int) -> None:
        self._flush()
        self._forget_title(session_no)
        # What a fork still reads stays; a purge may also have released entries of its ancestors.
        for ancestor_no, *_ in self._tx.all("ancestors", no=session_no):
            facets = [[search_text.session_facet(ancestor_no)]]
            for params in self._tx.match(Query(""), facets, below=None):
                self._forget(no for (no,) in self._tx.all("docs_without_entry", **params))

    def _forget_title(self, session_no: int) -> None:
        known = self._titles.pop(session_no, None)
        if known is not None:
            self._flush()
            self._forget([known.doc_no])
            self._retitled.add(session_no)

    def _forget(self, numbers: Iterable[int]) -> None:
        rows = [{"no": no} for no in numbers]
        if rows:
            self._tx.many("delete_words", rows)
            self._tx.many("delete_doc", rows)


def _is_long(found: list[str]) -> bool:
    """Whether PostgreSQL cannot keep the position of every word: 16,383 in all, 255 of one."""
    if len(found) <= MAX_OF_ONE_WORD:
        return False
    if len(found) > MAX_POSITIONS:
        return True
    if len(found) - len(set(found)) < MAX_OF_ONE_WORD:
        return False  # even if all repeated words were the same one
    counts = Counter(found)
    del counts[GAP]
    return max(counts.values()) > MAX_OF_ONE_WORD


def _loose(found: list[str]) -> Iterable[str]:
    """Each word once, or hashed where even that is more than a vector holds; facets are kept."""
    different = dict.fromkeys(found)
    if len(different) <= MAX_WORDS:
        return different
    kept = [word for word in different if search_text.is_facet(word)]
    return [*kept, HASHED, *dict.fromkeys(map(hashed, different))]
