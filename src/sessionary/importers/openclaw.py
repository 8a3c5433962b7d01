"""OpenClaw: a database for each agent, its archives, and the files of older releases.

All of them hold Pi's events. A session that was moved from a file into the database is one session.
"""

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import archives, databases, events, files
from sessionary.importers.base.databases import DatabaseSession
from sessionary.importers.base.files import json_lines
from sessionary.importers.pi import PiEvents, header_of, is_header
from sessionary.model.session import Kind, Lineage
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

MAX_EVENT = 64 * 1024 * 1024
MAX_INDEX = 64 * 1024 * 1024
DATABASE = "openclaw-agent.sqlite"
_FILE = re.compile(r"(?P<id>.+?)\.jsonl(?:\.(?:deleted|reset)\..+)?")
_HEAD = 256 * 1024
# What OpenClaw writes among Pi's lines, and the folders that it works in.
_MARK = re.compile(
    rb'"customType"\s*:\s*"(?:openclaw[:.]|model-snapshot")'
    rb'|"provider"\s*:\s*"openclaw"'
    rb'|"cwd"\s*:\s*"[^"]*[/\\](?:\.openclaw|\.clawdbot|\.moltbot|clawd)(?:[/\\"])'
)
_ARCHIVES = "session_transcript_cold_archives"
_ARCHIVE = re.compile(r"[A-Za-z0-9_-]{1,100}\.jsonl\.zst")


class OpenClaw(events.Importer):
    """Reads the sessions of OpenClaw's agents."""

    name = "openclaw"
    title = "OpenClaw"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        """Return the directory of its state, under each name it had."""
        older = [user.home / ".clawdbot", user.home / ".moltbot"]
        return [user.path("OPENCLAW_STATE_DIR", ".openclaw"), *older]

    def recognises(self, path: Path) -> bool:
        """Return whether it is an agent's database, or a transcript with a mark of OpenClaw's."""
        if is_sqlite(path):
            return databases.has(path, "transcript_events", "session_id", "seq")
        if path.name.endswith(".jsonl.zst"):
            return files.is_file(path) and _first_of_archive(path) is not None
        if header_of(path) is None:
            return False
        # The lines are Pi's: the file's place or name, or a mark of OpenClaw's in it, tells.
        is_beside_index = files.is_file(path.parent / "sessions.json")
        is_put_aside = path.suffix != ".jsonl" and _FILE.fullmatch(path.name) is not None
        return is_beside_index or is_put_aside or _MARK.search(files.head(path, _HEAD)) is not None

    def accepts(self, path: Path) -> bool:
        """Accept sessions of Pi's, too: both write the same lines."""
        is_of_pi = path.suffix == ".jsonl" and header_of(path) is not None
        return is_of_pi or self.recognises(path)

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield the sessions of databases, then those of files."""
        for path in [place] if files.is_file(place) else _found(place):
            if is_sqlite(path):
                yield from databases.units(path, _sessions)
            elif path.name.endswith(".zst"):
                yield files.unit(path)
            else:
                yield _file_unit(path)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        if is_sqlite(unit.path):
            yield from self._read_database(unit)
            return
        is_archive, hint = unit.path.name.endswith(".zst"), unit.hint
        header = _first_of_archive(unit.path) if is_archive else header_of(unit.path)
        if header is None or (hint is None and not is_archive):
            raise BadInput(f"{unit.path} does not begin as a session of OpenClaw does.")
        session = PiEvents(self.name, header, unit.path, resume)
        if is_archive:
            yield from session.begin(header["id"])
            with archives.decompressed(files.opened(unit.path)) as file:
                yield from _take_lines(session, file)
        else:
            yield from session.begin(hint["id"], **_kind(hint))
            yield _facts(hint)
            yield from session.read(unit.path, resume)

    def _read_database(self, unit: events.Unit) -> Iterator[events.Event]:
        with databases.opened(unit) as database:
            hint, id = unit.hint, unit.hint["id"]
            # The header may be among the session's own events.
            _, first = next(_events(database, id), (0, None))
            known = first if first is not None and is_header(first) else {}
            header = {"timestamp": hint["began"], **known, "id": id}
            session = PiEvents(self.name, header, unit.path)
            yield from session.begin(id, **_kind(hint))
            yield _facts(hint)
            if hint["archive"] is not None:
                with _opened_archive(database, unit) as file:
                    yield from _take_lines(session, file)
            for seq, event in _events(database, id):
                if event is None:
                    yield events.Skipped(
                        where=f"event {seq} of session {id}", why="not an event in JSON"
                    )
                else:
                    yield from session.take(event)


def _found(place: Path) -> Iterator[Path]:
    """Yield the databases and transcripts of a state directory, or of one agent's."""
    agents = place / "agents"
    root = agents if files.is_directory(agents) else place
    yield from files.walk(root, suffixes=(DATABASE,), depth=3)
    for path in files.walk(root, suffixes=("",), depth=2):
        if path.parent.name == "sessions" and _FILE.fullmatch(path.name):
            yield path


def _file_unit(path: Path) -> events.Unit:
    found = _FILE.fullmatch(path.name)
    id = path.stem if found is None else found["id"]
    # The index of older releases.
    beside = path.parent / "sessions.json"
    index = coerce.parse_record(files.head(beside, MAX_INDEX))
    hint = _hint(None, {}, id=id)
    for key, entry in index.items():
        if isinstance(entry, dict) and entry.get("sessionId") == id:
            parent = coerce.record(index.get(coerce.text(entry.get("spawnedBy")))).get("sessionId")
            hint = _hint(key, entry, parent=parent, id=id)
            break
    stamp = f"{files.stamp_of(path)};{hint['title']};{hint['parent']}"
    return events.Unit(str(path), path, stamp, files.size_of(path), (beside,), hint=hint)


def _hint(key: str | None, entry: Json, *, parent: object = None, **more: Any) -> Json:
    titles = (entry.get(name) for name in ("label", "displayName", "subject"))
    return {
        "key": key,
        "title": coerce.first_name(*titles),
        "channel": coerce.name(entry.get("channel")),
        "parent": coerce.name(parent),
        "is_subagent": ":subagent:" in (key or ""),
        **more,
    }


def _kind(hint: Json) -> Json:
    """Return what sort of session it is, and where it came from."""
    if hint["is_subagent"]:
        return {"parent": hint["parent"], "lineage": Lineage.SUBAGENT, "kind": Kind.SUBAGENT}
    return {"parent": hint["parent"], "lineage": Lineage.RESET}


def _facts(hint: Json) -> events.Facts:
    known = {name: hint[name] for name in ("key", "channel") if hint[name] is not None}
    return events.facts(title=hint["title"], extra={"openclaw": known} if known else None)


def _sessions(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    """Yield each window of each conversation, the older ones of a conversation first."""
    marks = databases.marks(database, "transcript_events", "session_id", "seq", "created_at")
    rewritten = databases.marks(
        database, "transcript_rewrite_watermarks", "session_id", "generation"
    )
    # What is known of each conversation, and its newest session.
    columns: tuple[str, ...]
    columns = ("session_key", "current_session_id", "entry_json", "label", "display_name")
    entries: dict[str, Json] = {}
    current: dict[str, str] = {}
    for key, id, text, label, display_name in database.rows("session_nodes", columns):
        if isinstance(key, str):
            named = {"label": label, "displayName": display_name}
            given = {name: value for name, value in named.items() if coerce.name(value)}
            entries[key] = coerce.parse_record(text) | given
            if isinstance(id, str):
                current[key] = id
    columns = ("session_id", "archive_name", "storage")
    archived = {
        id: (coerce.text(name), coerce.text(storage))
        for id, name, storage in database.rows(_ARCHIVES, columns)
    }
    columns = ("session_id", "session_key", "created_at")
    rows = database.rows("session_windows", columns, order=("created_at", "session_id"))
    windows: dict[Any, tuple[str | None, Any]] = {
        id: (coerce.name(key), began) for id, key, began in rows
    }
    windows = dict.fromkeys((*windows, *marks, *archived), (None, None)) | windows
    latest: dict[str, str] = {}
    for id, (key, began) in windows.items():
        if not isinstance(id, str) or (id not in marks and id not in archived):
            continue
        entry = entries.get(key or "", {})
        hint = _hint(key, entry, id=id, began=began, archive=archived.get(id))
        spawned_by = current.get(coerce.text(entry.get("spawnedBy")))
        hint["parent"] = spawned_by if hint["is_subagent"] else latest.get(key or "")
        latest[key or id] = id
        # The archive's file is beside the database, or among the agent's older transcripts.
        name, storage = archived.get(id, ("", ""))
        folders = (database.path.parent.parent / "sessions", database.path.parent)
        is_file = storage != "sqlite" and _ARCHIVE.fullmatch(name) is not None
        paths = [each / "cold" / name for each in folders] if is_file else []
        beside = tuple(each for each in paths if files.is_file(each))[:1]
        stamp = (marks.get(id), rewritten.get(id), hint["title"], archived.get(id))
        yield DatabaseSession(id, stamp, hint, beside)


def _opened_archive(database: ExternalDatabase, unit: events.Unit) -> BinaryIO:
    id, (name, storage) = unit.hint["id"], unit.hint["archive"]
    if storage != "sqlite":
        if not unit.beside:
            raise BadInput(f"The archive {name} of session {id} is not there.")
        return archives.decompressed(files.opened(unit.beside[0]))
    data = databases.value(database, _ARCHIVES, "archive_blob", where=("session_id", id))
    if not isinstance(data, bytes):
        raise BadInput(f"The archive of session {id} is not in the database.")
    return archives.decompressed(BytesIO(data))


def _take_lines(session: PiEvents, file: BinaryIO) -> Iterator[events.Event]:
    for line in json_lines(file):
        if line.data is None:
            yield events.Skipped(where=f"byte {line.start} of the archive", why=line.why or "")
        else:
            yield from session.take(_event_of(line.data))


def _event_of(record: Json) -> Json:
    """Return the event of an archive's line, which may wrap it with its number."""
    inner = record.get("event")
    if isinstance(inner, dict):
        return inner
    return coerce.parse_record(record.get("event_json")) or record


def _first_of_archive(path: Path) -> Json | None:
    try:
        with archives.decompressed(files.opened(path)) as file:
            first = next(json_lines(file, max_line=MAX_EVENT), None)
    except BadInput:
        return None
    found = None if first is None or first.data is None else _event_of(first.data)
    return found if is_header(found) else None


def _events(database: ExternalDatabase, id: str) -> Iterator[tuple[Any, Json | None]]:
    """Yield number and event of each row; None for one that cannot be read."""
    columns = ("seq", "event_json", "event_zstd")
    rows = database.rows("transcript_events", columns, where=("session_id", id), order=("seq",))
    for seq, text, packed in rows:
        given = text
        if isinstance(packed, bytes) and packed:
            try:
                given = archives.decompressed(BytesIO(packed), most=MAX_EVENT).read()
            except BadInput:
                given = None
        event = coerce.parse_json(given)
        yield seq, event if isinstance(event, dict) else None


IMPORTER = OpenClaw()
