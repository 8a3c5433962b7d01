"""How far a channel has read its platform, for those platforms that do not know it themselves."""

from sessionary.model.key import SessionKey, key_for
from sessionary.model.source import Channel, ChatType, Source, escape
from sessionary.store.database import Tx
from sessionary.store.tables import bindings

# Who writes in a channel may have a key of their own there: so many of them are expected.
_PEOPLE = 20


def place(tx: Tx, platform: str, *, profile: str) -> str | None:
    """What was kept last, in the platform's own words; None at the first time."""
    row = tx.one("get_meta", name=_name(platform, profile))
    return None if row is None else str(row[0])


def keep_place(tx: Tx, platform: str, place: str, *, profile: str) -> None:
    """Everything up to here is durable."""
    tx.run("set_meta", name=_name(platform, profile), value=place)


def chats(tx: Tx, platform: str, *, profile: str, most: int) -> list[Channel]:
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
