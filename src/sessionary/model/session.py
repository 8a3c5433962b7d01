"""One conversation: its head, its lineage, where it is put away."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sessionary.model.source import Source
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


@dataclass(frozen=True, slots=True)
class SessionHead:
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

    @property
    def running(self) -> bool:
        """Whether a turn is running."""
        return self.running_turn is not None

    @property
    def unread(self) -> bool:
        """Whether the agent has said something that was not read."""
        return self.last_reply_seq > self.read_through

    @property
    def is_open(self) -> bool:
        """Whether the conversation goes on."""
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class Opening:
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


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one session's own log that is part of a conversation's history."""

    no: int
    session_id: str
    first: int
    last: int


def folder_of(*, kind: Kind, archived: bool, trashed: bool, purged: bool) -> SessionFolder:
    """The one rule that says in which list a session stands."""
    if purged:
        return SessionFolder.GONE
    if trashed:
        return SessionFolder.TRASH
    if archived:
        return SessionFolder.ARCHIVE
    return SessionFolder.AUTOMATION if kind in (Kind.JOB, Kind.SUBAGENT) else SessionFolder.CHATS
