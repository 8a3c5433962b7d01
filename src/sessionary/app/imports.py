"""Other tools' records on this machine: what there is, what an import would bring, the import.

The command, the workbench and `sessionary serve` ask here. The answers are plain values.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import sessionary
from sessionary import config
from sessionary.client.client import Machine, Sessionary
from sessionary.errors import BadInput, NotFound
from sessionary.importers import registry
from sessionary.importers.base import driver, files
from sessionary.importers.base.driver import SHOWN, Fault, ToolImportReport
from sessionary.importers.base.events import Importer, Unit, Where
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.importers.registry import Recogniser
from sessionary.store.filesystem import BESIDE
from sessionary.store.open import sqlite_path

# What its owner will delete within this time is told apart.
SOON = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Wish:
    """Something to be imported: a directory or a file, and the tool whose records are meant.

    Without a tool every file of a directory goes to the tool that wrote it.
    """

    tool: str | None
    place: Path
    # Whether a person named the place: then it is an error that nothing comes of it.
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class Discovery:
    """The records of one tool in one place: how much there is, and how much of it is new here."""

    tool: str
    title: str
    place: str
    units: int
    bytes: int
    new_units: int
    new_bytes: int
    # Of the new ones: how many their owner deletes within a week, and when the first goes.
    expiring: int = 0
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import is. `place` is what is being read."""

    tool: str
    place: str
    bytes: int
    all_bytes: int
    sessions: int
    messages: int


@dataclass(frozen=True, slots=True)
class Omission:
    """A unit of which nothing was imported, and why."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an import of one tool's records did, or would do.

    Every unit that was found is told: `units == imported_units + unchanged_units + omitted_units`.
    """

    tool: str
    title: str
    places: tuple[str, ...]
    units: int = 0
    # Units of which a session is here now; those that had not changed since they were read;
    # and those that brought nothing, of which the first are named.
    imported_units: int = 0
    unchanged_units: int = 0
    omitted_units: int = 0
    omissions: tuple[Omission, ...] = ()
    added: int = 0
    extended: int = 0
    unchanged: int = 0
    messages: int = 0
    bytes: int = 0
    skipped: int = 0
    faults: tuple[Fault, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    # The first of the sessions without a question or an answer; all are counted in `left_out`.
    wordless: tuple[str, ...] = ()
    # Answers that may still be growing: an import after that time brings them.
    held_back: int = 0
    held_back_until: datetime | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownFiles:
    """The files of a named directory that are no record of a known tool; the first are named."""

    place: str
    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did, or would do, for each tool."""

    outcomes: tuple[Outcome, ...]
    unknown: tuple[UnknownFiles, ...] = ()
    # Files and directories that cannot be looked into, so that nobody can tell whose they are.
    faults: tuple[Fault, ...] = ()
    # Places that a person named and of which nothing is here now, each with a line that says why.
    failures: tuple[str, ...] = ()


Tell = Callable[[Progress], None]


def here() -> Where:
    """This machine, as its user sees it."""
    return Where(config.user_home(), config.environment())


def tools() -> list[tuple[str, str]]:
    """The names of all tools whose records can be read, and what people call them."""
    return [(each.name, each.title) for each in registry.importers()]


def default_wishes(
    where: Where, names: Sequence[str] = (), *, must_exist: bool = True
) -> list[Wish]:
    """Every place on the machine where the named tools, or any, keep their records."""
    importers = [registry.importer(name) for name in names] if names else registry.importers()
    return [
        Wish(importer.name, place)
        for importer in importers
        for place in dict.fromkeys(map(_resolved, importer.places(where)))
        if not must_exist or files.is_directory(place) or files.is_file(place)
    ]


def wish_for(path: Path, tool: str | None = None) -> Wish | None:
    """What someone means who names a path; None when it is a file of no known tool.

    A file that is not a record of the tool that was named is refused.
    """
    place = _resolved(path)
    importer = None if tool is None else registry.importer(tool)
    if files.is_directory(place):
        return Wish(tool, place, is_named=True)
    found = Recogniser().tool_of(place)
    why = registry.unreadable(place) if found is None else None
    if why is not None:
        raise BadInput(f"{why} Nothing was imported.")
    if importer is None:
        return None if found is None else Wish(found.name, place, is_named=True)
    if found is importer or registry.accepts(importer, place):
        return Wish(importer.name, place, is_named=True)
    if found is None:
        raise BadInput(
            f"{path} is no record of {importer.title}: nothing in its beginning is known. "
            "Nothing was imported."
        )
    raise BadInput(
        f"{path} is a record of {found.title}, not of {importer.title}; nothing was imported. "
        f"Import it with: sessionary import {found.name} {path}"
    )


def _resolved(path: Path) -> Path:
    """The place itself: whoever names a link means where it leads. Links inside are not followed."""
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError):
        return path


def now(client: Sessionary | None) -> datetime:
    """What time it is, for a house or without one."""
    return (Machine.real() if client is None else client.machine).clock.now()


def discover(client: Sessionary | None, where: Where, *, now: datetime) -> list[Discovery]:
    """What is on the machine, tool by tool; without a house all of it is new."""
    found = [_discovery(client, wish, now=now) for wish in default_wishes(where)]
    return [each for each in found if each.units]


def look(
    client: Sessionary | None, wishes: Sequence[Wish], *, is_profile_asked_for: bool = False
) -> ImportResult:
    """What an import would find. Nothing is changed."""
    plan = _planned(client, wishes, is_profile_asked_for=is_profile_asked_for)
    return plan.result(
        driver.look(part.target, part.importer, part.units, check=part.check) for part in plan.parts
    )


def run(
    client: Sessionary,
    wishes: Sequence[Wish],
    tell: Tell = lambda _: None,
    *,
    is_profile_asked_for: bool = False,
) -> ImportResult:
    """Import what is new. What a tool keeps in a profile of its own goes there, unless one was asked for."""
    plan = _planned(client, wishes, is_profile_asked_for=is_profile_asked_for)
    return plan.result(_run(client, part, tell) for part in plan.parts)


def refuse_own(database: str | None, path: Path) -> None:
    """Never read the store as if it were someone else's: a plain open and close drops its locks."""
    place = _resolved(path)
    for own in _own_paths(database):
        if files.identity(own) == files.identity(place) is not None:
            raise BadInput(f"{path} belongs to the store itself; nothing was imported.")
        if files.is_directory(place) and own.parent.is_relative_to(place):
            raise BadInput(
                f"The store itself is in {path}; nothing was imported. Name a tool's own directory."
            )


@dataclass(slots=True)
class _Part:
    """The records of one tool that are read one after the other."""

    importer: Importer
    target: ImportTarget | None
    recogniser: Recogniser
    places: list[Path] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    # Places and files that cannot be looked into.
    faults: list[Fault] = field(default_factory=list)
    # Files that are the tool's and of which its importer makes nothing, and why.
    fruitless: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def check(self, unit: Unit) -> str | None:
        """Why a unit must not be read: its file is of another tool, or of none."""
        return self.recogniser.refusal(self.importer, unit.path)


@dataclass(slots=True)
class _Plan:
    """What is to be read for whom."""

    parts: list[_Part] = field(default_factory=list)
    unknown: list[UnknownFiles] = field(default_factory=list)
    # What cannot be looked into, so that nobody can tell whose it is.
    faults: list[Fault] = field(default_factory=list)
    # Which units each place has that a person named.
    named: dict[Path, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def result(self, reports: Iterable[ToolImportReport]) -> ImportResult:
        """What came of it, once every part was read."""
        outcomes: list[Outcome] = []
        omitted: dict[str, str] = {}
        for part, report in zip(self.parts, reports, strict=True):
            outcomes.append(_outcome(part, report))
            omitted |= report.omissions
        failures = list(self.failures)
        for place, units in self.named.items():
            reasons = [omitted.get(unit) for unit in units]
            if units and None not in reasons:
                why = "; ".join(dict.fromkeys(str(each) for each in reasons[:SHOWN]))
                failures.append(f"{place}: nothing of it was imported: {why}")
        return ImportResult(
            tuple(outcomes), tuple(self.unknown), tuple(self.faults), tuple(failures)
        )


def _planned(
    client: Sessionary | None, wishes: Sequence[Wish], *, is_profile_asked_for: bool
) -> _Plan:
    """Find the units of each wish; `BadInput` or `NotFound` when the only one has none."""
    for wish in wishes:
        refuse_own(_database(client), wish.place)
    plan = _Plan()
    recogniser = Recogniser()
    parts: dict[str, _Part] = {}

    def part_of(name: str) -> _Part:
        if name not in parts:
            importer = registry.importer(name)
            target = None
            if client is not None:
                target = _target(client, importer, is_profile_asked_for=is_profile_asked_for)
            parts[name] = _Part(importer, target, recogniser)
        return parts[name]

    for wish in wishes:
        with files.noting_closed() as closed:
            try:
                if wish.is_named and files.is_directory(wish.place):
                    _plan_folder(plan, wish, part_of)
                else:
                    assert wish.tool is not None
                    part = part_of(wish.tool)
                    part.places.append(wish.place)
                    units = _found(part.importer, wish.place)
                    part.units += units
                    if wish.is_named:
                        plan.named[wish.place] = [unit.name for unit in units]
            except (BadInput, NotFound) as error:
                if len(wishes) == 1:
                    raise
                # What else was asked for need not wait for it.
                if wish.tool is not None:
                    part_of(wish.tool).faults.append(Fault(str(wish.place), "", str(error)))
                if wish.is_named:
                    plan.failures.append(str(error))
        for path, why in dict(closed).items():
            fault = Fault(str(path), "", f"it cannot be read ({why}); it was left alone")
            (plan if wish.tool is None else part_of(wish.tool)).faults.append(fault)
    plan.parts = list(parts.values())
    return plan


def _plan_folder(plan: _Plan, wish: Wish, part_of: Callable[[str], _Part]) -> None:
    """Give every file of a named directory to the tool that wrote it."""
    place = wish.place
    only = None if wish.tool is None else registry.importer(wish.tool)
    _refuse_closed(place)
    found = registry.scan(place, only)
    names: list[str] = []
    for tool in dict.fromkeys([*found.units, *found.fruitless]):
        part = part_of(tool)
        part.places.append(place)
        units = found.units.get(tool, [])
        part.units += units
        names += [unit.name for unit in units]
        for path in found.fruitless.get(tool, []):
            part.fruitless[str(path)] = "it is known by its beginning, but there is nothing to read"
    if only is not None and found.others:
        told = ", ".join(
            f"{count:,} of {registry.importer(name).title}" for name, count in found.others.items()
        )
        if names:
            part_of(only.name).notes.append(
                f"Not asked for, and left alone: files of other tools in {place}: {told}."
            )
        else:
            raise BadInput(
                f"There is no record of {only.title} in {place}; it has files of other tools: "
                f"{told}. Nothing was imported. Import them with: sessionary import {place}"
            )
    for path, why in found.unreadable:
        plan.faults.append(Fault(str(path), "", why))
    if not names and found.unreadable:
        raise BadInput(f"{found.unreadable[0][1]} Nothing in {place} could be imported.")
    if not names:
        what = "record that is known here" if only is None else f"record of {only.title}"
        raise BadInput(f"There is no {what} in {place}; nothing was imported.")
    if only is None and found.unknown:
        shown = tuple(str(path.relative_to(place)) for path in found.unknown[:SHOWN])
        plan.unknown.append(UnknownFiles(str(place), len(found.unknown), shown))
    if found.is_cut:
        plan.failures.append(
            f"{place} has more than {registry.MOST_FILES:,} files; the rest was not looked at. "
            "Name the directories inside it that you mean."
        )
    plan.named[place] = names


def _refuse_closed(place: Path) -> None:
    """Importers pass over directories that cannot be listed: one that was named must not be."""
    try:
        os.scandir(place).close()
    except OSError as error:
        raise BadInput(f"{place} cannot be read ({error.strerror}); it was left alone.") from error


def _run(client: Sessionary, part: _Part, tell: Tell) -> ToolImportReport:
    assert part.target is not None
    own = [
        found
        for path in _own_paths(_database(client))
        if (found := files.identity(path)) is not None
    ]
    progress = _teller(part, part.target, tell)
    return driver.run(
        part.target,
        part.importer,
        part.units,
        own_files=own,
        check=part.check,
        progress=progress,
    )


def _found(importer: Importer, place: Path) -> list[Unit]:
    if not (files.is_directory(place) or files.is_file(place)):
        raise NotFound(f"There is nothing at {place}; nothing was imported.")
    try:
        if files.is_directory(place):
            _refuse_closed(place)
        return list(importer.find(place))
    except OSError as error:
        where = error.filename or place
        raise BadInput(f"{where} cannot be read ({error.strerror}); it was left alone.") from error


def _discovery(client: Sessionary | None, wish: Wish, *, now: datetime) -> Discovery:
    assert wish.tool is not None
    importer = registry.importer(wish.tool)
    target = None if client is None else _target(client, importer)
    count = size = new = new_size = 0
    ends: list[datetime] = []
    for unit in _listed(importer, wish.place):
        count, size = count + 1, size + unit.size
        more = driver.ahead(target, unit)
        # A file that was read to its end and has only grown older has nothing new in it.
        if more:
            new, new_size = new + 1, new_size + more
            if unit.expires_at is not None and unit.expires_at - now < SOON:
                ends.append(unit.expires_at)
    return Discovery(
        tool=importer.name,
        title=importer.title,
        place=str(wish.place),
        units=count,
        bytes=size,
        new_units=new,
        new_bytes=new_size,
        expiring=len(ends),
        expires_at=min(ends, default=None),
    )


def _listed(importer: Importer, place: Path) -> list[Unit]:
    """The units of a place; one that cannot be looked into is a unit that cannot be read."""
    try:
        return _found(importer, place)
    except BadInput:
        return [Unit(str(place), place, "")]


def _target(
    client: Sessionary, importer: Importer, *, is_profile_asked_for: bool = False
) -> ImportTarget:
    return ImportTarget(
        client.store,
        client.profile,
        importer.name,
        importer.title,
        client.moment(),
        is_asked_for=is_profile_asked_for,
        version=sessionary.__version__,
    )


def _teller(part: _Part, target: ImportTarget, tell: Tell) -> driver.Progress:
    total = sum(driver.ahead(target, unit) or 0 for unit in part.units)
    name = part.importer.name

    def progress(report: ToolImportReport, unit: Unit) -> None:
        sessions = report.added + report.extended
        tell(Progress(name, unit.name, report.bytes, total, sessions, report.messages))

    return progress


def _outcome(part: _Part, report: ToolImportReport) -> Outcome:
    omissions = part.fruitless | report.omissions
    return Outcome(
        tool=part.importer.name,
        title=part.importer.title,
        places=tuple(map(str, dict.fromkeys(part.places))),
        units=report.units + len(part.fruitless),
        imported_units=report.imported_units,
        unchanged_units=report.unchanged_units,
        omitted_units=len(omissions),
        omissions=tuple(Omission(*each) for each in list(omissions.items())[:SHOWN]),
        added=report.added,
        extended=report.extended,
        unchanged=report.unchanged,
        messages=report.messages,
        bytes=report.bytes,
        skipped=report.skipped + len(part.faults),
        faults=(*part.faults, *report.faults),
        left_out=dict(report.left_out),
        wordless=tuple(report.wordless),
        held_back=report.held_back,
        held_back_until=report.held_back_until,
        notes=(*part.notes, *report.notes),
    )


def _database(client: Sessionary | None) -> str | None:
    return None if client is None else client.config.database


def _own_paths(database: str | None) -> list[Path]:
    path = None if database is None else sqlite_path(database)
    return [] if path is None else [Path(path + end).resolve() for end in BESIDE]
