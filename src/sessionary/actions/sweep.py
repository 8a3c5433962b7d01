"""What a periodic sweep does with expired leases, sessions that are due for a reset, finalizers and the trash."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from sessionary.actions.retention import purge
from sessionary.actions.sessions import routing
from sessionary.clock import Moment
from sessionary.model.reset import Policies
from sessionary.model.source import SessionKey, Source
from sessionary.store.database import Tx
from sessionary.store.tables import deliveries, sessions, turns
from sessionary.store.tables.sessions import EndedSession

# How much one transaction of the sweep handles.
BATCH = 100
PURGED_AT_ONCE = 10
# A lease, or the wait before a delivery is tried again, that is longer was set before the clock was set back.
LONGEST_LEASE = timedelta(hours=1)
LONGEST_WAIT = timedelta(hours=25)  # adapters wait at most a day
# How often the finalizers of a session are tried.
TRIES = 3


class ExpiredSession(Struct, frozen=True):
    """A session that the sweep has ended by its reset policy."""

    profile: str
    session_id: str
    key: str
    reason: str


def list_expired_turns(tx: Tx, *, profile: str, now: datetime) -> list[str]:
    """Return the ids of running turns whose lease ran out; of other profiles, only those that cannot be continued."""
    return turns.expired(tx, profile=profile, now=now, limit=BATCH)


def list_holders(tx: Tx, *, senders: bool) -> list[str]:
    """Return the processes that hold a lease of a turn or a scheduled run; with `senders`, also of a delivery."""
    return turns.holders(tx, senders=senders)


def expire_leases_of(tx: Tx, holders: Iterable[str]) -> list[str]:
    """End the leases of processes that have ended; return the ids of their turns."""
    return [id for holder in holders for id in turns.expire_leases_of(tx, holder)]


def shorten_overlong_waits(
    tx: Tx, *, now: datetime, lease_seconds: float, send_seconds: float
) -> None:
    """Shorten leases and waits that end too far in the future: they were set before the clock was set back."""
    lease, sending = timedelta(seconds=lease_seconds), timedelta(seconds=send_seconds)
    turns.shorten_leases(tx, until=now + lease, horizon=now + max(LONGEST_LEASE, 2 * lease))
    deliveries.shorten_waits(tx, now=now, lease_until=now + sending, horizon=now + LONGEST_WAIT)


def end_expired_sessions(tx: Tx, policies: Policies, *, moment: Moment) -> list[ExpiredSession]:
    """End the sessions that are due for a reset by their policy, instead of waiting for the next message."""
    ended: list[ExpiredSession] = []
    for platform, chat_type in sessions.open_platforms(tx):
        policy = policies.choose(Source(platform=platform, chat_type=chat_type))
        cutoff = policy.cutoff(moment.now)
        if cutoff is None:
            continue
        for due in sessions.due_for_reset(
            tx, platform, chat_type, cutoff=cutoff, now=moment.now, limit=BATCH
        ):
            routing.lock_key(tx, SessionKey.parse(due.key))
            head = routing.lock_and_reload(tx, due.no)
            reason = None
            if head.is_open:
                reason = routing.get_reset_reason(tx, head, policy=policy, moment=moment)
            if reason is not None and routing.end_session(tx, head, reason=reason, moment=moment):
                ended.append(ExpiredSession(due.profile, due.id, due.key, reason))
    return ended


def list_to_finalize(tx: Tx) -> list[EndedSession]:
    """Return ended sessions whose finalizers must still run."""
    return sessions.due_for_finalizing(tx, tries=TRIES, limit=BATCH)


def mark_finalized(tx: Tx, ended: EndedSession, *, moment: Moment) -> None:
    """Record that the finalizers of this end have run; they run again if the session is reopened and ends again."""
    sessions.mark_finalized(tx, ended, at=moment.now)


def mark_finalize_failed(tx: Tx, ended: EndedSession, *, error: str, moment: Moment) -> None:
    """Count a failed run of the finalizers and store its error; after `TRIES` failures they are not run again."""
    sessions.mark_finalize_failed(tx, ended, error=error, at=moment.now, tries=TRIES)


def empty_trash(tx: Tx, *, moment: Moment) -> list[str]:
    """Purge up to `PURGED_AT_ONCE` sessions that have been in the trash for too long; return their ids."""
    kept = 0
    while page := purge.expired_trash(tx, now=moment.now, limit=kept + PURGED_AT_ONCE)[kept:]:
        done = [id for id in page if purge.purge_trash(tx, id, moment=moment)]
        if done:
            return done
        kept += len(page)  # none of these can be purged now: try those after them
    return []
