"""Sessions into the store from lines of JSON: each whole or not at all, and only once.

A session of the file is compared with the one in the store, if there is one, and only what is
missing is written. A small session is one transaction. A large one is filled in batches while it
is hidden (it counts as purged), and the last transaction shows it; if that never comes, the next
import continues where this one stopped. What is missing of a visible session is always one
transaction, however long.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions.sessions import log, routing, titles
from sessionary.actions.sessions.log import SessionChanged
from sessionary.clock import Moment, to_micros
from sessionary.errors import BadInput, Conflict, StoreFull
from sessionary.model import codec, record, transcript
from sessionary.model.message import Entry, body_to_json
from sessionary.model.record import (
    BlobLine,
    CloseLine,
    DropLine,
    EndLine,
    EntryLine,
    Header,
    Line,
    SessionLine,
    TurnLine,
    UsageLine,
)
from sessionary.model.session import Segment
from sessionary.model.source import SessionKey, validate_profile
from sessionary.model.title import clean_title
from sessionary.store.database import Store, Tx
from sessionary.store.tables import blobs, entries, imports, projects, sessions, transfer, usage
from sessionary.store.tables.transfer import StoredSession

TRIES = 5
SMALL_ENTRIES = 1000
SMALL_BYTES = 1024 * 1024
BATCH_LINES = 200
BATCH_BYTES = 512 * 1024
INDEXED = 100
_FIELDS: dict[type, str] = {
    EntryLine: "entries",
    TurnLine: "turns",
    UsageLine: "usage",
    BlobLine: "blobs",
}
# What of a session is held in memory while it is read; the rest waits in a temporary file.
IN_MEMORY = 4 * 1024 * 1024


class RefusedSession(Struct, frozen=True):
    """A session that was left out, and why."""

    session_id: str
    reason: str


class ImportReport(Struct, frozen=True):
    """What an import did."""

    added: int = 0
    extended: int = 0
    unchanged: int = 0
    entries: int = 0
    refused: tuple[RefusedSession, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sessions(self) -> int:
        """How many sessions were read whole."""
        return self.added + self.extended + self.unchanged + len(self.refused)


class RestoreOutcome(Struct, frozen=True):
    """What became of one session; None for what only others needed."""

    what: Literal["added", "extended", "unchanged"] | None
    entries: int = 0
    notes: tuple[str, ...] = ()


class SessionLines:
    """One session as it was read: its facts, and its lines in temporary files.

    Large sessions are kept on disk, and only the lines that the store lacks are read again.
    """

    def __init__(self, session: SessionLine, in_memory: int) -> None:
        self.session = session
        self.counts = dict.fromkeys(_FIELDS.values(), 0)
        self.bytes = 0
        # Closed by `close`.
        self._log: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(in_memory)  # noqa: SIM115
        self._rest: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(in_memory)  # noqa: SIM115
        # Where every INDEXED entries begin.
        self._offsets = [0]
        # The blobs that are the requests of turns.
        self.requests: set[str] = set()

    def add(self, line: Line, text: bytes) -> None:
        """Add one line."""
        self.counts[_FIELDS[type(line)]] += 1
        self.bytes += len(text)
        is_in_log = isinstance(line, EntryLine) or (
            # Before the first entry it may be the request of a turn, and turns are written before entries.
            isinstance(line, BlobLine) and self.counts["entries"] > 0
        )
        spool = self._log if is_in_log else self._rest
        named = _request_of(line)
        if named is not None:
            self.requests.add(named)
        spool.write(text.rstrip(b"\r\n") + b"\n")
        if isinstance(line, EntryLine) and self.counts["entries"] % INDEXED == 0:
            self._offsets.append(spool.tell())

    def lines(self, *, after: int = 0) -> Iterator[Line]:
        """The lines, without most of the entries up to `after`."""
        for line, _ in self._sized(after):
            yield line

    def batches(self) -> Iterator[list[Line]]:
        """The lines in batches for short transactions."""
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
        skipped = min(max(0, after - self.session.base_seq) // INDEXED, len(self._offsets) - 1)
        for spool, place in ((self._rest, 0), (self._log, self._offsets[skipped])):
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
        """Whether one short transaction can write it."""
        return self.last_seq <= SMALL_ENTRIES and self.bytes <= SMALL_BYTES

    def close(self) -> None:
        """Delete the temporary files."""
        self._log.close()
        self._rest.close()


@dataclass(slots=True)
class _Tally:
    outcomes: dict[str, int] = field(
        default_factory=lambda: {"added": 0, "extended": 0, "unchanged": 0, "entries": 0}
    )
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, outcome: RestoreOutcome) -> None:
        self.outcomes["entries"] += outcome.entries
        self.notes.extend(outcome.notes)
        if outcome.what is not None:
            self.outcomes[outcome.what] += 1

    @property
    def count(self) -> int:
        """How many sessions of the file are in the store."""
        return sum(self.outcomes[what] for what in ("added", "extended", "unchanged"))

    def report(self) -> ImportReport:
        refused = tuple(RefusedSession(name, why) for name, why in self.refused.items())
        return ImportReport(**self.outcomes, refused=refused, notes=tuple(self.notes))


def lines_of(file: BinaryIO, *, max_line: int = record.MAX_LINE) -> Iterator[bytes]:
    """The lines of a file; one that is too long is cut, so that it is refused and not held."""
    while line := file.readline(max_line + 2):
        yield line


def import_jsonl(
    store: Store,
    lines: Iterable[bytes],
    *,
    moment: Moment,
    profile: str | None = None,
    max_line: int = record.MAX_LINE,
    progress: Callable[[int], None] = lambda _: None,
) -> ImportReport:
    """Put the sessions of an export into the store, into `profile` or the one each came from.

    A session that is here already gets only the entries it lacks; one whose log says something
    else is refused and left as it is, and the others go on. A line that cannot be read ends the
    import with `BadInput`: the sessions before it are in the store, nothing of the others is.
    """
    if profile is not None:
        validate_profile(profile)
    tally = _Tally()
    reader = _ExportReader(max_line)
    try:
        for source in reader.read(lines):
            with closing(source):
                _restore(store, source, profile=profile, moment=moment, tally=tally)
            progress(reader.sessions)
    except BadInput as error:
        raise BadInput(
            f"{error} {_describe_progress(tally)}", committed="unknown" if tally.count else "no"
        ) from error.__cause__
    return tally.report()


def _restore(
    store: Store, source: SessionLines, *, profile: str | None, moment: Moment, tally: _Tally
) -> None:
    line = source.session
    if line.inherits and line.parent_id in tally.refused:
        tally.refused[line.id] = f"session {line.parent_id}, which it continues, was refused"
        return
    try:
        tally.add(restore_session(store, source, profile=profile or line.profile, moment=moment))
    except (Conflict, BadInput) as error:
        tally.refused[line.id] = str(error)


def _describe_progress(tally: _Tally) -> str:
    count = tally.count
    if not count:
        return "Nothing was imported."
    them = "session before it is" if count == 1 else f"{count} sessions before it are"
    return f"The {them} in the store; nothing of the rest was imported."


class _ExportReader:
    """Reads lines into sessions_of, one whole session each."""

    def __init__(self, max_line: int) -> None:
        self.sessions = 0
        self._max_line = max_line
        self._session: SessionLines | None = None
        self._next_seq = 0
        self._unused: set[str] = set()
        self._begun = self._closed = False
        self._since_header = 0

    def read(self, lines: Iterable[bytes]) -> Iterator[SessionLines]:
        """The sessions of a file, each once its end line has been seen."""
        try:
            for number, raw in enumerate(lines, 1):
                text = record.without_mark(raw) if number == 1 else raw
                if text.strip() and (whole := self._take(text, number)) is not None:
                    yield whole
            self._check_end()
        finally:
            self._discard()

    def _check_end(self) -> None:
        if not self._begun:
            raise BadInput("The file is empty; it is not a Sessionary export.")
        if self._session is not None:
            raise BadInput(
                f"The file ends inside session {self._session.session.id}: it is cut off."
            )
        if not self._closed:
            raise BadInput("The file ends before its last line: it is cut off.")

    def _take(self, text: bytes, number: int) -> SessionLines | None:
        try:
            line = record.read(text.rstrip(b"\r\n"), max_line=self._max_line)
            return self._follow(line, text)
        except BadInput as error:
            cut = "" if text.endswith(b"\n") else " The file ends in the middle of it."
            reason = str(error).rstrip(".")
            raise BadInput(f"Line {number} cannot be imported: {reason}.{cut}") from None
        except OSError as error:
            why = error.strerror or error
            raise StoreFull(f"There is no room to hold what was read ({why}).") from error

    def _follow(self, line: Line | Header, text: bytes) -> SessionLines | None:
        """Check that a line may come here; return the session that it completes."""
        if isinstance(line, Header):
            _expect(self._begun == self._closed, "a header stands before all sessions")
            self._begun, self._closed, self._since_header = True, False, 0
            return None
        _expect(self._begun and not self._closed, 'a file begins with {"sessionary":1}')
        match line:
            case SessionLine():
                _expect(self._session is None, "the session before it has no end line")
                self._session = SessionLines(line, IN_MEMORY)
                self._next_seq = line.base_seq + 1
                self._unused = set()
            case CloseLine():
                _expect(self._session is None, "the session before it has no end line")
                count = self._since_header
                _expect(line.sessions == count, f"it counts {line.sessions} sessions, not {count}")
                self._closed = True
            case EndLine():
                return self._end(line)
            case DropLine():
                self._expect_session(line.id)
                self._discard()
            case _:
                self._collect(line, text)
        return None

    def _collect(self, line: Line, text: bytes) -> None:
        source = self._session
        if source is None:
            raise BadInput("it belongs to no session")
        if isinstance(line, EntryLine):
            _expect(line.seq == self._next_seq, f"entry {self._next_seq} comes next")
            self._next_seq += 1
            self._unused -= {str(part.get("blob")) for part in line.parts or ()}
        if isinstance(line, BlobLine):
            _check_blob(line)
            self._unused.add(line.hash)
        source.add(line, text)
        if self._unused:
            self._unused -= source.requests

    def _end(self, line: EndLine) -> SessionLines:
        source = self._expect_session(line.id)
        for what, found in source.counts.items():
            count = getattr(line, what)
            _expect(found == count, f"session {line.id} has {found} of its {count} {what}")
        through, base = source.session.through, source.session.base_seq
        _expect(not self._unused, f"session {line.id} has bytes that no line of it needs")
        reaches = through is None or self._next_seq - 1 == max(through, base)
        _expect(reaches, f"session {line.id} does not reach entry {through}")
        self.sessions += 1
        self._since_header += 1
        self._session = None
        return source

    def _expect_session(self, session_id: str) -> SessionLines:
        source = self._session
        if source is None or source.session.id != session_id:
            raise BadInput("it ends a session that was not begun")
        return source

    def _discard(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _expect(holds: bool, otherwise: str) -> None:  # noqa: FBT001  # it reads as a sentence
    if not holds:
        raise BadInput(otherwise)


def _request_of(line: Line) -> str | None:
    """The request of a model call that a line names, if it names one."""
    if isinstance(line, TurnLine):
        return line.request
    if isinstance(line, EntryLine) and line.extra:
        return transcript.request_of_record(record.body_of(line))
    return None


def _check_blob(line: BlobLine) -> None:
    try:
        data = base64.b64decode(line.data, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("its data is not base64") from None
    if blobs.hash_of(data) != line.hash:
        raise BadInput("its bytes are not those its hash names")


class _RestoreTarget(Struct, frozen=True):
    """Where a session's lines go: its row, and what of its log is there already."""

    no: int
    have: int
    hidden: bool
    parent_no: int | None


class _SessionMoved(Exception):
    """The session changed between the comparison and the write."""


def restore_session(
    store: Store, source: SessionLines, *, profile: str, moment: Moment
) -> RestoreOutcome:
    """Write what a profile lacks of one session."""
    source.session = _moved_to(source.session, profile)
    for _ in range(TRIES):
        found = store.read(transfer.find, source.session.id).result()
        if found is not None:
            _compare(store, source, found)
        try:
            if source.is_small or (found is not None and not found.is_gone):
                return store.write(_restore_whole, source, found, moment=moment).result()
            return _restore_in_batches(store, source, found, moment=moment)
        except _SessionMoved:
            continue
    raise Conflict(f"Session {source.session.id} kept changing here; it was left as it is.")


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


def _compare(store: Store, source: SessionLines, found: StoredSession) -> None:
    """Refuse a session whose log differs from the one in the store."""
    line = source.session
    if found.profile != line.profile:
        raise Conflict("its id is taken by a session of another profile; it was left as it is")
    if not _is_bare(line) and not _is_blank(found) and found.descent != _descent(line):
        raise Conflict("the session here came from elsewhere; it was left as it is")
    theirs = (each for each in source.lines() if isinstance(each, EntryLine))
    last = min(found.last_seq, source.last_seq)
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
    """Whether the file only says that the session existed: nothing of its history is needed."""
    return line.through == 0


def _is_blank(found: StoredSession) -> bool:
    """Whether the store only knows that the session existed."""
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
    tx: Tx, source: SessionLines, found: StoredSession | None, *, moment: Moment
) -> RestoreOutcome:
    """Do everything in one transaction."""
    target = _target(tx, source, found)
    lines = source.lines(after=target.have)
    new = _put(tx, target, lines, profile=source.session.profile)
    _delete_unused(tx, source)
    if not target.hidden:
        return _extend(tx, source, target, is_more=new > 0)
    _set_end(tx, source, target)
    if source.session.is_partial:
        return RestoreOutcome(None, max(0, source.last_seq - target.have))
    made = _counts(tx, target.no)
    return _show(tx, source, target, made, moment=moment)


def _restore_in_batches(
    store: Store, source: SessionLines, found: StoredSession | None, *, moment: Moment
) -> RestoreOutcome:
    """Fill a session that no one sees, then show it."""
    target = store.write(_target, source, found).result()
    for batch in source.batches():
        store.write(_put, target, batch, profile=source.session.profile).result()
    store.write(_delete_unused, source).result()
    store.write(_set_end, source, target).result()
    if source.session.is_partial:
        return RestoreOutcome(None, max(0, source.last_seq - target.have))
    made = store.read(_counts, target.no).result()
    return store.write(_show, source, target, made, moment=moment).result()


def _target(tx: Tx, source: SessionLines, found: StoredSession | None) -> _RestoreTarget:
    """Find or make the row that the session's lines go to, unless it changed meanwhile."""
    line = source.session
    if found is not None and not found.is_gone:
        sessions.lock_session(tx, line.id, profile=line.profile)
    if transfer.find(tx, line.id) != found:
        raise _SessionMoved
    if found is None:
        parent_no = _parent_no(tx, line, None)
        no = transfer.insert_hidden(tx, line, profile=line.profile, parent_no=parent_no)
        return _RestoreTarget(no, line.base_seq, hidden=True, parent_no=parent_no)
    if not found.is_gone:
        if found.is_running and source.last_seq > found.last_seq:
            raise Conflict("a turn is running in the session here; it was left as it is")
        return _RestoreTarget(found.no, found.last_seq, hidden=False, parent_no=None)
    parent_no = _parent_no(tx, line, found.no)
    if _is_blank(found) and line.inherits:
        transfer.set_lineage(tx, found.no, line, parent_no=parent_no)
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
    if own_no is not None and transfer.comes_from(tx, parent.no, ancestor_no=own_no):
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
        found = entries.extent(tx, segment.no, first=segment.first, last=segment.last)
        length = segment.last - segment.first + 1
        if segment.first != reached + 1 or found.size != length:
            return False
        reached = segment.last
    return reached == need


def lock_inherited(tx: Tx, line: SessionLine, parent_no: int | None) -> None:
    """Lock the history that a session continues, which is about to be shown; a purge waits, or has come before.

    Raises `Conflict` if something of it was purged while the session was filled: a purge does not see hidden forks.
    """
    if parent_no is None or not line.inherits:
        return
    for ancestor in sessions.ancestors(tx, parent_no):
        sessions.lock_session_no(tx, ancestor.no)
    if not _covers(tx, parent_no, line.base_seq):
        raise Conflict(
            f"session {line.parent_id}, which it continues, was purged meanwhile; it was not imported"
        )


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
                named = transcript.request_of_record(body)
                if named is not None and blobs.exists(tx, named):
                    blobs.add_reference(tx, named, entry_no=sessions.first_entry_no(target.no))
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
    if line.request is not None and not blobs.exists(tx, line.request):
        raise BadInput(f"turn {line.id} names a request that does not come before it")
    if transfer.insert_turn(tx, no, line):
        if line.request is not None:
            blobs.add_reference(tx, line.request, entry_no=sessions.first_entry_no(no))
        return True
    if transfer.session_of_turn(tx, line.id) != no:
        raise Conflict(f"its turn {line.id} belongs to another session here")
    return False


def _delete_unused(tx: Tx, source: SessionLines) -> None:
    """Delete the requests of the file that no turn here needs: those of turns that are here already, or were erased."""
    for name in source.requests:
        blobs.delete_if_unused(tx, name)


def _set_end(tx: Tx, source: SessionLines, target: _RestoreTarget) -> None:
    """Note how far a hidden session's log goes. What others need of it may end before that."""
    last = max(target.have, source.last_seq)
    transfer.set_last_seq(tx, target.no, last, may_lower=not source.session.is_partial)


def _counts(tx: Tx, no: int) -> sessions.LogCounts:
    return log.count_log(tx, sessions.segments(tx, no))


def _show(
    tx: Tx,
    source: SessionLines,
    target: _RestoreTarget,
    made: sessions.LogCounts,
    *,
    moment: Moment,
) -> RestoreOutcome:
    """Show a session that is complete: write its facts and its keys."""
    lock_inherited(tx, source.session, target.parent_no)
    notes: list[str] = []
    last = max(target.have, source.last_seq)
    line = fit_facts(tx, source.session, target.no, last, notes)
    project_no = project_of(tx, line, moment=moment)
    transfer.show(
        tx, target.no, line, last_seq=last, parent_no=target.parent_no, project_no=project_no
    )
    sessions.set_counts(tx, target.no, made)
    if line.draft:
        sessions.set_draft(tx, target.no, line.draft, at=moment.now)
    notes += [
        f"{bound.key} stays on its session here, not on {line.id}"
        for bound in line.bindings
        if not transfer.bind_if_free(tx, target.no, bound, profile=line.profile)
    ]
    _name_as_imported(tx, line, target.no)
    transfer.tell_entries(tx, target.no, line.base_seq + 1, last)
    entries.insert_feed(tx, target.no, "head")
    tx.after_commit(SessionChanged(line.profile, line.id))
    return RestoreOutcome("added", max(0, source.last_seq - target.have), tuple(notes))


def _name_as_imported(tx: Tx, line: SessionLine, no: int) -> None:
    """Note which of a tool's sessions this is, so that an import from the tool finds it."""
    match line.extra.get("import"):
        case {"from": str(tool), "id": str(native_id)}:
            imports.name_session(tx, native_id, no, profile=line.profile, tool=tool)


def fit_facts(tx: Tx, line: SessionLine, no: int, last_seq: int, notes: list[str]) -> SessionLine:
    """The facts with a title and a key that are free in this store."""
    wanted = None if line.title is None else clean_title(line.title)
    title = None if wanted is None else titles.find_free_title(tx, wanted, profile=line.profile)
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
        routing.lock_key(tx, SessionKey.parse(bound.key))
    if line.key is None or line.ended_at is not None:
        return line.key
    routing.lock_key(tx, SessionKey.parse(line.key))
    if sessions.open_session_of_key(tx, line.key, profile=line.profile) in (None, no):
        return line.key
    notes.append(f"session {line.id} goes on without its key: {line.key} has an open session")
    return None


def project_of(tx: Tx, line: SessionLine, *, moment: Moment) -> int | None:
    """The number of the project by that name; it is made when there is none."""
    if line.project is None:
        return None
    name = clean_title(line.project.name)
    if name is None:
        return None
    project = projects.find(tx, name, profile=line.profile)
    if project is not None:
        return project.no
    colour = line.project.colour
    return projects.insert(
        tx, moment.new_id(), name, profile=line.profile, colour=colour, at=moment.now
    )


def _extend(
    tx: Tx, source: SessionLines, target: _RestoreTarget, *, is_more: bool
) -> RestoreOutcome:
    """Add the new entries to a visible session; what people changed about it stays."""
    line = source.session
    missing = source.last_seq - target.have
    if missing > 0:
        active_at = line.last_active_at or line.began_at
        transfer.extend_session(tx, target.no, last_seq=source.last_seq, active_at=active_at)
        sessions.set_counts(tx, target.no, _counts(tx, target.no))
        transfer.tell_entries(tx, target.no, target.have + 1, source.last_seq)
        tx.after_commit(SessionChanged(line.profile, line.id))
    if line.is_partial:
        return RestoreOutcome(None, max(0, missing))
    return RestoreOutcome("extended" if missing > 0 or is_more else "unchanged", max(0, missing))
