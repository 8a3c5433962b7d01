"""The table of turns."""

from datetime import datetime

from sessionary.clock import from_micros, to_micros
from sessionary.model import json_codec
from sessionary.model.turn import Lease, Turn, TurnState
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import column, moment


def insert(
    tx: Tx, lease: Lease, *, first_seq: int, agent: str | None, at: datetime, until: datetime
) -> None:
    """Write a running turn's row."""
    tx.run(
        "insert_turn",
        id=lease.turn_id,
        session_no=lease.session_no,
        agent=column(agent),
        epoch=lease.epoch,
        holder=lease.holder,
        lease_until=to_micros(until),
        at=to_micros(at),
        first_seq=first_seq,
    )


def get(tx: Tx, id: str, *, profile: str) -> tuple[Turn, int] | None:
    """A turn of this profile, and its session's number."""
    row = tx.one("get_turn", id=id)
    if row is None or row[-1] != profile:
        return None
    return _turn(row), row[-2]


def of_session(tx: Tx, session_no: int) -> list[Turn]:
    """A session's turns, oldest first."""
    return [_turn(row) for row in tx.all("turns_of_session", no=session_no)]


def end(tx: Tx, id: str, *, state: TurnState, at: datetime, reason: str | None) -> bool:
    """Close a running turn; say whether it was running."""
    row = tx.one(
        "end_turn", id=id, state=state, at=to_micros(at), reason=column(reason), keep_partial=0
    )
    if row is None:
        return False
    tx.run("free_session", no=row[0], turn_id=id)
    # Here and nowhere else: however a turn ends, what it had reserved of a budget is free again.
    tx.run("release_reservations", turn_id=id)
    return True


def _turn(row: Row) -> Turn:
    partial = row[11]
    return Turn(
        id=row[0],
        session_id=row[1],
        state=TurnState(row[2]),
        epoch=row[3],
        holder=row[4],
        lease_until=from_micros(row[5]),
        began_at=from_micros(row[6]),
        ended_at=moment(row[7]),
        first_seq=row[8],
        agent=row[9],
        reason=row[10],
        partial=None if partial is None else json_codec.decode(partial),
    )
