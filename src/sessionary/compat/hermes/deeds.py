"""What a Hermes program does to one session, each in one transaction."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sessionary.actions.retention import purge
from sessionary.actions.sessions import edit, log, read, revise, titles
from sessionary.actions.sessions.append import NewMessage, append_after_end
from sessionary.clock import Moment
from sessionary.compat.hermes import lineage, messages, rows, tokens
from sessionary.errors import Ambiguous, NotFound
from sessionary.model.session import Kind, Lineage, Opening, SessionHead
from sessionary.model.source import Source
from sessionary.model.title import clean_title, matches_continuation
from sessionary.store.database import Tx
from sessionary.store.tables import sessions as table
from sessionary.store.tables.entries import entry_no

UNKNOWN = "unknown"
_JOBS = frozenset({"cron"})


def create(
    tx: Tx, id: str, source: str, given: Mapping[str, Any], *, profile: str, moment: Moment
) -> SessionHead:
    """Open a session under the program's own id; one that is there stays as it is."""
    parent_id = given.get("parent_session_id")
    parent = None if parent_id is None else rows.find(tx, parent_id, profile=profile)
    descent = Lineage.SUBAGENT if parent is None else lineage.of_child(parent)
    user_id = given.get("user_id")
    opening = Opening(
        profile,
        Source(source or UNKNOWN, user_id=user_id),
        kind=_kind(source, None if parent is None else descent),
        model=given.get("model"),
        settings=given.get("model_config") or None,
        system_prompt=given.get("system_prompt"),
    )
    return edit.open_under(tx, id, opening, moment=moment, parent=parent, lineage=descent)


def end(tx: Tx, id: str, reason: str, *, profile: str, moment: Moment) -> None:
    """Close a session; the first reason wins, and an unknown one stays unknown."""
    if rows.find(tx, id, profile=profile) is not None:
        edit.end(tx, id, profile=profile, moment=moment, reason=reason or UNKNOWN)


def reopen(tx: Tx, id: str, *, profile: str) -> None:
    """Let a session go on."""
    if rows.find(tx, id, profile=profile) is not None:
        edit.reopen(tx, id, profile=profile)


def prompt(tx: Tx, id: str, text: str | None, *, profile: str) -> None:
    """Let another text be the system prompt."""
    if rows.find(tx, id, profile=profile) is not None:
        edit.set_system_prompt(tx, id, text, profile=profile)


def count(
    tx: Tx, id: str, given: Mapping[str, Any], *, absolute: bool, profile: str, moment: Moment
) -> None:
    """Count what was used; an unknown id gets a session."""
    head = create(tx, id, UNKNOWN, {}, profile=profile, moment=moment)
    tokens.update(tx, head, given, absolute=absolute, moment=moment)


def append(
    tx: Tx, id: str, given: Iterable[Mapping[str, Any]], *, profile: str, moment: Moment
) -> list[int]:
    """Add messages; their numbers."""
    numbers = []
    for each in given:
        saying = NewMessage(messages.to_message(each), at=messages.time_of(each))
        done = append_after_end(tx, id, saying, profile=profile, moment=moment)
        numbers.append(entry_no(done.session_no, done.seq))
    return numbers


def clear(tx: Tx, id: str, *, profile: str, moment: Moment) -> None:
    """Take back everything that was said; the log keeps it, nobody reads it any more."""
    head = log.lock_session(tx, id, profile=profile)
    if head.message_count:
        revise.retract(tx, id, profile=profile, after=0, at=moment.now, reason="rewrite")


def rewrite(
    tx: Tx, id: str, given: Sequence[Mapping[str, Any]], *, profile: str, moment: Moment
) -> None:
    """Let other messages stand for what was said."""
    clear(tx, id, profile=profile, moment=moment)
    append(tx, id, given, profile=profile, moment=moment)


def delete(tx: Tx, id: str, *, profile: str, moment: Moment) -> bool:
    """Delete a session's words for ever; whether it was there. Its children stay."""
    if rows.find(tx, id, profile=profile) is None:
        return False
    purge.purge(tx, id, profile=profile, moment=moment)
    return True


def by_prefix(tx: Tx, text: str, *, profile: str) -> str | None:
    """The id itself, or the only one that begins so."""
    if not text:
        return None
    head = rows.find(tx, text, profile=profile)
    if head is not None:
        return head.id
    try:
        return read.by_prefix(tx, text, profile=profile)
    except Ambiguous:
        return None


def rename(tx: Tx, id: str, title: str | None, *, profile: str) -> bool:
    """Give a title, or take it away; whether the session is there."""
    head = rows.find(tx, id, profile=profile)
    if head is None:
        return False
    wanted = clean_title(title or "")
    holder = None if wanted is None else by_title(tx, wanted, profile=profile)
    if holder is not None and holder != id:
        raise ValueError(f"Title '{wanted}' is already in use by session {holder}")
    titles.set_title(tx, head, title or "")
    return True


def by_title(tx: Tx, title: str, *, profile: str) -> str | None:
    """The session with exactly this title."""
    row = tx.one("id_by_title", profile=profile, title=table.column(title))
    return None if row is None else str(row[0])


def latest_by_title(tx: Tx, title: str, *, profile: str) -> str | None:
    """The session that a title means: the numbered one that began last, else the exact one."""
    found = tx.all(
        "titles_from",
        profile=profile,
        first=f"{table.column(title)} #",
        beyond=f"{table.column(title)} $",
    )
    numbered = [
        table.get_by_no(tx, no)
        for name, _, no in found
        if matches_continuation(title, name) is not None
    ]
    if numbered:
        return max(numbered, key=lambda head: (head.began_at, head.no)).id
    return by_title(tx, title, profile=profile)


def _kind(source: str, descent: Lineage | None) -> Kind:
    if descent is Lineage.SUBAGENT:
        return Kind.SUBAGENT
    return Kind.JOB if source in _JOBS else Kind.CHAT


def known(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """The head of a session that must be there."""
    head = rows.find(tx, id, profile=profile)
    if head is None:
        raise NotFound(f"There is no session {id}.")
    return head


def database_of(path: str | os.PathLike[str]) -> str:
    """The address of a database: a file's path, or a URL as it stands."""
    text = os.fspath(path)
    return text if "://" in text or text.startswith("sqlite:") else f"sqlite:///{text}"
