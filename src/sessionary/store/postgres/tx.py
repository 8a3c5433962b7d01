"""A transaction on a psycopg connection."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from sessionary.store import queries
from sessionary.store.database import Row

if TYPE_CHECKING:
    from sessionary.model.query import Query


class PostgresTx:
    """Runs named queries on one connection; events wait here for the commit."""

    __slots__ = ("_cursor", "_reading", "_texts", "events", "has_written")

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        # Numbers come as they are, not as text: a search reads thousands of them.
        self._cursor = connection.cursor(binary=True)
        self._texts = queries.load_for_psycopg()
        self._reading = queries.only_reading()
        self.events: list[Any] = []
        self.has_written = False

    def one(self, name: str, /, **params: Any) -> Row | None:
        return self._executed(name, params).fetchone() if self._texts[name] else None

    def all(self, name: str, /, **params: Any) -> list[Row]:
        return self._executed(name, params).fetchall() if self._texts[name] else []

    def run(self, name: str, /, **params: Any) -> int:
        return self._executed(name, params).rowcount if self._texts[name] else 0

    def _executed(self, name: str, params: dict[str, Any]) -> psycopg.Cursor[Row]:
        cursor = self._cursor.execute(self._texts[name], params)
        if cursor.rowcount and name not in self._reading:
            self.has_written = True
        return cursor

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        if not self._texts[name]:
            return 0
        self.has_written = True
        order = queries.order("postgres", name)
        named = [
            dict(zip(order, row, strict=True)) if isinstance(row, tuple) else row for row in rows
        ]
        self._cursor.executemany(self._texts[name], named)
        return max(0, self._cursor.rowcount)

    def script(self, text: str) -> None:
        """Run several statements without parameters."""
        self.has_written = True
        # Several in one go cannot be answered in binary.
        self._cursor.connection.execute(text.encode())

    def match(
        self,
        query: "Query",
        facets: Sequence[Sequence[str]],
        *,
        without: Sequence[str] = (),
        between: tuple[int, int] | None = None,
        below: int | None = None,
    ) -> list[dict[str, Any]]:
        """A query in the language of tsquery."""
        # Loaded by whoever searches: the words' patterns take longer to make than a list to read.
        language = importlib.import_module("sessionary.store.search.tsquery")
        newest = self._newest_position()
        asked: list[dict[str, Any]] = language.asked(
            query, facets, without=without, newest=newest, below=below
        )
        return [each | {"is_sure": between is None} for each in asked]

    def after_commit(self, event: Any) -> None:
        self.events.append(event)

    def _newest_position(self) -> int | None:
        row = self.one("newest_position")
        return None if row is None else row[0]


class SnapshotTx(PostgresTx):
    """Reads at one moment: how far the index has come is asked once."""

    __slots__ = ("_index_state",)

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        super().__init__(connection)
        self._index_state: Row | None = None

    def one(self, name: str, /, **params: Any) -> Row | None:
        if name != "index_state":
            return super().one(name, **params)
        if self._index_state is None:
            self._index_state = super().one(name)
        return self._index_state

    def _newest_position(self) -> int | None:
        row = self.one("index_state")
        return None if row is None else row[0] + row[2]
