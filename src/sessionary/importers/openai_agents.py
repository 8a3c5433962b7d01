"""Databases of the sessions of OpenAI's Agents SDK: plain, through SQLAlchemy, or advanced.

Programs choose the ids of their sessions, so two databases may have the same: the id here includes
the time at which the session began.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.formats import coerce, openai_items
from sessionary.formats.coerce import Json
from sessionary.importers.base import databases, events, files
from sessionary.importers.base.content import MessageContent, call_usage, parse_time
from sessionary.importers.base.databases import DatabaseSession
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

_USAGE = (
    *("branch_id", "user_turn_number", "input_tokens", "output_tokens"),
    *("input_tokens_details", "output_tokens_details", "created_at"),
)


class OpenAiAgents(events.Importer):
    """Reads the sessions that programs kept with OpenAI's Agents SDK."""

    name = "openai-agents"
    title = "OpenAI Agents SDK"

    def recognises(self, path: Path) -> bool:
        return databases.has(path, "agent_messages", "session_id", "message_data")

    def find(self, place: Path) -> Iterator[events.Unit]:
        found = files.walk(place, suffixes=(".db", ".sqlite", ".sqlite3"), depth=0)
        for path in [place] if is_sqlite(place) else filter(self.recognises, found):
            yield from databases.units(path, _sessions)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        with databases.opened(unit) as database:
            id, began = unit.hint["id"], parse_time(unit.hint["began"])
            yield events.begin_session(f"{id}@{unit.hint['began']}", began)
            yield events.facts(title=id, extra={"openai_agents": {"session_id": id}})
            yield from _messages(database, id, began or files.changed_at(unit.path))
            yield from _usage(database, unit.hint)


def _sessions(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    marks = databases.marks(database, "agent_messages", "session_id", "id")
    structure = databases.marks(database, "message_structure", "session_id", "id")
    used = databases.marks(database, "turn_usage", "session_id", "id")
    columns = ("session_id", "created_at")
    for id, began in database.rows("agent_sessions", columns, order=("created_at", "session_id")):
        if isinstance(id, str) and id in marks:
            stamp = (marks[id], structure.get(id), used.get(id))
            yield DatabaseSession(id, stamp, {"id": id, "began": began})


def _messages(database: ExternalDatabase, id: str, at: datetime) -> Iterator[events.Event]:
    """Yield the messages in their order, or those of an advanced session as branches."""
    # The message numbers of each branch, the newest branch last.
    by_branch: dict[str, list[Any]] = {}
    columns: tuple[str, ...] = ("branch_id", "message_id")
    where, order = ("session_id", id), ("sequence_number", "id")
    for branch, number in database.rows("message_structure", columns, where=where, order=order):
        by_branch.setdefault(f"{branch}", []).append(number)
    branches = sorted(
        by_branch.values(),
        key=lambda each: max((number for number in each if isinstance(number, int)), default=0),
    )
    messages: dict[Any, events.MessageEvent] = {}
    columns = ("id", "message_data", "created_at")
    rows = database.rows("agent_messages", columns, where=where, order=("id",))
    for number, text, created in rows:
        at = parse_time(created) or at
        item = coerce.parse_json(text)
        if not isinstance(item, dict):
            yield events.Skipped(where=f"message {number}", why="not an object in JSON")
            continue
        content = MessageContent()
        role = openai_items.add_item(content, item)
        messages[number] = content.to_message(role, at, id=f"{number}")
        if not branches:
            yield messages.pop(number)
    for count, numbers in enumerate(branches, 1):
        items = [messages[each] for each in numbers if each in messages]
        yield events.Branch(items=items, is_current=count == len(branches))


def _usage(database: ExternalDatabase, hint: Json) -> Iterator[events.UsageEvent]:
    """Yield the usage that advanced sessions record; their input includes cached tokens."""
    rows = database.rows("turn_usage", _USAGE, where=("session_id", hint["id"]))
    for branch, turn, sent, made, sent_details, made_details, created in rows:
        cached = coerce.count(coerce.parse_record(sent_details).get("cached_tokens"))
        reasoning = coerce.parse_record(made_details).get("reasoning_tokens")
        yield events.UsageEvent(
            usage=call_usage(
                "openai-agents",
                f"{hint['id']}@{hint['began']}:{branch}:{turn}",
                at=parse_time(created),
                input=max(0, coerce.count(sent) - cached),
                output=made,
                cache_read=cached,
                reasoning=reasoning,
            )
        )


IMPORTER = OpenAiAgents()
