"""Feeds the index from the log: after the commit, in batches, from a watermark on."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import starmap
from typing import Any, NamedTuple
from zlib import crc32

from sessionary.clock import from_micros, to_micros
from sessionary.errors import Damaged
from sessionary.model import search_text
from sessionary.model.message import MAX_SEQ, SEQ_BITS
from sessionary.model.query import Query
from sessionary.model.search_text import AREAS, Origin, SearchText
from sessionary.model.tokenizer import GAP
from sessionary.store.database import REMEDY, Tx
from sessionary.store.tables import entries
from sessionary.store.tables.blobs import Unpacker
from sessionary.store.tables.sessions import missing as missing_session

BATCH = 400
# Longer texts are indexed without the positions of their words: see `_is_long`.
MAX_POSITIONS = 8000
MAX_OF_ONE_WORD = 250
# Of a text with more different words than this, the words are hashed.
MAX_WORDS = 15_000
HASHED = "\ue003"
# A change makes up to three documents: the text, its steps, the session's title.
DOCS_PER_CHANGE = 4
TITLE_DOC = 2


@dataclass(frozen=True, slots=True)
class IndexState:
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


def step(tx: Tx, limit: int = BATCH) -> int:
    """Take the next changes into the index; return how many. 0 means that the index is complete."""
    # SQLite has neither query: its positions are in commit order, and its index has one writer.
    handed_out = tx.one("handed_out")
    settled = tx.one("lock_index")
    if settled is None:
        tx.run("add_index_state")
    rows = list(starmap(FeedRow, tx.all("feed_to_index", limit=limit)))
    batch = _Batch(tx)
    for row in rows:
        batch.take(row)
    batch.flush()
    tx.run(
        "advance_watermark",
        seen=max((row.position for row in rows), default=0),
        settled=0 if settled is None else settled[0],
        handed_out=None if handed_out is None else handed_out[0],
        complete=int(len(rows) < limit),
    )
    return len(rows)


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


class _Batch:
    """Changes on their way into the index."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._docs: list[dict[str, Any]] = []
        self._titles: dict[int, str | None] = {}
        self._unpacker = Unpacker(tx)

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

    def flush(self) -> None:
        """Write the documents that were taken in."""
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

    def _index_title(self, position: int, title: str | None, origin: Origin) -> None:
        """Index a session's title when it is not the one that was indexed last."""
        no = origin.session_no
        if no not in self._titles:
            self._titles[no] = self._indexed_title(no)[1]
        if self._titles[no] == title:
            return
        self._forget_title(no)
        if title is not None:
            made = search_text.title_document(title, origin)
            self._add(position, TITLE_DOC, 0, to_micros(origin.at), made)
            doc_no = position * DOCS_PER_CHANGE + TITLE_DOC
            self._tx.run("set_indexed_title", session_no=no, doc_no=doc_no, title=title)
        self._titles[no] = title

    def _forget_session(self, session_no: int) -> None:
        self.flush()
        self._forget_title(session_no)
        self._titles[session_no] = None
        # What a fork still reads stays; a purge may also have released entries of its ancestors.
        for ancestor_no, *_ in self._tx.all("ancestors", no=session_no):
            facets = [[search_text.session_facet(ancestor_no)]]
            for params in self._tx.match(Query(""), facets, below=None):
                self._forget(no for (no,) in self._tx.all("docs_without_entry", **params))

    def _forget_title(self, session_no: int) -> None:
        doc_no, _ = self._indexed_title(session_no)
        if doc_no is not None:
            self.flush()
            self._forget([doc_no])
            self._tx.run("forget_title", session_no=session_no)

    def _indexed_title(self, session_no: int) -> tuple[int | None, str | None]:
        """The document of a session's title, and the title, as they were indexed last."""
        doc_no, title = self._tx.one("indexed_title", session_no=session_no) or (None, None)
        return doc_no, title

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
