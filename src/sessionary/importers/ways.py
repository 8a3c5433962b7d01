"""Where each line of a log stands, and which lines led to it."""

from collections.abc import Iterable

from sessionary.actions.weaving import Row
from sessionary.model import document

# The tool's own name for a line, and a digest of what it says.
Key = tuple[str, int]


class Ways:
    """A log that was read to its end because its source no longer says the same."""

    def __init__(self, rows: Iterable[Row], first: int) -> None:
        # From which number on lines can still be said again.
        self._first = first
        self._latest: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._before: dict[int, int] = {}
        tip = 0
        for row in rows:
            key = key_of(row)
            if row.seq >= first:
                self._latest[key] = row.seq
            if row.kind == "retraction":
                after = int(document.decode(row.text)["after"])
                while tip > after:
                    tip = self._before[tip]
                continue
            self._keys[row.seq], self._before[row.seq] = key, tip
            tip = row.seq

    def latest(self, key: Key) -> int:
        """The number of the last line that says so; 0 for none."""
        return self._latest.get(key, 0)

    def behind(self, here: int, key: Key) -> int | None:
        """The last line that says so and to which the way we have come led, perhaps said again."""
        found = self._latest.get(key, 0)
        if found <= here:
            return None
        at = self._before[found] if here else 0
        while at != here and not self._is_same_way(at, here):
            if at == 0:
                return None
            at = self._before[at]
        return found

    def _is_same_way(self, one: int, other: int) -> bool:
        """Whether the same was said up to two lines."""
        while one != other:
            if self._keys.get(one) != self._keys.get(other):
                return False
            one, other = self._before.get(one, 0), self._before.get(other, 0)
        return True


def key_of(row: Row) -> Key:
    """What a line of the log is known by."""
    return row.native_id or "", digest(row.kind, row.role, row.text)


def digest(kind: str, role: str | None, text: str) -> int:
    """What tells two lines apart; of a compaction only what it says, not where."""
    said = document.decode(text)["summary"] if kind == "compaction" else text
    return hash((kind, role, said))
