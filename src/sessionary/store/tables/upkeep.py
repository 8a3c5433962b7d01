"""Counts of a store, and what its tables say that cannot be true."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from sessionary.clock import to_micros
from sessionary.store.database import Tx


class Stats(Struct, frozen=True):
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


class Backlog(Struct, frozen=True):
    """What is under way and not finished."""

    waiting_arrivals: int
    running_turns: int
    open_deliveries: int


class Health(Struct, frozen=True):
    """Counts for the operator of a store."""

    dead_turns: int
    waiting_arrivals: int
    open_deliveries: int
    abandoned_deliveries: int


def stats(tx: Tx) -> Stats:
    """Count everything. This reads the whole store; it is for people, not for loops."""
    row = tx.one("count_everything")
    assert row is not None
    sizes = tuple((name, size) for name, size, _ in tx.all("table_sizes"))
    return replace(Stats(*row), sizes=sizes)


def backlog(tx: Tx) -> Backlog:
    """Count what is under way; cheap at any size of the store."""
    row = tx.one("count_backlog")
    assert row is not None
    return Backlog(*row)


def health(tx: Tx, *, now: datetime) -> Health:
    """Count turns whose lease ran out, the inbox and the outbox."""
    row = tx.one("health", now=to_micros(now))
    assert row is not None
    return Health(*row)


def check_integrity(tx: Tx) -> list[str]:
    """Return what the database finds wrong with its own file."""
    return [str(row[0]) for row in tx.all("check_integrity") if row[0] != "ok"]


def check_references(tx: Tx) -> list[tuple[str, str]]:
    """Return tables, each with a row (or a constraint) that refers to nothing."""
    return [(str(row[0]), str(row[1])) for row in tx.all("check_references")]


def stray_bindings(tx: Tx) -> list[str]:
    """Return keys that are bound to purged sessions."""
    return [str(key) for (key,) in tx.all("stray_bindings")]


def stray_orders(tx: Tx) -> list[int]:
    """Return numbers of sessions that have a place in lists, but no row."""
    return [no for (no,) in tx.all("stray_orders")]


def stray_reservations(tx: Tx) -> list[tuple[str, str]]:
    """Return turns that do not run, and the budget that each still reserves from."""
    return [(turn_id, scope) for turn_id, scope in tx.all("stray_reservations")]


def delete_strays(tx: Tx) -> int:
    """Delete stray orders and reservations; return how many there were."""
    return tx.run("delete_stray_orders") + tx.run("delete_stray_reservations")


def is_out_of_order(tx: Tx, session_no: int) -> bool:
    """Return whether lists by creation, name or cost show a session in a wrong place or not at all."""
    return tx.one("out_of_order", no=session_no) is not None


def put_in_order(tx: Tx, session_no: int) -> None:
    """Give a session its place in lists again."""
    tx.run("put_in_order", no=session_no)


def set_end_of_log(tx: Tx, session_no: int, *, last_seq: int, active_at: datetime) -> None:
    """Write where a session's log ends and when it was last active."""
    tx.run("set_end_of_log", no=session_no, last_seq=last_seq, last_active_at=to_micros(active_at))


def set_running_turn(tx: Tx, session_no: int, turn_id: str | None) -> None:
    """Write which turn runs in a session."""
    tx.run("set_running_turn", no=session_no, turn_id=turn_id)
