"""Where Hermes keeps the messages of a session: read once to see what is there, once to say it."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import files
from sessionary.importers.base.events import Event, IgnoredRecord, Json, Skipped
from sessionary.importers.hermes.message import (
    COLUMNS,
    NOT_SAID,
    MessageKey,
    from_row,
    light,
    unpacked,
)
from sessionary.store.sqlite.external_file import ExternalDatabase

# What is planned of a conversation is held in memory, a little for each message.
MOST = 500_000


class MessageSource(Protocol):
    """The messages of a session in one place, in order."""

    path: Path

    def raws(self) -> Iterator[Json | Event]:
        """Each message, and what could not be read among them."""


class DatabaseMessages:
    """The messages of one session in a database."""

    def __init__(self, database: ExternalDatabase, session_id: str) -> None:
        self.path = database.path
        self._database = database
        self._session_id = session_id

    def raws(self) -> Iterator[Json | Event]:
        if not self._database.has("messages", "session_id", "role"):
            return
        rows = self._database.rows(
            "messages", COLUMNS, where=("session_id", self._session_id), order=["id"]
        )
        for row in rows:
            raw = from_row(row)
            if isinstance(raw.get("role"), str):
                yield raw
            else:
                yield Skipped(where=f"message {str(row[0])[:20]}", why="it has no role")


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


def survey(tape: MessageSource) -> tuple[list[MessageKey], list[Event]]:
    """What stands where, and what is to be told of the rest."""
    lights: list[MessageKey] = []
    told: list[Event] = []
    for raw in tape.raws():
        if not isinstance(raw, dict):
            told.append(raw)
        elif raw["role"] in NOT_SAID:
            told.append(IgnoredRecord(what=f"{raw['role']} lines"))
        elif len(lights) < MOST:
            lights.append(light(raw))
        else:
            told.append(Skipped(where=tape.path.name, why=f"it has more than {MOST:,} messages"))
            break
    return lights, told


class MessageReplay:
    """Several tapes read for the second time, each only forwards."""

    def __init__(self, tapes: list[MessageSource]) -> None:
        self._tapes = tapes
        self._sources = [self._messages(tape) for tape in tapes]
        self._next = [0] * len(tapes)

    def raw(self, tape: int, number: int, key: str) -> Json:
        """The message of that number, which must be the one that was seen there."""
        raw = None
        while self._next[tape] <= number:
            raw = next(self._sources[tape], None)
            self._next[tape] += 1
        if raw is None or light(raw).key != key:
            path = self._tapes[tape].path
            raise BadInput(f"{path} was written while it was read; it is read another time.")
        return raw

    def close(self) -> None:
        """Let go of the files."""
        for source in self._sources:
            source.close()

    @staticmethod
    def _messages(tape: MessageSource) -> Generator[Json]:
        for raw in tape.raws():
            if isinstance(raw, dict) and raw["role"] not in NOT_SAID:
                yield raw
