"""What waits in a store, and what is stuck."""

from dataclasses import dataclass
from datetime import datetime

from sessionary.clock import to_micros
from sessionary.store.database import Tx


@dataclass(frozen=True, slots=True)
class Health:
    """Counts for whoever looks after a store."""

    dead_turns: int
    waiting_arrivals: int
    open_deliveries: int
    abandoned_deliveries: int


def health(tx: Tx, *, now: datetime) -> Health:
    """Count turns whose lease ran out, the inbox and the outbox."""
    row = tx.one("health", now=to_micros(now))
    assert row is not None
    return Health(*row)
