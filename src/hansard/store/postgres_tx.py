"""A transaction on a psycopg connection."""

from collections.abc import Iterable, Mapping
from typing import Any

import psycopg

from hansard.model.query import Query
from hansard.store import postgres_match, queries
from hansard.store.database import Row


class PostgresTx:
    """Runs named queries on one connection; events wait here for the commit."""

    __slots__ = ("_cursor", "_texts", "events")

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._cursor = connection.cursor()
        self._texts = queries.load_for_psycopg()
        self.events: list[Any] = []

    def one(self, name: str, /, **params: Any) -> Row | None:
        return self._cursor.execute(self._texts[name], params).fetchone()

    def all(self, name: str, /, **params: Any) -> list[Row]:
        return self._cursor.execute(self._texts[name], params).fetchall()

    def run(self, name: str, /, **params: Any) -> int:
        return self._cursor.execute(self._texts[name], params).rowcount

    def many(self, name: str, rows: Iterable[Mapping[str, Any]], /) -> None:
        self._cursor.executemany(self._texts[name], list(rows))

    def script(self, text: str) -> None:
        """Run several statements without parameters."""
        self._cursor.execute(text.encode())

    def match(self, query: Query, *, profile: str, area: str) -> dict[str, str]:
        """A query in the language of tsquery; `loose` for texts too long to know where each word stands."""
        return {
            "match": postgres_match.match(query, profile=profile, area=area),
            "loose": postgres_match.match(query, profile=profile, area=area, phrases=False),
        }

    def after_commit(self, event: Any) -> None:
        self.events.append(event)
