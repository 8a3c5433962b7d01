"""Titles: unique in a profile, given by a person, the agent or an import."""

from sessionary.actions.sessions import log
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
from sessionary.store.tables import sessions


def set_title(tx: Tx, head: SessionHead, text: str, *, by: TitleBy = TitleBy.PERSON) -> str | None:
    """Give a session a title; an empty text removes it. The agent never replaces a person's title."""
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
    """Give a title without ever failing: cut to size, numbered if taken. A person's title stays."""
    # A person may be naming it at this moment.
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
    base, _ = numbered_base(wanted)
    # Sessions that begin with the same words at once take their numbers one after the other.
    sessions.lock_key(tx, f"title/{base}", profile=profile)
    if sessions.id_by_title(tx, wanted, profile=profile) in (None, except_for):
        return wanted
    return _next_free(tx, wanted, highest_titles(tx, base, profile=profile), profile=profile)


def next_title(tx: Tx, text: str, *, profile: str) -> str:
    """The base of a numbered title while neither it nor a number of it is taken, else its next number."""
    base, _ = numbered_base(text)
    taken = highest_titles(tx, base, profile=profile)
    has_number = any(matches_continuation(base, title) is not None for title in taken)
    if not has_number and sessions.id_by_title(tx, base, profile=profile) is None:
        return base
    return _next_free(tx, base, taken, profile=profile)


def highest_titles(tx: Tx, base: str, *, profile: str) -> list[str]:
    """Of the numbered titles of a base, the last for each number of digits."""
    return [
        title
        for beginning, fewest, most in beginnings(base)
        for title in sessions.highest_titles(
            tx, beginning, profile=profile, fewest=fewest, most=most
        )
    ]


def _next_free(tx: Tx, wanted: str, taken: list[str], *, profile: str) -> str:
    number, step = next_number(wanted, taken), 1
    while sessions.id_by_title(tx, with_number(wanted, number), profile=profile) is not None:
        # The highest possible number is taken; numbers above it were not looked for.
        number, step = number + step, step * 2
    return with_number(wanted, number)


def check_free(tx: Tx, wanted: str, *, profile: str, except_for: str = "") -> None:
    """Refuse a title that another session has, and name that session."""
    holder = sessions.id_by_title(tx, wanted, profile=profile)
    if holder not in (None, except_for):
        raise Conflict(
            f"The title {wanted!r} is taken by session {holder}; nothing was changed. Choose another."
        )


def _put(tx: Tx, head: SessionHead, title: str | None, *, by: TitleBy) -> None:
    sessions.set_title(tx, head.no, title, by=None if title is None else by)
    log.notify(tx, head)
