"""Titles: unique in a profile, given by a person, the agent or an import."""

from sessionary.actions.sessions.log import SessionChanged
from sessionary.errors import Conflict
from sessionary.model.session import SessionHead, TitleBy
from sessionary.model.title import (
    beginnings,
    clean_title,
    matches_continuation,
    next_number,
    numbered_base,
    with_number,
)
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions


def set_title(tx: Tx, head: SessionHead, text: str, *, by: TitleBy = TitleBy.PERSON) -> str | None:
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
    sessions.lock_session_no(tx, head.no)
    head = sessions.get_by_no(tx, head.no)
    if head.title is not None and head.title_by is TitleBy.PERSON:
        return head.title
    wanted = clean_title(text[:100])
    if wanted is None:
        return head.title
    free = find_free_title(tx, wanted, profile=head.profile, except_for=head.id)
    _put(tx, head, free, by=by)
    return free


def find_free_title(tx: Tx, wanted: str, *, profile: str, except_for: str = "") -> str:
    """The title itself when it is free, else its next number."""
    holder = tx.one("id_by_title", profile=profile, title=wanted)
    if holder is None or holder[0] == except_for:
        return wanted
    base, _ = numbered_base(wanted)
    return _numbered(tx, wanted, highest_titles(tx, base, profile=profile), profile=profile)


def next_title(tx: Tx, text: str, *, profile: str) -> str:
    """The base of a numbered title while nobody has it or a number of it, else its next number."""
    base, _ = numbered_base(text)
    taken = highest_titles(tx, base, profile=profile)
    has_number = any(matches_continuation(base, title) is not None for title in taken)
    if not has_number and tx.one("id_by_title", profile=profile, title=base) is None:
        return base
    return _numbered(tx, base, taken, profile=profile)


def highest_titles(tx: Tx, base: str, *, profile: str) -> list[str]:
    """Of the numbered titles of a base the last with each number of digits."""
    return [
        row[0]
        for beginning, fewest, most in beginnings(base)
        for row in tx.all(
            "highest_titles", profile=profile, beginning=beginning, fewest=fewest, most=most
        )
        if row[0] is not None
    ]


def _numbered(tx: Tx, wanted: str, taken: list[str], *, profile: str) -> str:
    number, step = next_number(wanted, taken), 1
    while tx.one("id_by_title", profile=profile, title=with_number(wanted, number)) is not None:
        # Someone used up the numbers: whatever is above them was not looked for.
        number, step = number + step, step * 2
    return with_number(wanted, number)


def check_free(tx: Tx, wanted: str, *, profile: str, except_for: str = "") -> None:
    """Refuse a title that another session holds, and name the holder."""
    holder = tx.one("id_by_title", profile=profile, title=wanted)
    if holder is not None and holder[0] != except_for:
        raise Conflict(
            f"The title {wanted!r} is taken by session {holder[0]}; nothing was changed. Choose another."
        )


def _put(tx: Tx, head: SessionHead, wanted: str | None, *, by: TitleBy) -> None:
    tx.run("set_title", no=head.no, title=wanted, title_by=None if wanted is None else by)
    entries.insert_feed(tx, head.no, "head")
    tx.after_commit(SessionChanged(head.profile, head.id))
