"""Changing sessions: open, fork, end, name, label, pin, archive, trash."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from sessionary.actions.sessions import choice, log, pins, routing, titles
from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model import codec
from sessionary.model.session import (
    EndReason,
    Kind,
    Lineage,
    Opening,
    SessionFolder,
    SessionHead,
    TitleBy,
    folder_of,
)
from sessionary.model.title import clean_title
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, sessions
from sessionary.store.tables.sessions import Inheritance

MAX_DRAFT = 1_000_000
MAX_LABEL = 64


def open_session(tx: Tx, opening: Opening, *, moment: Moment, id: str | None = None) -> str:
    """Open a session that no key leads to, and record what was chosen for it.

    The caller appends its first message in the same transaction.
    """
    made = id or moment.new_id()
    title = _free_title(tx, opening)
    if id is not None and sessions.profile_of(tx, id) is not None:
        raise Conflict(f"There is a session {id} already; nothing was written.")
    sessions.insert(tx, made, replace(opening, title=title), at=moment.now)
    choice.record_opening(tx, made, opening, moment=moment)
    return made


def open_subagent(tx: Tx, parent_id: str, opening: Opening, *, moment: Moment) -> str:
    """Open the session of a subagent: a history of its own, under the session it works for."""
    parent = log.lock_session(tx, parent_id, profile=opening.profile)
    made = moment.new_id()
    title = _free_title(tx, opening)
    inherited = Inheritance(parent.no, Lineage.SUBAGENT)
    opening = replace(opening, title=title, kind=Kind.SUBAGENT)
    sessions.insert(tx, made, opening, at=moment.now, inherited=inherited)
    return made


def _free_title(tx: Tx, opening: Opening) -> str | None:
    title = None if opening.title is None else clean_title(opening.title)
    if title is not None:
        titles.check_free(tx, title, profile=opening.profile)
    return title


def fork(
    tx: Tx,
    id: str,
    *,
    profile: str,
    moment: Moment,
    at_seq: int | None = None,
    title: str | None = None,
    workspace: Mapping[str, Any] | None = None,
) -> SessionHead:
    """Begin a session whose history is another's up to an entry. Nothing is copied.

    It has the `workspace` of the other one unless it is given another.
    """
    parent = log.lock_session(tx, id, profile=profile)
    through = parent.last_seq if at_seq is None else at_seq
    if not 1 <= through <= parent.last_seq:
        raise BadInput(
            f"Session {parent.id} has entries 1 to {parent.last_seq}; it cannot be forked at {through}."
        )
    counts = log.count_log(tx, sessions.segments(tx, parent.no, through=through))
    more = sessions.details(tx, parent.no)
    settings = choice.settings_at(tx, parent, through)
    is_changed = settings.get("model") != parent.settings.get("model")
    opening = Opening(
        profile,
        parent.source,
        kind=Kind.CHAT,
        model=settings.get("model") if is_changed else parent.model,
        # The settings that another tool used for its own model are not for ours.
        settings=None if "import" in more.extra else pins.settings_for_fork(settings, through),
        workspace=more.workspace if workspace is None else workspace,
        labels=parent.labels,
        system_prompt=None if more.prompt_hash is None else blobs.get_text(tx, more.prompt_hash),
    )
    inherited = Inheritance(parent.no, Lineage.FORK, through, counts)
    no = sessions.insert(tx, moment.new_id(), opening, at=moment.now, inherited=inherited)
    sessions.set_read_through(tx, no, through)
    head = sessions.get_by_no(tx, no)
    if title is not None:
        titles.set_title(tx, head, title)
    elif parent.title is not None:
        titles.name_automatically(tx, head, parent.title)
    return _notify(tx, head)


def end(
    tx: Tx, id: str, *, profile: str, moment: Moment, reason: str = EndReason.CLOSED
) -> SessionHead:
    """Close a session; the first reason wins."""
    head = log.lock_session(tx, id, profile=profile)
    _refuse_running(head)
    routing.end_session(tx, head, reason=reason, moment=moment)
    return _notify(tx, head)


def reopen(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """Reopen a session. If another session has its key by now, that one keeps it."""
    head = log.lock_session(tx, id, profile=profile)
    if head.is_open:
        return head
    # An open session cannot stay in the trash: its new messages would be purged.
    _take_out_of_trash(tx, head)
    sessions.reopen(tx, head.no, key=_key_if_free(tx, head))
    return _notify(tx, head)


def pin(tx: Tx, id: str, *, profile: str, pinned: bool) -> SessionHead:
    """Keep a session at the top of lists, or no longer."""
    head = log.lock_session(tx, id, profile=profile)
    sessions.set_pinned(tx, head.no, pinned=pinned)
    return _notify(tx, head)


def seal(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """Let nobody write to a session any more; a fork of it can go on."""
    head = log.lock_session(tx, id, profile=profile)
    _refuse_running(head)
    sessions.set_read_only(tx, head.no)
    return _notify(tx, head)


def archive(tx: Tx, id: str, *, profile: str, archived: bool) -> SessionHead:
    """Move a session into the archive, or out of it. It stays open."""
    head = log.lock_session(tx, id, profile=profile)
    _set_folder(tx, head, archived=archived, trashed_at=head.trashed_at)
    return sessions.get_by_no(tx, head.no)


def trash(tx: Tx, id: str, *, profile: str, moment: Moment) -> SessionHead:
    """Move a session and its subagents into the trash, where they can be restored until purged.

    Its forks and continuations are conversations of their own and stay where they are.
    """
    head = log.lock_session(tx, id, profile=profile)
    if head.trashed_at is None:
        family = [head, *(each for each in lock_subagents(tx, head) if each.trashed_at is None)]
        for each in family:
            _refuse_running(each)
        for each in family:
            routing.end_session(tx, each, reason=EndReason.TRASH, moment=moment)
            _set_folder(tx, each, archived=each.archived, trashed_at=moment.now)
        _notify_parent(tx, head)
    return sessions.get_by_no(tx, head.no)


def restore(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """Take a session out of the trash as it was, with the subagents that went there with it."""
    head = log.lock_session(tx, id, profile=profile)
    _take_out_of_trash(tx, head)
    return sessions.get_by_no(tx, head.no)


def rename(
    tx: Tx, id: str, text: str, *, profile: str, by: TitleBy = TitleBy.PERSON
) -> SessionHead:
    """Give a session a title, or take it away with an empty one."""
    head = log.lock_session(tx, id, profile=profile)
    titles.set_title(tx, head, text, by=by)
    return sessions.get_by_no(tx, head.no)


def set_labels(tx: Tx, id: str, labels: Sequence[str], *, profile: str) -> SessionHead:
    """Set a session's labels."""
    head = log.lock_session(tx, id, profile=profile)
    clean = {codec.storable_text(" ".join(each.split())) for each in labels} - {""}
    for each in clean:
        if len(each) > MAX_LABEL:
            raise BadInput(
                f"A label has at most {MAX_LABEL} characters; {each[:20]!r}… has {len(each)}."
            )
    sessions.set_labels(tx, head.no, sorted(clean))
    return _notify(tx, head)


def set_draft(tx: Tx, id: str, text: str, *, profile: str, moment: Moment) -> None:
    """Keep what a person has typed and not sent; an empty text removes it."""
    head = log.lock_session(tx, id, profile=profile)
    if len(text) > MAX_DRAFT:
        raise BadInput(f"A draft has at most {MAX_DRAFT:,} characters; this one has {len(text):,}.")
    if text:
        sessions.set_draft(tx, head.no, text, at=moment.now)
    else:
        sessions.delete_draft(tx, head.no)


def mark_read(tx: Tx, id: str, through: int, *, profile: str) -> None:
    """Note how far a person has read; the number never goes back."""
    head = log.lock_session(tx, id, profile=profile)
    seq = min(max(through, head.read_through), head.last_seq)
    if seq != head.read_through:
        sessions.set_read_through(tx, head.no, seq)
        log.notify(tx, head)


def _set_folder(tx: Tx, head: SessionHead, *, archived: bool, trashed_at: datetime | None) -> None:
    trashed = trashed_at is not None
    folder = folder_of(kind=head.kind, archived=archived, trashed=trashed, purged=False)
    sessions.set_folder(tx, head.no, folder, archived=archived, trashed_at=trashed_at)
    log.notify(tx, head)


def _notify(tx: Tx, head: SessionHead) -> SessionHead:
    """Publish that a session has changed; return its head as it is now."""
    log.notify(tx, head)
    return sessions.get_by_no(tx, head.no)


def _take_out_of_trash(tx: Tx, head: SessionHead) -> None:
    if head.trashed_at is None:
        return
    # A subagent that was trashed on its own has another time, and stays.
    same = [each for each in lock_subagents(tx, head) if each.trashed_at == head.trashed_at]
    for each in (head, *same):
        if each.end_reason == EndReason.TRASH:
            sessions.reopen(tx, each.no, key=_key_if_free(tx, each))
        _set_folder(tx, each, archived=each.archived, trashed_at=None)
    _notify_parent(tx, head)


def _notify_parent(tx: Tx, head: SessionHead) -> None:
    """Make lists recount the subagents of this session's parent."""
    if head.lineage is Lineage.SUBAGENT and head.parent_id is not None:
        parent = sessions.get(tx, head.parent_id, profile=head.profile)
        if parent is not None:
            log.notify(tx, parent)


def lock_subagents(tx: Tx, head: SessionHead) -> list[SessionHead]:
    """Lock the subagents of a session, at any depth, and return them; purged ones are left out."""
    found = [routing.lock_and_reload(tx, no) for no in sessions.subagents_below(tx, head.no)]
    return [each for each in found if each.folder is not SessionFolder.GONE]


def _key_if_free(tx: Tx, head: SessionHead) -> str | None:
    if head.key is None:
        return None
    holder = sessions.open_session_of_key(tx, head.key, profile=head.profile)
    return head.key if holder in (None, head.no) else None


def _refuse_running(head: SessionHead) -> None:
    if head.running:
        raise log.running_error(head.id)
    if head.folder is SessionFolder.GONE:
        raise NotFound(f"There is no session {head.id}.")


MAX_ID = 200


def open_with_id(
    tx: Tx,
    id: str,
    opening: Opening,
    *,
    moment: Moment,
    parent: SessionHead | None = None,
    lineage: Lineage = Lineage.SUBAGENT,
) -> SessionHead:
    """Open a session with the caller's id, or return the one that has it. It may stay without messages."""
    check_id(id)
    # The lock comes before the read: PostgreSQL lets two readers see no such session.
    sessions.lock_key(tx, f"id/{id}", profile=opening.profile)
    found = sessions.get(tx, id, profile=opening.profile)
    if found is not None:
        return found
    if sessions.profile_of(tx, id) is not None and not sessions.free_purged_id(
        tx, id, new_id=moment.new_id()
    ):
        raise Conflict(f"Session {id} belongs to another profile; nothing was written.")
    inherited = None if parent is None else Inheritance(parent.no, lineage)
    no = sessions.insert(tx, id, opening, at=moment.now, inherited=inherited)
    head = sessions.get_by_no(tx, no)
    log.notify(tx, head)
    return head


def check_id(id: str) -> None:
    """Refuse an id that a column could not keep exactly."""
    if not id or len(id) > MAX_ID or codec.storable_text(id) != id:
        raise BadInput(f"A session's id is 1 to {MAX_ID} characters of plain text.")


def set_system_prompt(tx: Tx, id: str, text: str | None, *, profile: str) -> None:
    """Replace a session's system prompt; None removes it."""
    head = log.lock_session(tx, id, profile=profile)
    sessions.set_system_prompt(tx, head.no, text)
    log.notify(tx, head)


def update_extra(
    tx: Tx,
    head: SessionHead,
    name: str,
    change: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> dict[str, Any]:
    """Change what one program keeps under its name in a session's `extra`; return the new value."""
    sessions.lock_session_no(tx, head.no)
    extra = sessions.details(tx, head.no).extra
    found = extra.get(name)
    before = dict(found) if isinstance(found, dict) else {}
    after = dict(change(dict(before)))
    if after != before:
        sessions.set_extra(tx, head.no, extra | {name: after})
    return after
