"""Search by kind of query, beside raw FTS5 and the store that is known; then the index itself."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import apsw

from benchmarks import populate, search_index, search_store
from benchmarks.corpus import BEGAN, Language, corpus
from benchmarks.goals import at_least, at_most
from benchmarks.measure import Case, Contestant, Goal, Results, Sample, Scale, repeat
from benchmarks.texts import sql
from sessionary.actions.search.search import SearchOptions, SearchResult, search
from sessionary.clock import SystemClock
from sessionary.model import query as queries
from sessionary.store.database import Store
from sessionary.store.search import fts5, index_file

RELEVANCE = "sessionary, by relevance"
NEWEST = "sessionary, newest first"
FLOOR = "raw FTS5, newest 20 ids"
KNOWN = "every match ranked by bm25"
SCAN = "LIKE over every message"
ASKED = 40
LEAST = 400


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of query: what is asked, within how many milliseconds, of how many times better."""

    name: str
    asked: Sequence[str]
    p95_ms: float
    known: str = "known_search"
    times_better: float | None = None


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """Queries on one large store, then building the index, feeding it, and a cold start."""
    count = max(LEAST, scale.largest)
    language = Language()
    path = search_store.build(folder, language, count)
    known = search_store.build_known(folder, language, count)
    with ExitStack() as stack:
        store = stack.enter_context(closing(populate.opened(path)))
        store.catch_up(None).result()
        raw = _Raw(path)
        stack.callback(raw.close)
        peer = stack.enter_context(closing(apsw.Connection(str(known))))
        for kind in kinds(language, count):
            yield _case(kind, count, store=store, raw=raw, peer=peer)
    yield from search_index.cases(folder, path, language=language, count=count)


def kinds(language: Language, count: int) -> Iterator[Kind]:
    """The kinds of queries; a language that has written nothing yet gives the same ones."""
    words = language.words
    rng = random.Random(5)
    rare, medium, common = words[60_000::500], words[2_000:2_400:10], words[0:40]
    excerpts = _excerpts(language, count)
    yield Kind("a rare word", rare, 15)
    yield Kind("a medium word", medium, 15)
    yield Kind("a common word", common, 10, times_better=150)
    yield Kind("two words", [f"{rng.choice(medium)} {each}" for each in words[100:140]], 15)
    yield Kind("a phrase", [f'"{each}"' for each in excerpts], 30)
    yield Kind("a beginning", [f"{each[:3]}*" for each in words[500:700] if len(each) > 3], 50)
    pairs = language.characters
    cjk = [pairs[rank] + pairs[rank + 3] for rank in range(ASKED)]
    yield Kind("two Chinese characters", cjk, 10, known="known_scan", times_better=300)
    yield Kind(
        "a common word of one source",
        [f"{each} source:slack" for each in common],
        10,
        known="known_search_of_source",
    )
    project = search_store.PROJECT
    yield Kind("a common word in a project", [f"{each} in:{project}" for each in common], 10)
    early = f"{BEGAN:%Y-%m}"
    yield Kind("a common word of a month", [f"{each} before:{early}-20" for each in common], 10)


def _case(kind: Kind, count: int, *, store: Store, raw: "_Raw", peer: apsw.Connection) -> Case:
    contestants = [
        Contestant(RELEVANCE, "product", _asking(kind, lambda typed: _ask(store, typed))),
        Contestant(
            NEWEST, "product", _asking(kind, lambda typed: _ask(store, typed, sort="newest"))
        ),
        Contestant(FLOOR, "floor", _asking(kind, raw.ask)),
        Contestant(
            SCAN if kind.known == "known_scan" else KNOWN,
            "peer",
            _asking(kind, lambda typed: _ask_known(peer, typed, kind.known)),
        ),
    ]
    name = f"{kind.name}, {count:,} messages"
    return Case(name, tuple(contestants), tuple(_goals(kind)), by="p50")


def _goals(kind: Kind) -> Iterator[Goal]:
    yield at_most(kind.p95_ms, "ms", lambda got: got.percentile(RELEVANCE, 95) * 1000, of="p95")
    if kind.times_better is not None:
        other = SCAN if kind.known == "known_scan" else KNOWN

        def better(got: Results) -> float:
            return got.p50(other) / got.p50(RELEVANCE)

        yield at_least(kind.times_better, "times as fast as the known store", better)


def asking(words: Sequence[str], store: Store) -> Callable[[float], Sample]:
    """These words, one after the other, by relevance."""
    asked = cycle(words)

    def one() -> None:
        _ask(store, next(asked))

    return repeat(one)


def _asking(kind: Kind, ask: Callable[[str], object]) -> Callable[[float], Sample]:
    asked = cycle(kind.asked)

    def one() -> None:
        ask(next(asked))

    return repeat(one)


def _ask(store: Store, typed: str, sort: str = "relevance") -> SearchResult:
    return store.search(
        search,
        typed,
        profile=populate.PROFILE,
        options=SearchOptions(sort=sort),
        now=SystemClock().now(),
    ).result()


def _ask_known(peer: apsw.Connection, typed: str, name: str) -> object:
    """Ask as the store would that passes on what it can: words, quoted ones, beginnings."""
    plain = (
        typed.split(" source:", maxsplit=1)[0]
        .split(" in:", maxsplit=1)[0]
        .split(" before:", maxsplit=1)[0]
    )
    given = f"%{plain}%" if name == "known_scan" else plain
    return peer.execute(sql()[name], (given,)).fetchall()


class _Raw:
    """The same index, asked for the newest twenty numbers and nothing else."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(f"{path}-search", vfs=index_file.checksum_vfs())
        shards = self._connection.execute(sql()["floor_shards"]).fetchall()
        self._texts = [
            sql()["floor_search"].replace("search_words", f"search_words_{row[0]}")
            for row in shards
        ]

    def ask(self, typed: str) -> list[object]:
        """The newest twenty, from as many tables as it takes."""
        match = fts5.match_params(queries.parse(typed), [], without=())["match"]
        found: list[object] = []
        for text in self._texts:
            found += self._connection.execute(text, (match,)).fetchall()
            if len(found) >= 20:
                break
        return found

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _excerpts(language: Language, count: int) -> list[str]:
    """Three words that follow each other, from messages here and there."""
    rng = random.Random(6)
    found: list[str] = []
    for line in islice(corpus(language, count), 0, min(count, 20_000), 50):
        words = line.text.split()
        if line.role == "assistant" and len(words) > 8:
            at = rng.randrange(len(words) - 5)
            found.append(" ".join(words[at : at + 3]))
    return found[:ASKED] or ["no such words"]
