"""A turn, and the arrivals and deliveries that it takes and makes."""

from datetime import UTC, datetime
from enum import StrEnum

from msgspec import Struct

from sessionary.model.message import Message, Part
from sessionary.model.source import Channel, Source

# When the lease of a turn ends that waits for people: no process holds it, and none looks for it.
NEVER = datetime.max.replace(tzinfo=UTC)


# Why a turn goes on that has waited for people.
ANSWERED = "its questions were answered"
UNANSWERED = "nobody answered its question in time"


class TurnState(StrEnum):
    """How far a turn has come; one that waits for people is stored as running, with a lease until NEVER."""

    RUNNING = "running"
    WAITING = "waiting"
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
    # Whether another process may continue it if its own ends; how often one did, and why the last time.
    resumable: bool = False
    # Whether it has asked people something; whether only the program goes on with it that has.
    has_asked: bool = False
    is_of_program: bool = False
    resumed: int = 0
    resume_reason: str | None = None
    # How often its process died, and the session's last entry when it was continued after that.
    crashes: int = 0
    crash_seq: int | None = None
    stop: str | None = None
    request_hash: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended: it neither runs nor waits."""
        return self.state not in (TurnState.RUNNING, TurnState.WAITING)

    @property
    def is_woken(self) -> bool:
        """Whether its questions are decided, so that any process may go on with it."""
        is_answered = self.resume_reason in (ANSWERED, UNANSWERED)
        return self.is_released and is_answered and not self.is_of_program

    @property
    def is_released(self) -> bool:
        """Whether its process has stopped as planned, and left it to another."""
        return self.state is TurnState.RUNNING and not self.holder

    def is_orphaned(self, now: datetime) -> bool:
        """Whether its process has stopped or died, and it waits for another to continue it."""
        return self.is_released or self.is_overdue(now)

    def is_overdue(self, now: datetime) -> bool:
        """Whether its lease has run out. A program that has parked it has some time to go on with it without one."""
        return self.state is TurnState.RUNNING and self.lease_until < now


class Lease(Struct, frozen=True):
    """The renewable right to append to one session during one turn.

    The epoch is its fence: a process that takes the turn over raises it, and a write with another epoch changes
    nothing.
    """

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
