"""What real tools recorded comes over whole; `./dev real-tools --fixtures` renews the records."""

import json
from pathlib import Path

import pytest

from sessionary.actions.transfer import export
from sessionary.importers import registry
from sessionary.testing.importer_world import ImportedStore
from tests.real_tools.comparison import Talk, differences, imported
from tests.real_tools.records import RECORDS, bring_back
from tests.real_tools.tools import TOOLS, Tool

RECORDED = [tool for tool in TOOLS if (RECORDS / tool.program).is_dir()]


def test_every_tool_has_a_record() -> None:
    assert [tool.program for tool in TOOLS if tool not in RECORDED] == []


@pytest.mark.parametrize("tool", RECORDED, ids=lambda tool: tool.program)
def test_a_real_record_comes_over_whole(tool: Tool, archive: ImportedStore, tmp_path: Path) -> None:
    home = bring_back(tool.program, tmp_path)
    source = Talk(**json.loads((RECORDS / tool.program / "talk.json").read_text()))
    importer = registry.importer(tool.importer)

    report = archive.take_all(importer, home / tool.record)

    assert [(fault.where, fault.why) for fault in report.faults] == []
    here = imported(export.export_jsonl(archive.store, profile="main"))
    assert differences(source, here, has_tokens=tool.has_tokens) == []
    files = [path for path in home.rglob("*") if path.is_file() and path.suffix != ".db"]
    archive.check_again(importer, home / tool.record, *files)


@pytest.mark.parametrize("tool", RECORDED, ids=lambda tool: tool.program)
def test_a_real_record_is_recognised_by_its_own_importer_alone(tool: Tool, tmp_path: Path) -> None:
    home = bring_back(tool.program, tmp_path)
    importer = registry.importer(tool.importer)

    for unit in importer.find(home / tool.record):
        claims = [each.name for each in registry.importers() if each.recognises(unit.path)]
        assert claims == [tool.importer], unit.path
