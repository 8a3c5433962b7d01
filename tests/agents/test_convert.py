"""Between our messages and those of the library: nothing is lost, nothing is made up."""

import ast
import hashlib
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.usage import RequestUsage

import sessionary
from sessionary import prices
from sessionary.agents import provider
from sessionary.errors import NotFound
from sessionary.model.message import (
    Attachment,
    Entry,
    Message,
    Reasoning,
    Text,
    ToolCall,
    Unknown,
    message,
)
from sessionary.model.transcript import Chat, ChatAttachment, context
from sessionary.model.usage import CostStatus, Usage
from sessionary.testing.fakes import START
from sessionary.testing.runner_suite import no_blob

MAY_IMPORT_THE_LIBRARY = {"provider", "tools", "mcp_tools"}


def used(response: ModelResponse, base_url: str | None = None) -> Usage:
    return provider.usage_of(response, call_id="c", at=START, base_url=base_url, task=None)


def response(*parts: Any, **fields: Any) -> ModelResponse:
    return ModelResponse(parts=list(parts), **fields)


async def read_again(original: Message) -> ModelResponse:
    chats = context([Entry("s", 1, START, message("user", "hi")), Entry("s", 2, START, original)])
    found = await provider.history("", chats, no_blob)
    assert isinstance(found[1], ModelResponse)
    return found[1]


def test_only_these_modules_import_the_library() -> None:
    package = Path(sessionary.__file__).parent
    found = {path.stem for path in package.rglob("*.py") if imports_library(path)}

    assert found <= MAY_IMPORT_THE_LIBRARY | integrations(package)


def imports_library(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.name for each in node.names}
    return any(name.partition(".")[0] == "pydantic_ai" for name in modules)


def integrations(package: Path) -> set[str]:
    """Those speak other libraries' languages by profession."""
    return {path.stem for path in (package / "integrations").rglob("*.py")}


async def test_signed_thoughts_go_back_as_they_came() -> None:
    thoughts = (
        ThinkingPart("one\ntwo", signature="s1", provider_name="anthropic"),
        ThinkingPart("", id="redacted_thinking", signature="s2", provider_name="anthropic"),
        ThinkingPart("three", provider_name="anthropic"),
    )
    converted = provider.message_of(
        response(*thoughts, TextPart("so"), canonical_system="anthropic")
    )

    again = await read_again(converted)

    assert list(again.parts) == [*thoughts, TextPart("so")]
    assert (again.provider_name, again.canonical_system) == ("anthropic", "anthropic")


@pytest.mark.parametrize("details", [None, {"type": "reasoning.text"}, {"length": 99}, "x"])
async def test_thoughts_that_nobody_signed_are_not_sent_back(details: Any) -> None:
    new_message = message("assistant", [Reasoning("hm", details=details), Text("so")])

    assert (await read_again(new_message)).parts == [TextPart("so")]


async def test_a_result_finds_the_name_of_its_tool() -> None:
    new_message = message("assistant", [ToolCall("c1", "look", {"a": 1})])
    chats = context([Entry("s", 1, START, new_message)])
    chats[1].pop("tool_name")

    _, request = await provider.history("", chats, no_blob)

    (part,) = request.parts
    assert isinstance(part, ToolReturnPart)
    assert (part.tool_name, part.tool_call_id) == ("look", "c1")


async def test_the_system_prompt_stands_first_and_other_notes_where_they_were() -> None:
    chats: list[Chat] = [{"role": "user", "content": ""}, {"role": "system", "content": "note"}]

    (request,) = await provider.history("Be kind.", chats, no_blob)

    assert isinstance(request, ModelRequest)
    kinds = [part.part_kind for part in request.parts]
    assert kinds == ["system-prompt", "user-prompt", "system-prompt"]
    assert isinstance(request.parts[2], SystemPromptPart)


async def test_an_attachment_that_is_gone_is_named() -> None:
    async def gone(_: str) -> bytes:
        raise NotFound("gone")

    piece: ChatAttachment = {
        "type": "attachment",
        "blob": "b",
        "media_type": "image/png",
        "name": "a.png",
    }

    found = await provider.history("", [{"role": "user", "content": [piece]}], gone)

    assert "a.png (image/png): no longer kept" in str(found)


def test_what_we_do_not_know_is_kept() -> None:
    converted = provider.message_of(response(NativeToolCallPart("web_search", {"q": "tea"})))

    (part,) = converted.parts
    assert isinstance(part, Unknown)
    assert part.data["data"]["args"] == {"q": "tea"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [('{"a":1}', {"a": 1}), ("", {}), (None, {}), ("[1]", "[1]"), ("{", "{"), ({"a": 1}, {"a": 1})],
)
def test_arguments_are_an_object_or_kept_as_they_came(given: Any, kept: Any) -> None:
    assert provider.arguments_of(ToolCallPart("look", given)) == kept


def test_a_known_model_has_a_price() -> None:
    tokens = RequestUsage(input_tokens=1500, cache_read_tokens=500, output_tokens=100)
    model_response = response(
        TextPart("x"), model_name="gpt-4o", provider_name="openai", usage=tokens
    )

    usage = used(model_response)

    assert (usage.input_tokens, usage.cache_read_tokens) == (1000, 500)
    assert usage.cost_status is CostStatus.ESTIMATED
    assert usage.cost_microusd
    assert usage.price_source == "genai-prices"


def test_a_known_name_on_another_server_has_no_price() -> None:
    tokens = RequestUsage(input_tokens=1500, output_tokens=100)
    model_response = response(
        TextPart("x"), model_name="gpt-4o", provider_name="openai", usage=tokens
    )

    usage = used(model_response, base_url="http://127.0.0.1:1/v1")

    assert (usage.cost_microusd, usage.provider) == (None, "127.0.0.1")
    assert prices.priced(usage, at=START).cost_microusd is None


def test_what_is_cached_for_an_hour_is_priced_as_such() -> None:
    tokens = RequestUsage(
        input_tokens=100_000, cache_write_tokens=100_000, cache_write_1h_tokens=100_000
    )

    usage = used(response(TextPart("x"), model_name="claude-sonnet-4-5", usage=tokens))

    assert (usage.cache_write_tokens, usage.cost_microusd) == (100_000, 600_000)


def test_a_cost_that_the_provider_reports_is_taken() -> None:
    tokens = RequestUsage(input_tokens=1, cost=Decimal("0.0000125"))

    usage = used(response(TextPart("x"), model_name="gpt-4o", usage=tokens))

    assert (usage.cost_microusd, usage.cost_status) == (13, CostStatus.REPORTED)


def test_a_long_result_is_cut_visibly() -> None:
    text = provider.result_content({"at": timedelta(0), "x": "y" * 100}, longest=50).text

    assert text.endswith("characters were left out]")
    assert len(text) < 100


def test_files_of_a_result_are_named_where_they_were() -> None:
    jpeg = BinaryContent(b"\xff\xd8\xff...", media_type="image/png")
    pdf = BinaryContent(b"%PDF-1.7", media_type="application/pdf")
    drawing = BinaryContent(b"<svg/>", media_type="image/svg+xml")
    sound = BinaryContent(b"\x00\x01", media_type="audio/x-odd")
    large = BinaryContent(bytes(provider.LARGEST_ATTACHMENT + 1), media_type="video/mp4")
    empty = BinaryContent(b"", media_type="image/png")

    given = ["A photo:", jpeg, {"and": "more"}, pdf, drawing, sound, large, empty]
    content = provider.result_content(given, longest=1_000)

    assert content.text.splitlines() == [
        "A photo:",
        "[attachment: image-1.jpg]",
        '{"and":"more"}',
        "[attachment: file-2.pdf]",
        "[attachment: file-3.txt]",
        "[attachment: audio-4.x-odd]",
        f"[video/mp4, {len(large.data)} bytes: too large to keep]",
        "[image/png, 0 bytes: empty]",
    ]
    assert content.files == (jpeg.data, pdf.data, drawing.data, sound.data)
    assert [(each.media_type, each.size) for each in content.attachments] == [
        ("image/jpeg", 6),
        ("application/pdf", 8),
        ("text/plain", 6),
        ("audio/x-odd", 2),
    ]


async def test_a_file_of_a_tool_that_cannot_be_shown_is_a_text() -> None:
    async def blob(name: str) -> bytes:
        if name == "gone":
            raise NotFound("gone")
        return b"notes"

    files: list[ChatAttachment] = [
        {"type": "attachment", "blob": "gone", "media_type": "image/png", "name": "a.png"},
        {"type": "attachment", "blob": "b", "media_type": "text/plain", "name": "b.txt"},
    ]
    chat: Chat = {"role": "tool", "tool_call_id": "1", "content": "Done.", "attachments": files}

    (request,) = await provider.history("", [chat], blob)

    (part,) = request.parts
    assert isinstance(part, ToolReturnPart)
    assert part.content == (
        "Done.\n[attachment a.png (image/png): no longer kept]\n"
        "[attachment b.txt (text/plain)]\nnotes"
    )


def test_a_picture_that_the_model_made_is_kept() -> None:
    picture = BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")
    made = response(
        TextPart("Here:"), FilePart(picture), FilePart(BinaryContent(b"", media_type="x/y"))
    )

    answer = provider.ModelAnswer(made, provider.message_of(made), ())

    text, attached, empty = answer.message.parts
    assert (text, empty) == (Text("Here:"), Text("[the model made a file of 0 bytes: x/y]"))
    assert isinstance(attached, Attachment)
    assert (attached.name, attached.media_type) == ("image-1.png", "image/png")
    assert [hashlib.sha256(data).hexdigest() for data in answer.files] == [attached.blob]
