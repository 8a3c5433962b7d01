"""A transaction on the index of an SQLite store, whose words are in several tables.

Each holds the words of one range of documents. The newest is asked first, and mostly answers:
what costs as much as a word has matches (the beginning of a word, above all) costs no more than
one table has. A full one is merged into one piece and not touched again.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from hansard.clock import from_micros
from hansard.model.query import Query
from hansard.model.search_text import of_month
from hansard.store import sqlite_file, sqlite_match
from hansard.store.database import Row
from hansard.store.sqlite_tx import SqliteTx

SHARD_BITS = 19
_FAR = 2**62
_WORDS, _VOCABULARY = "search_words", "search_vocabulary"
_IN_NEWEST = ("near_words",)


class IndexTx(SqliteTx):
    """Runs named queries on log and index; those on words in the tables that they concern."""

    __slots__ = ()

    def all(self, name: str, /, **params: Any) -> list[Row]:
        """Every row of a named query."""
        if "shard" in params:
            return self._execute(self._in(name, params.pop("shard")), params).fetchall()
        if name in _IN_NEWEST:
            newest = self._shards()[:2]
            return [row for no in newest for row in self.all(name, shard=no, **params)]
        return super().all(name, **params)

    def many(self, name: str, rows: Iterable[Mapping[str, Any]], /) -> None:
        """Run a named statement once per row."""
        if name not in ("insert_words", "delete_words"):
            super().many(name, rows)
            return
        for shard, group in groupby(rows, key=lambda row: row["no"] >> SHARD_BITS):
            given = list(group)
            if name == "insert_words":
                self._open(shard)
                times = [row["at"] for row in given]
                self.run("widen_shard", no=shard, first_at=min(times), last_at=max(times))
            self._connection.executemany(self._in(name, shard), given)

    def match(
        self,
        query: Query,
        facets: Sequence[Sequence[str]],
        *,
        without: Sequence[str] = (),
        between: tuple[int, int] | None = None,
        below: int | None = None,
    ) -> list[dict[str, Any]]:
        """A query in the language of FTS5, for one table after the other."""
        last = _FAR if below is None else below
        after, before = between or (-_FAR, _FAR)
        asked = []
        for no, first_at, last_at in super().all("index_shards"):
            if no << SHARD_BITS >= last or first_at >= before or last_at < after:
                continue
            is_inside = first_at >= after and last_at < before
            months = [] if is_inside else _months(max(first_at, after), min(last_at, before))
            found = sqlite_match.asked(
                query, [*facets, months] if months else facets, without=without
            )
            asked.append(found | {"shard": no, "below": last, "is_sure": is_inside})
        return asked

    def clear(self) -> None:
        """Take every table of words away."""
        for no in self._shards():
            self.script(_named(sqlite_file.script("no_shard"), no))

    def _open(self, no: int) -> None:
        """Make the table of a range; the one before it is full then."""
        known = self._shards()
        if no in known:
            return
        self.script(_named(sqlite_file.script("shard"), no))
        self.run("add_shard", no=no)
        if known and known[0] < no:
            self.script(_named(sqlite_file.script("full_shard"), known[0]))

    def _shards(self) -> list[int]:
        return [row[0] for row in super().all("index_shards")]

    def _in(self, name: str, shard: int) -> str:
        return _named(self._texts[name], shard)


def _months(first: int, last: int) -> list[str]:
    """The facets of the months between two times; none when they are too many to be of use."""
    begin, end = (at.year * 12 + at.month for at in map(from_micros, (first, last)))
    return [of_month(0, month) for month in range(begin, end + 1)] if end - begin < 36 else []


def _named(text: str, shard: int) -> str:
    return text.replace(_WORDS, f"{_WORDS}_{shard}").replace(_VOCABULARY, f"{_VOCABULARY}_{shard}")
