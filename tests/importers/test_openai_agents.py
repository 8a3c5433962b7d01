"""Sessions that the Agents SDK itself has written."""

import sqlite3
from pathlib import Path

from sessionary.importers.openai_agents import IMPORTER
from sessionary.model.message import (
    Attachment,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_openai_agents import PICTURE, a_day_at_the_mill, add, branch, reply, user


def name_of(path: Path, id: str) -> str:
    base = sqlite3.connect(path)
    row = base.execute("SELECT created_at FROM agent_sessions WHERE session_id=?", (id,)).fetchone()
    base.close()
    return f"{id}@{row[0]}"


def test_a_session_comes_over_as_it_was(archive: ImportedStore, tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    add(path, "ann", *a_day_at_the_mill())

    report = archive.take_all(IMPORTER, path)

    name = name_of(path, "ann")
    messages = archive.messages("openai-agents", name)
    assert (report.added, report.skipped) == (1, 0)
    assert [message.role for message in messages] == [
        *(Role.USER, Role.ASSISTANT, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT, Role.ASSISTANT),
    ]
    assert [part for message in messages for part in message.parts] == [
        Text("What is in a.txt?"),
        Attachment(hash_of(PICTURE), "image/png", None, len(PICTURE)),
        Reasoning("I read it", {"id": "r"}),
        ToolCall("c1", "read", {"path": "a.txt"}),
        ToolResult("c1", "flour"),
        Text("Flour."),
        Unknown({"type": "novelty", "what": 1}),
    ]
    assert archive.session("openai-agents", name).title == "ann"
    archive.check_again(IMPORTER, path)


def test_only_the_session_that_grew_is_read_again(archive: ImportedStore, tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    add(path, "ann", user("a"), reply("b"))
    add(path, "bob", user("x"))
    archive.take_all(IMPORTER, path)

    add(path, "ann", user("c"))
    report = archive.take_all(IMPORTER, tmp_path)

    assert (report.unchanged_units, report.messages) == (1, 1)
    assert archive.texts("openai-agents", name_of(path, "ann")) == ["a", "b", "c"]
    archive.check()


def test_branches_of_an_advanced_session_come_over(archive: ImportedStore, tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    first = [user("a"), reply("b"), user("c"), reply("d")]
    branch(path, "ann", first, turn=2, second=[user("x"), reply("y")])

    archive.take_all(IMPORTER, path)

    name = name_of(path, "ann")
    assert archive.texts("openai-agents", name) == ["a", "b", "x", "y"]
    bodies = [entry.body for entry in archive.log("openai-agents", name)]
    assert "d" in [body.text for body in bodies if isinstance(body, Message)]
    archive.check_again(IMPORTER, path)


def test_damage_is_survived(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    add(tmp_path / "root" / "talks.db", "ann", *a_day_at_the_mill())
    second = [user("x"), reply("y")]
    branch(tmp_path / "root" / "more.db", "bob", [user("a"), reply("b")], turn=1, second=second)

    rubbish.survives(IMPORTER, tmp_path / "root", tmp_path)


def test_it_is_recognised(tmp_path: Path) -> None:
    add(tmp_path / "talks.db", "ann", user("a"))
    sqlite3.connect(tmp_path / "other.db").close()

    assert IMPORTER.recognises(tmp_path / "talks.db")
    assert not IMPORTER.recognises(tmp_path / "other.db")
