"""Imports the units of one tool, such as files, one after the other; of each only what is new."""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple, Protocol

from sessionary.actions.transfer import merge
from sessionary.errors import BadInput, Conflict
from sessionary.importers.base import files
from sessionary.importers.base.events import (
    Branch,
    Checkpoint,
    Compacted,
    Event,
    Facts,
    HeldBack,
    IgnoredRecord,
    Importer,
    MessageEvent,
    Resume,
    Retracted,
    SessionBegin,
    SessionEnd,
    Skipped,
    SourceRewritten,
    Unit,
)
from sessionary.importers.base.prepared import (
    PreparedBranch,
    PreparedEvent,
    PreparedMessage,
    PreparedUsage,
    prepared_events,
)
from sessionary.importers.base.session_merger import ImportTarget, SessionMerger
from sessionary.store.tables import imports
from sessionary.store.tables.imports import ReadUnit

# How many items of each kind a report lists.
SHOWN = 100
WORDLESS = "sessions without a question or an answer"
_NO_CONVERSATION = "it has no question and no answer"
_NOTHING = "nothing in it is part of a conversation"
_OWN = "it was recorded here while the tool ran as an agent of Sessionary"
_ONLY_COPIED = "all of it is in the session that it was copied from"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that could not be read: where, and why."""

    unit: str
    where: str
    why: str


@dataclass(slots=True)
class ToolImportReport:
    """What an import did; `skipped` counts all faults, `faults` lists the first ones.

    Each unit counts once: `units` is `imported_units` + `unchanged_units` + the omissions.
    """

    units: int = 0
    # Units from which at least one session is now stored, and units that have not changed since they were read.
    imported_units: int = 0
    unchanged_units: int = 0
    # The units from which nothing was imported: the reason, by the unit's name.
    omissions: dict[str, str] = field(default_factory=dict)
    # Sessions.
    added: int = 0
    extended: int = 0
    unchanged: int = 0
    messages: int = 0
    bytes: int = 0
    skipped: int = 0
    faults: list[Fault] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    # The ids of the first sessions without a conversation.
    wordless: list[str] = field(default_factory=list)
    # Answers that are not imported yet because they may still grow; when all of them will count as complete.
    held_back: int = 0
    held_back_until: datetime | None = None
    notes: list[str] = field(default_factory=list)

    def fault(self, unit: Unit, where: str, why: str) -> None:
        """Count something that could not be read."""
        self.skipped += 1
        if len(self.faults) < SHOWN:
            self.faults.append(Fault(unit.name, where, why))

    def omit(self, unit: Unit, why: str) -> None:
        """Note that nothing was imported from a unit."""
        self.omissions[unit.name] = why

    def ignore_wordless(self, native_id: str) -> None:
        """Count a session without a conversation."""
        self.left_out[WORDLESS] += 1
        if len(self.wordless) < SHOWN:
            self.wordless.append(native_id)

    def hold_back(self, event: HeldBack) -> None:
        """Count an answer that a later import will bring."""
        self.held_back += 1
        self.held_back_until = max(event.until, self.held_back_until or event.until)

    def reading_counts(self) -> "_ReadingCounts":
        """Return what is counted while a unit is read, whether or not it is stored then."""
        return _ReadingCounts(
            self.bytes,
            self.skipped,
            len(self.faults),
            Counter(self.left_out),
            self.held_back,
            self.held_back_until,
        )

    def restore_counts(self, before: "_ReadingCounts") -> None:
        """Go back to earlier counts, because a unit is read again from its beginning."""
        self.bytes, self.skipped = before.bytes, before.skipped
        del self.faults[before.faults :]
        self.left_out = before.left_out
        self.held_back, self.held_back_until = before.held_back, before.held_back_until

    def note(self, text: str) -> None:
        """Add a note for the person who imports, up to a limit."""
        if len(self.notes) < SHOWN and text not in self.notes:
            self.notes.append(text)


class _ReadingCounts(NamedTuple):
    bytes: int
    skipped: int
    faults: int
    left_out: Counter[str]
    held_back: int
    held_back_until: datetime | None


OnUnitProgress = Callable[[ToolImportReport, Unit], None]
# Returns why a unit must not be read; None if it may be.
Check = Callable[[Unit], str | None]


class ReaderLost(Exception):
    """Another process read a unit, and has ended: the unit must be read again."""


# Closed if not all of it is read.
EventStream = Generator[PreparedEvent]


class EventSource(Protocol):
    """Reads units: in this process, or in others."""

    # How many units after the one that is merged may be read.
    lookahead: int

    def expect(self, unit: Unit, resume: Resume | None) -> bool:
        """Begin to read a unit whose events will be asked for soon; return whether that is possible now."""

    def read(self, unit: Unit, resume: Resume | None) -> EventStream:
        """Yield the events of a unit; raises what the importer raises, or `ReaderLost`."""


class LocalSource:
    """Reads units in this process."""

    lookahead = 0

    def __init__(self, importer: Importer, *, now: datetime) -> None:
        self._importer, self._now = importer, now

    def expect(self, unit: Unit, resume: Resume | None) -> bool:
        """Do nothing: a unit is read when its events are asked for."""
        return False

    def read(self, unit: Unit, resume: Resume | None) -> EventStream:
        """Yield the events of a unit."""
        return prepared_events(self._importer, unit, resume, now=self._now)


def run(
    target: ImportTarget,
    importer: Importer,
    units: Iterable[Unit],
    *,
    own_files: Iterable[tuple[int, int]] = (),
    check: Check = lambda _: None,
    progress: OnUnitProgress = lambda *_: None,
    source: EventSource | None = None,
) -> ToolImportReport:
    """Import each unit that changed since it was last read and that `check` allows.

    By default this process reads the units itself.
    """
    report = ToolImportReport()
    own = frozenset(own_files)
    local = LocalSource(importer, now=target.moment.now)
    reading = source or local

    def refusal(unit: Unit) -> str | None:
        if any(files.identity(path) in own for path in (unit.path, *unit.beside)):
            return "it belongs to the store itself; it was left alone"
        return check(unit)

    # Inspected, perhaps being read, not merged yet.
    ahead: deque[_Inspection] = deque()

    def merge_until(most: int) -> None:
        while len(ahead) > most:
            if reading.lookahead:
                # The first unit that must wait lets the others wait: they are read in their order.
                all(each.announce(reading) for each in ahead)
            _import_unit(ahead.popleft(), reading, local, report, progress)

    for unit in units:
        if any(each.unit.name == unit.name for each in ahead):
            # Someone named it twice: the second time, nothing in it is new.
            merge_until(0)
        ahead.append(_inspect(_target_for(target, unit, report), unit, check=refusal))
        merge_until(reading.lookahead)
    merge_until(0)
    return report


def _import_unit(
    found: "_Inspection",
    source: EventSource,
    local: EventSource,
    report: ToolImportReport,
    progress: OnUnitProgress,
) -> None:
    assert found.target is not None
    unit = found.unit
    _take_unit(
        UnitImport(found.target, unit, report, source=source, local=local, progress=progress),
        found,
        report,
    )
    progress(report, unit)


def preview(
    target: ImportTarget | None,
    importer: Importer,
    units: Iterable[Unit],
    *,
    check: Check = lambda _: None,
) -> ToolImportReport:
    """Read everything that is new, but write nothing; return what an import would do."""
    report = ToolImportReport()
    for unit in units:
        to = None if target is None else _target_for(target, unit, report)
        _take_unit(
            _UnitPreview(to, importer, unit, report), _inspect(to, unit, check=check), report
        )
    return report


def unread_bytes(target: ImportTarget | None, unit: Unit) -> int | None:
    """Return how many bytes of a unit an import would read; None if nothing in it is new."""
    if target is None:
        return unit.size
    known = _find_read_unit(_target_for(target, unit, ToolImportReport()), unit)
    if known is None:
        return unit.size
    return None if known.stamp == unit.stamp else max(0, unit.size - known.place)


def _target_for(target: ImportTarget, unit: Unit, report: ToolImportReport) -> ImportTarget:
    """Return where to import a unit: into the profile with the name of the tool's profile, unless one was chosen."""
    if unit.profile in (None, target.profile) or target.is_profile_chosen:
        return target
    report.note(
        f"What {target.title} keeps in its profile {unit.profile} goes to the profile of that "
        f"name here: sessionary --profile {unit.profile} sessions list"
    )
    return replace(target, profile=unit.profile)


def _find_read_unit(target: ImportTarget, unit: Unit) -> ReadUnit | None:
    return target.store.read(
        imports.find_unit, unit.name, profile=target.profile, tool=target.tool
    ).result()


@dataclass(slots=True)
class _Inspection:
    """What is known about a unit before it is read."""

    unit: Unit
    target: ImportTarget | None
    known: ReadUnit | None
    is_unchanged: bool = False
    # Why an earlier import found nothing in it, if it would find nothing again.
    omission: str | None = None
    # Why it must not be read.
    refusal: str | None = None
    is_announced: bool = False

    def announce(self, source: EventSource) -> bool:
        """Let the unit be read ahead, unless it need not or must not be read; return whether the next one may be."""
        if self.is_announced or self.is_unchanged or self.omission or self.refusal:
            return True
        try:
            resume = _resume_point(self.known, self.unit)
        except (BadInput, OSError):
            # It is reported when it is the unit's turn.
            return True
        self.is_announced = source.expect(self.unit, resume)
        return self.is_announced


def _inspect(target: ImportTarget | None, unit: Unit, *, check: Check) -> _Inspection:
    known = None if target is None else _find_read_unit(target, unit)
    if target is not None and known is not None and known.stamp == unit.stamp:
        note = known.note if isinstance(known.note, dict) else {}
        if "omitted" not in note:
            return _Inspection(unit, target, known, is_unchanged=True)
        # Nothing was imported from it before. Another version of this program may be able to read it.
        if note.get("version") == target.version:
            return _Inspection(unit, target, known, omission=str(note["omitted"]))
    return _Inspection(unit, target, known, refusal=check(unit))


def _take_unit(
    reader: "UnitImport | _UnitPreview", found: _Inspection, report: ToolImportReport
) -> None:
    """Read a unit, unless it need not or must not be read, and count it in the report."""
    report.units += 1
    unit = found.unit
    if found.is_unchanged:
        report.unchanged_units += 1
        return
    if found.omission is not None:
        report.omit(unit, found.omission)
        return
    failure = found.refusal
    if failure is None:
        try:
            reader.read(found.known)
        except (BadInput, Conflict) as error:
            failure = str(error)
        except OSError as error:
            failure = f"it cannot be read ({error.strerror or error}); it was left alone"
    if failure is not None:
        report.fault(unit, "", failure)
    if reader.sessions:
        report.imported_units += 1
    else:
        report.omit(unit, failure or reader.omission)


def _resume_point(known: ReadUnit | None, unit: Unit) -> Resume | None:
    """Return where to resume reading a unit; None if the bytes before that place have changed."""
    if known is None or known.place <= 0 or known.place > files.size_of(unit.path):
        return None
    if not isinstance(known.note, dict) or known.note.get("tail") != files.tail(
        unit.path, known.place
    ):
        return None
    return Resume(known.place, known.note.get("note"))


class _UnitPreview:
    """Counts what an import of one unit would do."""

    def __init__(
        self, target: ImportTarget | None, importer: Importer, unit: Unit, report: ToolImportReport
    ) -> None:
        self._target, self._unit, self._report = target, unit, report
        self._importer = importer
        self._begun: SessionBegin | None = None
        self._messages = 0
        self._has_conversation = False
        # How many sessions of the unit would be imported, or why there would be none.
        self.sessions = 0
        self.omission = _NOTHING

    def read(self, known: ReadUnit | None) -> None:
        """Count what is new since the unit was last read."""
        resume = _resume_point(known, self._unit)
        self._report.bytes += self._unit.size - (0 if resume is None else resume.place)
        try:
            try:
                for event in self._importer.read(self._unit, resume):
                    self._add(event)
            except SourceRewritten:
                for event in self._importer.read(self._unit, None):
                    self._add(event)
        finally:
            self._end()

    def _add(self, event: Event) -> None:
        report = self._report
        match event:
            case SessionBegin():
                self._end()
                self._begun = event
            case SessionEnd():
                self._end()
            case MessageEvent() | Compacted():
                self._count_item(event)
            case Branch(items=items, is_current=True):
                for item in items:
                    self._count_item(item)
            case Skipped(where=where, why=why):
                report.fault(self._unit, where, why)
            case IgnoredRecord(what=what, count=count):
                report.left_out[what] += count
            case HeldBack():
                report.hold_back(event)

    def _count_item(self, item: MessageEvent | Compacted) -> None:
        # What a person or a model wrote is a conversation; notices of programs are none.
        self._messages += isinstance(item, MessageEvent)
        if isinstance(item, Compacted) or item.role in ("user", "assistant"):
            self._has_conversation = True

    def _end(self) -> None:
        begun, self._begun = self._begun, None
        if begun is None:
            return
        to, is_stored = self._target, False
        if to is not None:
            found = to.store.read(
                imports.find_session, begun.native_id, profile=to.profile, tool=to.tool
            ).result()
            is_stored = found is not None
        if is_stored or self._has_conversation:
            self._report.extended += is_stored
            self._report.added += not is_stored
            self._report.messages += self._messages
            self.sessions += 1
        else:
            self._report.ignore_wordless(begun.native_id)
            self.omission = _NO_CONVERSATION
        self._messages, self._has_conversation = 0, False


class _Unresumable(Exception):
    """The stored session has changed since the last import: read the unit from its beginning."""


class UnitImport:
    """Imports one unit."""

    def __init__(
        self,
        target: ImportTarget,
        unit: Unit,
        report: ToolImportReport,
        *,
        source: EventSource,
        local: EventSource,
        progress: OnUnitProgress,
    ) -> None:
        self._target, self._unit, self._report = target, unit, report
        self._source, self._local = source, local
        self._progress = progress
        # The sessions that were not stored before, also if the unit is read a second time.
        self._new_sessions: set[str] = set()
        self._start_at(None, None)

    def read(self, known: ReadUnit | None) -> None:
        """Import what is new since the unit was last read; all of it if that place is lost."""
        resume = _resume_point(known, self._unit)
        before = self._report.reading_counts()
        try:
            seq = None if resume is None or known is None else known.note.get("seq")
            self._start_at(resume, seq)
            self._run(self._source)
        except (_Unresumable, SourceRewritten, ReaderLost):
            # What is stored already is recognised; what only the report counts would count twice.
            self._report.restore_counts(before)
            self._start_at(None, None)
            self._run(self._local)

    def _start_at(self, resume: Resume | None, seq: int | None) -> None:
        self._resume = resume
        # The session's last seq when the last import ended; None if the import does not resume.
        self._resumed_seq = seq
        self._merger: SessionMerger | None = None
        self._last_merger: SessionMerger | None = None
        self._was_new = False
        self._checkpoint: Checkpoint | None = None
        # What the report already counts: bytes of the unit, messages of the session.
        self._reported_bytes = 0 if resume is None else resume.place
        self._reported_messages = 0
        # Whether events came after the last checkpoint: then the next import cannot resume there.
        self._is_past_checkpoint = False
        # How many sessions of the unit are in the store, or why there is none.
        self.sessions = 0
        self.omission = _NOTHING

    def _run(self, source: EventSource) -> None:
        """Import the events of the unit, and record that it was read."""
        with closing(source.read(self._unit, self._resume)) as events:
            self._merge(events)
        self._end()
        self._report_bytes(self._unit.size)
        # Record that the unit was read, and where the next import can resume.
        to, read = self._target, self._read_unit(self._unit.stamp)
        if self._last_merger is not None:
            read = self._last_merger.resumable(read)
        to.store.write(
            merge.put_unit,
            self._unit.name,
            read,
            profile=to.profile,
            tool=to.tool,
            moment=to.moment,
        ).result()

    def _merge(self, events: EventStream) -> None:
        for event in events:
            merger = self._merger
            if type(event) is PreparedMessage and merger is not None:
                # A shortcut for speed: nearly all events are messages.
                self._is_past_checkpoint = True
                merger.add_message(event)
                if self._checkpoint is None and merger.is_full:
                    self._flush_without_checkpoint(merger)
            else:
                self._handle(event)

    def _handle(self, event: PreparedEvent) -> None:
        match event:
            case (
                PreparedMessage()
                | Compacted()
                | Retracted()
                | PreparedBranch()
                | PreparedUsage()
                | Facts()
            ):
                self._is_past_checkpoint = True
                if self._merger is not None:
                    self._merger.add(event)
                    self._flush_without_checkpoint(self._merger)
            case Checkpoint():
                self._checkpoint, self._is_past_checkpoint = event, False
                merger = self._merger
                if merger is not None and merger.is_full:
                    # Write the batch with the checkpoint, so that an interrupted import can resume there;
                    # without the stamp, which is written when all of the unit was read.
                    unit = None if self._was_new else (self._unit.name, self._read_unit(""))
                    merger.flush(is_last=False, unit=unit)
                    self._report_progress(merger)
            case SessionBegin():
                self._end()
                self._begin(event)
            case SessionEnd():
                self._end()
            case Skipped(where=where, why=why):
                self._report.fault(self._unit, where, why)
                if self._merger is not None:
                    self._merger.skipped += 1
            case IgnoredRecord(what=what, count=count):
                self._report.left_out[what] += count
            case HeldBack():
                self._report.hold_back(event)

    def _begin(self, begin: SessionBegin) -> None:
        merger = SessionMerger(self._target, begin, is_resumed=self._resume is not None)
        if self._resume is not None and not (
            merger.is_shown and merger.last_seq == self._resumed_seq
        ):
            raise _Unresumable
        if merger.is_purged:
            self.omission = "it was purged here, or someone erased from it"
            self._report.note(f"{begin.native_id}: {self.omission}; it was left out")
            return
        if merger.is_own:
            self.omission = _OWN
            return
        self._merger, self._was_new = merger, merger.is_new
        if merger.is_new:
            self._new_sessions.add(begin.native_id)

    def _flush_without_checkpoint(self, merger: SessionMerger) -> None:
        """Write a full batch of a unit without checkpoints, which is always read from its beginning."""
        if merger.is_full and self._checkpoint is None and self._resume is None:
            place = (self._unit.name, ReadUnit("", 0))
            merger.flush(is_last=False, unit=None if self._was_new else place)
            self._report_progress(merger)

    def _report_progress(self, merger: SessionMerger) -> None:
        if self._checkpoint is not None:
            self._report_bytes(self._checkpoint.place)
        self._report_messages(merger)
        self._progress(self._report, self._unit)

    def _report_bytes(self, place: int) -> None:
        self._report.bytes += max(0, place - self._reported_bytes)
        self._reported_bytes = max(place, self._reported_bytes)

    def _report_messages(self, merger: SessionMerger) -> None:
        self._report.messages += merger.messages - self._reported_messages
        self._reported_messages = merger.messages

    def _read_unit(self, stamp: str) -> ReadUnit:
        checkpoint = self._checkpoint
        if stamp and not self.sessions:
            return ReadUnit(stamp, 0, {"omitted": self.omission, "version": self._target.version})
        if checkpoint is None or self._is_past_checkpoint:
            return ReadUnit(stamp, 0)
        tail = files.tail(self._unit.path, checkpoint.place)
        return ReadUnit(stamp, checkpoint.place, {"tail": tail, "note": checkpoint.note})

    def _end(self) -> None:
        merger, self._merger = self._merger, None
        if merger is None:
            return
        if merger.is_new and not merger.has_conversation:
            self._report.ignore_wordless(merger.native_id)
            self.omission = _NO_CONVERSATION
            self._reported_messages = 0
            return
        changed = merger.messages > 0
        # Write the place in the transaction of the rows: otherwise they could be imported twice.
        place = None if self._checkpoint is None else (self._unit.name, self._read_unit(""))
        is_stored = merger.flush(is_last=True, unit=place)
        self._last_merger = merger
        report = self._report
        self._report_messages(merger)
        self._reported_messages = 0
        for text in merger.notes:
            report.note(text)
        if not is_stored:
            self.omission = _ONLY_COPIED
            return
        self.sessions += 1
        is_added = merger.native_id in self._new_sessions
        report.added += is_added
        report.extended += not is_added and changed
        report.unchanged += not is_added and not changed
