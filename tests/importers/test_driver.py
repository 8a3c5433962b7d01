"""What holds for every importer, shown with one that yields a test's events."""

import errno
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sessionary.errors import BadInput
from sessionary.formats import parts
from sessionary.importers.base import driver, files, session_merger
from sessionary.importers.base.driver import WORDLESS
from sessionary.importers.base.events import (
    Branch,
    Checkpoint,
    Compacted,
    Event,
    Facts,
    HeldBack,
    Importer,
    MessageEvent,
    Resume,
    Retracted,
    SessionBegin,
    SessionEnd,
    Skipped,
    SourceRewritten,
    Unit,
)
from sessionary.model import transcript
from sessionary.model.message import Compaction
from sessionary.model.session import Kind, Lineage
from sessionary.store.database import Tx
from sessionary.store.tables import transfer
from sessionary.testing.importer_world import ImportedStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
_ticks = itertools.count()


class Scripted(Importer):
    """Yields the events that a test has set; counts how it was called."""

    name = "scripted"
    title = "Scripted"

    def __init__(self) -> None:
        self.events: Iterable[Event] = []
        # Raised once, when it is asked to read on.
        self.refusal: Exception | None = None
        self.resumes: list[Resume | None] = []

    def recognises(self, path: Path) -> bool:
        return False

    def find(self, place: Path) -> Iterator[Unit]:
        yield Unit(str(place), place, files.stamp_of(place), files.size_of(place))

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        self.resumes.append(resume)
        if resume is not None and self.refusal is not None:
            raise self.refusal
        for event in self.events:
            if isinstance(event, Broken):
                raise BadInput("it is broken")
            if isinstance(event, Lost):
                raise OSError(errno.EIO, "Input/output error")
            yield event


class Broken(SessionEnd):
    """Where the source ends in rubbish."""


class Lost(SessionEnd):
    """Where the disk can be read no further."""


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    return touched(tmp_path / "source")


def touched(path: Path, more: bytes = b"x") -> Unit:
    """The unit after its tool wrote something."""
    with path.open("ab") as file:
        file.write(more)
    return Unit(str(path), path, files.stamp_of(path), path.stat().st_size)


def message_event(
    words: str, id: str | None = None, role: str = "user", **more: object
) -> MessageEvent:
    at = NOON + timedelta(seconds=next(_ticks))
    return MessageEvent(role=role, parts=[parts.text(words)], at=at, id=id or words, **more)  # type: ignore[arg-type]


def test_the_messages_become_a_session_that_people_can_read(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        Facts(fields={"title": "A talk"}),
        message_event("hello"),
        message_event("hi", role="assistant", model="m-1"),
    ]

    report = archive.take(scripted, [unit])

    head = archive.session("scripted", "s1")
    assert (report.added, report.messages) == (1, 2)
    assert archive.texts("scripted", "s1") == ["hello", "hi"]
    assert (head.title, head.kind, head.read_only, head.model) == (
        "A talk",
        Kind.IMPORT,
        True,
        "m-1",
    )
    assert (head.message_count, head.preview) == (2, "hello")
    archive.check()


def test_the_same_again_changes_nothing(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        message_event("b", role="assistant"),
    ]
    archive.take(scripted, [unit])
    before = archive.everything()

    unread = archive.take(scripted, [unit])
    again = archive.take(scripted, [touched(unit.path)])

    assert unread.unchanged_units == 1
    assert (again.added, again.extended, again.unchanged, again.messages) == (0, 0, 1, 0)
    assert archive.everything() == before


def test_what_comes_later_is_added_behind(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        message_event("b", role="assistant"),
    ]
    archive.take(scripted, [unit])

    scripted.events = [*scripted.events, message_event("c")]
    report = archive.take(scripted, [touched(unit.path)])

    assert (report.extended, report.messages) == (1, 1)
    assert archive.texts("scripted", "s1") == ["a", "b", "c"]
    archive.check()


def test_imported_history_arrives_read(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        message_event("b", role="assistant"),
    ]

    archive.take(scripted, [unit])

    head = archive.session("scripted", "s1")
    assert (head.read_through, head.unread) == (head.last_seq, False)


def test_old_messages_that_a_later_import_adds_arrive_read(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        message_event("b", role="assistant"),
    ]
    archive.take(scripted, [unit])

    scripted.events = [*scripted.events, message_event("c"), message_event("d", role="assistant")]
    archive.take(scripted, [touched(unit.path)])

    head = archive.session("scripted", "s1")
    assert (head.last_seq, head.unread) == (4, False)


def test_what_a_conversation_that_goes_on_says_since_its_import_is_unread(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        message_event("b", role="assistant"),
    ]
    archive.take(scripted, [unit])

    fresh = MessageEvent(role="assistant", parts=[parts.text("d")], at=datetime.now(UTC), id="d")
    scripted.events = [*scripted.events, message_event("c"), fresh]
    archive.take(scripted, [touched(unit.path)])

    head = archive.session("scripted", "s1")
    assert (head.read_through, head.unread) == (2, True)


def test_a_file_that_grew_is_read_from_where_it_ended(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        Checkpoint(place=unit.size, note={"n": 1}),
    ]
    archive.take(scripted, [unit])

    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("b"),
        Checkpoint(place=unit.size + 1, note={"n": 2}),
    ]
    archive.take(scripted, [touched(unit.path)])

    assert scripted.resumes == [None, Resume(unit.size, {"n": 1})]
    assert archive.texts("scripted", "s1") == ["a", "b"]
    archive.check()


def test_a_rewritten_file_is_read_from_its_beginning(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        Checkpoint(place=unit.size),
    ]
    archive.take(scripted, [unit])

    unit.path.write_bytes(b"something else")
    archive.take(scripted, [touched(unit.path)])

    assert scripted.resumes == [None, None]
    assert archive.texts("scripted", "s1") == ["a"]


def test_a_place_that_no_longer_fits_its_session_is_not_trusted(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        Checkpoint(place=unit.size),
    ]
    archive.take(scripted, [unit])

    scripted.events = [
        SessionBegin(native_id="s2"),
        message_event("b"),
        Checkpoint(place=unit.size + 1),
    ]
    archive.take(scripted, [touched(unit.path)])

    assert [resume is None for resume in scripted.resumes] == [True, False, True]
    assert archive.texts("scripted", "s2") == ["b"]


def test_a_message_that_changed_is_retracted_and_appended_again(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        message_event("half", id="b"),
        message_event("c"),
    ]
    archive.take(scripted, [unit])

    scripted.events = list(scripted.events)
    scripted.events[2] = message_event("half and whole", id="b")
    archive.take(scripted, [touched(unit.path)])
    archive.take(scripted, [touched(unit.path)])

    assert archive.texts("scripted", "s1") == ["a", "half and whole", "c"]
    assert len(archive.log("scripted", "s1")) == 3 + 1 + 2
    archive.check()


def test_what_a_tool_forgets_stays_here(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    whole = [message_event("a"), message_event("b"), message_event("c"), message_event("d")]
    scripted.events = [SessionBegin(native_id="s1"), *whole]
    archive.take(scripted, [unit])

    scripted.events = [SessionBegin(native_id="s1"), *whole[2:], message_event("e")]
    archive.take(scripted, [touched(unit.path)])

    assert archive.texts("scripted", "s1") == ["a", "b", "c", "d", "e"]
    archive.check()


def test_an_answer_to_an_earlier_message_begins_a_branch(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a", parent=None),
        message_event("b", parent="a"),
        message_event("c", parent="b"),
        message_event("x", parent="a"),
        message_event("y", parent="x"),
    ]
    archive.take(scripted, [unit])
    before = archive.everything()

    archive.take(scripted, [touched(unit.path)])

    assert archive.texts("scripted", "s1") == ["a", "x", "y"]
    assert archive.everything() == before
    archive.check()


def test_a_branch_can_be_begun_in_a_later_reading(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a", parent=None),
        message_event("b", parent="a"),
        Checkpoint(place=unit.size),
    ]
    archive.take(scripted, [unit])

    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("x", parent="a"),
        Checkpoint(place=unit.size + 1),
    ]
    archive.take(scripted, [touched(unit.path)])

    assert archive.texts("scripted", "s1") == ["a", "x"]
    archive.check()


def test_a_tree_becomes_one_log_whose_current_way_is_read(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    a, b, c, x = message_event("a"), message_event("b"), message_event("c"), message_event("x")
    scripted.events = [
        SessionBegin(native_id="s1"),
        Branch(items=[a, b, c], is_current=False),
        Branch(items=[a, x], is_current=True),
    ]
    archive.take(scripted, [unit])
    before = archive.everything()
    archive.take(scripted, [touched(unit.path)])
    assert archive.everything() == before
    assert archive.texts("scripted", "s1") == ["a", "x"]

    scripted.events = [
        SessionBegin(native_id="s1"),
        Branch(items=[a, x], is_current=False),
        Branch(items=[a, b, c, message_event("d")], is_current=True),
    ]
    archive.take(scripted, [touched(unit.path)])

    assert archive.texts("scripted", "s1") == ["a", "b", "c", "d"]
    archive.check()


def test_a_fork_shares_what_it_has_in_common_with_its_parent(
    scripted: Scripted, archive: ImportedStore, unit: Unit, tmp_path: Path
) -> None:
    a, b, c = message_event("a"), message_event("b"), message_event("c")
    scripted.events = [SessionBegin(native_id="s1"), a, b, c]
    archive.take(scripted, [unit])

    scripted.events = [
        SessionBegin(native_id="s2", parent="s1", lineage=Lineage.FORK),
        a,
        b,
        message_event("z"),
    ]
    other = touched(tmp_path / "other")
    archive.take(scripted, [other])
    again = archive.take(scripted, [touched(other.path)])

    head = archive.session("scripted", "s2")
    assert archive.texts("scripted", "s2") == ["a", "b", "z"]
    assert (head.parent_id, head.base_seq) == (archive.session("scripted", "s1").id, 2)
    assert again.unchanged == 1
    archive.check()


def test_a_session_that_begins_like_another_is_its_fork(
    scripted: Scripted, archive: ImportedStore, unit: Unit, tmp_path: Path
) -> None:
    a, b = message_event("a"), message_event("b")
    scripted.events = [SessionBegin(native_id="s1", aliases=["first a"]), a, b]
    archive.take(scripted, [unit])

    scripted.events = [SessionBegin(native_id="s2", aliases=["first a"]), a, message_event("z")]
    archive.take(scripted, [touched(tmp_path / "other")])

    assert archive.session("scripted", "s2").lineage is Lineage.FORK
    assert archive.texts("scripted", "s2") == ["a", "z"]
    archive.check()


def test_a_summary_replaces_what_came_before_for_the_model_only(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        message_event("b", role="assistant"),
        Compacted(summary="a and b", at=NOON),
        message_event("c"),
    ]
    archive.take(scripted, [unit])
    before = archive.everything()
    archive.take(scripted, [touched(unit.path)])

    bodies = [entry.body for entry in archive.log("scripted", "s1")]
    assert Compaction("a and b", 2) in bodies
    assert archive.texts("scripted", "s1") == ["a", "b", "c"]
    assert archive.everything() == before
    archive.check()


def test_what_was_taken_back_there_is_taken_back_here(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        message_event("b"),
        Retracted(after="a", at=NOON),
        message_event("c"),
    ]
    archive.take(scripted, [unit])
    before = archive.everything()
    archive.take(scripted, [touched(unit.path)])

    assert archive.texts("scripted", "s1") == ["a", "c"]
    assert archive.everything() == before
    archive.check()


def test_what_is_taken_back_later_is_taken_back_then(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        message_event("b"),
        message_event("c"),
    ]
    archive.take(scripted, [unit])

    scripted.events.append(Retracted(after="a", at=NOON))
    archive.take(scripted, [touched(unit.path)])
    before = archive.everything()
    archive.take(scripted, [touched(unit.path)])
    assert archive.texts("scripted", "s1") == ["a"]
    assert archive.everything() == before

    scripted.events.append(message_event("d"))
    archive.take(scripted, [touched(unit.path)])
    before = archive.everything()
    archive.take(scripted, [touched(unit.path)])
    assert archive.texts("scripted", "s1") == ["a", "d"]
    assert archive.everything() == before
    archive.check()


def test_what_a_tool_keeps_in_a_profile_stays_apart(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [SessionBegin(native_id="s1"), message_event("a")]
    archive.take(scripted, [unit])
    scripted.events = [SessionBegin(native_id="s2"), message_event("b")]
    report = archive.take(scripted, [replace(unit, profile="work")])

    assert sorted(head.profile for head in archive.heads()) == ["main", "work"]
    assert [note for note in report.notes if "work" in note] == report.notes
    archive.check()


def test_a_large_session_is_whole_before_people_see_it(
    scripted: Scripted, archive: ImportedStore, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_merger, "MAX_BATCH_ROWS", 100)
    many = [message_event(f"line {n}") for n in range(250)]
    marked = [
        each for n, one in enumerate(many) for each in (one, Checkpoint(place=min(n, unit.size)))
    ]
    scripted.events = [SessionBegin(native_id="s1"), *marked, Broken()]
    broken = archive.take(scripted, [unit])
    seen, written = archive.count(), archive.store.read(_entries_there).result()

    scripted.events = [SessionBegin(native_id="s1"), *marked]
    report = archive.take(scripted, [touched(unit.path)])

    assert (broken.skipped, seen) == (1, 0)
    assert written == 200
    assert report.skipped == 0
    assert archive.texts("scripted", "s1") == [f"line {n}" for n in range(250)]
    assert archive.count() == 1
    archive.check()


def test_what_could_not_be_read_is_reported_and_marked(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        Skipped(where="line 2", why="not JSON"),
        message_event("b"),
    ]
    report = archive.take(scripted, [unit])

    assert [(fault.where, fault.why) for fault in report.faults] == [("line 2", "not JSON")]
    assert archive.texts("scripted", "s1") == ["a", "b"]


def test_what_could_not_be_read_earlier_stays_marked(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        Skipped(where="line 2", why="not JSON"),
        Checkpoint(place=unit.size),
    ]
    archive.take(scripted, [unit])

    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("b"),
        Skipped(where="line 4", why="not JSON"),
        Checkpoint(place=unit.size + 1),
    ]
    archive.take(scripted, [touched(unit.path)])

    assert archive.extra("scripted", "s1")["import"]["skipped"] == 2


def test_what_turns_out_to_have_grown_is_read_from_its_beginning(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a"),
        Checkpoint(place=unit.size),
    ]
    archive.take(scripted, [unit])

    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a and more", id="a"),
        Checkpoint(place=unit.size + 1),
    ]
    scripted.refusal = SourceRewritten()
    archive.take(scripted, [touched(unit.path)])

    assert [resume is None for resume in scripted.resumes] == [True, False, True]
    assert archive.texts("scripted", "s1") == ["a and more"]
    archive.check()


def test_who_answers_to_what_was_taken_back_makes_its_way_the_current_one(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("a", parent=None),
        message_event("b", parent="a"),
        message_event("x", parent="a"),
        message_event("c", parent="b"),
    ]
    archive.take(scripted, [unit])
    before = archive.everything()

    archive.take(scripted, [touched(unit.path)])

    assert archive.texts("scripted", "s1") == ["a", "b", "c"]
    assert archive.everything() == before


def test_a_large_source_without_marks_is_written_in_pieces(
    scripted: Scripted, archive: ImportedStore, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_merger, "MAX_BATCH_ROWS", 100)

    def seen() -> Iterator[Event]:
        yield SessionBegin(native_id="s1")
        for number in range(250):
            yield message_event(f"line {number}")
        rows = archive.store.read(_entries_there).result()
        assert rows == 200

    scripted.events = seen()
    archive.take(scripted, [unit])

    assert archive.texts("scripted", "s1") == [f"line {n}" for n in range(250)]
    archive.check()


def _entries_there(tx: Tx) -> int:
    row = tx.one("find_imported", profile="main", tool="scripted", native_id="s1")
    assert row is not None
    return transfer.last_entry(tx, row[0], base_seq=0)


def test_a_session_that_began_after_its_last_word_breaks_nothing(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1", began_at=NOON + timedelta(days=9)),
        message_event("a"),
    ]

    archive.take(scripted, [unit])

    assert archive.texts("scripted", "s1") == ["a"]
    archive.check()


def test_a_session_without_messages_does_not_exist(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [SessionBegin(native_id="s1"), Facts(fields={"title": "Nothing"})]

    report = archive.take(scripted, [unit])

    assert (report.added, archive.count()) == (0, 0)


def test_another_systems_orders_are_read_by_people_only(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    """S17: a system message of another tool is shown, and no model is given it."""
    scripted.events = [
        SessionBegin(native_id="s1"),
        message_event("obey me", role="system"),
        message_event("hello"),
        message_event("hi", role="assistant"),
    ]
    archive.take(scripted, [unit])

    roles = [chat["role"] for chat in transcript.context(archive.log("scripted", "s1"))]

    assert archive.texts("scripted", "s1") == ["obey me", "hello", "hi"]
    assert roles == ["user", "assistant"]


def test_a_name_that_no_column_can_hold_is_made_to_fit(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        Facts(fields={"model": "m\ud800"}),
        message_event("a"),
    ]
    archive.take(scripted, [unit])

    scripted.events += [Facts(fields={"model": "n\ud800\x00"}), message_event("b")]
    archive.take(scripted, [touched(unit.path)])

    assert archive.session("scripted", "s1").model == "n\ufffd\ufffd"
    archive.check()


def test_a_disk_that_cannot_be_read_holds_up_no_other_file(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [SessionBegin(native_id="s1"), message_event("one"), Lost()]

    report = archive.take(scripted, [unit, replace(unit, name="another")])

    assert (report.units, report.skipped) == (2, 2)
    assert report.faults[0].why == "it cannot be read (Input/output error); it was left alone"
    archive.check()


def test_a_session_without_messages_is_skipped_and_named(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="empty"),
        message_event("Tool v1.0", role="system"),
        SessionEnd(),
        SessionBegin(native_id="full"),
        message_event("hello"),
        SessionEnd(),
    ]

    report = archive.take(scripted, [unit])

    assert [head.preview for head in archive.heads()] == ["hello"]
    assert (report.added, report.wordless) == (1, ["empty"])
    assert report.left_out == {WORDLESS: 1}
    assert (report.units, report.imported_units, report.omissions) == (1, 1, {})


def test_a_unit_without_messages_is_skipped_until_it_has_one(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    start: list[Event] = [
        SessionBegin(native_id="s1"),
        message_event("Tool v1.0", role="system"),
        Checkpoint(place=1),
    ]
    scripted.events = start
    first = archive.take(scripted, [unit])
    again = archive.take(scripted, [unit])

    scripted.events = [*start, message_event("hello")]
    later = archive.take(scripted, [touched(unit.path)])

    for report in (first, again):
        assert report.omissions == {unit.name: "it has no question and no answer"}
        assert (report.units, report.imported_units, report.unchanged_units) == (1, 0, 0)
    assert scripted.resumes == [None, None]
    assert (later.added, later.imported_units, later.omissions) == (1, 1, {})
    assert archive.texts("scripted", "s1") == ["Tool v1.0", "hello"]


def test_every_unit_is_imported_unchanged_or_left_out_with_a_reason(
    scripted: Scripted, archive: ImportedStore, tmp_path: Path
) -> None:
    full, empty, broken, strange = (touched(tmp_path / name) for name in "abcd")
    received: dict[str, list[Event]] = {
        full.name: [SessionBegin(native_id="s1"), message_event("hello")],
        empty.name: [],
        broken.name: [Broken()],
        strange.name: [SessionBegin(native_id="s2"), message_event("junk")],
    }
    scripted.read = lambda unit, resume: told_by(received[unit.name])  # type: ignore[method-assign]
    units = [full, empty, broken, strange]

    def check(unit: Unit) -> str | None:
        return "it is a record of Other" if unit == strange else None

    target = archive.target(scripted)
    reports = [
        driver.preview(target, scripted, units, check=check),
        driver.run(target, scripted, units, check=check),
    ]

    for report in reports:
        assert (report.units, report.imported_units, report.unchanged_units) == (4, 1, 0)
        assert report.omissions == {
            empty.name: "nothing in it is part of a conversation",
            broken.name: "it is broken",
            strange.name: "it is a record of Other",
        }
        assert {fault.unit for fault in report.faults} == {broken.name, strange.name}
    assert [head.preview for head in archive.heads()] == ["hello"]


def told_by(events: list[Event]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, Broken):
            raise BadInput("it is broken")
        yield event


@pytest.mark.parametrize("title", ["New session - 2026-03-01T12:00:00Z", "/mode", "Untitled", None])
def test_a_title_that_says_nothing_is_replaced_by_the_first_words(
    title: str | None, scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    fields = {} if title is None else {"title": title}
    start: list[Event] = [
        SessionBegin(native_id="s1"),
        Facts(fields=fields),
        message_event("/clear"),
        message_event("<command-name>/mode</command-name>"),
        message_event("Why does the bread not rise?"),
        message_event("Too cold.", role="assistant"),
        Checkpoint(place=1),
    ]
    scripted.events = start
    archive.take(scripted, [unit])
    first = archive.session("scripted", "s1").title

    scripted.events = [
        SessionBegin(native_id="s1"),
        Facts(fields=fields),
        message_event("And now?"),
        Checkpoint(place=2),
    ]
    archive.take(scripted, [touched(unit.path)])

    assert scripted.resumes[-1] is not None
    assert first == archive.session("scripted", "s1").title == "Why does the bread not rise?"


def test_a_title_that_says_something_stays(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    scripted.events = [
        SessionBegin(native_id="s1"),
        Facts(fields={"title": "/etc/hosts is broken"}),
        message_event("hello"),
    ]

    archive.take(scripted, [unit])

    assert archive.session("scripted", "s1").title == "/etc/hosts is broken"


def test_answers_that_may_still_grow_are_counted_with_the_time_when_they_are_whole(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    later = NOON + timedelta(minutes=2)
    scripted.events = [
        *(SessionBegin(native_id="s1"), message_event("a"), HeldBack(until=later), SessionEnd()),
        *(SessionBegin(native_id="s2"), message_event("b"), HeldBack(until=NOON), SessionEnd()),
    ]

    report = archive.take(scripted, [unit])

    assert (report.held_back, report.held_back_until) == (2, later)


def test_what_brought_nothing_is_read_again_by_a_later_version(
    scripted: Scripted, archive: ImportedStore, unit: Unit
) -> None:
    archive.take(scripted, [unit])
    scripted.events = [SessionBegin(native_id="s1"), message_event("hello")]
    again = archive.take(scripted, [unit])

    newer = replace(archive.target(scripted), version="99.0")
    later = driver.run(newer, scripted, [unit])

    assert (again.added, len(again.omissions)) == (0, 1)
    assert (later.added, later.omissions) == (1, {})
