"""The messages of a thread as messages of a session, each once: the recorder and the checkpointer share this."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from sessionary.actions.sessions import append, log
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.integrations import thread
from sessionary.integrations.base import SessionaryClient, require_extra
from sessionary.integrations.langchain import message_of, model_of, usage_of
from sessionary.integrations.thread import ExternalThread
from sessionary.model import codec
from sessionary.model.message import Message
from sessionary.model.session import SessionHead
from sessionary.model.source import Person, escape
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import entries

with require_extra("langgraph", "The storage for LangGraph"):
    from langchain_core.messages import BaseMessage

PLATFORM = "langgraph"
_MOST_THREADS = 1000
# A longer name is cut, and told apart by a hash: a key of a session has a limit.
_LONGEST_NAME = 600
_NAME_BEGINNING = 80


class ThreadMessage(NamedTuple):
    """A message of a thread by its id, and the model call that it is the answer of."""

    id: str
    message: Message
    usage: Usage | None


class NewMessages(NamedTuple):
    """Messages that are not known to be in the session of their thread."""

    where: ExternalThread
    rows: tuple[ThreadMessage, ...]


@dataclass(slots=True)
class _Written:
    """The messages of a thread that are in its session."""

    session_no: int | None
    ids: set[str]


class ThreadRecorder:
    """Finds the messages of threads that are not in their sessions yet."""

    def __init__(self, client: SessionaryClient, *, profile: str) -> None:
        self._client = client
        self._profile = profile
        self._seen: dict[str, _Written] = {}

    def where(
        self, name: str, *, model: str | None = None, person: Person | None = None
    ) -> ExternalThread:
        """The session of a thread."""
        facts = {} if person is None else {"user_id": person.id, "user_name": person.name}
        source = thread.source_for(PLATFORM, _session_name(name), **facts)
        return ExternalThread(self._profile, source, model=model)

    def find_new(
        self, name: str, found: Any, *, person: Person | None = None
    ) -> NewMessages | None:
        """Return what a channel has that was not noted as written; None if there is nothing."""
        given = found if isinstance(found, Sequence) else [found]
        known = self._seen.get(name)
        seen = known.ids if known is not None else frozenset[str]()
        # Without an id it is not in the thread yet; the next node reads it with one.
        new = [
            each
            for each in given
            if isinstance(each, BaseMessage) and each.id and each.id not in seen
        ]
        if not new:
            return None
        model = next((found for each in new if (found := model_of(each))), None)
        rows = tuple(
            ThreadMessage(str(each.id), message_of(each), self._used(name, each)) for each in new
        )
        return NewMessages(self.where(name, model=model, person=person), rows)

    def note(self, name: str, new: NewMessages, *, session_no: int | None = None) -> None:
        """Note that messages are written; those of another session of this thread are forgotten."""
        known = self._seen.get(name)
        if known is None or known.session_no != session_no:
            known = self._seen[name] = _Written(session_no, set())
        known.ids.update(row.id for row in new.rows)
        while len(self._seen) > _MOST_THREADS:
            self._seen.pop(next(iter(self._seen)), None)  # another thread may be first

    def is_outdated(self, name: str, session_no: int | None) -> bool:
        """Whether messages of a thread are noted as written into another session than this one."""
        known = self._seen.get(name)
        return known is not None and known.session_no != session_no

    def forget(self, name: str) -> None:
        """Forget what is noted of a thread: its session is over."""
        self._seen.pop(name, None)

    def _used(self, name: str, native: BaseMessage) -> Usage | None:
        call_id = _plain(f"{PLATFORM}/{name}/{native.id}")
        return self._client.priced(usage_of(native, call_id=call_id), at=None)


def append_new(tx: Tx, new: NewMessages, *, moment: Moment, with_usage: bool = True) -> SessionHead:
    """Append the messages that the thread's session does not have; return the session.

    A message counts as it was first seen: one that was rewritten or erased since is not written again.
    """
    profile = new.where.profile
    head = thread.get_or_open(tx, new.where, moment=moment)
    keys = [_plain(f"{PLATFORM}/{head.id}/{row.id}") for row in new.rows]
    there = entries.receipts_among(tx, keys, profile=profile)
    for key, row in zip(keys, new.rows, strict=True):
        if key in there:
            continue
        there.add(key)
        message = NewMessage(
            row.message, idempotency_key=key, usage=row.usage if with_usage else None
        )
        append.append_to_session(tx, head.id, message, profile=profile, moment=moment)
    return head


def _session_name(name: str) -> str:
    if len(escape(name)) <= _LONGEST_NAME:
        return name
    return f"{name[:_NAME_BEGINNING]} {_digest(name)}"


def _plain(key: str) -> str:
    """A key that an index can hold."""
    is_plain = len(key) <= log.MAX_IDEMPOTENCY_KEY and codec.storable_text(key) == key
    return key if is_plain else f"{PLATFORM}/{_digest(key)}"


def _digest(text: str) -> str:
    return sha256(codec.encode(text).encode()).hexdigest()[:32]
