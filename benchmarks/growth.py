"""What an operation costs as a store grows: in sessions, in messages, on both databases."""

import csv
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks import growth_work, machine, populate, search_store, table
from benchmarks.corpus import Language, corpus
from benchmarks.growth_place import POSTGRES, SQLITE, FilePlace, Place, Server, opened, running
from benchmarks.growth_work import Work
from benchmarks.measure import Results
from sessionary.clock import SystemClock
from sessionary.store.database import Store

SESSIONS, MESSAGES = "sessions", "messages"
# What can be measured alone, with `--only`.
PARTS = tuple(
    f"{database.lower()}-{grown}"
    for database in (POSTGRES, SQLITE)
    for grown in (SESSIONS, MESSAGES)
)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class GrowthExtent:
    """How far the stores grow, and for how long each operation is measured."""

    seconds: float
    sessions: tuple[int, ...]
    messages: tuple[int, ...]
    server_sessions: tuple[int, ...]
    server_messages: tuple[int, ...]


EXTENTS = {
    "tiny": GrowthExtent(0.02, (20, 60), (400, 800), (20, 60), (400, 800)),
    "quick": GrowthExtent(0.3, (100, 1_000), (1_000, 4_000), (100, 1_000), (1_000, 4_000)),
    "normal": GrowthExtent(
        0.5,
        (1_000, 10_000, 100_000),
        (10_000, 100_000),
        (1_000, 10_000, 100_000),
        (10_000, 100_000),
    ),
    # Three quarters of an hour, half of it for the last size of messages.
    "full": GrowthExtent(
        1.0,
        (1_000, 10_000, 100_000, 1_000_000),
        (10_000, 100_000, 1_000_000, 10_000_000),
        (1_000, 10_000, 100_000, 1_000_000),
        (10_000, 100_000, 1_000_000),
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


def main(
    *,
    scale: str = "normal",
    output: Path | None = None,
    echo: Say,
    only: Collection[str] = (),
) -> list[Point]:
    """Let stores grow and measure them at each size; print the points as they come.

    `only` names the PARTS to measure. The points of the others stay in the output as they are.
    """
    parts = frozenset(only or PARTS)
    kept = [] if output is None or not only else _points_in(output)
    points = [each for each in kept if _part(each.database, each.grown) not in parts]
    measured: list[Point] = []
    echo(_aligned("", "size", "p50 ms", "p99 ms", "CPU ms", "server CPU", "written"))
    described = machine.described(SystemClock().now())
    for point in _measured(EXTENTS[scale], parts):
        measured.append(point)
        if output is not None:  # at once: the largest sizes take long, and someone may end it
            table.write([*points, *measured], output, described)
        echo(_line(point))
    return measured


def _points_in(path: Path) -> list[Point]:
    """The points of an earlier run."""
    if not path.exists():
        return []
    kinds: dict[str, type] = Point.__annotations__
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [Point(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in rows]


def _part(database: str, grown: str) -> str:
    return f"{database.lower()}-{grown}"


def _measured(extent: GrowthExtent, parts: Collection[str]) -> Iterator[Point]:
    """The store in the file grows; at each size a server gets a copy of it, and is measured first."""
    with running() as server, tempfile.TemporaryDirectory(prefix="sessionary-growth-") as made:
        if any(part.endswith(SESSIONS) for part in parts):
            yield from _in_sessions(Path(made) / "sessions.db", server, extent, parts)
        if any(part.endswith(MESSAGES) for part in parts):
            yield from _in_messages(Path(made) / "messages.db", server, extent, parts)


def _in_sessions(
    path: Path, server: Server, extent: GrowthExtent, parts: Collection[str]
) -> Iterator[Point]:
    place = FilePlace(path)
    before = 0
    for size in sorted({*extent.sessions, *extent.server_sessions}):
        with closing(opened(place)) as store:
            populate.open_many(store, range(before, size))
        before = size
        if size in extent.server_sessions and _part(POSTGRES, SESSIONS) in parts:
            with server.copy_of(path) as there, closing(opened(there)) as store:
                work = growth_work.on_sessions(there, store, size)
                yield from _points(there, store, extent, (SESSIONS, size), work)
        if size in extent.sessions and _part(SQLITE, SESSIONS) in parts:
            with closing(opened(place)) as store:
                work = growth_work.on_sessions(place, store, size)
                yield from _points(place, store, extent, (SESSIONS, size), work)


def _in_messages(
    path: Path, server: Server, extent: GrowthExtent, parts: Collection[str]
) -> Iterator[Point]:
    language = Language()
    place = FilePlace(path)
    sizes = {
        *(extent.messages if _part(SQLITE, MESSAGES) in parts else ()),
        *(extent.server_messages if _part(POSTGRES, MESSAGES) in parts else ()),
    }
    with closing(opened(place)) as store:
        filling = search_store.Filling(store)
        messages = corpus(language, max(sizes))
        before = 0
        for size in sorted(sizes):
            filling.append(islice(messages, size - before))
            before = size
            if size in extent.server_messages and _part(POSTGRES, MESSAGES) in parts:
                with server.copy_of(path) as there, closing(opened(there)) as copied:
                    copied.catch_up(None).result()
                    work = growth_work.on_messages(copied, size, language)
                    yield from _points(there, copied, extent, (MESSAGES, size), work, indexed=True)
            if size in extent.messages and _part(SQLITE, MESSAGES) in parts:
                store.catch_up(None).result()
                work = growth_work.on_messages(store, size, language)
                yield from _points(place, store, extent, (MESSAGES, size), work, indexed=True)


def _points(
    place: Place,
    store: Store,
    extent: GrowthExtent,
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
