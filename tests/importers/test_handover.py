"""A conversation is handed over to another tool, and what it gets is whole."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from sessionary.actions.transfer import export
from sessionary.errors import BadInput
from sessionary.importers import registry
from sessionary.importers.base.events import Compacted, Facts, MessageEvent, SessionBegin
from sessionary.model.handover.excerpt import HandoverExcerpt
from sessionary.model.handover.forms import HANDOVER_FORMATS
from sessionary.model.message import (
    Attachment,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.model.record import ExportOptions
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers.test_driver import Scripted, touched
from tests.importers.write_exports import PIXEL

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def says(number: int, role: str, *parts: dict[str, Any], **more: Any) -> MessageEvent:
    at = NOON + timedelta(seconds=number)
    return MessageEvent(role=role, parts=list(parts), at=at, id=f"m{number}", **more)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def talk() -> list[MessageEvent]:
    picture = {
        "type": "attachment",
        "blob": hash_of(PIXEL),
        "media_type": "image/png",
        "name": "cat.png",
        "size": len(PIXEL),
    }
    thought = {"type": "reasoning", "text": "Look.", "details": {"signature": "c2ln"}}
    calls = [
        {"type": "tool_call", "id": f"toolu_{n}", "name": "Bash", "arguments": {"command": n}}
        for n in ("ls", "pwd")
    ]
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "call_id": "toolu_pwd", "content": "/home", "name": "Bash"},
        {
            "type": "tool_result",
            "call_id": "toolu_ls",
            "content": "a.txt",
            "name": "Bash",
            "is_error": True,
        },
    ]
    return [
        says(1, "system", text("Obey me."), extra={"imported": "x"}),
        says(2, "user", text("What is this?"), picture, blobs=[PIXEL]),
        says(3, "assistant", thought, text("I look."), *calls, model="claude-opus-4-5"),
        says(4, "tool", results[0]),
        says(5, "tool", results[1]),
        says(6, "assistant", text("A cat. \ud83d"), model="claude-opus-4-5"),
        says(7, "user", text("Thanks")),
        says(8, "assistant", {"type": "tool_call", "id": "toolu_ls", "name": "Bash"}),
    ]


@pytest.fixture
def session(archive: ImportedStore, tmp_path: Path) -> str:
    return kept(archive, tmp_path, talk())


def kept(archive: ImportedStore, tmp_path: Path, events: list[Any]) -> str:
    scripted = Scripted()
    workspace = {"path": "/home/anna/my project", "branch": "main"}
    facts = Facts(fields={"title": "A cat", "workspace": workspace})
    scripted.events = [SessionBegin(native_id="s1"), facts, *events]
    archive.take(scripted, [touched(tmp_path / "source")])
    return archive.session("scripted", "s1").id


def handed(
    archive: ImportedStore, session: str, tool: str, **more: Any
) -> tuple[HandoverExcerpt, str]:
    made = export.handover_excerpt(archive.store, session, profile="main", **more)
    return made, "".join(HANDOVER_FORMATS[tool].pieces(made))


def reimported(archive: ImportedStore, tmp_path: Path, tool: str, text: str) -> list[Message]:
    """What our own importer of that tool makes of the file."""
    importer = registry.importer(tool)
    folder = tmp_path / "there"
    folder.mkdir()
    path = folder / "rollout-2026-03-01T12-00-00-x.jsonl"
    path.write_text(text)
    before = {head.id for head in archive.heads()}
    report = archive.take(importer, list(importer.find(path)))
    assert (report.added, report.skipped) == (1, 0), report.faults
    (new,) = [each for each in archive.everything() if each[0].id not in before]
    archive.check()
    return [entry.body for entry in new[1] if isinstance(entry.body, Message)]


EXPECTED: list[tuple[Role, list[Any]]] = [
    (Role.USER, [Text("What is this?"), "cat.png"]),
    (
        Role.ASSISTANT,
        [
            Text("I look."),
            ToolCall("toolu_ls", "Bash", {"command": "ls"}),
            ToolCall("toolu_pwd", "Bash", {"command": "pwd"}),
        ],
    ),
    (Role.TOOL, [("toolu_ls", "a.txt"), ("toolu_pwd", "/home")]),
    (Role.ASSISTANT, [Text("A cat. \ud83d")]),
    (Role.USER, [Text("Thanks")]),
    (Role.ASSISTANT, [ToolCall("toolu_ls-2", "Bash", {})]),
    (Role.TOOL, [("toolu_ls-2", "[no result was recorded]")]),
]


def in_short(messages: list[Message]) -> list[tuple[Role, list[Any]]]:
    """The messages without reasoning and names; results of one answer together."""
    made: list[tuple[Role, list[Any]]] = []
    for message in messages:
        parts = [_short(part) for part in message.parts if not isinstance(part, Reasoning)]
        if made and made[-1][0] is message.role and message.role in (Role.TOOL, Role.ASSISTANT):
            made[-1][1].extend(parts)
        elif parts:
            made.append((message.role, parts))
    return made


def _short(part: Any) -> Any:
    if isinstance(part, ToolResult):
        return part.call_id, part.content
    if isinstance(part, ToolCall):
        return ToolCall(part.id, part.name, part.arguments or {})
    return "cat.png" if isinstance(part, Attachment) else part


@pytest.mark.parametrize("tool", ["claude-code", "codex", "hermes"])
def test_what_a_tool_gets_is_the_same_conversation(
    archive: ImportedStore, session: str, tmp_path: Path, tool: str
) -> None:
    _, text = handed(archive, session, tool)

    assert in_short(reimported(archive, tmp_path, tool, text)) == EXPECTED


def test_a_thought_goes_along_with_its_signature(
    archive: ImportedStore, session: str, tmp_path: Path
) -> None:
    _, text = handed(archive, session, "claude-code")

    found = reimported(archive, tmp_path, "claude-code", text)

    thoughts = [p for message in found for p in message.parts if isinstance(p, Reasoning)]
    assert thoughts == [Reasoning("Look.", {"signature": "c2ln"})]
    assert {message.model for message in found if message.role is Role.ASSISTANT} == {
        "claude-opus-4-5"
    }


def test_each_line_of_claude_code_follows_another(archive: ImportedStore, session: str) -> None:
    made, text = handed(archive, session, "claude-code")

    lines = [json.loads(line) for line in text.splitlines()]
    messages = [line for line in lines if "uuid" in line]
    assert messages[0]["parentUuid"] is None
    assert all(after["parentUuid"] == before["uuid"] for before, after in pairwise(messages))
    assert len({line["uuid"] for line in messages}) == len(messages)
    assert {line["sessionId"] for line in lines} == {made.uuid}
    assert lines[-1]["customTitle"] == "A cat"
    advice = HANDOVER_FORMATS["claude-code"].advice(made, "x y.jsonl")
    assert f"~/.claude/projects/-home-anna-my-project/{made.uuid}.jsonl" in advice
    assert f"cd '/home/anna/my project' && claude --resume {made.uuid}" in advice


def test_a_client_of_chat_completions_accepts_the_list(
    archive: ImportedStore, session: str
) -> None:
    _, text = handed(archive, session, "openai")

    messages = json.loads(text)

    for each in messages:
        TypeAdapter(ChatCompletionMessageParam).validate_python(each)
    assert [each["role"] for each in messages] == [
        *("user", "assistant", "tool", "tool", "assistant", "user", "assistant", "tool")
    ]
    asked = [call["id"] for each in messages for call in each.get("tool_calls") or ()]
    answered = [each["tool_call_id"] for each in messages if each["role"] == "tool"]
    assert asked == answered == ["toolu_ls", "toolu_pwd", "toolu_ls-2"]
    assert messages[0]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert "Obey me." not in text


def test_open_webui_gets_a_chat_whose_list_and_tree_agree(
    archive: ImportedStore, session: str
) -> None:
    _, text = handed(archive, session, "open-webui")

    (chat,) = json.loads(text)["chats"]

    tree, listed = chat["chat"]["history"], chat["chat"]["messages"]
    assert chat["chat"]["title"] == "A cat"
    assert [each["role"] for each in listed] == ["user", "assistant", "user", "assistant"]
    assert list(tree["messages"].values()) == listed
    assert tree["currentId"] == listed[-1]["id"]
    assert [each["parentId"] for each in listed] == [None, *(each["id"] for each in listed[:-1])]
    assert listed[1]["content"].count('<details type="tool_calls"') == 2
    assert listed[0]["files"][0]["type"] == "image"


def test_what_a_tool_is_called_with_is_always_an_object(
    archive: ImportedStore, tmp_path: Path
) -> None:
    given: list[Any] = ["print(6)", '{"a": 1}', [1], 7]
    calls = [
        {"type": "tool_call", "id": f"c{n}", "name": "python", "arguments": each}
        for n, each in enumerate(given)
    ]
    session = kept(archive, tmp_path, [says(1, "user", text("go")), says(2, "assistant", *calls)])

    made = json.loads(handed(archive, session, "openai")[1])[1]["tool_calls"]

    assert [json.loads(call["function"]["arguments"]) for call in made] == [
        {"input": "print(6)"},
        {"a": 1},
        {"input": [1]},
        {"input": 7},
    ]


def test_the_newest_is_kept_within_the_budget(archive: ImportedStore, tmp_path: Path) -> None:
    many = [
        says(n, "user" if n % 2 else "assistant", text(f"message {n} " + "x" * 400))
        for n in range(1, 101)
    ]
    session = kept(archive, tmp_path, many)

    made, notices = handed(archive, session, "openai", budget=1000)

    messages = json.loads(notices)
    assert (
        messages[0]["content"]
        == f"[{made.left_out:,} earlier messages of this conversation are not here.]"
    )
    assert messages[-1]["content"].startswith("message 100 ")
    assert (len(made.lines) + made.left_out, made.lines[0].message.role) == (100, Role.USER)
    assert 4 <= len(made.lines) <= 9
    with pytest.raises(BadInput, match="from 1 up"):
        handed(archive, session, "openai", budget=0)


@pytest.mark.parametrize("tool", list(HANDOVER_FORMATS))
def test_a_summary_comes_first(archive: ImportedStore, tmp_path: Path, tool: str) -> None:
    events = [
        says(1, "user", text("first words")),
        says(2, "assistant", text("first answer")),
        Compacted(summary="They said hello.", at=NOON),
        says(3, "user", text("and then?")),
        says(4, "assistant", text("the end")),
    ]
    session = kept(archive, tmp_path, events)

    made, notices = handed(archive, session, tool)

    assert made.summary == "They said hello."
    assert "first words" not in notices
    assert notices.index("They said hello.") < notices.index("and then?") < notices.index("the end")


def test_the_same_session_makes_the_same_file(archive: ImportedStore, session: str) -> None:
    for tool in HANDOVER_FORMATS:
        assert handed(archive, session, tool)[1] == handed(archive, session, tool)[1]


def test_secrets_can_be_left_out(archive: ImportedStore, tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "aB3dE5gH7jK9" * 8
    session = kept(archive, tmp_path, [says(1, "user", text(f"my key is {key}"))])

    made = export.handover_excerpt(archive.store, session, profile="main")
    masked = export.handover_excerpt(
        archive.store, session, profile="main", options=ExportOptions(mask_secrets=True)
    )

    assert key in "".join(HANDOVER_FORMATS["openai"].pieces(made))
    assert key not in "".join(HANDOVER_FORMATS["openai"].pieces(masked))
    assert "my key is" in "".join(HANDOVER_FORMATS["openai"].pieces(masked))
