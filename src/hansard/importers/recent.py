"""A dictionary that forgets its oldest entries: what is looked up is nearly always recent."""

from collections.abc import Mapping
from itertools import islice
from typing import Generic, TypeVar

V = TypeVar("V")
REMEMBERED = 20_000


class Recent(Generic[V]):
    """Holds the latest entries, at least `keep` of them and at most twice as many."""

    def __init__(self, given: Mapping[str, V] | None = None, *, keep: int = REMEMBERED) -> None:
        self._entries: dict[str, V] = dict(given or {})
        self._keep = keep
        # Reading is the dictionary's own: it is done for every line of a file.
        self.get = self._entries.get

    def put(self, name: str, value: V) -> None:
        """Hold an entry."""
        self._entries[name] = value
        if len(self._entries) > 2 * self._keep:
            latest = dict(islice(self._entries.items(), self._keep, None))
            self._entries.clear()
            self._entries.update(latest)

    def pop(self, name: str) -> V | None:
        """Take an entry out; None when it is not there."""
        return self._entries.pop(name, None)

    def latest(self, count: int) -> dict[str, V]:
        """The last entries."""
        found = list(islice(reversed(self._entries.items()), count))
        return dict(reversed(found))
