"""Importing files of Claude Code: into the log, into the index, and what memory it takes."""

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
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.importers.base import driver
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.importers.claude_code import IMPORTER, line_of
from sessionary.store.database import Store
from sessionary.store.open import open_store

DURABLE = "sessionary, in the log"
SEARCHABLE = "sessionary, in the log and the index"
PARSED = "typed parse of every line"
SINGLE = "one commit per message, FTS5 trigger"
MEGABYTE = 1_000_000
_SIZES = {60: 1, 1_000: 8, 100_000: 100, 1_000_000: 1_000}
_SESSION = 4 * MEGABYTE
_APPENDS = 2_000
# So much is read once, not in every round.
_LONG = 500 * MEGABYTE
_IMPORT = (
    "import resource, sys; from pathlib import Path;"
    "from benchmarks.imports import into;"
    "into(Path(sys.argv[1]), Path(sys.argv[2]));"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """Half of it in one file, the rest in many."""
    size = _SIZES[scale.largest] * MEGABYTE
    written = write(folder / "projects", size=size, session_size=_SESSION)
    memory = _memory(written.place, folder / "memory.db")
    amount = f"{written.bytes / MEGABYTE:,.0f} MB, {written.messages:,} messages"
    yield Case(
        f"messages per CPU second: {amount}",
        (
            Contestant(DURABLE, "product", _once(written, _durable(written, folder))),
            Contestant(SEARCHABLE, "product", _once(written, _searchable(written, folder))),
            Contestant(PARSED, "floor", _once(written, _parsed(written))),
            Contestant(SINGLE, "peer", _appended(folder)),
        ),
        (
            at_least(60_000, "messages", lambda got: got.rate(DURABLE), of="in the log"),
            at_least(30, "times single commits", lambda got: got.ratio(DURABLE, SINGLE)),
            at_least(14_000, "messages", lambda got: got.rate(SEARCHABLE), of="searchable"),
            at_most(150, "MB", lambda _: memory, of="memory"),
        ),
    )
    yield Case(
        f"MB per second by the clock: {amount}",
        (
            Contestant(DURABLE, "product", _once(written, _megabytes(written, folder))),
            Contestant(PARSED, "floor", _once(written, _parsed_megabytes(written))),
        ),
    )


def into(database: Path, place: Path) -> Store:
    """Import a directory into a store; it stays open."""
    clock, ids = SystemClock(), RandomIds()
    store = open_store(f"sqlite:///{database}", create=True, clock=clock, ids=ids)
    moment = Moment(clock.now(), ids)
    target = ImportTarget(store, "main", IMPORTER.name, IMPORTER.title, moment)
    report = driver.run(target, IMPORTER, list(IMPORTER.find(place)))
    assert report.skipped == 0, report.faults
    assert report.messages > 0
    return store


Run = Callable[[float], Sample]


def _durable(written: Written, folder: Path) -> Run:
    def run(_: float) -> Sample:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            began = time.process_time()
            into(Path(own) / "log.db", written.place).close()
            return _sample(written.messages, time.process_time() - began)

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


def _megabytes(written: Written, folder: Path) -> Run:
    def run(_: float) -> Sample:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            began = time.perf_counter()
            into(Path(own) / "clock.db", written.place).close()
            return _sample(written.bytes // MEGABYTE or 1, time.perf_counter() - began)

    return run


def _parsed_megabytes(written: Written) -> Run:
    def run(_: float) -> Sample:
        began = time.perf_counter()
        _parse(written)
        return _sample(written.bytes // MEGABYTE or 1, time.perf_counter() - began)

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


def _memory(place: Path, database: Path) -> float:
    """The most that an import takes, in MB, in a process of its own."""
    command = [sys.executable, "-c", _IMPORT, str(database), str(place)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    for path in islice(database.parent.glob(f"{database.name}*"), 100):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return int(done.stdout.strip().splitlines()[-1]) / 1024
