"""Databases that the sessions of OpenAI's Agents SDK write: plain, through SQLAlchemy, advanced.

A program chooses its sessions' names, so two databases may have the same: the time at which a
session was begun belongs to its name here.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.formats import coerce, openai_items
from sessionary.importers.base import databases, files
from sessionary.importers.base.content import MessageContent, call_usage, parse_time
from sessionary.importers.base.databases import DatabaseSession
from sessionary.importers.base.events import (
    Branch,
    Event,
    Facts,
    Json,
    MessageEvent,
    Resume,
    SessionBegin,
    Skipped,
    Unit,
    UsageEvent,
    Where,
)
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

_USAGE = (
    *("branch_id", "user_turn_number", "input_tokens", "output_tokens"),
    *("input_tokens_details", "output_tokens_details", "created_at"),
)


class OpenAiAgents:
    """Reads the sessions that programs kept with OpenAI's Agents SDK."""

    name = "openai-agents"
    title = "OpenAI Agents SDK"

    def places(self, where: Where) -> list[Path]:
        """Each program chooses its own: name the file."""
        del where
        return []

    def recognises(self, path: Path) -> bool:
        """Whether it is a database with the SDK's tables."""
        return is_sqlite(path) and databases.has(
            path, "agent_messages", "session_id", "message_data"
        )

    def find(self, place: Path) -> Iterator[Unit]:
        """One unit a session, of a database or of those in a directory."""
        found = files.walk(place, suffixes=(".db", ".sqlite", ".sqlite3"), depth=0)
        for path in [place] if is_sqlite(place) else filter(self.recognises, found):
            yield from databases.units(path, _sessions)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """One session."""
        del resume
        with databases.opened(unit) as database:
            id, began = unit.hint["id"], parse_time(unit.hint["began"])
            yield SessionBegin(native_id=f"{id}@{unit.hint['began']}", began_at=began)
            yield Facts(fields={"title": id, "extra": {"openai_agents": {"session_id": id}}})
            at = began or files.changed_at(unit.path)
            ways = _ways(database, id)
            yield from _branches(database, id, ways, at) if ways else _line(database, id, at)
            yield from _spent(database, unit.hint)


def _sessions(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    marks = databases.marks(database, "agent_messages", "session_id", "id")
    told = databases.marks(database, "message_structure", "session_id", "id")
    used = databases.marks(database, "turn_usage", "session_id", "id")
    columns = ("session_id", "created_at")
    for id, began in database.rows("agent_sessions", columns, order=("created_at", "session_id")):
        if isinstance(id, str) and id in marks:
            yield DatabaseSession(
                id, (marks[id], told.get(id), used.get(id)), {"id": id, "began": began}
            )


def _items(database: ExternalDatabase, id: str) -> Iterator[tuple[Any, Any, Any]]:
    columns = ("id", "message_data", "created_at")
    return database.rows("agent_messages", columns, where=("session_id", id), order=("id",))


def _line(database: ExternalDatabase, id: str, at: datetime) -> Iterator[Event]:
    for number, text, created in _items(database, id):
        at = parse_time(created) or at
        made = _said(number, text, at)
        yield made or Skipped(where=f"message {number}", why="not an object in JSON")


def _said(number: Any, text: object, at: datetime) -> MessageEvent | None:
    item = coerce.parse_json(text)
    if not isinstance(item, dict):
        return None
    content = MessageContent()
    role = openai_items.add_item(content, item)
    return content.said(role, at, id=f"{number}")


def _ways(database: ExternalDatabase, id: str) -> dict[str, list[Any]]:
    """The branches of an advanced session: which messages each has, the newest branch last."""
    columns = ("branch_id", "message_id")
    order = ("sequence_number", "id")
    ways: dict[str, list[Any]] = {}
    for branch, message in database.rows(
        "message_structure", columns, where=("session_id", id), order=order
    ):
        ways.setdefault(f"{branch}", []).append(message)
    newest = {branch: max(filter(_is_number, way), default=0) for branch, way in ways.items()}
    return dict(sorted(ways.items(), key=lambda each: newest[each[0]]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int)


def _branches(
    database: ExternalDatabase, id: str, ways: dict[str, list[Any]], at: datetime
) -> Iterator[Event]:
    said: dict[Any, MessageEvent] = {}
    for number, text, created in _items(database, id):
        at = parse_time(created) or at
        made = _said(number, text, at)
        if made is None:
            yield Skipped(where=f"message {number}", why="not an object in JSON")
        else:
            said[number] = made
    for count, way in enumerate(ways.values(), 1):
        items = [said[each] for each in way if each in said]
        yield Branch(items=items, is_current=count == len(ways))


def _spent(database: ExternalDatabase, hint: Json) -> Iterator[UsageEvent]:
    """What an advanced session noted of each turn; cached tokens are a part of the input there."""
    rows = database.rows("turn_usage", _USAGE, where=("session_id", hint["id"]))
    for branch, turn, sent, made, sent_details, made_details, created in rows:
        cached = coerce.count(coerce.record(coerce.parse_json(sent_details)).get("cached_tokens"))
        thought = coerce.record(coerce.parse_json(made_details)).get("reasoning_tokens")
        yield UsageEvent(
            usage=call_usage(
                "openai-agents",
                f"{hint['id']}@{hint['began']}:{branch}:{turn}",
                at=parse_time(created),
                input=max(0, coerce.count(sent) - cached),
                output=made,
                cache_read=cached,
                reasoning=thought,
            )
        )


IMPORTER = OpenAiAgents()
