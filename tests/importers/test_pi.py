"""Pi's sessions come over whole, branches and all."""

import json
from pathlib import Path

import pytest

from sessionary.importers.pi import IMPORTER
from sessionary.model.message import Attachment, Compaction, Reasoning, Role, ToolCall, ToolResult
from sessionary.model.session import Lineage
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers.write_pi import PICTURE, PiSession, a_day_at_the_mill, words

ID = "0a1b2c3d-0000-4000-8000-000000000001"
CURRENT = [
    "What is in a.txt?",
    "We tried to grind.",
    "Buy bread instead.",
    "Bought.",
    "!ls\na.txt",
    "Mind the stairs.",
]


@pytest.fixture
def session() -> PiSession:
    made = PiSession(ID)
    a_day_at_the_mill(made)
    return made


def test_a_session_comes_over_as_it_was(
    archive: ImportedStore, session: PiSession, tmp_path: Path
) -> None:
    session.write(tmp_path / "pi")

    report = archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    head = archive.session("pi", ID)
    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("pi", ID) == CURRENT
    assert (head.title, head.model) == ("The mill", "claude-sonnet-4-5")
    assert head.usage.calls == 4
    assert head.usage.cost_microusd == 4000
    assert (head.usage.cache_read_tokens, head.usage.cache_write_tokens) == (20, 8)
    bodies = [entry.body for entry in archive.log("pi", ID)]
    assert any(
        isinstance(body, Compaction) and body.summary == "Bread was bought." for body in bodies
    )
    archive.check()


def test_the_branch_that_was_left_is_there_with_its_tools(
    archive: ImportedStore, session: PiSession, tmp_path: Path
) -> None:
    session.write(tmp_path / "pi")
    archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    parts = [
        part
        for entry in archive.log("pi", ID)
        for part in getattr(entry.body, "parts", ())
        if getattr(entry.body, "role", None) is not Role.SYSTEM
    ]

    assert Reasoning("I read it", {"signature": "sig"}) in parts
    assert ToolCall("c1", "read", {"path": "a.txt"}) in parts
    assert ToolResult("c1", "flour", "read") in parts
    assert parts.count(Attachment(hash_of(PICTURE), "image/png", None, len(PICTURE))) == 2


def test_reading_it_again_changes_nothing(
    archive: ImportedStore, session: PiSession, tmp_path: Path
) -> None:
    path = session.write(tmp_path / "pi")
    archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))
    before = archive.everything()

    unread = archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))
    path.write_text(session.text() + "\n")
    path.with_suffix(".jsonl").touch()
    again = archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    assert unread.unchanged_units == 1
    assert again.messages == 0
    assert archive.everything() == before


def test_only_what_was_added_is_read(
    archive: ImportedStore, session: PiSession, tmp_path: Path
) -> None:
    path = session.write(tmp_path / "pi")
    archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))
    size = path.stat().st_size

    session.user("And butter.")
    session.reply(words("And butter."))
    session.write(tmp_path / "pi")
    report = archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    assert report.bytes == path.stat().st_size - size
    assert (report.extended, report.messages) == (1, 2)
    assert archive.texts("pi", ID) == [*CURRENT, "And butter.", "And butter."]
    archive.check()


def test_a_branch_that_begins_later_leaves_the_old_one(
    archive: ImportedStore, session: PiSession, tmp_path: Path
) -> None:
    path = session.write(tmp_path / "pi")
    archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    session.leaf = session.lines[2]["id"]
    session.user("Begin anew.")
    session.write(tmp_path / "pi")
    archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    assert archive.texts("pi", ID) == ["Begin anew."]
    assert path.exists()
    archive.check()


def test_a_copy_is_a_fork_and_its_calls_are_paid_once(
    archive: ImportedStore, tmp_path: Path
) -> None:
    first = PiSession(ID)
    first.user("a")
    first.reply(words("b"))
    path = first.write(tmp_path / "pi")
    copy = PiSession("ffff0000-0000-4000-8000-000000000002", {"parentSession": str(path)})
    copy.lines += first.lines[1:]
    copy.count, copy.leaf = first.count, first.leaf
    copy.user("c")
    copy.write(tmp_path / "pi", "2026-02-02T09-00-00-000Z")

    archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    head = archive.session("pi", copy.id)
    assert head.lineage is Lineage.FORK
    assert archive.texts("pi", copy.id) == ["a", "b", "c"]
    assert sum(each.usage.calls for each in archive.heads()) == 1
    archive.check()


def test_the_first_version_had_no_tree(archive: ImportedStore, tmp_path: Path) -> None:
    session = PiSession(ID, {"version": 1})
    session.user("a")
    session.reply(words("b"))
    for line in session.lines[1:]:
        del line["id"], line["parentId"]
    session.write(tmp_path / "pi")

    archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    assert archive.texts("pi", ID) == ["a", "b"]


def test_a_half_written_line_waits_for_its_end(archive: ImportedStore, tmp_path: Path) -> None:
    session = PiSession(ID)
    session.user("a")
    path = session.write(tmp_path / "pi")
    session.reply(words("b"))
    whole = session.text()
    path.write_text(whole[:-30])
    first = archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))
    path.write_text(whole)
    archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    assert first.skipped == 0
    assert archive.texts("pi", ID) == ["a", "b"]
    archive.check()


def test_bad_lines_are_reported_and_the_rest_is_kept(
    archive: ImportedStore, tmp_path: Path
) -> None:
    session = PiSession(ID)
    session.user("a")
    session.reply(words("b"))
    path = session.write(tmp_path / "pi")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1], "{no", json.dumps([1]), lines[2], ""]))

    report = archive.take(IMPORTER, list(IMPORTER.find(tmp_path / "pi")))

    assert [fault.where.split()[0] for fault in report.faults] == ["byte", "byte"]
    assert archive.texts("pi", ID) == ["a", "b"]


def test_it_is_recognised_by_its_first_line(session: PiSession, tmp_path: Path) -> None:
    path = session.write(tmp_path / "pi")
    other = tmp_path / "other.jsonl"
    other.write_text('{"type": "summary"}\n')

    assert IMPORTER.recognises(path)
    assert not IMPORTER.recognises(other)
