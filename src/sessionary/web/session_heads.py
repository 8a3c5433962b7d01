"""Session heads as the workbench lists them, with their status."""

from collections.abc import Sequence
from typing import Any

from sessionary.actions.sessions import lists, read
from sessionary.actions.sessions.read import SessionStatus, get_statuses
from sessionary.errors import BadInput
from sessionary.model.session import SessionHead
from sessionary.model.view import HEAD_FIELDS, head_json
from sessionary.store.database import Tx
from sessionary.store.tables import entries

FIELDS = (*HEAD_FIELDS, "subagents", "failed")


def heads_json(tx: Tx, heads: Sequence[SessionHead]) -> list[dict[str, Any]]:
    """Heads, each with the number of its subagents and whether its last turn failed."""
    known = get_statuses(tx, heads)
    nothing = SessionStatus()
    return [_listed(head, known.get(head.id, nothing)) for head in heads]


def page(
    tx: Tx, filters: lists.SessionFilters, *, profile: str, limit: int, cursor: str | None
) -> dict[str, Any]:
    """A page of the list, where the next begins, how many it leaves out, and as of when.

    Who listens to events from `position` on misses nothing that came after the page was read.
    """
    position = entries.last_position(tx)
    found = lists.list_sessions(tx, filters, profile=profile, limit=limit, cursor=cursor)
    return {
        "items": heads_json(tx, found.items),
        "next": found.next,
        **found.hidden.to_json(),
        "position": position,
    }


def children(tx: Tx, id: str, *, profile: str) -> list[dict[str, Any]]:
    """The sessions that came from one, as heads."""
    return heads_json(tx, read.list_children(tx, read.get_head(tx, id, profile=profile)))


def parse_fields(text: str) -> tuple[str, ...]:
    """Parse a list of field names; refuse unknown ones."""
    named = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    for each in named:
        if each not in FIELDS:
            raise BadInput(f"A head has no field {each[:60]!a}; it has {', '.join(FIELDS)}.")
    return named


def select_fields(head: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """These fields of a head, without empty ones."""
    return {name: head[name] for name in fields if head[name]}


def _listed(head: SessionHead, standing: SessionStatus) -> dict[str, Any]:
    more = {"subagents": standing.subagents, "failed": standing.failed and not head.running}
    return head_json(head) | more
