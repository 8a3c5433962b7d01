"""Claude Code's sessions come over as they were, in however many lines and files they stand."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sessionary.importers.base.events import (
    Checkpoint,
    Event,
    MessageEvent,
    Resume,
    Unit,
    UserEnvironment,
)
from sessionary.importers.claude_code import ClaudeCode
from sessionary.model.message import Attachment, Compaction, Reasoning, Role, ToolCall, ToolResult
from sessionary.model.session import Kind, Lineage
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.fakes import FakeClock
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_claude_code import (
    LONG_AGO,
    OPUS,
    Tape,
    call,
    new_uuid,
    text,
    thinking,
)

TOOL = "claude-code"
PIXEL = b"\x89PNG\r\n\x1a\n not much of a picture"


class Observed(ClaudeCode):
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
    return tmp_path / "home" / ".claude"


@pytest.fixture
def tape(home: Path) -> Tape:
    """A session without messages so far."""
    id = new_uuid()
    return Tape(home / "projects" / "-home-mia-garden" / f"{id}.jsonl", id)


def take(archive: ImportedStore, importer: ClaudeCode, place: Path) -> object:
    return archive.take(importer, list(importer.find(place)))


def picture() -> dict[str, object]:
    data = base64.b64encode(PIXEL).decode()
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }


def a_morning(tape: Tape) -> None:
    """A conversation with most of what happens in one."""
    tape.bare(type="file-history-snapshot", messageId="x", snapshot={}, isSnapshotUpdate=False)
    tape.prompt("Caveat: what follows came from local commands.", isMeta=True)
    tape.prompt(
        "<command-name>/model</command-name>\n<command-message>model</command-message>\n"
        "<command-args>sonnet</command-args>"
    )
    tape.prompt("<local-command-stdout>Set model to sonnet</local-command-stdout>")
    tape.prompt(
        [
            {"type": "text", "text": "<ide_opened_file>beds.txt is open</ide_opened_file>"},
            text("What grows in bed 3?"),
            picture(),
        ]
    )
    tape.line("attachment", attachment={"type": "todo_reminder", "content": []})
    tape.answer(thinking("Look first."), text("Let me look."), call("t1", "Read", path="beds.txt"))
    tape.line("progress", data={"type": "hook_progress"}, chained=False)
    tape.result("t1", [{"type": "text", "text": "bed 3: leeks"}, picture()])
    tape.answer(text("Leeks."), model=OPUS, stop="end_turn", snapshots=True)


def test_a_conversation_comes_over_as_it_was(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    a_morning(tape)
    tape.write()

    report = archive.take(importer, list(importer.find(tape.path)))

    read = archive.messages(TOOL, tape.session_id)
    assert [(message.role, message.text) for message in read] == [
        (Role.SYSTEM, "Caveat: what follows came from local commands."),
        (Role.USER, "/model sonnet"),
        (Role.SYSTEM, "Set model to sonnet"),
        (Role.USER, "What grows in bed 3?"),
        (Role.ASSISTANT, "Let me look."),
        (Role.TOOL, ""),
        (Role.ASSISTANT, "Leeks."),
    ]
    assert read[4].parts[0] == Reasoning("Look first.", {"signature": "sig=="})
    assert read[4].parts[2] == ToolCall("t1", "Read", {"path": "beds.txt"})
    assert read[5].parts[0] == ToolResult("t1", "bed 3: leeks", name="Read")
    shown = [part for part in (*read[3].parts, *read[5].parts) if isinstance(part, Attachment)]
    assert [part.blob for part in shown] == [hash_of(PIXEL), hash_of(PIXEL)]
    assert (report.added, report.skipped) == (1, 0)
    assert report.left_out["attachments: todo_reminder"] == 1
    head = archive.session(TOOL, tape.session_id)
    assert (head.title, head.model, head.kind) == ("What grows in bed 3?", OPUS, Kind.IMPORT)
    archive.check()


def test_reading_it_again_changes_nothing(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    a_morning(tape)
    tape.write()
    take(archive, importer, home)
    before = archive.everything()

    again = archive.take(importer, list(importer.find(home)))
    tape.write(at=LONG_AGO + 1)
    touched = archive.take(importer, list(importer.find(home)))
    other = ClaudeCode(importer.clock)
    unit = next(other.find(tape.path))
    unplaced = archive.take(other, [Unit("another name", unit.path, unit.stamp, unit.size)])

    assert again.unchanged_units == 1
    assert (touched.messages, unplaced.messages, unplaced.unchanged) == (0, 0, 1)
    assert archive.everything() == before


def test_only_what_was_added_is_read(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    a_morning(tape)
    size = tape.write().stat().st_size
    take(archive, importer, home)
    tape.prompt("And bed 4?")
    tape.answer(call("t2", "Read", path="beds.txt"))
    tape.write()
    take(archive, importer, home)
    tape.result("t2", "bed 4: kale")
    tape.answer(text("Kale."))
    tape.write()

    report = archive.take(importer, list(importer.find(home)))

    resume = importer.resumes[1]
    assert importer.resumes[0] is None
    assert resume is not None
    assert resume.place == size
    assert report.messages == 2
    read = archive.messages(TOOL, tape.session_id)
    assert [message.text for message in read][-4:] == ["And bed 4?", "", "", "Kale."]
    assert read[-2].parts[0] == ToolResult("t2", "bed 4: kale", name="Read")
    archive.check()


def test_tools_that_ran_side_by_side_are_no_branches(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    tape.prompt("Look everywhere.")
    first, second = tape.answer(call("a", "Read", n=1), call("b", "Read", n=2))
    result = tape.result("a", "one", parent=first["uuid"])
    aside = tape.line("attachment", parent=result["uuid"], attachment={"type": "hook_success"})
    tape.result("b", "two", parent=second["uuid"])
    tape.last = aside["uuid"]
    tape.answer(text("Done."))
    tape.write()

    archive.take(importer, list(importer.find(tape.path)))

    read = archive.messages(TOOL, tape.session_id)
    results = [part.content for m in read for part in m.parts if isinstance(part, ToolResult)]
    assert [message.role for message in read] == ["user", "assistant", "tool", "tool", "assistant"]
    assert results == ["one", "two"]


def test_the_results_between_the_lines_of_an_answer_come_behind_it(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    tape.prompt("Look everywhere.")
    first, second = tape.answer(call("a", "Read", n=1), call("b", "Read", n=2))
    tape.lines.remove(second)
    tape.result("a", "one", parent=first["uuid"])
    tape.lines.append(second)
    tape.result("b", "two", parent=second["uuid"])
    tape.write()

    archive.take(importer, list(importer.find(tape.path)))

    roles = [message.role for message in archive.messages(TOOL, tape.session_id)]
    assert roles == ["user", "assistant", "tool", "tool"]


def test_a_prompt_that_was_rewritten_begins_a_branch(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    tape.prompt("Plant leeks.")
    tape.answer(text("Planted."))
    turn = tape.last
    tape.prompt("Now water them.")
    tape.answer(text("Watered."))
    tape.write()
    take(archive, importer, home)
    tape.last = turn
    tape.prompt("Now dig them up.")
    tape.answer(text("Dug up."))
    tape.write()

    take(archive, importer, home)

    assert archive.texts(TOOL, tape.session_id) == [
        "Plant leeks.",
        "Planted.",
        "Now dig them up.",
        "Dug up.",
    ]
    assert len(archive.log(TOOL, tape.session_id)) == 7
    archive.check()


def test_a_summary_replaces_the_past_for_the_model_only(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    a_morning(tape)
    tape.compact("They spoke of bed 3.")
    tape.prompt("And bed 4?")
    tape.answer(text("Kale."))
    tape.write()

    archive.take(importer, list(importer.find(tape.path)))

    bodies = [entry.body for entry in archive.log(TOOL, tape.session_id)]
    assert Compaction("They spoke of bed 3.", 7) in bodies
    assert archive.texts(TOOL, tape.session_id)[-3:] == ["Leeks.", "And bed 4?", "Kale."]
    archive.check()


def test_an_answer_that_is_being_written_waits_until_it_is_whole(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    now = importer.clock.now().timestamp()
    tape.prompt("What grows?")
    tape.answer(text("Leeks."), text("Kale."), text("Beans."))
    rest = [tape.lines.pop(), tape.lines.pop()]
    tape.write(at=now - 10)
    take(archive, importer, home)
    assert archive.texts(TOOL, tape.session_id) == ["What grows?"]

    tape.lines += rest[::-1]
    tape.write(at=now - 5)
    take(archive, importer, home)
    assert archive.texts(TOOL, tape.session_id) == ["What grows?"]

    importer.clock.tick(600)
    take(archive, importer, home)
    assert archive.texts(TOOL, tape.session_id) == ["What grows?", "Leeks.\nKale.\nBeans."]
    assert [resume is None for resume in importer.resumes] == [True, False, False]
    assert len(archive.log(TOOL, tape.session_id)) == 2
    archive.check()


def test_an_answer_that_grows_later_is_appended_again_and_counted_once(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    tape.prompt("What grows?")
    tape.answer(text("Leeks."), call("t1", "Read", path="beds.txt"))
    late = tape.lines.pop()
    tape.write()
    take(archive, importer, home)
    tape.lines.append(late)
    tape.write()
    take(archive, importer, home)

    read = archive.messages(TOOL, tape.session_id)
    assert len(read) == 2
    assert read[1].parts[1] == ToolCall("t1", "Read", {"path": "beds.txt"})
    paid = archive.session(TOOL, tape.session_id).usage
    assert (paid.calls, paid.output_tokens) == (1, 50)
    archive.check()


def test_the_ledger_is_exact_however_often_a_call_is_written_down(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    folder = tape.path.parent
    for number in range(5):
        tape.prompt(f"Question {number}")
        tape.answer(
            thinking("Hm."),
            text(f"Answer {number}"),
            call(f"t{number}", "Task", n=number),
            tokens=(7 + number, 311 + number, 20_011, 1_003),
            model=OPUS if number % 2 else "claude-sonnet-4-5-20250929",
            snapshots=number % 3 == 0,
        )
        tape.result(f"t{number}", "ok")
    beside = folder / tape.session_id / "subagents"
    for name in ("a1", "a2"):
        agent = Tape(
            beside / f"agent-{name}.jsonl", tape.session_id, ledger=tape.ledger, agent=name
        )
        agent.prompt(f"You are {name}.")
        agent.answer(text("I"), text("found it."), tokens=(3, 999, 5_000, 77))
        agent.write()
    fork, resumed = new_uuid(), new_uuid()
    for id, renamed in ((fork, False), (resumed, True)):
        copy = tape.copy(folder / f"{id}.jsonl", id, renamed=renamed)
        copy.prompt("Go on.")
        copy.answer(text("Gone on."), tokens=(1, 17, 30_000, 5))
        copy.write(at=LONG_AGO + 60)
    tape.write()

    take(archive, importer, home)

    heads = archive.heads()
    used = [head.usage for head in heads]
    ledger = tape.ledger
    assert len(ledger.calls) == 9
    assert sum(each.calls for each in used) == 9
    assert ledger.tokens == (
        sum(each.input_tokens for each in used),
        sum(each.output_tokens for each in used),
        sum(each.cache_read_tokens for each in used),
        sum(each.cache_write_tokens for each in used),
    )
    assert sum(each.cost_microusd or 0 for each in used) == ledger.microdollars
    assert archive.session(TOOL, fork).parent_id == archive.session(TOOL, tape.session_id).id
    assert archive.session(TOOL, resumed).lineage is Lineage.FORK
    assert archive.texts(TOOL, resumed)[-2:] == ["Go on.", "Gone on."]
    assert len(archive.texts(TOOL, resumed)) == 17
    archive.check()


def test_an_agent_is_a_session_of_its_own(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    tape.prompt("Find leeks.")
    tape.write()
    folder = tape.path.parent / tape.session_id / "subagents"
    agent = Tape(folder / "agent-a1.jsonl", tape.session_id, agent="a1")
    agent.prompt("Look in bed 3.")
    agent.answer(text("There they are."))
    agent.write()
    meta = {"agentType": "Explore", "description": "Look for leeks"}
    (folder / "agent-a1.meta.json").write_text(json.dumps(meta))
    older = Tape(tape.path.parent / "agent-b2.jsonl", tape.session_id, agent="b2")
    older.prompt("Warm up.")
    older.write()

    take(archive, importer, home)

    parent = archive.session(TOOL, tape.session_id)
    found = archive.session(TOOL, f"{tape.session_id}/agent-a1")
    assert (found.kind, found.lineage, found.parent_id) == (
        Kind.SUBAGENT,
        Lineage.SUBAGENT,
        parent.id,
    )
    assert found.title == "Look for leeks"
    assert archive.session(TOOL, f"{tape.session_id}/agent-b2").parent_id == parent.id
    assert archive.texts(TOOL, tape.session_id) == ["Find leeks."]
    archive.check()


def test_what_an_agent_copies_of_its_session_is_left_out(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    """Agents that compact a conversation begin with its lines, under the same names."""
    tape.prompt("Find leeks.")
    tape.answer(text("In bed 3."))
    progress = {"type": "agent_progress", "message": {"type": "user", "uuid": "agent-line"}}
    tape.line("progress", data=progress, chained=False)
    tape.write()
    folder = tape.path.parent / tape.session_id / "subagents"
    copy = tape.copy(folder / "agent-acompact-1f.jsonl", tape.session_id)
    copy.agent = "acompact-1f"
    copy.lines = [line | {"isSidechain": True} for line in copy.lines]
    copy.prompt("Summarise the conversation.")
    copy.answer(text("Leeks stand in bed 3."))
    copy.write()
    whole = tape.copy(folder / "agent-aside_question-2f.jsonl", tape.session_id)
    whole.write()
    own = Tape(folder / "agent-a1.jsonl", tape.session_id, agent="a1")
    own.prompt("Look.", uuid="agent-line")
    own.write()

    report = archive.take(importer, list(importer.find(home)))

    name = f"{tape.session_id}/agent-acompact-1f"
    assert archive.texts(TOOL, name) == ["Summarise the conversation.", "Leeks stand in bed 3."]
    assert archive.session(TOOL, name).parent_id == archive.session(TOOL, tape.session_id).id
    assert archive.texts(TOOL, f"{tape.session_id}/agent-a1") == ["Look."]
    assert (report.added, report.messages) == (3, 5)
    assert report.left_out["lines that an agent copied from its session"] == 6
    copy.prompt("And shorter.")
    copy.write()
    take(archive, importer, home)
    assert archive.texts(TOOL, name)[2:] == ["And shorter."]
    archive.check()


def test_without_names_of_parents_the_order_of_the_file_is_the_conversation(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    """Files that were sanitised or made from other formats."""
    for words in ("Find leeks.", "And beans."):
        tape.prompt(words)
        tape.answer(call("t1", "Read", path="beds"))
        tape.result("t1", "bed 3")
        tape.answer(text("Here."))
    for line in tape.lines:
        del line["parentUuid"]
    tape.write()
    nulls = Tape(tape.path.with_name(f"{new_uuid()}.jsonl"), "nulls")
    for words in ("Dig.", "Dig more."):
        nulls.prompt(words, parent=None)
        nulls.answer(text("Dug."))
    for line in nulls.lines:
        line["parentUuid"] = None
    nulls.write()

    take(archive, importer, tape.path.parent)

    spoken = ["Find leeks.", "", "", "Here.", "And beans.", "", "", "Here."]
    assert archive.texts(TOOL, tape.session_id) == spoken
    assert archive.texts(TOOL, nulls.path.stem) == ["Dig.", "Dug.", "Dig more.", "Dug."]
    tape.prompt("And peas.")
    del tape.lines[-1]["parentUuid"]
    tape.write()
    take(archive, importer, tape.path.parent)
    assert archive.texts(TOOL, tape.session_id) == [*spoken, "And peas."]
    archive.check()


def test_calls_without_any_name_are_each_paid(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    for words in ("Find leeks.", "And beans."):
        tape.prompt(words)
        tape.answer(text("Here."), tokens=(10, 50, 0, 0))
    for line in tape.lines:
        for name in ("uuid", "parentUuid", "requestId"):
            line.pop(name, None)
        line["message"].pop("id", None)
    tape.write()

    take(archive, importer, tape.path)

    used = archive.session(TOOL, tape.session_id).usage
    assert (used.calls, used.input_tokens) == (2, 20)
    assert archive.texts(TOOL, tape.session_id) == ["Find leeks.", "Here.", "And beans.", "Here."]


def test_the_last_line_of_an_answer_has_the_right_output(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    tape.prompt("Find leeks.")
    first, last = tape.answer(text("Here"), text("they are."), tokens=(10, 50, 0, 0))
    first["message"]["usage"]["output_tokens"] = 400
    last["message"]["usage"]["output_tokens"] = 50
    tape.write()

    take(archive, importer, tape.path)

    assert archive.session(TOOL, tape.session_id).usage.output_tokens == 50


def test_a_file_without_messages_is_no_session(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    tape.line("teleported-from", remoteSessionId="r1")
    tape.line("something-new", data=1)
    tape.write()

    report = archive.take(importer, list(importer.find(tape.path)))

    assert (report.added, report.skipped) == (0, 0)
    assert report.left_out == {"teleported-from lines": 1, "lines of files without any words": 1}
    tape.prompt("Find leeks.")
    tape.write()
    take(archive, importer, tape.path)
    assert archive.texts(TOOL, tape.session_id)[-1] == "Find leeks."


def test_what_the_program_says_in_the_place_of_the_model_is_not_the_model_s(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    tape.prompt("Find leeks.")
    (line,) = tape.answer(text("No response requested."), model="<synthetic>")
    line["message"]["usage"] = {"input_tokens": 0, "output_tokens": 0}
    tape.write()

    take(archive, importer, tape.path)

    last = archive.messages(TOOL, tape.session_id)[-1]
    assert (last.role, last.text) == (Role.SYSTEM, "No response requested.")
    assert archive.session(TOOL, tape.session_id).usage.calls == 0


def test_subagents_inside_files_of_older_versions_are_separated(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    tape.prompt("Find leeks.")
    tape.answer(call("t1", "Task", prompt="Look."), call("t2", "Task", prompt="Search."))
    main = tape.last
    one = tape.prompt("Look.", parent=None, isSidechain=True)
    two = tape.prompt("Search.", parent=None, isSidechain=True)
    for root, words in ((one, "Seen."), (two, "Searched.")):
        tape.last = root["uuid"]
        for line in tape.answer(text(words)):
            line["isSidechain"] = True
    tape.last = main
    tape.result("t1", "Seen.")
    tape.answer(text("Here."))
    tape.write()
    take(archive, importer, home)
    tape.prompt("Thank you.")
    tape.write()

    report = archive.take(importer, list(importer.find(home)))

    assert archive.texts(TOOL, tape.session_id) == ["Find leeks.", "", "", "Here.", "Thank you."]
    for root, spoken in ((one, ["Look.", "Seen."]), (two, ["Search.", "Searched."])):
        assert archive.texts(TOOL, f"{tape.session_id}/agent-{root['uuid']}") == spoken
    assert (report.extended, report.unchanged, report.messages) == (1, 2, 1)
    archive.check()


def test_titles_are_those_that_people_gave_else_the_best_there_is(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    def title() -> str | None:
        tape.write()
        take(archive, importer, home)
        return archive.session(TOOL, tape.session_id).title

    tape.bare(type="summary", summary="Another conversation", leafUuid=new_uuid())
    tape.prompt("What grows in bed 3?")
    tape.answer(text("Leeks."))
    assert title() == "What grows in bed 3?"
    tape.bare(type="summary", summary="Leeks in bed 3", leafUuid=tape.last)
    assert title() == "Leeks in bed 3"
    tape.bare(type="ai-title", aiTitle="Bed three", sessionId=tape.session_id)
    assert title() == "Bed three"
    tape.bare(type="custom-title", customTitle="My leeks", sessionId=tape.session_id)
    tape.bare(type="ai-title", aiTitle="Bed 3", sessionId=tape.session_id)
    assert title() == "My leeks"


def test_what_was_typed_while_the_agent_worked_is_a_message(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    tape.prompt("Dig.")
    tape.answer(call("t1", "Bash", command="dig"))
    tape.result("t1", "dug")
    tape.line("attachment", attachment={"type": "queued_command", "prompt": "And water."})
    tape.answer(text("Both done."))
    tape.answer(text("API Error: 529"), model="<synthetic>")
    tape.lines[-1]["isApiErrorMessage"] = True
    tape.write()

    archive.take(importer, list(importer.find(tape.path)))

    read = archive.messages(TOOL, tape.session_id)
    assert [(message.role, message.text) for message in read][3:] == [
        ("user", "And water."),
        ("assistant", "Both done."),
        ("assistant", "API Error: 529"),
    ]
    assert (read[-1].model, read[-1].finish_reason) == (None, "error")
    assert archive.session(TOOL, tape.session_id).usage.calls == 2


def test_a_session_that_begins_with_a_summary_shows_it(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    tape.prompt("They spoke of bed 3.", isCompactSummary=True)
    tape.prompt("Go on.")
    tape.write()

    archive.take(importer, list(importer.find(tape.path)))

    assert archive.texts(TOOL, tape.session_id) == ["They spoke of bed 3.", "Go on."]


def test_an_agent_that_works_for_long_is_read_in_pieces(importer: Observed, tape: Tape) -> None:
    tape.prompt("Dig the whole garden.")
    for number in range(300):
        tape.answer(text("x" * 3000), call(f"t{number}", "Bash", command="dig"))
        tape.result(f"t{number}", "dug " * 500)
    tape.write()
    unit = next(importer.find(tape.path))
    events = list(importer.read(unit, None))

    marks = [event for event in events if isinstance(event, Checkpoint)]
    middle = marks[len(marks) // 2]
    rest = list(importer.read(unit, Resume(middle.place, middle.note)))
    at = events.index(middle)

    assert len(marks) > 2
    assert [each for each in rest[1:] if isinstance(each, MessageEvent)] == [
        each for each in events[at:] if isinstance(each, MessageEvent)
    ]


def test_what_was_used_for_nothing_is_paid_too(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    tape.prompt("Hello.")
    tape.answer(text(""), tokens=(5, 7, 0, 0))
    tape.answer(text("Hello."), tokens=(1, 1, 0, 0))
    tape.write()

    archive.take(importer, list(importer.find(tape.path)))

    assert archive.session(TOOL, tape.session_id).usage.output_tokens == 8


def test_what_is_cached_for_an_hour_is_paid_at_twice_the_input_price(
    archive: ImportedStore, importer: Observed, tape: Tape
) -> None:
    tape.prompt("Hello.")
    [line] = tape.answer(text("Hello."), tokens=(0, 0, 0, 100_000))
    line["message"]["usage"]["cache_creation"] = {
        "ephemeral_5m_input_tokens": 20_000,
        "ephemeral_1h_input_tokens": 80_000,
    }
    tape.write()

    archive.take(importer, list(importer.find(tape.path)))

    used = archive.session(TOOL, tape.session_id).usage
    # $3.75 and $6 for a million tokens.
    assert (used.cache_write_tokens, used.cost_microusd) == (100_000, 75_000 + 480_000)


def test_what_is_not_known_is_kept(archive: ImportedStore, importer: Observed, tape: Tape) -> None:
    tape.prompt("Hello.")
    tape.line("hologram", colour="green")
    tape.answer({"type": "scent", "of": "thyme"}, text("Hm."))
    tape.write()

    archive.take(importer, list(importer.find(tape.path)))

    kept = str(archive.messages(TOOL, tape.session_id))
    assert "green" in kept
    assert "thyme" in kept


def test_bad_lines_are_reported_and_the_rest_is_kept(
    archive: ImportedStore, importer: Observed, tape: Tape, home: Path
) -> None:
    tape.prompt("One")
    tape.write()
    with tape.path.open("ab") as file:
        file.write(b'{"type": "user", "mess\n\x00\x00\x00\n[1, 2]\n')
        file.write(b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"\n")
        file.write(b'{"type":"new","a":' + b"[" * 300 + b"]" * 300 + b"}\n")
        deep = b'{"type":"x","b":' + b"[" * 300 + b"]" * 300 + b"}"
        file.write(b'{"type":"user","message":{"content":[' + deep + b"]}}\n")
        file.write(b'\n{"type":"user","uuid":5,"message":{"content":"\\ud800 half"}}\n')
    tape.prompt("Two")
    tape.write()
    with tape.path.open("ab") as file:
        file.write(b'{"type":"user","message":{"content":"not yet wri')

    report = archive.take(importer, list(importer.find(tape.path)))

    assert [fault.where for fault in report.faults] == [f"line {n}" for n in (2, 4, 5, 6, 7)]
    assert archive.texts(TOOL, tape.session_id) == ["One", "\ud800 half", "Two"]
    archive.check()


def test_damage_is_survived(importer: Observed, tape: Tape, home: Path, tmp_path: Path) -> None:
    a_morning(tape)
    tape.compact("A summary")
    tape.prompt("On.", parent=None)
    tape.bare(type="summary", summary="S", leafUuid=tape.last)
    tape.write()
    (home / "settings.json").write_text('{"cleanupPeriodDays": 10}')

    rubbish.survives(importer, home, tmp_path, times=150)


def test_the_program_s_deletion_time_of_a_file_is_reported(
    importer: Observed, tape: Tape, home: Path
) -> None:
    tape.prompt("Hello.")
    tape.write()
    written = datetime.fromtimestamp(LONG_AGO, UTC)

    assert next(importer.find(home)).expires_at == written + timedelta(days=30)
    (home / "settings.json").write_text('{"cleanupPeriodDays": 365}')
    assert next(importer.find(home / "projects")).expires_at == written + timedelta(days=365)


def test_places_and_files_are_recognised(
    importer: Observed, tape: Tape, home: Path, tmp_path: Path
) -> None:
    tape.prompt("Hello.")
    tape.write()
    (tmp_path / "other.jsonl").write_text('{"type":"message","id":"x"}\n')
    where = UserEnvironment(home.parent, {})
    elsewhere = UserEnvironment(home.parent, {"CLAUDE_CONFIG_DIR": str(tmp_path / "cfg")})

    assert importer.recognises(tape.path)
    assert not importer.recognises(tmp_path / "other.jsonl")
    assert importer.places(where)[0] == home / "projects"
    assert importer.places(elsewhere)[0] == tmp_path / "cfg" / "projects"
