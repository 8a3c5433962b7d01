"""Which session a key is bound to: open, reset or switch it; holds that prevent a reset; chats that get a new id."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import access
from sessionary.actions.sessions import choice, log, titles
from sessionary.actions.sessions.lists import check_limit
from sessionary.clock import Moment
from sessionary.errors import Conflict, NotAllowed, NotFound
from sessionary.model import choice as choices
from sessionary.model.choice import Changes, ChoiceCatalog, ChoiceChange
from sessionary.model.redact import Redactor
from sessionary.model.reset import Policies, ResetPolicy, ResetReason
from sessionary.model.session import (
    EndReason,
    Kind,
    Lineage,
    Opening,
    SessionFolder,
    SessionHead,
    TitleBy,
)
from sessionary.model.source import (
    Channel,
    ChatType,
    Person,
    SessionKey,
    Source,
    at_session,
    check_length,
    key_for,
)
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, entries, meta, questions, sessions
from sessionary.store.tables.sessions import Inheritance, NextSession


class Route(Struct, frozen=True):
    """The session that a message goes to, and whether it was opened for this message.

    If it replaces another session, `reset_from` is the id of that one, `reason` says why it ended, and `had_activity`
    whether it contained messages.
    """

    session_id: str
    session_no: int
    opened: bool = False
    reset_from: str | None = None
    reason: str | None = None
    had_activity: bool = False


def get_current(tx: Tx, key: SessionKey) -> SessionHead | None:
    """Return the session that a key is bound to, ended or not; None if it never had one."""
    no = sessions.session_of_key(tx, str(key), profile=key.profile)
    return None if no is None else sessions.get_by_no(tx, no)


def lock_and_get_current(tx: Tx, key: SessionKey) -> SessionHead | None:
    """Lock a key and the session it is bound to until the transaction ends; return the session."""
    lock_key(tx, key)
    no = sessions.session_of_key(tx, str(key), profile=key.profile)
    return None if no is None else lock_and_reload(tx, no)


def lock_and_reload(tx: Tx, session_no: int) -> SessionHead:
    """Lock a session until the transaction ends; return its head as it is now.

    Locking a key is not enough: the session may be used through another key, or by its id.
    """
    sessions.lock_session_no(tx, session_no)
    return sessions.get_by_no(tx, session_no)


def route(tx: Tx, key: SessionKey, source: Source, *, policy: ResetPolicy, moment: Moment) -> Route:
    """Find the key's session; open one if it has none, or if its session has ended or is due for a reset.

    The caller appends the message in the same transaction, so that no session exists without one.
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
    """Like `route`; `head` is the session that the key is bound to, already locked."""
    if head is None:
        return _open_session(tx, key, source, moment=moment)
    if _takes_messages(head):
        reason = get_reset_reason(tx, head, policy=policy, moment=moment)
        if reason is None:
            return Route(head.id, head.no)
        end_session(tx, head, reason=reason, moment=moment)
        return _open_session(tx, key, source, moment=moment, previous=head, reason=reason)
    return _open_session(tx, key, source, moment=moment, previous=head, reason=head.end_reason)


def get_continued(
    tx: Tx, head: SessionHead | None, *, policy: ResetPolicy, moment: Moment
) -> SessionHead | None:
    """Return the session that a key is bound to if `resolve_route` continues it; None if it opens another."""
    if head is None or not _takes_messages(head):
        return None
    reason = get_reset_reason(tx, head, policy=policy, moment=moment)
    return head if reason is None else None


def _takes_messages(head: SessionHead) -> bool:
    return head.is_open and not head.read_only and head.folder is not SessionFolder.TRASH


def get_reset_reason(
    tx: Tx, head: SessionHead, *, policy: ResetPolicy, moment: Moment
) -> ResetReason | None:
    """Return why the policy ends this session now, or None. A running turn or a hold prevents it."""
    reason = policy.due(last_active=head.last_active_at, now=moment.now)
    if reason is None or head.running:
        return None
    return None if sessions.is_held(tx, head.no, now=moment.now) else reason


def reset(
    tx: Tx, key: SessionKey, *, moment: Moment, reason: str = EndReason.NEW
) -> SessionHead | None:
    """End the key's session, so that the next message opens a new one; return it, or None if none was open."""
    head = lock_and_get_current(tx, key)
    if head is None or not head.is_open:
        return None
    if head.running:
        raise log.running_error(head.id)
    end_session(tx, head, reason=reason, moment=moment)
    return head


def switch(
    tx: Tx,
    key: SessionKey,
    target: SessionHead,
    *,
    moment: Moment,
    reason: str = EndReason.SWITCH,
) -> SessionHead:
    """Bind a key to another session: the old one ends if no other chat uses it, the target is reopened."""
    if target.profile != key.profile:
        raise NotAllowed("A key cannot be pointed at a session of another profile.")
    check_length(key)
    lock_key(tx, key)
    old = get_current(tx, key)
    # Lock in the order of their numbers, so that two switches between the same sessions cannot deadlock.
    for no in sorted({target.no} if old is None else {old.no, target.no}):
        sessions.lock_session_no(tx, no)
    old, target = get_current(tx, key), sessions.get_by_no(tx, target.no)
    if target.folder is SessionFolder.GONE:
        raise NotFound(f"There is no session {target.id}.")
    if target.read_only:
        raise log.read_only_error(target.id)
    if target.folder is SessionFolder.TRASH:
        raise Conflict(f"Session {target.id} is in the trash; nothing was changed. Restore it.")
    if old is not None and old.no != target.no:
        if old.running:
            raise log.running_error(old.id)
        if _is_only_chat(tx, old, key):
            end_session(tx, old, reason=reason, moment=moment)
    release_key(tx, key, except_session=target.no)
    sessions.reopen(tx, target.no, key=str(key))
    bind(tx, key, target.no, moment=moment)
    return sessions.get_by_no(tx, target.no)


def may_resume(target: SessionHead, source: Source) -> bool:
    """Return whether a source may resume a session: only in the same chat, or for the same person."""
    if target.source.platform != source.platform:
        return False
    if source.chat_id is not None and target.source.chat_id == source.chat_id:
        return True
    person, owner = source.person, target.source.person
    return person is not None and owner is not None and person.stable_id == owner.stable_id


def end_session(tx: Tx, head: SessionHead, *, reason: str, moment: Moment) -> bool:
    """End an open session; return whether it was open. One that has ended keeps its reason."""
    ended = sessions.end(tx, head.no, reason=reason, at=moment.now)
    if ended:
        entries.insert_feed(tx, head.no, "head")
    return ended


def bind(tx: Tx, key: SessionKey, session_no: int, *, moment: Moment) -> None:
    """Make a session the key's current one."""
    sessions.bind_key(tx, str(key), session_no, profile=key.profile, at=moment.now)


def lock_key(tx: Tx, key: SessionKey) -> None:
    """Lock a key until the transaction ends; call this before reading its binding."""
    sessions.lock_key(tx, str(key), profile=key.profile)


def set_next_title(tx: Tx, key: SessionKey, title: str | None) -> None:
    """Set the title that the key's next session will get; None removes it, and what was chosen for that session."""
    if title is None:
        sessions.take_next_session(tx, str(key), profile=key.profile)
    else:
        sessions.set_next_session(tx, str(key), NextSession(title), profile=key.profile)


def get_next_choice(tx: Tx, key: SessionKey) -> Mapping[str, Any]:
    """Return what was chosen for the key's next session."""
    chosen = sessions.get_next_session(tx, str(key), profile=key.profile).chosen
    return {} if chosen is None else chosen.changed


def choose_next(
    tx: Tx,
    key: SessionKey,
    changes: Changes,
    *,
    platform: str,
    by: Person | None,
    catalog: ChoiceCatalog | None,
) -> None:
    """Choose the agent, model, persona or tools of the key's next session, which begins with the next message."""
    lock_key(tx, key)
    wanted = sessions.get_next_session(tx, str(key), profile=key.profile)
    current = {} if wanted.chosen is None else wanted.chosen.changed
    changed = choices.clean(changes)
    if catalog is not None:
        changed = catalog.check(current, changed, platform=platform)
    chosen = choices.apply_changes(current, changed)
    wanted = NextSession(wanted.title, ChoiceChange(chosen, by) if chosen else None)
    sessions.set_next_session(tx, str(key), wanted, profile=key.profile)


def choose_if_opened(
    tx: Tx,
    key: SessionKey,
    source: Source,
    changes: Changes,
    *,
    policy: ResetPolicy,
    catalog: ChoiceCatalog | None,
    moment: Moment,
) -> None:
    """Choose for the session that the next message of a key opens; nothing if it goes to one that is open."""
    head = lock_and_get_current(tx, key)
    if (
        head is None
        or not head.is_open
        or get_reset_reason(tx, head, policy=policy, moment=moment) is not None
    ):
        choose_next(tx, key, changes, platform=source.platform, by=source.person, catalog=catalog)


def release_key(tx: Tx, key: SessionKey, *, except_session: int | None = None) -> None:
    """Take a key from the open session that holds it, unless that is `except_session`.

    That session stays open, under another key or none.
    """
    no = sessions.open_session_of_key(tx, str(key), profile=key.profile)
    if no is None or no == except_session:
        return
    free = [
        other
        for other in sessions.keys_of_session(tx, no)
        if other != str(key)
        and sessions.open_session_of_key(tx, other, profile=key.profile) is None
    ]
    sessions.set_key(tx, no, free[0] if free else None)


def _open_session(
    tx: Tx,
    key: SessionKey,
    source: Source,
    *,
    moment: Moment,
    previous: SessionHead | None = None,
    reason: str | None = None,
) -> Route:
    release_key(tx, key)
    id = moment.new_id()
    wanted = sessions.take_next_session(tx, str(key), profile=key.profile)
    title = None
    if wanted.title is not None:
        title = titles.find_free_title(tx, wanted.title, profile=key.profile)
    opening = Opening(
        key.profile,
        source,
        key=str(key),
        kind=Kind.CHAT,
        title=title,
        title_by=None if title is None else TitleBy.PERSON,
        chosen=wanted.chosen,
    )
    inherited = None if previous is None else Inheritance(previous.no, Lineage.RESET)
    no = sessions.insert(tx, id, opening, at=moment.now, inherited=inherited)
    bind(tx, key, no, moment=moment)
    choice.record_opening(tx, id, opening, moment=moment)
    if previous is None:
        return Route(id, no, opened=True)
    # The count leaves out retracted messages.
    had_activity = previous.message_count > 0
    return Route(id, no, True, reset_from=previous.id, reason=reason, had_activity=had_activity)


def _is_only_chat(tx: Tx, head: SessionHead, key: SessionKey) -> bool:
    # A key made from a session's id, as the workbench uses, does not stand for a chat: it does not count.
    return all(
        other == str(key) or SessionKey.parse(other).names_session
        for other in sessions.keys_of_session(tx, head.no)
    )


class Binding(Struct, frozen=True):
    """A key and the session it is bound to."""

    key: str
    session: SessionHead
    bound_at: datetime


class Bindings(Struct, frozen=True):
    """One page of bindings, and the cursor for the next page."""

    items: tuple[Binding, ...]
    next: str | None


class LastReset(Struct, frozen=True):
    """The last session of a key that ended, and why."""

    session_id: str
    reason: str
    at: datetime


class NextReset(Struct, frozen=True):
    """When the policy will reset a key's session if nobody writes, and how the last one ended.

    `held`: a running turn or a hold prevents the reset now.
    """

    policy: ResetPolicy
    resets_at: datetime | None
    held: bool
    last_reset: LastReset | None


def list_bindings(
    tx: Tx,
    *,
    profile: str,
    limit: int = 100,
    cursor: str | None = None,
    chats_only: bool = False,
) -> Bindings:
    """Return a page of a profile's keys in order; `chats_only` leaves out keys that are made from a session's id."""
    check_limit(limit)
    session_keys = str(key_for(at_session(""), profile=profile))
    rows = sessions.page_of_bindings(
        tx,
        profile=profile,
        after=cursor or "",
        limit=limit + 1,
        without=session_keys if chats_only else None,
    )
    shown = rows[:limit]
    items = tuple(
        Binding(row.key, sessions.get_by_no(tx, row.session_no), row.bound_at) for row in shown
    )
    return Bindings(items, shown[-1].key if len(rows) > limit else None)


def find_redacted_key(tx: Tx, redacted: str, *, profile: str) -> str:
    """Return the bound key whose redacted form is this: requests may contain redacted keys."""
    redactor = Redactor(meta.redaction_salt(tx))
    for key in sessions.keys_with_prefix(tx, f"{profile}/", profile=profile):
        if redactor.key(key) == redacted:
            return key
    raise NotFound("No chat has that key any more; nothing was written. Read the list again.")


def get_next_reset(tx: Tx, head: SessionHead, policies: Policies, *, now: datetime) -> NextReset:
    """Return when a key's session will be reset, and how the last one ended."""
    policy = policies.choose(head.source)
    due = policy.next_due(last_active=head.last_active_at) if head.is_open else None
    held = head.running or sessions.is_held(tx, head.no, now=now)
    return NextReset(policy, due, held, _last_reset(tx, head))


def _last_reset(tx: Tx, head: SessionHead) -> LastReset | None:
    ended: SessionHead | None = head
    if head.is_open:
        was_reset = head.lineage is Lineage.RESET and head.parent_id is not None
        ended = sessions.get(tx, head.parent_id or "", profile=head.profile) if was_reset else None
    if ended is None or ended.ended_at is None or ended.end_reason is None:
        return None
    return LastReset(ended.id, ended.end_reason, ended.ended_at)


class Move(Struct, frozen=True):
    """A chat of a platform that got a new id."""

    platform: str
    old: str
    new: str


def move_chat(tx: Tx, move: Move, *, profile: str, moment: Moment) -> int:
    """Move the conversations of a chat to its new id; return how many moved. A second call changes nothing.

    A conversation is not moved if there is one under the new id already.
    """
    keys = [key for kind in ChatType for key in _keys_of_chat(tx, move, kind, profile=profile)]
    moved = sum(_rename_key(tx, key, replace(key, chat=move.new)) for key in keys)
    for home in access.list_homes(tx, profile=profile):
        if (home.platform, home.chat_id) == (move.platform, move.old):
            access.set_home(tx, replace(home, chat_id=move.new), profile=profile, moment=moment)
    old, new = (str(Channel(move.platform, chat)) for chat in (move.old, move.new))
    questions.move_cards(tx, old, new)
    return moved


def _keys_of_chat(tx: Tx, move: Move, kind: ChatType, *, profile: str) -> list[SessionKey]:
    wanted = SessionKey(profile=profile, platform=move.platform, chat_type=kind, chat=move.old)
    keys = map(SessionKey.parse, sessions.keys_with_prefix(tx, str(wanted), profile=profile))
    return [key for key in keys if key.chat == move.old]


def _rename_key(tx: Tx, old: SessionKey, new: SessionKey) -> bool:
    for key in sorted((old, new), key=str):
        lock_key(tx, key)
    arrivals.rename_key(tx, str(old), str(new), profile=old.profile)
    if get_current(tx, new) is not None:
        return False
    no = sessions.open_session_of_key(tx, str(old), profile=old.profile)
    if no is not None:
        sessions.set_key(tx, no, str(new))
    return sessions.rename_binding(tx, str(old), str(new), profile=old.profile)
