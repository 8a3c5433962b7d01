"""What an operation costs as a store grows: in sessions, in messages, on both databases."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks import growth_work, machine, populate, search_store, table
from benchmarks.corpus import Language, corpus
from benchmarks.growth_place import FilePlace, Place, opened, postgres
from benchmarks.growth_work import Work
from benchmarks.measure import Results
from sessionary.clock import SystemClock
from sessionary.store.database import Store

SESSIONS, MESSAGES = "sessions", "messages"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How far the stores grow, and for how long each operation is measured."""

    seconds: float
    sessions: tuple[int, ...]
    messages: tuple[int, ...]
    server_sessions: tuple[int, ...]
    server_messages: tuple[int, ...]


EXTENTS = {
    "tiny": ExportOptions(0.02, (20, 60), (400, 800), (20, 60), (400, 800)),
    "quick": ExportOptions(0.3, (100, 1_000), (1_000, 4_000), (100, 1_000), (1_000, 4_000)),
    "normal": ExportOptions(
        0.5,
        (1_000, 10_000, 100_000),
        (10_000, 100_000),
        (1_000, 10_000),
        (1_000, 10_000),
    ),
    "full": ExportOptions(
        1.0,
        (1_000, 10_000, 100_000, 1_000_000),
        (10_000, 100_000, 1_000_000),
        (1_000, 10_000, 30_000),
        (10_000, 30_000),
    ),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One operation in a store of one size. CPU and bytes are of one operation."""

    database: str
    grown: str
    size: int
    operation: str
    count: int
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    server_cpu_ms: float
    written_bytes: float
    stored_bytes: float
    store_bytes: int
    index_bytes: int
    load: float


def main(*, scale: str = "normal", output: Path | None = None, echo: Say) -> list[Point]:
    """Let stores grow and measure them at each size; print the points as they come."""
    extent = EXTENTS[scale]
    points: list[Point] = []
    echo(_aligned("", "size", "p50 ms", "p99 ms", "CPU ms", "server CPU", "written"))
    described = machine.described(SystemClock().now())
    for point in _measured(extent):
        points.append(point)
        echo(_line(point))
        if output is not None:  # at once: the largest sizes take long, and someone may end it
            table.write(points, output, described)
    return points


def _measured(extent: ExportOptions) -> Iterator[Point]:
    """The smaller stores first."""
    with postgres() as place:
        yield from _in_sessions(place, extent, extent.server_sessions)
    with postgres() as place:
        yield from _in_messages(place, extent, extent.server_messages)
    with tempfile.TemporaryDirectory(prefix="sessionary-growth-") as made:
        yield from _in_sessions(FilePlace(Path(made) / "sessions.db"), extent, extent.sessions)
        yield from _in_messages(FilePlace(Path(made) / "messages.db"), extent, extent.messages)


def _in_sessions(place: Place, extent: ExportOptions, sizes: Sequence[int]) -> Iterator[Point]:
    with closing(opened(place)) as store:
        before = 0
        for size in sizes:
            populate.open_many(store, range(before, size))
            before = size
            work = growth_work.on_sessions(place, store, size)
            yield from _points(place, store, extent, (SESSIONS, size), work)


def _in_messages(place: Place, extent: ExportOptions, sizes: Sequence[int]) -> Iterator[Point]:
    language = Language()
    with closing(opened(place)) as store:
        filling = search_store.Filling(store)
        messages = corpus(language, sizes[-1])
        before = 0
        for size in sizes:
            filling.append(islice(messages, size - before))
            store.catch_up(None).result()
            before = size
            work = growth_work.on_messages(store, size, language)
            yield from _points(place, store, extent, (MESSAGES, size), work, indexed=True)


def _points(
    place: Place,
    store: Store,
    extent: ExportOptions,
    where: tuple[str, int],
    work: Iterator[Work],
    *,
    indexed: bool = False,
) -> Iterator[Point]:
    """Each operation in turn; where there is an index, what it costs to keep it up is counted."""
    record, index = place.size()
    before = record + index
    for name, run in work:
        load = machine.load()
        began = place.used()
        sample = run(extent.seconds)
        if indexed:
            store.catch_up(None).result()
        ended, after = place.used(), place.size()
        got, count = Results({name: [sample]}), max(1, sample.count)
        yield Point(
            place.name,
            *where,
            name,
            sample.count,
            round(got.p50(name) * 1000, 4),
            round(got.p99(name) * 1000, 4),
            round((ended.cpu - began.cpu) * 1000 / count, 4),
            round((ended.server_cpu - began.server_cpu) * 1000 / count, 4),
            round((ended.written - began.written) / count, 1),
            round((sum(after) - before) / count, 1),
            record,
            index,
            round(load, 2),
        )
        before = sum(after)


def _line(point: Point) -> str:
    return _aligned(
        f"{point.database}, {point.grown}: {point.operation}",
        f"{point.size:,}",
        f"{point.p50_ms:.3f}",
        f"{point.p99_ms:.3f}",
        f"{point.cpu_ms:.3f}",
        f"{point.server_cpu_ms:.3f}",
        f"{point.written_bytes:,.0f}",
    )


def _aligned(first: str, *rest: str) -> str:
    return f"{first:<48}" + "".join(f"{cell:>11}" for cell in rest)
