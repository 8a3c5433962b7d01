"""Durable appends: many sessions at once, one alone, at a steady rate, from four processes."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from benchmarks import first_usage, populate
from benchmarks.goals import at_least, at_most, steady
from benchmarks.measure import Case, Contestant, Goal, Sample, Scale, attempts, repeat
from benchmarks.raw import TEXT, KnownStore, RawLog, RawSync, SharedRawLog, steadily
from sessionary.actions.sessions import log
from sessionary.clock import SystemClock
from sessionary.model.message import message
from sessionary.store.database import Pending, Store

SESSIONS = 64
STEADY_RATE = 300.0
PROCESSES = 4
MOST_CPU_US = 58
SHARED = "raw SQLite, one fsync for all"
THREADS_SHARE = "raw SQLite, threads share an fsync"
ALONE = "raw SQLite, one fsync each"
KNOWN = "one commit each, FTS trigger"
OURS = "sessionary"
INDEXED = "sessionary, indexer on, until all is found"


class Product:
    """Appends through the store, as a program would."""

    def __init__(self, store: Store, sessions: list[str]) -> None:
        self._store = store
        self._sessions = sessions
        self._clock = SystemClock()

    def append(self, number: int = 0) -> Pending[log.Appended]:
        """One message to one of the sessions."""
        return self._store.write(
            log.append,
            self._sessions[number],
            message("user", TEXT),
            profile=populate.PROFILE,
            at=self._clock.now(),
        )

    def coroutines(self, count: int) -> Callable[[float], Sample]:
        """So many sessions on one event loop, each waiting for its answer."""
        return lambda seconds: asyncio.run(self._gather(count, seconds))

    async def _gather(self, count: int, seconds: float) -> Sample:
        latencies: list[float] = []
        began = time.perf_counter()

        async def talk(number: int) -> None:
            for asked in attempts(began, seconds):
                await self.append(number)
                latencies.append(time.perf_counter() - asked)

        await asyncio.gather(*(talk(number) for number in range(count)))
        return Sample(len(latencies), time.perf_counter() - began, latencies)

    def threads(self, count: int) -> Callable[[float], Sample]:
        """So many threads, each with its session."""
        return lambda seconds: in_threads(
            lambda number: self.append(number).result(), count, seconds
        )


def in_threads(append: Callable[[int], object], count: int, seconds: float) -> Sample:
    """Let threads append until the time is over."""
    latencies: list[float] = []
    began = time.perf_counter()

    def talk(number: int) -> None:
        for asked in attempts(began, seconds):
            append(number)
            latencies.append(time.perf_counter() - asked)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Sample(len(latencies), time.perf_counter() - began, latencies)


def cases(folder: Path, _: Scale) -> Iterator[Case]:
    """Every case, on stores of its own."""
    with ExitStack() as stack:
        store = stack.enter_context(closing(populate.opened(folder / "append.db")))
        ours = Product(store, store.write(populate.open_plain, SESSIONS).result())
        raw = stack.enter_context(closing(RawLog(folder / "raw.db", sessions=SESSIONS)))
        shared = stack.enter_context(closing(SharedRawLog(folder / "shared.db", sessions=SESSIONS)))
        known = stack.enter_context(closing(KnownStore(folder / "known.db", sessions=SESSIONS)))
        sync = stack.enter_context(closing(RawSync(folder / "sync")))
        peer = Contestant(KNOWN, "peer", repeat(known.append))
        yield _many(ours, raw, peer)
        fed = stack.enter_context(closing(populate.opened(folder / "fed.db")))
        fed.index_in_background()
        yield _indexed(fed, raw, peer)
        yield _threads(ours, raw, shared, peer, count=16, goal=0.75)
        yield _threads(ours, raw, shared, peer, count=SESSIONS, goal=0.6)
        yield _alone(ours, raw, peer, Contestant("raw fsync", "peer", repeat(sync.sync)))
        yield _steady(ours, raw, known)
        yield _four_processes(folder / "append.db", raw)
        yield first_usage.case(folder)


def _many(ours: Product, raw: RawLog, peer: Contestant) -> Case:
    return Case(
        f"{SESSIONS} sessions, asyncio",
        (
            Contestant(OURS, "product", ours.coroutines(SESSIONS)),
            Contestant(SHARED, "floor", repeat(lambda: raw.append(SESSIONS))),
            peer,
        ),
        (
            at_least(0.6, "of the floor", lambda got: got.ratio(OURS, SHARED), only_slow=True),
            at_least(5000, "a second", lambda got: got.rate(OURS)),
            at_least(
                40, "times one commit each", lambda got: got.ratio(OURS, KNOWN), only_slow=True
            ),
            at_most(MOST_CPU_US, "us of CPU", lambda got: got.cpu_ms(OURS) * 1000),
        ),
    )


def _indexed(fed: Store, raw: RawLog, peer: Contestant) -> Case:
    """The same with the indexer beside it: its time counts until a search finds the last message."""
    ours = Product(fed, fed.write(populate.open_plain, SESSIONS).result())
    append = ours.coroutines(SESSIONS)

    def until_found(seconds: float) -> Sample:
        began = time.perf_counter()
        sample = append(seconds)
        fed.catch_up(None).result()
        return replace(sample, seconds=time.perf_counter() - began)

    return Case(
        f"{SESSIONS} sessions, asyncio, with the indexer",
        (
            Contestant(OURS, "product", append),
            Contestant(INDEXED, "product", until_found),
            Contestant(SHARED, "floor", repeat(lambda: raw.append(SESSIONS))),
            peer,
        ),
        (
            at_least(0.6, "of the floor", lambda got: got.ratio(OURS, SHARED), only_slow=True),
            at_least(5000, "a second", lambda got: got.rate(INDEXED), of="the index keeping up"),
        ),
    )


def _threads(
    ours: Product, raw: RawLog, shared: SharedRawLog, peer: Contestant, *, count: int, goal: float
) -> Case:
    def floor(seconds: float) -> Sample:
        return in_threads(lambda _: shared.append(), count, seconds)

    return Case(
        f"{count} threads",
        (
            Contestant(OURS, "product", ours.threads(count)),
            Contestant(THREADS_SHARE, "floor", floor),
            Contestant(f"{SHARED} (one thread)", "peer", repeat(lambda: raw.append(count))),
            peer,
        ),
        (
            at_least(
                goal, "of the floor", lambda got: got.ratio(OURS, THREADS_SHARE), only_slow=True
            ),
            steady(OURS),
        ),
    )


def _alone(ours: Product, raw: RawLog, *peers: Contestant) -> Case:
    return Case(
        "1 thread",
        (
            Contestant(OURS, "product", ours.threads(1)),
            Contestant(ALONE, "floor", repeat(lambda: raw.append(1))),
            *peers,
        ),
        (
            at_least(0.9, "of the floor", lambda got: got.ratio(OURS, ALONE), only_slow=True),
            steady(OURS),
        ),
    )


def _steady(ours: Product, raw: RawLog, known: KnownStore) -> Case:
    def at_rate(append: Callable[[], object]) -> Callable[[float], Sample]:
        return lambda seconds: steadily(append, STEADY_RATE, max(0.1, 2 * seconds))

    return Case(
        f"steady {STEADY_RATE:.0f}/s",
        (
            Contestant(OURS, "product", at_rate(lambda: ours.append().result())),
            Contestant(ALONE, "floor", at_rate(lambda: raw.append(1))),
            Contestant(KNOWN, "peer", at_rate(known.append)),
        ),
        (_near_the_floor(1.5),),
        by="p50",
    )


def _four_processes(path: Path, raw: RawLog) -> Case:
    each = STEADY_RATE / PROCESSES

    def run(seconds: float) -> Sample:
        command = [sys.executable, "-m", "benchmarks.steady", str(path), str(each)]
        started = [
            subprocess.Popen(
                [*command, str(max(0.1, 2 * seconds))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for _ in range(PROCESSES)
        ]
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        began = time.perf_counter()
        printed = [json.loads(text) for text in _begin_together(started)]
        took = time.perf_counter() - began
        latencies = [late for each in printed for late in each["latencies"]]
        used = sum(each["cpu_seconds"] for each in printed)
        return Sample(len(latencies), took, latencies, used)

    return Case(
        f"{PROCESSES} processes, {STEADY_RATE:.0f}/s in all",
        (
            Contestant(OURS, "product", run),
            Contestant(
                ALONE,
                "floor",
                lambda seconds: steadily(lambda: raw.append(1), STEADY_RATE, max(0.1, 2 * seconds)),
            ),
        ),
        (_near_the_floor(2),),
        by="p50",
    )


def _near_the_floor(times: float) -> Goal:
    return at_most(
        times,
        "times the floor's",
        lambda got: got.p99(OURS) / got.p99(ALONE),
        of="p99",
        only_slow=True,
    )


def _begin_together(started: list[subprocess.Popen[bytes]]) -> list[bytes]:
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    return [process.communicate()[0] for process in started]
