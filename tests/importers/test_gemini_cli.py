"""Gemini CLI's sessions, after all the changes their files tell of."""

import json
from pathlib import Path

import pytest

from sessionary.importers.gemini_cli import IMPORTER
from sessionary.model.message import (
    Attachment,
    Compaction,
    Message,
    Reasoning,
    Role,
    ToolCall,
    ToolResult,
)
from sessionary.model.session import Kind, Lineage
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_gemini_cli import (
    PICTURE,
    GeminiSession,
    a_day_at_the_mill,
    answer,
    tool_call,
)

ID = "0a1b2c3d-0000-4000-8000-000000000001"
CURRENT = ["Signed in.", "What is in a.txt?", "", "", "Flour.", "Buy bread.", "Bought."]


@pytest.fixture
def session() -> GeminiSession:
    made = GeminiSession(ID)
    a_day_at_the_mill(made)
    return made


def test_a_session_comes_over_as_it_became(
    archive: ImportedStore, session: GeminiSession, tmp_path: Path
) -> None:
    path = session.write(tmp_path / "gemini")

    report = archive.take_all(IMPORTER, tmp_path / "gemini")

    head = archive.session("gemini-cli", ID)
    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("gemini-cli", ID) == CURRENT
    parts = [part for message in archive.messages("gemini-cli", ID) for part in message.parts]
    assert parts[1:6] == [
        *archive.messages("gemini-cli", ID)[1].parts[:1],
        Attachment(hash_of(PICTURE), "image/png", None, len(PICTURE)),
        Reasoning("Reading\nI read it."),
        ToolCall("c1", "read_file", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read_file"),
    ]
    assert (head.title, head.model) == ("The mill", "gemini-2.5-pro")
    archive.check_again(IMPORTER, tmp_path / "gemini", path)


def test_tokens_are_counted_in_our_way_and_once(
    archive: ImportedStore, session: GeminiSession, tmp_path: Path
) -> None:
    session.write(tmp_path / "gemini")

    archive.take_all(IMPORTER, tmp_path / "gemini")

    used = archive.session("gemini-cli", ID).usage
    assert (used.calls, used.input_tokens, used.cache_read_tokens) == (4, 4 * 71, 4 * 30)
    assert (used.output_tokens, used.reasoning_tokens) == (4 * 25, 4 * 5)


def test_what_was_taken_back_stays_in_the_log(
    archive: ImportedStore, session: GeminiSession, tmp_path: Path
) -> None:
    session.write(tmp_path / "gemini")

    archive.take_all(IMPORTER, tmp_path / "gemini")

    bodies = [entry.body for entry in archive.log("gemini-cli", ID)]
    all_texts = [body.text for body in bodies if isinstance(body, Message)]
    assert all_texts == [*CURRENT[:5], "Grind it.", "No.", *CURRENT[5:]]


def test_a_session_that_grew_gains_only_what_is_new(
    archive: ImportedStore, session: GeminiSession, tmp_path: Path
) -> None:
    session.write(tmp_path / "gemini")
    archive.take_all(IMPORTER, tmp_path / "gemini")

    session.message("user", "And butter.")
    session.write(tmp_path / "gemini")
    report = archive.take_all(IMPORTER, tmp_path / "gemini")

    assert (report.extended, report.messages) == (1, 1)
    assert archive.texts("gemini-cli", ID) == [*CURRENT, "And butter."]
    archive.check()


def test_a_summary_for_the_model_hides_nothing_from_people(
    archive: ImportedStore, session: GeminiSession, tmp_path: Path
) -> None:
    summary = {"id": "s1", "type": "user", "content": "<state_snapshot>All of it</state_snapshot>"}
    thanks = {"id": "s2", "type": "gemini", "content": "Got it."}
    kept = [line for line in session.lines if line.get("content") == "Bought."]
    session.control(set={"messages": [summary, thanks, *kept]})
    session.message("user", "And butter.")
    session.write(tmp_path / "gemini")

    archive.take_all(IMPORTER, tmp_path / "gemini")

    assert archive.texts("gemini-cli", ID) == [*CURRENT, "And butter."]
    bodies = [entry.body for entry in archive.log("gemini-cli", ID)]
    (mark,) = [body for body in bodies if isinstance(body, Compaction)]
    assert "All of it" in mark.summary


def test_a_second_header_takes_nothing_back(
    archive: ImportedStore, session: GeminiSession, tmp_path: Path
) -> None:
    session.lines.append(session.lines[0] | {"messages": []})
    session.message("user", "And butter.")
    session.write(tmp_path / "gemini")

    archive.take_all(IMPORTER, tmp_path / "gemini")

    assert archive.texts("gemini-cli", ID) == [*CURRENT, "And butter."]


def test_a_resumed_session_says_everything_once(archive: ImportedStore, tmp_path: Path) -> None:
    """Gemini CLI 0.61 lists all messages again when it resumes, as the model reads them."""
    session = GeminiSession(ID)
    context = {"id": "ctx", "type": "user", "content": [{"text": "<session_context>\nLinux"}]}
    session.control(set={"messages": [context]})
    asked = session.message("user", [{"text": "What is in a.txt?"}])
    called = session.reply("I look.")
    session.again(called, toolCalls=[tool_call("success", answer("flour"))])
    results = session.message("user", answer("flour"))
    session.lines.append(session.lines[0] | {"startTime": "2026-02-02T09:00:00.000Z"})
    session.control(set={"messages": [context]})
    plain = {name: called[name] for name in ("id", "timestamp", "type")}
    plain["content"] = [{"text": "I look."}, {"functionCall": {"id": "c1", "name": "read_file"}}]
    copy = {"id": f"{called['id']}_response", "type": "user", "content": answer("flour")}
    session.control(set={"messages": [context, asked, plain, copy, results]})
    session.reply("Flour.")
    path = session.write(tmp_path / "gemini")

    archive.take_all(IMPORTER, tmp_path / "gemini")

    messages = archive.messages("gemini-cli", ID)
    roles = [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert [message.role for message in messages] == roles
    assert [message.text for message in messages] == [
        *("<session_context>\nLinux", "What is in a.txt?", "I look.", "", "Flour."),
    ]
    assert len(archive.log("gemini-cli", ID)) == len(messages)
    head = archive.session("gemini-cli", ID)
    assert head.usage.calls == 2
    assert head.began_at.day == 1
    archive.check_again(IMPORTER, tmp_path / "gemini", path)


def test_answers_of_tools_that_name_no_call_are_all_kept(
    archive: ImportedStore, tmp_path: Path
) -> None:
    session = GeminiSession(ID)
    session.message("user", "Read both files.")
    for content in ("flour", "salt"):
        session.message("gemini", [{"functionCall": {"name": "read_file"}}])
        function_response = {"name": "read_file", "response": {"output": content}}
        session.message("user", [{"functionResponse": function_response}])
    session.write(tmp_path / "gemini")

    archive.take_all(IMPORTER, tmp_path / "gemini")

    parts = [part for message in archive.messages("gemini-cli", ID) for part in message.parts]
    assert [str(part.content) for part in parts if isinstance(part, ToolResult)] == [
        "flour",
        "salt",
    ]


def test_a_resumed_session_may_go_on_from_an_earlier_message(
    archive: ImportedStore, tmp_path: Path
) -> None:
    session = GeminiSession(ID)
    first = session.message("user", "a")
    session.reply("b")
    session.lines.append(session.lines[0])
    session.control(set={"messages": [first]})
    session.message("user", "c")
    session.write(tmp_path / "gemini")

    archive.take_all(IMPORTER, tmp_path / "gemini")

    assert archive.texts("gemini-cli", ID) == ["a", "c"]


def test_a_subagent_hangs_on_its_session(
    archive: ImportedStore, session: GeminiSession, tmp_path: Path
) -> None:
    session.write(tmp_path / "gemini")
    child = GeminiSession("aaaa", kind="subagent")
    child.message("user", "Dig.")
    child.write(tmp_path / "gemini", parent=ID)

    archive.take_all(IMPORTER, tmp_path / "gemini")

    head = archive.session("gemini-cli", "aaaa")
    assert (head.kind, head.lineage) == (Kind.SUBAGENT, Lineage.SUBAGENT)
    assert head.parent_id == archive.session("gemini-cli", ID).id


def test_the_older_document_is_read_too(archive: ImportedStore, tmp_path: Path) -> None:
    session = GeminiSession(ID)
    session.message("user", "a")
    session.reply("b")
    path = session.write_document(tmp_path / "gemini")

    archive.take_all(IMPORTER, tmp_path / "gemini")

    assert archive.texts("gemini-cli", ID) == ["a", "b"]
    archive.check_again(IMPORTER, tmp_path / "gemini", path)


def test_damage_is_survived(session: GeminiSession, tmp_path: Path) -> None:
    session.write(tmp_path / "gemini")
    other = GeminiSession("bbbb")
    a_day_at_the_mill(other)
    other.write_document(tmp_path / "gemini")

    rubbish.survives(IMPORTER, tmp_path / "gemini", tmp_path)


def test_it_is_recognised(session: GeminiSession, tmp_path: Path) -> None:
    path = session.write(tmp_path / "gemini")
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"a": 1}))

    assert IMPORTER.recognises(path)
    assert not IMPORTER.recognises(tmp_path / "gemini")
    assert not IMPORTER.recognises(other)
