"""A transaction on an apsw connection."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from sessionary.errors import Damaged
from sessionary.store import queries
from sessionary.store.database import REMEDY, Row

if TYPE_CHECKING:
    from sessionary.model.query import Query


def not_text(error: UnicodeDecodeError) -> Damaged:
    """Say that a column holds bytes that no one can have written there: all text goes in as UTF-8."""
    return Damaged(f"A row of the store is damaged ({error.reason} in a text). {REMEDY}")


class SqliteTx:
    """Runs named queries on one connection; events wait here for the commit."""

    __slots__ = ("_connection", "_execute", "_texts", "events")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._texts = queries.load("sqlite")
        self.events: list[Any] = []

    @property
    def connection(self) -> apsw.Connection:
        """The connection itself, for what only SQLite can do."""
        return self._connection

    def one(self, name: str, /, **params: Any) -> Row | None:
        # Run to the end: a statement left half-way would keep its locks.
        rows = self.all(name, **params)
        return rows[0] if rows else None

    def all(self, name: str, /, **params: Any) -> list[Row]:
        text = self._texts[name]
        if not text:
            return []
        try:
            return self._execute(text, params).fetchall()
        except UnicodeDecodeError as error:
            raise not_text(error) from error

    def run(self, name: str, /, **params: Any) -> int:
        text = self._texts[name]
        if not text:
            return 0
        self._execute(text, params)
        return self._connection.changes()

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        before = self._connection.total_changes()
        self._connection.executemany(self._texts[name], rows)
        return self._connection.total_changes() - before

    def script(self, text: str) -> None:
        """Run several statements without parameters."""
        self._connection.execute(text).fetchall()

    @contextmanager
    def only_reading(self) -> Iterator[None]:
        """Refuse every write within the block, and publish nothing of it."""
        known = len(self.events)
        self._connection.pragma("query_only", True)
        try:
            yield
        finally:
            self._connection.pragma("query_only", False)
            del self.events[known:]

    def match(
        self,
        query: "Query",
        facets: Sequence[Sequence[str]],
        *,
        without: Sequence[str] = (),
        between: tuple[int, int] | None = None,
        below: int | None = None,
    ) -> list[dict[str, Any]]:
        """Only a transaction on the index can be asked; `IndexTx` is one."""
        raise NotImplementedError

    def after_commit(self, event: Any) -> None:
        self.events.append(event)
