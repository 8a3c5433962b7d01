"""LibreChat's exports, as a list and as a tree."""

import json
from pathlib import Path

import pytest

from sessionary.importers.librechat import IMPORTER
from sessionary.model.message import Message, Reasoning, Text, ToolCall, ToolResult
from sessionary.testing.importer_world import ImportedStore, read_all
from tests.importers.write_librechat import a_day_at_the_mill, export, message

TEXTS = ["What is in a.txt?", "Let me see.", "", "Flour.", "Buy bread.", "Bought."]


@pytest.mark.parametrize("is_tree", [False, True])
def test_a_conversation_comes_over_with_its_branches(
    archive: ImportedStore, tmp_path: Path, is_tree: bool
) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(export(a_day_at_the_mill(), is_tree=is_tree)))

    report = archive.take_all(IMPORTER, tmp_path)

    head = archive.session("librechat", "talk-1")
    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("librechat", "talk-1") == TEXTS
    parts = [part for message in archive.messages("librechat", "talk-1") for part in message.parts]
    assert parts[2:] == [
        Reasoning("I read it"),
        Text("Let me see."),
        ToolCall("c1", "read", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read"),
        Text("Flour."),
        Text("Buy bread."),
        Reasoning("Easy"),
        Text("Bought."),
    ]
    bodies = [entry.body for entry in archive.log("librechat", "talk-1")]
    assert "Grind it." in [body.text for body in bodies if isinstance(body, Message)]
    assert (head.title, head.model, head.labels) == ("The mill", "gpt-5", ("food",))
    archive.check_again(IMPORTER, tmp_path, path)


def test_a_newer_export_adds_what_is_new(archive: ImportedStore, tmp_path: Path) -> None:
    path, messages = tmp_path / "talk.json", a_day_at_the_mill()
    path.write_text(json.dumps(export(messages)))
    archive.take_all(IMPORTER, path)

    messages.append(message("m7", "m6", "And butter.", is_person=True))
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(export(messages, is_tree=True)))
    report = archive.take_all(IMPORTER, newer)

    assert (report.extended, report.messages) == (1, 1)
    assert archive.texts("librechat", "talk-1") == [*TEXTS, "And butter."]
    archive.check()


def test_messages_that_name_each_other_as_parents_end(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    circle = [message("m1", "m2", "a"), message("m2", "m1", "b")]
    path.write_text(json.dumps(export(circle)))

    assert len(read_all(IMPORTER, path)) >= 2


def test_it_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(export(a_day_at_the_mill())))
    other = tmp_path / "other.json"
    other.write_text(json.dumps([{"mapping": {}}]))

    assert IMPORTER.recognises(path)
    assert not IMPORTER.recognises(tmp_path)
    assert not IMPORTER.recognises(other)
