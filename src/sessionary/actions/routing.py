"""Which session a key is on: found, opened, reset or switched, in one transaction."""

from dataclasses import dataclass

from sessionary.actions import refusals, titles
from sessionary.clock import Moment
from sessionary.errors import Conflict, NotAllowed, NotFound
from sessionary.model.key import SessionKey, check_length
from sessionary.model.reset import ResetPolicy, ResetReason
from sessionary.model.session import (
    EndReason,
    Kind,
    Lineage,
    Opening,
    SessionFolder,
    SessionHead,
    TitleBy,
)
from sessionary.model.source import Source
from sessionary.store.database import Tx
from sessionary.store.tables import bindings, entries, sessions
from sessionary.store.tables.sessions import Inheritance


@dataclass(frozen=True, slots=True)
class Route:
    """Where a message goes: the session, and what had to happen for it."""

    session_id: str
    session_no: int
    opened: bool = False
    reset_from: str | None = None
    reason: str | None = None
    had_activity: bool = False


def current(tx: Tx, key: SessionKey) -> SessionHead | None:
    """The session a key is on now, ended or not; None when it never had one."""
    no = bindings.session_of(tx, str(key), profile=key.profile)
    return None if no is None else sessions.get_by_no(tx, no)


def lock_and_get_current(tx: Tx, key: SessionKey) -> SessionHead | None:
    """The session a key is on, both held until the transaction ends."""
    lock(tx, key)
    no = bindings.session_of(tx, str(key), profile=key.profile)
    return None if no is None else lock_and_reload(tx, no)


def lock_and_reload(tx: Tx, session_no: int) -> SessionHead:
    """A session's head that nobody else changes until the transaction ends.

    A key's lock is not enough: the session may have other keys, and people who name it.
    """
    sessions.lock_session_no(tx, session_no)
    return sessions.get_by_no(tx, session_no)


def route(tx: Tx, key: SessionKey, source: Source, *, policy: ResetPolicy, moment: Moment) -> Route:
    """Find the key's session, or open one: the first of the key, or the next after a reset.

    The caller appends in the same transaction, so that no session exists without a message.
    """
    check_length(key)
    return resolve_route(
        tx, key, lock_and_get_current(tx, key), source, policy=policy, moment=moment
    )


def resolve_route(
    tx: Tx,
    key: SessionKey,
    head: SessionHead | None,
    source: Source,
    *,
    policy: ResetPolicy,
    moment: Moment,
) -> Route:
    """Where a message goes from the session that its key is on, which is held already."""
    if head is None:
        return _open(tx, key, source, moment=moment)
    if head.is_open and not head.read_only and head.folder is not SessionFolder.TRASH:
        reason = reset_due(tx, head, policy=policy, moment=moment)
        if reason is None:
            return Route(head.id, head.no)
        end(tx, head, reason=reason, moment=moment)
        return _open(tx, key, source, moment=moment, after=head, reason=reason)
    return _open(tx, key, source, moment=moment, after=head, reason=head.end_reason)


def reset_due(
    tx: Tx, head: SessionHead, *, policy: ResetPolicy, moment: Moment
) -> ResetReason | None:
    """Why this session is over by itself, or None. A running turn or a hold keeps it."""
    reason = policy.due(last_active=head.last_active_at, now=moment.now)
    if reason is None or head.running:
        return None
    return None if sessions.is_held(tx, head.no, now=moment.now) else reason


def reset(
    tx: Tx, key: SessionKey, *, moment: Moment, reason: str = EndReason.NEW
) -> SessionHead | None:
    """End the key's session, so that the next message opens another. None when none was open."""
    head = lock_and_get_current(tx, key)
    if head is None or not head.is_open:
        return None
    if head.running:
        raise refusals.running(head.id)
    end(tx, head, reason=reason, moment=moment)
    return head


def switch(tx: Tx, key: SessionKey, target: SessionHead, *, moment: Moment) -> SessionHead:
    """Point a key at another session: the old one ends, the target goes on."""
    if target.profile != key.profile:
        raise NotAllowed("A key cannot be pointed at a session of another profile.")
    check_length(key)
    lock(tx, key)
    old = current(tx, key)
    # In the order of their numbers: two people who change places must not wait for each other.
    for no in sorted({target.no} if old is None else {old.no, target.no}):
        sessions.lock_session_no(tx, no)
    old, target = current(tx, key), sessions.get_by_no(tx, target.no)
    if target.folder is SessionFolder.GONE:
        raise NotFound(f"There is no session {target.id}.")
    if target.read_only:
        raise refusals.read_only(target.id)
    if target.folder is SessionFolder.TRASH:
        raise Conflict(f"Session {target.id} is in the trash; nothing was changed. Restore it.")
    if old is not None and old.no != target.no:
        if old.running:
            raise refusals.running(old.id)
        if _is_only_key(tx, old, key):
            end(tx, old, reason=EndReason.SWITCH, moment=moment)
    release_key(tx, key, keeper=target.no)
    sessions.reopen(tx, target.no, key=str(key))
    bind(tx, key, target.no, moment=moment)
    return sessions.get_by_no(tx, target.no)


def may_resume(target: SessionHead, source: Source) -> bool:
    """Rule D-6: on a shared platform, the same chat or the same person. Fail closed."""
    if target.source.platform != source.platform:
        return False
    if source.chat_id is not None and target.source.chat_id == source.chat_id:
        return True
    person, owner = source.person, target.source.person
    return person is not None and owner is not None and person.stable_id == owner.stable_id


def end(tx: Tx, head: SessionHead, *, reason: str, moment: Moment) -> bool:
    """Close a session; the first reason wins. Say whether it was open."""
    ended = sessions.end(tx, head.no, reason=reason, at=moment.now)
    if ended:
        entries.insert_feed(tx, head.no, "head")
    return ended


def bind(tx: Tx, key: SessionKey, session_no: int, *, moment: Moment) -> None:
    """Make a session the key's current one."""
    bindings.bind(tx, str(key), session_no, profile=key.profile, at=moment.now)


def lock(tx: Tx, key: SessionKey) -> None:
    """Hold a key until the transaction ends. It comes before the binding is read."""
    sessions.lock_key(tx, str(key), profile=key.profile)


def name_next(tx: Tx, key: SessionKey, title: str | None) -> None:
    """Note the title that a person wants for the key's next session; None forgets an earlier wish."""
    if title is None:
        bindings.take_next_title(tx, str(key), profile=key.profile)
    else:
        bindings.set_next_title(tx, str(key), title, profile=key.profile)


def release_key(tx: Tx, key: SessionKey, *, keeper: int | None = None) -> None:
    """Take the key's name off an open session that goes on under other keys, or under none."""
    no = sessions.open_session_of_key(tx, str(key), profile=key.profile)
    if no is None or no == keeper:
        return
    free = [
        other
        for other in bindings.keys_of_session(tx, no)
        if other != str(key)
        and sessions.open_session_of_key(tx, other, profile=key.profile) is None
    ]
    sessions.set_key(tx, no, free[0] if free else None)


def _open(
    tx: Tx,
    key: SessionKey,
    source: Source,
    *,
    moment: Moment,
    after: SessionHead | None = None,
    reason: str | None = None,
) -> Route:
    release_key(tx, key)
    id = moment.new_id()
    wanted = bindings.take_next_title(tx, str(key), profile=key.profile)
    title = None if wanted is None else titles.free_title(tx, wanted, profile=key.profile)
    by = None if title is None else TitleBy.PERSON
    opening = Opening(key.profile, source, key=str(key), kind=Kind.CHAT, title=title, title_by=by)
    inherited = None if after is None else Inheritance(after.no, Lineage.RESET)
    no = sessions.insert(tx, id, opening, at=moment.now, inherited=inherited)
    bind(tx, key, no, moment=moment)
    if after is None:
        return Route(id, no, opened=True)
    # What was taken back was not left behind.
    had_activity = after.message_count > 0
    return Route(id, no, True, reset_from=after.id, reason=reason, had_activity=had_activity)


def _is_only_key(tx: Tx, head: SessionHead, key: SessionKey) -> bool:
    # Who named the session in the workbench holds no chat on it.
    return all(
        other == str(key) or SessionKey.parse(other).names_session
        for other in bindings.keys_of_session(tx, head.no)
    )
