"""One session of a file becomes one of the store: compared, filled up, shown when it is whole.

A small session is one transaction. A large one is filled in batches while no one can see it
(it stands among the purged), and shown by the last transaction; if that never comes, the next
import of the session goes on where this one stopped. Only what is missing of a session that
people can see already is one transaction, however long.
"""

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Literal, Self

import msgspec

from sessionary.actions.sessions import log, routing, titles
from sessionary.actions.sessions.log import SessionChanged
from sessionary.clock import Moment, to_micros
from sessionary.errors import Conflict
from sessionary.model import codec, record
from sessionary.model.key import SessionKey
from sessionary.model.message import Entry, body_to_json
from sessionary.model.record import BlobLine, EntryLine, Line, SessionLine, TurnLine, UsageLine
from sessionary.model.session import Segment
from sessionary.model.title import clean_title
from sessionary.store.database import Store, Tx
from sessionary.store.tables import blobs, entries, imports, sessions, transfer, usage
from sessionary.store.tables.transfer import StoredSession

TRIES = 5


SMALL_ENTRIES = 1000
SMALL_BYTES = 1024 * 1024
BATCH_LINES = 200
BATCH_BYTES = 512 * 1024
PLACED = 100

_FIELDS: dict[type, str] = {
    EntryLine: "entries",
    TurnLine: "turns",
    UsageLine: "usage",
    BlobLine: "blobs",
}


class Packet:
    """A whole session as it was read: its facts, and its lines in files of their own.

    What is large waits on the disk; whoever writes reads only the lines that are missing.
    """

    def __init__(self, session: SessionLine, in_memory: int) -> None:
        self.session = session
        self.counts = dict.fromkeys(_FIELDS.values(), 0)
        self.bytes = 0
        # Closed by `close`.
        self._log: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(in_memory)  # noqa: SIM115
        self._rest: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(in_memory)  # noqa: SIM115
        # Where every so many entries begin.
        self._places = [0]

    def add(self, line: Line, text: bytes) -> None:
        """Keep one line."""
        self.counts[_FIELDS[type(line)]] += 1
        self.bytes += len(text)
        spool = self._log if isinstance(line, EntryLine | BlobLine) else self._rest
        spool.write(text.rstrip(b"\r\n") + b"\n")
        if isinstance(line, EntryLine) and self.counts["entries"] % PLACED == 0:
            self._places.append(spool.tell())

    def lines(self, *, after: int = 0) -> Iterator[Line]:
        """What was kept, without at least most of the entries up to one."""
        for line, _ in self._sized(after):
            yield line

    def batches(self) -> Iterator[list[Line]]:
        """What was kept, in pieces that a short transaction can take."""
        batch: list[Line] = []
        size = 0
        for line, length in self._sized(0):
            batch.append(line)
            size += length
            if len(batch) == BATCH_LINES or size > BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _sized(self, after: int) -> Iterator[tuple[Line, int]]:
        skipped = min(max(0, after - self.session.base_seq) // PLACED, len(self._places) - 1)
        for spool, place in ((self._rest, 0), (self._log, self._places[skipped])):
            spool.seek(place)
            for text in spool:
                line = record.read(text)
                assert not isinstance(line, record.Header)
                yield line, len(text)

    @property
    def last_seq(self) -> int:
        """The number of its last entry."""
        return self.session.base_seq + self.counts["entries"]

    @property
    def is_small(self) -> bool:
        """Whether one short transaction can take it."""
        return self.last_seq <= SMALL_ENTRIES and self.bytes <= SMALL_BYTES

    def close(self) -> None:
        """Let go of the files."""
        self._log.close()
        self._rest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class RestoreOutcome:
    """What became of one session; None for what only others needed."""

    what: Literal["added", "extended", "unchanged"] | None
    entries: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _RestoreTarget:
    """Where a session's lines go: its row, and what of its log is there already."""

    no: int
    have: int
    hidden: bool
    parent_no: int | None


class _Moved(Exception):
    """The session changed between the comparison and the write."""


def restore_session(
    store: Store, packet: Packet, *, profile: str, moment: Moment
) -> RestoreOutcome:
    """Put one session into a profile, as far as it is not there."""
    packet.session = _moved_to(packet.session, profile)
    for _ in range(TRIES):
        found = store.read(transfer.find, packet.session.id).result()
        if found is not None:
            _compare(store, packet, found)
        try:
            if packet.is_small or (found is not None and not found.is_gone):
                return store.write(_restore_whole, packet, found, moment=moment).result()
            return _restore_in_batches(store, packet, found, moment=moment)
        except _Moved:
            continue
    raise Conflict(f"Session {packet.session.id} kept changing here; it was left as it is.")


def _moved_to(line: SessionLine, profile: str) -> SessionLine:
    """The session as one of another profile; its keys go with it."""
    if line.profile == profile:
        return line
    bound = [
        msgspec.structs.replace(each, key=_key_in(each.key, profile)) for each in line.bindings
    ]
    key = None if line.key is None else _key_in(line.key, profile)
    return msgspec.structs.replace(line, profile=profile, key=key, bindings=bound)


def _key_in(key: str, profile: str) -> str:
    return str(replace(SessionKey.parse(key), profile=profile))


def _compare(store: Store, packet: Packet, found: StoredSession) -> None:
    """Refuse a session that says something else than the one that is here."""
    line = packet.session
    if found.profile != line.profile:
        raise Conflict("its id is taken by a session of another profile; it was left as it is")
    if not _is_bare(line) and not _is_blank(found) and found.descent != _descent(line):
        raise Conflict("the session here came from elsewhere; it was left as it is")
    theirs = (each for each in packet.lines() if isinstance(each, EntryLine))
    last = min(found.last_seq, packet.last_seq)
    first = found.base_seq + 1
    while first <= last:
        rest = Segment(found.no, line.id, first, last)
        page = store.read(entries.read, rest, limit=BATCH_LINES).result()
        for mine, other in zip(page, theirs, strict=False):
            if mine.seq != first or not _is_same(mine, other):
                raise Conflict(
                    f"entry {first} here is not the one in the file; the session was left as it is"
                )
            first += 1


def _is_bare(line: SessionLine) -> bool:
    """Whether the file only says that the session was: nothing of its history is needed."""
    return line.through == 0


def _is_blank(found: StoredSession) -> bool:
    """Whether the store only knows that the session was."""
    return found.is_gone and found.lineage is None and found.last_seq == 0


def _descent(line: SessionLine) -> tuple[str | None, object, int]:
    return (line.parent_id, line.lineage, line.base_seq) if line.inherits else (None, None, 0)


def _is_same(mine: Entry, other: EntryLine) -> bool:
    body = record.body_of(other)
    return (
        to_micros(mine.at) == transfer.micros(other.at)
        and mine.turn_id == other.turn_id
        and type(mine.body) is type(body)
        and getattr(mine.body, "role", None) == other.role
        and codec.encode(body_to_json(mine.body)) == codec.encode(body_to_json(body))
    )


def _restore_whole(
    tx: Tx, packet: Packet, found: StoredSession | None, *, moment: Moment
) -> RestoreOutcome:
    """Do everything in one transaction."""
    target = _target(tx, packet, found)
    lines = packet.lines(after=target.have)
    new = _put(tx, target, lines, profile=packet.session.profile)
    if not target.hidden:
        return _extend(tx, packet, target, is_more=new > 0)
    _set_end(tx, packet, target)
    if packet.session.is_partial:
        return RestoreOutcome(None, max(0, packet.last_seq - target.have))
    made = _fold(tx, target.no)
    return _show(tx, packet, target, made, moment=moment)


def _restore_in_batches(
    store: Store, packet: Packet, found: StoredSession | None, *, moment: Moment
) -> RestoreOutcome:
    """Fill a session that no one sees, then show it."""
    target = store.write(_target, packet, found).result()
    for batch in packet.batches():
        store.write(_put, target, batch, profile=packet.session.profile).result()
    store.write(_set_end, packet, target).result()
    if packet.session.is_partial:
        return RestoreOutcome(None, max(0, packet.last_seq - target.have))
    made = store.read(_fold, target.no).result()
    return store.write(_show, packet, target, made, moment=moment).result()


def _target(tx: Tx, packet: Packet, found: StoredSession | None) -> _RestoreTarget:
    """Find or make the row that the session's lines go to, unless it changed meanwhile."""
    line = packet.session
    if found is not None and not found.is_gone:
        tx.one("lock_session", id=line.id, profile=line.profile)
    if transfer.find(tx, line.id) != found:
        raise _Moved
    if found is None:
        parent_no = _parent_no(tx, line, None)
        no = transfer.insert_hidden(tx, line, profile=line.profile, parent_no=parent_no)
        return _RestoreTarget(no, line.base_seq, hidden=True, parent_no=parent_no)
    if not found.is_gone:
        if found.is_running and packet.last_seq > found.last_seq:
            raise Conflict("a turn is running in the session here; it was left as it is")
        return _RestoreTarget(found.no, found.last_seq, hidden=False, parent_no=None)
    parent_no = _parent_no(tx, line, found.no)
    if _is_blank(found) and line.inherits:
        tx.run(
            "set_lineage",
            no=found.no,
            parent_no=parent_no,
            lineage=line.lineage,
            base_seq=line.base_seq,
        )
    have = max(found.last_seq, line.base_seq)
    return _RestoreTarget(found.no, have, hidden=True, parent_no=parent_no)


def _parent_no(tx: Tx, line: SessionLine, own_no: int | None) -> int | None:
    """The number of the session it came from, which must be there with all that is inherited."""
    if line.parent_id is None:
        return None
    parent = transfer.find(tx, line.parent_id)
    if parent is None or parent.profile != line.profile:
        raise Conflict(
            f"session {line.parent_id}, which it came from, is neither here nor before it"
        )
    if own_no is not None and tx.one("comes_from", no=parent.no, ancestor_no=own_no) is not None:
        raise Conflict(
            f"session {line.parent_id} came from it, so it cannot have come from that one"
        )
    need = line.base_seq if line.through is None else min(line.base_seq, line.through)
    if line.inherits and not _covers(tx, parent.no, need):
        raise Conflict(
            f"session {line.parent_id}, which it continues, is not here up to entry {need}"
        )
    return parent.no


def _covers(tx: Tx, no: int, need: int) -> bool:
    """Whether a session's history is there from the first entry to the one needed."""
    reached = 0
    for segment in sessions.segments(tx, no, through=need):
        row = tx.one(
            "count_entries",
            first=entries.entry_no(segment.no, segment.first),
            last=entries.entry_no(segment.no, segment.last),
        )
        length = segment.last - segment.first + 1
        if segment.first != reached + 1 or row is None or row[0] != length:
            return False
        reached = segment.last
    return reached == need


def _put(tx: Tx, target: _RestoreTarget, lines: Iterable[Line], *, profile: str) -> int:
    """Write what is not there yet; how many turns and calls were new."""
    new = 0
    for line in lines:
        match line:
            case BlobLine():
                blobs.add(tx, base64.b64decode(line.data))
            case EntryLine() if line.seq > target.have:
                at, body = record.utc(line.at), record.body_of(line)
                entries.put(tx, target.no, line.seq, at=at, body=body, turn_id=line.turn_id)
            case TurnLine():
                new += _put_turn(tx, target.no, line)
            case UsageLine():
                new += usage.insert(
                    tx,
                    record.usage_of(line),
                    profile=profile,
                    session_no=target.no,
                    turn_id=line.turn_id,
                    at=record.utc(line.at),
                )
    return new


def _put_turn(tx: Tx, no: int, line: TurnLine) -> bool:
    if transfer.insert_turn(tx, no, line):
        return True
    row = tx.one("turn_session", id=line.id)
    if row is None or row[0] != no:
        raise Conflict(f"its turn {line.id} belongs to another session here")
    return False


def _set_end(tx: Tx, packet: Packet, target: _RestoreTarget) -> None:
    """Note how far a hidden session's log goes. What others need of it may end before that."""
    last = max(target.have, packet.last_seq)
    if packet.session.is_partial:
        tx.run("raise_last_seq", no=target.no, last_seq=last)
    else:
        tx.run("set_last_seq", no=target.no, last_seq=last)


def _fold(tx: Tx, no: int) -> log.LogCounts:
    return log.counts(tx, sessions.segments(tx, no))


def _show(
    tx: Tx, packet: Packet, target: _RestoreTarget, made: log.LogCounts, *, moment: Moment
) -> RestoreOutcome:
    """Give a session that is whole its facts, its place and its keys."""
    notes: list[str] = []
    last = max(target.have, packet.last_seq)
    line = fitted(tx, packet.session, target.no, last, notes)
    project_no = project_of(tx, line, moment=moment)
    transfer.show(
        tx, target.no, line, last_seq=last, parent_no=target.parent_no, project_no=project_no
    )
    log.put(tx, target.no, made)
    if line.draft:
        at = to_micros(moment.now)
        tx.run("set_draft", no=target.no, text=codec.encode(line.draft), at=at)
    for bound in line.bindings:
        at = transfer.micros(bound.bound_at)
        row = {"profile": line.profile, "key": bound.key, "session_no": target.no, "at": at}
        if not tx.run("bind_if_free", **row):
            notes.append(f"{bound.key} stays on its session here, not on {line.id}")
    _name_as_imported(tx, line, target.no)
    transfer.tell_entries(tx, target.no, line.base_seq + 1, last)
    tx.run("insert_feed", session_no=target.no, seq=0, what="head")
    tx.after_commit(SessionChanged(line.profile, line.id))
    return RestoreOutcome("added", max(0, packet.last_seq - target.have), tuple(notes))


def _name_as_imported(tx: Tx, line: SessionLine, no: int) -> None:
    """What came from another tool's record is found again when that is read here."""
    match line.extra.get("import"):
        case {"from": str(tool), "id": str(native_id)}:
            imports.name_session(tx, native_id, no, profile=line.profile, tool=tool)


def fitted(tx: Tx, line: SessionLine, no: int, last_seq: int, notes: list[str]) -> SessionLine:
    """The facts as this store can hold them: a free title, a free key."""
    wanted = None if line.title is None else clean_title(line.title)
    title = None if wanted is None else titles.free_title(tx, wanted, profile=line.profile)
    if title != wanted:
        notes.append(f"session {line.id} is called {title!r}: {wanted!r} is taken")
    return msgspec.structs.replace(
        line,
        title=title,
        title_by=None if title is None else line.title_by,
        key=_free_key(tx, line, no, notes),
        read_through=min(line.read_through, last_seq),
    )


def _free_key(tx: Tx, line: SessionLine, no: int, notes: list[str]) -> str | None:
    for bound in line.bindings:
        routing.lock(tx, SessionKey.parse(bound.key))
    if line.key is None or line.ended_at is not None:
        return line.key
    routing.lock(tx, SessionKey.parse(line.key))
    holder = tx.one("open_session_of_key", profile=line.profile, key=line.key)
    if holder is None or holder[0] == no:
        return line.key
    notes.append(f"session {line.id} goes on without its key: {line.key} has an open session")
    return None


def project_of(tx: Tx, line: SessionLine, *, moment: Moment) -> int | None:
    """The number of the project by that name; it is made when there is none."""
    if line.project is None:
        return None
    name = clean_title(line.project.name)
    row = tx.one("get_project", profile=line.profile, name=name)
    if row is None:
        row = tx.one(
            "insert_project",
            id=moment.new_id(),
            profile=line.profile,
            name=name,
            colour=line.project.colour,
            at=to_micros(moment.now),
        )
    assert row is not None
    no: int = row[0]
    return no


def _extend(tx: Tx, packet: Packet, target: _RestoreTarget, *, is_more: bool) -> RestoreOutcome:
    """Let a session that people see have its new entries; what they made of it stays."""
    line = packet.session
    missing = packet.last_seq - target.have
    if missing > 0:
        active_at = line.last_active_at or line.began_at
        tx.run(
            "extend_session",
            no=target.no,
            last_seq=packet.last_seq,
            active_at=transfer.micros(active_at),
        )
        log.put(tx, target.no, _fold(tx, target.no))
        transfer.tell_entries(tx, target.no, target.have + 1, packet.last_seq)
        tx.after_commit(SessionChanged(line.profile, line.id))
    if line.is_partial:
        return RestoreOutcome(None, max(0, missing))
    return RestoreOutcome("extended" if missing > 0 or is_more else "unchanged", max(0, missing))
