"""Claude.ai's export is read back."""

import json
from dataclasses import replace
from pathlib import Path

from sessionary.importers import registry
from sessionary.importers.base.driver import ToolImportReport
from sessionary.importers.claude_ai import IMPORTER
from sessionary.model.message import (
    Attachment,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.testing.importer_world import ImportedStore
from tests.importers import write_exports as write
from tests.importers.rubbish import survives
from tests.importers.write_exports import claude_message, claude_talk


def take(archive: ImportedStore, place: Path) -> ToolImportReport:
    return archive.take(IMPORTER, list(IMPORTER.find(place)))


def as_before(archive: ImportedStore, place: Path) -> None:
    before = archive.everything()
    units = [replace(each, stamp="other") for each in IMPORTER.find(place)]
    report = archive.take(IMPORTER, units)
    assert (report.added, report.extended, report.messages) == (0, 0, 0)
    assert archive.everything() == before
    archive.check()


def rich() -> write.Json:
    """A conversation with everything in it."""
    attachment = {"file_name": "notes.txt", "file_size": 5, "extracted_content": "notes"}
    blocks = [
        {"type": "thinking", "thinking": "I should search."},
        {"type": "text", "text": "I look.", "citations": []},
        {"type": "tool_use", "id": "tu1", "name": "web_search", "input": {"query": "x"}},
        {"type": "tool_result", "tool_use_id": "tu1", "content": [{"type": "text", "text": "y"}]},
        {"type": "text", "text": "Found y.", "citations": []},
        {"type": "token_budget", "remaining": 7},
    ]
    talk = claude_talk("rich", [], name="Searching")
    talk["chat_messages"] = [
        claude_message("m1", "human", "Look", attachments=[attachment], files=[{"file_name": "p"}]),
        claude_message("m2", "assistant", "I look.\nFound y.", 1, content=blocks),
        claude_message("m3", "human", "Only text", 2, content=[]),
    ]
    return talk


def test_an_export_gives_back_its_conversation(archive: ImportedStore, tmp_path: Path) -> None:
    lists = {"conversations.json": [rich(), claude_talk()]}
    path = write.zipped(tmp_path / "data.zip", lists, {"users.json": b"[]"})

    report = take(archive, path)

    assert (report.added, report.skipped) == (2, 0)
    asked, called, result, answer, last = archive.messages("claude-ai", "rich")
    assert asked.parts[0] == Text("Look")
    assert isinstance(asked.parts[1], Attachment)
    assert asked.extra == {"claude-ai": {"files": [{"file_name": "p"}]}}
    assert called.parts == (
        Reasoning("I should search."),
        Text("I look."),
        ToolCall("tu1", "web_search", {"query": "x"}),
    )
    assert result.parts == (ToolResult("tu1", "y"),)
    assert answer.parts[0] == Text("Found y.")
    assert isinstance(answer.parts[1], Unknown)
    assert last.text == "Only text"
    assert archive.texts("claude-ai", "5f2a") == ["Hello", "Hi"]
    assert archive.session("claude-ai", "5f2a").title == "Greetings"
    as_before(archive, path)


def test_parents_make_branches(archive: ImportedStore, tmp_path: Path) -> None:
    talk = claude_talk("tree", [])
    root = "00000000-0000-4000-8000-000000000000"
    talk["chat_messages"] = [
        claude_message("q", "human", "one", 0, parent_message_uuid=root),
        claude_message("a1", "assistant", "first try", 1, parent_message_uuid="q"),
        claude_message("a2", "assistant", "second try", 2, parent_message_uuid="q"),
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([talk]))

    take(archive, path)

    assert archive.texts("claude-ai", "tree") == ["one", "second try"]
    log = [e.body.text for e in archive.log("claude-ai", "tree") if isinstance(e.body, Message)]
    assert log == ["one", "first try", "second try"]
    as_before(archive, path)


def test_a_later_export_adds_only_what_is_new(archive: ImportedStore, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([claude_talk(texts=("a", "b")), claude_talk("other")]))
    take(archive, path)
    path.write_text(json.dumps([claude_talk(texts=("a", "b", "c")), claude_talk("other")]))

    report = take(archive, path)

    assert (report.extended, report.unchanged, report.messages) == (1, 1, 1)
    assert archive.texts("claude-ai", "5f2a") == ["a", "b", "c"]


def test_a_file_without_a_conversation_is_reported(archive: ImportedStore, tmp_path: Path) -> None:
    broken = claude_talk("half")
    broken["chat_messages"][1] = {"uuid": "x", "sender": "nobody"}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([7, {"name": "no uuid"}, broken]))

    report = take(archive, path)

    assert archive.texts("claude-ai", "half") == ["Hello"]
    assert [fault.where for fault in report.faults] == [
        "conversations.json conversation 1",
        "conversations.json conversation 2",
        "conversations.json conversation 3 message 2",
    ]


def test_damaged_files_break_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "conversations.json").write_text(json.dumps([rich(), claude_talk()]))

    survives(IMPORTER, folder, tmp_path, times=200)


def test_a_single_conversation_is_a_record_too(archive: ImportedStore, tmp_path: Path) -> None:
    path = tmp_path / "hello.json"
    path.write_text(json.dumps(claude_talk("5f2a", ("Hello", "Hi"))))

    assert registry.recognise(path) is IMPORTER
    report = take(archive, path)

    assert (report.added, report.messages) == (1, 2)
    as_before(archive, path)
