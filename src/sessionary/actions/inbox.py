"""The inbox: arrivals are durable before they are acknowledged, stored once, and can be changed while they wait."""

import hashlib
from dataclasses import dataclass

from sessionary.actions.sessions import log, routing
from sessionary.actions.sessions.log import MAX_IDEMPOTENCY_KEY, check_idempotency_key
from sessionary.clock import Moment
from sessionary.errors import Conflict, NotFound
from sessionary.model.key import SessionKey, check_length, check_person, key_for
from sessionary.model.message import Message
from sessionary.model.source import Channel, ChatType, Source, escape
from sessionary.model.turn import Arrival, ArrivalState
from sessionary.store.database import RaceLost, Tx
from sessionary.store.tables import arrivals, bindings


@dataclass(frozen=True, slots=True)
class ArrivalReceived:
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
    routing.lock_key(tx, key)
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
        tx.after_commit(ArrivalReceived(key.profile, str(key)))
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


def list_waiting_keys(tx: Tx, *, profile: str, limit: int) -> list[str]:
    """The keys that have something waiting, the oldest first."""
    return arrivals.keys_waiting(tx, profile=profile, limit=limit)


TAKEN_BACK = "taken back"


def rewrite(tx: Tx, id: str, said: Message, *, profile: str, moment: Moment) -> Arrival:
    """Put other words into a message that waits; only its own writer's, who named the session."""
    found = _waiting(tx, id, profile=profile)
    if not SessionKey.parse(found.key).names_session:
        raise Conflict("Someone else wrote that message; nothing was changed. It can be removed.")
    if not arrivals.rewrite(tx, found, said, profile=profile, at=moment.now):
        raise _taken(found)
    _tell(tx, found)
    return _get(tx, id, profile=profile)


def withdraw(tx: Tx, id: str, *, profile: str) -> Arrival:
    """Take a message back that waits; it stays known, and is never answered."""
    found = _waiting(tx, id, profile=profile)
    if not arrivals.refuse(tx, found, reason=TAKEN_BACK):
        raise _taken(found)
    _tell(tx, found)
    return _get(tx, id, profile=profile)


def _waiting(tx: Tx, id: str, *, profile: str) -> Arrival:
    found = _get(tx, id, profile=profile)
    # Whoever begins a turn holds the key first, and reads what waits only then.
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


def _tell(tx: Tx, found: Arrival) -> None:
    """Whoever looks at the session sees what waits as it is now."""
    head = routing.get_current(tx, SessionKey.parse(found.key))
    if head is not None:
        log.notify(tx, head)


# Who writes in a channel may have a key of their own there: so many of them are expected.
_PEOPLE = 20


def get_position(tx: Tx, platform: str, *, profile: str) -> str | None:
    """What was kept last, in the platform's own words; None at the first time."""
    row = tx.one("get_meta", name=_name(platform, profile))
    return None if row is None else str(row[0])


def set_position(tx: Tx, platform: str, place: str, *, profile: str) -> None:
    """Everything up to here is durable."""
    tx.run("set_meta", name=_name(platform, profile), value=place)


def list_channels(tx: Tx, platform: str, *, profile: str, most: int) -> list[Channel]:
    """The channels of a platform that have a conversation, those spoken in last first."""
    first = f"{profile}/{escape(platform)}/"
    latest = bindings.latest_keys(tx, first, profile=profile, limit=most * _PEOPLE)
    keys = map(SessionKey.parse, latest)
    found = (Channel(platform, key.chat, key.thread) for key in keys if key.chat is not None)
    return list(dict.fromkeys(found))[:most]


def has_conversation(tx: Tx, channel: Channel, *, profile: str) -> bool:
    """Whether anyone has talked with the agent in this chat, in whatever thread of it."""
    for chat_type in ChatType:
        # By the rule that routes messages: some platforms write one chat's id in several ways.
        source = Source(channel.platform, channel.chat_id, chat_type=chat_type)
        key = key_for(source, profile=profile)
        if bindings.session_of(tx, str(key), profile=profile) is not None:
            return True
        if bindings.has_keys_below(tx, str(key), profile=profile):
            return True  # a thread or a person of the chat
    return False


def _name(platform: str, profile: str) -> str:
    return f"place {profile} {platform}"
