"""Worker processes read what this process would read; whatever happens to them, the import is the same."""

import dataclasses
import io
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sessionary.app import imports
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import BadInput
from sessionary.importers import registry
from sessionary.importers.base import driver, session_merger
from sessionary.importers.base.driver import ToolImportReport
from sessionary.importers.base.events import Importer, Unit
from sessionary.importers.base.prepared import PreparedEvent, PreparedMessage, prepared_events
from sessionary.importers.worker import END, FRAME, JOB, read_frame
from sessionary.importers.worker_pool import WorkerPool
from sessionary.store.open import open_store
from sessionary.testing.importer_world import ImportedStore, files_of
from tests.importers import corpus, rubbish
from tests.importers.write_claude_code import Tape, new_uuid, text

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CLAUDE_CODE = registry.importer("claude-code")


@contextmanager
def another_store(path: Path) -> Iterator[ImportedStore]:
    store = open_store(f"sqlite:///{path}", create=True, clock=SystemClock(), ids=RandomIds())
    with closing(store):
        yield ImportedStore(store)


def take(
    archive: ImportedStore, importer: Importer, place: Path, *, workers: int, **more: Any
) -> ToolImportReport:
    units = list(importer.find(place))
    target = archive.target(importer)
    with WorkerPool(importer, workers, now=target.moment.now) as pool:
        return driver.run(target, importer, units, source=pool, **more)


def a_talk(path: Path, *, turns: int) -> Tape:
    tape = Tape(path, path.stem)
    grow(tape, turns=turns)
    tape.write()
    return tape


def grow(tape: Tape, *, turns: int) -> None:
    for number in range(turns):
        tape.prompt(f"{tape.session_id[-6:]}: question {number} " + "word " * 50)
        tape.answer(text(f"answer {number} " + "word " * 200))


def some_talks(place: Path, *, count: int = 6, turns: int = 40) -> list[Tape]:
    return [a_talk(place / f"{new_uuid()}.jsonl", turns=turns) for _ in range(count)]


def insert_rubbish(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    for line in (b"\xff\xfe rubbish\n", b'{"type": \n', b"[1, 2]\n", b'{"id": "\\ud800"}\n'):
        lines.insert(rng.randrange(len(lines) + 1), line)
    path.write_bytes(b"".join(lines))


def cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


@pytest.mark.parametrize("tool", corpus.SAMPLES)
def test_workers_import_what_this_process_would(
    archive: ImportedStore, tmp_path: Path, tool: str
) -> None:
    importer, place = registry.importer(tool), corpus.sample(tool, tmp_path / "sample")

    check_the_same(archive, importer, place, tmp_path / "alone.db")


@pytest.mark.parametrize("damage", [insert_rubbish, cut])
@pytest.mark.parametrize("tool", corpus.SAMPLES)
def test_workers_report_what_this_process_would(
    tmp_path: Path, tool: str, damage: Callable[[Path, random.Random], None]
) -> None:
    importer, rng = registry.importer(tool), random.Random(tool)
    place = corpus.sample(tool, tmp_path / "sample")
    for path in files_of(place):
        if not path.read_bytes().startswith(b"SQLite"):
            damage(path, rng)
        elif not path.name.endswith(("-wal", "-shm")):
            rubbish.spoil_cell(path, rng)

    with another_store(tmp_path / "workers.db") as archive:
        check_the_same(archive, importer, place, tmp_path / "alone.db")


def check_the_same(archive: ImportedStore, importer: Importer, place: Path, other: Path) -> None:
    """Import a place with workers, and check that the report and the store are those of an import without."""
    report = take(archive, importer, place, workers=2)
    with another_store(other) as alone:
        expected = alone.take_all(importer, place)
        assert dataclasses.asdict(report) == dataclasses.asdict(expected)
        assert archive.everything() == alone.everything()
    archive.check()


@pytest.mark.parametrize("workers", [1, 3])
def test_many_files_are_merged_in_their_order(
    archive: ImportedStore, tmp_path: Path, workers: int
) -> None:
    place = tmp_path / "projects"
    some_talks(place, count=9)
    seen: list[str] = []

    report = take(
        archive,
        CLAUDE_CODE,
        place,
        workers=workers,
        progress=lambda _, unit: seen.append(unit.name),
    )

    assert report.messages == 9 * 80
    assert seen == [unit.name for unit in CLAUDE_CODE.find(place)]
    with another_store(tmp_path / "alone.db") as alone:
        alone.take_all(CLAUDE_CODE, place)
        assert archive.everything() == alone.everything()


def test_a_file_that_grew_is_read_from_where_the_last_import_stopped(
    archive: ImportedStore, tmp_path: Path
) -> None:
    place = tmp_path / "projects"
    tapes = some_talks(place, count=3)
    take(archive, CLAUDE_CODE, place, workers=2)
    for tape in tapes:
        grow(tape, turns=10)
        tape.write()

    report = take(archive, CLAUDE_CODE, place, workers=2)

    assert (report.added, report.extended, report.messages) == (0, 3, 3 * 20)
    archive.check_again(CLAUDE_CODE, place, *(tape.path for tape in tapes))


def test_a_unit_that_is_named_twice_is_read_once(archive: ImportedStore, tmp_path: Path) -> None:
    some_talks(tmp_path / "projects", count=2)
    units = [*CLAUDE_CODE.find(tmp_path / "projects")] * 2
    target = archive.target(CLAUDE_CODE)

    with WorkerPool(CLAUDE_CODE, 2, now=target.moment.now) as pool:
        report = driver.run(target, CLAUDE_CODE, units, source=pool)

    assert (report.imported_units, report.unchanged_units, report.unchanged) == (2, 2, 0)


def test_a_session_that_changed_here_is_read_again_from_its_beginning(
    archive: ImportedStore, tmp_path: Path
) -> None:
    """The worker has read on from the checkpoint when the merger finds out that it cannot."""
    tape, other = some_talks(tmp_path / "projects", count=2)
    take(archive, CLAUDE_CODE, tmp_path / "projects", workers=1)
    copy = tmp_path / "copy" / tape.path.name
    grow(tape, turns=2)
    tape.write()
    copy.parent.mkdir()
    shutil.copy2(tape.path, copy)
    # A second file of the same session brings the new messages first.
    take(archive, CLAUDE_CODE, tmp_path / "copy", workers=0)
    grow(other, turns=1)
    other.write()

    report = take(archive, CLAUDE_CODE, tmp_path / "projects", workers=1)

    assert report.messages == 2
    assert len(archive.texts("claude-code", tape.path.stem)) == 84
    archive.check()


# What happens to workers


def executable(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "script",
    [
        "exit 3",
        "exec /nowhere/python",
        # The pipe ends after a few bytes, and in the middle of a frame.
        '"{python}" "$@" | head -c 3',
        '"{python}" "$@" | head -c 400000',
        # Something else than frames.
        "echo hello",
    ],
)
def test_what_a_worker_cannot_finish_is_read_by_this_process(
    archive: ImportedStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    script: str,
) -> None:
    place = tmp_path / "projects"
    for tape in some_talks(place, count=3, turns=300):
        insert_rubbish(tape.path, random.Random(1))
    monkeypatch.setattr(session_merger, "MAX_BATCH_ROWS", 100)
    with another_store(tmp_path / "alone.db") as alone:
        expected = alone.take_all(CLAUDE_CODE, place)
        text = script.replace("{python}", sys.executable)
        monkeypatch.setattr(sys, "executable", executable(tmp_path / "python", text))

        report = take(archive, CLAUDE_CODE, place, workers=2)

        assert "is read again by this process" in caplog.text
        assert dataclasses.asdict(report) == dataclasses.asdict(expected)
        assert archive.everything() == alone.everything()
    archive.check()


def test_without_workers_this_process_reads(
    archive: ImportedStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    some_talks(tmp_path / "projects", count=3, turns=2)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))

    report = take(archive, CLAUDE_CODE, tmp_path / "projects", workers=2)

    assert (report.added, report.messages) == (3, 12)
    assert caplog.text.count("No worker process can be started") == 1


def test_an_interrupted_import_ends_its_workers_and_goes_on_the_next_time(
    archive: ImportedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "projects"
    some_talks(place, count=4, turns=200)
    monkeypatch.setattr(session_merger, "MAX_BATCH_ROWS", 50)
    started: list[subprocess.Popen[bytes]] = []

    class NotedProcess(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", NotedProcess)

    def interrupt(report: ToolImportReport, _: Unit) -> None:
        if report.imported_units == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(archive, CLAUDE_CODE, place, workers=2, progress=interrupt)

    assert len(started) == 2
    assert all(each.returncode is not None for each in started)
    report = take(archive, CLAUDE_CODE, place, workers=2)
    assert (report.unchanged_units, report.imported_units) == (1, 3)
    assert [head.message_count for head in archive.heads()] == [400] * 4
    archive.check()


WORKER = "from sessionary.importers import worker; worker.main()"


@contextmanager
def a_worker(*units: Unit) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        for value in (("claude-code", NOW), *((unit, None) for unit in units)):
            data = pickle.dumps(value)
            process.stdin.write(FRAME.pack(JOB, len(data)) + data)
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


def test_a_worker_ends_with_its_input_even_while_nobody_takes_its_output(tmp_path: Path) -> None:
    """So it does when the process that started it is killed."""
    a_talk(tmp_path / f"{new_uuid()}.jsonl", turns=2_000)
    with a_worker(*CLAUDE_CODE.find(tmp_path)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert read_frame(process.stdout) is not None

        process.stdin.close()

        assert process.wait(60) == 0


def test_a_worker_leaves_ctrl_c_to_the_process_that_started_it(tmp_path: Path) -> None:
    a_talk(tmp_path / f"{new_uuid()}.jsonl", turns=2_000)
    with a_worker(*CLAUDE_CODE.find(tmp_path)) as process:
        assert process.stdout is not None
        kinds = [read_frame(process.stdout)]

        os.kill(process.pid, signal.SIGINT)

        while kinds[-1] is not None and kinds[-1][0] != END:
            kinds.append(read_frame(process.stdout))
        assert kinds[-1] == (END, b"")


def test_errors_of_a_worker_are_those_of_its_importer(tmp_path: Path) -> None:
    path = tmp_path / f"{new_uuid()}.jsonl"
    a_talk(path, turns=1)
    (unit,) = CLAUDE_CODE.find(tmp_path)
    path.unlink()
    with WorkerPool(CLAUDE_CODE, 1, now=NOW) as pool:
        assert pool.expect(unit, None)
        with pytest.raises(BadInput) as refused:
            list(pool.read(unit, None))

        # The worker is ready for the next unit.
        a_talk(path, turns=1)
        assert pool.expect(unit, None)
        assert len(messages(pool.read(unit, None))) == 2

    with pytest.raises(BadInput) as expected:
        list(
            prepared_events(
                CLAUDE_CODE, Unit("x", tmp_path / "gone" / path.name, ""), None, now=NOW
            )
        )
    assert str(refused.value) == str(expected.value).replace("/gone/", "/")


def messages(events: Iterator[PreparedEvent]) -> list[PreparedMessage]:
    return [each for each in events if isinstance(each, PreparedMessage)]


def test_half_of_a_surrogate_pair_in_an_id_does_not_stop_a_worker(tmp_path: Path) -> None:
    path = tmp_path / f"{new_uuid()}.jsonl"
    a_talk(path, turns=3)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[2]["uuid"] = "odd \ud800"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (unit,) = CLAUDE_CODE.find(tmp_path)

    with WorkerPool(CLAUDE_CODE, 1, now=NOW) as pool:
        assert pool.expect(unit, None)
        found = list(pool.read(unit, None))

    assert found == list(prepared_events(CLAUDE_CODE, unit, None, now=NOW))


@pytest.mark.parametrize(
    ("cores", "size", "count"),
    [(1, 10**9, 0), (2, 10**9, 1), (8, 10**9, 2), (8, 10**6, 0)],
)
def test_workers_are_used_where_they_pay(
    monkeypatch: pytest.MonkeyPatch, cores: int, size: int, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)

    assert imports.default_workers(size) == count


def test_a_small_import_starts_no_process_and_loads_nothing_for_it(tmp_path: Path) -> None:
    a_talk(tmp_path / "projects" / f"{new_uuid()}.jsonl", turns=1)
    code = (
        "import sys; from sessionary.cli import main;"
        f"sys.argv[1:] = ['--home', {str(tmp_path / 'home')!r}, 'import', {str(tmp_path / 'projects')!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print({'subprocess', 'pickle', 'sessionary.importers.worker_pool'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert "1 session added" in done.stdout
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_frame_that_is_cut_off_is_none() -> None:
    whole = FRAME.pack(END, 3) + b"abc"

    assert read_frame(io.BytesIO(whole)) == (END, b"abc")
    assert [read_frame(io.BytesIO(whole[:size])) for size in range(len(whole))] == [None] * len(
        whole
    )


def test_a_worker_does_not_load_the_store() -> None:
    code = (
        "import sys; from sessionary.importers import registry, worker; registry.importer('claude-code');"
        "print(sorted({'sessionary.importers.base.driver', 'sessionary.actions.transfer.merge',"
        " 'sessionary.store.sqlite.store', 'genai_prices'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert done.stdout.strip() == "[]"
