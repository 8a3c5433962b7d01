"""Where the bytes are, and how much there is of everything."""

from dataclasses import dataclass, replace

from hansard.store.database import Tx


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
