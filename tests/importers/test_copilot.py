"""Copilot's conversations, in VS Code and on the command line."""

import json
from pathlib import Path

import pytest

from sessionary.importers import registry
from sessionary.importers.copilot import IMPORTER
from sessionary.model.message import Compaction, Message, Reasoning, Text, ToolCall, ToolResult
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_copilot import (
    Chat,
    Run,
    a_day_at_the_mill,
    a_day_on_the_line,
    request,
    tool,
    words,
)

TEXTS = ["What is in a.txt?", "", "", "There is `flour`.", "Grind it.", ""]


@pytest.mark.parametrize("form", ["document", "log"])
def test_a_chat_comes_over_as_it_was(archive: ImportedStore, tmp_path: Path, form: str) -> None:
    chat = Chat(tmp_path / "User")
    if form == "document":
        path = chat.write_document(a_day_at_the_mill())
    else:
        first, second = a_day_at_the_mill()
        chat.push(first | {"response": [words("Wai")]})
        chat.put("requests", 0, "response", value=first["response"])
        chat.push(second)
        chat.put("customTitle", value="The mill")
        path = chat.write_log()

    report = archive.take_all(IMPORTER, tmp_path / "User")

    head = archive.session("copilot", "chat-1")
    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("copilot", "chat-1") == TEXTS
    parts = [part for message in archive.messages("copilot", "chat-1") for part in message.parts]
    assert parts[1:5] == [
        Reasoning("I read it"),
        ToolCall("c1", "read_file", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read_file"),
        Text("There is `flour`."),
    ]
    last = archive.messages("copilot", "chat-1")[-1]
    assert last.extra == {"error": "the mill is broken"}
    assert (head.title, head.model) == ("The mill", "claude-sonnet-4.5")
    assert (head.usage.calls, head.usage.input_tokens, head.usage.output_tokens) == (1, 200, 9)
    archive.check_again(IMPORTER, tmp_path / "User", path)


def test_a_question_that_was_asked_again_leaves_a_branch(
    archive: ImportedStore, tmp_path: Path
) -> None:
    chat = Chat(tmp_path / "User")
    chat.push(request(1, "a", words("b")), request(2, "c", words("d")))
    chat.push(request(3, "x", words("y")), cut=1)
    chat.write_log()
    archive.take_all(IMPORTER, tmp_path / "User")
    assert archive.texts("copilot", "chat-1") == ["a", "b", "x", "y"]

    chat.push(request(4, "more", words("and more")))
    chat.write_log()
    report = archive.take_all(IMPORTER, tmp_path / "User")

    assert report.messages == 2
    assert archive.texts("copilot", "chat-1") == ["a", "b", "x", "y", "more", "and more"]
    bodies = [entry.body for entry in archive.log("copilot", "chat-1")]
    assert "d" in [body.text for body in bodies if isinstance(body, Message)]
    archive.check()


def test_a_run_comes_over_as_it_was(archive: ImportedStore, tmp_path: Path) -> None:
    run = Run(tmp_path)
    a_day_on_the_line(run)
    path = run.write()

    report = archive.take_all(IMPORTER, tmp_path)

    head = archive.session("copilot", "run-1")
    assert (report.added, report.skipped) == (1, 0)
    texts = ["What is in a.txt?", "", "", "Flour.", "The mill is broken."]
    assert archive.texts("copilot", "run-1") == texts
    parts = [part for message in archive.messages("copilot", "run-1") for part in message.parts]
    assert parts[2:7] == [
        Reasoning("I read it"),
        ToolCall("c1", "view", {"path": "a.txt"}),
        ToolResult("c1", "flour"),
        Reasoning("Easy"),
        Text("Flour."),
    ]
    bodies = [entry.body for entry in archive.log("copilot", "run-1")]
    assert [body.summary for body in bodies if isinstance(body, Compaction)] == ["Flour was found."]
    assert (head.title, head.model) == ("The mill", "claude-sonnet-4.5")
    used = head.usage
    assert (used.input_tokens, used.cache_read_tokens, used.output_tokens) == (30, 60, 8)
    archive.check_again(IMPORTER, tmp_path, path)


def test_sums_of_the_whole_session_are_counted_once(archive: ImportedStore, tmp_path: Path) -> None:
    """Copilot CLI 1.0 notes each call, and sums up the session at the end of every run."""
    run = Run(tmp_path / "copilot")
    run.events[0]["data"]["startTime"] = "2026-02-01T09:00:00.000Z"
    began = 1769936400000
    path = run.write()
    for number in (1, 2, 3):
        if number > 1:
            run.event("session.resume", selectedModel="gpt-5")
        run.event("user.message", content=f"Question {number}")
        run.event("assistant.message", content="Yes.", toolRequests=[])
        used = {"model": "gpt-5", "inputTokens": 100, "outputTokens": 8, "cacheReadTokens": 60}
        call = {"sourceSessionId": "run-1", "usageId": f"call-{number}"}
        # The second run is of a release that does not note calls.
        if number != 2:
            run.event("session.usage_record", usage=used | {"accounting": call})
        total = {"inputTokens": 100, "outputTokens": 8, "cacheReadTokens": 60}
        total = {name: number * count for name, count in total.items()}
        metrics = {"gpt-5": {"usage": total}}
        run.event("session.shutdown", sessionStartTime=began, modelMetrics=metrics)
        run.write()
        archive.take_all(IMPORTER, tmp_path / "copilot")

    paid = archive.session("copilot", "run-1").usage
    assert (paid.calls, paid.input_tokens, paid.cache_read_tokens) == (3, 120, 180)
    archive.check_again(IMPORTER, tmp_path / "copilot", path)


def test_sums_of_single_runs_are_added_up(archive: ImportedStore, tmp_path: Path) -> None:
    run = Run(tmp_path / "copilot")
    metrics = {"gpt-5": {"usage": {"inputTokens": 100, "outputTokens": 8}}}
    for _ in range(2):
        run.event("user.message", content="Again.")
        run.event("session.shutdown", modelMetrics=metrics)
    run.write()

    archive.take_all(IMPORTER, tmp_path / "copilot")

    assert archive.session("copilot", "run-1").usage.input_tokens == 200


def test_a_run_is_read_on_from_where_it_ended(archive: ImportedStore, tmp_path: Path) -> None:
    run = Run(tmp_path)
    a_day_on_the_line(run)
    run.write()
    archive.take_all(IMPORTER, tmp_path)
    size = len(run.text())

    run.event("user.message", content="And butter.")
    run.event("assistant.message", content="Butter.")
    path = run.write()
    report = archive.take_all(IMPORTER, path)

    assert (report.bytes, report.messages) == (len(run.text()) - size, 2)
    last = archive.messages("copilot", "run-1")[-1]
    assert (last.text, last.model) == ("Butter.", "claude-sonnet-4.5")
    archive.check()


def test_damage_is_survived(tmp_path: Path) -> None:
    root = tmp_path / "root"
    Chat(root, "chat-1").write_document(a_day_at_the_mill())
    chat = Chat(root, "chat-2")
    chat.push(*a_day_at_the_mill())
    chat.push(request(3, "x", words("y")), cut=1)
    chat.put("requests", 0, "modelId", value="m")
    chat.write_log()
    run = Run(root)
    a_day_on_the_line(run)
    run.write()

    rubbish.survives(IMPORTER, root, tmp_path, times=200)


def test_it_is_recognised(tmp_path: Path) -> None:
    chat = Chat(tmp_path).write_document(a_day_at_the_mill())
    run = Run(tmp_path)

    assert IMPORTER.recognises(chat)
    assert IMPORTER.recognises(run.write())
    assert not IMPORTER.recognises(tmp_path)
    assert not IMPORTER.recognises(tmp_path / "workspaceStorage" / "abc" / "workspace.json")


def test_calls_are_taken_from_the_rounds_whatever_the_items_are_called(
    archive: ImportedStore, tmp_path: Path
) -> None:
    """Newer releases show calls under names that no round has; the rounds are the truth."""
    rounds = [
        {"response": "I look.", "toolCalls": [_call("toolu_1__vscode-1", "list_dir", path=".")]},
        {"response": "", "toolCalls": [_call("toolu_2__vscode-2", "read_file", path="a.txt")]},
        {"response": "", "toolCalls": [_call("toolu_3__vscode-3", "read_file", path="b.txt")]},
    ]
    results = {
        "toolu_1__vscode-1": {"content": [{"value": "a.txt"}]},
        "toolu_2__vscode-2": {"content": [{"value": "flour"}]},
        "toolu_3__vscode-3": {"content": [{"value": "yeast"}]},
    }
    asked = request(
        1,
        "What is there?",
        words("I look."),
        tool("0b5c9a2e-1111-4111-8111-111111111111"),
        words("One more."),
        tool("0b5c9a2e-2222-4222-8222-222222222222", presentation="hidden"),
        words("Done."),
        result={"metadata": {"toolCallRounds": rounds, "toolCallResults": results}},
    )
    chat = Chat(tmp_path / "User")
    path = chat.write_document([asked])

    archive.take_all(IMPORTER, tmp_path / "User")

    parts = [part for message in archive.messages("copilot", "chat-1") for part in message.parts]
    assert [part for part in parts if isinstance(part, ToolCall)] == [
        ToolCall("toolu_1__vscode-1", "list_dir", {"path": "."}),
        ToolCall("toolu_2__vscode-2", "read_file", {"path": "a.txt"}),
        ToolCall("toolu_3__vscode-3", "read_file", {"path": "b.txt"}),
    ]
    assert [part.content for part in parts if isinstance(part, ToolResult)] == [
        "a.txt",
        "flour",
        "yeast",
    ]
    assert [part.text for part in parts if isinstance(part, Text)] == [
        "What is there?",
        "I look.",
        "One more.",
        "Done.",
    ]
    archive.check_again(IMPORTER, tmp_path / "User", path)


def test_items_without_rounds_show_what_went_in_and_came_out(
    archive: ImportedStore, tmp_path: Path
) -> None:
    asked = request(
        1,
        "What is there?",
        tool("x", presentation="hidden"),
        tool(
            "y",
            toolId="mcp_mill_grind",
            toolSpecificData={"kind": "input", "rawInput": {"grain": "rye"}},
            resultDetails={"output": [{"type": "embed", "isText": True, "value": "flour"}]},
        ),
        words("Done."),
        result={},
    )
    Chat(tmp_path / "User").write_document([asked])

    archive.take_all(IMPORTER, tmp_path / "User")

    parts = [part for message in archive.messages("copilot", "chat-1") for part in message.parts]
    assert parts[1:3] == [
        ToolCall("y", "mcp_mill_grind", {"grain": "rye"}),
        ToolResult("y", "flour", "mcp_mill_grind"),
    ]


def test_the_events_of_a_run_are_recognised_without_their_folder(
    archive: ImportedStore, tmp_path: Path
) -> None:
    source = Run(tmp_path / "copilot")
    a_day_on_the_line(source)
    alone = tmp_path / "saved.jsonl"
    alone.write_bytes(source.write().read_bytes())

    assert registry.recognise(alone) is IMPORTER
    report = archive.take_all(IMPORTER, alone)

    assert report.added == 1


def _call(id: str, name: str, **arguments: str) -> dict[str, str]:
    return {"id": id, "name": name, "arguments": json.dumps(arguments)}
