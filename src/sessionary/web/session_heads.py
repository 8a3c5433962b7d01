"""Sessions as lists and events show them, with the state of their work."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_type_hints

from typing_extensions import TypedDict

from sessionary.actions.sessions import lists, read
from sessionary.actions.sessions.read import SessionStatus, get_statuses
from sessionary.errors import BadInput
from sessionary.model.json_types import ListedSession
from sessionary.model.session import SessionHead
from sessionary.model.view import head_json
from sessionary.store.database import Tx
from sessionary.store.tables import entries, questions

FIELDS = tuple(get_type_hints(ListedSession))


class HiddenByFolder(TypedDict):
    """How many sessions match the filters in each folder that is not listed."""

    automation: int
    archive: int


class SessionPageBase(TypedDict):
    """What a page of sessions says besides its items."""

    next: str | None
    """The cursor of the next page; null on the last."""
    hidden: int
    """How many automation and archived sessions match the filters but are not listed (first page only)."""
    hidden_by_folder: HiddenByFolder
    """The same number by folder."""
    hidden_at_least: bool
    """Whether counting stopped early, so that more may be hidden."""
    open_questions: bool
    """Whether anything waits for an answer in any session of the profile: see `GET /questions`."""
    position: int
    """Listen to `GET /events?after=` from here on to miss no change after this page was read."""


class SessionListPage(SessionPageBase):
    """A page of sessions."""

    items: list[ListedSession]


if TYPE_CHECKING:
    SessionRow = dict[str, Any]
else:
    SessionRow = TypedDict("SessionRow", get_type_hints(ListedSession), total=False)
    SessionRow.__doc__ = (
        "The chosen fields of a session. A field that is null, false, 0 or empty is left out."
    )


class SessionRowPage(SessionPageBase):
    """A page of sessions with only the chosen fields."""

    items: list[SessionRow]


def heads_json(tx: Tx, heads: Sequence[SessionHead], *, now: datetime) -> list[ListedSession]:
    """Heads, each with the number of its subagents and whether its last turn failed."""
    known = get_statuses(tx, heads)
    nothing = SessionStatus()
    return [_listed(head, known.get(head.id, nothing), now=now) for head in heads]


def page(
    tx: Tx,
    filters: lists.SessionFilters,
    *,
    profile: str,
    limit: int,
    cursor: str | None,
    now: datetime,
) -> SessionListPage:
    """A page of the list, where the next begins, how many it leaves out, and as of when."""
    position = entries.last_position(tx)
    found = lists.list_sessions(tx, filters, profile=profile, limit=limit, cursor=cursor)
    hidden = found.hidden
    return {
        "items": heads_json(tx, found.items, now=now),
        "next": found.next,
        "hidden": hidden.total,
        "hidden_by_folder": {"automation": hidden.automation, "archive": hidden.archived},
        "hidden_at_least": hidden.is_at_least,
        "open_questions": questions.has_open(tx, profile=profile),
        "position": position,
    }


def children(tx: Tx, id: str, *, profile: str, now: datetime) -> list[ListedSession]:
    """The sessions that came from one, as heads."""
    found = read.list_children(tx, read.get_head(tx, id, profile=profile))
    return heads_json(tx, found, now=now)


def parse_fields(text: str) -> tuple[str, ...]:
    """Parse a list of field names; refuse unknown ones."""
    named = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    for each in named:
        if each not in FIELDS:
            raise BadInput(f"A session has no field {each[:60]!a}; it has {', '.join(FIELDS)}.")
    return named


def select_fields(found: SessionListPage, fields: Sequence[str]) -> SessionRowPage:
    """The page with these fields alone, without empty ones."""
    heads: list[Mapping[str, Any]] = [*found["items"]]
    rows = [{name: head[name] for name in fields if head.get(name)} for head in heads]
    return {**found, "items": rows}


def _listed(head: SessionHead, standing: SessionStatus, *, now: datetime) -> ListedSession:
    return {
        **head_json(head, now=now),
        "subagents": standing.subagents,
        "failed": standing.failed and not head.running,
    }
