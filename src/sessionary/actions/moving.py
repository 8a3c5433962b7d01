"""A chat that gets another id: its conversations, and what waits for them, go with it."""

from dataclasses import dataclass, replace

from sessionary.actions import access, routing
from sessionary.clock import Moment
from sessionary.model.key import SessionKey
from sessionary.model.source import ChatType
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, bindings, sessions


@dataclass(frozen=True, slots=True)
class Move:
    """The old and the new id of a chat."""

    platform: str
    old: str
    new: str


def move_chat(tx: Tx, move: Move, *, profile: str, moment: Moment) -> int:
    """Let the conversations of a chat go on under its new id; how many did.

    One that has begun under the new id already stays as it is. Told twice, it is done once.
    """
    keys = [key for kind in ChatType for key in _keys_of(tx, move, kind, profile=profile)]
    moved = sum(_rename(tx, key, replace(key, chat=move.new)) for key in keys)
    for home in access.homes(tx, profile=profile):
        if (home.platform, home.chat_id) == (move.platform, move.old):
            access.set_home(tx, replace(home, chat_id=move.new), profile=profile, moment=moment)
    return moved


def _keys_of(tx: Tx, move: Move, kind: ChatType, *, profile: str) -> list[SessionKey]:
    wanted = SessionKey(profile=profile, platform=move.platform, chat_type=kind, chat=move.old)
    keys = map(SessionKey.parse, bindings.keys_from(tx, str(wanted), profile=profile))
    return [key for key in keys if key.chat == move.old]


def _rename(tx: Tx, old: SessionKey, new: SessionKey) -> bool:
    for key in sorted((old, new), key=str):
        routing.lock(tx, key)
    arrivals.rename_key(tx, str(old), str(new), profile=old.profile)
    if routing.current(tx, new) is not None:
        return False
    no = sessions.open_session_of_key(tx, str(old), profile=old.profile)
    if no is not None:
        sessions.set_key(tx, no, str(new))
    return bindings.rename(tx, str(old), str(new), profile=old.profile)
