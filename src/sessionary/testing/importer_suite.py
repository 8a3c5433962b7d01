"""A suite that every importer passes.

    class TestJotter(ImporterSuite):
        @pytest.fixture
        def importer(self) -> Importer:
            return IMPORTER

        @pytest.fixture
        def sample(self) -> Sample:
            return write_sample

`sample` writes records of the tool below a directory, with everything that they can contain, and returns the place to
import from. The fixture `store` is open and empty.
"""

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from sessionary.actions.transfer import export
from sessionary.importers import registry
from sessionary.importers.base.events import Importer, UserEnvironment
from sessionary.store.database import Store
from sessionary.store.open import sqlite_path
from sessionary.testing.importer_world import (
    GROWING_SUFFIXES,
    REPLACEMENTS,
    Damage,
    ImportedStore,
    ReadEvents,
    Sample,
    check_damaged,
    damage,
    files_of,
    keep_share,
    read_all,
    replace_numbers,
    replace_text,
    replace_times,
    replace_with_link,
)

# Far longer than any file of a sample takes.
SECONDS = 60
ODD_TEXT = "日本語 👩‍👩‍👧‍👦 e\u0301 a\u202eb \u2028 \x7f <b>&amp;</b> ‘’"
ODD_NAMES = [
    "../../../../tmp/evil", "/etc/passwd", "a\x00b", "\u202egnp.exe", "x" * 5000, "%2e%2e",
]  # fmt: skip
ODD_NUMBERS = [10**18, -1, 0, 1e308, 2**63, 0.5]
ODD_TIMES = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
SESSION_ID = re.compile(r"[0-9a-z]{26}")
# Records of other tools: the tool, the name of the file, its content.
OTHER_RECORDS = [
    (
        "claude-code",
        "5f0e4c3c-9f53-4d7f-8f2e-0b9f0ad29a11.jsonl",
        (
            '{"type": "user", "uuid": "1", "parentUuid": null, "sessionId": "2", "cwd": "/home/mia",'
            ' "timestamp": "2026-03-01T09:00:00Z", "message": {"role": "user", "content": "hello"}}\n'
        ),
    ),
    (
        "codex",
        "rollout-2026-03-01T09-00-00-1.jsonl",
        '{"timestamp": "2026-03-01T09:00:00Z", "type": "session_meta", "payload": {"id": "1"}}\n',
    ),
    (
        "aider",
        ".aider.chat.history.md",
        "\n# aider chat started at 2026-03-01 09:00:00\n\n#### hi\n",
    ),
]
# Files of programs that are no agents.
OTHER_FILES = {
    "empty.json": "",
    "list.json": "[1]",
    "lines.jsonl": "{}\n{}\n",
    "notes.md": "# Notes\n",
    "events.jsonl": '{"type": "event", "sessionId": "1", "data": "x"}\n' * 50,
    "package.json": '{"name": "x", "keywords": ["chat", "history", "messages", "session_id"]}',
    "chat.json": '[{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]',
    "lines of a chat.jsonl": '{"role": "user", "content": "hello"}\n{"role": "x", "content": "y"}\n',
    "notes.db": "SQLite format 3\x00",
}


class ImporterSuite:
    """For every importer; a subclass has the fixtures `importer`, `sample` and `store`."""

    @pytest.fixture
    def damage_database(self) -> Damage | None:
        """Override it for a tool that stores its records in a database: replace one of the values in it."""
        return None

    @pytest.fixture
    def imported(self, store: Store) -> ImportedStore:
        return ImportedStore(store)

    @pytest.fixture
    def place(self, sample: Sample, tmp_path: Path) -> Path:
        return _written(sample, tmp_path / "sample")

    def test_the_sample_is_recognised_and_read_without_faults(
        self, importer: Importer, place: Path
    ) -> None:
        found = ReadEvents(importer, place)

        assert found.messages
        assert found.faults == 0
        assert read_all(importer, place)
        assert any(map(importer.recognises, files_of(place)))
        assert importer.title

    def test_no_other_importer_recognises_its_files(self, importer: Importer, place: Path) -> None:
        others = [each for each in registry.importers() if each.name != importer.name]

        for path in filter(importer.recognises, files_of(place)):
            assert [each.name for each in others if each.recognises(path)] == [], path

    def test_files_of_other_programs_are_not_recognised(
        self, importer: Importer, tmp_path: Path
    ) -> None:
        (tmp_path / "folder").mkdir()
        for name, text in OTHER_FILES.items():
            (tmp_path / name).write_text(text)

        assert [path for path in sorted(tmp_path.iterdir()) if importer.recognises(path)] == []
        assert not importer.recognises(tmp_path / "nothing")

    def test_records_of_other_tools_are_not_recognised(
        self, importer: Importer, tmp_path: Path
    ) -> None:
        for tool, name, text in OTHER_RECORDS:
            path = tmp_path / name
            path.write_text(text)
            assert registry.importer(tool).recognises(path)
            assert importer.name == tool or not importer.recognises(path), path

    def test_an_empty_home_has_no_records(self, importer: Importer, tmp_path: Path) -> None:
        places = importer.places(UserEnvironment(tmp_path))

        assert [unit for place in places for unit in importer.find(place)] == []

    def test_importing_twice_adds_nothing(
        self, importer: Importer, place: Path, imported: ImportedStore
    ) -> None:
        _age(place, 9000)
        assert imported.take_all(importer, place).messages

        imported.check_again(importer, place)
        # Now the files look as if they had changed, and are read once more.
        _age(place, 8000)
        report = imported.take_all(importer, place)

        assert (report.added, report.extended, report.messages) == (0, 0, 0)

    def test_odd_characters_in_json_are_read_as_they_are(
        self, importer: Importer, place: Path
    ) -> None:
        before = ReadEvents(importer, place).user_texts
        text = max(before, key=len)
        is_changed = replace_text(place, text, ODD_TEXT)

        after = ReadEvents(importer, place).user_texts

        assert len(after) == len(before)
        assert ODD_TEXT in after or not is_changed

    def test_strange_files_in_its_place_break_nothing(
        self, importer: Importer, sample: Sample, tmp_path: Path
    ) -> None:
        for number, replace in enumerate(REPLACEMENTS):
            place = _written(sample, tmp_path / f"sample{number}")
            for path in files_of(place):
                replace(path)
            with _in_time():
                ReadEvents(importer, place)
                importer.recognises(place)
                for path in place.rglob("*"):
                    importer.recognises(path)

    def test_no_link_is_followed(
        self, importer: Importer, place: Path, sample: Sample, tmp_path: Path
    ) -> None:
        aside = tmp_path / "aside"
        aside.mkdir()

        for number in range(len(files_of(place))):
            without = _written(sample, tmp_path / f"without{number}")
            files_of(without)[number].unlink()
            linked = _written(sample, tmp_path / f"linked{number}")
            replace_with_link(files_of(linked)[number], aside)
            found, expected = ReadEvents(importer, linked), ReadEvents(importer, without)
            assert len(found.messages) == len(expected.messages)

    def test_a_file_that_was_cut_off_is_reported(
        self, importer: Importer, place: Path, sample: Sample, tmp_path: Path
    ) -> None:
        whole = ReadEvents(importer, _written(sample, tmp_path / "whole"))

        for path in files_of(place):
            data = path.read_bytes()
            for share in (0.02, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.999):
                path.write_bytes(data[: int(len(data) * share)])
                found = ReadEvents(importer, place)
                is_part = any(0 < n < whole.counts[each] for each, n in found.counts.items())
                is_reported = found.faults > 0 or path.suffix in GROWING_SUFFIXES
                assert is_reported or not is_part, f"{path.name} cut at {share:.1%}"
            path.write_bytes(data)

    def test_damaged_files_raise_nothing_but_bad_input(
        self,
        importer: Importer,
        place: Path,
        damage_database: Damage | None,
        tmp_path: Path,
    ) -> None:
        check_damaged(importer, place, tmp_path, database=damage_database)

    def test_damaged_files_leave_the_store_consistent(
        self,
        importer: Importer,
        sample: Sample,
        imported: ImportedStore,
        damage_database: Damage | None,
        tmp_path: Path,
    ) -> None:
        rng = random.Random(11)

        for number in range(8):
            place = _written(sample, tmp_path / f"damaged{number}")
            damage(rng.choice(files_of(place)), rng, database=damage_database)
            with _in_time():
                imported.take_all(importer, place)

        imported.check()
        assert len(list(export.export_jsonl(imported.store, profile="main"))) > 1

    def test_a_file_that_loses_its_end_and_has_it_again_adds_nothing(
        self, importer: Importer, place: Path, imported: ImportedStore
    ) -> None:
        _age(place, 9000)
        imported.take_all(importer, place)
        before = imported.totals()
        whole = {path: path.read_bytes() for path in files_of(place)}

        for seconds, share in ((8000, 0.5), (7000, 1.0), (6000, 0.8), (5000, 1.0)):
            for path, data in whole.items():
                if path.suffix in GROWING_SUFFIXES:
                    keep_share(path, data, share)
            _age(place, seconds)
            imported.take_all(importer, place)
            imported.check()

        assert imported.totals() == before

    def test_a_session_that_grows_in_two_files_is_imported_once(
        self, importer: Importer, place: Path, imported: ImportedStore, tmp_path: Path
    ) -> None:
        """Someone synchronises or copies them: both have the same id of the session."""
        _age(place, 9000)
        imported.take_all(importer, place)
        before = imported.totals()
        copy = tmp_path / "copy"

        for seconds, share in ((8000, 0.5), (7000, 1.0)):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(place, copy)
            for path in files_of(copy):
                if path.suffix in GROWING_SUFFIXES:
                    keep_share(path, path.read_bytes(), share)
            _age(copy, seconds)
            imported.take_all(importer, copy)

        assert imported.totals() == before
        imported.check()

    def test_a_name_of_a_session_is_never_a_path(
        self, importer: Importer, sample: Sample, imported: ImportedStore, tmp_path: Path
    ) -> None:
        names = set(ReadEvents(importer, _written(sample, tmp_path / "sample")).counts) - {""}
        places = [_written(sample, tmp_path / f"odd{n}") for n in range(len(ODD_NAMES))]
        for place, odd in zip(places, ODD_NAMES, strict=True):
            for name in names:
                replace_text(place, name, odd)
        before = _all_below(tmp_path)

        for place in places:
            imported.take_all(importer, place)

        assert _all_below(tmp_path) == before
        assert all(SESSION_ID.fullmatch(head.id) for head in imported.heads())
        imported.check()

    def test_numbers_and_times_may_be_anything(
        self, importer: Importer, sample: Sample, imported: ImportedStore, tmp_path: Path
    ) -> None:
        for index, number in enumerate(ODD_NUMBERS):
            place = _written(sample, tmp_path / f"number{index}")
            replace_numbers(place, number)
            imported.take_all(importer, place)
        for index, odd in enumerate(ODD_TIMES):
            place = _written(sample, tmp_path / f"time{index}")
            replace_times(place, odd)
            imported.take_all(importer, place)

        imported.check()
        assert len(list(export.export_jsonl(imported.store, profile="main"))) > 1

    def test_a_file_may_be_from_any_year(
        self, importer: Importer, place: Path, imported: ImportedStore
    ) -> None:
        """Some file systems store any number of seconds, others the largest that they can."""
        for number, path in enumerate(files_of(place)):
            seconds = (1 << 38, -1)[number % 2]
            os.utime(path, (seconds, seconds))

        imported.take_all(importer, place)

        imported.check()

    def test_the_store_itself_is_not_imported(
        self, importer: Importer, place: Path, imported: ImportedStore
    ) -> None:
        own = sqlite_path(imported.store.url)
        assert own is not None
        for path in files_of(place):
            path.unlink()
            os.link(own, path)

        report = imported.take_all(importer, place)

        assert (report.added, imported.count()) == (0, 0)
        imported.check()
        shutil.rmtree(place)


def _written(sample: Sample, folder: Path) -> Path:
    folder.mkdir(parents=True)
    return sample(folder)


def _age(place: Path, seconds: float) -> None:
    """Make the files as old as if nobody had written to them for so long."""
    at = time.time() - seconds
    for path in files_of(place):
        os.utime(path, (at, at))


def _all_below(folder: Path) -> set[Path]:
    """Return the files and directories below, without those of the store."""
    return {each for each in folder.rglob("*") if not each.name.startswith("sessionary.")}


@contextmanager
def _in_time() -> Iterator[None]:
    """Fail after a while, instead of waiting forever."""

    def fail(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"it took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
