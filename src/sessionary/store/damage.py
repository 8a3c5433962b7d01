"""Structural damage of a store: remembered from its first sign on, and nothing is written after it."""

import sys

from sessionary.errors import Damaged, Unreadable

REMEDY = "Run `sessionary doctor`, then restore a backup (`sessionary restore`)."


class DamageLatch:
    """Keeps the first structural damage that any read, search or write of a store met."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: Damaged | None = None

    def note(self, error: BaseException) -> None:
        """Remember an error if it is the first that says that the database is damaged."""
        if self.found is None and isinstance(error, Damaged) and not isinstance(error, Unreadable):
            self.found = error
            # A short command does not load logging (5 ms); it prints the error itself.
            if (logging := sys.modules.get("logging")) is not None:
                logging.getLogger(__name__).error(
                    "The store is damaged, nothing more is written to it: %s", error
                )

    def refusal(self) -> Damaged | None:
        """The answer to a write once damage was found: it could destroy what can still be saved."""
        if self.found is None:
            return None
        return Damaged(
            "The store is damaged; nothing was written, and what can be read is still served. "
            + REMEDY
        )
