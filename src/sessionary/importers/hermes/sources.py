"""The places of a Hermes session's messages: each is read once for the order, once for the content."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import databases, files
from sessionary.importers.base.events import Event, IgnoredRecord, Json, Skipped
from sessionary.importers.hermes.message import (
    COLUMNS,
    IGNORED_ROLES,
    MessageKey,
    key_of,
    unpacked,
)
from sessionary.store.sqlite.external_file import ExternalDatabase

# The keys of all messages of a conversation are held in memory.
MOST = 500_000


class MessageSource(Protocol):
    """The messages of a session from one place, in order."""

    path: Path

    def raws(self) -> Iterator[Json | Event]:
        """Yield each message, and what cannot be read among them."""


class DatabaseMessages:
    """The messages of one session in a database."""

    def __init__(self, database: ExternalDatabase, session_id: str) -> None:
        self.path = database.path
        self._database = database
        self._session_id = session_id

    def raws(self) -> Iterator[Json | Event]:
        if not self._database.has("messages", "session_id", "role"):
            return
        where = ("session_id", self._session_id)
        for row in databases.records(
            self._database, "messages", COLUMNS, where=where, order=["id"]
        ):
            if isinstance(row["role"], str):
                yield unpacked(row)
            else:
                yield Skipped(where=f"message {str(row['id'])[:20]}", why="it has no role")


class TranscriptMessages:
    """The messages of one session in a transcript, one a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def raws(self) -> Iterator[Json | Event]:
        with files.opened(self.path) as file:
            for number, line in enumerate(files.json_lines(file), 1):
                role = None if line.data is None else line.data.get("role")
                if line.data is None or not isinstance(role, str):
                    why = line.why or "it is no message"
                    yield Skipped(where=f"{self.path.name} line {number}", why=why)
                else:
                    yield line.data


class ExportedMessages:
    """The messages of one session in a line of an export."""

    def __init__(self, path: Path, place: int) -> None:
        self.path = path
        self._place = place

    def raws(self) -> Iterator[Json | Event]:
        with files.opened(self.path) as file:
            line = next(files.json_lines(file, self._place), None)
        data = {} if line is None else coerce.record(line.data)
        for raw in ListedMessages(self.path, data.get("messages")).raws():
            yield unpacked(raw) if isinstance(raw, dict) else raw


class ListedMessages:
    """The messages of one session in a list that was read already."""

    def __init__(self, path: Path, messages: object) -> None:
        self.path = path
        self._messages = coerce.items(messages)

    def raws(self) -> Iterator[Json | Event]:
        for number, each in enumerate(self._messages, 1):
            if isinstance(each, dict) and isinstance(each.get("role"), str):
                yield each
            else:
                yield Skipped(where=f"{self.path.name} message {number}", why="it is no message")

    def __len__(self) -> int:
        return len(self._messages)


def survey(source: MessageSource) -> tuple[list[MessageKey], list[Event]]:
    """Return the keys of the messages, and events about everything else."""
    keys: list[MessageKey] = []
    events: list[Event] = []
    for raw in source.raws():
        if not isinstance(raw, dict):
            events.append(raw)
        elif raw["role"] in IGNORED_ROLES:
            events.append(IgnoredRecord(what=f"{raw['role']} lines"))
        elif len(keys) < MOST:
            keys.append(key_of(raw))
        else:
            events.append(
                Skipped(where=source.path.name, why=f"it has more than {MOST:,} messages")
            )
            break
    return keys, events


class MessageReplay:
    """Reads several sources for the second time, each only forwards."""

    def __init__(self, sources: list[MessageSource]) -> None:
        self._sources = sources
        self._messages = [_readable(source) for source in sources]
        self._next = [0] * len(sources)

    def raw(self, source: int, number: int, key: str) -> Json:
        """Return the message at an index, which must still have the same key."""
        raw = None
        while self._next[source] <= number:
            raw = next(self._messages[source], None)
            self._next[source] += 1
        if raw is None or key_of(raw).key != key:
            path = self._sources[source].path
            raise BadInput(f"{path} was written while it was read; it is read another time.")
        return raw

    def close(self) -> None:
        """Close the files."""
        for messages in self._messages:
            messages.close()


def _readable(source: MessageSource) -> Generator[Json]:
    for raw in source.raws():
        if isinstance(raw, dict) and raw["role"] not in IGNORED_ROLES:
            yield raw
