"""The index itself: built, fed beside appends, caught up with, opened by a cold command."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import apsw

from benchmarks import populate, search_store
from benchmarks.append import SESSIONS, Product
from benchmarks.cold import Cold
from benchmarks.corpus import CorpusLine, Language, corpus
from benchmarks.goals import at_least, at_most
from benchmarks.measure import Case, Contestant, Sample, repeat
from benchmarks.raw import RawLog
from benchmarks.texts import sql
from sessionary.actions.search.search import SearchOptions, search
from sessionary.clock import SystemClock
from sessionary.store.database import Store

BUILT = 20_000
BURST = 10_000
BUILD = "sessionary, batches after the commit"
TRIGGER = "in the insert, by trigger"
NO_INDEX = "rows without an index"
WITH, WITHOUT, SHARED = (
    "sessionary, indexer on",
    "sessionary, indexer off",
    "raw, one fsync for all",
)
AFTER = "sessionary, a search after a burst"
COLD = "sessionary search"


def cases(folder: Path, path: Path, *, language: Language, count: int) -> Iterator[Case]:
    """What the index costs."""
    messages = list(islice(corpus(language, count), min(BUILT, count)))
    yield _building(folder, messages, _ratio(path, language, count))
    yield from _feeding(folder)
    yield _catching_up(folder, min(BURST, count))
    yield _cold(folder, path, language.words[2_100], count)


def _ratio(path: Path, language: Language, count: int) -> float:
    size = os.stat(f"{path}-search").st_size
    text = search_store.text_bytes(islice(corpus(language, count), min(count, 20_000)))
    return size / (text * max(1.0, count / 20_000))


def _building(folder: Path, messages: list[CorpusLine], ratio: float) -> Case:
    store = populate.opened(folder / "built.db")
    search_store.fill(store, messages)
    store.close()

    def build(_: float) -> Sample:
        built = populate.opened(folder / "built.db")
        built.rebuild_index().result()
        sample = _cpu(len(messages), lambda: built.catch_up(None).result())
        built.close()
        return sample

    def insert(table: str) -> Callable[[float], Sample]:
        def run(_: float) -> Sample:
            connection = apsw.Connection(":memory:")
            connection.execute(sql()[table]).fetchall()
            rows = [(str(line.session), line.role, line.text) for line in messages]
            work = lambda: connection.executemany(sql()["known_search_message"], rows)  # noqa: E731
            sample = _cpu(len(messages), work)
            connection.close()
            return sample

        return run

    return Case(
        "building the index, per CPU second",
        (
            Contestant(BUILD, "product", build),
            Contestant(TRIGGER, "peer", insert("known_search_tables")),
            Contestant(NO_INDEX, "floor", insert("unindexed_tables")),
        ),
        (
            at_least(12_000, "messages per CPU second", lambda got: got.rate(BUILD)),
            at_most(0.7, "of the text", lambda _: ratio, of="size of the index"),
        ),
    )


def _cpu(count: int, work: Callable[[], object]) -> Sample:
    began = time.process_time()
    work()
    used = time.process_time() - began
    return Sample(count, used, [used / count])


def _feeding(folder: Path) -> Iterator[Case]:
    """Appends of 64 sessions at once, with and without an indexer beside them."""
    with ExitStack() as stack:
        fed = stack.enter_context(closing(populate.opened(folder / "fed.db")))
        plain = stack.enter_context(closing(populate.opened(folder / "plain.db")))
        raw = stack.enter_context(closing(RawLog(folder / "feed-raw.db", sessions=SESSIONS)))
        fed.index_in_background()
        with_index, without = (
            Product(store, store.write(populate.open_plain, SESSIONS).result())
            for store in (fed, plain)
        )
        yield Case(
            f"appends, {SESSIONS} sessions",
            (
                Contestant(WITH, "product", with_index.coroutines(SESSIONS)),
                Contestant(WITHOUT, "product", without.coroutines(SESSIONS)),
                Contestant(SHARED, "floor", repeat(lambda: raw.append(SESSIONS))),
            ),
            (
                at_least(0.6, "of the floor", lambda got: got.ratio(WITH, SHARED)),
                at_least(5_000, "a second", lambda got: got.rate(WITH)),
            ),
        )


def _catching_up(folder: Path, burst: int) -> Case:
    store = populate.opened(folder / "burst.db")
    session = store.write(populate.open_plain, 1).result()[0]
    _find(store, "quick")
    done = 0

    def run(_: float) -> Sample:
        nonlocal done
        for first in range(0, burst, 1_000):
            store.write(populate.fill, session, done + first, 1_000).result()
        done += burst
        began = time.perf_counter()
        _find(store, "quick")
        took = time.perf_counter() - began
        return Sample(1, took, [took])

    return Case(
        f"after a burst of {burst:,} appends",
        (Contestant(AFTER, "product", run),),
        (at_most(1, "s of waiting", lambda got: got.p50(AFTER)),),
    )


def _cold(folder: Path, path: Path, word: str, count: int) -> Case:
    cold = Cold(folder)
    ours = ["-m", "sessionary", "--database", f"sqlite:///{path}", "search", word, "--json"]
    cold.run(ours)
    memory = max(cold.most_memory(ours) for _ in range(2))
    return Case(
        f"a cold command, {count:,} messages",
        (Contestant(COLD, "product", cold.times(ours, 5)), cold.floor(5)),
        (
            at_most(150, "ms", lambda got: got.p50(COLD) * 1000),
            at_most(80, "MB", lambda _: memory),
        ),
        by="p50",
    )


def _find(store: Store, word: str) -> None:
    now = SystemClock().now()
    found = store.search(
        search, word, profile=populate.PROFILE, options=SearchOptions(), now=now
    ).result()
    assert found.behind == 0
