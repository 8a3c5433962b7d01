"""Open WebUI's chats, from its database and its exports."""

import json
from pathlib import Path

import pytest

from sessionary.importers.open_webui import IMPORTER
from sessionary.model.message import Attachment, Message, Reasoning, Text, ToolCall, ToolResult
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_open_webui import BEGAN, PICTURE, a_day_at_the_mill, put, row

TEXTS = ["What is in a.txt?", "It is flour.", "Grind it.", ""]


@pytest.mark.parametrize("form", ["database", "list", "document"])
def test_a_chat_comes_over_with_its_branches(
    archive: ImportedStore, tmp_path: Path, form: str
) -> None:
    chat = row("chat-1", a_day_at_the_mill())
    path = tmp_path / ("webui.db" if form == "database" else "chats.json")
    if form == "database":
        put(path, chat)
    else:
        path.write_text(json.dumps([chat] if form == "list" else {"chats": [chat]}))

    report = archive.take_all(IMPORTER, path)

    head = archive.session("open-webui", "chat-1")
    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("open-webui", "chat-1") == TEXTS
    bodies = [entry.body for entry in archive.log("open-webui", "chat-1")]
    parts = [part for body in bodies if isinstance(body, Message) for part in body.parts]
    assert parts[1] == Attachment(hash_of(PICTURE), "image/png", None, len(PICTURE))
    assert parts[3:7] == [
        Reasoning("I read it\nwith care"),
        ToolCall("c1", "read", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read"),
        Text("Flour."),
    ]
    last = archive.messages("open-webui", "chat-1")[-1]
    assert last.extra == {"error": {"content": "the mill is broken"}}
    assert (head.title, head.pinned, head.labels) == ("The mill", True, ("food",))
    assert head.project == ("Village" if form == "database" else None)
    assert (head.usage.calls, head.usage.input_tokens, head.usage.cache_read_tokens) == (
        3,
        180,
        120,
    )
    archive.check_again(IMPORTER, path, *([] if form == "database" else [path]))


def test_only_the_chat_that_grew_is_read_again(archive: ImportedStore, tmp_path: Path) -> None:
    path, tree = tmp_path / "webui.db", a_day_at_the_mill()
    put(path, row("chat-1", tree), row("chat-2", a_day_at_the_mill()))
    archive.take_all(IMPORTER, path)

    tree.say("user", "Buy bread.", tree.current)
    put(path, row("chat-1", tree))
    report = archive.take_all(IMPORTER, tmp_path)

    assert (report.unchanged_units, report.messages) == (1, 1)
    assert archive.texts("open-webui", "chat-1") == [*TEXTS, "Buy bread."]
    archive.check()


def test_messages_in_a_table_of_their_own_are_found(archive: ImportedStore, tmp_path: Path) -> None:
    path, tree = tmp_path / "webui.db", a_day_at_the_mill()
    apart = [
        ("chat-1-m9", "chat-1", "user", tree.current, '"Later."', None, None, None, BEGAN + 99)
    ]
    chat = row("chat-1", tree)
    chat["chat"]["history"]["currentId"] = "m9"
    put(path, chat, apart=apart)

    archive.take_all(IMPORTER, path)

    assert archive.texts("open-webui", "chat-1") == [*TEXTS, "Later."]


def test_a_list_without_a_tree_is_read_in_its_order(archive: ImportedStore, tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    path.write_text(json.dumps([{"id": "old", "chat": {"messages": messages, "history": {}}}]))

    archive.take_all(IMPORTER, path)

    assert archive.texts("open-webui", "old") == ["a", "b"]


def test_damage_is_survived(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    put(tmp_path / "one" / "webui.db", row("chat-1", a_day_at_the_mill()))
    (tmp_path / "two" / "webui.db").write_text(json.dumps([row("chat-1", a_day_at_the_mill())]))

    rubbish.survives(IMPORTER, tmp_path / "one", tmp_path)
    rubbish.survives(IMPORTER, tmp_path / "two", tmp_path, times=40)


def test_details_that_never_end_are_text(archive: ImportedStore, tmp_path: Path) -> None:
    path, text = tmp_path / "chats.json", '<details type="reasoning">' * 20_000
    messages = [{"role": "assistant", "content": text}]
    path.write_text(json.dumps([{"id": "x", "chat": {"messages": messages, "history": {}}}]))

    archive.take_all(IMPORTER, path)

    assert archive.texts("open-webui", "x") == [text]


def test_it_is_recognised(tmp_path: Path) -> None:
    put(tmp_path / "webui.db", row("chat-1", a_day_at_the_mill()))
    export = tmp_path / "chats.json"
    export.write_text(json.dumps([row("chat-1", a_day_at_the_mill())]))

    assert IMPORTER.recognises(tmp_path / "webui.db")
    assert not IMPORTER.recognises(tmp_path)
    assert IMPORTER.recognises(export)
