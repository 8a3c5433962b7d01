"""Importers of other packages: found by their metadata, and no danger to the other importers."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary.app import imports
from sessionary.errors import BadInput, PluginFailed
from sessionary.importers import registry
from sessionary.plugins import PluginGroup
from tests.importers import corpus
from tests.support.packages import Packages

MODULE = """
from pathlib import Path
from sessionary.importers import Importer, begin_session, files, parse_time, text_content

class Notes(Importer):
    name = "{name}"
    title = "Notes"

    def recognises(self, path):
        {recognises}

    def find(self, place):
        for path in files.named_or_below(place, suffixes=(".json",)):
            {find}
            yield files.unit(path)

    def read(self, unit, resume):
        {read}
        yield begin_session("one")
        yield text_content("hello").to_message("user", parse_time("2026-01-01T00:00:00Z"), id="1")

PLUGIN = Notes()
"""


class ImporterPackages(Packages):
    """Packages with one importer each, of files that contain its name."""

    def install_importer(self, name: str, *, module: str | None = None, **code: str) -> None:
        """Install the package `NAME-package`; `code` replaces the body of a method."""
        claims = f'return files.is_file(path) and b"{name}" in files.head(path)'
        code = {"recognises": claims, "find": "pass", "read": "pass"} | code
        made = module or MODULE.format(name=name, **code)
        self.install(f"{name}-package", made, group="sessionary.importers", name=name)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImporterPackages]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    group = PluginGroup("sessionary.importers", "importer", registry.IMPORTERS._kind)
    monkeypatch.setattr(registry, "IMPORTERS", group)
    registry.importers.cache_clear()
    registry.importer.cache_clear()
    yield ImporterPackages(folder)
    registry.importers.cache_clear()
    registry.importer.cache_clear()


def note(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"written by": name}))
    return path


def test_an_importer_of_another_package_reads_its_files(
    packages: ImporterPackages, tmp_path: Path
) -> None:
    packages.install_importer("notesa")
    path = note(tmp_path / "records", "notesa")

    request = imports.request_for(path)

    assert request is not None
    assert request.tool == "notesa"
    [outcome] = imports.preview(None, [request]).outcomes
    assert (outcome.title, outcome.added, outcome.messages) == ("Notes", 1, 1)
    assert registry.names()[-1] == "notesa"


def test_an_unknown_name_is_answered_with_the_nearest(packages: ImporterPackages) -> None:
    packages.install_importer("notesb")

    with pytest.raises(BadInput, match=r"There is no importer 'noteb'. Did you mean 'notesb'\?"):
        registry.importer("noteb")


def test_an_importer_that_cannot_be_loaded_is_one_line_and_the_others_work(
    packages: ImporterPackages, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    packages.install_importer("notesc", module="raise RuntimeError('no paper\\nat all')")
    sample = corpus.sample("codex", tmp_path / "codex")

    with caplog.at_level(logging.WARNING):
        request = imports.request_for(sample)
        assert request is not None
        outcomes = imports.preview(None, [request]).outcomes
        watched = imports.default_requests(
            imports.this_user(), ["notesc", "codex"], must_exist=False
        )

    assert [each.tool for each in outcomes] == ["codex"]
    assert {each.tool for each in watched} == {"codex"}
    assert {record.getMessage() for record in caplog.records} == {
        (
            "The importer 'notesc' of notesc-package 1.0 cannot be loaded: RuntimeError: no paper. "
            "Update or uninstall the package."
        )
    }
    with pytest.raises(PluginFailed, match="RuntimeError: no paper"):
        registry.importer("notesc")


@pytest.mark.parametrize("method", ["find", "read"])
def test_an_importer_that_raises_is_a_fault_and_the_other_files_are_imported(
    packages: ImporterPackages, tmp_path: Path, method: str
) -> None:
    name = f"notes{method}"
    packages.install_importer(name, **{method: "1 / 0"})
    folder = tmp_path / "records"
    corpus.sample("codex", folder)
    note(folder / "notes", name)

    request = imports.request_for(folder)
    assert request is not None
    result = imports.preview(None, [request])

    assert [each.added for each in result.outcomes if each.tool == "codex"] == [1]
    faults = [*result.faults, *(fault for each in result.outcomes for fault in each.faults)]
    assert [each.why for each in faults] == [
        (
            f"The importer '{name}' of {name}-package 1.0 failed: ZeroDivisionError: division by zero. "
            "What it read before is safe; update or uninstall the package."
        )
    ]


def test_an_importer_that_raises_at_every_file_is_logged_once_and_recognises_none(
    packages: ImporterPackages, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    packages.install_importer("notesd", recognises="1 / 0")
    paths = [note(tmp_path / "records", f"file{number}") for number in range(3)]

    with caplog.at_level(logging.WARNING):
        assert [registry.recognise(path) for path in paths] == [None, None, None]

    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("'hello'", "str is no event of an importer"),
        ("text_content('x').to_message('robot', parse_time(1e9))", "'robot' is no role"),
        ("text_content('x').to_message('user', __import__('datetime').datetime.now())", "no zone"),
    ],
    ids=["no event", "no role", "no zone"],
)
def test_an_event_that_cannot_be_stored_is_refused(
    packages: ImporterPackages, tmp_path: Path, event: str, why: str
) -> None:
    name = f"notes{len(event)}"
    packages.install_importer(name, read=f"yield {event}")
    path = note(tmp_path / "records", name)

    request = imports.request_for(path)
    assert request is not None
    [outcome] = imports.preview(None, [request]).outcomes

    assert outcome.added == 0
    assert why in outcome.faults[0].why
