"""Imports of other tools' records: what is on this machine, what an import would do, the import.

Used by the command, the web and `sessionary serve`. The results are plain values.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from sessionary import config
from sessionary.app.context import AppContext
from sessionary.clock import SystemClock
from sessionary.errors import BadInput, NotFound
from sessionary.importers import registry
from sessionary.importers.base import driver, files
from sessionary.importers.base.driver import SHOWN, Fault, ToolImportReport
from sessionary.importers.base.events import Importer, Unit, UserEnvironment
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.importers.registry import Recogniser
from sessionary.store.filesystem import BESIDE
from sessionary.store.open import sqlite_path
from sessionary.version import __version__

# Records that their tool will delete within this time are counted apart.
SOON = timedelta(days=7)
# A worker process takes 0.2 s to start. Below this size, reading in this process is faster.
WORTHWHILE_BYTES = 32 * 1024 * 1024
# Merging takes as long as reading: more workers would only wait.
MOST_WORKERS = 2


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """A directory or file to be imported, and the tool whose records are meant.

    Without a tool every file of a directory goes to the tool that wrote it.
    """

    tool: str | None
    place: Path
    # Whether a person named the place: then it is an error if nothing is imported.
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class Discovery:
    """The records of one tool in one place: how many, and how many of them are new."""

    tool: str
    title: str
    place: str
    units: int
    bytes: int
    new_units: int
    new_bytes: int
    # How many of the new ones their tool will delete within a week, and when the first.
    expiring: int = 0
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """How far an import is. `place` is the unit that is being read."""

    tool: str
    place: str
    bytes: int
    all_bytes: int
    sessions: int
    messages: int


@dataclass(frozen=True, slots=True)
class Omission:
    """Why nothing was imported from a unit."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolImport:
    """What an import of one tool's records did, or would do.

    Every unit counts once: `units == imported_units + unchanged_units + omitted_units`.
    """

    tool: str
    title: str
    places: tuple[str, ...]
    units: int = 0
    # Units with a session in the store; units that had not changed since the last import;
    # and units from which nothing was imported, the first of them in `omissions`.
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
    # The first sessions without a conversation; all of them are counted in `left_out`.
    wordless: tuple[str, ...] = ()
    # Answers that may still grow: an import after that time brings them.
    held_back: int = 0
    held_back_until: datetime | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownFiles:
    """The files of a named directory that no importer recognises; `names` has the first."""

    place: str
    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did, or would do, for each tool."""

    outcomes: tuple[ToolImport, ...]
    unknown: tuple[UnknownFiles, ...] = ()
    # Files and directories that cannot be read, so that their tool is unknown.
    faults: tuple[Fault, ...] = ()
    # Named places from which nothing was imported, each with the reason.
    failures: tuple[str, ...] = ()


OnProgress = Callable[[ImportProgress], None]


def this_user() -> UserEnvironment:
    """Return the home and environment of the current user."""
    return UserEnvironment(config.user_home(), config.environment())


def tools() -> list[tuple[str, str]]:
    """Return name and title of all tools whose records can be imported."""
    return [(each.name, each.title) for each in registry.importers()]


def default_requests(
    where: UserEnvironment, names: Sequence[str] = (), *, must_exist: bool = True
) -> list[ImportRequest]:
    """Return the places on this machine where the named tools, or all, store their records."""
    return [
        ImportRequest(importer.name, place)
        for importer in registry.importers(*names)
        for place in dict.fromkeys(map(_resolved, importer.places(where)))
        if not must_exist or files.is_directory(place) or files.is_file(place)
    ]


def request_for(path: Path, tool: str | None = None) -> ImportRequest | None:
    """Return the request for a named path; None for a file that no importer recognises.

    A file that is not a record of the tool that was named is refused.
    """
    place = _resolved(path)
    importer = None if tool is None else registry.importer(tool)
    if files.is_directory(place):
        return ImportRequest(tool, place, is_named=True)
    found = Recogniser().tool_of(place)
    why = registry.unreadable(place) if found is None else None
    if why is not None:
        raise BadInput(f"{why} Nothing was imported.")
    if importer is None:
        return None if found is None else ImportRequest(found.name, place, is_named=True)
    if found is importer or importer.accepts(place):
        return ImportRequest(importer.name, place, is_named=True)
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
    """Return the target of a named link. Links inside a directory are not followed."""
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError):
        return path


def now(client: AppContext | None) -> datetime:
    """Return the time of the client's clock, or of the system's without a client."""
    return (SystemClock() if client is None else client.clock).now()


def discover(
    client: AppContext | None, where: UserEnvironment, *, now: datetime
) -> list[Discovery]:
    """Return what is on this machine, tool by tool; without a client all of it is new."""
    found = [_discovery(client, request, now=now) for request in default_requests(where)]
    return [each for each in found if each.units]


def preview(
    client: AppContext | None, requests: Sequence[ImportRequest], *, is_profile_chosen: bool = False
) -> ImportResult:
    """Return what an import would do, without changing anything."""
    plan = _plan_imports(client, requests, is_profile_chosen=is_profile_chosen)
    return plan.result(
        driver.preview(part.target, part.importer, part.units, check=part.check)
        for part in plan.parts
    )


def run(
    client: AppContext,
    requests: Sequence[ImportRequest],
    on_progress: OnProgress = lambda _: None,
    *,
    is_profile_chosen: bool = False,
    workers: int | None = None,
) -> ImportResult:
    """Import what is new. A tool's profiles become profiles here, unless one was chosen.

    `workers` is how many other processes read the records: by default as many as pay for themselves.
    """
    plan = _plan_imports(client, requests, is_profile_chosen=is_profile_chosen)
    return plan.result(_run(client, part, on_progress, workers=workers) for part in plan.parts)


def refuse_own_store(database: str | None, path: Path) -> None:
    """Refuse to import from our own store: opening and closing its file would drop its locks."""
    place = _resolved(path)
    for own in _own_paths(database):
        if files.identity(own) == files.identity(place) is not None:
            raise BadInput(f"{path} belongs to the store itself; nothing was imported.")
        if files.is_directory(place) and own.parent.is_relative_to(place):
            raise BadInput(
                f"The store itself is in {path}; nothing was imported. Name a tool's own directory."
            )


@dataclass(slots=True)
class _ToolPlan:
    """The records of one tool that are to be imported."""

    importer: Importer
    target: ImportTarget | None
    recogniser: Recogniser
    places: list[Path] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    # Places and files that cannot be read.
    faults: list[Fault] = field(default_factory=list)
    # Why the importer finds no units in files that it recognises.
    fruitless: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def check(self, unit: Unit) -> str | None:
        """Return why a unit must not be read: its file belongs to another tool, or to none."""
        return self.recogniser.refusal(self.importer, unit.path)


@dataclass(slots=True)
class _ImportPlan:
    """What is to be imported, by tool."""

    parts: list[_ToolPlan] = field(default_factory=list)
    unknown: list[UnknownFiles] = field(default_factory=list)
    # What cannot be read, so that its tool is unknown.
    faults: list[Fault] = field(default_factory=list)
    # The units of each named place.
    named: dict[Path, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def result(self, reports: Iterable[ToolImportReport]) -> ImportResult:
        """Return the result from the reports about each tool."""
        outcomes: list[ToolImport] = []
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


def _plan_imports(
    client: AppContext | None, requests: Sequence[ImportRequest], *, is_profile_chosen: bool
) -> _ImportPlan:
    """Find the units of each request; raises `BadInput` or `NotFound` if the only one has none."""
    for request in requests:
        refuse_own_store(_database(client), request.place)
    plan = _ImportPlan()
    recogniser = Recogniser()
    parts: dict[str, _ToolPlan] = {}

    def plan_of(name: str) -> _ToolPlan:
        if name not in parts:
            importer = registry.importer(name)
            target = None
            if client is not None:
                target = _target(client, importer, is_profile_chosen=is_profile_chosen)
            parts[name] = _ToolPlan(importer, target, recogniser)
        return parts[name]

    for request in requests:
        with files.noting_closed() as closed:
            try:
                if request.is_named and files.is_directory(request.place):
                    _plan_folder(plan, request, plan_of)
                else:
                    assert request.tool is not None
                    part = plan_of(request.tool)
                    part.places.append(request.place)
                    units = _found(part.importer, request.place)
                    part.units += units
                    if request.is_named:
                        plan.named[request.place] = [unit.name for unit in units]
            except (BadInput, NotFound) as error:
                if len(requests) == 1:
                    raise
                # The other requests go on.
                if request.tool is not None:
                    plan_of(request.tool).faults.append(Fault(str(request.place), "", str(error)))
                if request.is_named:
                    plan.failures.append(str(error))
        for path, why in dict(closed).items():
            fault = Fault(str(path), "", f"it cannot be read ({why}); it was left alone")
            (plan if request.tool is None else plan_of(request.tool)).faults.append(fault)
    plan.parts = list(parts.values())
    return plan


def _plan_folder(
    plan: _ImportPlan, request: ImportRequest, plan_of: Callable[[str], _ToolPlan]
) -> None:
    """Plan the files of a named directory, each for the tool that wrote it."""
    place = request.place
    only = None if request.tool is None else registry.importer(request.tool)
    _refuse_closed(place)
    found = registry.scan(place, only)
    names: list[str] = []
    for tool in dict.fromkeys([*found.units, *found.fruitless]):
        part = plan_of(tool)
        part.places.append(place)
        units = found.units.get(tool, [])
        part.units += units
        names += [unit.name for unit in units]
        for path in found.fruitless.get(tool, []):
            part.fruitless[str(path)] = "it is known by its beginning, but there is nothing to read"
    if only is not None and found.others:
        listed = ", ".join(
            f"{count:,} of {registry.importer(name).title}" for name, count in found.others.items()
        )
        if names:
            plan_of(only.name).notes.append(
                f"Not asked for, and left alone: files of other tools in {place}: {listed}."
            )
        else:
            raise BadInput(
                f"There is no record of {only.title} in {place}; it has files of other tools: "
                f"{listed}. Nothing was imported. Import them with: sessionary import {place}"
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
    """Refuse a named directory that cannot be listed; importers would ignore it."""
    try:
        os.scandir(place).close()
    except OSError as error:
        raise BadInput(f"{place} cannot be read ({error.strerror}); it was left alone.") from error


def _run(
    client: AppContext, part: _ToolPlan, on_progress: OnProgress, *, workers: int | None
) -> ToolImportReport:
    target = part.target
    assert target is not None
    own = [
        found
        for path in _own_paths(_database(client))
        if (found := files.identity(path)) is not None
    ]
    total = sum(driver.unread_bytes(target, unit) or 0 for unit in part.units)
    if workers is None:
        workers = default_workers(total)
    with _event_source(part, target, workers) as source:
        return driver.run(
            target,
            part.importer,
            part.units,
            own_files=own,
            check=part.check,
            progress=_progress_reporter(part, total, on_progress),
            source=source,
        )


def default_workers(unread_bytes: int) -> int:
    """Return how many worker processes pay for themselves: none on one core or for little to read."""
    if unread_bytes < WORTHWHILE_BYTES or not sys.executable:
        return 0
    if hasattr(os, "sched_getaffinity"):
        return min(MOST_WORKERS, len(os.sched_getaffinity(0)) - 1)
    return min(MOST_WORKERS, (os.cpu_count() or 1) - 1)


def _event_source(
    part: _ToolPlan, target: ImportTarget, workers: int
) -> AbstractContextManager[driver.EventSource | None]:
    """Return what reads the units: worker processes, or None for this process."""
    # An importer of another package may keep something between `find` and `read`.
    if not workers or not registry.is_ours(part.importer.name):
        return nullcontext()
    # Subprocess and pickle take 25 ms, which small imports need not pay.
    from sessionary.importers.worker_pool import WorkerPool

    return WorkerPool(part.importer, workers, now=target.moment.now)


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


def _discovery(client: AppContext | None, request: ImportRequest, *, now: datetime) -> Discovery:
    assert request.tool is not None
    importer = registry.importer(request.tool)
    target = None if client is None else _target(client, importer)
    count = size = new = new_size = 0
    ends: list[datetime] = []
    for unit in _listed(importer, request.place):
        count, size = count + 1, size + unit.size
        more = driver.unread_bytes(target, unit)
        # A file that was read to its end and only has a new time contains nothing new.
        if more:
            new, new_size = new + 1, new_size + more
            if unit.expires_at is not None and unit.expires_at - now < SOON:
                ends.append(unit.expires_at)
    return Discovery(
        tool=importer.name,
        title=importer.title,
        place=str(request.place),
        units=count,
        bytes=size,
        new_units=new,
        new_bytes=new_size,
        expiring=len(ends),
        expires_at=min(ends, default=None),
    )


def _listed(importer: Importer, place: Path) -> list[Unit]:
    """Return the units of a place; a place that cannot be read is one unit."""
    try:
        return _found(importer, place)
    except BadInput:
        return [Unit(str(place), place, "")]


def _target(
    client: AppContext, importer: Importer, *, is_profile_chosen: bool = False
) -> ImportTarget:
    return ImportTarget(
        client.store,
        client.profile,
        importer.name,
        importer.title,
        client.moment(),
        is_profile_chosen=is_profile_chosen,
        version=__version__,
    )


def _progress_reporter(
    part: _ToolPlan, total: int, on_progress: OnProgress
) -> driver.OnUnitProgress:
    name = part.importer.name

    def progress(report: ToolImportReport, unit: Unit) -> None:
        sessions = report.added + report.extended
        on_progress(ImportProgress(name, unit.name, report.bytes, total, sessions, report.messages))

    return progress


def _outcome(part: _ToolPlan, report: ToolImportReport) -> ToolImport:
    omissions = part.fruitless | report.omissions
    return ToolImport(
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


def _database(client: AppContext | None) -> str | None:
    return None if client is None else client.config.database


def _own_paths(database: str | None) -> list[Path]:
    path = None if database is None else sqlite_path(database)
    return [] if path is None else [Path(path + end).resolve() for end in BESIDE]
