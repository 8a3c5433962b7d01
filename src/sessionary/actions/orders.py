"""The orders of a list. Each has an index of its own, so that a page costs the same in any store."""

from datetime import datetime
from enum import StrEnum
from string import ascii_lowercase, ascii_uppercase

from sessionary.clock import to_micros
from sessionary.errors import BadInput
from sessionary.model.session import Cursor, SessionHead

# As both databases lower letters in an index: nothing but A to Z, whatever the language.
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


class Order(StrEnum):
    """In which order sessions are listed: names from A on, everything else from the most down."""

    ACTIVITY = "activity"
    CREATED = "created"
    TITLE = "title"
    COST = "cost"

    @property
    def is_rising(self) -> bool:
        """Whether the smallest comes first."""
        return self is Order.TITLE

    def value_of(self, head: SessionHead) -> int | str:
        """What a session is ordered by."""
        match self:
            case Order.ACTIVITY:
                return to_micros(head.last_active_at)
            case Order.CREATED:
                return to_micros(head.began_at)
            case Order.TITLE:
                return (head.title or head.preview or "").translate(_LOWER)
            case Order.COST:
                return head.usage.known_cost_microusd

    def behind(self, head: SessionHead) -> Cursor:
        """The place behind a session."""
        return Cursor.after(self.value_of(head), head.no)

    def begin(self, cursor: str | None, *, until: datetime | None) -> Cursor:
        """Where a page begins; a time to end at is known only to the order of activity."""
        if not cursor:
            if self.is_rising:
                return Cursor("", 0)
            before = until if self is Order.ACTIVITY else None
            return Cursor.first(None if before is None else to_micros(before))
        at = Cursor.parse(cursor)
        if isinstance(at.at, str) is not self.is_rising:
            raise BadInput("That cursor is of a list in another order; begin again without it.")
        return at

    def sort(self, heads: list[SessionHead]) -> None:
        """Put heads of several stretches into one order."""
        heads.sort(key=lambda head: (self.value_of(head), head.no), reverse=not self.is_rising)
