"""OpenCode: a database, or in older releases a tree of JSON files. Kilo has the same database."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce, parts
from sessionary.formats.coerce import Json
from sessionary.importers.base import databases, events, files
from sessionary.importers.base.content import ModelTurn, call_usage, parse_time
from sessionary.importers.base.databases import DatabaseSession
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

MAX_FILE = 64 * 1024 * 1024
_COLUMNS = ("id", "parent_id", "title", "directory", "time_created", "time_updated")
# Parts about the tool's own files and steps.
_BOOKKEEPING = ("snapshot", "patch", "step-start", "step-finish", "retry", "compaction")
# Fields of a part that only say which message it belongs to.
_PLACE = ("id", "sessionID", "messageID")


def to_messages(
    id: str, message: Json, given: Iterable[Json], at: datetime
) -> Iterator[events.Event]:
    """Yield a message as one or more of ours: results of tools come between a model's texts."""
    role = "assistant" if message.get("role") == "assistant" else "user"
    inner, tokens = coerce.record(message.get("model")), coerce.record(message.get("tokens"))
    model = coerce.first_name(message.get("modelID"), inner.get("modelID"))
    # Reasoning is not part of the output here, nor the cache of the input.
    cache, thoughts = coerce.record(tokens.get("cache")), coerce.count(tokens.get("reasoning"))
    usage = call_usage(
        "opencode",
        id,
        model=model,
        provider=coerce.first_name(message.get("providerID"), inner.get("providerID")),
        at=at,
        dollars=message.get("cost"),
        input=tokens.get("input"),
        output=coerce.count(tokens.get("output")) + thoughts,
        reasoning=thoughts,
        cache_read=cache.get("read"),
        cache_write=cache.get("write"),
    )
    if role == "assistant" and message.get("summary") is True:
        texts = [part.get("text") for part in given if part.get("type") == "text"]
        summary = "\n".join(text for text in texts if isinstance(text, str))
        yield events.Compacted(summary=summary, at=at, id=id)
        yield events.UsageEvent(usage=usage)
        return
    turn = ModelTurn()
    for part in given:
        _add(turn, part)
    error = message.get("error")
    yield from turn.to_messages(
        role,
        at,
        id=id,
        is_required=bool(error),
        model=model if role == "assistant" else None,
        finish_reason=coerce.name(message.get("finish")),
        extra={"error": error} if error else None,
        usage=usage,
    )


def _time_of(message: Json) -> datetime | None:
    return parse_time(coerce.record(message.get("time")).get("created"))


def _without_place(part: Json) -> Json:
    return {key: value for key, value in part.items() if key not in _PLACE}


def _add(turn: ModelTurn, part: Json) -> None:
    match part:
        case {"type": kind} if kind in _BOOKKEEPING:
            pass
        case {"type": "text", "text": str(words)} if part.get("synthetic") is True:
            turn.words.add({**parts.text(words), "synthetic": True})
        case {"type": "text", "text": str(words)}:
            turn.words.add_text(words)
        case {"type": "reasoning", "text": str(words)}:
            turn.words.add_reasoning(words, part.get("metadata") or None)
        case {"type": "tool", "tool": str(name)}:
            content, results = turn.tools
            id, state = coerce.text(part.get("callID")), coerce.record(part.get("state"))
            content.add_call(id, name, state.get("input"))
            is_error = state.get("status") == "error"
            if is_error or state.get("status") == "completed":
                output = state.get("error") if is_error else state.get("output")
                results.add_result(id, output, name=name, is_error=is_error)
                for file in coerce.records(state.get("attachments")):
                    if not results.attach_url(file.get("url"), file.get("filename")):
                        results.add_unknown(_without_place(file))
        case {"type": "file"} if turn.words.attach_url(part.get("url"), part.get("filename")):
            pass
        case _:
            turn.words.add_unknown(_without_place(part))


class OpenCode(events.Importer):
    """Reads the sessions of OpenCode."""

    name = "opencode"
    title = "OpenCode"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        data = user.path("XDG_DATA_HOME", ".local/share")
        return [data / "opencode", data / "kilo"]

    def recognises(self, path: Path) -> bool:
        if is_sqlite(path):
            return _is_ours(path)
        if not files.is_file(path) or path.parent.parent.name != "session":
            return False
        head = files.head(path).lstrip()
        return head.startswith(b"{") and b'"id"' in head and b'"time"' in head

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield the sessions of databases, then those of files."""
        found = filter(_is_ours, files.walk(place, suffixes=(".db",), depth=0))
        for path in [place] if is_sqlite(place) else found:
            yield from databases.units(path, _sessions)
        # A child's file may come before its parent's.
        units = map(_file_unit, _session_files(place))
        yield from sorted(units, key=lambda unit: (bool(unit.hint["parent_id"]), unit.path))

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        with databases.opened(unit) if is_sqlite(unit.path) else nullcontext() as database:
            session = unit.hint
            if session is None or session["id"] is None:
                raise BadInput(f"{unit.path} is no session of OpenCode.")
            began = parse_time(session["time_created"])
            yield events.begin_session(session["id"], began, parent=session["parent_id"])
            folder = events.workspace(session["directory"])
            yield events.facts(title=coerce.name(session["title"]), workspace=folder)
            at = began or files.changed_at(unit.path)
            if database is None:
                yield from _of_files(unit, at)
            else:
                yield from _of_database(database, session["id"], at)


def _is_ours(path: Path) -> bool:
    return databases.passes(
        path,
        lambda database: (
            database.has("part", "message_id", "data")
            and database.has("session", "id", "directory")
        ),
    )


def _sessions(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    messages = databases.marks(database, "message", "session_id", "time_updated")
    inside = databases.marks(database, "part", "session_id", "time_updated")
    for session in databases.records(database, "session", _COLUMNS, order=("time_created", "id")):
        id = session["id"]
        if isinstance(id, str):
            stamp = (*session.values(), messages.get(id), inside.get(id))
            yield DatabaseSession(id, stamp, session)


def _of_database(database: ExternalDatabase, id: str, at: datetime) -> Iterator[events.Event]:
    columns, order = ("id", "data", "time_created"), ("time_created", "id")
    messages = database.rows("message", columns, where=("session_id", id), order=order)
    for id, text, created in messages:
        message = coerce.parse_json(text)
        if not isinstance(message, dict) or not isinstance(id, str):
            yield events.Skipped(where=f"message {id}", why="not an object in JSON")
            continue
        at = _time_of(message) or parse_time(created) or at
        rows = database.rows("part", ("data",), where=("message_id", id), order=("id",))
        parts_of = [part for (text,) in rows if isinstance(part := coerce.parse_json(text), dict)]
        yield from to_messages(id, message, parts_of, at)


def _session_files(place: Path) -> Iterator[Path]:
    if files.is_file(place):
        yield from [place] if place.parent.parent.name == "session" else []
        return
    for folder in (place / "storage" / "session", place / "session"):
        yield from files.walk(folder, suffixes=(".json",), depth=1)


def _file_unit(path: Path) -> events.Unit:
    session = files.read_record(path, most=MAX_FILE)
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
    return events.Unit(
        str(path), path, stamp, files.size_of(path), belongings=belongings, hint=hint
    )


def _folder(session: Path, kind: str, id: str) -> Path:
    return session.parent.parent.parent / kind / id


def _of_files(unit: events.Unit, at: datetime) -> Iterator[events.Event]:
    found: list[tuple[Any, str, Json]] = []
    for path in files.walk(_folder(unit.path, "message", unit.hint["id"]), suffixes=(".json",)):
        message = files.read_json_if_any(path, most=MAX_FILE)
        if isinstance(message, dict):
            found.append((_time_of(message) or at, path.stem, message))
        else:
            yield events.Skipped(where=f"message {path.stem}", why="not an object in JSON")
    for at, id, message in sorted(found, key=lambda each: each[:2]):
        paths = files.walk(_folder(unit.path, "part", id), suffixes=(".json",), depth=0)
        given = [files.read_json_if_any(path, most=MAX_FILE) for path in paths]
        yield from to_messages(id, message, coerce.records(given), at)


IMPORTER = OpenCode()
