"""A Hermes directory: its database, transcripts and web sessions, and the sessions in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import files
from sessionary.importers.base.events import Unit
from sessionary.importers.hermes import sessions
from sessionary.importers.hermes.sessions import Chain, SessionRow, WebFile, chains_of, rows_of
from sessionary.model.record import ProjectFact
from sessionary.model.session import Lineage
from sessionary.model.source import Source, validate_profile
from sessionary.store.sqlite.external_file import ExternalDatabase
from sessionary.store.tables.blobs import hash_of

DATABASE = "state.db"
INDEX = "sessions.json"
MAX_INDEX = 64 * 1024 * 1024
_ORIGIN = (
    *("chat_id", "chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic"),
    *("user_id_alt", "chat_id_alt"),
)
_OTHER_NAMES = {"cli": "terminal", "local": "terminal", "cron": "schedule"}


@dataclass(slots=True)
class GatewayIndex:
    """The gateway's `sessions.json`: platform and chat by session id, and entries that cannot be read."""

    entries: dict[str, Json] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    path: Path | None = None


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
        """Yield a unit for each fault, the conversations of the database, then those of files only."""
        for path, why in self.faults:
            yield Unit(str(path), path, why, beside=(path,), profile=self.profile, hint=why)
        if self.index.faults:
            path, profile = self.index.path or self.path, self.profile
            stamp = files.stamp_of(path)
            yield Unit(str(path), path, stamp, beside=(path,), profile=profile, hint=self.index)
        for chain in chains_of(self.rows):
            yield self._unit(chain)
        known = set(self.rows)
        for id, log in self.logs.items():
            if id not in known and id not in self.transcripts and id not in self.web:
                self.web[id] = log
        for id in dict.fromkeys([*self.transcripts, *self.web]):
            if id not in known:
                parent = self.web[id].parent if id in self.web else None
                lineage = None if parent is None else Lineage.FORK
                yield self._unit(Chain((SessionRow(id, {}),), parent, lineage))

    def _unit(self, chain: Chain) -> Unit:
        beside = [path for row in chain.rows for path in self.files_of(row.id)]
        facts = [(row.facts, row.fingerprint) for row in chain.rows]
        entries = [self.index.entries.get(row.id) for row in chain.rows if not row.facts]
        stamp = hash_of(repr((facts, entries)).encode("utf-8", "surrogatepass"))[:32]
        sizes = (each for row in chain.rows for each in row.fingerprint[3:])
        return Unit(
            f"{self.path}#{chain.id}",
            beside[0] if self.exported or not chain.rows[0].facts else self.database_path,
            f"{stamp};{files.stamp_of(*beside)}",
            files.size_of(*beside) + sum(int(each) for each in sizes if isinstance(each, float)),
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

    def source_of(self, chain: Chain) -> Json | None:
        """Return where a conversation took place, from its last row and its entry in the index."""
        facts, entry = chain.rows[-1].facts, self.entry_of(chain)
        origin = coerce.record(entry.get("origin"))
        origin = origin or coerce.parse_record(facts.get("origin_json"))
        origin = origin or coerce.parse_record(facts.get("origin"))
        # agent:main:{platform}:{chat type}[:{chat}][:{thread}][:{person}]; the end is ambiguous.
        key = coerce.first_name(entry.get("session_key"), facts.get("session_key")) or ""
        cut = key.split(":")
        is_key = len(cut) >= 4 and cut[0] == "agent"
        names = ("platform", "chat_type", "chat_id")
        known: Json = dict(zip(names, cut[2:], strict=False)) if is_key else {}
        for given in (facts, origin):
            known |= {n: given[n] for n in _ORIGIN if given.get(n) not in (None, "")}
        named = (origin.get("platform"), entry.get("platform"), facts.get("source"))
        platform = coerce.first_name(*named) or known.get("platform")
        if platform is None:
            return None
        known["platform"] = _OTHER_NAMES.get(platform, platform)
        made: Json = {}
        for name, value in known.items():
            try:
                Source.from_json({"platform": "any", **made, name: value})
            except BadInput:
                # The other fields are kept.
                continue
            made[name] = value
        return Source.from_json(made).to_json() if "platform" in made else None

    def entry_of(self, chain: Chain) -> Json:
        """Return the latest entry of a conversation in the gateway's index."""
        entries = self.index.entries
        return next((entries[row.id] for row in reversed(chain.rows) if row.id in entries), {})


def homes_of(place: Path, web_folder: Path | None = None) -> list[HermesHome]:
    """Return the profiles in a Hermes directory, or the one that a file belongs to."""
    if files.is_file(place):
        return [_home_of_file(place)]
    homes = [_home(place)]
    profiles = place / "profiles"
    if files.is_directory(profiles):
        try:
            inside = sorted(profiles.iterdir())
        except OSError as error:
            why = f"{profiles} cannot be read ({error.strerror})."
            homes[0].faults.append((profiles, why))
            inside = []
        homes += [_home(each, _profile(each.name)) for each in inside if files.is_directory(each)]
    # The state directories of web interfaces.
    folders = [place / name for name in sessions.FOLDERS] + [place]
    folders = [each for each in folders if files.is_directory(each / "sessions")]
    for folder in [*folders, *([web_folder] if web_folder else [])]:
        for home in homes:
            home.projects |= sessions.projects_of(folder)
        for file in sessions.find_web_files(folder):
            # The profile that a web session names, or the first one.
            owner = next((each for each in homes if each.profile == file.profile), homes[0])
            owner.web.setdefault(file.id, file)
    return homes


def _home(path: Path, profile: str | None = None) -> HermesHome:
    made = HermesHome(path, profile)
    folder = path / "sessions"
    for each in files.walk(folder, suffixes=(".jsonl",), depth=0):
        made.transcripts[each.name.removesuffix(".jsonl")] = each
    try:
        made.index = _index(folder / INDEX)
    except BadInput as error:
        made.faults.append((folder / INDEX, str(error)))
    made.logs = {each.id: each for each in sessions.find_logs(folder)}
    # The names of scheduled jobs.
    jobs = coerce.records(files.read_record(path / "cron" / "jobs.json").get("jobs"))
    made.jobs = {str(job.get("id")): job["name"] for job in jobs if coerce.name(job.get("name"))}
    return made


def _home_of_file(path: Path) -> HermesHome:
    if path.name == INDEX:
        return _home(path.parent.parent)
    made = HermesHome(path if path.suffix == ".db" else path.parent)
    if path.suffix == ".jsonl" and sessions.is_export(path):
        found = sessions.read_export(path)
        made.rows, made.index.faults, made.index.path = found.rows, found.faults, path
        made.exported = {id: (path, place) for id, place in found.places.items()}
    elif path.suffix == ".jsonl":
        made.transcripts[path.name.removesuffix(".jsonl")] = path
        made.index = _index(path.parent / INDEX)
        made.index.faults.clear()
    elif path.name.endswith((".json", f".json{sessions.BACKUP}")):
        file = sessions.named_file(path)
        made.web[file.id] = file
        made.projects = sessions.projects_of(path.parent.parent)
    return made


def _index(path: Path) -> GatewayIndex:
    """Read a `sessions.json`; an empty index if there is none."""
    found = GatewayIndex(path=path)
    if not files.is_file(path):
        return found
    data = files.read_json(path, most=MAX_INDEX)
    if not isinstance(data, dict):
        found.faults.append(("", "it is no list of sessions"))
        return found
    for key, entry in data.items():
        id = coerce.name(coerce.record(entry).get("session_id"))
        if id is None:
            found.faults.append((key[:100], "it names no session"))
        else:
            found.entries[id] = {"session_key": key, **entry}
    return found


def _profile(name: str) -> str | None:
    try:
        return validate_profile(name)
    except BadInput:
        return None
