"""Importing files of Claude Code: into the log, into the index, with a worker process, and what memory it takes."""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from benchmarks.goals import at_least, at_most
from benchmarks.import_files import Written, write
from benchmarks.measure import Case, Contestant, Sample, Scale
from benchmarks.raw import KnownStore
from sessionary.app.imports import WORTHWHILE_BYTES, default_workers
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.importers import registry
from sessionary.importers.base import driver
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.importers.claude_code import line_of
from sessionary.importers.worker_pool import WorkerPool
from sessionary.store.database import Store
from sessionary.store.open import open_store

DURABLE = "sessionary, in the log"
SEARCHABLE = "sessionary, in the log and the index"
WITH_WORKERS = "sessionary, in the log, read by workers"
PARSED = "typed parse of every line"
SINGLE = "one commit per message, FTS5 trigger"
MEGABYTE = 1_000_000
_SIZES = {60: 1, 1_000: 8, 100_000: 100, 1_000_000: 1_000}
_SESSION = 4 * MEGABYTE
_APPENDS = 2_000
# So much is read once, not in every round.
_LONG = 500 * MEGABYTE
# As many as an import uses by itself on this machine.
_WORKERS = max(1, default_workers(WORTHWHILE_BYTES))
_IMPORT = (
    "import resource, sys; from pathlib import Path;"
    "from benchmarks.imports import into;"
    "into(Path(sys.argv[1]), Path(sys.argv[2]), workers=int(sys.argv[3]));"
    "used = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN);"
    "print(*(resource.getrusage(each).ru_maxrss for each in used))"
)


_BY_CLOCK = at_least(
    50_000, "messages", lambda got: got.rate(WITH_WORKERS), of="in the log, on two cores"
)


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """Half of it in one file, the rest in many."""
    size = _SIZES[scale.largest] * MEGABYTE
    written = write(folder / "projects", size=size, session_size=_SESSION)
    alone = _memory(written.place, folder / "memory.db", workers=0)
    shared = _memory(written.place, folder / "memory.db", workers=_WORKERS)
    amount = f"{written.bytes / MEGABYTE:,.0f} MB, {written.messages:,} messages"
    yield Case(
        f"messages per CPU second: {amount}",
        (
            Contestant(DURABLE, "product", _once(written, _durable(written, folder))),
            Contestant(
                WITH_WORKERS, "product", _once(written, _durable(written, folder, _WORKERS))
            ),
            Contestant(SEARCHABLE, "product", _once(written, _searchable(written, folder))),
            Contestant(PARSED, "floor", _once(written, _parsed(written))),
            Contestant(SINGLE, "peer", _appended(folder)),
        ),
        (
            at_least(35_000, "messages", lambda got: got.rate(DURABLE), of="in the log"),
            at_least(11_000, "messages", lambda got: got.rate(SEARCHABLE), of="searchable"),
            at_most(150, "MB", lambda _: alone[0], of="memory"),
            at_most(150, "MB", lambda _: sum(shared), of="memory with workers"),
        ),
    )
    yield Case(
        f"messages per second by the clock: {amount}",
        (
            Contestant(WITH_WORKERS, "product", _once(written, _by_clock(written, folder))),
            Contestant(DURABLE, "product", _once(written, _by_clock(written, folder, workers=0))),
            Contestant(PARSED, "floor", _once(written, _parsed_by_clock(written))),
        ),
        # Below this size an import uses no workers.
        () if written.bytes < WORTHWHILE_BYTES else (_BY_CLOCK,),
    )


def into(database: Path, place: Path, *, workers: int = 0) -> Store:
    """Import a directory into a store; it stays open."""
    clock, ids = SystemClock(), RandomIds()
    store = open_store(f"sqlite:///{database}", create=True, clock=clock, ids=ids)
    moment = Moment(clock.now(), ids)
    importer = registry.importer("claude-code")
    target = ImportTarget(store, "main", importer.name, importer.title, moment)
    with WorkerPool(importer, workers, now=moment.now) as pool:
        report = driver.run(target, importer, list(importer.find(place)), source=pool)
    assert report.skipped == 0, report.faults
    assert report.messages > 0
    return store


def _cpu() -> float:
    """The CPU time of this process and of the workers that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


Run = Callable[[float], Sample]


def _durable(written: Written, folder: Path, workers: int = 0) -> Run:
    def run(_: float) -> Sample:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            began = _cpu()
            into(Path(own) / "log.db", written.place, workers=workers).close()
            return _sample(written.messages, _cpu() - began)

    return run


def _searchable(written: Written, folder: Path) -> Run:
    def run(_: float) -> Sample:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            began = time.process_time()
            with closing(into(Path(own) / "found.db", written.place)) as store:
                store.catch_up(None).result()
            return _sample(written.messages, time.process_time() - began)

    return run


def _parsed(written: Written) -> Run:
    def run(_: float) -> Sample:
        began = time.process_time()
        _parse(written)
        return _sample(written.messages, time.process_time() - began)

    return run


def _appended(folder: Path) -> Run:
    def run(_: float) -> Sample:
        with (
            tempfile.TemporaryDirectory(dir=folder) as own,
            closing(KnownStore(Path(own) / "known.db", sessions=10)) as known,
        ):
            began = time.process_time()
            for _ in range(_APPENDS):
                known.append()
            return _sample(_APPENDS, time.process_time() - began)

    return run


def _by_clock(written: Written, folder: Path, *, workers: int = _WORKERS) -> Run:
    def run(_: float) -> Sample:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            began = time.perf_counter()
            into(Path(own) / "clock.db", written.place, workers=workers).close()
            return _sample(written.messages, time.perf_counter() - began)

    return run


def _parsed_by_clock(written: Written) -> Run:
    def run(_: float) -> Sample:
        began = time.perf_counter()
        _parse(written)
        return _sample(written.messages, time.perf_counter() - began)

    return run


def _parse(written: Written) -> None:
    for path in written.place.glob("*.jsonl"):
        with path.open("rb") as file:
            for text in file:
                line_of(text)


def _once(written: Written, run: Run) -> Run:
    """The work itself; of what is long the first measurement counts for all rounds."""
    known: list[Sample] = []

    def kept(seconds: float) -> Sample:
        if not known:
            known.append(run(seconds))
        return known[0]

    return kept if written.bytes >= _LONG else run


def _sample(count: int, seconds: float) -> Sample:
    return Sample(count, seconds, [seconds / count])


def _memory(place: Path, database: Path, *, workers: int) -> tuple[float, float]:
    """The most that an import takes, in MB: its process, and all its workers together."""
    command = [sys.executable, "-c", _IMPORT, str(database), str(place), str(workers)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    for path in islice(database.parent.glob(f"{database.name}*"), 100):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    # Of the workers the system knows only the largest.
    own, largest = map(int, done.stdout.strip().splitlines()[-1].split())
    return own / 1024, workers * largest / 1024
