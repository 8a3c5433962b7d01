"""The table of turns."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.model.turn import NEVER, Lease, Turn, TurnState
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import column, moment, settings_of

_NEVER = to_micros(NEVER)
# The bits of `turns.resumable`.
_AFTER_A_CRASH = 1
_HAS_ASKED = 2
_OF_A_PROGRAM = 4


class EndedTurn(NamedTuple):
    """A turn that has just ended, and whether it has asked people something."""

    has_asked: bool


def insert(
    tx: Tx,
    lease: Lease,
    *,
    first_seq: int,
    agent: str | None,
    at: datetime,
    until: datetime,
    resumable: bool = False,
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
        resumable=int(resumable),
    )


def get(tx: Tx, id: str, *, profile: str) -> tuple[Turn, int] | None:
    """A turn of this profile, and its session's number."""
    row = tx.one("get_turn", id=id)
    if row is None or row[-1] != profile:
        return None
    return _turn(row), row[-2]


def ids_by_prefix(tx: Tx, beginning: str, *, profile: str, limit: int) -> list[str]:
    """Return the ids of a profile's turns that begin so."""
    beyond = beginning + "\U0010ffff"
    rows = tx.all(
        "turn_ids_by_prefix", first=beginning, beyond=beyond, profile=profile, limit=limit
    )
    return [id for (id,) in rows]


def of_session(tx: Tx, session_no: int) -> list[Turn]:
    """A session's turns, oldest first."""
    return [_turn(row) for row in tx.all("turns_of_session", no=session_no)]


def list_page(tx: Tx, session_no: int, *, before: int, limit: int) -> list[tuple[int, Turn, int]]:
    """A session's turns with a lower number than `before`, newest first: number, turn, how many answers it has."""
    rows = tx.all("page_of_turns", no=session_no, before=before, limit=limit)
    return [(row[-1], _turn(row), row[-2]) for row in rows]


def running_ids(tx: Tx, session_no: int) -> list[str]:
    """Return the ids of a session's turns that run: one or none, unless the store is damaged."""
    rows = tx.all("turns_of_session", no=session_no)
    return [id for id, _, state, *_ in rows if state == TurnState.RUNNING]


def end(
    tx: Tx, lease: Lease, *, state: TurnState, at: datetime, reason: str | None
) -> EndedTurn | None:
    """Close a running turn; return None if it was not running, or the lease is lost."""
    row = tx.one(
        "end_turn",
        id=lease.turn_id,
        epoch=lease.epoch,
        state=state,
        at=to_micros(at),
        reason=column(reason),
        keep_partial=0,
        request_hash=None,
    )
    if row is None:
        return None
    session_no, resumable = row
    tx.run("free_session", no=session_no, turn_id=lease.turn_id)
    # Here and nowhere else: however a turn ends, what it had reserved of a budget is free again.
    tx.run("release_reservations", turn_id=lease.turn_id)
    if resumable & _OF_A_PROGRAM:
        tx.run("delete_program_state", id=lease.turn_id)
    return EndedTurn(bool(resumable & _HAS_ASKED))


def take_over(tx: Tx, lease: Lease, *, until: datetime, crashes: int, reason: str) -> None:
    """Continue a turn under a new lease, and delete its checkpoint."""
    tx.run(
        "take_over_turn",
        id=lease.turn_id,
        epoch=lease.epoch,
        holder=lease.holder,
        lease_until=to_micros(until),
        crashes=crashes,
        reason=column(reason),
    )


def keep_program_state(tx: Tx, lease: Lease, state: str | None, *, epoch: int) -> Lease | None:
    """Leave a turn to its program from now on, and keep the state of the program's loop with it.

    Return the lease with the new epoch, or None if the lease is lost.
    """
    is_kept = tx.run(
        "keep_program_state",
        id=lease.turn_id,
        epoch=lease.epoch,
        new_epoch=epoch,
        state=None if state is None else codec.encode(state),
    )
    return replace(lease, epoch=epoch) if is_kept else None


def get_program_state(tx: Tx, id: str) -> tuple[str | None] | None:
    """Return what a program keeps with its turn; None if no program has parked the turn."""
    row = tx.one("get_program_state", id=id)
    return None if row is None else (None if row[0] is None else codec.decode(row[0]),)


def set_crash_seq(tx: Tx, id: str, seq: int) -> None:
    """Note the session's last entry when a turn was continued after its process had died."""
    tx.run("set_crash_seq", id=id, seq=seq)


def release(tx: Tx, lease: Lease, *, reason: str) -> bool:
    """Let another process take the turn over at once; say whether the lease still held."""
    return bool(tx.run("release_turn", id=lease.turn_id, epoch=lease.epoch, reason=column(reason)))


def released(tx: Tx, *, profile: str, limit: int) -> list[str]:
    """Return the ids of a profile's running turns that their process has released, oldest first."""
    return [id for (id,) in tx.all("released_turns", profile=profile, limit=limit)]


def set_request(tx: Tx, lease: Lease, name: str) -> bool:
    """Note what the model is sent besides the messages, a blob; say whether the lease still holds."""
    return bool(tx.run("set_request", id=lease.turn_id, epoch=lease.epoch, hash=name))


def take_session(
    tx: Tx, session_no: int, turn_id: str
) -> tuple[int, int, Mapping[str, Any]] | None:
    """Mark an open, idle session as running this turn; the lease's epoch, the last seq and the settings, or None."""
    row = tx.one("take_session", no=session_no, turn_id=turn_id)
    return None if row is None else (row[0], row[1], settings_of(row[2]))


def renew(tx: Tx, lease: Lease, *, until: datetime) -> bool:
    """Extend a lease; say whether its holder still has it."""
    return bool(
        tx.run("renew_lease", id=lease.turn_id, epoch=lease.epoch, lease_until=to_micros(until))
    )


def checkpoint(tx: Tx, lease: Lease, text: str | None) -> bool:
    """Keep what was streamed of an unfinished step; say whether the lease still holds."""
    partial = None if text is None else codec.encode(text)
    return bool(tx.run("checkpoint_turn", id=lease.turn_id, epoch=lease.epoch, partial=partial))


def ask_to_stop(tx: Tx, session_no: int, *, reason: str) -> bool:
    """Ask the turn that runs in a session to stop; say whether one runs."""
    return bool(tx.run("ask_to_stop", session_no=session_no, reason=column(reason)))


def get_stop(tx: Tx, lease: Lease) -> tuple[str | None] | None:
    """Return why the turn was asked to stop (None: it was not), or None when the lease is lost."""
    row = tx.one("stop_asked", id=lease.turn_id, epoch=lease.epoch)
    return None if row is None else (row[0],)


def expired(tx: Tx, *, profile: str, now: datetime, limit: int) -> list[str]:
    """Return the ids of running turns whose lease ran out, the longest ago first.

    Of other profiles, only those that cannot be continued.
    """
    rows = tx.all("expired_turns", profile=profile, now=to_micros(now), limit=limit)
    return [id for (id,) in rows]


def session_no_of(tx: Tx, id: str) -> int | None:
    """Return the number of a turn's session, in whatever profile."""
    row = tx.one("get_turn", id=id)
    return None if row is None else int(row[-2])


def lock_expired(tx: Tx, id: str, *, now: datetime) -> bool:
    """Lock a turn if it runs and its lease ran out; say whether that is so."""
    return tx.one("lock_dead_turn", id=id, now=to_micros(now)) is not None


def holders(tx: Tx, *, senders: bool) -> list[str]:
    """Return the processes that hold a turn or a scheduled run; with `senders`, also those that are sending."""
    rows = [*tx.all("holders"), *(tx.all("senders") if senders else ())]
    return list(dict.fromkeys(holder for (holder,) in rows if holder))


def expire_leases_of(tx: Tx, holder: str) -> list[str]:
    """End all leases of a process that has ended; return the ids of its turns."""
    tx.run("expire_runs_of", holder=holder)
    tx.run("expire_sending_of", holder=holder)
    return [id for (id,) in tx.all("expire_turns_of", holder=holder)]


def expire(tx: Tx, turn: Turn) -> None:
    """End the lease of a turn whose process has ended."""
    tx.run("expire_turn", id=turn.id, epoch=turn.epoch)


def shorten_leases(tx: Tx, *, until: datetime, horizon: datetime) -> None:
    """Shorten the leases of turns and runs that end beyond the horizon: the clock was set back since."""
    limits = {"until": to_micros(until), "horizon": to_micros(horizon)}
    tx.run("shorten_leases", **limits)
    tx.run("shorten_run_leases", **limits)


def is_waiting(state: str, lease_until: int) -> bool:
    """Whether a turn waits for people."""
    return state == TurnState.RUNNING and lease_until == _NEVER


def _turn(row: Row) -> Turn:
    id, session_id, state, epoch, holder, lease_until, began_at, ended_at, *rest = row
    first_seq, agent, reason, partial, resumable, resumed, resume_reason, *rest = rest
    crashes, crash_seq, stop, request_hash, *_ = rest
    return Turn(
        id=id,
        session_id=session_id,
        state=TurnState.WAITING if is_waiting(state, lease_until) else TurnState(state),
        epoch=epoch,
        holder=holder,
        lease_until=from_micros(lease_until),
        began_at=from_micros(began_at),
        ended_at=moment(ended_at),
        first_seq=first_seq,
        agent=agent,
        reason=reason,
        partial=None if partial is None else codec.decode(partial),
        resumable=bool(resumable & _AFTER_A_CRASH),
        has_asked=bool(resumable & _HAS_ASKED),
        is_of_program=bool(resumable & _OF_A_PROGRAM),
        resumed=resumed,
        resume_reason=resume_reason,
        crashes=crashes,
        crash_seq=crash_seq,
        stop=stop,
        request_hash=request_hash,
    )
