"""Out of the store as lines of JSON: lossless, in pages, never the whole store in memory.

Nothing here writes to the store. The log is append-only, so each session is read in short
reads up to the entry that was its last when its turn came; writers are not disturbed.
"""

import base64
from collections.abc import Callable, Iterator, Sequence

from sessionary.actions.sessions import read
from sessionary.errors import NotFound
from sessionary.model import codec, record
from sessionary.model.message import MAX_SEQ, Attachment, Entry, Message
from sessionary.model.record import (
    WHOLE,
    BlobLine,
    CloseLine,
    DropLine,
    EndLine,
    ExportOptions,
    Header,
    TurnLine,
    entry_within,
    line_within,
    turn_within,
)
from sessionary.model.redact import masked_json, secrets_in
from sessionary.model.session import Segment, SessionFolder
from sessionary.model.source import Source
from sessionary.store.database import Row, Store, Tx
from sessionary.store.tables import blobs, entries, sessions, transfer
from sessionary.store.tables.transfer import LineageLink

PAGE = 100
_NOWHERE = {"platform": "unknown"}

# A session's number, and for what others continue from: the last entry they need.
Item = tuple[int, int | None]
Numbered = tuple[int, record.TurnLine] | tuple[int, record.UsageLine]


def export_jsonl(
    store: Store,
    ids: Sequence[str] | None = None,
    *,
    profile: str | None,
    extent: ExportOptions = WHOLE,
) -> Iterator[str]:
    """Sessions as lines of JSON that `import_jsonl` reads; all of a profile when no ids are given.

    Ids need a profile; without one and without ids, every profile is exported. Sessions stand
    in the order in which they were opened, each behind what it came from; of a parent that is
    not among them, only what they need is written. With an extent that leaves something out it
    is not the record any more, but can be imported like it.
    """
    items = _all(store, profile) if ids is None else _selected(store, ids, profile or "")
    yield record.write(Header(record.VERSION))
    count = 0
    for no, through in items:
        for line in _session(store, no, through, extent):
            count += isinstance(line, EndLine)
            written = record.write(line)
            yield _masked(written) if extent.mask_secrets else written
    yield record.write(CloseLine(sessions=count))


def _masked(line: str) -> str:
    """A line without what looks like a secret; attachments are as they were."""
    if not any(True for _ in secrets_in(line)):
        return line
    made = codec.decode(line)
    return line if made.get("line") == "blob" else codec.encode(masked_json(made)) + "\n"


def _all(store: Store, profile: str | None) -> Iterator[Item]:
    """Every session, by number; but a parent that has a higher number comes before its child."""
    after = 0
    early: set[int] = set()
    while page := store.read(_page, profile, after).result():
        for no in page:
            after = no
            line = [(no, link) for no, link in _line_up(store, no) if no not in early]
            early.update(higher for higher, _ in line if higher > no)
            for each, link in reversed(line):
                if not link.is_gone:
                    yield each, None
                elif (need := store.read(transfer.needed_below, each).result()) is not None:
                    yield each, need


def _page(tx: Tx, profile: str | None, after: int) -> list[int]:
    if profile is None:
        rows = tx.all("page_of_all_sessions", after=after, limit=PAGE)
    else:
        rows = tx.all("page_of_sessions", profile=profile, after=after, limit=PAGE)
    return [row[0] for row in rows]


def _line_up(store: Store, no: int) -> list[tuple[int, LineageLink]]:
    """A session and those of its ancestors that have not had their turn, nearest first."""
    line: dict[int, LineageLink] = {}
    at: int | None = no
    while at is not None and at not in line and (not line or at > no):
        line[at] = link = store.read(transfer.link, at).result()
        at = link.parent_no
    return list(line.items())


def _selected(store: Store, ids: Sequence[str], profile: str) -> list[Item]:
    """The wanted sessions by number, each behind what it came from, whole or as far as needed."""
    wanted = {store.read(read.head, each, profile=profile).result().no for each in ids}
    links: dict[int, LineageLink] = {}
    needs: dict[int, int] = {}
    for no in sorted(wanted):
        _note_needs(store, no, wanted, links, needs)
    placed: dict[int, None] = {}
    for no in sorted(wanted):
        line: list[int] = []
        at: int | None = no
        while at is not None and at not in placed and at not in line:
            line.append(at)
            goes_on = at in wanted or (needs[at] > 0 and links[at].inherits)
            at = links[at].parent_no if goes_on else None
        placed.update(dict.fromkeys(reversed(line)))
    return [(no, None if no in wanted else needs[no]) for no in placed]


def _note_needs(
    store: Store, no: int, wanted: set[int], links: dict[int, LineageLink], needs: dict[int, int]
) -> None:
    """Climb from a wanted session, noting how much of each ancestor it reads."""
    seen: set[int] = set()
    need: int | None = None
    at: int | None = no
    while at is not None and at not in seen:
        seen.add(at)
        if at not in links:
            links[at] = store.read(transfer.link, at).result()
        link = links[at]
        if at in wanted:
            if at != no:
                return  # it climbs for itself
            need = link.base_seq if link.inherits else 0
        else:
            needs[at] = max(needs.get(at, 0), need or 0)
            if not need or not link.inherits:
                return
            need = min(need, link.base_seq)
        at = link.parent_no


def _session(
    store: Store, no: int, through: int | None, extent: ExportOptions
) -> Iterator[record.Line]:
    """One session from its facts to its end line."""
    if through is None:
        line, own = store.read(transfer.facts, no).result()
    else:
        line, own = store.read(transfer.partial_facts, no, through=through).result()
    source = Source.from_json(line.source or _NOWHERE)
    yield line_within(line, extent)
    counts = dict.fromkeys(("turns", "blobs", "entries", "usage"), 0)
    if through is None:
        for turn in _pages(store, transfer.turns_page, no):
            counts["turns"] += 1
            yield turn_within(turn, source, extent) if isinstance(turn, TurnLine) else turn
    for each in _log(store, own, source, extent):
        if each is None:
            yield DropLine(id=line.id)
            return
        counts["blobs" if isinstance(each, BlobLine) else "entries"] += 1
        yield each
    if through is None:
        for call in _pages(store, transfer.usage_page, no):
            counts["usage"] += 1
            yield call
    yield EndLine(id=line.id, **counts)


def _pages(
    store: Store, page_of: Callable[[Tx, int, int], Sequence[Numbered]], no: int
) -> Iterator[record.Line]:
    after = 0
    while page := store.read(page_of, no, after).result():
        for after, line in page:  # noqa: B007  # the last number is where the next page begins
            yield line


def _log(
    store: Store, own: Segment, source: Source, extent: ExportOptions
) -> Iterator[BlobLine | record.EntryLine | None]:
    """A session's own entries, attachments before their first use; None: it is being purged."""
    attached: set[str] = set()
    for entry in walk(store, [own]):
        if entry is None:
            yield None
            return
        for name in _blobs_of(entry):
            if name not in attached:
                attached.add(name)
                data = _bytes_of(store, own.no, name)
                if data is None:
                    yield None
                    return
                yield BlobLine(hash=name, data=base64.b64encode(data).decode())
        yield record.entry_line(entry_within(entry, source, extent))


def _bytes_of(store: Store, session_no: int, name: str) -> bytes | None:
    """An attachment's bytes; None when its session has been purged since its entry was read."""
    try:
        return store.read(blobs.get, name).result()
    except NotFound:
        if _is_gone(store, session_no):
            return None
        raise


def walk(store: Store, segments: Sequence[Segment]) -> Iterator[Entry | None]:
    """Every entry of the stretches in short reads; None: the session is being purged meanwhile."""
    for segment in segments:
        first = segment.first
        while first <= segment.last:
            rest = Segment(segment.no, segment.session_id, first, segment.last)
            try:
                page = store.read(transfer.entries_page, rest).result()
                for each in page:
                    yield each if isinstance(each, Entry) else _alone(store, rest, each)
            except NotFound:
                yield None
                return
            first += len(page)


def _alone(store: Store, segment: Segment, row: Row) -> Entry:
    """Read an entry with large texts again: meanwhile they may have been packed or purged."""
    seq = row[0] & MAX_SEQ
    alone = Segment(segment.no, segment.session_id, seq, seq)
    return store.read(entries.read, alone).result()[0]


def _is_gone(store: Store, session_no: int) -> bool:
    return store.read(sessions.get_by_no, session_no).result().folder is SessionFolder.GONE


def _blobs_of(entry: Entry) -> Iterator[str]:
    if isinstance(entry.body, Message):
        for part in entry.body.parts:
            if isinstance(part, Attachment):
                yield part.blob
