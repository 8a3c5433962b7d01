"""One exchange: the unit of exclusion, cost and failure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class TurnState(StrEnum):
    """How far a turn has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Turn:
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


@dataclass(frozen=True, slots=True)
class Lease:
    """The renewable right to append to one session during one turn."""

    turn_id: str
    session_no: int
    session_id: str
    epoch: int
    holder: str
