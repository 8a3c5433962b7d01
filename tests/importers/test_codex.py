"""Codex's threads come over as they were, and each call is paid once."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard

from sessionary.importers.base.events import Event, Resume, Unit, UserEnvironment
from sessionary.importers.codex import Codex
from sessionary.model.message import Attachment, Compaction, Reasoning, ToolCall, ToolResult
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import CostStatus
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.fakes import FakeClock
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_codex import LONG_AGO, MODEL, NOON, Rollout

TOOL = "codex"
PIXEL = b"\x89PNG\r\n\x1a\n not much of a picture"
PICTURE = "data:image/png;base64," + base64.b64encode(PIXEL).decode()


class Observed(Codex):
    """Notes from where it was asked to read."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.resumes: list[Resume | None] = []

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        self.resumes.append(resume)
        return super().read(unit, resume)


@pytest.fixture
def importer() -> Observed:
    return Observed(FakeClock(datetime(2026, 2, 10, tzinfo=UTC)))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".codex"


def a_morning(rollout: Rollout) -> None:
    """A thread with most of what happens in one."""
    context = [
        {"type": "input_text", "text": "<environment_context>\nbash\n</environment_context>"}
    ]
    rollout.item("message", role="user", content=context)
    rollout.item("message", role="developer", content=[{"type": "input_text", "text": "Be kind."}])
    rollout.turn("What grows in bed 3?", PICTURE)
    rollout.event("token_count", info=None, rate_limits={})
    rollout.think("Look first.")
    rollout.call("c1", "shell", command=["cat", "beds.txt"])
    rollout.output("c1", "bed 3: leeks")
    rollout.count(5_000, 4_000, 120, 64, repeats=2)
    rollout.answer("Leeks.")
    rollout.count(5_300, 5_000, 40, 0)
    rollout.event("task_complete", last_agent_message="Leeks.")


def take(archive: ImportedStore, importer: Codex, home: Path) -> None:
    archive.take(importer, list(importer.find(home)))


def test_a_thread_comes_over_as_it_was(
    archive: ImportedStore, importer: Observed, home: Path
) -> None:
    rollout = Rollout(home)
    a_morning(rollout)
    rollout.write()

    report = archive.take(importer, list(importer.find(home)))

    read = archive.messages(TOOL, rollout.id)
    assert [(message.role, message.text) for message in read] == [
        ("system", "<environment_context>\nbash\n</environment_context>"),
        ("system", "Be kind."),
        ("user", "What grows in bed 3?"),
        ("assistant", ""),
        ("tool", ""),
        ("assistant", "Leeks."),
    ]
    assert isinstance(read[2].parts[1], Attachment)
    assert read[2].parts[1].blob == hash_of(PIXEL)
    assert read[3].parts == (
        Reasoning("Look first.", {"encrypted_content": "secret=="}),
        ToolCall("c1", "shell", {"command": ["cat", "beds.txt"]}),
    )
    assert read[4].parts == (ToolResult("c1", "bed 3: leeks"),)
    head = archive.session(TOOL, rollout.id)
    assert (head.title, head.model) == ("What grows in bed 3?", MODEL)
    assert (report.added, report.skipped) == (1, 0)
    archive.check()


def test_reading_it_again_changes_nothing(
    archive: ImportedStore, importer: Observed, home: Path
) -> None:
    rollout = Rollout(home)
    a_morning(rollout)
    rollout.write()
    take(archive, importer, home)
    before = archive.everything()

    again = archive.take(importer, list(importer.find(home)))
    unit = next(importer.find(home))
    unplaced = archive.take(importer, [Unit("another name", unit.path, unit.stamp, unit.size)])

    assert again.unchanged_units == 1
    assert (unplaced.messages, unplaced.unchanged) == (0, 1)
    assert archive.everything() == before


def test_only_what_was_added_is_read(
    archive: ImportedStore, importer: Observed, home: Path
) -> None:
    rollout = Rollout(home)
    a_morning(rollout)
    size = rollout.write().stat().st_size
    take(archive, importer, home)
    rollout.turn("And bed 4?")
    rollout.answer("Kale.")
    rollout.count(6_000, 5_300, 30, 0)
    rollout.write()

    report = archive.take(importer, list(importer.find(home)))

    resume = importer.resumes[1]
    assert resume is not None
    assert resume.place == size
    assert report.messages == 2
    assert archive.texts(TOOL, rollout.id)[-3:] == ["Leeks.", "And bed 4?", "Kale."]
    assert archive.session(TOOL, rollout.id).usage.calls == 3
    archive.check()


@pytest.mark.parametrize("is_named", [True, False])
def test_the_ledger_is_exact_with_copies_and_agents(
    archive: ImportedStore, importer: Observed, home: Path, is_named: bool
) -> None:
    rollout = Rollout(home, is_named=is_named)
    a_morning(rollout)
    for number in range(4):
        rollout.turn(f"Question {number}")
        rollout.think("Hm.")
        rollout.call(f"t{number}", "shell", n=number)
        rollout.output(f"t{number}", "ok")
        rollout.count(9_000 + number, 8_111, 313 + number, 17, repeats=1 + number % 2)
        rollout.answer(f"Answer {number}")
        rollout.count(9_500 + number, 9_001, 50, 0)
    rollout.write()
    fork = rollout.copy(home, forked_from_id=rollout.id)
    fork.turn("Go another way.")
    fork.answer("Gone.")
    fork.count(10_000, 9_900, 77, 5)
    fork.write()
    spawn = {"parent_thread_id": rollout.id, "depth": 1, "agent_role": "explorer"}
    agent = rollout.copy(home, seconds=900, source={"subagent": {"thread_spawn": spawn}})
    agent.turn("Look in bed 5.")
    agent.answer("Beans.")
    agent.count(4_321, 1_234, 99, 9)
    agent.write()

    take(archive, importer, home)

    used = [head.usage for head in archive.heads()]
    calls = rollout.ledger.calls
    assert len(calls) == 12
    assert sum(each.calls for each in used) == 12
    assert sum(each.input_tokens for each in used) == sum(call[0] - call[1] for call in calls)
    assert sum(each.cache_read_tokens for each in used) == sum(call[1] for call in calls)
    assert sum(each.output_tokens for each in used) == sum(call[2] for call in calls)
    assert sum(each.reasoning_tokens for each in used) == sum(call[3] for call in calls)
    assert sum(each.cost_microusd or 0 for each in used) == rollout.ledger.microdollars
    head, child = archive.session(TOOL, fork.id), archive.session(TOOL, agent.id)
    parent = archive.session(TOOL, rollout.id)
    assert (head.parent_id, head.lineage, head.base_seq) == (parent.id, Lineage.FORK, 22)
    assert archive.texts(TOOL, fork.id)[-2:] == ["Go another way.", "Gone."]
    assert (child.kind, child.parent_id, child.title) == (Kind.SUBAGENT, parent.id, "explorer")
    assert archive.texts(TOOL, agent.id) == ["Look in bed 5.", "Beans."]
    archive.check()


def test_turns_that_were_rolled_back_are_taken_back(
    archive: ImportedStore, importer: Observed, home: Path
) -> None:
    rollout = Rollout(home)
    for number in range(3):
        rollout.turn(f"Question {number}")
        rollout.answer(f"Answer {number}")
    rollout.event("thread_rolled_back", num_turns=2)
    rollout.turn("Question 9")
    rollout.answer("Answer 9")
    rollout.write()

    take(archive, importer, home)

    texts = ["Question 0", "Answer 0", "Question 9", "Answer 9"]
    assert archive.texts(TOOL, rollout.id) == texts
    archive.check()


def test_a_summary_replaces_the_past_for_the_model_only(
    archive: ImportedStore, importer: Observed, home: Path
) -> None:
    rollout = Rollout(home)
    a_morning(rollout)
    rollout.line("compacted", message="They spoke of bed 3.", replacement_history=[])
    rollout.event("context_compacted")
    rollout.turn("And bed 4?")
    rollout.event("error", message="usage limit reached")
    rollout.write()

    take(archive, importer, home)

    bodies = [entry.body for entry in archive.log(TOOL, rollout.id)]
    assert Compaction("They spoke of bed 3.", 6) in bodies
    assert archive.texts(TOOL, rollout.id)[-2:] == ["And bed 4?", "error: usage limit reached"]
    archive.check()


def test_an_answer_that_is_being_written_waits_until_it_is_whole(
    archive: ImportedStore, importer: Observed, home: Path
) -> None:
    now = importer.clock.now().timestamp()
    rollout = Rollout(home)
    rollout.turn("What grows?")
    rollout.think("Hm.")
    rollout.write(at=now - 10)
    take(archive, importer, home)
    assert archive.texts(TOOL, rollout.id) == ["What grows?"]

    rollout.answer("Leeks.")
    rollout.write(at=now - 5)
    importer.clock.tick(600)
    take(archive, importer, home)
    assert len(archive.messages(TOOL, rollout.id)) == 2

    rollout.call("c1", "shell", command="dig")
    rollout.write()
    take(archive, importer, home)
    assert [resume is None for resume in importer.resumes] == [True, False, False, True]
    assert len(archive.messages(TOOL, rollout.id)) == 2
    assert len(archive.messages(TOOL, rollout.id)[1].parts) == 3
    archive.check()


def test_what_was_packed_or_archived_is_the_same_thread(
    archive: ImportedStore, importer: Observed, home: Path
) -> None:
    rollout = Rollout(home)
    a_morning(rollout)
    plain = rollout.write()
    take(archive, importer, home)
    before = archive.everything()
    packed = plain.with_name(f"{plain.name}.zst")
    packed.write_bytes(zstandard.compress(plain.read_bytes()))
    plain.unlink()
    take(archive, importer, home)
    assert archive.everything() == before

    other = Rollout(home, at=NOON.replace(hour=15), folder="archived_sessions")
    other.turn("Old things.")
    other.write()
    take(archive, importer, home)
    assert archive.session(TOOL, other.id).archived
    archive.check()


def test_older_releases_are_read(archive: ImportedStore, importer: Observed, home: Path) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]}
    answered = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello."}],
    }
    first = {"id": "11111111-2222-4333-8444-555555555555", "timestamp": "2025-06-01T10:00:00Z"}
    bare = home / "sessions" / "2025" / f"rollout-2025-06-01T10-00-00-{first['id']}.jsonl"
    bare.parent.mkdir(parents=True)
    lines = [first, {"record_type": "state"}, item, answered]
    bare.write_text("".join(json.dumps(line) + "\n" for line in lines))
    session = {"id": "21111111-2222-4333-8444-555555555555", "instructions": "Be kind."}
    document = home / "sessions" / "rollout-2025-05-01-oldest.json"
    document.write_text(json.dumps({"session": session, "items": [item, answered]}))

    take(archive, importer, home)

    assert archive.texts(TOOL, first["id"]) == ["Hi.", "Hello."]
    assert archive.texts(TOOL, session["id"]) == ["Hi.", "Hello."]
    archive.check()


def test_threads_have_the_names_that_were_given_to_them(
    archive: ImportedStore, importer: Observed, home: Path
) -> None:
    rollout = Rollout(home)
    rollout.turn("What grows?")
    rollout.write()
    index = home / "session_index.jsonl"

    def title() -> str | None:
        take(archive, importer, home)
        return archive.session(TOOL, rollout.id).title

    assert title() == "What grows?"
    index.write_text(json.dumps({"id": rollout.id, "thread_name": "The garden"}) + "\n")
    assert title() == "The garden"
    rollout.event("thread_name_updated", thread_id=rollout.id, thread_name="My garden")
    rollout.write()
    assert title() == "My garden"


def test_damage_is_survived(importer: Observed, home: Path, tmp_path: Path) -> None:
    rollout = Rollout(home, forked_from_id="x", source={"subagent": "review"})
    a_morning(rollout)
    rollout.line("compacted", message="A summary")
    rollout.event("thread_rolled_back", num_turns=1)
    rollout.write()
    packed = rollout.path.with_name("rollout-2026-02-05-packed.jsonl.zst")
    packed.write_bytes(zstandard.compress(rollout.path.read_bytes()))
    document = {"session": {"id": "s", "instructions": ""}, "items": rollout.lines}
    (rollout.path.parent / "rollout-2025-01-01-old.json").write_text(json.dumps(document))

    rubbish.survives(importer, home, tmp_path, times=150)


def test_a_bomb_does_not_go_off(archive: ImportedStore, importer: Observed, home: Path) -> None:
    home.mkdir(parents=True)
    bomb = home / "rollout-2026-02-03-bomb.jsonl.zst"
    bomb.write_bytes(zstandard.compress(b"\x00" * (200 * 1024 * 1024)))

    report = archive.take(importer, list(importer.find(home)))

    assert report.added == 0


def test_places_and_files_are_recognised(importer: Observed, home: Path, tmp_path: Path) -> None:
    rollout = Rollout(home)
    rollout.turn("What grows?")
    rollout.write(at=LONG_AGO)
    (tmp_path / "other.jsonl").write_text('{"type":"user","uuid":"x","sessionId":"y"}\n')

    assert importer.recognises(rollout.path)
    assert not importer.recognises(tmp_path / "other.jsonl")
    assert importer.places(UserEnvironment(home.parent, {})) == [home]
    assert importer.places(UserEnvironment(home.parent, {"CODEX_HOME": "/x"})) == [Path("/x")]


def test_a_provider_of_ones_own_name_does_not_hide_the_price_of_a_known_model(
    archive: ImportedStore, importer: Observed, home: Path
) -> None:
    rollout = Rollout(home, model_provider="codex")
    rollout.turn("What grows in bed 3?")
    rollout.answer("Leeks.")
    rollout.count(9_000, 8_000, 300, 17)
    rollout.write()

    take(archive, importer, home)

    used = archive.session(TOOL, rollout.id).usage
    assert (used.cost_microusd, used.cost_status) == (
        rollout.ledger.microdollars,
        CostStatus.ESTIMATED,
    )
