"""Messages as programs write them: known forms are converted, anything else is refused."""

import base64
from pathlib import Path
from typing import Any

import pytest

from sessionary.errors import BadInput
from sessionary.formats.message_input import File, read_message
from sessionary.model.message import (
    Attachment,
    Entry,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.transcript import Chat, context
from sessionary.testing.fakes import FakeClock

PIXEL = b"\x89PNG\r\n\x1a\n not much of a picture"
BASE64 = base64.b64encode(PIXEL).decode()
DATA_URL = f"data:image/png;base64,{BASE64}"
PICTURE = {"type": "base64", "media_type": "image/png", "data": BASE64}
URL = "https://a.example/cat.png"

FORMS: dict[str, tuple[str, dict[str, Any], type]] = {
    "openai text": ("user", {"type": "text", "text": "hi"}, Text),
    "openai image": ("user", {"type": "image_url", "image_url": {"url": DATA_URL}}, Attachment),
    "openai image by address": ("user", {"type": "image_url", "image_url": {"url": URL}}, Text),
    "openai audio": (
        "user",
        {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}},
        Attachment,
    ),
    "openai file": (
        "user",
        {"type": "file", "file": {"filename": "a.pdf", "file_data": DATA_URL}},
        Attachment,
    ),
    "openai file in base64": (
        "user",
        {"type": "file", "file": {"filename": "a.pdf", "file_data": BASE64}},
        Attachment,
    ),
    "openai file by id": ("user", {"type": "file", "file": {"file_id": "file-1"}}, Text),
    "openai refusal": ("assistant", {"type": "refusal", "refusal": "no"}, Text),
    "responses input": ("user", {"type": "input_text", "text": "hi"}, Text),
    "responses output": ("assistant", {"type": "output_text", "text": "hi"}, Text),
    "responses image": ("user", {"type": "input_image", "image_url": DATA_URL}, Attachment),
    "responses image by id": ("user", {"type": "input_image", "file_id": "file-1"}, Text),
    "responses file": (
        "user",
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain,hi"},
        Attachment,
    ),
    "responses call": (
        "assistant",
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ToolCall,
    ),
    "responses result": (
        "tool",
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        ToolResult,
    ),
    "responses reasoning": (
        "assistant",
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        Reasoning,
    ),
    "anthropic thinking": (
        "assistant",
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        Reasoning,
    ),
    "anthropic call": (
        "assistant",
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ToolCall,
    ),
    "anthropic result": (
        "user",
        {"type": "tool_result", "tool_use_id": "c", "content": "done"},
        ToolResult,
    ),
    "anthropic image": ("user", {"type": "image", "source": PICTURE}, Attachment),
    "anthropic image by address": (
        "user",
        {"type": "image", "source": {"type": "url", "url": URL}},
        Text,
    ),
    "anthropic document": (
        "user",
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
        Attachment,
    ),
    "anthropic document of blocks": (
        "user",
        {
            "type": "document",
            "source": {"type": "content", "content": [{"type": "text", "text": "hi"}]},
        },
        Text,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_known_foreign_part_becomes_one_of_ours_that_the_model_reads(form: str) -> None:
    role, part, kind = FORMS[form]

    written = read_message(role, [part])

    assert [type(each) for each in written.message.parts] == [kind]
    call = read_message("assistant", [ToolCall("c", "f")]).message
    before = [call] if kind is ToolResult else []
    assert len(_context(*before, written.message)) == len(before) + (kind is not Reasoning) + (
        kind is ToolCall
    )
    if kind is Attachment:
        assert len(written.files) == 1


def test_an_image_that_is_only_an_address_is_named_to_the_model() -> None:
    part = {"type": "image_url", "image_url": {"url": URL}}

    written = read_message("user", [{"type": "text", "text": "look"}, part])

    assert _context(written.message) == [{"role": "user", "content": f"look\n[image: {URL}]"}]
    assert written.message.parts[1] == Text(f"[image: {URL}]", extra={"reference": part})


def test_a_result_in_a_message_of_the_user_stands_behind_its_call() -> None:
    call = read_message("assistant", [{"type": "tool_use", "id": "c", "name": "f", "input": {}}])
    result = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [{"type": "image", "source": PICTURE}],
    }
    answer = read_message("user", [result, {"type": "text", "text": "and now?"}])

    read = _context(call.message, answer.message)

    assert [chat["role"] for chat in read] == ["assistant", "tool", "user"]
    assert read[1]["tool_call_id"] == "c"
    content = read[2]["content"]
    assert not isinstance(content, str)
    assert [piece["type"] for piece in content] == ["text", "attachment"]


def test_a_file_beside_the_result_of_a_tool_is_named_in_it() -> None:
    call = read_message("assistant", [ToolCall("c", "draw")]).message
    result = {"type": "tool_result", "call_id": "c", "content": "drawn"}
    answer = read_message("tool", [result, File(PIXEL, name="cat.png")]).message

    assert _context(call, answer)[1]["content"] == "drawn\n[attachment: cat.png]"


@pytest.mark.parametrize("kind", ["txet", "image-url", "widget", "", None, 7])
def test_a_part_of_unknown_type_is_refused_with_the_known_ones(kind: Any) -> None:
    with pytest.raises(BadInput, match=r"Known: text, reasoning, .*image_url.*tool_use") as refused:
        read_message("user", [{"type": "text", "text": "hi"}, {"type": kind, "x": 1}])

    assert kind is None or repr(kind) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text"},
        {"type": "text", "text": 7},
        {"type": "reasoning"},
        {"type": "tool_call", "id": "c"},
        {"type": "tool_result"},
        {"type": "tool_result", "tool_use_id": 7},
        {"type": "attachment"},
        {"type": "attachment", "blob": "x", "size": "big"},
        {"type": "input_text"},
        {"type": "function_call", "name": "f"},
        {"type": "function_call", "call_id": "c"},
        {"type": "function_call_output"},
        {"type": "tool_use", "id": "c"},
        {"type": "thinking"},
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,***"}},
        {"type": "input_audio", "input_audio": {"data": "***", "format": "wav"}},
        {"type": "file", "file": {"file_data": "***"}},
        {"type": "image", "source": {}},
        "just words",
        ["a"],
        None,
    ],
)
def test_a_part_that_lacks_something_is_refused(part: Any) -> None:
    with pytest.raises(BadInput, match="nothing was written"):
        read_message("assistant", [part])


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("tool", "09:30"),
        ("tool", [{"type": "text", "text": "09:30"}]),
        ("user", [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]),
        ("user", [{"type": "thinking", "thinking": "hm"}]),
        ("system", [{"type": "tool_result", "call_id": "c"}]),
    ],
)
def test_a_part_that_the_model_would_not_read_in_this_role_is_refused(
    role: str, content: Any
) -> None:
    with pytest.raises(BadInput, match=f"role {role}"):
        read_message(role, content)


@pytest.mark.parametrize("part", [{"type": "text", "text": "a", "cache_control": {"type": "x"}}])
def test_further_fields_of_our_parts_are_kept(part: dict[str, Any]) -> None:
    assert read_message("user", [part]).message.parts == (
        Text("a", extra={"cache_control": {"type": "x"}}),
    )


def test_an_unknown_part_is_written_only_on_purpose() -> None:
    given = Unknown({"type": "widget", "x": 1})

    assert read_message("user", [given]).message.parts == (given,)


def test_a_file_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("a,b\n1,2\n")

    written = read_message(
        "user", [File(path), File(str(path), "text/plain", "b.txt"), File(PIXEL)]
    )

    first, second, third = written.message.parts
    assert isinstance(first, Attachment)
    assert isinstance(second, Attachment)
    assert isinstance(third, Attachment)
    assert (first.name, first.media_type, first.size) == ("notes.csv", "text/csv", 8)
    assert (second.name, second.media_type) == ("b.txt", "text/plain")
    assert (third.name, third.media_type) == (None, "image/png")
    assert written.files == (path.read_bytes(), path.read_bytes(), PIXEL)


@pytest.mark.parametrize("given", [b"", "no/such/file"])
def test_a_file_that_is_not_there_or_empty_is_refused(given: Any) -> None:
    with pytest.raises(BadInput, match="nothing was written"):
        read_message("user", [File(given)])


def _context(*message: Message) -> list[Chat]:
    now = FakeClock().now()
    return context([Entry("s", seq, now, each) for seq, each in enumerate(message, 1)])
