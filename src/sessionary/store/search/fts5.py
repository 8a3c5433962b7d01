"""A transaction on the index of an SQLite store, whose words are in several tables.

Each holds the words of one range of documents. The newest is asked first, and mostly answers:
what costs as much as a word has matches (the beginning of a word, above all) costs no more than
one table has. A full one is merged into one piece and not touched again.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, starmap
from typing import Any, cast

from sessionary.clock import from_micros
from sessionary.model.message import SEQ_BITS
from sessionary.model.query import Query
from sessionary.model.search_text import is_session, of_month, session_of
from sessionary.store import stretches
from sessionary.store.database import Row
from sessionary.store.queries import pg_array_literal
from sessionary.store.search import fts5_query
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.tx import SqliteTx
from sessionary.store.stretches import BLOCK_BITS, Block, Stretch

SHARD_BITS = 19
# More sessions than these are looked for only in the ranges where they are.
FEW_SESSIONS = 8
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

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        """Run a named statement once per row; the number of rows it changed."""
        if name not in ("insert_words", "delete_words"):
            return super().many(name, rows)
        before = self._connection.total_changes()
        named = cast(Iterable[Mapping[str, Any]], rows)
        for shard, group in groupby(named, key=lambda row: row["no"] >> SHARD_BITS):
            given = list(group)
            if name == "insert_words":
                self._open(shard)
                self._note(shard, given)
            self._connection.executemany(self._in(name, shard), given)
        return self._connection.total_changes() - before

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
        shards = super().all("index_shards")
        places = self._places(facets) if len(shards) > 1 else None
        found = []
        for no, first_at, last_at in shards:
            if no << SHARD_BITS >= last or first_at >= before or last_at < after:
                continue
            groups = facets if places is None else _only(facets, places[no])
            if not all(groups):
                continue  # nothing of these sessions is here
            times = max(first_at, after), min(last_at, before)
            is_inside = first_at >= after and last_at < before
            for each in self._stretches(no, None if is_inside else between):
                months = _months(*times) if each.is_long and not each.is_inside else []
                asked = fts5_query.asked(
                    query, [*groups, months] if months else groups, without=without
                )
                asked |= {"shard": no, "above": each.above, "below": min(each.below, last)}
                found.append(asked | {"is_sure": each.is_inside})
        return found

    def clear(self) -> None:
        """Take every table of words away."""
        for no in self._shards():
            self.script(_named(db_file.script("no_shard"), no))

    def first_without_words(self) -> str | None:
        """Say which document has lost its words, if one has."""
        for no in self._shards():
            first, beyond = no << SHARD_BITS, no + 1 << SHARD_BITS
            for (doc,) in self.all("docs_without_words", shard=no, first=first, beyond=beyond):
                return f"document {doc} has lost its words"
        return None

    def _open(self, no: int) -> None:
        """Make the table of a range; the one before it is full then."""
        known = self._shards()
        if no in known:
            return
        self.script(_named(db_file.script("shard"), no))
        self.run("add_shard", no=no)
        if known and known[0] < no:
            self.script(_named(db_file.script("full_shard"), known[0]))

    def _note(self, shard: int, docs: Sequence[Mapping[str, Any]]) -> None:
        """Of which sessions and which times the documents of a range are."""
        times = [doc["at"] for doc in docs]
        self.run("widen_shard", no=shard, first_at=min(times), last_at=max(times))
        numbers = {doc["entry_no"] >> SEQ_BITS for doc in docs}
        super().many("add_place", [{"shard": shard, "session_no": no} for no in numbers])
        for no, group in groupby(docs, key=lambda doc: doc["no"] >> BLOCK_BITS):
            times = [doc["at"] for doc in group]
            self.run("widen_block", no=no, first_at=min(times), last_at=max(times))

    def _stretches(self, shard: int, times: tuple[int, int] | None) -> list[Stretch]:
        """The parts of a range that may be of these times."""
        first, beyond = shard << SHARD_BITS, shard + 1 << SHARD_BITS
        if times is None:
            return [Stretch(first, beyond, is_inside=True)]
        rows = super().all("index_blocks", first=first >> BLOCK_BITS, beyond=beyond >> BLOCK_BITS)
        return stretches.between(starmap(Block, rows), *times)

    def _places(self, facets: Sequence[Sequence[str]]) -> dict[int, set[str]] | None:
        """In which ranges sessions are that are asked for, where these are many; as words."""
        groups = [group for group in facets if _are_many_sessions(group)]
        if not groups:
            return None
        words = {session_of(word): word for group in groups for word in group}
        found: dict[int, set[str]] = defaultdict(set)
        for shard, no in super().all("places_of_sessions", numbers=pg_array_literal(words)):
            found[shard].add(words[no])
        return found

    def _shards(self) -> list[int]:
        return [row[0] for row in super().all("index_shards")]

    def _in(self, name: str, shard: int) -> str:
        return _named(self._texts[name], shard)


def _only(facets: Sequence[Sequence[str]], there: set[str]) -> list[Sequence[str]]:
    """The groups of facets without those sessions that are elsewhere."""
    return [
        [word for word in group if word in there] if _are_many_sessions(group) else group
        for group in facets
    ]


def _are_many_sessions(group: Sequence[str]) -> bool:
    return len(group) > FEW_SESSIONS and is_session(group[0])


def _months(first: int, last: int) -> list[str]:
    """The facets of the months between two times; none when they are too many to be of use."""
    begin, end = (at.year * 12 + at.month for at in map(from_micros, (first, last)))
    return [of_month(0, month) for month in range(begin, end + 1)] if end - begin < 36 else []


def _named(text: str, shard: int) -> str:
    return text.replace(_WORDS, f"{_WORDS}_{shard}").replace(_VOCABULARY, f"{_VOCABULARY}_{shard}")
