"""Reads units of any format into the store: once, in order, and no more than is new."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from hansard.actions import weaving
from hansard.errors import BadInput, Conflict
from hansard.importers import files
from hansard.importers.base import (
    Begin,
    Branch,
    Compacted,
    End,
    Event,
    Facts,
    Importer,
    LeftOut,
    Mark,
    Regrown,
    Resume,
    Said,
    Skipped,
    Spent,
    TakenBack,
    Unit,
)
from hansard.importers.facts import FIELDS
from hansard.importers.target import Target
from hansard.importers.weaver import Weaver
from hansard.store import imports
from hansard.store.imports import ReadUnit

SHOWN = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that could not be read: where, and why."""

    unit: str
    where: str
    why: str


@dataclass(slots=True)
class Report:
    """What an import did; `skipped` counts the faults, of which the first are named."""

    units: int = 0
    unchanged_units: int = 0
    added: int = 0
    extended: int = 0
    unchanged: int = 0
    messages: int = 0
    bytes: int = 0
    skipped: int = 0
    faults: list[Fault] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def fault(self, unit: Unit, where: str, why: str) -> None:
        """Count something that could not be read."""
        self.skipped += 1
        if len(self.faults) < SHOWN:
            self.faults.append(Fault(unit.name, where, why))

    def note(self, text: str) -> None:
        """Keep a word for the person, while there are few."""
        if len(self.notes) < SHOWN and text not in self.notes:
            self.notes.append(text)


Progress = Callable[[Report, Unit], None]


def run(
    target: Target,
    importer: Importer,
    units: Iterable[Unit],
    *,
    own_files: Iterable[tuple[int, int]] = (),
    progress: Progress = lambda *_: None,
) -> Report:
    """Read each unit that has changed since it was last read."""
    report = Report()
    own = frozenset(own_files)
    for unit in units:
        to = _profiled(target, unit, report)
        _read(to, importer, unit, report, own=own, progress=progress)
        progress(report, unit)
    return report


def look(target: Target | None, importer: Importer, units: Iterable[Unit]) -> Report:
    """Read everything that is new and change nothing: what an import would find."""
    report = Report()
    for unit in units:
        report.units += 1
        to = None if target is None else _profiled(target, unit, report)
        known = None if to is None else _known(to, unit)
        if known is not None and known.stamp == unit.stamp:
            report.unchanged_units += 1
            continue
        try:
            resume = _resume(known, unit)
            report.bytes += unit.size - (0 if resume is None else resume.place)
            for event in _events(importer, unit, resume):
                _look_at(event, to, unit, report)
        except BadInput as error:
            report.fault(unit, "", str(error))
        except OSError as error:
            report.fault(unit, "", f"it cannot be read ({error.strerror or error})")
    return report


def _events(importer: Importer, unit: Unit, resume: Resume | None) -> Iterator[Event]:
    try:
        yield from importer.read(unit, resume)
    except Regrown:
        yield from importer.read(unit, None)


def _look_at(event: Event, target: Target | None, unit: Unit, report: Report) -> None:
    match event:
        case Begin():
            is_here = target is not None and _is_known(target, event.native_id)
            report.extended += is_here
            report.added += not is_here
        case Said():
            report.messages += 1
        case Branch(items=items, is_current=True):
            report.messages += sum(isinstance(item, Said) for item in items)
        case Skipped(where=where, why=why):
            report.fault(unit, where, why)
        case LeftOut(what=what, count=count):
            report.left_out[what] += count


def _is_known(target: Target, native_id: str) -> bool:
    """Whether a session of that name is here."""
    found = target.store.read(
        imports.find_session, native_id, profile=target.profile, tool=target.tool
    ).result()
    return found is not None


def _profiled(target: Target, unit: Unit, report: Report) -> Target:
    """Where a unit goes: what its tool keeps in a profile of its own stays apart here too."""
    if unit.profile in (None, target.profile) or target.is_asked_for:
        return target
    report.note(
        f"What {target.title} keeps in its profile {unit.profile} goes to the profile of that "
        f"name here: hansard --profile {unit.profile} sessions list"
    )
    return replace(target, profile=unit.profile)


def ahead(target: Target | None, unit: Unit) -> int | None:
    """How many bytes of a unit an import would read; None when nothing in it is new."""
    known = None if target is None else _known(_profiled(target, unit, Report()), unit)
    if known is None:
        return unit.size
    return None if known.stamp == unit.stamp else max(0, unit.size - known.place)


def _known(target: Target, unit: Unit) -> ReadUnit | None:
    return target.store.read(
        imports.find_unit, unit.name, profile=target.profile, tool=target.tool
    ).result()


def _read(
    target: Target,
    importer: Importer,
    unit: Unit,
    report: Report,
    *,
    own: frozenset[tuple[int, int]],
    progress: Progress,
) -> None:
    report.units += 1
    for path in (unit.path, *unit.beside):
        if files.identity(path) in own:
            report.fault(unit, "", "it belongs to the store itself; it was left alone")
            return
    known = _known(target, unit)
    if known is not None and known.stamp == unit.stamp:
        report.unchanged_units += 1
        return
    try:
        resume = _resume(known, unit)
        seq = None if resume is None or known is None else known.note.get("seq")
        try:
            Reading(target, unit, report, resume=resume, seq=seq, progress=progress).take(importer)
        except (_Unresumable, Regrown):
            Reading(target, unit, report, resume=None, progress=progress).take(importer)
    except (BadInput, Conflict) as error:
        report.fault(unit, "", str(error))
    except OSError as error:
        report.fault(unit, "", f"it cannot be read ({error.strerror or error}); it was left alone")


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


class Reading:
    """One unit being read."""

    def __init__(
        self,
        target: Target,
        unit: Unit,
        report: Report,
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
        self._weaver: Weaver | None = None
        self._ended: Weaver | None = None
        self._was_new = False
        self._mark: Mark | None = None
        # What the report has been told: up to which byte, and how many of the session's messages.
        self._told_bytes = 0 if resume is None else resume.place
        self._told_messages = 0
        # Whether something was said that no mark covers: then there is no place to read on from.
        self._is_ahead = False

    def take(self, importer: Importer) -> None:
        """Follow what the unit says to its end, and note that it was read."""
        for event in importer.read(self._unit, self._resume):
            weaver = self._weaver
            if type(event) is Said and weaver is not None:
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
            case Said() | Compacted() | TakenBack() | Branch() | Spent() | Facts():
                self._is_ahead = True
                if self._weaver is not None:
                    self._weave(self._weaver, event)
                    self._flush_unmarked(self._weaver)
            case Mark():
                self._mark, self._is_ahead = event, False
                self._flush_if_full()
            case Begin():
                self._end()
                self._begin(event)
            case End():
                self._end()
            case Skipped(where=where, why=why):
                self._report.fault(self._unit, where, why)
                if self._weaver is not None:
                    self._weaver.skipped += 1
            case LeftOut(what=what, count=count):
                self._report.left_out[what] += count

    def _weave(self, weaver: Weaver, event: Event) -> None:
        match event:
            case Said():
                weaver.say(event)
            case Compacted():
                weaver.compact(event)
            case TakenBack():
                weaver.take_back(event)
            case Branch(items=items, is_current=is_current):
                weaver.follow(items, is_current=is_current)
            case Spent(usage=usage):
                weaver.pay(usage)
            case Facts(fields=fields):
                weaver.fields.update(
                    (name, value) for name, value in fields.items() if name in FIELDS
                )

    def _begin(self, begin: Begin) -> None:
        weaver = Weaver(self._target, begin, is_resumed=self._resume is not None)
        if self._resume is not None and not (weaver.is_shown and weaver.last_seq == self._seq):
            raise _Unresumable
        if weaver.is_purged:
            self._report.note(
                f"{begin.native_id} was purged here, or someone erased from it; it was left out"
            )
            return
        self._weaver, self._was_new = weaver, weaver.is_new

    def _flush_if_full(self) -> None:
        """Write what waits. A reading that is broken off goes on from its last mark."""
        weaver = self._weaver
        if weaver is not None and weaver.is_full:
            weaver.flush(is_whole=False, unit=self._read_so_far())
            self._tell_progress(weaver)

    def _flush_unmarked(self, weaver: Weaver) -> None:
        """Write what waits of a unit that is always read from its beginning."""
        if weaver.is_full and self._mark is None and self._resume is None:
            place = (self._unit.name, ReadUnit("", 0))
            weaver.flush(is_whole=False, unit=None if self._was_new else place)
            self._tell_progress(weaver)

    def _tell_progress(self, weaver: Weaver) -> None:
        if self._mark is not None:
            self._tell_bytes(self._mark.place)
        self._tell_messages(weaver)
        self._progress(self._report, self._unit)

    def _tell_bytes(self, place: int) -> None:
        self._report.bytes += max(0, place - self._told_bytes)
        self._told_bytes = max(place, self._told_bytes)

    def _tell_messages(self, weaver: Weaver) -> None:
        self._report.messages += weaver.messages - self._told_messages
        self._told_messages = weaver.messages

    def _read_so_far(self) -> tuple[str, ReadUnit] | None:
        """Not with the stamp of the whole: that is written when the unit was read to its end."""
        if self._mark is None or self._was_new:
            return None
        return self._unit.name, self._read("")

    def _read(self, stamp: str) -> ReadUnit:
        mark = self._mark
        if mark is None or self._is_ahead:
            return ReadUnit(stamp, 0)
        tail = files.tail(self._unit.path, mark.place)
        return ReadUnit(stamp, mark.place, {"tail": tail, "note": mark.note})

    def _end(self) -> None:
        weaver, self._weaver = self._weaver, None
        if weaver is None:
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
            return
        report.added += self._was_new
        report.extended += not self._was_new and changed
        report.unchanged += not self._was_new and not changed

    def _note_unit(self) -> None:
        to = self._target
        read = self._read(self._unit.stamp)
        to.store.write(
            weaving.put_unit,
            self._unit.name,
            read if self._ended is None else self._ended.placed(read),
            profile=to.profile,
            tool=to.tool,
            when=to.when,
        ).result()
