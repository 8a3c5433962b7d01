"""Feeding the index from the log: after the commit, in batches, from a watermark."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hansard.model import document, search_text
from hansard.model.entry import SEQ_BITS
from hansard.model.search_text import SearchText
from hansard.store import blobs
from hansard.store.database import Row, Tx

BATCH = 400
MOST_PLACES = 8000
MOST_OF_ONE = 250


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
    assert settled is not None
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
    tx.run("delete_words", first=0, last=2**62)
    tx.run("clear_index")
    tx.run("reset_watermark")


def _take(tx: Tx, row: Row, docs: list[dict[str, Any]]) -> None:
    position, session_no, seq, what, role, at, body, profile, platform, title, purged = row
    entry_no = session_no << SEQ_BITS | seq
    match what:
        case "entry" if role is not None and body is not None:
            data = document.decode(body)
            if blobs.MARK in body:
                data = blobs.move_in(tx, data)
            made = search_text.of_message(role, data, profile=profile, platform=platform)
            docs.append(_doc(position, entry_no, at, made))
        case "head":
            _flush(tx, docs)
            _forget(tx, entry_no, entry_no)
            if title is not None and purged is None:
                made = search_text.of_title(title, profile=profile, platform=platform)
                docs.append(_doc(position, entry_no, at or 0, made))
        case "gone":
            _flush(tx, docs)
            _forget(tx, session_no << SEQ_BITS, ((session_no + 1) << SEQ_BITS) - 1)


def _flush(tx: Tx, docs: list[dict[str, Any]]) -> None:
    if docs:
        tx.many("insert_doc", docs)
        tx.many("insert_words", docs)
        docs.clear()


def _forget(tx: Tx, first: int, last: int) -> None:
    tx.run("delete_words", first=first, last=last)
    tx.run("delete_docs", first=first, last=last)


def _doc(position: int, entry_no: int, at: int, made: SearchText) -> dict[str, Any]:
    return {
        "is_long": int(_is_long(made.body) or _is_long(made.steps)),
        "position": position,
        "entry_no": entry_no,
        "at": at,
        "body": " ".join(made.body),
        "parts": " ".join(made.parts),
        "steps": " ".join(made.steps),
        "facets": " ".join(made.facets),
    }


def _is_long(found: list[str]) -> bool:
    """Whether PostgreSQL could not keep the place of every word: positions end at 16,383, 255 for one word."""
    if len(found) <= MOST_OF_ONE:
        return False
    return len(found) > MOST_PLACES or max(Counter(found).values()) > MOST_OF_ONE
