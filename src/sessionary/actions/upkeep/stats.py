"""Where the bytes are, and how much there is of everything."""

from dataclasses import dataclass, replace
from datetime import datetime

from sessionary.clock import to_micros
from sessionary.store.database import Tx


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of the store, and the size of each table and index."""

    sessions: int
    open_sessions: int
    entries: int
    turns: int
    waiting_arrivals: int
    open_deliveries: int
    blobs: int
    blob_bytes: int
    sizes: tuple[tuple[str, int], ...] = ()


def stats(tx: Tx) -> Stats:
    """Count everything. This one reads the whole store; it is for people, not for loops."""
    row = tx.one("count_everything")
    assert row is not None
    sizes = tuple((name, size) for name, size, _ in tx.all("table_sizes"))
    return replace(Stats(*row), sizes=sizes)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is under way and not finished."""

    waiting_arrivals: int
    running_turns: int
    open_deliveries: int


def backlog(tx: Tx) -> Backlog:
    """Count what is under way; cheap at any size of the store."""
    row = tx.one("count_backlog")
    assert row is not None
    return Backlog(*row)


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
