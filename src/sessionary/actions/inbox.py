"""The inbox: arrivals are durable before they are acknowledged, stored once, and can be changed while they wait."""

import hashlib

from msgspec import Struct

from sessionary.actions.sessions import log, routing
from sessionary.actions.sessions.log import MAX_IDEMPOTENCY_KEY, check_idempotency_key
from sessionary.clock import Moment
from sessionary.errors import Conflict, NotAllowed, NotFound
from sessionary.model.message import Message
from sessionary.model.source import (
    Channel,
    ChatType,
    SessionKey,
    Source,
    check_length,
    check_person,
    escape,
    is_by_program,
    key_for,
)
from sessionary.model.turn import Arrival, ArrivalState
from sessionary.store.database import RaceLost, Tx
from sessionary.store.tables import arrivals, meta, sessions


class ArrivalReceived(Struct, frozen=True):
    """Published after a commit: something waits for this key."""

    profile: str
    key: str


def receive(
    tx: Tx,
    key: SessionKey,
    source: Source,
    message: Message,
    *,
    moment: Moment,
    idempotency_key: str | None = None,
) -> tuple[Arrival, bool]:
    """Store a message in the inbox, or find the one with the same idempotency key; say whether it is new.

    The default key is the platform's message id within its chat; without one, each message is new.
    """
    check_length(key)
    check_person(source.person)
    id = moment.new_id()
    name = idempotency_key_of(source, id, idempotency_key)
    # A row gets its number before its commit; the lock keeps the messages of one key in order.
    routing.lock_key(tx, key)
    new = arrivals.insert(
        tx,
        id,
        profile=key.profile,
        idempotency_key=name,
        key=str(key),
        source=source,
        message=message,
        at=moment.now,
    )
    if new is not None:
        tx.after_commit(ArrivalReceived(key.profile, str(key)))
        return new, True
    found = arrivals.get_by_idempotency_key(tx, name, profile=key.profile)
    if found is None:
        raise RaceLost
    return found, False


def idempotency_key_of(source: Source, arrival_id: str, given: str | None) -> str:
    """The idempotency key of a message: the given one, the platform's, or one that no other message has."""
    name = given or platform_idempotency_key(source) or f"arrival/{arrival_id}"
    check_idempotency_key(name)
    return name


def platform_idempotency_key(source: Source) -> str | None:
    """The idempotency key of a platform's message, or None when the platform gave no id."""
    if source.platform_message_id is None:
        return None
    where = (source.platform, source.chat_id or source.user_id or "", source.platform_message_id)
    name = "/".join(escape(each) for each in where)
    if len(name) <= MAX_IDEMPOTENCY_KEY:
        return name
    # The writer has no influence on the platform's ids: a long one is replaced by its hash.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{escape(source.platform)[:100]}/sha256/{digest}"


TAKEN_BACK = "taken back"
list_waiting_keys = arrivals.keys_waiting


def rewrite(
    tx: Tx, id: str, message: Message, *, profile: str, moment: Moment, by_program: bool = False
) -> Arrival:
    """Replace a message that waits; only one that was written in the named session itself.

    A program that may not approve replaces only what such a program has written: its turn has other rights.
    """
    found = _waiting(tx, id, profile=profile)
    if by_program and not is_by_program(found.source):
        raise NotAllowed(
            "A person wrote that message; nothing was changed. A token of the scope admin may change it."
        )
    if not SessionKey.parse(found.key).names_session:
        raise Conflict("Someone else wrote that message; nothing was changed. It can be removed.")
    if not arrivals.rewrite(tx, found, message, profile=profile, at=moment.now):
        raise _taken(found)
    _notify(tx, found)
    return _get(tx, id, profile=profile)


def withdraw(tx: Tx, id: str, *, profile: str) -> Arrival:
    """Withdraw a message that waits; its row stays, and it is never answered."""
    found = _waiting(tx, id, profile=profile)
    if not arrivals.refuse(tx, found, reason=TAKEN_BACK):
        raise _taken(found)
    _notify(tx, found)
    return _get(tx, id, profile=profile)


def _waiting(tx: Tx, id: str, *, profile: str) -> Arrival:
    found = _get(tx, id, profile=profile)
    # Who begins a turn locks the key before reading what waits.
    routing.lock_key(tx, SessionKey.parse(found.key))
    found = _get(tx, id, profile=profile)
    if found.state is not ArrivalState.WAITING:
        raise _taken(found)
    return found


def _taken(found: Arrival) -> Conflict:
    return Conflict(f"Message {found.id} waits no longer ({found.state}); nothing was changed.")


def _get(tx: Tx, id: str, *, profile: str) -> Arrival:
    found = arrivals.get(tx, id, profile=profile)
    if found is None:
        raise NotFound(f"There is no arrival {id}.")
    return found


def _notify(tx: Tx, found: Arrival) -> None:
    """Tell those who watch the session that what waits for it has changed."""
    head = routing.get_current(tx, SessionKey.parse(found.key))
    if head is not None:
        log.notify(tx, head)


# In a group, each person may have a key of their own: this many keys per channel are read.
_KEYS_PER_CHANNEL = 20


def get_position(tx: Tx, platform: str, *, profile: str) -> str | None:
    """How far a platform's messages were read, in its own form; None the first time."""
    return meta.get(tx, _position_name(platform, profile))


def set_position(tx: Tx, platform: str, position: str, *, profile: str) -> None:
    """Note that everything up to this position is stored."""
    meta.put(tx, _position_name(platform, profile), position)


def list_channels(tx: Tx, platform: str, *, profile: str, limit: int) -> list[Channel]:
    """The channels of a platform that have a conversation, latest activity first."""
    first = f"{profile}/{escape(platform)}/"
    latest = sessions.latest_keys(tx, first, profile=profile, limit=limit * _KEYS_PER_CHANNEL)
    keys = map(SessionKey.parse, latest)
    found = (Channel(platform, key.chat, key.thread) for key in keys if key.chat is not None)
    return list(dict.fromkeys(found))[:limit]


def has_conversation(tx: Tx, channel: Channel, *, profile: str) -> bool:
    """Whether anyone has talked with the agent in this chat, in whatever thread of it."""
    for chat_type in ChatType:
        # By the rule that routes messages, because some platforms write one chat's id in several ways.
        source = Source(channel.platform, channel.chat_id, chat_type=chat_type)
        key = key_for(source, profile=profile)
        if sessions.session_of_key(tx, str(key), profile=profile) is not None:
            return True
        if sessions.has_keys_below(tx, str(key), profile=profile):
            return True  # a thread or a person of the chat
    return False


def _position_name(platform: str, profile: str) -> str:
    return f"place {profile} {platform}"
