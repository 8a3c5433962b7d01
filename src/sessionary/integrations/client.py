"""What an integration needs of an open house, and how it waits for what it writes there."""

import asyncio
from datetime import datetime
from typing import Protocol, TypeVar

from sessionary.clock import Moment
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, Store, Tx

T = TypeVar("T")


class SessionaryClient(Protocol):
    """`sessionary.open()` gives one; blocking or awaitable makes no difference here."""

    @property
    def store(self) -> Store:
        """The database, open."""

    @property
    def profile(self) -> str:
        """The namespace of its sessions."""

    @property
    def holder(self) -> str:
        """Who holds the leases that are taken here."""

    def moment(self) -> Moment:
        """Now, and where fresh ids come from."""

    def priced(self, used: Usage | None, *, at: datetime | None) -> Usage | None:
        """A call with its cost as far as it is known."""


def nothing(tx: Tx) -> None:
    """Read nothing: a call that has nothing to write still fails on a store that is closed."""


async def settled(pending: Pending[T]) -> T:
    """The outcome of a write. Whoever is cancelled meanwhile hears of it once the outcome is there.

    A write that has begun cannot be called back: a task that left at once would not know whether
    what it wrote is in the log.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            value = await pending
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
            continue
        if cancelled is not None:
            raise cancelled
        return value
