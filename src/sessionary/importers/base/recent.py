"""A dictionary that forgets its oldest entries: what is looked up is nearly always recent."""

from collections.abc import Mapping
from itertools import islice
from typing import Generic, TypeVar

V = TypeVar("V")
REMEMBERED = 20_000


class RecentEntries(Generic[V]):
    """Holds the latest entries, at least `keep` of them and at most twice as many."""

    def __init__(self, given: Mapping[str, V] | None = None, *, keep: int = REMEMBERED) -> None:
        self._entries: dict[str, V] = dict(given or {})
        self._keep, self._most = keep, 2 * keep
        # Reading is the dictionary's own: it is done for every line of a file.
        self.get = self._entries.get

    def put(self, name: str, value: V) -> None:
        """Hold an entry."""
        entries = self._entries
        entries[name] = value
        if len(entries) > self._most:
            latest = dict(islice(entries.items(), self._keep, None))
            entries.clear()
            entries.update(latest)

    def pop(self, name: str) -> V | None:
        """Take an entry out; None when it is not there."""
        return self._entries.pop(name, None)

    def latest(self, count: int) -> dict[str, V]:
        """The last entries."""
        found = list(islice(reversed(self._entries.items()), count))
        return dict(reversed(found))
