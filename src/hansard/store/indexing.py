"""Feeding the index from the log: after the commit, in batches, from a watermark."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from hansard.clock import from_micros
from hansard.model import document, search_text
from hansard.model.entry import SEQ_BITS
from hansard.model.query import Query
from hansard.model.search_text import AREAS, Origin, SearchText
from hansard.model.words import GAP
from hansard.store import blobs
from hansard.store.database import Row, Tx

BATCH = 400
MOST_PLACES = 8000
MOST_OF_ONE = 250
MOST_DIFFERENT = 15_000
HASHED = "\ue003"


@dataclass(frozen=True, slots=True)
class IndexState:
    """How far the index has come, and how many changes it has not seen."""

    watermark: int
    behind: int


def state(tx: Tx) -> IndexState:
    """How far the index has come, as of this transaction."""
    row = tx.one("index_state")
    assert row is not None
    return IndexState(*row)


def step(tx: Tx, limit: int = BATCH) -> int:
    """Take the next changes into the index; how many there were. 0 means that it is complete."""
    settled = tx.one("lock_index")
    if settled is None:
        tx.run("begin_index", store_id="")
        settled = (0,)
    rows = tx.all("feed_to_index", limit=limit)
    docs: list[dict[str, Any]] = []
    for row in rows:
        _take(tx, row, docs)
    _flush(tx, docs)
    tx.run(
        "advance_watermark",
        seen=max((row[0] for row in rows), default=0),
        settled=settled[0],
        complete=int(len(rows) < limit),
    )
    return len(rows)


def clear(tx: Tx) -> None:
    """Forget everything; the next steps make it again."""
    tx.one("lock_index")
    tx.run("clear_index")


def hashed(word: str) -> str:
    """One of 65,536 words that stands for this one, where a text has too many to keep."""
    return f"{HASHED}{crc32(word.encode()) & 0xFFFF:x}"


def _take(tx: Tx, row: Row, docs: list[dict[str, Any]]) -> None:
    position, session_no, seq, what, role, at, body, profile, platform, title, purged = row
    match what:
        case "entry" if role is not None and body is not None:
            data = document.decode(body)
            if blobs.MARK in body:
                data = blobs.move_in(tx, data)
            origin = Origin(profile, platform, session_no, from_micros(at))
            docs += [
                _doc(position, session_no << SEQ_BITS | seq, at, made)
                for made in search_text.of_message(role, data, origin)
            ]
        case "head":
            _flush(tx, docs)
            known = tx.one("indexed_title", session_no=session_no)
            wanted = title if purged is None else None
            if wanted != (None if known is None else known[1]):
                _forget_title(tx, session_no)
                if wanted is not None:
                    origin = Origin(profile, platform, session_no, from_micros(at or 0))
                    made = search_text.of_title(wanted, origin)
                    docs.append(_doc(position, session_no << SEQ_BITS, at or 0, made))
                    no = docs[-1]["no"]
                    tx.run("set_indexed_title", session_no=session_no, doc_no=no, title=wanted)
        case "gone":
            _flush(tx, docs)
            _forget_title(tx, session_no)
            # What a fork still reads stays; a purge may also have released what ancestors had kept.
            for ancestor_no, *_ in tx.all("ancestors", no=session_no):
                _forget_purged(tx, ancestor_no)


def _flush(tx: Tx, docs: list[dict[str, Any]]) -> None:
    if docs:
        tx.many("insert_doc", docs)
        tx.many("insert_words", docs)
        docs.clear()


def _forget_title(tx: Tx, session_no: int) -> None:
    known = tx.one("indexed_title", session_no=session_no)
    if known is not None:
        _forget(tx, [known[0]])
        tx.run("forget_title", session_no=session_no)


def _forget_purged(tx: Tx, session_no: int) -> None:
    facets = [[search_text.of_session(session_no)]]
    asked = tx.match(Query(""), facets, below=None)[-1]
    _forget(tx, [row[0] for row in tx.all("docs_without_entry", match=asked["match"])])


def _forget(tx: Tx, numbers: Iterable[int]) -> None:
    rows = [{"no": no} for no in numbers]
    if rows:
        tx.many("delete_words", rows)
        tx.many("delete_doc", rows)


def _doc(position: int, entry_no: int, at: int, made: SearchText) -> dict[str, Any]:
    is_long = _is_long(made.words)
    return {
        "no": position * 2 + AREAS.index(made.area),
        "entry_no": entry_no,
        "at": at,
        "words": " ".join(made.words),
        "is_long": int(is_long),
        "loose": " ".join(_loose(made.words)) if is_long else "",
    }


def _is_long(found: list[str]) -> bool:
    """Whether PostgreSQL could not keep the place of every word: 16,383 in all, 255 of one."""
    if len(found) <= MOST_OF_ONE:
        return False
    counts = Counter(found)
    del counts[GAP]
    return len(found) > MOST_PLACES or max(counts.values()) > MOST_OF_ONE


def _loose(found: list[str]) -> Iterable[str]:
    """Each word once, or hashed where even that is more than a vector holds. Facets come first."""
    different = dict.fromkeys(found)
    if len(different) <= MOST_DIFFERENT:
        return different
    kept = [word for word in different if search_text.is_facet(word)]
    return [*kept, HASHED, *dict.fromkeys(map(hashed, different))]
