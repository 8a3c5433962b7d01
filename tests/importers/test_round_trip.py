"""What came from other tools goes out as lines of JSON, comes in elsewhere, and goes out the same."""

from pathlib import Path

from sessionary.actions.transfer import export, jsonl_import
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.importers import registry
from sessionary.store.open import open_store
from sessionary.testing.importer_world import ImportedStore
from tests.importers import corpus


def test_every_tools_sessions_survive_export_and_import(
    archive: ImportedStore, tmp_path: Path
) -> None:
    places: dict[str, Path] = {}
    for name in registry.names():
        importer = registry.importer(name)
        places[name] = corpus.sample(name, tmp_path / name)
        report = archive.take(importer, list(importer.find(places[name])))
        assert report.added > 0, name
    first = list(export.export_jsonl(archive.store, profile=None))

    clock = SystemClock()
    other = open_store(
        f"sqlite:///{tmp_path / 'other.db'}", create=True, clock=clock, ids=RandomIds()
    )
    try:
        moment = Moment(clock.now(), RandomIds())
        lines = [line.encode("utf-8", "surrogatepass") for line in first]
        report_there = jsonl_import.import_jsonl(other, lines, moment=moment)
        assert report_there.refused == ()
        assert list(export.export_jsonl(other, profile=None)) == first
        for name in registry.names():
            importer = registry.importer(name)
            again = ImportedStore(other).take(importer, list(importer.find(places[name])))
            assert (again.added, again.messages, again.skipped) == (0, 0, 0), name
        ImportedStore(other).check()
    finally:
        other.close()
