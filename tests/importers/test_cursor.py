"""Cursor's conversations, from several of its releases."""

import base64
from pathlib import Path

import pytest

from sessionary.importers import registry
from sessionary.importers.cursor import IMPORTER
from sessionary.model.message import Attachment, Reasoning, ToolCall, ToolResult
from sessionary.model.session import Kind, Lineage
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_cursor import (
    BEGAN,
    PICTURE,
    CursorUser,
    a_day_at_the_mill,
    a_day_on_the_line,
    lines,
    reply,
    user,
    write_store,
)

ID = "0a1b2c3d-0000-4000-8000-000000000001"
TEXTS = ["What is in a.txt?", "", "", "", "Flour.", "Grind it.", "", ""]


@pytest.fixture
def cursor(tmp_path: Path) -> CursorUser:
    made = CursorUser(tmp_path / "home")
    made.composer(ID, a_day_at_the_mill())
    return made


def test_a_conversation_comes_over_as_it_was(archive: ImportedStore, cursor: CursorUser) -> None:
    cursor.head(ID, "At the mill", "/home/ann/src/mill", archived=1)

    report = archive.take_all(IMPORTER, cursor.root)

    head = archive.session("cursor", ID)
    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("cursor", ID) == TEXTS
    parts = [part for message in archive.messages("cursor", ID) for part in message.parts]
    assert parts[1:5] == [
        Attachment(hash_of(PICTURE), "image/png", None, len(PICTURE)),
        Reasoning("I read it", {"signature": "sig"}),
        ToolCall("c1", "read_file_v2", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read_file_v2"),
    ]
    assert parts[-1] == ToolResult("c1", "the mill is broken", "read_file_v2", is_error=True)
    assert (head.title, head.archived, head.model) == ("At the mill", True, "claude-sonnet-4-5")
    assert (head.usage.calls, head.usage.output_tokens) == (4, 12)
    archive.check_again(IMPORTER, cursor.root)


def test_only_the_conversation_that_grew_is_read_again(
    archive: ImportedStore, cursor: CursorUser
) -> None:
    cursor.composer("other", [user("o1", "Dig.")], subagentInfo={"parentComposerId": ID})
    archive.take_all(IMPORTER, cursor.path)

    cursor.composer(ID, [*a_day_at_the_mill(), user("b8", "Buy bread.")])
    report = archive.take_all(IMPORTER, cursor.path)

    assert (report.unchanged_units, report.extended, report.messages) == (1, 1, 1)
    assert archive.texts("cursor", ID) == [*TEXTS, "Buy bread."]
    head = archive.session("cursor", "other")
    assert (head.kind, head.lineage) == (Kind.SUBAGENT, Lineage.SUBAGENT)
    archive.check()


@pytest.mark.parametrize("form", ["conversation", "conversationMap", "keys", "tabs"])
def test_older_forms_are_read_too(archive: ImportedStore, tmp_path: Path, form: str) -> None:
    made = CursorUser(tmp_path / "home")
    bubbles = [user("b1", "a"), reply("b2", "b")]
    if form == "tabs":
        older = [
            {"type": "user", "id": "b1", "text": "a"},
            {"type": "ai", "id": "b2", "rawText": "b"},
        ]
        made.tabs([{"tabId": "old", "chatTitle": "Old", "bubbles": older}])
    elif form == "keys":
        made.composer("old", bubbles, fullConversationHeadersOnly=[])
    else:
        inline = {each["bubbleId"]: each for each in bubbles}
        value = bubbles if form == "conversation" else inline
        made.put("composerData:old", {"composerId": "old", form: value})

    archive.take_all(IMPORTER, made.root)

    assert archive.texts("cursor", "old") == ["a", "b"]
    archive.check_again(IMPORTER, made.root)


def test_transcripts_of_agents_are_read_on(archive: ImportedStore, tmp_path: Path) -> None:
    made = CursorUser(tmp_path / "home")
    first = lines(("user", "a"), ("assistant", "b"))
    made.transcript("t1", first)
    made.transcript("t2", "user:\nc\nassistant:\nd\nand e\n", suffix=".txt")
    made.transcript("t3", lines(("user", "Dig.")), parent="t1")
    place = made.home / ".cursor" / "projects"
    archive.take_all(IMPORTER, place)

    made.transcript("t1", first + lines(("user", "more")))
    report = archive.take_all(IMPORTER, place)

    assert report.bytes == len(lines(("user", "more")))
    assert archive.texts("cursor", "t1") == ["a", "b", "more"]
    assert archive.texts("cursor", "t2") == ["c", "d\nand e"]
    assert archive.session("cursor", "t3").lineage is Lineage.SUBAGENT
    archive.check()


def test_the_transcript_of_a_conversation_in_the_database_is_no_second_one(
    cursor: CursorUser,
) -> None:
    cursor.transcript(ID, lines(("user", "a")))

    assert list(IMPORTER.find(cursor.home / ".cursor" / "projects")) == []


def test_a_reference_to_a_missing_message_is_reported(
    archive: ImportedStore, cursor: CursorUser
) -> None:
    heads = [{"bubbleId": "b1", "type": 1}, {"bubbleId": "gone", "type": 2}]
    cursor.composer(ID, [user("b1", "a")], fullConversationHeadersOnly=heads)

    report = archive.take_all(IMPORTER, cursor.root)

    assert [fault.where for fault in report.faults] == ["message gone"]
    assert archive.texts("cursor", ID) == ["a"]


def test_damage_is_survived(cursor: CursorUser, tmp_path: Path) -> None:
    cursor.head(ID, "At the mill", "/home/ann/src/mill")
    cursor.tabs([{"tabId": "old", "bubbles": [{"type": "user", "id": "b1", "text": "a"}]}])
    cursor.transcript("t1", lines(("user", "a"), ("assistant", "b")))
    cursor.transcript("t2", "user:\nc\nassistant:\nd\n", suffix=".txt")

    rubbish.survives(IMPORTER, cursor.root, tmp_path)
    rubbish.survives(IMPORTER, cursor.home / ".cursor", tmp_path, times=40)


def test_it_is_recognised(cursor: CursorUser) -> None:
    path = cursor.transcript("t1", lines(("user", "a")))

    assert IMPORTER.recognises(cursor.path)
    assert IMPORTER.recognises(path)
    assert not IMPORTER.recognises(cursor.root)


def test_conversations_of_2024_are_read_from_the_database_of_their_workspace(
    archive: ImportedStore, tmp_path: Path
) -> None:
    made = CursorUser(tmp_path / "home")
    updated = BEGAN + 3_600_000
    composer = {
        "composerId": ID,
        "name": "Early days",
        "createdAt": BEGAN,
        "lastUpdatedAt": updated,
        "conversation": [user("b1", "a"), reply("b2", "b")],
    }
    path = made.composers([composer, {"composerId": "empty", "conversation": []}])

    report = archive.take_all(IMPORTER, made.root)

    head = archive.session("cursor", ID)
    assert report.added == 1
    assert archive.texts("cursor", ID) == ["a", "b"]
    assert head.title == "Early days"
    assert head.last_active_at.timestamp() * 1000 == updated
    assert archive.extra("cursor", ID)["import"]["id"] == ID
    archive.check_again(IMPORTER, made.root, path.with_name("workspace.json"))


@pytest.mark.parametrize("form", ["base64", "numbers", "places"])
def test_a_question_may_be_only_a_picture(
    archive: ImportedStore, tmp_path: Path, form: str
) -> None:
    data: object = base64.b64encode(PICTURE).decode()
    if form == "numbers":
        data = list(PICTURE)
    elif form == "places":
        data = {str(place): byte for place, byte in enumerate(PICTURE)}
    made = CursorUser(tmp_path / "home")
    image = {"uuid": "u", "mimeType": "image/png", "data": data}
    bubbles = [user("b1", "", context={"selectedImages": [image]}), reply("b2", "A cow.")]
    made.composer(ID, bubbles)

    archive.take_all(IMPORTER, made.root)

    first = archive.messages("cursor", ID)[0]
    assert first.parts == (Attachment(hash_of(PICTURE), "image/png", None, len(PICTURE)),)


def test_a_conversation_of_the_command_line_comes_over(
    archive: ImportedStore, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    path = write_store(home, ID, a_day_on_the_line())

    report = archive.take_all(IMPORTER, home / ".cursor" / "chats")

    head = archive.session("cursor", ID)
    assert (report.added, report.skipped) == (1, 0)
    messages = archive.messages("cursor", ID)
    assert [str(message.role) for message in messages] == [
        *("system", "system", "user", "assistant", "tool", "assistant"),
    ]
    assert messages[2].text == "What is in a.txt?"
    assert messages[3].parts == (
        Reasoning("I read it", {"signature": "sig"}),
        ToolCall("c1", "Read", {"path": "a.txt"}),
    )
    assert messages[4].parts == (ToolResult("c1", "flour", "Read"),)
    assert (head.title, head.model) == ("The mill", "claude-4.5-sonnet")
    assert head.began_at.timestamp() * 1000 == BEGAN
    archive.check_again(IMPORTER, home / ".cursor" / "chats", path)


def test_a_store_of_the_command_line_is_recognised_alone_and_goes_on(
    archive: ImportedStore, tmp_path: Path
) -> None:
    path = write_store(tmp_path, ID, a_day_on_the_line())
    alone = tmp_path / "copied.db"
    alone.write_bytes(path.read_bytes())

    assert registry.recognise(alone) is IMPORTER
    archive.take_all(IMPORTER, path)
    more = {"role": "user", "content": [{"type": "text", "text": "Grind it."}]}
    write_store(tmp_path, ID, [*a_day_on_the_line(), more])
    report = archive.take_all(IMPORTER, path)

    assert (report.extended, report.messages) == (1, 1)
    assert archive.texts("cursor", ID)[-1] == "Grind it."


def test_a_store_whose_list_is_torn_says_so(archive: ImportedStore, tmp_path: Path) -> None:
    path = write_store(tmp_path, ID, a_day_on_the_line(), torn=True)

    report = archive.take_all(IMPORTER, path)

    assert report.skipped == 1
    assert len(archive.messages("cursor", ID)) == 5
