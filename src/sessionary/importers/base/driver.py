"""Reads units of any format into the store: once, in order, and no more than is new."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

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
    UsageEvent,
)
from sessionary.importers.base.session_merger import FIELDS, ImportTarget, SessionMerger
from sessionary.store.tables import imports
from sessionary.store.tables.imports import ReadUnit

SHOWN = 100
WORDLESS = "sessions without a question or an answer"
_NO_WORDS = "it has no question and no answer"
_NOTHING = "nothing in it is part of a conversation"
_COPY = "all of it is in the session that it was copied from"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that could not be read: where, and why."""

    unit: str
    where: str
    why: str


@dataclass(slots=True)
class ToolImportReport:
    """What an import did; `skipped` counts the faults, of which the first are named.

    Each unit is told once: `units` is `imported_units`, `unchanged_units` and the omissions together.
    """

    units: int = 0
    # Units of which a session is in the store now, and those that were read before.
    imported_units: int = 0
    unchanged_units: int = 0
    # Units that brought nothing, by name, and why.
    omissions: dict[str, str] = field(default_factory=dict)
    added: int = 0
    extended: int = 0
    unchanged: int = 0
    messages: int = 0
    bytes: int = 0
    skipped: int = 0
    faults: list[Fault] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    # The first of the sessions that have no words.
    wordless: list[str] = field(default_factory=list)
    # Answers that may still be growing, and when all of them will count as whole.
    held_back: int = 0
    held_back_until: datetime | None = None
    notes: list[str] = field(default_factory=list)

    def fault(self, unit: Unit, where: str, why: str) -> None:
        """Count something that could not be read."""
        self.skipped += 1
        if len(self.faults) < SHOWN:
            self.faults.append(Fault(unit.name, where, why))

    def omit(self, unit: Unit, why: str) -> None:
        """Say that a unit brought nothing."""
        self.omissions[unit.name] = why

    def leave_out_wordless(self, native_id: str) -> None:
        """Count a session in which nobody said anything."""
        self.left_out[WORDLESS] += 1
        if len(self.wordless) < SHOWN:
            self.wordless.append(native_id)

    def hold_back(self, event: HeldBack) -> None:
        """Count an answer that comes with a later import."""
        self.held_back += 1
        self.held_back_until = max(event.until, self.held_back_until or event.until)

    def note(self, text: str) -> None:
        """Keep a word for the person, while there are few."""
        if len(self.notes) < SHOWN and text not in self.notes:
            self.notes.append(text)


Progress = Callable[[ToolImportReport, Unit], None]
# Says why a unit must not be read; None when it may be.
Check = Callable[[Unit], str | None]


def run(
    target: ImportTarget,
    importer: Importer,
    units: Iterable[Unit],
    *,
    own_files: Iterable[tuple[int, int]] = (),
    check: Check = lambda _: None,
    progress: Progress = lambda *_: None,
) -> ToolImportReport:
    """Read each unit that has changed since it was last read, and that `check` has nothing against."""
    report = ToolImportReport()
    own = frozenset(own_files)
    for unit in units:
        to = _profiled(target, unit, report)
        _read(to, importer, unit, report, own=own, check=check, progress=progress)
        progress(report, unit)
    return report


def look(
    target: ImportTarget | None,
    importer: Importer,
    units: Iterable[Unit],
    *,
    check: Check = lambda _: None,
) -> ToolImportReport:
    """Read everything that is new and change nothing: what an import would find."""
    report = ToolImportReport()
    for unit in units:
        report.units += 1
        to = None if target is None else _profiled(target, unit, report)
        known = None if to is None else _known(to, unit)
        if _is_settled(to, known, unit, report, check=check):
            continue
        looking = _UnitPreview(to, unit, report)
        why: str | None = None
        try:
            resume = _resume(known, unit)
            report.bytes += unit.size - (0 if resume is None else resume.place)
            for event in _events(importer, unit, resume):
                looking.take(event)
            looking.end()
        except BadInput as error:
            why = str(error)
        except OSError as error:
            why = f"it cannot be read ({error.strerror or error})"
        if why is not None:
            looking.end()
            report.fault(unit, "", why)
        if looking.sessions:
            report.imported_units += 1
        else:
            report.omit(unit, why or (_NO_WORDS if looking.wordless else _NOTHING))
    return report


def _is_settled(
    target: ImportTarget | None,
    known: ReadUnit | None,
    unit: Unit,
    report: ToolImportReport,
    *,
    check: Check,
) -> bool:
    """Whether a unit need not or must not be read; the report says which."""
    if known is not None and known.stamp == unit.stamp:
        note = known.note if isinstance(known.note, dict) else {}
        if "omitted" not in note:
            report.unchanged_units += 1
            return True
        # A later version may know how to read it.
        if target is not None and note.get("version") == target.version:
            report.omit(unit, str(note["omitted"]))
            return True
    why = check(unit)
    if why is not None:
        report.fault(unit, "", why)
        report.omit(unit, why)
    return why is not None


def _events(importer: Importer, unit: Unit, resume: Resume | None) -> Iterator[Event]:
    try:
        yield from importer.read(unit, resume)
    except SourceRewritten:
        yield from importer.read(unit, None)


class _UnitPreview:
    """One unit that is read without being imported."""

    def __init__(self, target: ImportTarget | None, unit: Unit, report: ToolImportReport) -> None:
        self._target, self._unit, self._report = target, unit, report
        self._begun: SessionBegin | None = None
        self._messages = 0
        self._has_words = False
        self.sessions = 0
        self.wordless = 0

    def take(self, event: Event) -> None:
        report = self._report
        match event:
            case SessionBegin():
                self.end()
                self._begun = event
            case SessionEnd():
                self.end()
            case MessageEvent() | Compacted():
                self._hear(event)
            case Branch(items=items, is_current=True):
                for item in items:
                    self._hear(item)
            case Skipped(where=where, why=why):
                report.fault(self._unit, where, why)
            case IgnoredRecord(what=what, count=count):
                report.left_out[what] += count
            case HeldBack():
                report.hold_back(event)

    def end(self) -> None:
        """Count the session that was begun."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        is_here = self._target is not None and _is_known(self._target, begun.native_id)
        if is_here or self._has_words:
            self._report.extended += is_here
            self._report.added += not is_here
            self._report.messages += self._messages
            self.sessions += 1
        else:
            self._report.leave_out_wordless(begun.native_id)
            self.wordless += 1
        self._messages, self._has_words = 0, False

    def _hear(self, item: MessageEvent | Compacted) -> None:
        self._messages += isinstance(item, MessageEvent)
        self._has_words = self._has_words or is_words(item)


def is_words(item: MessageEvent | Compacted) -> bool:
    """Whether it is something that a person or a model said, and not the program."""
    return isinstance(item, Compacted) or item.role in ("user", "assistant")


def _is_known(target: ImportTarget, native_id: str) -> bool:
    """Whether a session of that name is here."""
    found = target.store.read(
        imports.find_session, native_id, profile=target.profile, tool=target.tool
    ).result()
    return found is not None


def _profiled(target: ImportTarget, unit: Unit, report: ToolImportReport) -> ImportTarget:
    """Where a unit goes: what its tool keeps in a profile of its own stays apart here too."""
    if unit.profile in (None, target.profile) or target.is_asked_for:
        return target
    report.note(
        f"What {target.title} keeps in its profile {unit.profile} goes to the profile of that "
        f"name here: sessionary --profile {unit.profile} sessions list"
    )
    return replace(target, profile=unit.profile)


def ahead(target: ImportTarget | None, unit: Unit) -> int | None:
    """How many bytes of a unit an import would read; None when nothing in it is new."""
    known = None if target is None else _known(_profiled(target, unit, ToolImportReport()), unit)
    if known is None:
        return unit.size
    return None if known.stamp == unit.stamp else max(0, unit.size - known.place)


def _known(target: ImportTarget, unit: Unit) -> ReadUnit | None:
    return target.store.read(
        imports.find_unit, unit.name, profile=target.profile, tool=target.tool
    ).result()


def _read(
    target: ImportTarget,
    importer: Importer,
    unit: Unit,
    report: ToolImportReport,
    *,
    own: frozenset[tuple[int, int]],
    check: Check,
    progress: Progress,
) -> None:
    report.units += 1
    for path in (unit.path, *unit.beside):
        if files.identity(path) in own:
            why = "it belongs to the store itself; it was left alone"
            report.fault(unit, "", why)
            report.omit(unit, why)
            return
    known = _known(target, unit)
    if _is_settled(target, known, unit, report, check=check):
        return
    failure: str | None = None
    reading: UnitImport | None = None
    try:
        resume = _resume(known, unit)
        seq = None if resume is None or known is None else known.note.get("seq")
        reading = UnitImport(target, unit, report, resume=resume, seq=seq, progress=progress)
        try:
            reading.take(importer)
        except (_Unresumable, SourceRewritten):
            reading = UnitImport(target, unit, report, resume=None, progress=progress)
            reading.take(importer)
    except (BadInput, Conflict) as error:
        failure = str(error)
    except OSError as error:
        failure = f"it cannot be read ({error.strerror or error}); it was left alone"
    if failure is not None:
        report.fault(unit, "", failure)
    if reading is not None and reading.sessions:
        report.imported_units += 1
    else:
        report.omit(unit, failure or (_NOTHING if reading is None else reading.omission))


def _resume(known: ReadUnit | None, unit: Unit) -> Resume | None:
    """Where to read on: only if what was read then still stands there."""
    if known is None or known.place <= 0 or known.place > files.size_of(unit.path):
        return None
    if not isinstance(known.note, dict) or known.note.get("tail") != files.tail(
        unit.path, known.place
    ):
        return None
    return Resume(known.place, known.note.get("note"))


class _Unresumable(Exception):
    """The session is not here as it was: the unit is read from its beginning."""


class UnitImport:
    """One unit being read."""

    def __init__(
        self,
        target: ImportTarget,
        unit: Unit,
        report: ToolImportReport,
        *,
        resume: Resume | None,
        progress: Progress,
        seq: int | None = None,
    ) -> None:
        self._target = target
        self._unit = unit
        self._report = report
        self._resume = resume
        # With which entry the session ended where the last reading did.
        self._seq = seq
        self._progress = progress
        self._weaver: SessionMerger | None = None
        self._ended: SessionMerger | None = None
        self._was_new = False
        self._mark: Checkpoint | None = None
        # What the report has been told: up to which byte, and how many of the session's messages.
        self._told_bytes = 0 if resume is None else resume.place
        self._told_messages = 0
        # Whether something was said that no mark covers: then there is no place to read on from.
        self._is_ahead = False
        # How many sessions of the unit are in the store, and why there is none.
        self.sessions = 0
        self.omission = _NOTHING

    def take(self, importer: Importer) -> None:
        """Follow what the unit says to its end, and note that it was read."""
        for event in importer.read(self._unit, self._resume):
            weaver = self._weaver
            if type(event) is MessageEvent and weaver is not None:
                # Nearly everything is a message: the short way to where it goes.
                self._is_ahead = True
                weaver.say(event)
                if self._mark is None and weaver.is_full:
                    self._flush_unmarked(weaver)
            else:
                self._take(event)
        self._end()
        self._tell_bytes(self._unit.size)
        self._note_unit()

    def _take(self, event: Event) -> None:
        match event:
            case MessageEvent() | Compacted() | Retracted() | Branch() | UsageEvent() | Facts():
                self._is_ahead = True
                if self._weaver is not None:
                    self._weave(self._weaver, event)
                    self._flush_unmarked(self._weaver)
            case Checkpoint():
                self._mark, self._is_ahead = event, False
                self._flush_if_full()
            case SessionBegin():
                self._end()
                self._begin(event)
            case SessionEnd():
                self._end()
            case Skipped(where=where, why=why):
                self._report.fault(self._unit, where, why)
                if self._weaver is not None:
                    self._weaver.skipped += 1
            case IgnoredRecord(what=what, count=count):
                self._report.left_out[what] += count
            case HeldBack():
                self._report.hold_back(event)

    def _weave(self, weaver: SessionMerger, event: Event) -> None:
        match event:
            case MessageEvent():
                weaver.say(event)
            case Compacted():
                weaver.compact(event)
            case Retracted():
                weaver.take_back(event)
            case Branch(items=items, is_current=is_current):
                weaver.follow(items, is_current=is_current)
            case UsageEvent(usage=usage):
                weaver.pay(usage)
            case Facts(fields=fields):
                weaver.fields.update(
                    (name, value) for name, value in fields.items() if name in FIELDS
                )

    def _begin(self, begin: SessionBegin) -> None:
        weaver = SessionMerger(self._target, begin, is_resumed=self._resume is not None)
        if self._resume is not None and not (weaver.is_shown and weaver.last_seq == self._seq):
            raise _Unresumable
        if weaver.is_purged:
            self.omission = "it was purged here, or someone erased from it"
            self._report.note(f"{begin.native_id}: {self.omission}; it was left out")
            return
        self._weaver, self._was_new = weaver, weaver.is_new

    def _flush_if_full(self) -> None:
        """Write what waits. A reading that is broken off goes on from its last mark."""
        weaver = self._weaver
        if weaver is not None and weaver.is_full:
            weaver.flush(is_whole=False, unit=self._read_so_far())
            self._tell_progress(weaver)

    def _flush_unmarked(self, weaver: SessionMerger) -> None:
        """Write what waits of a unit that is always read from its beginning."""
        if weaver.is_full and self._mark is None and self._resume is None:
            place = (self._unit.name, ReadUnit("", 0))
            weaver.flush(is_whole=False, unit=None if self._was_new else place)
            self._tell_progress(weaver)

    def _tell_progress(self, weaver: SessionMerger) -> None:
        if self._mark is not None:
            self._tell_bytes(self._mark.place)
        self._tell_messages(weaver)
        self._progress(self._report, self._unit)

    def _tell_bytes(self, place: int) -> None:
        self._report.bytes += max(0, place - self._told_bytes)
        self._told_bytes = max(place, self._told_bytes)

    def _tell_messages(self, weaver: SessionMerger) -> None:
        self._report.messages += weaver.messages - self._told_messages
        self._told_messages = weaver.messages

    def _read_so_far(self) -> tuple[str, ReadUnit] | None:
        """Not with the stamp of the whole: that is written when the unit was read to its end."""
        if self._mark is None or self._was_new:
            return None
        return self._unit.name, self._read("")

    def _read(self, stamp: str) -> ReadUnit:
        mark = self._mark
        if stamp and not self.sessions:
            return ReadUnit(stamp, 0, {"omitted": self.omission, "version": self._target.version})
        if mark is None or self._is_ahead:
            return ReadUnit(stamp, 0)
        tail = files.tail(self._unit.path, mark.place)
        return ReadUnit(stamp, mark.place, {"tail": tail, "note": mark.note})

    def _end(self) -> None:
        weaver, self._weaver = self._weaver, None
        if weaver is None:
            return
        if weaver.is_new and not weaver.has_words:
            self._report.leave_out_wordless(weaver.native_id)
            self.omission = _NO_WORDS
            self._told_messages = 0
            return
        changed = weaver.messages > 0
        # The place goes with the rows: what is read again would be said twice.
        place = None if self._mark is None else (self._unit.name, self._read(""))
        is_there = weaver.flush(is_whole=True, unit=place)
        self._ended = weaver
        report = self._report
        self._tell_messages(weaver)
        self._told_messages = 0
        for text in weaver.notes:
            report.note(text)
        if not is_there:
            self.omission = _COPY
            return
        self.sessions += 1
        report.added += self._was_new
        report.extended += not self._was_new and changed
        report.unchanged += not self._was_new and not changed

    def _note_unit(self) -> None:
        to = self._target
        read = self._read(self._unit.stamp)
        to.store.write(
            merge.put_unit,
            self._unit.name,
            read if self._ended is None else self._ended.placed(read),
            profile=to.profile,
            tool=to.tool,
            moment=to.moment,
        ).result()
