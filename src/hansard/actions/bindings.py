"""Which key is on which session, as a list."""

from dataclasses import dataclass
from datetime import datetime

from hansard.clock import from_micros
from hansard.errors import BadInput
from hansard.model.session import SessionHead
from hansard.store import sessions
from hansard.store.database import Tx

MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Binding:
    """A key and the session it is on."""

    key: str
    session: SessionHead
    bound_at: datetime


@dataclass(frozen=True, slots=True)
class Bindings:
    """One page of bindings, and where the next begins."""

    items: tuple[Binding, ...]
    next: str | None


def listing(tx: Tx, *, profile: str, limit: int = 100, cursor: str | None = None) -> Bindings:
    """The keys of a profile in order, a page at a time."""
    if not 1 <= limit <= MAX_LIMIT:
        raise BadInput(f"A page has 1 to {MAX_LIMIT:,} items, not {limit}.")
    rows = tx.all("list_bindings", profile=profile, after=cursor or "", limit=limit + 1)
    shown = rows[:limit]
    items = tuple(
        Binding(key, sessions.get_by_no(tx, no), from_micros(at)) for key, no, at in shown
    )
    return Bindings(items, shown[-1][0] if len(rows) > limit else None)
