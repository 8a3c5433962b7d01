"""OpenClaw's sessions, from its database, its archives and its older files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary.importers.openclaw import IMPORTER
from sessionary.model.session import Kind, Lineage
from sessionary.testing.importer_world import ImportedStore, read_all
from tests.importers import rubbish
from tests.importers.write_openclaw import State
from tests.importers.write_pi import PiSession, a_day_at_the_mill, words

KEY = "agent:main:discord:channel:555"
SUBKEY = "agent:main:subagent:0001"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State(tmp_path / "openclaw")
    yield made
    made.close()


def talk(id: str, *texts: str) -> PiSession:
    session = PiSession(id)
    for question, answer in zip(texts[::2], texts[1::2], strict=True):
        session.user(question)
        session.reply(words(answer))
    return session


def filled(state: State) -> PiSession:
    """Four windows of one conversation, one of them with everything in it, and a subagent."""
    newest = talk("s4", "four", "five")
    state.archive(KEY, talk("s1", "one", "two"), "a" * 64 + ".jsonl.zst")
    state.archive(KEY, talk("s2", "two", "three"), "b" * 64 + ".jsonl.zst", storage="sqlite")
    full = PiSession("s3")
    a_day_at_the_mill(full)
    state.window(KEY, full, packed=True)
    state.window(KEY, newest)
    state.node(KEY, "s4", subject="#diet", channel="discord")
    state.window(SUBKEY, talk("sub", "dig", "dug"))
    state.node(SUBKEY, "sub", spawnedBy=KEY)
    return newest


def test_windows_of_a_conversation_come_over_in_their_order(
    archive: ImportedStore, state: State
) -> None:
    filled(state)

    report = archive.take(IMPORTER, list(IMPORTER.find(state.root)))

    assert (report.added, report.skipped) == (5, 0)
    assert archive.texts("openclaw", "s1") == ["one", "two"]
    assert archive.texts("openclaw", "s2") == ["two", "three"]
    assert archive.texts("openclaw", "s3")[-1] == "Mind the stairs."
    assert archive.texts("openclaw", "s4") == ["four", "five"]
    newest, sub = archive.session("openclaw", "s4"), archive.session("openclaw", "sub")
    assert newest.lineage is Lineage.RESET
    assert newest.parent_id == archive.session("openclaw", "s3").id
    assert (sub.kind, sub.lineage, sub.parent_id) == (Kind.SUBAGENT, Lineage.SUBAGENT, newest.id)
    assert archive.session("openclaw", "s3").title == "The mill"
    archive.check()


def test_only_the_session_that_grew_is_read_again(archive: ImportedStore, state: State) -> None:
    newest = filled(state)
    archive.take(IMPORTER, list(IMPORTER.find(state.root)))
    before = archive.everything()
    unread = archive.take(IMPORTER, list(IMPORTER.find(state.root)))
    assert (unread.unchanged_units, archive.everything()) == (5, before)

    known = len(newest.lines)
    newest.user("six")
    state.events(newest, since=known)
    report = archive.take(IMPORTER, list(IMPORTER.find(state.root)))

    assert (report.unchanged_units, report.extended, report.messages) == (4, 1, 1)
    assert archive.texts("openclaw", "s4") == ["four", "five", "six"]
    archive.check()


def test_a_session_in_a_file_and_in_the_database_is_one(
    archive: ImportedStore, state: State
) -> None:
    session = talk("old", "a", "b")
    state.files({KEY: {"sessionId": "old", "label": "Old talk"}}, session)
    archive.take(IMPORTER, list(IMPORTER.find(state.root)))
    assert archive.session("openclaw", "old").title == "Old talk"

    session.user("c")
    state.window(KEY, session)
    report = archive.take(IMPORTER, list(IMPORTER.find(state.root)))

    assert (archive.count(), report.messages) == (1, 1)
    assert archive.texts("openclaw", "old") == ["a", "b", "c"]
    archive.check()


def test_files_are_read_on_from_where_they_ended(archive: ImportedStore, state: State) -> None:
    session, other = talk("one", "a", "b"), talk("two", "x", "y")
    index = {KEY: {"sessionId": "one"}, SUBKEY: {"sessionId": "two", "spawnedBy": KEY}}
    state.files(index, session, other)
    archive.take(IMPORTER, list(IMPORTER.find(state.root)))
    size = len(session.text())

    session.user("c")
    state.files(index, session, other)
    report = archive.take(IMPORTER, list(IMPORTER.find(state.agent / "sessions" / "one.jsonl")))

    assert report.bytes == len(session.text()) - size
    assert archive.texts("openclaw", "one") == ["a", "b", "c"]
    assert archive.session("openclaw", "two").lineage is Lineage.SUBAGENT
    archive.check()


def test_a_transcript_that_was_put_aside_is_found(state: State) -> None:
    session = talk("gone", "a", "b")
    path = state.agent / "sessions" / "gone.jsonl.deleted.2026-02-02T20-29-47.344Z"
    path.write_text(session.text())

    assert [unit.hint["id"] for unit in IMPORTER.find(state.root)] == ["gone"]
    assert len(read_all(IMPORTER, state.root)) > 2


def test_a_missing_archive_is_reported(archive: ImportedStore, state: State) -> None:
    filled(state)
    (state.agent / "sessions" / "cold" / ("a" * 64 + ".jsonl.zst")).unlink()

    report = archive.take(IMPORTER, list(IMPORTER.find(state.root)))

    assert (report.added, report.skipped) == (4, 1)
    assert "not there" in report.faults[0].why


def test_damage_is_survived(state: State, tmp_path: Path) -> None:
    filled(state)
    state.files({KEY: {"sessionId": "old", "label": "Old talk"}}, talk("old", "a", "b"))

    rubbish.survives(IMPORTER, state.root, tmp_path)


def test_it_is_recognised(state: State) -> None:
    filled(state)
    state.files({}, talk("old", "a", "b"))

    assert IMPORTER.recognises(state.path)
    assert IMPORTER.recognises(state.agent / "sessions" / "old.jsonl")
    assert IMPORTER.recognises(state.agent / "sessions" / "cold" / ("a" * 64 + ".jsonl.zst"))
    assert not IMPORTER.recognises(state.agent / "sessions" / "sessions.json")
