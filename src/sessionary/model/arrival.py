"""A message as received, before it is part of a conversation."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sessionary.model.entry import Message
from sessionary.model.source import Source


class ArrivalState(StrEnum):
    """What became of an arrival."""

    WAITING = "waiting"
    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Arrival:
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
