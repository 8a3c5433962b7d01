"""Another tool's session becomes one of ours: filled while no one sees it, shown when it is whole.

A small one is a single transaction. A large one is filled in several, and the last one shows it.
One that is here already grows at its end. How far its file was read is noted in the transaction
that writes what was read: neither is ever ahead of the other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from sessionary.actions.sessions import log, titles
from sessionary.actions.sessions.log import SessionChanged
from sessionary.actions.transfer import restore_session
from sessionary.clock import Moment, from_micros, to_micros
from sessionary.errors import Conflict
from sessionary.model import codec, transcript
from sessionary.model.message import MAX_SEQ, Retraction
from sessionary.model.record import SessionLine
from sessionary.model.session import Lineage, Segment, TitleBy
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, entries, imports, sessions, transfer
from sessionary.store.tables import usage as usage_table
from sessionary.store.tables.blobs import Unpacker
from sessionary.store.tables.imports import Imported, ReadUnit

PAGE = 500
# What an import adds to a session counts as unread only if it was said within this time: then the
# conversation goes on somewhere else. Older messages are history, and history is read.
ONGOING = timedelta(days=1)
WRITTEN_ELSEWHERE = "another import is writing it; it goes on the next time"
_NATIVE_ID = re.compile(r'"platform_message_id":("(?:[^"\\]|\\.)*")')


class LogRow(NamedTuple):
    """One line of the log, as it stands there: number, kind, role, time, body."""

    seq: int
    kind: str
    role: str | None
    at: int
    text: str

    @property
    def native_id(self) -> str | None:
        """What its own tool calls it."""
        found = _NATIVE_ID.search(self.text)
        return None if found is None else str(codec.decode(found[1]))


@dataclass(slots=True)
class Added:
    """What rows add to a head."""

    messages: int = 0
    tool_calls: int = 0
    last_reply_seq: int = 0
    compacted_seq: int = 0
    preview: str | None = None
    active_at: int = 0


@dataclass(frozen=True, slots=True)
class ParentSession:
    """Where a session came from: a session here, and how much of its history is shared."""

    parent: Imported
    lineage: Lineage
    base_seq: int = 0


@dataclass(slots=True)
class WriteBatch:
    """What one transaction writes of an imported session."""

    profile: str
    tool: str
    native_id: str
    line: SessionLine
    found: Imported | None = None
    descent: ParentSession | None = None
    aliases: Sequence[str] = ()
    rows: list[LogRow] = field(default_factory=list)
    # Calls as the ledger keeps them.
    usage: list[usage_table.UsageRow] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    # Of all rows since the session was begun while it is hidden, else of these rows.
    added: Added = field(default_factory=Added)
    # Whether the head must be made from the whole log: something was taken back, or inherited.
    is_involved: bool = False
    is_whole: bool = True
    # Whether only the end of its source was read.
    is_resumed: bool = False
    unit: tuple[str, ReadUnit] | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Where a session stands after a transaction."""

    session: Imported
    notes: tuple[str, ...] = ()


def put(tx: Tx, sheaf: WriteBatch, *, moment: Moment) -> BatchResult:
    """Write one sheaf, and how far its unit was read."""
    notes: list[str] = []
    session = _target(tx, sheaf)
    for data in sheaf.blobs:
        blobs.add(tx, data)
    entries.put_texts(tx, session.no, sheaf.rows)
    if sheaf.usage:
        usage_table.raise_all(tx, sheaf.usage, profile=sheaf.profile, session_no=session.no)
    if (sheaf.usage and not session.is_hidden) or sheaf.is_whole:
        usage_table.sum_up(tx, session.no)
    last = sheaf.rows[-1].seq if sheaf.rows else session.last_seq
    after = Imported(session.no, session.id, session.base_seq, last, session.is_hidden)
    if not session.is_hidden:
        _extend(tx, sheaf, session, after, moment=moment)
    elif sheaf.is_whole:
        _show(tx, sheaf, after, moment=moment, notes=notes)
        after = Imported(session.no, session.id, session.base_seq, last)
    if sheaf.unit is not None:
        put_unit(tx, *sheaf.unit, profile=sheaf.profile, tool=sheaf.tool, moment=moment)
    return BatchResult(after, tuple(notes))


def put_unit(tx: Tx, name: str, read: ReadUnit, *, profile: str, tool: str, moment: Moment) -> None:
    """Note how far a unit was read."""
    imports.put_unit(tx, name, read, profile=profile, tool=tool, at=to_micros(moment.now))


def page(tx: Tx, segments: Sequence[Segment], after: int) -> list[LogRow]:
    """The next rows of a history behind a number, their large texts read in."""
    for segment in segments:
        if segment.last <= after:
            continue
        rest = replace(segment, first=max(segment.first, after + 1))
        found = entries.read_rows(tx, rest, limit=PAGE)
        unpacker = Unpacker(tx)
        return [
            LogRow(number & MAX_SEQ, kind, role, at, entries.text_of(tx, number, text, unpacker))
            for number, kind, role, at, _, text in found
        ]
    return []


def title_of(tx: Tx, session: Imported) -> str | None:
    """What a session is called now."""
    return sessions.get_by_no(tx, session.no).title


def history(tx: Tx, session: Imported) -> list[Segment]:
    """The stretches of log that a session reads, a hidden one's own included."""
    found = sessions.segments(tx, session.no)
    if session.is_hidden and session.last_seq > session.base_seq:
        own = Segment(session.no, session.id, session.base_seq + 1, session.last_seq)
        found = [*(each for each in found if each.no != session.no), own]
    return found


def tip(tx: Tx, segments: Sequence[Segment]) -> int:
    """The last entry of a history that was not taken back; 0 for none."""
    last = segments[-1].last if segments else 0
    for first, end in reversed(transcript.retracted(entries.marks(tx, segments))):
        if first <= last <= end:
            last = first - 1
    return last


def seq_of(tx: Tx, segments: Sequence[Segment], native_id: str) -> int | None:
    """Where a message stands that its tool calls so: the latest, when there are several."""
    wanted = f'"platform_message_id":{codec.encode(native_id)}'
    found = None
    for row in _rows(tx, segments):
        if wanted in row.text:
            found = row.seq
    return found


def way_to(
    tx: Tx, segments: Sequence[Segment], waiting: Sequence[LogRow], here: int
) -> tuple[int, list[LogRow]]:
    """The way to an entry as it was when that was said: the last of it that stands, and the rest.

    What was taken back since and said again in the same words stands.
    """
    marks = [
        (mark.body.after, mark.seq)
        for mark in entries.marks(tx, segments)
        if isinstance(mark.body, Retraction)
    ]
    marks += [(_after(row), row.seq) for row in waiting if row.kind == "retraction"]
    standing = min((after for after, seq in marks if after < here < seq), default=here)
    if standing == here:
        return here, []
    rows = [*_rows(tx, segments, standing), *waiting]
    then = [mark for mark in marks if mark[1] <= here]
    lost = _visible(rows, then, standing, here)
    while taken := [after for after, seq in then if after < standing <= seq]:
        standing = min(taken)
    now = _visible(rows, marks, standing, MAX_SEQ)
    shared = 0
    for before, after in zip(lost, now, strict=False):
        if not _says_the_same(before, after):
            break
        shared, standing = shared + 1, after.seq
    return standing, lost[shared:]


def _visible(
    rows: Sequence[LogRow], marks: Sequence[tuple[int, int]], after: int, last: int
) -> list[LogRow]:
    stretches = [(each + 1, seq) for each, seq in marks]
    return [
        row
        for row in rows
        if after < row.seq <= last
        and row.kind != "retraction"
        and not transcript.is_retracted(row.seq, stretches)
    ]


def _says_the_same(row: LogRow, other: LogRow) -> bool:
    if row.kind == other.kind == "compaction":
        return bool(codec.decode(row.text)["summary"] == codec.decode(other.text)["summary"])
    return (row.kind, row.role, row.text) == (other.kind, other.role, other.text)


def _after(row: LogRow) -> int:
    return int(codec.decode(row.text)["after"])


def renumbered(rows: Sequence[LogRow], first: int) -> list[LogRow]:
    """Rows that are said again, in a row from a number on; a summary names its entry anew."""
    moved = {row.seq: first + at for at, row in enumerate(rows)}
    return [row._replace(seq=moved[row.seq], text=_moved(row, moved)) for row in rows]


def _moved(row: LogRow, moved: Mapping[int, int]) -> str:
    if row.kind != "compaction":
        return row.text
    body = codec.decode(row.text)
    return codec.encode(body | {"through": moved.get(body["through"], body["through"])})


def _rows(tx: Tx, segments: Sequence[Segment], after: int = 0) -> Iterator[LogRow]:
    while rows := page(tx, segments, after):
        yield from rows
        after = rows[-1].seq


def _target(tx: Tx, sheaf: WriteBatch) -> Imported:
    """The session as it was when the rows were made; made now when there was none."""
    find = {"profile": sheaf.profile, "tool": sheaf.tool}
    session = imports.find_session(tx, sheaf.native_id, **find)
    if session is not None and not session.is_hidden:
        tx.one("lock_session_no", no=session.no)
        session = imports.find_session(tx, sheaf.native_id, **find)
    if session != sheaf.found:
        raise Conflict(WRITTEN_ELSEWHERE)
    if session is None:
        session = _make(tx, sheaf)
        for name in (sheaf.native_id, *sheaf.aliases):
            imports.name_session(tx, name, session.no, **find)
    return session


def _make(tx: Tx, sheaf: WriteBatch) -> Imported:
    if transfer.find(tx, sheaf.line.id) is not None:
        # On PostgreSQL another import may have made it since we looked.
        if imports.find_session(tx, sheaf.native_id, profile=sheaf.profile, tool=sheaf.tool):
            raise Conflict(WRITTEN_ELSEWHERE)
        raise Conflict(f"a session {sheaf.line.id} is here already, from elsewhere")
    parent_no = None if sheaf.descent is None else sheaf.descent.parent.no
    no = transfer.insert_hidden(tx, sheaf.line, profile=sheaf.profile, parent_no=parent_no)
    base = sheaf.line.base_seq
    return Imported(no, sheaf.line.id, base, base, is_hidden=True)


def _show(
    tx: Tx, sheaf: WriteBatch, session: Imported, *, moment: Moment, notes: list[str]
) -> None:
    line = _active(tx, sheaf, session) if sheaf.is_involved else sheaf.line
    line = msgspec.structs.replace(line, read_through=session.last_seq)
    line = restore_session.fitted(tx, _numbered(tx, line), session.no, session.last_seq, notes)
    transfer.show(
        tx,
        session.no,
        line,
        last_seq=session.last_seq,
        parent_no=None if sheaf.descent is None else sheaf.descent.parent.no,
        project_no=restore_session.project_of(tx, line, moment=moment),
    )
    log.put(tx, session.no, _counts(tx, sheaf, session))
    _put_draft(tx, session, line.draft, moment=moment)
    transfer.tell_entries(tx, session.no, session.base_seq + 1, session.last_seq)
    _tell(tx, sheaf, session)


def _active(tx: Tx, sheaf: WriteBatch, session: Imported) -> SessionLine:
    """With the time of what an earlier reading heard, if the source no longer has it."""
    first, last = entries.entry_no(session.no, 0), entries.entry_no(session.no, MAX_SEQ)
    row = tx.one("count_entries", first=first, last=last)
    line = sheaf.line
    if row is None or row[3] is None:
        return line
    active_at = max(from_micros(row[3]), line.last_active_at or line.began_at)
    return msgspec.structs.replace(line, last_active_at=active_at)


def _numbered(tx: Tx, line: SessionLine) -> SessionLine:
    """With a title that is free. Many begin with the same words: that is not worth a note."""
    if line.title is None:
        return line
    free = titles.free_title(tx, line.title, profile=line.profile)
    return msgspec.structs.replace(line, title=free)


def _extend(
    tx: Tx, sheaf: WriteBatch, before: Imported, after: Imported, *, moment: Moment
) -> None:
    added = sheaf.added
    if sheaf.rows:
        is_history = added.active_at < to_micros(moment.now - ONGOING)
        if is_history and not sessions.get_by_no(tx, after.no).unread:
            tx.run("set_read_through", no=after.no, read_through=after.last_seq)
        tx.run(
            "add_counts",
            no=after.no,
            last_seq=after.last_seq,
            messages=added.messages,
            tool_calls=added.tool_calls,
            last_reply_seq=added.last_reply_seq,
            compacted_seq=added.compacted_seq,
            preview=added.preview,
            active_at=added.active_at,
        )
        if sheaf.is_involved:
            log.put(tx, after.no, log.counts(tx, sessions.segments(tx, after.no)))
        transfer.tell_entries(tx, after.no, before.last_seq + 1, after.last_seq)
    if sheaf.is_whole:
        _refresh(tx, sheaf, after, moment=moment)
    if sheaf.rows:
        _tell(tx, sheaf, after)


def _put_draft(tx: Tx, session: Imported, draft: str | None, *, moment: Moment) -> None:
    """Keep what was typed in the tool and not sent."""
    if draft:
        at = to_micros(moment.now)
        tx.run("set_draft", no=session.no, text=codec.encode(draft), at=at)


def _refresh(tx: Tx, sheaf: WriteBatch, session: Imported, *, moment: Moment) -> None:
    """Update the session from what its tool says now. An existing draft was typed by a person and stays."""
    line, head = sheaf.line, sessions.get_by_no(tx, session.no)
    is_other = line.model is not None and line.model != head.model
    details = sessions.details(tx, session.no)
    known = details.extra
    if details.draft is None:
        _put_draft(tx, session, line.draft, moment=moment)
    extra = _both(known, line.extra) if sheaf.is_resumed else line.extra
    if is_other or known != extra:
        text = codec.encode(extra)
        tx.run("set_imported_facts", no=session.no, model=line.model, extra=text)
    if (
        line.title
        and head.title_by is not TitleBy.PERSON
        and not _is_called(head.title, line.title)
    ):
        titles.name_automatically(tx, head, line.title, by=TitleBy.IMPORT)


def _both(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """What was known and what the rest of a source adds: what could not be read is counted on."""
    origin = {**known.get("import", {}), **more.get("import", {})}
    skipped = sum(each.get("import", {}).get("skipped", 0) for each in (known, more))
    if skipped:
        origin["skipped"] = skipped
    return {**known, **more, "import": origin}


def _is_called(title: str | None, wanted: str) -> bool:
    """Whether a session has the title, perhaps with a number that keeps it apart from others."""
    return title is not None and (title == wanted or title.rpartition(" #")[0] == wanted)


def _counts(tx: Tx, sheaf: WriteBatch, session: Imported) -> log.LogCounts:
    if sheaf.is_involved:
        return log.counts(tx, sessions.segments(tx, session.no))
    added = sheaf.added
    return log.LogCounts(
        added.messages, added.tool_calls, added.last_reply_seq, added.preview, added.compacted_seq
    )


def _tell(tx: Tx, sheaf: WriteBatch, session: Imported) -> None:
    tx.run("insert_feed", session_no=session.no, seq=0, what="head")
    tx.after_commit(SessionChanged(sheaf.profile, session.id))
