"""OpenCode: a database, or, in older releases, a tree of JSON files. Kilo has the same database."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce, parts
from sessionary.importers.base import databases, files
from sessionary.importers.base.content import MessageContent, ModelTurn, call_usage, parse_time
from sessionary.importers.base.databases import DatabaseSession
from sessionary.importers.base.events import (
    Compacted,
    Event,
    Facts,
    Json,
    Resume,
    Skipped,
    Unit,
    UsageEvent,
    Where,
    begin_session,
)
from sessionary.model.usage import Usage
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

MAX_FILE = 64 * 1024 * 1024
_COLUMNS = ("id", "parent_id", "title", "directory", "time_created", "time_updated")


# What belongs to the tool's own bookkeeping of files and steps.
_BOOKKEEPING = ("snapshot", "patch", "step-start", "step-finish", "retry", "compaction")
# Where a part stands is said by where it is kept.
_PLACE = ("id", "sessionID", "messageID")


def said(id: str, message: Json, given: Iterable[Json], at: datetime) -> Iterator[Event]:
    """A message as one or more of ours: what tools answer stands between a model's words."""
    role = "assistant" if message.get("role") == "assistant" else "user"
    usage = _usage(id, message, at)
    if role == "assistant" and message.get("summary") is True:
        yield Compacted(summary=_words(given), at=at, id=id)
        yield UsageEvent(usage=usage)
        return
    error = message.get("error")
    more = {
        "model": _model(message) if role == "assistant" else None,
        "finish_reason": coerce.name(message.get("finish")),
        "extra": {"error": error} if error else None,
        "usage": usage,
    }
    turn = ModelTurn()
    for part in given:
        _add(turn, part)
    made = list(turn.said(role, at, id=id, **more))
    if not made and error:
        made = [MessageContent().said(role, at, id=id, **more)]
    yield from made


def time_of(message: Json) -> datetime | None:
    """When a message was begun."""
    return parse_time(coerce.record(message.get("time")).get("created"))


def _add(turn: ModelTurn, part: Json) -> None:
    match part:
        case {"type": kind} if kind in _BOOKKEEPING:
            pass
        case {"type": "text", "text": str(words)} if part.get("synthetic") is True:
            turn.words.add({**parts.text(words), "synthetic": True})
        case {"type": "text", "text": str(words)}:
            turn.words.say(words)
        case {"type": "reasoning", "text": str(words)}:
            turn.words.think(words, part.get("metadata") or None)
        case {"type": "tool", "tool": str(name)}:
            _add_call(*turn.tools, part, name)
        case {"type": "file"} if turn.words.attach_url(part.get("url"), part.get("filename")):
            pass
        case _:
            turn.words.keep({key: value for key, value in part.items() if key not in _PLACE})


def _add_call(content: MessageContent, results: MessageContent, part: Json, name: str) -> None:
    id, state = coerce.text(part.get("callID")), coerce.record(part.get("state"))
    content.add(parts.tool_call(id, name, state.get("input")))
    status = state.get("status")
    if status not in ("completed", "error"):
        return
    told = state.get("error") if status == "error" else state.get("output")
    is_error = status == "error"
    results.add(parts.tool_result(id, "" if told is None else told, name=name, is_error=is_error))
    for file in coerce.records(state.get("attachments")):
        if not results.attach_url(file.get("url"), file.get("filename")):
            results.keep({key: value for key, value in file.items() if key not in _PLACE})


def _words(given: Iterable[Json]) -> str:
    texts = [part.get("text") for part in given if part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _model(message: Json) -> str | None:
    inner = coerce.record(message.get("model"))
    return coerce.name(message.get("modelID")) or coerce.name(inner.get("modelID"))


def _usage(id: str, message: Json, at: datetime) -> tuple[Usage, ...]:
    """Reasoning stands apart from the output here, and the cache from the input."""
    tokens = coerce.record(message.get("tokens"))
    cache, thoughts = coerce.record(tokens.get("cache")), coerce.count(tokens.get("reasoning"))
    inner = coerce.record(message.get("model"))
    return call_usage(
        "opencode",
        id,
        model=_model(message),
        provider=coerce.name(message.get("providerID")) or coerce.name(inner.get("providerID")),
        at=at,
        dollars=message.get("cost"),
        input=tokens.get("input"),
        output=coerce.count(tokens.get("output")) + thoughts,
        reasoning=thoughts,
        cache_read=cache.get("read"),
        cache_write=cache.get("write"),
    )


class OpenCode:
    """Reads the sessions of OpenCode."""

    name = "opencode"
    title = "OpenCode"

    def places(self, where: Where) -> list[Path]:
        """Its directory of data, and that of its sister."""
        data = where.path("XDG_DATA_HOME", ".local/share")
        return [data / "opencode", data / "kilo"]

    def recognises(self, path: Path) -> bool:
        """Whether it is a database with its tables, or a session's file in a tree of its files."""
        if is_sqlite(path):
            return _is_ours(path)
        if not files.is_file(path) or path.parent.parent.name != "session":
            return False
        head = files.head(path).lstrip()
        return head.startswith(b"{") and b'"id"' in head and b'"time"' in head

    def find(self, place: Path) -> Iterator[Unit]:
        """The sessions of databases, then those of files."""
        for path in [place] if is_sqlite(place) else _databases(place):
            yield from databases.units(path, _sessions)
        found = [(path, _file_unit(path)) for path in _session_files(place)]
        # A child's file may come before its parent's.
        for _, unit in sorted(found, key=lambda each: (bool(each[1].hint["parent_id"]), each[0])):
            yield unit

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """One session."""
        del resume
        if is_sqlite(unit.path):
            with databases.opened(unit) as database:
                yield from _head(unit.hint)
                yield from _of_database(database, unit)
        elif unit.hint is None or unit.hint["id"] is None:
            raise BadInput(f"{unit.path} is no session of OpenCode.")
        else:
            yield from _head(unit.hint)
            yield from _of_files(unit)


def _head(session: Json) -> Iterator[Event]:
    began = parse_time(session["time_created"])
    yield begin_session(session["id"], began, parent=session["parent_id"])
    fields: Json = {}
    if coerce.name(session["title"]):
        fields["title"] = session["title"]
    if coerce.name(session["directory"]):
        fields["workspace"] = {"path": session["directory"]}
    yield Facts(fields=fields)


# The database


def _databases(place: Path) -> Iterator[Path]:
    return (each for each in files.walk(place, suffixes=(".db",), depth=0) if _is_ours(each))


def _is_ours(path: Path) -> bool:
    return databases.has(path, "part", "message_id", "data") and databases.has(
        path, "session", "id", "directory"
    )


def _sessions(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    messages = databases.marks(database, "message", "session_id", "time_updated")
    inside = databases.marks(database, "part", "session_id", "time_updated")
    rows = database.rows("session", _COLUMNS, order=("time_created", "id"))
    for row in rows:
        session = dict(zip(_COLUMNS, row, strict=True))
        if isinstance(session["id"], str):
            id = session["id"]
            yield DatabaseSession(id, (*row, messages.get(id), inside.get(id)), session)


def _of_database(database: ExternalDatabase, unit: Unit) -> Iterator[Event]:
    at = parse_time(unit.hint["time_created"]) or files.changed_at(unit.path)
    columns, order = ("id", "data", "time_created"), ("time_created", "id")
    for id, text, created in database.rows(
        "message", columns, where=("session_id", unit.hint["id"]), order=order
    ):
        message = coerce.parse_json(text)
        if not isinstance(message, dict) or not isinstance(id, str):
            yield Skipped(where=f"message {id}", why="not an object in JSON")
            continue
        at = time_of(message) or parse_time(created) or at
        yield from said(id, message, _parts_of(database, id), at)


def _parts_of(database: ExternalDatabase, message_id: str) -> list[Json]:
    rows = database.rows("part", ("data",), where=("message_id", message_id), order=("id",))
    return [part for (text,) in rows if isinstance(part := coerce.parse_json(text), dict)]


# The tree of files


def _session_files(place: Path) -> Iterator[Path]:
    if files.is_file(place):
        yield from [place] if place.parent.parent.name == "session" else []
        return
    for folder in (place / "storage" / "session", place / "session"):
        yield from files.walk(folder, suffixes=(".json",), depth=1)


def _file_unit(path: Path) -> Unit:
    session = coerce.record(files.read_json_if_any(path, most=MAX_FILE))
    time = coerce.record(session.get("time"))
    id = path.stem if session.get("id") == path.stem else None
    hint: dict[str, Any] = {
        "id": id,
        "parent_id": session.get("parentID"),
        "title": session.get("title"),
        "directory": session.get("directory"),
        "time_created": time.get("created"),
    }
    messages = _folder(path, "message", path.stem)
    names = [each.stem for each in files.walk(messages, suffixes=(".json",), depth=0)]
    last = max(names, default=path.stem)
    stamp = files.stamp_of(path, messages, messages / f"{last}.json", _folder(path, "part", last))
    belongings = (messages, *(_folder(path, "part", name) for name in names))
    return Unit(str(path), path, stamp, files.size_of(path), belongings=belongings, hint=hint)


def _folder(session: Path, kind: str, id: str) -> Path:
    return session.parent.parent.parent / kind / id


def _of_files(unit: Unit) -> Iterator[Event]:
    at = parse_time(unit.hint["time_created"]) or files.changed_at(unit.path)
    found: list[tuple[Any, str, Json]] = []
    for path in files.walk(_folder(unit.path, "message", unit.hint["id"]), suffixes=(".json",)):
        message = files.read_json_if_any(path, most=MAX_FILE)
        if isinstance(message, dict):
            found.append((time_of(message) or at, path.stem, message))
        else:
            yield Skipped(where=f"message {path.stem}", why="not an object in JSON")
    for at, id, message in sorted(found, key=lambda each: each[:2]):
        yield from said(id, message, _parts_in(_folder(unit.path, "part", id)), at)


def _parts_in(folder: Path) -> Iterator[Json]:
    for path in files.walk(folder, suffixes=(".json",), depth=0):
        part = files.read_json_if_any(path, most=MAX_FILE)
        if isinstance(part, dict):
            yield part


IMPORTER = OpenCode()
