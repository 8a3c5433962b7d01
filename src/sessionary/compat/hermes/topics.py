"""Topics of a Telegram chat that are bound to sessions: a binding is kept with its session, and goes with it."""

from typing import Any

from sessionary.actions.sessions import edit
from sessionary.clock import Moment
from sessionary.compat.hermes import rows, sessions
from sessionary.compat.hermes.rows import KEPT, Json
from sessionary.model import codec
from sessionary.model.session import SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import meta
from sessionary.store.tables import sessions as session_table

TELEGRAM = "telegram"
_MODE = "hermes/topic-mode/"
# Under a chat and a thread: the id of the session whose binding counts.
_BOUND = "hermes/topic/"
_TOPIC = "topic"


def enable(tx: Tx, chat_id: str, user_id: str, facts: Json, *, moment: Moment) -> None:
    """Let one chat have a session for each topic; for that person."""
    name = f"{_MODE}{codec.storable_text(chat_id)}"
    now = moment.now.timestamp()
    earlier = _decoded(meta.get(tx, name))
    state = facts | {"user_id": user_id, "enabled": True, "updated_at": now}
    state["activated_at"] = earlier.get("activated_at", now)
    meta.put(tx, name, codec.encode(state))


def disable(tx: Tx, chat_id: str, *, clears: bool) -> None:
    """End the topics of one chat, with or without their bindings."""
    name = f"{_MODE}{codec.storable_text(chat_id)}"
    state = _decoded(meta.get(tx, name))
    if state:
        meta.put(tx, name, codec.encode(state | {"enabled": False}))
    if clears:
        for bound, _ in meta.starting_with(tx, _beginning(chat_id)):
            meta.put(tx, bound, "")


def unbind(tx: Tx, chat_id: str, thread_id: str) -> None:
    """Take the session from a topic."""
    if meta.get(tx, _name(chat_id, thread_id)):
        meta.put(tx, _name(chat_id, thread_id), "")


def is_enabled(tx: Tx, chat_id: str, user_id: str) -> bool:
    """Whether this person's chat has topics."""
    state = _decoded(meta.get(tx, f"{_MODE}{codec.storable_text(chat_id)}"))
    return bool(state.get("enabled")) and state.get("user_id") == user_id


def bind(tx: Tx, binding: Json, *, profile: str, moment: Moment) -> None:
    """Bind a topic to a session; an unknown id gets a session. A session has one topic at a time."""
    chat_id, thread_id, id = (binding[name] for name in ("chat_id", "thread_id", "session_id"))
    session_table.lock_key(tx, _BOUND, profile=profile)
    linked = of_session(tx, id, profile=profile)
    if linked is not None and (linked["chat_id"], linked["thread_id"]) != (chat_id, thread_id):
        raise ValueError(
            f"Session {id} is already linked to topic {linked['thread_id']} of chat {linked['chat_id']}"
        )
    now = moment.now.timestamp()
    earlier = of_topic(tx, chat_id, thread_id, profile=profile) or {}
    times = {"linked_at": earlier.get("linked_at", now), "updated_at": now}
    given = {"user_id": binding["user_id"]}
    head = sessions.create(tx, id, TELEGRAM, given, profile=profile, moment=moment)
    edit.update_extra(tx, head, KEPT, lambda kept: kept | {_TOPIC: binding | times})
    meta.put(tx, _name(chat_id, thread_id), codec.storable_text(id))


def of_topic(tx: Tx, chat_id: str, thread_id: str, *, profile: str) -> Json | None:
    """The binding of a topic, or None."""
    return of_session(tx, meta.get(tx, _name(chat_id, thread_id)), profile=profile)


def of_session(tx: Tx, id: str | None, *, profile: str) -> Json | None:
    """The binding of a session; None if its topic is bound to another by now."""
    head = rows.find_session(tx, id, profile=profile)
    return None if head is None else _binding(tx, head)


def of_chat(tx: Tx, chat_id: str, *, profile: str) -> list[Json]:
    """The bindings of a chat, the last changed first."""
    ids = [id for _, id in meta.starting_with(tx, _beginning(chat_id))]
    found = [each for id in ids if (each := of_session(tx, id, profile=profile)) is not None]
    return sorted(found, key=lambda each: float(each["updated_at"]), reverse=True)


def unlinked(tx: Tx, user_id: str, *, limit: int, profile: str) -> list[SessionHead]:
    """A person's Telegram sessions without a topic, the last active first."""
    found: list[SessionHead] = []
    for head in sessions.all_heads(tx, profile=profile, platform=TELEGRAM, by_activity=True):
        if len(found) >= limit:
            break
        if head.source.user_id == user_id and _binding(tx, head) is None:
            found.append(head)
    return found


def _binding(tx: Tx, head: SessionHead) -> Json | None:
    found = rows.kept_fields(tx, head).get(_TOPIC)
    if not isinstance(found, dict):
        return None
    bound = meta.get(tx, _name(found["chat_id"], found["thread_id"]))
    return dict(found) if bound == codec.storable_text(head.id) else None


def _beginning(chat_id: str) -> str:
    # The length comes first: no chat's names begin like another's.
    return f"{_BOUND}{len(chat_id)}:{codec.storable_text(chat_id)}:"


def _name(chat_id: str, thread_id: str) -> str:
    return f"{_beginning(chat_id)}{codec.storable_text(thread_id)}"


def _decoded(text: str | None) -> dict[str, Any]:
    return dict(codec.decode(text)) if text else {}
