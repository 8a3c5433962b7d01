"""The stored log of a session, compared with a source that repeats it; read a page at a time."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from sessionary.actions.transfer import merge
from sessionary.model import codec
from sessionary.model.session import Segment
from sessionary.store.database import Store
from sessionary.store.tables.entries import LogRow

# The tool's id of an entry, and a digest of its content.
Key = tuple[str, int]


class Branches:
    """A whole log with its branches, for a source that left something out."""

    def __init__(self, rows: Iterable[LogRow], first: int) -> None:
        # From which seq on entries can still be repeated.
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
        """Return the seq of the last entry with that key; 0 without one."""
        return self._latest.get(key, 0)

    def find_after(self, position: int, key: Key) -> int | None:
        """Return the last entry with that key whose branch leads through the same entries."""
        found = self._latest.get(key, 0)
        if found <= position:
            return None
        at = self._before[found] if position else 0
        while at != position and not self._have_same_path(at, position):
            if at == 0:
                return None
            at = self._before[at]
        return found

    def _have_same_path(self, one: int, other: int) -> bool:
        """Whether the entries before two positions are the same."""
        while one != other:
            if self._keys.get(one) != self._keys.get(other):
                return False
            one, other = self._before.get(one, 0), self._before.get(other, 0)
        return True


def key_of(row: LogRow) -> Key:
    """Return the key of an entry."""
    return row.native_id or "", digest(row.kind, row.role, row.text)


def digest(kind: str, role: str | None, text: str) -> int:
    """Return a hash of an entry's content; of a compaction only its summary counts."""
    content = codec.decode(text)["summary"] if kind == "compaction" else text
    return hash((kind, role, content))


class KnownHistory:
    """Follows a source that repeats the log; after a gap, entries are searched further on."""

    def __init__(self, store: Store, segments: Sequence[Segment]) -> None:
        self._store = store
        self._segments = segments
        self._page: deque[LogRow] = deque()
        self._read_through = 0
        self._branches: Branches | None = None

    def find(
        self, position: int, kind: str, role: str | None, text: str, id: str | None
    ) -> int | None:
        """Return the seq of the entry that says the same: the next one, or one further on."""
        if self._branches is None:
            row = self._next()
            if row is not None and _is_same(row, kind, role, text):
                self._page.popleft()
                return row.seq
            self._branches = self._read_all_branches()
        return self._branches.find_after(position, (id or "", digest(kind, role, text)))

    def consume_retraction(self, before: int, position: int) -> bool:
        """Return whether the log was rewound to an earlier entry here, and consume the retraction."""
        if self._branches is not None:
            text = codec.encode({"after": position, "reason": "branch"})
            return self._branches.latest(("", digest("retraction", None, text))) > before
        row = self._next()
        if row is None or not _retracts_to(row, position):
            return False
        self._page.popleft()
        return True

    def remaining(self) -> Iterator[LogRow]:
        """Yield the entries that were not repeated yet."""
        while (row := self._next()) is not None:
            self._page.popleft()
            yield row

    def _next(self) -> LogRow | None:
        """Return the next entry without consuming it."""
        if not self._page:
            rows = self._read(self._read_through)
            if not rows:
                return None
            self._read_through = rows[-1].seq
            self._page.extend(rows)
        return self._page[0]

    def _read_all_branches(self) -> Branches:
        """Read the whole log: the source has left something out."""
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


def _retracts_to(row: LogRow, position: int) -> bool:
    return row.kind == "retraction" and int(codec.decode(row.text)["after"]) == position


def _is_same(row: LogRow, kind: str, role: str | None, text: str) -> bool:
    return row.kind == kind and row.role == role and row.text == text
