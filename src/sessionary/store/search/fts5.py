"""A transaction on the index of an SQLite store, and queries in FTS5's language.

The words are in several tables (shards), each for a range of documents. The newest is searched
first and mostly answers alone: what costs in proportion to a word's matches (a prefix, above all)
costs no more than one shard has. A full shard is merged into one segment and not changed again.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import groupby, starmap
from operator import attrgetter
from typing import Any, NamedTuple, cast

import apsw

from sessionary.clock import from_micros
from sessionary.model.message import SEQ_BITS
from sessionary.model.query import Query, Term
from sessionary.model.search_text import (
    has_one_of,
    is_session_facet,
    month_facet,
    session_of_facet,
)
from sessionary.store.database import MANY, Row
from sessionary.store.queries import pg_array_literal
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.db_file import SqliteTx
from sessionary.store.tables.search import saturated

SHARD_BITS = 19
BLOCK_BITS = 12
# Fewer, wider ranges are searched when the blocks of a time would give more than this.
MAX_RANGES = 8
# More sessions than this are searched for only in the shards where they are.
FEW_SESSIONS = 8
SCORE, COUNT = "sessionary_score", "sessionary_count"
_FAR = 2**62
_WORDS, _VOCABULARY = "search_words", "search_vocabulary"
_IN_NEWEST = ("near_words",)


class Block(NamedTuple):
    """2^BLOCK_BITS documents in a row, and the first and the last of their times.

    Documents are numbered as they were written, so times mostly grow with the numbers; imported
    ones may be older than their neighbours.
    """

    no: int
    first_at: int
    last_at: int


class DocRange(NamedTuple):
    """Documents from `above` on and before `below`; `is_inside`: all are between the times."""

    above: int
    below: int
    is_inside: bool

    @property
    def is_long(self) -> bool:
        """Whether it has more than one block."""
        return self.below - self.above > 1 << BLOCK_BITS


class Shard(NamedTuple):
    """A table of words, and the first and the last time of its documents."""

    no: int
    first_at: int
    last_at: int

    @property
    def docs(self) -> tuple[int, int]:
        """The numbers of its documents: the first, and the first that is beyond."""
        return self.no << SHARD_BITS, self.no + 1 << SHARD_BITS


class IndexTx(SqliteTx):
    """Runs named queries on log and index; those on words in the shards that they concern."""

    __slots__ = ()

    def all(self, name: str, /, **params: Any) -> list[Row]:
        """Every row of a named query."""
        if "shard" in params:
            return self._execute(self._in_shard(name, params.pop("shard")), params).fetchall()
        if name in _IN_NEWEST:
            newest = self._shards()[:2]
            return [row for shard in newest for row in self.all(name, shard=shard.no, **params)]
        return super().all(name, **params)

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        """Run a named statement once per row; the number of rows it changed."""
        if name not in ("insert_words", "delete_words"):
            return super().many(name, rows)
        before = self._connection.total_changes()
        named = cast(Iterable[Mapping[str, Any]], rows)
        for no, group in groupby(named, key=lambda row: row["no"] >> SHARD_BITS):
            docs = list(group)
            if name == "insert_words":
                self._open_shard(no)
                self._note_places(no, docs)
            self._connection.executemany(self._in_shard(name, no), docs)
        return self._connection.total_changes() - before

    def match(
        self,
        query: Query,
        facets: Sequence[Sequence[str]],
        *,
        without: Sequence[str] = (),
        between: tuple[int, int] | None = None,
        below: int | None = None,
        limit: int = MANY,
    ) -> Generator[dict[str, Any], int | None, None]:
        """Yield the parameters of an FTS5 query for one shard after the other, newest first."""
        last = _FAR if below is None else below
        after, before = between or (-_FAR, _FAR)
        shards = self._shards()
        places = self._places(facets) if len(shards) > 1 else None
        for shard in shards:
            if shard.docs[0] >= last or shard.first_at >= before or shard.last_at < after:
                continue
            groups = facets if places is None else _only(facets, places[shard.no])
            if not all(groups):
                continue  # nothing of these sessions is here
            is_inside = shard.first_at >= after and shard.last_at < before
            for docs in self._ranges(shard, None if is_inside else between):
                months = []
                if docs.is_long and not docs.is_inside:
                    months = _months(max(shard.first_at, after), min(shard.last_at, before))
                params = match_params(
                    query, [*groups, months] if months else groups, without=without
                )
                params |= {"shard": shard.no, "above": docs.above, "below": min(docs.below, last)}
                yield params | {"is_sure": docs.is_inside}

    def clear(self) -> None:
        """Drop every shard."""
        for shard in self._shards():
            self.script(_in_shard(db_file.script("no_shard"), shard.no))

    def first_without_words(self) -> str | None:
        """Say which document has lost its words, if one has."""
        for shard in self._shards():
            first, beyond = shard.docs
            for (doc,) in self.all(
                "docs_without_words", shard=shard.no, first=first, beyond=beyond
            ):
                return f"document {doc} has lost its words"
        return None

    def _open_shard(self, no: int) -> None:
        """Create the table of a range; the shard before it is full then."""
        numbers = [shard.no for shard in self._shards()]
        if no in numbers:
            return
        self.script(_in_shard(db_file.script("shard"), no))
        self.run("add_shard", no=no)
        if numbers and numbers[0] < no:
            self.script(_in_shard(db_file.script("full_shard"), numbers[0]))

    def _note_places(self, shard: int, docs: Sequence[Mapping[str, Any]]) -> None:
        """Note the sessions and times of a shard's new documents."""
        times = [doc["at"] for doc in docs]
        self.run("widen_shard", no=shard, first_at=min(times), last_at=max(times))
        numbers = {doc["entry_no"] >> SEQ_BITS for doc in docs}
        super().many("add_place", [{"shard": shard, "session_no": no} for no in numbers])
        for no, group in groupby(docs, key=lambda doc: doc["no"] >> BLOCK_BITS):
            times = [doc["at"] for doc in group]
            self.run("widen_block", no=no, first_at=min(times), last_at=max(times))

    def _ranges(self, shard: Shard, times: tuple[int, int] | None) -> list[DocRange]:
        """The parts of a shard that may be of these times."""
        first, beyond = shard.docs
        if times is None:
            return [DocRange(first, beyond, is_inside=True)]
        rows = super().all("index_blocks", first=first >> BLOCK_BITS, beyond=beyond >> BLOCK_BITS)
        return ranges_between(starmap(Block, rows), *times)

    def _places(self, facets: Sequence[Sequence[str]]) -> dict[int, set[str]] | None:
        """Of many sessions that are searched for, those of each shard, as facets."""
        groups = [group for group in facets if _are_many_sessions(group)]
        if not groups:
            return None
        words = {session_of_facet(word): word for group in groups for word in group}
        found: dict[int, set[str]] = defaultdict(set)
        for shard, no in super().all("places_of_sessions", numbers=pg_array_literal(words)):
            found[shard].add(words[no])
        return found

    def _shards(self) -> list[Shard]:
        return list(starmap(Shard, super().all("index_shards")))

    def _in_shard(self, name: str, no: int) -> str:
        return _in_shard(self._texts[name], no)


def ranges_between(blocks: Iterable[Block], after: int, before: int) -> list[DocRange]:
    """The ranges that may have documents of these times, newest first; at most MAX_RANGES."""
    touched = sorted(each for each in blocks if each.first_at < before and each.last_at >= after)

    def run_of(numbered: tuple[int, Block]) -> tuple[int, bool]:
        """What neighbours have in common: their distance from their index, and whether they are inside."""
        index, block = numbered
        return block.no - index, block.first_at >= after and block.last_at < before

    found = [
        _range([block for _, block in run], is_inside=is_inside)
        for (_, is_inside), run in groupby(enumerate(touched), key=run_of)
    ]
    if len(found) > MAX_RANGES:
        found = [_range(touched, is_inside=False)]
    return found[::-1]


def _range(run: list[Block], *, is_inside: bool) -> DocRange:
    return DocRange(run[0].no << BLOCK_BITS, run[-1].no + 1 << BLOCK_BITS, is_inside)


def match_params(
    query: Query, facets: Sequence[Sequence[str]], *, without: Sequence[str]
) -> dict[str, Any]:
    """The parameters of a query. Words are letters and digits only, so quoting them is safe."""
    wanted = [_any(map(_term, group)) for group in query.groups]
    wanted += [_any(map(_quoted, group)) for group in facets]
    unwanted = [*map(_term, query.unwanted), *map(_quoted, without)]
    match = " AND ".join(wanted)
    if unwanted:
        match = f"({match}) NOT {_any(unwanted)}"
    phrases = sum(1 + (term.with_signs is not None) for group in query.groups for term in group)
    # Of a group of facets, every match has one, once: what is left of all occurrences are the phrase's.
    is_counted = phrases == 1 and all(map(has_one_of, facets))
    return {"match": match, "rank": phrases, "given": len(facets), "is_counted": is_counted}


# How often the words of a query occur in a document, all of them together. It is asked for thousands of documents:
# without a frame of Python's it takes a third of the time of `score`.
count: Callable[..., int] = attrgetter("inst_count")


def score(api: apsw.FTS5ExtensionApi, /, *params: Any) -> float:
    """How well a document matches a query of this many phrases: each further occurrence counts less."""
    [phrases] = params
    total = 0.0
    for phrase in range(phrases):
        total += saturated(len(api.phrase_column_offsets(phrase, 0)))
    return total


def _any(alternatives: Iterable[str]) -> str:
    return f"({' OR '.join(alternatives)})"


def _term(term: Term) -> str:
    found = " + ".join(_quoted(word.text) for word in term.words)
    if term.is_open_ended:
        found += " *"
    return found if term.with_signs is None else f"({found} AND {_quoted(term.with_signs)})"


def _quoted(word: str) -> str:
    return f'"{word}"'


def _only(facets: Sequence[Sequence[str]], there: set[str]) -> list[Sequence[str]]:
    """The groups of facets without the sessions that are in other shards."""
    return [
        [word for word in group if word in there] if _are_many_sessions(group) else group
        for group in facets
    ]


def _are_many_sessions(group: Sequence[str]) -> bool:
    return len(group) > FEW_SESSIONS and is_session_facet(group[0])


def _months(first: int, last: int) -> list[str]:
    """The facets of the months between two times; none when they are too many to be of use."""
    begin, end = (at.year * 12 + at.month for at in map(from_micros, (first, last)))
    return [month_facet(0, month) for month in range(begin, end + 1)] if end - begin < 36 else []


def _in_shard(text: str, no: int) -> str:
    return text.replace(_WORDS, f"{_WORDS}_{no}").replace(_VOCABULARY, f"{_VOCABULARY}_{no}")
