"""The importer protocol, and the events that importers produce.

An importer finds units (a file, a database, one conversation in it) and reads each as a stream of
events: a session begins, messages follow, it ends. The driver merges the events into the store, in
the same way for every format. Importers never write to what they read.

Message parts are plain dictionaries in the stored form, made with `formats.parts`: an import of
gigabytes must not build objects that are only encoded again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, get_args, runtime_checkable

import msgspec

from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.model.message import Role
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import Usage

# The parent of a message that follows the one before it.
FOLLOWS = "\x00follows"


@dataclass(frozen=True, slots=True)
class UserEnvironment:
    """A user's home directory and environment variables."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def path(self, variable: str, otherwise: str) -> Path:
        """Return the directory that a variable names, or else one below the home directory."""
        given = self.environment.get(variable)
        return Path(given).expanduser() if given else self.home / otherwise


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest thing that is read by itself, such as a file or one conversation of a database.

    `name` is the same each time the unit is found; `stamp` changes when its content may have changed.
    """

    name: str
    path: Path
    stamp: str
    size: int = 0
    # Files that are read with it; the driver refuses our own store's.
    beside: tuple[Path, ...] = ()
    # Other files and directories that belong to it and are no units of their own.
    belongings: tuple[Path, ...] = ()
    # When its tool will delete it.
    expires_at: datetime | None = None
    # The tool's profile that it belongs to, unless that is the default one.
    profile: str | None = None
    # Whatever the importer's `find` hands to its `read`.
    hint: Any = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Where the last import stopped: a byte offset, and the reader's state there."""

    place: int
    note: Any = None


class SourceRewritten(Exception):
    """What an earlier import took for complete has grown: read the unit from its beginning."""


@runtime_checkable
class Importer(Protocol):
    """Finds and reads the records of one tool: one object of this kind is all that a tool needs.

    `name` is what people type and what the store keeps; `title` is what they read. A class that
    derives from this one inherits `places` and `accepts`.
    """

    name: str
    title: str

    def places(self, user: UserEnvironment) -> list[Path]:
        """Return where the tool stores its records; the paths need not exist."""
        return []

    def recognises(self, path: Path) -> bool:
        """Return whether the beginning of a file shows that it is a record of this format.

        Name and neighbouring files may count too, but never alone: another tool's file with that
        name must not pass. A file is read only by an importer that recognises it.
        """

    def accepts(self, path: Path) -> bool:
        """Return whether a file can have this format if a person says so.

        Only tools whose files do not always show who wrote them accept more than they recognise.
        """
        return self.recognises(path)

    def find(self, place: Path) -> Iterator[Unit]:
        """Yield the units at one of `places` or at a path that someone named; parents first."""

    def read(self, unit: Unit, resume: Resume | None) -> Iterator["Event"]:
        """Yield the events of a unit; with `resume` only those after it.

        Raises `BadInput` for what cannot be read, `SourceRewritten` if it cannot resume there.
        """


class _Event(msgspec.Struct, kw_only=True, gc=False):
    pass


class SessionBegin(_Event):
    """A session begins; all events up to its end belong to it."""

    native_id: str
    began_at: datetime | None = None
    kind: Kind = Kind.IMPORT
    # The tool's id of the session that it came from, and how it came from it.
    parent: str | None = None
    lineage: Lineage = Lineage.SUBAGENT
    # Other ids by which the session can be found, such as that of its first message.
    aliases: Sequence[str] = ()


class Facts(_Event):
    """Fields of the session, such as its title. The last value of each field counts."""

    fields: Json


class TokenUsage(_Event):
    """The tokens of one model call: cheaper to build than a `Usage`."""

    call_id: str
    model: str
    at: datetime
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    # How many of those are cached for an hour.
    cache_write_1h_tokens: int = 0


class MessageEvent(_Event):
    """A message with its parts in the stored form.

    `id` is the tool's own id, unique in the session; `parent` is the id of the message before it.
    """

    role: str
    parts: list[Json]
    at: datetime
    id: str | None = None
    parent: str | None = FOLLOWS
    person: Json | None = None
    model: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    extra: Json | None = None
    usage: Sequence[Usage | TokenUsage] = ()
    # The bytes of the attachments among the parts.
    blobs: Sequence[bytes] = ()


class Compacted(_Event):
    """From here on the model reads a summary instead of what came before; people still see it."""

    summary: str
    at: datetime
    id: str | None = None
    # The first message that the model still reads in full, if any.
    keeps: str | None = None


class Retracted(_Event):
    """Everything after a message was taken back; with None, everything."""

    after: str | None
    at: datetime


class Branch(_Event):
    """One path through a tree of messages, from the root to a leaf; the current one comes last."""

    items: Sequence[MessageEvent | Compacted]
    is_current: bool


class UsageEvent(_Event):
    """Model calls of the session that belong to no message."""

    usage: Sequence[Usage | TokenUsage]


class Skipped(_Event):
    """Something that could not be read; the session is marked."""

    where: str
    why: str


class IgnoredRecord(_Event):
    """Something that is known and no part of a conversation."""

    what: str
    count: int = 1


class HeldBack(_Event):
    """An answer that may still grow is imported later: when it will count as complete."""

    until: datetime


class Checkpoint(_Event):
    """Everything before this byte has been read: the next import can resume here."""

    place: int
    note: Any = None


class SessionEnd(_Event):
    """The session ends here, as far as its tool has written it."""


Event = (
    SessionBegin
    | Facts
    | MessageEvent
    | Compacted
    | Retracted
    | Branch
    | UsageEvent
    | Skipped
    | IgnoredRecord
    | HeldBack
    | Checkpoint
    | SessionEnd
)


_EVENTS = get_args(Event)
_ROLES = frozenset(Role)


def check_event(event: object) -> None:
    """Raise `TypeError` or `ValueError` if the driver cannot store this event."""
    if not isinstance(event, _EVENTS):
        raise TypeError(f"{type(event).__name__} is no event of an importer")
    if isinstance(event, Branch):
        for item in event.items:
            check_event(item)
    at = getattr(event, "at", None)
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise ValueError(f"the time of a {type(event).__name__} has no zone")
    if isinstance(event, MessageEvent):
        if event.role not in _ROLES:
            raise ValueError(f"{event.role!r} is no role of a message")
        parts: Sequence[object] = event.parts
        for part in parts:
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise ValueError("a part of a message is not in the stored form")


def begin_session(
    native_id: str,
    began_at: datetime | None = None,
    *,
    parent: object = None,
    lineage: Lineage = Lineage.SUBAGENT,
    kind: Kind | None = None,
    aliases: Sequence[str] = (),
) -> SessionBegin:
    """Begin a session; `parent` is the id of the session it came from, if it is a text.

    By default a session is a subagent if it has such a parent.
    """
    name = coerce.name(parent)
    name = None if name == native_id else name
    if kind is None:
        is_subagent = name is not None and lineage is Lineage.SUBAGENT
        kind = Kind.SUBAGENT if is_subagent else Kind.IMPORT
    return SessionBegin(
        native_id=native_id,
        began_at=began_at,
        kind=kind,
        parent=name,
        lineage=lineage,
        aliases=aliases,
    )


def facts(**fields: Any) -> Facts:
    """Return the fields of a session that have a value."""
    return Facts(fields={name: value for name, value in fields.items() if value is not None})


def workspace(path: object, **more: object) -> Json | None:
    """Return a session's workspace; None without a path. `more` is `branch` or `repository`."""
    if coerce.name(path) is None:
        return None
    return {"path": path} | {name: value for name, value in more.items() if coerce.name(value)}
