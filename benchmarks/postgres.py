"""PostgreSQL: appends beside a bare insert loop, the index's catch-up by size, searches beside SQLite's."""

import importlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks import populate, search, search_store, server_copy
from benchmarks.append import OURS, Product, in_threads
from benchmarks.corpus import Language, corpus
from benchmarks.goals import at_least, at_most
from benchmarks.measure import Case, Contestant, Sample, Scale
from benchmarks.raw import BODY
from benchmarks.texts import sql
from sessionary.clock import RandomIds, SystemClock
from sessionary.store.open import open_store

CONNECTIONS = 16
FLOOR = "a bare insert loop"
ON_SQLITE = "sessionary, on SQLite"
LEAST = 400


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """Sixteen writers on a server of our own; then searches, beside those on SQLite."""
    # Both are loaded here only: the one is for tests, the other an extra.
    testing = importlib.import_module("tests.support.postgres")
    psycopg = importlib.import_module("psycopg")
    with ExitStack() as stack:
        server = stack.enter_context(closing_server(testing.start_own_server(durable=True)))
        url = server.create_database()
        store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
        stack.enter_context(closing(store))
        ours = Product(store, store.write(populate.open_plain, CONNECTIONS).result())
        bare = Bare(psycopg, url)
        stack.enter_context(closing(bare))
        for count in (CONNECTIONS, 1):
            yield Case(
                f"append, {count} connections" if count > 1 else "append, 1 connection",
                (
                    Contestant(OURS, "product", ours.threads(count)),
                    Contestant(FLOOR, "floor", bare.threads(count)),
                ),
                (at_least(0.6, "of the floor", lambda got: got.ratio(OURS, FLOOR)),),
            )
        count = max(LEAST, scale.messages)
        yield _catching_up(stack, [server.create_database() for _ in range(2)], count)
        for size in sorted({count, *(size for size in scale.sizes if size > count)}):
            yield from _searches(psycopg, server.create_database(), folder, size)


def _catching_up(stack: ExitStack, urls: list[str], count: int) -> Case:
    """The index is made from the log, in a store and in one that is four times as large."""
    small, large = f"{count:,} messages", f"{4 * count:,} messages"

    def index(url: str, count: int) -> Callable[[float], Sample]:
        store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
        stack.enter_context(closing(store))
        search_store.fill(store, corpus(Language(), count))

        def run(_: float) -> Sample:
            store.rebuild_index().result()
            began = time.perf_counter()
            store.catch_up(None).result()
            took = time.perf_counter() - began
            return Sample(count, took, [took / count])

        return run

    return Case(
        "catching up with the log",
        (
            Contestant(small, "product", index(urls[0], count)),
            Contestant(large, "product", index(urls[1], 4 * count)),
        ),
        (
            at_least(5_000, "messages a second", lambda got: got.rate(large)),
            at_least(0.8, f"of the rate with {small}", lambda got: got.ratio(large, small)),
        ),
    )


def _searches(psycopg: Any, url: str, folder: Path, count: int) -> Iterator[Case]:
    """Every kind of query, in the same messages on both."""
    path = search_store.build(folder, Language(), count)
    with (
        closing(populate.opened(path)) as here,
        closing(open_store(url, create=True, clock=SystemClock(), ids=RandomIds())) as there,
    ):
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            server_copy.fill(there, connection, path)
        for store in (there, here):
            store.catch_up(None).result()
        for kind in search.kinds(Language(), count):
            yield Case(
                f"search {kind.name}, {count:,} messages",
                (
                    Contestant(OURS, "product", search.asking(kind.asked, there)),
                    Contestant(ON_SQLITE, "floor", search.asking(kind.asked, here)),
                ),
                (at_most(3, "times SQLite's", lambda got: got.ratio(OURS, ON_SQLITE, "p50")),),
                by="p50",
            )


class Bare:
    """One connection per thread, one insert and one commit at a time."""

    def __init__(self, psycopg: Any, url: str) -> None:
        self._made: list[Any] = [psycopg.connect(url) for _ in range(CONNECTIONS)]
        self._guard = threading.Lock()
        self._made[0].execute(sql()["bare_table"])
        self._made[0].commit()

    def threads(self, count: int) -> Any:
        """So many threads."""

        def run(seconds: float) -> Sample:
            return in_threads(self._append, count, seconds)

        return run

    def close(self) -> None:
        """Close the connections."""
        for connection in self._made:
            connection.close()

    def _append(self, number: int) -> None:
        connection = self._made[number]
        connection.execute(sql()["bare_insert"], (number, BODY))
        connection.commit()


def closing_server(server: Any) -> Any:
    """The server for the length of a block."""
    return closing(_Stoppable(server))


class _Stoppable:
    def __init__(self, server: Any) -> None:
        self._server = server

    def create_database(self) -> str:
        return str(self._server.create_database())

    def close(self) -> None:
        self._server.stop()
