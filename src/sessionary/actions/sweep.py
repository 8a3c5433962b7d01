"""What time brings about: leases that ran out, sessions that are over, ends to be finalized."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sessionary.actions import routing, turns
from sessionary.actions.retention import purge
from sessionary.clock import Moment, from_micros, to_micros
from sessionary.model.key import SessionKey
from sessionary.model.reset import Policies
from sessionary.model.source import Source
from sessionary.model.turn import Turn
from sessionary.store.database import Tx
from sessionary.store.tables import deliveries, sessions
from sessionary.store.tables import turns as turn_rows

BATCH = 100
FEW = 10
LONGEST_LEASE = timedelta(hours=1)
# Adapters wait a day at most, whatever a platform says.
LONGEST_PATIENCE = timedelta(hours=25)
TRIES = 3


@dataclass(frozen=True, slots=True)
class Expired:
    """A session that a sweep has ended."""

    profile: str
    session_id: str
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToFinalize:
    """An ended session for which what must follow an end has not been done."""

    no: int
    session_id: str
    profile: str
    reason: str
    tries: int
    ended_at: datetime


def expired_turns(tx: Tx, *, now: datetime) -> list[str]:
    """The turns whose lease ran out, as the clock on the wall says."""
    return turn_rows.expired(tx, now=now, limit=BATCH)


def interrupt_dead_turns(
    tx: Tx, *, moment: Moment, among: Collection[str] | None = None
) -> list[Turn]:
    """Interrupt the turns whose lease ran out. A turn that is merely slow renews its lease.

    `among`: only these, which someone has looked at twice.
    """
    ended = []
    for turn_id in expired_turns(tx, now=moment.now):
        if among is not None and turn_id not in among:
            continue
        session_no = turn_rows.session_no_of(tx, turn_id)
        if session_no is not None:
            turn = turns.interrupt_dead(tx, turn_id, session_no=session_no, moment=moment)
            if turn is not None:
                ended.append(turn)
    return ended


def follow_clock(tx: Tx, *, now: datetime, lease_seconds: float, send_seconds: float) -> None:
    """After the clock was set back: what was to be over in its old time is not kept until then."""
    lease, sending = timedelta(seconds=lease_seconds), timedelta(seconds=send_seconds)
    turn_rows.shorten_leases(tx, until=now + lease, horizon=now + max(LONGEST_LEASE, 2 * lease))
    deliveries.shorten_waits(tx, now=now, lease_until=now + sending, horizon=now + LONGEST_PATIENCE)


def end_expired_sessions(tx: Tx, policies: Policies, *, moment: Moment) -> list[Expired]:
    """End the sessions whose policy says that they are over, by the rule of the message path."""
    ended: list[Expired] = []
    for platform, chat_type in tx.all("places_with_open_sessions"):
        policy = policies.choose(Source(platform=platform, chat_type=chat_type))
        cutoff = policy.cutoff(moment.now)
        if cutoff is None:
            continue
        rows = tx.all(
            "due_for_reset",
            platform=platform,
            chat_type=chat_type,
            cutoff=to_micros(cutoff),
            now=to_micros(moment.now),
            limit=BATCH,
        )
        for no, id, profile, key, _ in rows:
            routing.lock(tx, SessionKey.parse(key))
            head = routing.lock_and_reload(tx, no)
            reason = (
                routing.reset_due(tx, head, policy=policy, moment=moment) if head.is_open else None
            )
            if reason is not None and routing.end(tx, head, reason=reason, moment=moment):
                ended.append(Expired(profile, id, key, reason))
    return ended


def to_finalize(tx: Tx, *, limit: int = BATCH) -> list[ToFinalize]:
    """Ended sessions that wait for their finalizers."""
    rows = tx.all("due_for_finalizing", tries=TRIES, limit=limit)
    return [
        ToFinalize(no, id, profile, reason, tries, from_micros(ended_at))
        for no, id, profile, reason, tries, ended_at in rows
    ]


def finalized(tx: Tx, ended: ToFinalize, *, moment: Moment) -> None:
    """Note that what must follow this end has been done; a later end of the session has its own."""
    at, ended_at = to_micros(moment.now), to_micros(ended.ended_at)
    tx.run("mark_finalized", no=ended.no, at=at, ended_at=ended_at)


def finalizing_failed(tx: Tx, ended: ToFinalize, *, error: str, moment: Moment) -> None:
    """Note a failed try; after the third it is given up, and the error stays to be seen."""
    tx.run(
        "mark_finalize_failed",
        no=ended.no,
        ended_at=to_micros(ended.ended_at),
        error=sessions.column(error),
        at=to_micros(moment.now),
        tries=TRIES,
    )


def empty_trash(tx: Tx, *, moment: Moment) -> list[str]:
    """Purge what has been in the trash for too long; a few at a time."""
    stuck = 0
    while page := purge.expired_trash(tx, now=moment.now, limit=stuck + FEW)[stuck:]:
        done = [id for id in page if purge.purge_trash(tx, id, moment=moment)]
        if done:
            return done
        stuck += len(page)  # they stay where they are; what is behind them goes
    return []
