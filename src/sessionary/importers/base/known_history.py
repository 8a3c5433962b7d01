"""What may be said again: the log of a session as it is, read a page at a time."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from sessionary.actions.transfer import merge
from sessionary.model import codec
from sessionary.model.session import Segment
from sessionary.store.database import Store
from sessionary.store.tables.entries import LogRow

# The tool's own name for a line, and a digest of what it says.
Key = tuple[str, int]


class Branches:
    """A log that was read to its end because its source no longer says the same."""

    def __init__(self, rows: Iterable[LogRow], first: int) -> None:
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
                after = int(codec.decode(row.text)["after"])
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


def key_of(row: LogRow) -> Key:
    """What a line of the log is known by."""
    return row.native_id or "", digest(row.kind, row.role, row.text)


def digest(kind: str, role: str | None, text: str) -> int:
    """What tells two lines apart; of a compaction only what it says, not where."""
    said = codec.decode(text)["summary"] if kind == "compaction" else text
    return hash((kind, role, said))


class KnownHistory:
    """Follows a source that says its log again; what it leaves out is looked for further on."""

    def __init__(self, store: Store, segments: Sequence[Segment]) -> None:
        self._store = store
        self._segments = segments
        self._page: deque[LogRow] = deque()
        self._read_through = 0
        self._ways: Branches | None = None

    def find(self, here: int, kind: str, role: str | None, text: str, id: str | None) -> int | None:
        """The number under which the log says the same, in its next line or further on."""
        if self._ways is None:
            row = self._next()
            if row is not None and _is_same(row, kind, role, text):
                self._page.popleft()
                return row.seq
            self._ways = self._all_ways()
        return self._ways.behind(here, (id or "", digest(kind, role, text)))

    def takes_back(self, before: int, here: int) -> bool:
        """Whether the log goes back from an entry to an earlier one; its retraction is used up."""
        if self._ways is not None:
            text = codec.encode({"after": here, "reason": "branch"})
            return self._ways.latest(("", digest("retraction", None, text))) > before
        row = self._next()
        if row is None or not _takes_back_to(row, here):
            return False
        self._page.popleft()
        return True

    def rest(self) -> Iterator[LogRow]:
        """All that was not said again yet."""
        while (row := self._next()) is not None:
            self._page.popleft()
            yield row

    def _next(self) -> LogRow | None:
        """The next row that may be said again, not yet used."""
        if not self._page:
            rows = self._read(self._read_through)
            if not rows:
                return None
            self._read_through = rows[-1].seq
            self._page.extend(rows)
        return self._page[0]

    def _all_ways(self) -> Branches:
        """The whole log, read once more: the source has left something out."""
        row = self._next()
        first = self._read_through + 1 if row is None else row.seq
        return Branches(self._from_the_first(), first)

    def _from_the_first(self) -> Iterator[LogRow]:
        after = 0
        while rows := self._read(after):
            yield from rows
            after = rows[-1].seq

    def _read(self, after: int) -> list[LogRow]:
        return self._store.read(merge.page, self._segments, after).result()


def _takes_back_to(row: LogRow, here: int) -> bool:
    return row.kind == "retraction" and int(codec.decode(row.text)["after"]) == here


def _is_same(row: LogRow, kind: str, role: str | None, text: str) -> bool:
    return row.kind == kind and row.role == role and row.text == text
