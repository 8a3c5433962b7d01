"""All importers by name, and which of them can read a file or the files of a folder."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

from sessionary.errors import BadInput, NotFound
from sessionary.importers.base import files
from sessionary.importers.base.events import Importer, Unit, UserEnvironment
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

# In the order in which they are asked whether they recognise a file.
NAMES: tuple[str, ...] = (
    "claude-code",
    "codex",
    "openclaw",
    "pi",
    "hermes",
    "chatgpt",
    "claude-ai",
    "gemini-cli",
    "qwen-code",
    "opencode",
    "cursor",
    "copilot",
    "open-webui",
    "librechat",
    "cline",
    "goose",
    "openai-agents",
    "llm",
    "aider",
)


def importer(name: str) -> Importer:
    """Return the importer of that name."""
    if name not in NAMES:
        raise NotFound(f"There is no importer {name!r}. Known: {', '.join(NAMES)}.")
    return importers()[NAMES.index(name)]


@cache
def importers() -> tuple[Importer, ...]:
    """Return all importers, in the order of `NAMES`."""
    # Imported here: they load 250 modules and double the CPU time of a start; commands that only list
    # the names save it.
    from sessionary.importers import (
        aider,
        chatgpt,
        claude_ai,
        cline,
        codex,
        goose,
        librechat,
        llm,
        open_webui,
        openai_agents,
        openclaw,
        opencode,
        pi,
    )
    from sessionary.importers.claude_code import importer as claude_code
    from sessionary.importers.copilot import importer as copilot
    from sessionary.importers.cursor import importer as cursor
    from sessionary.importers.gemini import gemini_cli, qwen_code
    from sessionary.importers.hermes import importer as hermes

    by_name: dict[str, Importer] = {
        module.IMPORTER.name: module.IMPORTER
        for module in (
            *(claude_code, codex, openclaw, pi, hermes, chatgpt, claude_ai, gemini_cli),
            *(qwen_code, opencode, cursor, copilot, open_webui, librechat, cline, goose),
            *(openai_agents, llm, aider),
        )
    }
    return tuple(by_name[name] for name in NAMES)


def recognise(path: Path) -> Importer | None:
    """Return the importer whose format a file or directory has, or None."""
    return next((importer for importer in importers() if importer.recognises(path)), None)


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
# Old releases of OpenClaw add a word and a time to the names of files that they archive.
_INSIDE = (".jsonl.",)


@runtime_checkable
class AcceptsNamed(Protocol):
    """An importer for files that do not always show which tool wrote them."""

    def accepts(self, path: Path) -> bool:
        """Return whether a file can have this format, if a person says so."""


class Recogniser:
    """Finds the importer of a file; each file is examined once."""

    def __init__(self) -> None:
        self._known: dict[Path, Importer | None] = {}

    def tool_of(self, path: Path) -> Importer | None:
        """Return the importer that recognises a file, or None."""
        if path not in self._known:
            with files.caching_heads():
                self._known[path] = recognise(path) if _may_be_record(path) else None
        return self._known[path]

    def refusal(self, importer: Importer, path: Path) -> str | None:
        """Return why an importer must not read a file; None if it may.

        A file that cannot be read is left to the importer, which reports what is wrong.
        """
        if not files.is_file(path) or accepts(importer, path):
            return None
        other = self.tool_of(path)
        if not files.head(path, 1) or (other is None and is_sqlite(path)):
            return None
        if other is None:
            return f"nothing in it is known as a record of {importer.title}; it was left alone"
        return f"it is a record of {other.title}, not of {importer.title}; it was left alone"


def accepts(importer: Importer, path: Path) -> bool:
    """Whether a file can have a format that a person named."""
    if isinstance(importer, AcceptsNamed) and importer.accepts(path):
        return True
    return importer.recognises(path)


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
    paths = list(islice(walked, MOST_FILES))
    found.is_cut = next(walked, None) is not None
    by_tool: dict[str, list[Path]] = {}
    nobodys: list[Path] = []
    for path in paths:
        owner = recogniser.tool_of(path)
        if only is not None and owner is not only and accepts(only, path):
            owner = only
        if owner is None:
            nobodys.append(path)
        else:
            by_tool.setdefault(owner.name, []).append(path)
    covered: set[Path] = set()
    for name in NAMES:
        if name not in by_tool:
            continue
        if only is not None and name != only.name:
            found.others[name] = len(by_tool[name])
            continue
        units, fruitless = _units(importer(name), folder, by_tool[name])
        if units:
            found.units[name] = units
        if fruitless:
            found.fruitless[name] = fruitless
        for unit in units:
            covered.update((unit.path, *unit.beside, *unit.belongings))
    for path in nobodys:
        if not covered.isdisjoint((path, *path.parents)) or _belongs_to_database(path):
            continue
        why = unreadable(path)
        if why is None:
            found.unknown.append(path)
        else:
            found.unreadable.append((path, why))
    return found


def _units(importer: Importer, folder: Path, own: list[Path]) -> tuple[list[Unit], list[Path]]:
    """Return the units of an importer's files, and the files without units."""
    mine = set(own)
    units: dict[str, Unit] = {}
    covered: set[Path] = set()
    asked: dict[Path, list[Unit]] = {}

    def ask(root: Path) -> list[Unit]:
        if root not in asked:
            asked[root] = [
                unit
                for unit in importer.find(root)
                if unit.path in mine or not files.is_file(unit.path)
            ]
        return asked[root]

    def take(found: list[Unit]) -> None:
        for unit in found:
            if unit.name not in units:
                units[unit.name] = unit
                covered.update((unit.path, *unit.beside, *unit.belongings))

    for root in (*_places_in(importer, folder), folder):
        take(_uncovered(ask(root), covered))
    fruitless = []
    for path in own:
        if path in covered:
            continue
        for root in _between(folder, path):
            if any(path in (unit.path, *unit.beside) for unit in ask(root)):
                take(_uncovered(ask(root), covered))
                break
        else:
            alone = list(importer.find(path))
            take(alone)
            if not alone:
                fruitless.append(path)
    return list(units.values()), fruitless


def _uncovered(units: list[Unit], covered: set[Path]) -> list[Unit]:
    """Return the units whose file is not covered yet: one database has many units."""
    before = frozenset(covered)
    return [unit for unit in units if unit.path not in before]


def _places_in(importer: Importer, folder: Path) -> Iterator[Path]:
    """Yield where the tool's records are if the folder is a home directory."""
    for place in importer.places(UserEnvironment(folder)):
        is_there = files.is_directory(place) or files.is_file(place)
        if is_there and place != folder and place.is_relative_to(folder):
            yield place


def _between(folder: Path, path: Path) -> Iterator[Path]:
    """Return the folders between the named one and a file, the outermost first."""
    inner = [each for each in path.parents if each != folder and each.is_relative_to(folder)]
    return reversed(inner)


def _may_be_record(path: Path) -> bool:
    name = path.name
    return name.endswith(_ENDS) or any(each in name for each in _INSIDE) or is_sqlite(path)


def _belongs_to_database(path: Path) -> bool:
    return path.name.endswith(("-wal", "-shm", "-journal"))
