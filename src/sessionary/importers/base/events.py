"""What every importer offers, and the words it speaks.

An importer finds units (a file, a database, one conversation of it) and reads each as a stream of
events: a session begins, things are said in it, it ends. It only ever reads. What becomes of the
events is the driver's business: the same for all formats.

Parts are dictionaries in the form the log keeps, made by the functions of `parts.py`: an import of
gigabytes builds no object that it does not need.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from sessionary.formats import coerce
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import Usage

Json = dict[str, Any]
# A message whose parent is not named follows the one before it.
FOLLOWS = "\x00follows"


@dataclass(frozen=True, slots=True)
class Where:
    """The machine that is looked at: a home directory and the environment."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def path(self, variable: str, otherwise: str) -> Path:
        """The directory that a variable names, else one below the home directory."""
        given = self.environment.get(variable)
        return Path(given).expanduser() if given else self.home / otherwise


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing that is read by itself.

    `name` is the same each time the unit is found; `stamp` differs when something in it may be new.
    """

    name: str
    path: Path
    stamp: str
    size: int = 0
    # Files read with it; the driver checks that none of them is a link or the store's own.
    beside: tuple[Path, ...] = ()
    # Other files, and directories of files, that belong to it: they are no records of their own.
    belongings: tuple[Path, ...] = ()
    # When its owner will delete it.
    expires_at: datetime | None = None
    # The profile in which its tool keeps it, if not in its usual one.
    profile: str | None = None
    # Whatever the importer wants to know when it reads: never from outside the unit.
    hint: Any = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Where reading stopped last time: a byte, and what the reader noted there."""

    place: int
    note: Any = None


class SourceRewritten(Exception):
    """What an earlier reading took for whole has grown: the unit is to be read from its beginning."""


class Importer(Protocol):
    """Reads one format."""

    name: str
    title: str

    def places(self, where: Where) -> list[Path]:
        """Where the tool keeps its records on this machine; most need not exist."""

    def recognises(self, path: Path) -> bool:
        """Whether a file shows by its content that it is a record of this format. Reads little.

        Its name and what lies beside it may count as well, but never alone: another tool's file
        under that name must not pass. A record is read only by an importer that recognises it.
        """

    def find(self, place: Path) -> Iterator[Unit]:
        """The units of a place or of a path that someone named; parents before their children."""

    def read(self, unit: Unit, resume: Resume | None) -> Iterator["Event"]:
        """What a unit says; after `resume`, only what is new.

        Raises `BadInput` for rubbish, and `SourceRewritten` when it cannot go on from `resume`.
        """


class _Event(msgspec.Struct, kw_only=True, gc=False):
    pass


class Parent(_Event):
    """The session another one came from, by the name its own tool gives it."""

    native_id: str
    lineage: Lineage


class SessionBegin(_Event):
    """A session begins; all that follows belongs to it, until its end."""

    native_id: str
    began_at: datetime | None = None
    kind: Kind = Kind.IMPORT
    parent: Parent | None = None
    # Names by which the session can be found besides its own, such as that of its first message.
    aliases: Sequence[str] = ()


class Facts(_Event):
    """What is known of the session: fields of a session's line. The last word on each counts."""

    fields: Json


class TokenUsage(_Event):
    """A model call of which only the tokens are known: a `Usage` that takes no time to make."""

    call_id: str
    model: str
    at: datetime
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    # The part of them that is kept for an hour.
    cache_write_1h_tokens: int = 0


class MessageEvent(_Event):
    """A message, in the form the log keeps.

    `id` is the tool's own name for it, unique in the session; `parent` the id it answers to.
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
    """From here on the model read a summary instead of what came before; people read on."""

    summary: str
    at: datetime
    id: str | None = None
    # The first message that the model still read in full, if any.
    keeps: str | None = None


class Retracted(_Event):
    """Everything after a message was taken back; after None: everything."""

    after: str | None
    at: datetime


class Branch(_Event):
    """One way through a tree of messages, from the root; the current one comes last."""

    items: Sequence[MessageEvent | Compacted]
    is_current: bool


class UsageEvent(_Event):
    """Model calls that belong to the session and to no message."""

    usage: Sequence[Usage | TokenUsage]


class Skipped(_Event):
    """Something that could not be read: where, and why. The session is marked."""

    where: str
    why: str


class IgnoredRecord(_Event):
    """Something that is known and not part of a conversation."""

    what: str
    count: int = 1


class HeldBack(_Event):
    """An answer that may still be growing and is not told yet, and when it will count as whole."""

    until: datetime


class Checkpoint(_Event):
    """All before this byte has been said: the next reading can begin here."""

    place: int
    note: Any = None


class SessionEnd(_Event):
    """The session has been said, as far as its tool has written it."""


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


def begin_session(native_id: str, began_at: datetime | None, *, parent: object) -> SessionBegin:
    """A session begins: a subagent's, when a parent is named."""
    name = coerce.name(parent)
    if name is None or name == native_id:
        return SessionBegin(native_id=native_id, began_at=began_at)
    return SessionBegin(
        native_id=native_id,
        began_at=began_at,
        kind=Kind.SUBAGENT,
        parent=Parent(native_id=name, lineage=Lineage.SUBAGENT),
    )
