"""The importers that are installed, and which of them can read a file or the files of a folder."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

from sessionary.errors import BadInput, PluginFailed, SessionaryError
from sessionary.importers.base import files
from sessionary.importers.base.events import (
    Event,
    Importer,
    Resume,
    SourceRewritten,
    Unit,
    UserEnvironment,
    check_event,
)
from sessionary.plugins import PluginGroup
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

logger = logging.getLogger(__name__)
IMPORTERS: PluginGroup[Importer] = PluginGroup(
    "sessionary.importers",
    "importer",
    # mypy expects a concrete class wherever a class is passed.
    Importer,  # type: ignore[type-abstract]
)


def names() -> list[str]:
    """Return the names of all importers that are installed, without loading them."""
    return IMPORTERS.names


@cache
def importers(*wanted: str) -> tuple[Importer, ...]:
    """Return the named importers, or all, in the order in which they are asked whether they recognise a file.

    Ours come first, by name: OpenClaw writes Pi's format, and is asked before it. One that cannot be loaded is
    named in the log, and the others are returned; `BadInput` if there is none of a name.
    """
    found = []
    for name in wanted or names():
        try:
            found.append(importer(name))
        except PluginFailed as error:
            logger.warning("%s", error)
    return tuple(found)


@cache
def importer(name: str) -> Importer:
    """Return the importer of that name; raises `BadInput` if none is installed, `PluginFailed` if it cannot be used."""
    loaded = IMPORTERS.load(name)
    return loaded if is_ours(name) else _PluginImporter(loaded)


def is_ours(name: str) -> bool:
    """Return whether an importer is part of this program, and not of another package."""
    (plugin,) = IMPORTERS.require(name)
    return plugin.is_ours


class _PluginImporter(Importer):
    """An importer of another package: whatever it raises is one line, and the other importers go on."""

    def __init__(self, importer: Importer) -> None:
        self.name, self.title = importer.name, importer.title
        self._importer = importer
        self._has_warned = False

    def places(self, user: UserEnvironment) -> list[Path]:
        try:
            return list(self._importer.places(user))
        except Exception as error:
            self._warn(error)
            return []

    def recognises(self, path: Path) -> bool:
        try:
            return bool(self._importer.recognises(path))
        except Exception as error:
            self._warn(error)
            return False

    def accepts(self, path: Path) -> bool:
        try:
            return bool(self._importer.accepts(path))
        except Exception as error:
            self._warn(error)
            return False

    def find(self, place: Path) -> Iterator[Unit]:
        with self._translated():
            yield from self._importer.find(place)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        with self._translated():
            for event in self._importer.read(unit, resume):
                check_event(event)
                yield event

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (SessionaryError, SourceRewritten, OSError):
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> PluginFailed:
        logger.debug("The importer %r failed.", self.name, exc_info=error)
        advice = "What it read before is safe; update or uninstall the package."
        return IMPORTERS.failed(self.name, error, what="failed", advice=advice)

    def _warn(self, error: Exception) -> None:
        """Log the first failure: there may be one for each of 100,000 files."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s", self._failed(error))


def recognise(path: Path) -> Importer | None:
    """Return the importer whose format a file has, or None."""
    return next((each for each in importers() if each.recognises(path)), None)


# At most MOST_FILES files of a named folder are examined, and none in these subfolders.
MOST_FILES = 100_000
PASSED_OVER = frozenset(
    {
        *(".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", "site-packages"),
        *(".cache", "Caches", ".npm", ".cargo", ".rustup", ".Trash"),
    }
)
# The suffixes of records; databases are recognised by their first bytes.
_ENDS = (".json", ".jsonl", ".zst", ".zip", ".md", ".txt", ".bak")


class Recogniser:
    """Finds the importer of a file; each file is examined once."""

    def __init__(self) -> None:
        self._known: dict[Path, Importer | None] = {}

    def tool_of(self, path: Path) -> Importer | None:
        """Return the importer that recognises a file, or None."""
        if path not in self._known:
            # Old releases of OpenClaw add a word and a time to the names of files that they archive.
            may_be_record = path.name.endswith(_ENDS) or ".jsonl." in path.name or is_sqlite(path)
            with files.caching_heads():
                self._known[path] = recognise(path) if may_be_record else None
        return self._known[path]

    def refusal(self, importer: Importer, path: Path) -> str | None:
        """Return why an importer must not read a file; None if it may.

        A file that cannot be read is left to the importer, which reports what is wrong.
        """
        if not files.is_file(path) or importer.accepts(path):
            return None
        other = self.tool_of(path)
        if not files.head(path, 1) or (other is None and is_sqlite(path)):
            return None
        if other is None:
            return f"nothing in it is known as a record of {importer.title}; it was left alone"
        return f"it is a record of {other.title}, not of {importer.title}; it was left alone"


def unreadable(path: Path) -> str | None:
    """Return why a file cannot be examined: it cannot be opened, or is a damaged database."""
    try:
        if is_sqlite(path):
            ExternalDatabase(path).close()
        else:
            files.opened(path).close()
    except BadInput as error:
        return str(error)
    return None


@dataclass(slots=True)
class Scan:
    """The records in a folder."""

    # The units that can be read, by tool.
    units: dict[str, list[Unit]] = field(default_factory=dict)
    # How many files belong to other tools than the one asked for.
    others: dict[str, int] = field(default_factory=dict)
    # Files that no importer recognises, and those that cannot be read, with the reason.
    unknown: list[Path] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    # Files that an importer recognises without finding units in them.
    fruitless: dict[str, list[Path]] = field(default_factory=dict)
    is_cut: bool = False


def scan(folder: Path, only: Importer | None = None) -> Scan:
    """Find the records in a folder, each for the tool that wrote it; or those of one tool only.

    A folder that looks like a home directory is searched where each tool keeps its records; so an
    importer sees the files of a home together, as it does on the machine itself.
    """
    found = Scan()
    recogniser = Recogniser()
    walked = files.walk(folder, suffixes=("",), skip=PASSED_OVER)
    by_tool: dict[str, list[Path]] = {}
    unowned: list[Path] = []
    for path in islice(walked, MOST_FILES):
        owner = recogniser.tool_of(path)
        if only is not None and owner is not only and only.accepts(path):
            owner = only
        if owner is None:
            unowned.append(path)
        else:
            by_tool.setdefault(owner.name, []).append(path)
    found.is_cut = next(walked, None) is not None
    covered: set[Path] = set()
    for each in importers():
        own = by_tool.get(each.name, [])
        if own and only is not None and each is not only:
            found.others[each.name] = len(own)
        elif own:
            try:
                units, fruitless = _units(each, folder, own)
            except PluginFailed as error:
                found.unreadable += [(path, str(error)) for path in own]
                continue
            if units:
                found.units[each.name] = units
            if fruitless:
                found.fruitless[each.name] = fruitless
            covered.update(path for unit in units for path in _files_of(unit))
    for path in unowned:
        is_beside_database = path.name.endswith(("-wal", "-shm", "-journal"))
        if is_beside_database or not covered.isdisjoint((path, *path.parents)):
            continue
        why = unreadable(path)
        if why is None:
            found.unknown.append(path)
        else:
            found.unreadable.append((path, why))
    return found


def _units(importer: Importer, folder: Path, own: list[Path]) -> tuple[list[Unit], list[Path]]:
    """Return the units of an importer's files, and the files without units."""
    units: dict[str, Unit] = {}
    covered: set[Path] = set()

    @cache
    def found_in(root: Path) -> list[Unit]:
        found = importer.find(root)
        return [each for each in found if each.path in own_files or not files.is_file(each.path)]

    def take(found: list[Unit]) -> None:
        for unit in found:
            if unit.name not in units:
                units[unit.name] = unit
                covered.update(_files_of(unit))

    def take_uncovered(root: Path) -> None:
        # Compared with what was covered before: one database has many units.
        before = frozenset(covered)
        take([unit for unit in found_in(root) if unit.path not in before])

    own_files = set(own)
    # Where the tool's records are if the folder is a home directory.
    for place in importer.places(UserEnvironment(folder)):
        is_there = files.is_directory(place) or files.is_file(place)
        if is_there and place != folder and place.is_relative_to(folder):
            take_uncovered(place)
    take_uncovered(folder)
    fruitless = []
    for path in own:
        if path in covered:
            continue
        for root in _folders_between(folder, path):
            if any(path in (unit.path, *unit.beside) for unit in found_in(root)):
                take_uncovered(root)
                break
        else:
            alone = list(importer.find(path))
            take(alone)
            if not alone:
                fruitless.append(path)
    return list(units.values()), fruitless


def _files_of(unit: Unit) -> tuple[Path, ...]:
    return (unit.path, *unit.beside, *unit.belongings)


def _folders_between(folder: Path, path: Path) -> Iterator[Path]:
    """Return the folders between the named one and a file, the outermost first."""
    inner = [each for each in path.parents if each != folder and each.is_relative_to(folder)]
    return reversed(inner)
