"""Messages as updates of the Agent Client Protocol; each is checked by the protocol's own schema."""

import base64
from typing import Any

import pytest
from acp.schema import SessionNotification

from sessionary.errors import BadInput
from sessionary.formats import acp_updates as updates
from sessionary.formats.acp_updates import MessageReader
from sessionary.model.message import (
    Attachment,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.store.tables.blobs import hash_of

Json = dict[str, Any]


def shown(
    *messages: Message, folder: str = "/project", files: dict[str, bytes] | None = None
) -> list[Json]:
    """What an editor is shown of messages, checked by the schema."""
    reader = MessageReader(folder)
    found: list[Json] = []
    for seq, message in enumerate(messages, 1):
        found += reader.updates(message, seq, id=f"s-{seq}", files=files or {})
    for each in found:
        SessionNotification.model_validate({"sessionId": "s", "update": each})
    return found


def call(name: str, arguments: Any, **more: Any) -> Message:
    return Message(Role.ASSISTANT, (ToolCall("c", name, arguments, **more),))


def result(content: Any, **more: Any) -> Message:
    return Message(Role.TOOL, (ToolResult("c", content, **more),))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Read", "read"),
        ("read_file", "read"),
        ("mcp__files__listDirectory", "search"),
        ("NotebookEdit", "edit"),
        ("apply_patch", "edit"),
        ("Bash", "execute"),
        ("WebFetch", "fetch"),
        ("TodoWrite", "think"),
        ("delete_file", "delete"),
        ("mv", "move"),
        ("frobnicate", "other"),
        ("", "other"),
        ("読む", "other"),
    ],
)
def test_the_kind_of_a_tool_is_guessed_from_the_words_of_its_name(name: str, kind: str) -> None:
    assert updates.tool_kind(name) == kind


def test_a_call_has_a_title_on_one_line_a_place_and_the_change_that_it_makes() -> None:
    arguments = {"file_path": "src/a.py", "old_string": "a\n", "new_string": "b\n", "line": 3}
    (begun,) = shown(call("Edit", arguments))
    assert begun["title"] == "Edit: src/a.py"
    assert begun["locations"] == [{"path": "/project/src/a.py", "line": 3}]
    (diff,) = begun["content"]
    assert (diff["path"], diff["oldText"], diff["newText"]) == ("/project/src/a.py", "a\n", "b\n")

    (new,) = shown(call("write_file", {"path": "/tmp/new", "content": "x"}))
    assert new["content"] == [{"type": "diff", "path": "/tmp/new", "newText": "x"}]
    (odd,) = shown(call("run", {"command": "a\nb\u202e" + "c" * 500}))
    assert len(odd["title"]) <= updates.LONGEST_TITLE
    assert "\n" not in odd["title"]


@pytest.mark.parametrize("arguments", [None, "text", [1], 5, {"path": 5}, {"edits": [1]}])
def test_arguments_of_any_shape_are_shown(arguments: Any) -> None:
    (begun,) = shown(call("edit", arguments))
    assert begun.get("rawInput") == arguments


def test_a_result_belongs_to_the_latest_call_with_its_id_and_may_come_alone() -> None:
    first, done, second, failed = shown(
        call("a", {}), result("one"), call("b", {}), result("two", is_error=True)
    )
    assert first["toolCallId"] != second["toolCallId"]
    assert (done["toolCallId"], done["status"]) == (first["toolCallId"], "completed")
    assert (failed["toolCallId"], failed["status"]) == (second["toolCallId"], "failed")

    (alone,) = shown(result([{"type": "text", "text": "three"}], name="c"))
    assert (alone["sessionUpdate"], alone["title"]) == ("tool_call", "c")
    assert alone["content"][0]["content"]["text"] == "three"
    (strange,) = shown(result({"a": 1}))
    assert strange["content"][0]["content"]["text"] == '{"a":1}'
    (empty,) = shown(result(""))
    assert empty["content"] == []


def test_a_long_output_is_cut_in_its_middle() -> None:
    (found,) = shown(result("x" * 1_000_000))
    assert len(found["content"][0]["content"]["text"]) <= updates.LONGEST_OUTPUT


def test_arguments_that_are_too_long_are_left_out() -> None:
    content = "x" * (updates.LONGEST_ARGUMENTS + 1)
    (begun,) = shown(call("write_file", {"path": "a", "content": content}))
    assert begun["title"] == "write_file"
    assert len(str(begun)) < 1000


def test_a_plan_that_a_tool_writes_is_shown_as_a_plan() -> None:
    steps = [{"step": "Look", "status": "done"}, {"step": "Change", "status": "in_progress"}]
    _, plan = shown(call("update_plan", {"plan": steps}))
    assert [each["status"] for each in plan["entries"]] == ["completed", "in_progress"]
    assert len(shown(call("update_plan", {"plan": [{"step": "?", "status": "who knows"}]}))) == 1

    text = "[x] Look\n[~] Change\n[ ] Test\nno mark"
    told = call("plan", {"plan": text}, extra={"acp": {"kind": "plan"}})
    (plan,) = shown(told, result(text))
    assert [each["status"] for each in plan["entries"]] == [
        "completed",
        "in_progress",
        "pending",
        "pending",
    ]


def test_blocks_of_a_prompt_are_shown_again_as_they_were() -> None:
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    blocks: list[Json] = [
        {"type": "text", "text": "Look"},
        {"type": "image", "data": image, "mimeType": "image/png"},
        {"type": "resource_link", "name": "a", "uri": "file:///a", "size": 5},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "</file>\n```x"}},
    ]
    parts, files = updates.read_blocks(blocks)
    found = shown(Message(Role.USER, parts), files={hash_of(files[0]): files[0]})
    assert [each["content"] for each in found] == blocks
    assert {each["sessionUpdate"] for each in found} == {"user_message_chunk"}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": "%"},
        {"type": "video", "data": "AA=="},
        {"type": "resource", "resource": {"uri": "x"}},
        {},
    ],
)
def test_a_block_that_cannot_be_read_is_refused(block: Json) -> None:
    with pytest.raises(BadInput, match="cannot be read; nothing was sent"):
        updates.read_blocks([block])


def test_files_that_are_not_shown_are_named_and_other_parts_are_left_out() -> None:
    message = Message(
        Role.ASSISTANT,
        (
            Reasoning(""),
            Text(""),
            Unknown({"type": "future"}),
            Attachment("0" * 64, "application/pdf", "a.pdf", 5),
            Attachment("0" * 64, "image/png", None, 5),
        ),
    )
    said = [each["content"]["text"] for each in shown(message)]
    assert said == ["[a.pdf, application/pdf]", "[file, image/png]"]
