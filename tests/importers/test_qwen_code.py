"""Qwen Code's sessions: Claude Code's lines with Google's messages."""

import json
from pathlib import Path

import pytest

from sessionary.importers.qwen_code import IMPORTER
from sessionary.model.message import (
    Compaction,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.model.session import Kind, Lineage
from sessionary.testing.importer_world import ImportedStore
from tests.importers.write_qwen_code import QwenSession, a_day_at_the_mill, text

ID = "0a1b2c3d-0000-4000-8000-000000000001"
CURRENT = ["What is in a.txt?", "", "", "Flour.", "Buy bread.", "Bought."]


@pytest.fixture
def session() -> QwenSession:
    made = QwenSession(ID)
    a_day_at_the_mill(made)
    return made


def test_a_session_comes_over_with_its_tools_and_tokens(
    archive: ImportedStore, session: QwenSession, tmp_path: Path
) -> None:
    path = session.write(tmp_path / "qwen")

    report = archive.take_all(IMPORTER, tmp_path / "qwen")

    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("qwen-code", ID) == CURRENT
    parts = [part for message in archive.messages("qwen-code", ID) for part in message.parts]
    assert parts[:5] == [
        Text("What is in a.txt?"),
        Reasoning("I read it"),
        ToolCall("c1", "read_file", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read_file"),
        Text("Flour."),
    ]
    head = archive.session("qwen-code", ID)
    assert (head.title, head.model) == ("The mill", "qwen3-coder-plus")
    # What the thoughts took is a part of the output.
    assert (head.usage.calls, head.usage.input_tokens, head.usage.cache_read_tokens) == (
        5,
        350,
        150,
    )
    assert (head.usage.output_tokens, head.usage.reasoning_tokens) == (100, 25)
    archive.check_again(IMPORTER, tmp_path / "qwen", path)


def test_what_was_rewound_stays_in_the_log(
    archive: ImportedStore, session: QwenSession, tmp_path: Path
) -> None:
    session.write(tmp_path / "qwen")

    archive.take_all(IMPORTER, tmp_path / "qwen")

    bodies = [entry.body for entry in archive.log("qwen-code", ID)]
    parts = [part for body in bodies if isinstance(body, Message) for part in body.parts]
    assert ToolResult("c2", "The mill is broken.", "read_file", is_error=True) in parts


def test_a_session_that_grew_gains_only_what_is_new(
    archive: ImportedStore, session: QwenSession, tmp_path: Path
) -> None:
    session.write(tmp_path / "qwen")
    archive.take_all(IMPORTER, tmp_path / "qwen")

    session.user(text("And butter."))
    session.write(tmp_path / "qwen")
    report = archive.take_all(IMPORTER, tmp_path / "qwen")

    assert (report.extended, report.messages) == (1, 1)
    assert archive.texts("qwen-code", ID) == [*CURRENT, "And butter."]
    archive.check()


def test_a_compression_is_a_compaction_and_a_notice_is_not_the_person_s(
    archive: ImportedStore, session: QwenSession, tmp_path: Path
) -> None:
    history = [
        {"role": "user", "parts": [text("<state_snapshot>All of it</state_snapshot>")]},
        {"role": "model", "parts": [text("Got it.")]},
    ]
    session.system("chat_compression", info={}, compressedHistory=history)
    session.user(text("An agent is done."), subtype="notification")
    session.write(tmp_path / "qwen")

    archive.take_all(IMPORTER, tmp_path / "qwen")

    bodies = [entry.body for entry in archive.log("qwen-code", ID)]
    (mark,) = [body for body in bodies if isinstance(body, Compaction)]
    assert "All of it" in mark.summary
    last = archive.messages("qwen-code", ID)[-1]
    assert (last.role, last.text) == (Role.SYSTEM, "An agent is done.")


def test_a_fork_shares_its_beginning_and_an_agent_hangs_on_its_session(
    archive: ImportedStore, session: QwenSession, tmp_path: Path
) -> None:
    first = QwenSession(ID)
    first.user(text("What is in a.txt?"))
    first.reply(text("Flour."))
    first.write(tmp_path / "qwen")
    fork = QwenSession("0a1b2c3d-0000-4000-8000-000000000002")
    for line in first.lines:
        origin = {"sessionId": ID, "messageUuid": line["uuid"]}
        fork.lines.append(line | {"sessionId": fork.id, "forkedFrom": origin})
    fork.tip = first.tip
    fork.user(text("And elsewhere?"))
    fork.write(tmp_path / "qwen")
    agent = QwenSession(ID, agent="a1")
    agent.user(text("Dig."))
    meta = agent.write(tmp_path / "qwen").with_suffix(".meta.json")
    meta.write_text(json.dumps({"description": "Digging"}))

    report = archive.take_all(IMPORTER, tmp_path / "qwen")

    assert (report.added, report.messages) == (3, 4)
    forked = archive.session("qwen-code", fork.id)
    assert forked.lineage is Lineage.FORK
    assert archive.texts("qwen-code", fork.id) == ["What is in a.txt?", "Flour.", "And elsewhere?"]
    head = archive.session("qwen-code", f"{ID}/agent-a1")
    assert (head.kind, head.title) == (Kind.SUBAGENT, "Digging")
    assert head.parent_id == archive.session("qwen-code", ID).id
    archive.check()


def test_it_is_recognised(session: QwenSession, tmp_path: Path) -> None:
    path = session.write(tmp_path / "qwen")

    assert IMPORTER.recognises(path)
    assert not IMPORTER.recognises(tmp_path / "qwen")
