"""Merge another tool's session into the store: filled while it is hidden, shown when it is complete.

A small session is a single transaction. A large one takes several, and the last one shows it.
A session that is here already grows at its end. How far its file was read is noted in the same
transaction as what was read, so that neither is ever ahead of the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from sessionary.actions.sessions import log, titles
from sessionary.actions.sessions.log import SessionChanged
from sessionary.actions.transfer import jsonl_import
from sessionary.clock import Moment, to_micros
from sessionary.errors import Conflict
from sessionary.model import codec, transcript
from sessionary.model.message import MAX_SEQ, Retraction
from sessionary.model.record import SessionLine
from sessionary.model.session import Lineage, Segment, TitleBy, clip
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, entries, imports, sessions, transfer
from sessionary.store.tables import usage as usage_table
from sessionary.store.tables.entries import LogRow
from sessionary.store.tables.imports import Added, Imported, ReadUnit

PAGE = 500
# What an import adds to a session counts as unread only if it was said within this time: then the
# conversation goes on somewhere else. Older messages are history, and history is read.
ONGOING = timedelta(days=1)
WRITTEN_ELSEWHERE = "another import is writing it; it goes on the next time"


class ParentSession(Struct, frozen=True):
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
    # Whether the head's counts must be made from the whole log: something was retracted or inherited.
    is_involved: bool = False
    is_whole: bool = True
    # Whether only the end of its source was read.
    is_resumed: bool = False
    unit: tuple[str, ReadUnit] | None = None


class BatchResult(Struct, frozen=True):
    """Where a session stands after a transaction."""

    session: Imported
    notes: tuple[str, ...] = ()


def put(tx: Tx, batch: WriteBatch, *, moment: Moment) -> BatchResult:
    """Write one batch, and how far its source was read."""
    notes: list[str] = []
    session = _target(tx, batch)
    for data in batch.blobs:
        blobs.add(tx, data)
    entries.put_texts(tx, session.no, batch.rows)
    if batch.usage:
        usage_table.raise_all(tx, batch.usage, profile=batch.profile, session_no=session.no)
    if (batch.usage and not session.is_hidden) or batch.is_whole:
        usage_table.sum_up(tx, session.no)
    last = batch.rows[-1].seq if batch.rows else session.last_seq
    after = Imported(session.no, session.id, session.base_seq, last, session.is_hidden)
    if not session.is_hidden:
        _extend(tx, batch, session, after, moment=moment)
    elif batch.is_whole:
        _show(tx, batch, after, moment=moment, notes=notes)
        after = Imported(session.no, session.id, session.base_seq, last)
    if batch.unit is not None:
        put_unit(tx, *batch.unit, profile=batch.profile, tool=batch.tool, moment=moment)
    return BatchResult(after, tuple(notes))


def put_unit(tx: Tx, name: str, read: ReadUnit, *, profile: str, tool: str, moment: Moment) -> None:
    """Note how far a unit was read."""
    imports.put_unit(tx, name, read, profile=profile, tool=tool, at=to_micros(moment.now))


def page(tx: Tx, segments: Sequence[Segment], after: int) -> list[LogRow]:
    """The next rows of a history after a number, with their large texts."""
    rest = clip(segments, after + 1)
    return entries.read_texts(tx, rest[0], limit=PAGE) if rest else []


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
    """The last entry of a history that was not retracted; 0 for none."""
    last = segments[-1].last if segments else 0
    for first, end in reversed(transcript.retracted(entries.retractions(tx, segments))):
        if first <= last <= end:
            last = first - 1
    return last


def seq_of(tx: Tx, segments: Sequence[Segment], native_id: str) -> int | None:
    """The number of the message with this native id, the latest if there are several."""
    wanted = f'"platform_message_id":{codec.encode(native_id)}'
    found = None
    for row in _rows(tx, segments):
        if wanted in row.text:
            found = row.seq
    return found


def way_to(
    tx: Tx, segments: Sequence[Segment], waiting: Sequence[LogRow], here: int
) -> tuple[int, list[LogRow]]:
    """The history up to an entry as it was then: its last entry that is still visible, and the rest.

    What was retracted since and then repeated in the same words counts as visible.
    """
    marks = [
        (mark.body.after, mark.seq)
        for mark in entries.retractions(tx, segments)
        if isinstance(mark.body, Retraction)
    ]
    marks += [(_after(row), row.seq) for row in waiting if row.kind == "retraction"]
    visible = min((after for after, seq in marks if after < here < seq), default=here)
    if visible == here:
        return here, []
    rows = [*_rows(tx, segments, visible), *waiting]
    then = [mark for mark in marks if mark[1] <= here]
    lost = _visible(rows, then, visible, here)
    while taken := [after for after, seq in then if after < visible <= seq]:
        visible = min(taken)
    now = _visible(rows, marks, visible, MAX_SEQ)
    shared = 0
    for before, after in zip(lost, now, strict=False):
        if not _says_the_same(before, after):
            break
        shared, visible = shared + 1, after.seq
    return visible, lost[shared:]


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
    """Rows that are repeated, numbered from `first`; a compaction refers to the new numbers."""
    moved = {row.seq: first + at for at, row in enumerate(rows)}
    return [row._replace(seq=moved[row.seq], text=_moved(row, moved)) for row in rows]


def _moved(row: LogRow, moved: Mapping[int, int]) -> str:
    if row.kind != "compaction":
        return row.text
    body = codec.decode(row.text)
    for name in ("through", "shortened"):
        if name in body:
            body[name] = moved.get(body[name], body[name])
    if "kept" in body:
        body["kept"] = [moved.get(seq, seq) for seq in body["kept"]]
    return codec.encode(body)


def _rows(tx: Tx, segments: Sequence[Segment], after: int = 0) -> Iterator[LogRow]:
    while rows := page(tx, segments, after):
        yield from rows
        after = rows[-1].seq


def _target(tx: Tx, batch: WriteBatch) -> Imported:
    """The session as it was when the rows were made; a new hidden one if there was none."""
    find = {"profile": batch.profile, "tool": batch.tool}
    session = imports.find_session(tx, batch.native_id, **find)
    if session is not None and not session.is_hidden:
        sessions.lock_session_no(tx, session.no)
        session = imports.find_session(tx, batch.native_id, **find)
    if session != batch.found:
        raise Conflict(WRITTEN_ELSEWHERE)
    if session is None:
        session = _make(tx, batch)
        for name in (batch.native_id, *batch.aliases):
            imports.name_session(tx, name, session.no, **find)
    return session


def _make(tx: Tx, batch: WriteBatch) -> Imported:
    if transfer.find(tx, batch.line.id) is not None:
        # On PostgreSQL another import may have made it since we looked.
        if imports.find_session(tx, batch.native_id, profile=batch.profile, tool=batch.tool):
            raise Conflict(WRITTEN_ELSEWHERE)
        raise Conflict(f"a session {batch.line.id} is here already, from elsewhere")
    parent_no = None if batch.descent is None else batch.descent.parent.no
    no = transfer.insert_hidden(tx, batch.line, profile=batch.profile, parent_no=parent_no)
    base = batch.line.base_seq
    return Imported(no, batch.line.id, base, base, is_hidden=True)


def _show(
    tx: Tx, batch: WriteBatch, session: Imported, *, moment: Moment, notes: list[str]
) -> None:
    parent_no = None if batch.descent is None else batch.descent.parent.no
    jsonl_import.lock_inherited(tx, batch.line, parent_no)
    line = _active(tx, batch, session) if batch.is_involved else batch.line
    line = msgspec.structs.replace(line, read_through=session.last_seq)
    line = jsonl_import.fit_facts(tx, _numbered(tx, line), session.no, session.last_seq, notes)
    transfer.show(
        tx,
        session.no,
        line,
        last_seq=session.last_seq,
        parent_no=parent_no,
        project_no=jsonl_import.project_of(tx, line, moment=moment),
    )
    sessions.set_counts(tx, session.no, _counts(tx, batch, session))
    _put_draft(tx, session, line.draft, moment=moment)
    transfer.tell_entries(tx, session.no, session.base_seq + 1, session.last_seq)
    _publish(tx, batch, session)


def _active(tx: Tx, batch: WriteBatch, session: Imported) -> SessionLine:
    """The facts with the time of the last message that an earlier read found, if that is later."""
    line = batch.line
    said_at = entries.extent(tx, session.no).active_at
    if said_at is None:
        return line
    active_at = max(said_at, line.last_active_at or line.began_at)
    return msgspec.structs.replace(line, last_active_at=active_at)


def _numbered(tx: Tx, line: SessionLine) -> SessionLine:
    """The facts with a free title. Many sessions begin with the same words: that is not worth a note."""
    if line.title is None:
        return line
    free = titles.find_free_title(tx, line.title, profile=line.profile)
    return msgspec.structs.replace(line, title=free)


def _extend(
    tx: Tx, batch: WriteBatch, before: Imported, after: Imported, *, moment: Moment
) -> None:
    added = batch.added
    if batch.rows:
        is_history = added.active_at < to_micros(moment.now - ONGOING)
        if is_history and not sessions.get_by_no(tx, after.no).unread:
            sessions.set_read_through(tx, after.no, after.last_seq)
        imports.add_counts(tx, after.no, added, last_seq=after.last_seq)
        if batch.is_involved:
            sessions.set_counts(tx, after.no, log.count_log(tx, sessions.segments(tx, after.no)))
        transfer.tell_entries(tx, after.no, before.last_seq + 1, after.last_seq)
    if batch.is_whole:
        _refresh(tx, batch, after, moment=moment)
    if batch.rows:
        _publish(tx, batch, after)


def _put_draft(tx: Tx, session: Imported, draft: str | None, *, moment: Moment) -> None:
    """Keep what was typed in the tool and not sent."""
    if draft:
        sessions.set_draft(tx, session.no, draft, at=moment.now)


def _refresh(tx: Tx, batch: WriteBatch, session: Imported, *, moment: Moment) -> None:
    """Update the session from what its tool says now. An existing draft was typed by a person and stays."""
    line, head = batch.line, sessions.get_by_no(tx, session.no)
    is_other = line.model is not None and line.model != head.model
    details = sessions.details(tx, session.no)
    known = details.extra
    if details.draft is None:
        _put_draft(tx, session, line.draft, moment=moment)
    extra = _merged_extra(known, line.extra) if batch.is_resumed else line.extra
    if is_other or known != extra:
        imports.set_facts(tx, session.no, model=line.model, extra=extra)
    if (
        line.title
        and head.title_by is not TitleBy.PERSON
        and not _is_called(head.title, line.title)
    ):
        titles.name_automatically(tx, head, line.title, by=TitleBy.IMPORT)


def _merged_extra(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Merge what was known with what the rest of a source adds; skipped records are added up."""
    origin = {**known.get("import", {}), **more.get("import", {})}
    skipped = sum(each.get("import", {}).get("skipped", 0) for each in (known, more))
    if skipped:
        origin["skipped"] = skipped
    return {**known, **more, "import": origin}


def _is_called(title: str | None, wanted: str) -> bool:
    """Whether a session has the title, perhaps with a number that keeps it apart from others."""
    return title is not None and (title == wanted or title.rpartition(" #")[0] == wanted)


def _counts(tx: Tx, batch: WriteBatch, session: Imported) -> sessions.LogCounts:
    if batch.is_involved:
        return log.count_log(tx, sessions.segments(tx, session.no))
    added = batch.added
    return sessions.LogCounts(
        added.messages, added.tool_calls, added.last_reply_seq, added.preview, added.compacted_seq
    )


def _publish(tx: Tx, batch: WriteBatch, session: Imported) -> None:
    entries.insert_feed(tx, session.no, "head")
    tx.after_commit(SessionChanged(batch.profile, session.id))
