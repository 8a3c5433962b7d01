"""Other tools' records on this machine: what there is, what an import would bring, the import.

The command, the workbench and `hansard serve` ask here. The answers are plain values.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from hansard import config
from hansard.app.house import House, Machine
from hansard.errors import BadInput, NotFound
from hansard.importers import driver, files, registry
from hansard.importers.base import Importer, Unit, Where
from hansard.importers.driver import Fault, Report
from hansard.importers.target import Target
from hansard.store.filesystem import BESIDE
from hansard.store.opening import sqlite_path

# What its owner will delete within this time is told apart.
SOON = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Wish:
    """Something to be imported: a tool's name, and a directory or a file."""

    tool: str
    place: Path


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
class Outcome:
    """What an import of one tool's records did, or would do."""

    tool: str
    title: str
    places: tuple[str, ...]
    units: int = 0
    unchanged_units: int = 0
    added: int = 0
    extended: int = 0
    unchanged: int = 0
    messages: int = 0
    bytes: int = 0
    skipped: int = 0
    faults: tuple[Fault, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


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
    """What someone means who names a path; None when no tool's records are there."""
    place = _resolved(path)
    if tool is not None:
        return Wish(registry.importer(tool).name, place)
    found = registry.recognise(place)
    return None if found is None else Wish(found.name, place)


def _resolved(path: Path) -> Path:
    """The place itself: whoever names a link means where it leads. Links inside are not followed."""
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError):
        return path


def now(house: House | None) -> datetime:
    """What time it is, for a house or without one."""
    return (Machine.real() if house is None else house.machine).clock.now()


def discover(house: House | None, where: Where, *, now: datetime) -> list[Discovery]:
    """What is on the machine, tool by tool; without a house all of it is new."""
    found = [_discovery(house, wish, now=now) for wish in default_wishes(where)]
    return [each for each in found if each.units]


def look(
    house: House | None, wishes: Sequence[Wish], *, is_profile_asked_for: bool = False
) -> list[Outcome]:
    """What an import would find. Nothing is changed."""
    return [
        _outcome(part, driver.look(part.target, part.importer, part.units))
        for part in _parts(house, wishes, is_profile_asked_for=is_profile_asked_for)
    ]


def run(
    house: House,
    wishes: Sequence[Wish],
    tell: Tell = lambda _: None,
    *,
    is_profile_asked_for: bool = False,
) -> list[Outcome]:
    """Import what is new. What a tool keeps in a profile of its own goes there, unless one was asked for."""
    parts = _parts(house, wishes, is_profile_asked_for=is_profile_asked_for)
    return [_outcome(part, _run(house, part, tell)) for part in parts]


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


@dataclass(frozen=True, slots=True)
class _Part:
    """The records of one tool that are read one after the other."""

    importer: Importer
    target: Target | None
    places: tuple[Path, ...]
    units: list[Unit]
    # Places that cannot be looked into.
    faults: tuple[Fault, ...] = ()


def _parts(
    house: House | None, wishes: Sequence[Wish], *, is_profile_asked_for: bool
) -> Iterator[_Part]:
    for wish in wishes:
        refuse_own(_database(house), wish.place)
    for tool in dict.fromkeys(wish.tool for wish in wishes):
        importer = registry.importer(tool)
        places = tuple(wish.place for wish in wishes if wish.tool == tool)
        target = None
        if house is not None:
            target = _target(house, importer, is_profile_asked_for=is_profile_asked_for)
        units: list[Unit] = []
        faults: list[Fault] = []
        with files.noting_closed() as closed:
            for place in places:
                try:
                    units += _found(importer, place)
                except BadInput as error:
                    if len(wishes) == 1:
                        raise
                    # What else was asked for need not wait for it.
                    faults.append(Fault(str(place), "", str(error)))
        for path, why in dict(closed).items():
            faults.append(Fault(str(path), "", f"it cannot be read ({why}); it was left alone"))
        yield _Part(importer, target, places, units, tuple(faults))


def _run(house: House, part: _Part, tell: Tell) -> Report:
    assert part.target is not None
    own = [
        found
        for path in _own_paths(_database(house))
        if (found := files.identity(path)) is not None
    ]
    progress = _teller(part, part.target, tell)
    return driver.run(part.target, part.importer, part.units, own_files=own, progress=progress)


def _found(importer: Importer, place: Path) -> list[Unit]:
    if not (files.is_directory(place) or files.is_file(place)):
        raise NotFound(f"There is nothing at {place}; nothing was imported.")
    try:
        if files.is_directory(place):
            # Importers pass over what they cannot list: this they must not.
            os.scandir(place).close()
        return list(importer.find(place))
    except OSError as error:
        where = error.filename or place
        raise BadInput(f"{where} cannot be read ({error.strerror}); it was left alone.") from error


def _discovery(house: House | None, wish: Wish, *, now: datetime) -> Discovery:
    importer = registry.importer(wish.tool)
    target = None if house is None else _target(house, importer)
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


def _target(house: House, importer: Importer, *, is_profile_asked_for: bool = False) -> Target:
    return Target(
        house.store,
        house.profile,
        importer.name,
        importer.title,
        house.occasion(),
        is_asked_for=is_profile_asked_for,
    )


def _teller(part: _Part, target: Target, tell: Tell) -> driver.Progress:
    total = sum(driver.ahead(target, unit) or 0 for unit in part.units)
    name = part.importer.name

    def progress(report: Report, unit: Unit) -> None:
        sessions = report.added + report.extended
        tell(Progress(name, unit.name, report.bytes, total, sessions, report.messages))

    return progress


def _outcome(part: _Part, report: Report) -> Outcome:
    return Outcome(
        tool=part.importer.name,
        title=part.importer.title,
        places=tuple(map(str, part.places)),
        units=report.units,
        unchanged_units=report.unchanged_units,
        added=report.added,
        extended=report.extended,
        unchanged=report.unchanged,
        messages=report.messages,
        bytes=report.bytes,
        skipped=report.skipped + len(part.faults),
        faults=(*part.faults, *report.faults),
        left_out=dict(report.left_out),
        notes=tuple(report.notes),
    )


def _database(house: House | None) -> str | None:
    return None if house is None else house.config.database


def _own_paths(database: str | None) -> list[Path]:
    path = None if database is None else sqlite_path(database)
    return [] if path is None else [Path(path + end).resolve() for end in BESIDE]
