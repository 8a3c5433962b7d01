"""Whatever a file holds, an importer neither breaks nor lies, nor leaves its place."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from sessionary.actions.transfer import export
from sessionary.clock import RandomIds, SystemClock
from sessionary.importers import registry
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.importers import corpus, rubbish
from tests.importers.archive import Archive
from tests.importers.corpus import Heard, files_of

SECONDS = 60
ID = re.compile(r"[0-9a-z]{26}")
TRICKS = ["../../../../tmp/evil", "/etc/passwd", "a\x00b", "\u202egnp.exe", "x" * 5000, "%2e%2e"]
# What grows by lines may end anywhere: its last line is still being written.
GROWS = (".jsonl", ".txt", ".md")
MOST_MIB = 800
NOW = time.time()


@pytest.fixture(params=registry.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    folder = tmp_path / "store"
    folder.mkdir()
    url = f"sqlite:///{folder / 'sessionary.db'}"
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()


@contextmanager
def in_time() -> Iterator[None]:
    """Whatever waits for ever is a failure."""

    def late(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"it took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_every_importer_has_a_sample_that_it_recognises(name: str, tmp_path: Path) -> None:
    importer = registry.importer(name)

    place = corpus.sample(name, tmp_path / "sample")

    replayed = Heard(importer, place)
    assert replayed.messages
    assert replayed.faults == 0
    assert any(map(importer.recognises, files_of(place)))
    assert registry.recognise(tmp_path / "nowhere") is None


def test_odd_files_in_its_place_break_nothing(name: str, tmp_path: Path) -> None:
    importer = registry.importer(name)
    aside = tmp_path / "aside"
    aside.mkdir()

    for number, odd in enumerate(corpus.ODD):
        place = corpus.sample(name, tmp_path / f"sample{number}")
        for path in files_of(place):
            odd(path, aside)
        with in_time():
            Heard(importer, place)
            importer.recognises(place)
            for path in place.rglob("*"):
                importer.recognises(path)


def test_no_link_is_followed(name: str, tmp_path: Path) -> None:
    importer = registry.importer(name)
    aside = tmp_path / "aside"
    aside.mkdir()
    count = len(files_of(corpus.sample(name, tmp_path / "sample")))

    for number in range(count):
        without = corpus.sample(name, tmp_path / f"without{number}")
        files_of(without)[number].unlink()
        linked = corpus.sample(name, tmp_path / f"linked{number}")
        corpus.linked(files_of(linked)[number], aside)
        assert len(Heard(importer, linked).messages) == len(Heard(importer, without).messages)


def test_a_cut_off_file_is_reported(name: str, tmp_path: Path) -> None:
    importer = registry.importer(name)
    whole = Heard(importer, corpus.sample(name, tmp_path / "whole"))
    place = corpus.sample(name, tmp_path / "cut")

    for path in files_of(place):
        data = path.read_bytes()
        for share in (0.02, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.999):
            path.write_bytes(data[: int(len(data) * share)])
            replayed = Heard(importer, place)
            is_part = any(0 < n < whole.counts[each] for each, n in replayed.counts.items())
            is_told = replayed.faults > 0 or path.suffix in GROWS
            assert is_told or not is_part, f"{path.name} cut at {share:.1%}"
        path.write_bytes(data)


def test_damaged_files_leave_the_store_whole(name: str, archive: Archive, tmp_path: Path) -> None:
    importer = registry.importer(name)
    rng = random.Random(11)

    for number in range(8):
        place = corpus.sample(name, tmp_path / f"hurt{number}")
        path = rng.choice(files_of(place))
        rng.choice(rubbish._ways(path))(path, rng)
        with in_time():
            archive.take(importer, list(importer.find(place)))

    archive.check()
    assert len(list(export.export_jsonl(archive.store, profile="main"))) > 1


def test_a_file_that_loses_its_end_and_has_it_again_says_nothing_twice(
    name: str, archive: Archive, tmp_path: Path
) -> None:
    importer = registry.importer(name)
    place = corpus.sample(name, tmp_path / "sample")
    _quiet(place, 9000)
    archive.take_all(importer, place)
    before = {head.id: (head.message_count, head.usage) for head in archive.heads()}
    whole = {path: path.read_bytes() for path in files_of(place)}

    for seconds, share in ((8000, 0.5), (7000, 1.0), (6000, 0.8), (5000, 1.0)):
        for path, data in whole.items():
            if path.suffix in GROWS:
                lines = data.splitlines(keepends=True)
                path.write_bytes(b"".join(lines[: round(len(lines) * share)]))
        _quiet(place, seconds)
        archive.take_all(importer, place)
        archive.check()

    assert {head.id: (head.message_count, head.usage) for head in archive.heads()} == before


def test_a_session_that_grows_in_two_files_is_imported_once(
    name: str, archive: Archive, tmp_path: Path
) -> None:
    """Someone synchronises or copies them: both have the same name for the session."""
    importer = registry.importer(name)
    place = corpus.sample(name, tmp_path / "one")
    _quiet(place, 9000)
    archive.take_all(importer, place)
    whole = {head.id: (head.message_count, head.usage) for head in archive.heads()}
    copy = tmp_path / "two"
    for seconds, share in ((8000, 0.5), (7000, 1.0)):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
        for path in files_of(copy):
            if path.suffix in GROWS:
                lines = path.read_bytes().splitlines(keepends=True)
                path.write_bytes(b"".join(lines[: round(len(lines) * share)]))
        _quiet(copy, seconds)
        archive.take_all(importer, copy)

    assert {head.id: (head.message_count, head.usage) for head in archive.heads()} == whole
    archive.check()


def _quiet(place: Path, seconds: float) -> None:
    """Nobody has written to the files for so long."""
    for path in files_of(place):
        os.utime(path, (NOW - seconds, NOW - seconds))


def test_tricky_names_lead_nowhere(name: str, archive: Archive, tmp_path: Path) -> None:
    importer = registry.importer(name)
    names = set(Heard(importer, corpus.sample(name, tmp_path / "sample")).counts) - {""}
    places = [tmp_path / f"tricky{n}" for n in range(len(TRICKS))]
    for folder, trick in zip(places, TRICKS, strict=True):
        place = corpus.sample(name, folder)
        for each in names:
            corpus.renamed(place, each, trick)
    before = {each for each in tmp_path.rglob("*") if "store" not in each.parts}

    for place in places:
        archive.take(importer, list(importer.find(place)))

    assert {each for each in tmp_path.rglob("*") if "store" not in each.parts} == before
    assert all(ID.fullmatch(head.id) for head in archive.heads())
    archive.check()


@pytest.mark.parametrize("number", [10**18, -1, 0, 1e308, 2**63, 0.5])
def test_numbers_may_be_anything(number: float, archive: Archive, tmp_path: Path) -> None:
    for name in registry.names():
        importer = registry.importer(name)
        place = corpus.sample(name, tmp_path / name)
        corpus.with_numbers(place, number)
        archive.take(importer, list(importer.find(place)))

    archive.check()


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_times_may_be_beyond_every_calendar(time: str, archive: Archive, tmp_path: Path) -> None:
    for name in registry.names():
        importer = registry.importer(name)
        place = corpus.sample(name, tmp_path / name)
        corpus.with_times(place, time)
        archive.take(importer, list(importer.find(place)))

    archive.check()
    assert len(list(export.export_jsonl(archive.store, profile="main"))) > 1


def test_a_file_may_be_from_any_year(archive: Archive, tmp_path: Path) -> None:
    """Some file systems keep any number of seconds, others the largest that they can."""
    for name in registry.names():
        importer = registry.importer(name)
        place = corpus.sample(name, tmp_path / name)
        for number, path in enumerate(files_of(place)):
            seconds = (1 << 38, -1)[number % 2]
            os.utime(path, (seconds, seconds))
        archive.take(importer, list(importer.find(place)))

    archive.check()


def test_a_turn_may_have_any_name(archive: Archive, tmp_path: Path) -> None:
    """Those of Codex begin with a time."""
    importer = registry.importer("codex")
    place = corpus.sample("codex", tmp_path / "sample")
    for path in files_of(place):
        text = re.sub(
            r'("turn_id": ?")[0-9a-f-]{36}',
            r"\g<1>ffffffff-ffff-7fff-ffff-ffffffffffff",
            path.read_text(),
        )
        text = text.replace('"cwd"', '"forked_from_id": "x", "cwd"', 1)
        assert "ffffffff-ffff-7fff" in text
        path.write_text(text)

    report = archive.take(importer, list(importer.find(place)))

    assert report.messages
    archive.check()


def test_the_stores_own_file_is_left_alone(name: str, archive: Archive, tmp_path: Path) -> None:
    importer = registry.importer(name)
    own = tmp_path / "store" / "sessionary.db"
    place = corpus.sample(name, tmp_path / "sample")
    names = [path.relative_to(place) for path in files_of(place)]
    for each in names:
        (place / each).unlink()
        os.link(own, place / each)

    report = archive.take(importer, list(importer.find(place)))

    assert (report.added, archive.count()) == (0, 0)
    archive.check()
    shutil.rmtree(place)


@pytest.mark.timeout(400)
def test_a_line_of_a_gigabyte_is_not_held(tmp_path: Path) -> None:
    """In a process of its own, to measure it."""
    for name in registry.names():
        place = corpus.sample(name, tmp_path / name)
        path = max(files_of(place), key=lambda each: (each.suffix in GROWS, each.stat().st_size))
        data = path.read_bytes()
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
            # Reading takes time: one gigabyte for the lines that people have most of.
            file.truncate((1 << 30) if name == "claude-code" else 300 << 20)
            file.seek(0, os.SEEK_END)
            file.write(b'x"}\n')
    script = Path(__file__).with_name("hostile_memory.py")

    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), *registry.names()],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) < MOST_MIB, done.stdout
