"""Which key is on which session, as a list, and when that ends by itself."""

from dataclasses import dataclass
from datetime import datetime

from sessionary.errors import BadInput, NotFound
from sessionary.model.key import key_for
from sessionary.model.redact import redact_key
from sessionary.model.reset import Policies, ResetPolicy
from sessionary.model.session import Lineage, SessionHead
from sessionary.model.source import at_session
from sessionary.store.database import Tx
from sessionary.store.tables import bindings, sessions

MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Binding:
    """A key and the session it is on."""

    key: str
    session: SessionHead
    bound_at: datetime


@dataclass(frozen=True, slots=True)
class Bindings:
    """One page of bindings, and where the next begins."""

    items: tuple[Binding, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class LastReset:
    """The session that was over before, and why."""

    session_id: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NextReset:
    """When a key's session ends by itself if nobody writes, and why the last one did."""

    policy: ResetPolicy
    resets_at: datetime | None
    held: bool
    last_reset: LastReset | None


def listing(
    tx: Tx,
    *,
    profile: str,
    limit: int = 100,
    cursor: str | None = None,
    chats_only: bool = False,
) -> Bindings:
    """The keys of a profile in order, a page at a time; perhaps without who only named a session."""
    if not 1 <= limit <= MAX_LIMIT:
        raise BadInput(f"A page has 1 to {MAX_LIMIT:,} items, not {limit}.")
    named = str(key_for(at_session(""), profile=profile))
    rows = bindings.page(
        tx,
        profile=profile,
        after=cursor or "",
        limit=limit + 1,
        without=named if chats_only else None,
    )
    shown = rows[:limit]
    items = tuple(
        Binding(row.key, sessions.get_by_no(tx, row.session_no), row.bound_at) for row in shown
    )
    return Bindings(items, shown[-1].key if len(rows) > limit else None)


def key_behind(tx: Tx, redacted: str, *, profile: str) -> str:
    """Return the bound key that `redact_key` shortened to this, so that redacted keys can be used in requests."""
    for key in bindings.keys_from(tx, f"{profile}/", profile=profile):
        if redact_key(key) == redacted:
            return key
    raise NotFound("No chat has that key any more; nothing was written. Read the list again.")


def next_reset(tx: Tx, head: SessionHead, policies: Policies, *, now: datetime) -> NextReset:
    """What will become of the session that a key is on, and what became of the one before it."""
    policy = policies.choose(head.source)
    due = policy.next_due(last_active=head.last_active_at) if head.is_open else None
    held = head.running or sessions.is_held(tx, head.no, now=now)
    return NextReset(policy, due, held, _last_reset(tx, head))


def _last_reset(tx: Tx, head: SessionHead) -> LastReset | None:
    over: SessionHead | None = head
    if head.is_open:
        came = head.lineage is Lineage.RESET and head.parent_id is not None
        over = sessions.get(tx, head.parent_id or "", profile=head.profile) if came else None
    if over is None or over.ended_at is None or over.end_reason is None:
        return None
    return LastReset(over.id, over.end_reason, over.ended_at)
