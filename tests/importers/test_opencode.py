"""OpenCode's sessions, from its database and from its older files."""

from pathlib import Path

import pytest

from sessionary.importers.opencode import IMPORTER
from sessionary.model.message import Attachment, Compaction, Reasoning, ToolCall, ToolResult
from sessionary.model.session import Kind, Lineage
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_opencode import PICTURE, OpenCodeSession, a_day_at_the_mill, words

TEXTS = [
    "What is in a.txt?\na.txt: …",
    *("", "", "Flour."),
    *("Grind it.", "", ""),
    *("Buy bread.", "Bought."),
]


@pytest.fixture
def session() -> OpenCodeSession:
    made = OpenCodeSession("ses_1")
    a_day_at_the_mill(made)
    return made


@pytest.mark.parametrize("form", ["database", "files"])
def test_a_session_comes_over_as_it_was(
    archive: ImportedStore, session: OpenCodeSession, tmp_path: Path, form: str
) -> None:
    root = tmp_path / "opencode"
    path = root / "opencode.db"
    if form == "database":
        session.put(path)
    else:
        path = session.write(root / "storage")

    report = archive.take_all(IMPORTER, root)

    head = archive.session("opencode", "ses_1")
    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("opencode", "ses_1") == TEXTS
    parts = [part for message in archive.messages("opencode", "ses_1") for part in message.parts]
    picture = Attachment(hash_of(PICTURE), "image/png", "hen.png", len(PICTURE))
    assert parts[3:7] == [
        Reasoning("I read it"),
        ToolCall("c1", "read", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read"),
        picture,
    ]
    assert ToolResult("c1", "the mill is broken", "read", is_error=True) in parts
    bodies = [entry.body for entry in archive.log("opencode", "ses_1")]
    assert [body.summary for body in bodies if isinstance(body, Compaction)] == ["Flour was found."]
    assert (head.title, head.model) == ("The mill", "claude-sonnet-4-5")
    assert (head.usage.calls, head.usage.output_tokens, head.usage.cost_microusd) == (4, 100, 8000)
    archive.check_again(IMPORTER, root, *([path] if form == "files" else []))


def test_only_the_session_that_grew_is_read_again(
    archive: ImportedStore, session: OpenCodeSession, tmp_path: Path
) -> None:
    path = tmp_path / "opencode" / "opencode.db"
    session.put(path)
    child = OpenCodeSession("ses_2", parent="ses_1")
    child.say("user", words("Dig."))
    child.put(path)
    archive.take_all(IMPORTER, path)

    session.say("user", words("And butter."))
    session.put(path)
    report = archive.take_all(IMPORTER, path)

    assert (report.unchanged_units, report.extended, report.messages) == (1, 1, 1)
    assert archive.texts("opencode", "ses_1") == [*TEXTS, "And butter."]
    head = archive.session("opencode", "ses_2")
    assert (head.kind, head.lineage) == (Kind.SUBAGENT, Lineage.SUBAGENT)
    archive.check()


def test_files_that_were_moved_into_the_database_are_the_same_session(
    archive: ImportedStore, session: OpenCodeSession, tmp_path: Path
) -> None:
    root = tmp_path / "opencode"
    session.write(root / "storage")
    archive.take_all(IMPORTER, root)
    session.put(root / "opencode.db")

    report = archive.take_all(IMPORTER, root)

    assert (archive.count(), report.messages, report.unchanged) == (1, 0, 1)


def test_files_that_grew_are_read_again(
    archive: ImportedStore, session: OpenCodeSession, tmp_path: Path
) -> None:
    session.write(tmp_path / "storage")
    archive.take_all(IMPORTER, tmp_path)
    session.say("user", words("And butter."))
    session.write(tmp_path / "storage")

    report = archive.take_all(IMPORTER, tmp_path)

    assert report.messages == 1
    assert archive.texts("opencode", "ses_1")[-1] == "And butter."


def test_damage_is_survived(session: OpenCodeSession, tmp_path: Path) -> None:
    session.put(tmp_path / "root" / "opencode.db")
    other = OpenCodeSession("ses_2", parent="ses_1")
    a_day_at_the_mill(other)
    other.write(tmp_path / "root" / "storage")

    rubbish.survives(IMPORTER, tmp_path / "root", tmp_path)


def test_it_is_recognised(session: OpenCodeSession, tmp_path: Path) -> None:
    session.put(tmp_path / "opencode.db")
    session.write(tmp_path / "tree" / "storage")

    assert IMPORTER.recognises(tmp_path / "opencode.db")
    tree = tmp_path / "tree" / "storage"
    claims = {path.parent.parent.name: IMPORTER.recognises(path) for path in tree.rglob("*.json")}
    assert claims == {"session": True, "message": False, "part": False}
