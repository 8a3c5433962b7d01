"""One conversation: its head, its lineage, where it is put away."""

import base64
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from msgspec import Struct, field
from msgspec.structs import replace

from sessionary.errors import BadInput
from sessionary.model.choice import ChoiceChange
from sessionary.model.message import MAX_SEQ
from sessionary.model.source import Source
from sessionary.model.turn import NEVER
from sessionary.model.usage import UsageTotal


class Kind(StrEnum):
    """What sort of conversation this is."""

    CHAT = "chat"
    JOB = "job"
    SUBAGENT = "subagent"
    IMPORT = "import"


class SessionFolder(StrEnum):
    """Where a list finds a session: one word derived from kind, archived, trashed and purged."""

    CHATS = "chats"
    AUTOMATION = "automation"
    ARCHIVE = "archive"
    TRASH = "trash"
    GONE = "gone"


class Lineage(StrEnum):
    """How a session came from another."""

    FORK = "fork"
    RESET = "reset"
    CONTINUATION = "continuation"
    SUBAGENT = "subagent"

    @property
    def inherits(self) -> bool:
        """Whether the parent's history is this session's too."""
        return self in (Lineage.FORK, Lineage.CONTINUATION)


class TitleBy(StrEnum):
    """Who gave a session its title."""

    PERSON = "person"
    AGENT = "agent"
    IMPORT = "import"


class EndReason(StrEnum):
    """Why a session is over; others' reasons are kept as they came."""

    IDLE = "idle"
    DAILY = "daily"
    NEW = "new"
    SWITCH = "switch"
    CLOSED = "closed"
    TRASH = "trash"


class SessionHead(Struct, frozen=True):
    """What a list shows of a session. It cannot be written back."""

    no: int
    id: str
    profile: str
    key: str | None
    source: Source
    kind: Kind
    folder: SessionFolder
    title: str | None
    title_by: TitleBy | None
    preview: str | None
    model: str | None
    project: str | None
    pinned: bool
    archived: bool
    read_only: bool
    labels: tuple[str, ...]
    began_at: datetime
    last_active_at: datetime
    ended_at: datetime | None
    end_reason: str | None
    trashed_at: datetime | None
    last_seq: int
    base_seq: int
    read_through: int
    last_reply_seq: int
    message_count: int
    tool_call_count: int
    usage: UsageTotal
    running_turn: str | None
    parent_id: str | None
    lineage: Lineage | None
    # The tokens of the last model call as its provider counted them, and the last entry that this covers; 0: unknown.
    context_tokens: int = 0
    context_seq: int = 0
    # Its own agent, model, persona, tools and model settings, as they are stored: see `model.choice`.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # When the lease of the running turn ends, if its process does not renew it; long ago if that one has released it.
    turn_lease_until: datetime | None = None

    @property
    def shown_title(self) -> str:
        """The title, or the first words of a session without one; its id if it has no words either."""
        return self.title or self.preview or self.id

    @property
    def running(self) -> bool:
        """Whether a turn is running, or waits to be continued."""
        return self.running_turn is not None

    def is_orphaned(self, now: datetime) -> bool:
        """Whether the process of the running turn has stopped or died, and the turn waits for another one."""
        return self.turn_lease_until is not None and self.turn_lease_until < now

    @property
    def waits_for_people(self) -> bool:
        """Whether its turn has asked people something and waits for the answer."""
        return self.turn_lease_until == NEVER

    @property
    def unread(self) -> bool:
        """Whether the agent has said something that was not read."""
        return self.last_reply_seq > self.read_through

    @property
    def is_open(self) -> bool:
        """Whether the conversation goes on."""
        return self.ended_at is None


class Opening(Struct, frozen=True):
    """What is known of a session when it is opened."""

    profile: str
    source: Source
    key: str | None = None
    kind: Kind = Kind.CHAT
    title: str | None = None
    title_by: TitleBy | None = None
    model: str | None = None
    settings: Mapping[str, Any] | None = None
    system_prompt: str | None = None
    workspace: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    read_only: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    # The agent, model, persona and tools that someone chose for it; `edit.open_session` records them in its log.
    chosen: ChoiceChange | None = None


class Project(Struct, frozen=True):
    """A project of a profile: sessions that someone put together under a name."""

    no: int
    id: str
    name: str
    colour: str | None
    created_at: datetime
    sessions: int = 0


class Segment(Struct, frozen=True):
    """A part of one session's own log that belongs to a conversation's history."""

    no: int
    session_id: str
    first: int
    last: int


def clip(segments: Iterable[Segment], first: int, last: int = MAX_SEQ) -> list[Segment]:
    """Return the parts of the segments that lie between two entries."""
    clipped = (replace(s, first=max(s.first, first), last=min(s.last, last)) for s in segments)
    return [segment for segment in clipped if segment.first <= segment.last]


def folder_of(*, kind: Kind, archived: bool, trashed: bool, purged: bool) -> SessionFolder:
    """The one rule that says in which list a session stands."""
    if purged:
        return SessionFolder.GONE
    if trashed:
        return SessionFolder.TRASH
    if archived:
        return SessionFolder.ARCHIVE
    return SessionFolder.AUTOMATION if kind in (Kind.JOB, Kind.SUBAGENT) else SessionFolder.CHATS


_FORM = re.compile(r"^(-?\d{1,19})\.(\d{1,19})$", re.ASCII)
# Behind a text: its number first, because a text may have anything in it.
_TEXT = re.compile(r"^t(\d{1,19})\.(.{0,1000})$", re.ASCII | re.DOTALL)
_LAST = 2**62


class Cursor(Struct, frozen=True):
    """Everything behind this value (a time, a sum, a name) and number is still to come."""

    at: int | str
    no: int

    @classmethod
    def first(cls, until: int | None = None) -> Self:
        """The beginning of a list, perhaps of what was active before a time."""
        return cls(_LAST if until is None else until, _LAST if until is None else 0)

    @classmethod
    def after(cls, at: int | str, no: int) -> Self:
        """The place behind an item."""
        return cls(at, no)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`."""
        try:
            plain = base64.urlsafe_b64decode(text.encode("ascii") + b"==").decode("utf-8")
        except ValueError:
            plain = ""
        named = _TEXT.match(plain)
        if named is not None and int(named[1]) <= _LAST:
            return cls(named[2], int(named[1]))
        found = _FORM.match(plain)
        if found is None or max(abs(int(found[1])), int(found[2])) > _LAST:
            raise BadInput("That cursor is not one of ours; begin again without it.")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        plain = f"t{self.no}.{self.at}" if isinstance(self.at, str) else f"{self.at}.{self.no}"
        return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")
