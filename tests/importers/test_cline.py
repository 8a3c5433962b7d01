"""The tasks of Cline and Roo Code."""

from pathlib import Path

import pytest

from sessionary.importers.cline import IMPORTER
from sessionary.model.message import (
    Attachment,
    Compaction,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.session import Kind, Lineage
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_cline import PICTURE, Task, a_day_at_the_mill, words, write_session

TEXTS = ["What is in a.txt?", "", "", "Flour.", "Grind it."]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    made = Task(tmp_path / "roo")
    a_day_at_the_mill(made)
    made.write()
    return made


def test_a_task_comes_over_as_it_was(archive: ImportedStore, task: Task, tmp_path: Path) -> None:
    report = archive.take_all(IMPORTER, tmp_path / "roo")

    head = archive.session("cline", task.id)
    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("cline", task.id) == TEXTS
    messages = archive.messages("cline", task.id)
    assert [message.role for message in messages[1:3]] == [Role.ASSISTANT, Role.TOOL]
    parts = [part for message in messages for part in message.parts]
    assert parts[0] == Text("What is in a.txt?")
    assert isinstance(parts[1], Unknown)
    assert parts[2:6] == [
        Attachment(hash_of(PICTURE), "image/png", None, len(PICTURE)),
        Reasoning("I read it"),
        ToolCall("c1", "read_file", {"path": "a.txt"}),
        ToolResult("c1", "flour"),
    ]
    bodies = [entry.body for entry in archive.log("cline", task.id)]
    assert [body.summary for body in bodies if isinstance(body, Compaction)] == ["Flour was found."]
    assert (head.title, head.model) == ("Look", "claude-sonnet-4-5")
    assert (head.usage.calls, head.usage.output_tokens, head.usage.cost_microusd) == (2, 30, 3000)
    archive.check_again(IMPORTER, tmp_path / "roo", task.folder / "ui_messages.json")


def test_only_the_task_that_grew_is_read_again(
    archive: ImportedStore, task: Task, tmp_path: Path
) -> None:
    child = Task(tmp_path / "roo", "1769936400001", parent=task.id)
    child.say("user", words("Dig."))
    child.write()
    archive.take_all(IMPORTER, tmp_path / "roo")

    task.say("assistant", words("Ground."))
    task.write()
    report = archive.take_all(IMPORTER, tmp_path / "roo" / "tasks")

    assert (report.unchanged_units, report.messages) == (1, 1)
    assert archive.texts("cline", task.id) == [*TEXTS, "Ground."]
    head = archive.session("cline", child.id)
    assert (head.kind, head.lineage) == (Kind.SUBAGENT, Lineage.SUBAGENT)
    archive.check()


def test_the_screen_is_read_when_nothing_else_is_left(archive: ImportedStore, task: Task) -> None:
    (task.folder / "api_conversation_history.json").write_text("[{")

    report = archive.take_all(IMPORTER, task.folder)

    assert report.skipped == 1
    assert archive.texts("cline", task.id) == ["Look\nwell"]


def test_a_session_of_the_command_line_comes_over(archive: ImportedStore, tmp_path: Path) -> None:
    """Cline CLI 3 keeps the messages of a session in one document, and its facts in another."""
    path = write_session(tmp_path / "cline")

    report = archive.take_all(IMPORTER, tmp_path / "cline")

    assert (report.added, report.skipped) == (1, 0)
    messages = archive.messages("cline", "1769936400000_ab")
    roles = [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT, Role.SYSTEM]
    assert [message.role for message in messages] == roles
    assert [part for message in messages for part in message.parts] == [
        Text("What is in a.txt?"),
        ToolCall("c1", "read_files", {"files": [{"path": "a.txt"}]}),
        ToolResult("c1", "flour\nno such file", "read_files", is_error=True),
        Text("Flour."),
        Text("The connection was lost."),
    ]
    head = archive.session("cline", "1769936400000_ab")
    assert (head.title, head.model) == ("The mill", "gpt-5")
    assert (head.usage.calls, head.usage.input_tokens, head.usage.cache_read_tokens) == (2, 120, 80)
    assert IMPORTER.recognises(path)
    archive.check_again(IMPORTER, tmp_path / "cline", path)


def test_damage_is_survived(task: Task, tmp_path: Path) -> None:
    write_session(tmp_path / "roo")
    rubbish.survives(IMPORTER, tmp_path / "roo", tmp_path)
    (task.folder / "api_conversation_history.json").unlink()
    rubbish.survives(IMPORTER, tmp_path / "roo", tmp_path, times=30)


def test_it_is_recognised(task: Task, tmp_path: Path) -> None:
    other = tmp_path / "ui_messages.json"
    other.write_text('{"role": "user"}')

    assert IMPORTER.recognises(task.folder / "api_conversation_history.json")
    assert IMPORTER.recognises(task.folder / "ui_messages.json")
    assert not IMPORTER.recognises(other)


def test_results_written_as_text_become_results_of_their_calls(
    archive: ImportedStore, tmp_path: Path
) -> None:
    """Cline of 2026 tells the model what a tool did in a text of the person."""
    task = Task(tmp_path / "cline")
    task.say("user", words("<task>\nList it.\n</task>"))
    calls = [
        {"type": "tool_use", "id": "c1", "name": "execute_command", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "c2", "name": "read_file", "input": {"path": "a.txt"}},
    ]
    task.say("assistant", words("I look."), *calls)
    around = words("<environment_details>\nnow\n</environment_details>")
    results = [
        words("[execute_command for 'ls'] Result:\na.txt"),
        words("[read_file for 'a.txt'] Result:"),
    ]
    task.say("user", *results, words("flour"), around)
    task.say("assistant", words("Flour."))
    task.say("user", words("[read_file for 'x'] Result:\nis what I saw before"))
    task.write()

    archive.take_all(IMPORTER, tmp_path / "cline")

    messages = archive.messages("cline", task.id)
    assert [message.role for message in messages[:3]] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert messages[2].parts == (
        ToolResult("c1", "a.txt", "execute_command"),
        ToolResult("c2", "flour", "read_file"),
    )
    # Without a call before it, it is what the person wrote.
    assert messages[-1].text == "[read_file for 'x'] Result:\nis what I saw before"
    archive.check_again(IMPORTER, tmp_path / "cline", task.folder / "api_conversation_history.json")


def test_the_talk_with_the_model_alone_is_a_record(archive: ImportedStore, tmp_path: Path) -> None:
    task = Task(tmp_path / "cline")
    task.say("user", words("Dig."), ts=1769936500000)
    task.write()
    for name in ("ui_messages.json", "history_item.json", "task_metadata.json"):
        (task.folder / name).unlink()

    path = task.folder / "api_conversation_history.json"
    assert IMPORTER.recognises(path)
    archive.take_all(IMPORTER, path)

    (entry,) = archive.log("cline", task.id)
    assert entry.at.timestamp() == 1769936500
