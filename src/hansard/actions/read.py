"""Reading: heads, lists, windows of a transcript, what the model sees."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from hansard.actions import fold, resolve
from hansard.clock import to_micros
from hansard.errors import BadInput, NotFound
from hansard.model import transcript
from hansard.model.cursor import Cursor
from hansard.model.entry import Compaction, Entry, Message, Retraction
from hansard.model.key import SessionKey
from hansard.model.place import ChatType
from hansard.model.session import Kind, Segment, SessionHead, Shelf
from hansard.store import blobs, entries, sessions
from hansard.store.database import Tx

MAX_LIMIT = 1000
COUNTED = 1000
_SCANNED = 20_000


@dataclass(frozen=True, slots=True)
class Filters:
    """What narrows a list of sessions."""

    shelf: Shelf = Shelf.CHATS
    platform: str | None = None
    kind: Kind | None = None
    project: str | None = None
    model: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    is_open: bool | None = None
    pinned: bool = False
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, and where the next begins."""

    items: tuple[SessionHead, ...]
    next: str | None
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a transcript, and whether there is more on either side."""

    entries: tuple[Entry, ...]
    more_before: bool
    more_after: bool


def head(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """The head of one session."""
    found = sessions.get(tx, id, profile=profile)
    if found is None:
        raise NotFound(f"There is no session {id}.")
    return found


def find(tx: Tx, ref: str, *, profile: str) -> SessionHead:
    """The session a person means."""
    return resolve.resolve(tx, ref, profile=profile)


def listing(
    tx: Tx, filters: Filters, *, profile: str, limit: int = 50, cursor: str | None = None
) -> Page:
    """Newest activity first, a page at a time; a page costs the same in a store of any size."""
    _check_limit(limit)
    at = (
        Cursor.parse(cursor)
        if cursor
        else Cursor.first(None if filters.until is None else to_micros(filters.until))
    )
    found: list[SessionHead] = []
    scanned, exhausted = 0, False
    while len(found) <= limit and scanned < _SCANNED and not exhausted:
        rows = _rows(tx, filters, profile=profile, at=at, limit=limit + 1)
        scanned, exhausted = scanned + len(rows), len(rows) <= limit
        found.extend(row for row in rows if _mentions(row, filters.text))
        at = _behind(rows[-1]) if rows else at
    page = found[:limit]
    # A rare word may not fill a page within one search; the next page goes on from there.
    more = _behind(page[-1]) if len(found) > limit else None if exhausted else at
    return Page(
        tuple(page), None if more is None else str(more), _hidden(tx, filters, profile=profile)
    )


def window(
    tx: Tx,
    id: str,
    *,
    profile: str,
    limit: int = 60,
    before: int | None = None,
    after: int | None = None,
    around: int | None = None,
) -> Window:
    """What people read, around an entry, before it, after it, or at the end."""
    _check_limit(limit)
    segments = _segments(tx, id, profile=profile)
    reader = _Visible(tx, segments)
    if around is not None:
        older = reader.backwards(around - 1, limit // 2 + 1)
        newer = reader.forwards(around, limit - limit // 2 + 1)
        more_before, more_after = len(older) > limit // 2, len(newer) > limit - limit // 2
        shown = older[-(limit // 2) :] if limit // 2 else []
        return Window((*shown, *newer[: limit - limit // 2]), more_before, more_after)
    if after is not None:
        newer = reader.forwards(after + 1, limit + 1)
        return Window(tuple(newer[:limit]), after >= 1, len(newer) > limit)
    last = reader.last if before is None else before - 1
    older = reader.backwards(last, limit + 1)
    return Window(tuple(older[-limit:]), len(older) > limit, last < reader.last)


def transcript_of(tx: Tx, id: str, *, profile: str, through: int | None = None) -> list[Entry]:
    """The whole of what people read. Long sessions are better read by `window`."""
    segments = _segments(tx, id, profile=profile, through=through)
    return transcript.transcript(list(entries.walk(tx, segments)))


def log_of(tx: Tx, id: str, *, profile: str, after: int = 0, limit: int = 500) -> list[Entry]:
    """A page of the raw log, retracted entries and marks included."""
    _check_limit(limit)
    found: list[Entry] = []
    for segment in _segments(tx, id, profile=profile):
        if segment.last > after and len(found) < limit:
            rest = replace(segment, first=max(segment.first, after + 1))
            found.extend(entries.read(tx, rest, limit=limit - len(found)))
    return found


def context(tx: Tx, id: str, *, profile: str) -> list[transcript.Chat]:
    """What the model reads: from the last compaction on, repaired so that providers accept it."""
    found = head(tx, id, profile=profile)
    segments = sessions.segments(tx, found.no)
    marks = entries.marks(tx, segments)
    compaction = transcript.latest_compaction(marks)
    first = (
        compaction.body.through + 1 if compaction and isinstance(compaction.body, Compaction) else 1
    )
    said = [
        entry
        for entry in entries.walk(tx, _from(segments, first))
        if isinstance(entry.body, Message)
    ]
    both = sorted((*said, *marks), key=lambda entry: entry.seq)
    return transcript.context(both, name_speakers=names_speakers(found))


def system_prompt(tx: Tx, head: SessionHead) -> str | None:
    """The system prompt a session was begun with."""
    found = sessions.details(tx, head.no).prompt_hash
    return None if found is None else blobs.get_text(tx, found)


def names_speakers(head: SessionHead) -> bool:
    """Whether several people may be behind this session (rule K-8)."""
    if head.key is None:  # a fork, or one that gave its key away
        return head.source.chat_type != ChatType.DM
    key = SessionKey.parse(head.key)
    return key.person is None and key.chat_type != ChatType.DM


def children(tx: Tx, head: SessionHead) -> list[SessionHead]:
    """The sessions that came from this one."""
    return [
        sessions.get_by_no(tx, row[0])
        for row in tx.all("children", no=head.no)
        if row[4] != Shelf.GONE
    ]


def branches(tx: Tx, id: str, *, profile: str) -> list[tuple[int, int]]:
    """The stretches that were taken back; fork at the end of one to have it again."""
    marks = entries.marks(tx, _segments(tx, id, profile=profile))
    return [(m.body.after + 1, m.seq - 1) for m in marks if isinstance(m.body, Retraction)]


def counts(tx: Tx, head: SessionHead) -> fold.Counts:
    """The head's counts, made anew from the log."""
    return fold.counts(tx, sessions.segments(tx, head.no))


class _Visible:
    """Reads what was not taken back, in either direction, a page at a time."""

    def __init__(self, tx: Tx, segments: Sequence[Segment]) -> None:
        self._tx = tx
        self._segments = segments
        self._stretches = transcript.retracted(entries.marks(tx, segments))
        self.last = segments[-1].last if segments else 0

    def backwards(self, last: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        for segment in reversed(self._segments):
            upper = min(segment.last, last)
            while upper >= segment.first and len(found) < limit:
                part = replace(segment, last=upper)
                page = entries.read(self._tx, part, limit=limit - len(found) + 8, backwards=True)
                found[:0] = self._shown(page)
                if not page:
                    break
                upper = page[0].seq - 1
        return found[-limit:]

    def forwards(self, first: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        for segment in self._segments:
            lower = max(segment.first, first)
            while lower <= segment.last and len(found) < limit:
                page = entries.read(
                    self._tx, replace(segment, first=lower), limit=limit - len(found) + 8
                )
                found += self._shown(page)
                if not page:
                    break
                lower = page[-1].seq + 1
        return found[:limit]

    def _shown(self, page: Sequence[Entry]) -> Iterator[Entry]:
        for entry in page:
            if not isinstance(entry.body, Retraction) and not transcript.is_retracted(
                entry.seq, self._stretches
            ):
                yield entry


def _segments(tx: Tx, id: str, *, profile: str, through: int | None = None) -> list[Segment]:
    return sessions.segments(tx, head(tx, id, profile=profile).no, through=through)


def _from(segments: Sequence[Segment], first: int) -> list[Segment]:
    return [replace(each, first=max(each.first, first)) for each in segments if each.last >= first]


def _rows(tx: Tx, filters: Filters, *, profile: str, at: Cursor, limit: int) -> list[SessionHead]:
    query = "list_by_activity"
    params = {}
    if filters.pinned:
        query = "list_pinned"
    elif filters.project is not None:
        query = "list_by_project"
        row = tx.one("get_project", profile=profile, name=filters.project)
        if row is None:
            raise NotFound(f"There is no project {filters.project!r}.")
        params["project_no"] = row[0]
    elif filters.platform is not None:
        query = "list_by_platform"
        params["platform"] = filters.platform
    rows = tx.all(
        query,
        profile=profile,
        shelf=filters.shelf,
        before_at=at.at,
        before_no=at.no,
        since=-(2**62) if filters.since is None else to_micros(filters.since),
        kind=filters.kind,
        model=filters.model,
        only_platform=filters.platform,
        only_open=None if filters.is_open is None else int(filters.is_open),
        limit=limit,
        **params,
    )
    return [sessions.head(row) for row in rows]


def _behind(head: SessionHead) -> Cursor:
    return Cursor.after(to_micros(head.last_active_at), head.no)


def _mentions(head: SessionHead, text: str | None) -> bool:
    if not text:
        return True
    return text.casefold() in f"{head.title or ''}\n{head.preview or ''}".casefold()


def _hidden(tx: Tx, filters: Filters, *, profile: str) -> int:
    """How many automation sessions a list of chats leaves out; 1,000 means «1,000 or more»."""
    if filters.shelf is not Shelf.CHATS:
        return 0
    row = tx.one("count_shelf", profile=profile, shelf=Shelf.AUTOMATION, limit=COUNTED)
    return 0 if row is None else int(row[0])


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise BadInput(f"A page has 1 to {MAX_LIMIT:,} items, not {limit}.")
