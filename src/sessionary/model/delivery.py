"""One thing to send to one channel."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sessionary.model.part import Part
from sessionary.model.source import Channel


class DeliveryState(StrEnum):
    """What became of a delivery."""

    WAITING = "waiting"
    SENDING = "sending"
    SENT = "sent"
    ABANDONED = "abandoned"
    REDIRECTED = "redirected"


@dataclass(frozen=True, slots=True)
class Delivery:
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
