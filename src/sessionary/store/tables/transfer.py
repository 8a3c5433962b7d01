"""Sessions on their way out of one store and into another: rows in, lines out, and back."""

from datetime import datetime

from msgspec import Struct

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.model.message import MAX_SEQ, Entry
from sessionary.model.record import (
    BindingFact,
    ProjectFact,
    SessionLine,
    TurnLine,
    UsageLine,
    usage_line,
    utc,
)
from sessionary.model.session import Lineage, Segment, SessionFolder, folder_of
from sessionary.model.source import Source
from sessionary.store.database import Row, Tx
from sessionary.store.tables import blobs, entries, sessions, usage
from sessionary.store.tables.blobs import Unpacker
from sessionary.store.tables.sessions import column, optional_json

NO_SOURCE = '{"platform":"import"}'
# The end reason of a session that is being filled, as `insert_hidden_session` writes it.
FILLING = "import"
PAGE = 200


class LineageLink(Struct, frozen=True):
    """The place of a session in its lineage."""

    no: int
    id: str
    is_gone: bool
    parent_no: int | None
    inherits: bool
    base_seq: int


class StoredSession(Struct, frozen=True):
    """A session that is in the store already, purged or not."""

    no: int
    profile: str
    is_gone: bool
    base_seq: int
    last_seq: int
    parent_id: str | None
    lineage: Lineage | None
    is_running: bool

    @property
    def descent(self) -> tuple[str | None, Lineage | None, int]:
        """What its inherited history depends on; of no account when it inherits nothing."""
        if self.lineage is None or not self.lineage.inherits:
            return None, None, 0
        return self.parent_id, self.lineage, self.base_seq


def link(tx: Tx, no: int) -> LineageLink:
    """A session's place in its lineage."""
    row = sessions.existing(tx.one("lineage_of", no=no), no)
    name, folder, parent_no, lineage, base_seq, _ = row
    inherits = lineage is not None and Lineage(lineage).inherits
    return LineageLink(no, name, folder == SessionFolder.GONE, parent_no, inherits, base_seq)


def needed_below(tx: Tx, no: int) -> int | None:
    """The last entry of a purged session that living ones read; None when none came from it."""
    row = tx.one("needed_below", no=no)
    return None if row is None else row[0]


def facts(tx: Tx, no: int) -> tuple[SessionLine, Segment]:
    """All that is known of a session, and its own part of the log."""
    head = sessions.get_by_no(tx, no)
    more = sessions.details(tx, no)
    bound = tx.all("bindings_of_session", no=no)
    line = SessionLine(
        id=head.id,
        profile=head.profile,
        kind=head.kind,
        began_at=head.began_at,
        key=head.key,
        source=head.source.to_json(),
        title=head.title,
        title_by=head.title_by,
        model=head.model,
        settings=more.settings,
        system_prompt=None if more.prompt_hash is None else blobs.get_text(tx, more.prompt_hash),
        workspace=more.workspace,
        project=_project(tx, head.project, profile=head.profile),
        pinned=head.pinned,
        archived=head.archived,
        read_only=head.read_only,
        labels=list(head.labels),
        extra=more.extra,
        read_through=head.read_through,
        draft=more.draft,
        parent_id=head.parent_id,
        lineage=head.lineage,
        base_seq=head.base_seq,
        last_active_at=head.last_active_at,
        ended_at=head.ended_at,
        end_reason=head.end_reason,
        trashed_at=head.trashed_at,
        finalized_at=more.finalized_at,
        bindings=[BindingFact(key, from_micros(at)) for key, at in bound],
    )
    return line, Segment(no, head.id, head.base_seq + 1, head.last_seq)


def partial_facts(tx: Tx, no: int, *, through: int) -> tuple[SessionLine, Segment]:
    """What others need of a session: its place in the lineage, and its log up to an entry."""
    head = sessions.get_by_no(tx, no)
    inherits = through > 0 and head.lineage is not None and head.lineage.inherits
    line = SessionLine(
        id=head.id,
        profile=head.profile,
        kind=head.kind,
        began_at=head.began_at,
        through=through,
        parent_id=head.parent_id if inherits else None,
        lineage=head.lineage if inherits else None,
        base_seq=head.base_seq if inherits else 0,
    )
    return line, Segment(no, head.id, head.base_seq + 1, through)


def entries_page(tx: Tx, segment: Segment) -> list[Entry | int]:
    """A page of a stretch: entries, but only the numbers of those that have large texts to read in.

    Raises `Damaged` when one is missing, and `NotFound` when the session was purged.
    """
    rows = entries.read_rows(tx, segment, limit=PAGE)
    unpacker = Unpacker(tx)
    return [
        row[0] & MAX_SEQ
        if blobs.MARK in row[-1]
        else entries.entry_of(tx, row, segment.session_id, unpacker)
        for row in rows
    ]


def turns_page(tx: Tx, no: int, after: int) -> list[tuple[int, TurnLine]]:
    """Ended turns of a session, each with its number, a page at a time."""
    return [
        (row[0], _turn(row))
        for row in tx.all("page_of_ended_turns", no=no, after=after, limit=PAGE)
    ]


def usage_page(tx: Tx, no: int, after: int) -> list[tuple[int, UsageLine]]:
    """Model calls of a session, each with its number, a page at a time."""
    rows = tx.all("page_of_usage", no=no, after=after, limit=PAGE)
    return [(row[0], usage_line(*usage.usage_of(row[1:]))) for row in rows]


def find(tx: Tx, name: str) -> StoredSession | None:
    """A session by its id, wherever and whatever it is."""
    row = tx.one("find_any_session", id=name)
    if row is None:
        return None
    no, profile, folder, base_seq, last_seq, parent_id, lineage, running = row
    is_gone = folder == SessionFolder.GONE
    return StoredSession(
        no=no,
        profile=profile,
        is_gone=is_gone,
        base_seq=base_seq,
        # A purged session's log may end before its head says so.
        last_seq=last_entry(tx, no, base_seq=base_seq) if is_gone else last_seq,
        parent_id=parent_id,
        lineage=None if lineage is None else Lineage(lineage),
        is_running=running is not None,
    )


def last_entry(tx: Tx, no: int, *, base_seq: int) -> int:
    """The number of the last entry that is there."""
    row = tx.one("last_entry_no", first=entries.entry_no(no, 0), last=entries.entry_no(no, MAX_SEQ))
    return base_seq if row is None or row[0] is None else row[0] & MAX_SEQ


def insert_hidden(tx: Tx, line: SessionLine, *, profile: str, parent_no: int | None) -> int:
    """Make room for a session that is shown when it is whole; its number."""
    row = tx.one(
        "insert_hidden_session",
        id=line.id,
        profile=profile,
        source=NO_SOURCE,
        kind=line.kind,
        parent_no=parent_no,
        lineage=line.lineage,
        base_seq=line.base_seq,
        began_at=micros(line.began_at),
    )
    assert row is not None
    no: int = row[0]
    return no


def show(
    tx: Tx,
    no: int,
    line: SessionLine,
    *,
    last_seq: int,
    parent_no: int | None,
    project_no: int | None,
) -> None:
    """Give a hidden session its facts; from here on people see it. Titles and keys are free."""
    source = Source.from_json(line.source or {})
    prompt = line.system_prompt
    tx.run(
        "show_session",
        no=no,
        key=line.key,
        source=codec.encode(source.to_json()),
        platform=column(source.platform),
        chat_type=column(source.chat_type),
        chat_id=column(source.chat_id),
        person_id=column(None if source.person is None else source.person.stable_id),
        kind=line.kind,
        folder=folder_of(
            kind=line.kind,
            archived=line.archived,
            trashed=line.trashed_at is not None,
            purged=False,
        ),
        title=line.title,
        title_by=line.title_by,
        model=column(line.model),
        settings=optional_json(line.settings),
        prompt_hash=None
        if prompt is None
        else blobs.keep_text(tx, prompt, entry_no=sessions.first_entry_no(no)),
        workspace=optional_json(line.workspace),
        project_no=project_no,
        pinned=int(line.pinned),
        archived=int(line.archived),
        read_only=int(line.read_only),
        labels=codec.encode(line.labels),
        extra=codec.encode(line.extra),
        read_through=line.read_through,
        parent_no=parent_no,
        lineage=line.lineage,
        base_seq=line.base_seq,
        last_seq=last_seq,
        began_at=micros(line.began_at),
        last_active_at=micros(line.last_active_at or line.began_at),
        ended_at=_optional_micros(line.ended_at),
        end_reason=column(line.end_reason),
        trashed_at=_optional_micros(line.trashed_at),
        finalized_at=_optional_micros(line.finalized_at),
    )


def insert_turn(tx: Tx, session_no: int, line: TurnLine) -> bool:
    """Write a turn that has ended; say whether it was new."""
    return bool(
        tx.run(
            "insert_ended_turn",
            id=line.id,
            session_no=session_no,
            agent=column(line.agent),
            state=line.state,
            epoch=line.epoch,
            first_seq=line.first_seq,
            began_at=micros(line.began_at),
            ended_at=micros(line.ended_at),
            reason=column(line.reason),
            partial=optional_json(line.partial),
            resumed=line.resumed,
            resume_reason=column(line.resume_reason),
            request_hash=line.request,
        )
    )


def session_of_turn(tx: Tx, id: str) -> int | None:
    """Return the number of a turn's session."""
    row = tx.one("turn_session", id=id)
    return None if row is None else int(row[0])


def comes_from(tx: Tx, no: int, *, ancestor_no: int) -> bool:
    """Return whether a session is another one or came from it, over any number of steps."""
    return tx.one("comes_from", no=no, ancestor_no=ancestor_no) is not None


def set_lineage(tx: Tx, no: int, line: SessionLine, *, parent_no: int | None) -> None:
    """Write where a session came from, of which only the id was known."""
    tx.run("set_lineage", no=no, parent_no=parent_no, lineage=line.lineage, base_seq=line.base_seq)


def set_last_seq(tx: Tx, no: int, last_seq: int, *, may_lower: bool) -> None:
    """Write how far a hidden session's log goes."""
    tx.run("set_last_seq" if may_lower else "raise_last_seq", no=no, last_seq=last_seq)


def extend_session(tx: Tx, no: int, *, last_seq: int, active_at: datetime) -> None:
    """Write a visible session's new end; the time of its last activity never goes back."""
    tx.run("extend_session", no=no, last_seq=last_seq, active_at=micros(active_at))


def bind_if_free(tx: Tx, no: int, binding: BindingFact, *, profile: str) -> bool:
    """Bind a key to a session unless it is bound; say whether it was free."""
    at = micros(binding.bound_at)
    return bool(tx.run("bind_if_free", profile=profile, key=binding.key, session_no=no, at=at))


def tell_entries(tx: Tx, session_no: int, first: int, last: int) -> None:
    """Add a range of a session's entries to the feed."""
    tx.run(
        "tell_entries",
        session_no=session_no,
        before=entries.entry_no(session_no, 0),
        first=entries.entry_no(session_no, first),
        last=entries.entry_no(session_no, last),
    )


def micros(at: datetime) -> int:
    """A time of a line as the databases keep it."""
    return to_micros(utc(at))


def _optional_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def _project(tx: Tx, name: str | None, *, profile: str) -> ProjectFact | None:
    if name is None:
        return None
    row = tx.one("get_project", profile=profile, name=name)
    return ProjectFact(name, None if row is None else row[3])


def _turn(row: Row) -> TurnLine:
    _, name, state, epoch, first_seq, began_at, ended_at, agent, reason, *rest = row
    partial, resumed, resume_reason, request = rest
    return TurnLine(
        id=name,
        state=state,
        epoch=epoch,
        first_seq=first_seq,
        began_at=from_micros(began_at),
        ended_at=from_micros(ended_at),
        agent=agent,
        reason=reason,
        partial=None if partial is None else codec.decode(partial),
        resumed=resumed,
        resume_reason=resume_reason,
        request=request,
    )
