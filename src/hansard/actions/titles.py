"""Titles: unique in a profile, given by a person, the agent or an import."""

from hansard.actions.log import SessionChanged
from hansard.errors import Conflict
from hansard.model.session import SessionHead, TitleBy
from hansard.model.title import (
    clean_title,
    matches_continuation,
    next_title,
    numbered_base,
    rivals_prefix,
)
from hansard.store import sessions
from hansard.store.database import Tx


def rename(tx: Tx, head: SessionHead, text: str, *, by: TitleBy = TitleBy.PERSON) -> str | None:
    """Give a session a title, or take it away with an empty one. The agent never overwrites a person's."""
    if by is TitleBy.AGENT and head.title_by is TitleBy.PERSON:
        return head.title
    wanted = clean_title(text)
    if wanted is not None:
        check_free(tx, wanted, profile=head.profile, except_for=head.id)
    _put(tx, head, wanted, by=by)
    return wanted


def name_automatically(
    tx: Tx, head: SessionHead, text: str, *, by: TitleBy = TitleBy.AGENT
) -> str | None:
    """Give a title that never fails: cut to size, numbered when it is taken. A person's stays."""
    # A person may be giving one at this moment.
    tx.one("lock_session_no", no=head.no)
    head = sessions.get_by_no(tx, head.no)
    if head.title is not None and head.title_by is TitleBy.PERSON:
        return head.title
    wanted = clean_title(text[:100])
    if wanted is None:
        return head.title
    free = free_title(tx, wanted, profile=head.profile, except_for=head.id)
    _put(tx, head, free, by=by)
    return free


def free_title(tx: Tx, wanted: str, *, profile: str, except_for: str = "") -> str:
    """The title itself when it is free, else its next number."""
    holder = tx.one("id_by_title", profile=profile, title=wanted)
    if holder is None or holder[0] == except_for:
        return wanted
    prefix = rivals_prefix(wanted)
    rivals = tx.all("titles_from", profile=profile, first=prefix, beyond=prefix + "\U0010ffff")
    return next_title(wanted, {wanted, *(row[0] for row in rivals)})


def next_in_lineage(tx: Tx, text: str, *, profile: str) -> str:
    """The base of a numbered title while nobody has it or a number of it, else its next number."""
    base, _ = numbered_base(text)
    prefix = rivals_prefix(base)
    rivals = tx.all("titles_from", profile=profile, first=prefix, beyond=prefix + "\U0010ffff")
    holder = tx.one("id_by_title", profile=profile, title=base)
    taken = {row[0] for row in rivals} | ({base} if holder is not None else set())
    is_free = base not in taken and all(matches_continuation(base, each) is None for each in taken)
    return base if is_free else next_title(base, taken)


def check_free(tx: Tx, wanted: str, *, profile: str, except_for: str = "") -> None:
    """Refuse a title that another session holds, and name the holder."""
    holder = tx.one("id_by_title", profile=profile, title=wanted)
    if holder is not None and holder[0] != except_for:
        raise Conflict(
            f"The title {wanted!r} is taken by session {holder[0]}; nothing was changed. Choose another."
        )


def _put(tx: Tx, head: SessionHead, wanted: str | None, *, by: TitleBy) -> None:
    tx.run("set_title", no=head.no, title=wanted, title_by=None if wanted is None else by)
    tx.run("insert_feed", session_no=head.no, seq=0, what="head")
    tx.after_commit(SessionChanged(head.profile, head.id))
