"""A turn, and the arrivals and deliveries that it takes and makes."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from sessionary.model.message import Message, Part
from sessionary.model.source import Channel, Source


class TurnState(StrEnum):
    """How far a turn has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Turn(Struct, frozen=True):
    """A turn as the record has it."""

    id: str
    session_id: str
    state: TurnState
    epoch: int
    holder: str
    lease_until: datetime
    began_at: datetime
    ended_at: datetime | None
    first_seq: int
    agent: str | None = None
    reason: str | None = None
    partial: str | None = None


class Lease(Struct, frozen=True):
    """The renewable right to append to one session during one turn."""

    turn_id: str
    session_no: int
    session_id: str
    epoch: int
    holder: str


class ArrivalState(StrEnum):
    """What became of an arrival."""

    WAITING = "waiting"
    TAKEN = "taken"
    REFUSED = "refused"


class Arrival(Struct, frozen=True):
    """One row of the inbox."""

    no: int
    id: str
    key: str
    source: Source
    message: Message
    received_at: datetime
    state: ArrivalState = ArrivalState.WAITING
    session_id: str | None = None
    turn_id: str | None = None
    seq: int | None = None
    reason: str | None = None


class DeliveryState(StrEnum):
    """What became of a delivery."""

    WAITING = "waiting"
    SENDING = "sending"
    SENT = "sent"
    ABANDONED = "abandoned"
    REDIRECTED = "redirected"


class Delivery(Struct, frozen=True):
    """One row of the outbox."""

    no: int
    id: str
    profile: str
    channel: Channel
    session_id: str | None
    turn_id: str | None
    parts: tuple[Part, ...]
    state: DeliveryState
    attempts: int
    unclear_attempts: int
    not_before: datetime
    created_at: datetime
    sent_at: datetime | None = None
    reason: str | None = None
    platform_message_id: str | None = None
    redirected_to: str | None = None

    @property
    def maybe_twice(self) -> bool:
        """Whether an earlier attempt may have reached the person too."""
        return self.unclear_attempts > 0
