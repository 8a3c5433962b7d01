"""ChatGPT's export is read back, every branch of it."""

import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from sessionary.errors import BadInput
from sessionary.importers import registry
from sessionary.importers.base import archives
from sessionary.importers.base.driver import ToolImportReport
from sessionary.importers.chatgpt import IMPORTER
from sessionary.importers.claude_ai import IMPORTER as CLAUDE
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
from tests.importers.write_exports import PIXEL, ChatGptTalk, chatgpt_talk


def take(archive: ImportedStore, place: Path) -> ToolImportReport:
    return archive.take(IMPORTER, list(IMPORTER.find(place)))


def texts_of(archive: ImportedStore, id: str) -> list[str]:
    return [e.body.text for e in archive.log("chatgpt", id) if isinstance(e.body, Message)]


def as_before(archive: ImportedStore, place: Path) -> None:
    before = archive.everything()
    units = [replace(each, stamp="other") for each in IMPORTER.find(place)]
    report = archive.take(IMPORTER, units)
    assert (report.added, report.extended, report.messages) == (0, 0, 0)
    assert archive.everything() == before
    archive.check()


def test_an_export_gives_back_its_conversation(archive: ImportedStore, tmp_path: Path) -> None:
    path = write.zipped(
        tmp_path / "export.zip",
        {"conversations.json": [chatgpt_talk().data]},
        {"file-ABC123-cat.png": PIXEL, "chat.html": b"<html>", "user.json": b"{}"},
    )

    report = take(archive, path)

    assert (report.added, report.skipped) == (1, 0)
    context, asked, thought, call, result, answer = archive.messages("chatgpt", "conv-1")
    assert isinstance(context.parts[0], Unknown)
    assert context.parts[0].data["user_profile"] == "I am Anna."
    picture, question = asked.parts
    assert isinstance(picture, Attachment)
    assert (picture.name, picture.media_type, picture.size) == ("cat.png", "image/png", len(PIXEL))
    assert question == Text("What is it?")
    assert thought.parts == (Reasoning("Sum\n6*7=42"),)
    assert call.parts == (ToolCall("c1", "python", "print(6 * 7)"),)
    assert result.parts == (ToolResult("c1", "42\n", "python"),)
    assert (answer.text, answer.model) == ("A pixel; and 42.", "gpt-5")
    head = archive.session("chatgpt", "conv-1")
    assert (head.title, head.model, head.read_only) == ("Capitals", "gpt-5", True)
    as_before(archive, path)


def test_the_whole_tree_comes_over(archive: ImportedStore, tmp_path: Path) -> None:
    talk = ChatGptTalk().say("q", "user", "Capital of France?")
    talk.say("a1", "assistant", "Lyon").say("q2", "user", "Sure?").say("a3", "assistant", "No.")
    talk.say("a2", "assistant", "Paris", after="q").say("q3", "user", "Thanks")
    path = write.zipped(tmp_path / "export.zip", {"conversations.json": [talk.data]}, {})

    take(archive, path)

    assert archive.texts("chatgpt", "conv-1") == ["Capital of France?", "Paris", "Thanks"]
    assert texts_of(archive, "conv-1") == [
        "Capital of France?",
        "Lyon",
        "Sure?",
        "No.",
        "Paris",
        "Thanks",
    ]
    as_before(archive, path)


def test_a_later_export_adds_only_what_is_new(archive: ImportedStore, tmp_path: Path) -> None:
    talk = ChatGptTalk().say("q", "user", "one").say("a", "assistant", "two")
    path = write.zipped(tmp_path / "march.zip", {"conversations.json": [talk.data]}, {})
    take(archive, path)

    talk.say("q2", "user", "three")
    later = ChatGptTalk("conv-2").say("x", "user", "other")
    lists = {"conversations-000.json": [talk.data], "conversations-001.json": [later.data]}
    report = take(archive, write.zipped(tmp_path / "april.zip", lists, {}))

    assert (report.extended, report.added, report.messages) == (1, 1, 2)
    assert archive.texts("chatgpt", "conv-1") == ["one", "two", "three"]
    archive.check()


def test_a_folder_and_a_list_alone_are_read_too(archive: ImportedStore, tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    (folder / "images").mkdir(parents=True)
    (folder / "conversations.json").write_text("\ufeff" + json.dumps([chatgpt_talk().data]))
    (folder / "chat.html").write_text("<html>")
    (folder / "images" / "file-ABC123-cat.png").write_bytes(PIXEL)
    os.symlink("/etc/passwd", folder / "conversations-001.json")

    report = take(archive, folder)

    assert (report.added, report.skipped) == (1, 0)
    asked = archive.messages("chatgpt", "conv-1")[1]
    assert isinstance(asked.parts[0], Attachment)
    as_before(archive, folder / "conversations.json")


def test_a_cut_off_record_is_reported_and_the_rest_is_whole(
    archive: ImportedStore, tmp_path: Path
) -> None:
    talks = [ChatGptTalk(f"c{n}").say("q", "user", f"in {n}").data for n in range(3)]
    talks[1]["mapping"] = []
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(talks)[:-40])

    report = take(archive, path)

    assert archive.count() == 1
    assert archive.texts("chatgpt", "c0") == ["in 0"]
    assert [fault.why for fault in report.faults] == [
        "it has no messages",
        "It ends in the middle of an item.",
    ]


def test_messages_on_a_cycle_are_reported(archive: ImportedStore, tmp_path: Path) -> None:
    talk = ChatGptTalk().say("a", "user", "one").say("b", "assistant", "two")
    mapping = talk.data["mapping"]
    mapping["a"]["parent"] = "b"
    talk.say("c", "user", "three")
    mapping["c"]["parent"] = "nowhere"
    talk.data["current_node"] = "c"
    path = write.zipped(tmp_path / "export.zip", {"conversations.json": [talk.data]}, {})

    report = take(archive, path)

    assert archive.texts("chatgpt", "conv-1") == ["three"]
    assert "2 of its messages are on no branch" in report.faults[0].why
    archive.check()


def test_a_bomb_is_left_alone(archive: ImportedStore, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as made,
        made.open("conversations.json", "w") as file,
    ):
        file.write(b"[")
        for _ in range(100):
            file.write(b" " * 1024 * 1024)

    report = take(archive, bomb)

    assert archive.count() == 0
    assert "would unpack to" in report.faults[0].why


def test_names_in_a_zip_lead_nowhere(archive: ImportedStore, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "export.zip"
    path.parent.mkdir()
    more = {"../../../evil.txt": b"x", "/abs/file-ABC123-../../cat.png": PIXEL}
    write.zipped(path, {"../conversations.json": [chatgpt_talk().data]}, more)
    before = sorted(tmp_path.rglob("*"))

    take(archive, path)

    assert archive.session("chatgpt", "conv-1").title == "Capitals"
    new = [each for each in sorted(tmp_path.rglob("*")) if each not in before]
    assert [each for each in new if not each.name.startswith("sessionary.db")] == []


def test_a_directory_too_large_for_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write.zipped(tmp_path / "export.zip", {"conversations.json": []}, {"a": b"", "b": b""})
    monkeypatch.setattr(archives, "MAX_DIRECTORY", 100)

    with pytest.raises(BadInput, match="directory"), archives.open_zip(path):
        pass


def test_exports_are_distinguished(tmp_path: Path) -> None:
    ours = write.zipped(tmp_path / "a.zip", {"conversations.json": [chatgpt_talk().data]}, {})
    theirs = write.zipped(tmp_path / "b.zip", {"conversations.json": [write.claude_talk()]}, {})
    other = write.zipped(tmp_path / "c.zip", {}, {"x": b""})

    assert [IMPORTER.recognises(each) for each in (ours, theirs, other)] == [True, False, False]
    assert [CLAUDE.recognises(each) for each in (ours, theirs, other)] == [False, True, False]


def test_a_single_conversation_is_a_record_too(archive: ImportedStore, tmp_path: Path) -> None:
    path = tmp_path / "capitals.json"
    path.write_text(json.dumps(chatgpt_talk().data))

    assert registry.recognise(path) is IMPORTER
    report = take(archive, path)

    assert (report.added, report.skipped) == (1, 0)
    assert texts_of(archive, "conv-1")
    as_before(archive, path)
