"""Whatever a file contains, our importers pass the suite, and hold little of it in memory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.importers import registry
from sessionary.importers.base.events import Importer
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.testing.importer_suite import ImporterSuite
from sessionary.testing.importer_world import (
    GROWING_SUFFIXES,
    Damage,
    ImportedStore,
    Sample,
    files_of,
)
from tests.importers import corpus, rubbish

MOST_MIB = 800


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path / 'sessionary.db'}"
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()


class TestOurImporters(ImporterSuite):
    @pytest.fixture(params=registry.names())
    def importer(self, request: pytest.FixtureRequest) -> Importer:
        return registry.importer(request.param)

    @pytest.fixture
    def damage_database(self) -> Damage:
        return rubbish.spoil_cell

    @pytest.fixture
    def sample(self, importer: Importer) -> Sample:
        return corpus.SAMPLES[importer.name]


def test_a_turn_may_have_any_name(archive: ImportedStore, tmp_path: Path) -> None:
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


@pytest.mark.timeout(900)
def test_a_line_of_a_gigabyte_is_not_held(tmp_path: Path) -> None:
    """In a process of its own, to measure it."""
    for name in registry.names():
        place = corpus.sample(name, tmp_path / name)
        path = max(
            files_of(place), key=lambda each: (each.suffix in GROWING_SUFFIXES, each.stat().st_size)
        )
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
        timeout=800,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) < MOST_MIB, done.stdout
