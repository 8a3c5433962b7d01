"""A Hermes directory: its database, transcripts and web sessions, and the sessions in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import files
from sessionary.importers.base.events import Unit
from sessionary.importers.hermes import gateway, state, web_sessions
from sessionary.importers.hermes.gateway import GatewayIndex
from sessionary.importers.hermes.state import Chain, SessionRow, chains_of, rows_of
from sessionary.importers.hermes.web_sessions import WebFile
from sessionary.model.record import ProjectFact
from sessionary.model.session import Lineage
from sessionary.model.source import validate_profile
from sessionary.store.sqlite.external_file import ExternalDatabase
from sessionary.store.tables.blobs import hash_of

DATABASE = "state.db"


@dataclass(slots=True, eq=False)
class HermesHome:
    """One profile of Hermes: its files, and what they have by session id."""

    path: Path
    profile: str | None = None
    rows: dict[str, SessionRow] = field(default_factory=dict)
    index: GatewayIndex = field(default_factory=GatewayIndex)
    transcripts: dict[str, Path] = field(default_factory=dict)
    web: dict[str, WebFile] = field(default_factory=dict)
    # The agent's own logs: read only if nothing else has the session.
    logs: dict[str, WebFile] = field(default_factory=dict)
    projects: dict[str, ProjectFact] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    # File and offset of sessions in an export of Hermes.
    exported: dict[str, tuple[Path, int]] = field(default_factory=dict)
    faults: list[tuple[Path, str]] = field(default_factory=list)
    _open: ExternalDatabase | None = None

    @property
    def database_path(self) -> Path:
        """The path of the database, which need not exist."""
        return self.path if self.path.suffix == ".db" else self.path / DATABASE

    @contextmanager
    def database(self) -> Iterator[ExternalDatabase | None]:
        """Open the database; None if there is none."""
        if self._open is not None or not self.rows or self.exported:
            yield self._open
            return
        with ExternalDatabase(self.database_path) as opened:
            yield opened

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep the database open inside the block, and load its sessions."""
        if self.exported or not files.is_file(self.database_path):
            yield
            return
        try:
            database = ExternalDatabase(self.database_path)
            self.rows = rows_of(database)
        except BadInput as error:
            self.faults.append((self.database_path, str(error)))
            yield
            return
        self._open = database
        try:
            yield
        finally:
            self._open = None
            database.close()

    def units(self) -> Iterator[Unit]:
        """Yield the conversations, and a unit for each fault."""
        for path, why in self.faults:
            yield self._unit(path, why, why, path)
        if self.index.faults:
            path = self.index.path or self.path
            yield self._unit(path, files.stamp_of(path), self.index, path)
        for chain in self._chains():
            yield self._conversation_unit(chain)

    def _chains(self) -> Iterator[Chain]:
        """Yield the conversations of the database, then those that only files have."""
        known = set(self.rows)
        yield from chains_of(self.rows)
        for id, log in self.logs.items():
            if id not in known and id not in self.transcripts and id not in self.web:
                self.web[id] = log
        for id in dict.fromkeys([*self.transcripts, *self.web]):
            if id in known:
                continue
            parent = self.web[id].parent if id in self.web else None
            lineage = None if parent is None else Lineage.FORK
            yield Chain((SessionRow(id, {}),), parent, lineage)

    def _conversation_unit(self, chain: Chain) -> Unit:
        beside = [path for row in chain.rows for path in self.files_of(row.id)]
        facts = [(row.facts, row.fingerprint) for row in chain.rows]
        entries = [self.index.entries.get(row.id) for row in chain.rows if not row.facts]
        stamp = hash_of(repr((facts, entries)).encode("utf-8", "surrogatepass"))[:32]
        path = beside[0] if self.exported or not chain.rows[0].facts else self.database_path
        return Unit(
            f"{self.path}#{chain.id}",
            path,
            f"{stamp};{files.stamp_of(*beside)}",
            files.size_of(*beside) + sum(_size(row) for row in chain.rows),
            beside=tuple(beside),
            belongings=tuple(self.logs[row.id].path for row in chain.rows if row.id in self.logs),
            profile=self.profile,
            hint=(self, chain),
        )

    def files_of(self, id: str) -> Iterator[Path]:
        """Yield the files of a session, except the database."""
        if id in self.exported:
            yield self.exported[id][0]
        if id in self.transcripts:
            yield self.transcripts[id]
        if id in self.web:
            yield self.web[id].path
            if files.is_file(self.web[id].backup):
                yield self.web[id].backup
            damaged = self.web[id].damaged
            if damaged is not None:
                yield damaged

    def _unit(self, path: Path, stamp: str, hint: object, *beside: Path) -> Unit:
        return Unit(str(path), path, stamp, 0, beside=beside, profile=self.profile, hint=hint)


def homes_of(place: Path, web_folder: Path | None = None) -> list[HermesHome]:
    """Return the profiles in a Hermes directory, or the one that a file belongs to."""
    if files.is_file(place):
        return [_of_file(place)]
    homes = [_home(place)]
    try:
        homes += [_home(each, _profile(each.name)) for each in _directories(place / "profiles")]
    except BadInput as error:
        homes[0].faults.append((place / "profiles", str(error)))
    folders = [*web_sessions.folders_of(place), *([web_folder] if web_folder else [])]
    for folder in folders:
        for home in homes:
            home.projects |= web_sessions.projects_of(folder)
        for file in web_sessions.find(folder):
            _owner(homes, file).web.setdefault(file.id, file)
    return homes


def _owner(homes: list[HermesHome], file: WebFile) -> HermesHome:
    """Return the profile that a web session names, or the first one."""
    return next((each for each in homes if each.profile == file.profile), homes[0])


def _home(path: Path, profile: str | None = None) -> HermesHome:
    made = HermesHome(path, profile)
    sessions = path / "sessions"
    for each in files.walk(sessions, suffixes=(".jsonl",), depth=0):
        made.transcripts[each.name.removesuffix(".jsonl")] = each
    try:
        made.index = gateway.index(sessions / gateway.INDEX)
    except BadInput as error:
        made.faults.append((sessions / gateway.INDEX, str(error)))
    made.logs = {each.id: each for each in web_sessions.find_logs(sessions)}
    made.jobs = _jobs(path / "cron" / "jobs.json")
    return made


def _of_file(path: Path) -> HermesHome:
    made = HermesHome(path if path.suffix == ".db" else path.parent)
    if path.suffix == ".jsonl" and state.is_export(path):
        found = state.read_export(path)
        made.rows, made.index.faults, made.index.path = found.rows, found.faults, path
        made.exported = {id: (path, place) for id, place in found.places.items()}
    elif path.suffix == ".jsonl":
        made.transcripts[path.name.removesuffix(".jsonl")] = path
        index = path.parent / gateway.INDEX
        made.index = gateway.index(index) if files.is_file(index) else GatewayIndex()
        made.index.faults.clear()
    elif path.name == gateway.INDEX:
        made = _home(path.parent.parent)
    elif path.name.endswith((".json", f".json{web_sessions.BACKUP}")):
        file = web_sessions.named_file(path)
        made.web[file.id] = file
        made.projects = web_sessions.projects_of(path.parent.parent)
    return made


def _directories(path: Path) -> list[Path]:
    """Return the directories in a directory, sorted; links are not followed."""
    if not files.is_directory(path):
        return []
    try:
        inside = sorted(path.iterdir())
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}).") from error
    return [each for each in inside if files.is_directory(each)]


def _jobs(path: Path) -> dict[str, str]:
    """Return the names of scheduled jobs by id."""
    jobs = coerce.records(files.read_record(path).get("jobs"))
    return {str(job.get("id")): job["name"] for job in jobs if coerce.name(job.get("name"))}


def _profile(name: str) -> str | None:
    try:
        return validate_profile(name)
    except BadInput:
        return None


def _size(row: SessionRow) -> int:
    return sum(int(each) for each in row.fingerprint[3:] if isinstance(each, float))
