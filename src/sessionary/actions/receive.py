"""Into the inbox: durable before it is acknowledged, and only once."""

import hashlib
from dataclasses import dataclass

from sessionary.actions import routing
from sessionary.actions.log import MAX_IDEMPOTENCY_KEY, check_idempotency_key
from sessionary.clock import Moment
from sessionary.model.key import SessionKey, check_length, check_person
from sessionary.model.message import Message
from sessionary.model.source import Source, escape
from sessionary.model.turn import Arrival
from sessionary.store.database import RaceLost, Tx
from sessionary.store.tables import arrivals


@dataclass(frozen=True, slots=True)
class ArrivalCame:
    """Published after a commit: something waits for this key."""

    profile: str
    key: str


def receive(
    tx: Tx,
    key: SessionKey,
    source: Source,
    said: Message,
    *,
    moment: Moment,
    idempotency_key: str | None = None,
) -> tuple[Arrival, bool]:
    """Write an arrival, or find the one that came first with the same idempotency key; say whether it is new.

    A platform's message id names a message within its chat; without any key it is new each time.
    """
    check_length(key)
    check_person(source.person)
    id = moment.new_id()
    name = idempotency_key or platform_idempotency_key(source) or f"arrival/{id}"
    check_idempotency_key(name)
    # A row's number is given before its commit: of one key, the earlier is seen the earlier.
    routing.lock(tx, key)
    new = arrivals.insert(
        tx,
        id,
        profile=key.profile,
        idempotency_key=name,
        key=str(key),
        source=source,
        message=said,
        at=moment.now,
    )
    if new is not None:
        tx.after_commit(ArrivalCame(key.profile, str(key)))
        return new, True
    found = arrivals.get_by_idempotency_key(tx, name, profile=key.profile)
    if found is None:
        raise RaceLost
    return found, False


def platform_idempotency_key(source: Source) -> str | None:
    """The idempotency key of a platform's message, or None when the platform gave no id."""
    if source.platform_message_id is None:
        return None
    where = (source.platform, source.chat_id or source.user_id or "", source.platform_message_id)
    name = "/".join(escape(each) for each in where)
    if len(name) <= MAX_IDEMPOTENCY_KEY:
        return name
    # Whoever wrote the message chose none of this: a long id is kept by its hash.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{escape(source.platform)[:100]}/sha256/{digest}"


def waiting_keys(tx: Tx, *, profile: str, limit: int) -> list[str]:
    """The keys that have something waiting, the oldest first."""
    return arrivals.keys_waiting(tx, profile=profile, limit=limit)
