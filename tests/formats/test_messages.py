"""Messages as models' interfaces write them, read as parts."""

import base64
from typing import Any

from sessionary.formats import anthropic_blocks, openai_items
from sessionary.formats.parts import Content

PIXEL = b"\x89PNG\r\n\x1a\n not much of a picture"
PIXEL_TEXT = base64.b64encode(PIXEL).decode()


def test_blocks_of_a_message_become_parts() -> None:
    content = Content()
    anthropic_blocks.add(
        content,
        [
            {"type": "text", "text": "look"},
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
            {"type": "image", "source": image()},
            {"type": "novelty", "x": 1},
        ],
    )

    assert [part["type"] for part in content.parts] == [
        "text",
        "reasoning",
        "tool_call",
        "attachment",
        "novelty",
    ]
    assert content.blobs == [PIXEL]


def test_the_images_of_a_result_stand_beside_it() -> None:
    content = Content()
    blocks = [{"type": "text", "text": "a"}, {"type": "image", "source": image()}]
    block = {"type": "tool_result", "tool_use_id": "t1", "content": blocks, "is_error": True}
    anthropic_blocks.add(content, [block])

    assert content.parts[0] == {
        "type": "tool_result",
        "call_id": "t1",
        "content": "a",
        "is_error": True,
    }
    assert content.parts[1]["type"] == "attachment"
    assert content.blobs == [PIXEL]


def test_items_of_a_response_become_parts() -> None:
    content = Content()
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL_TEXT}"}
    items: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "look"}, picture]},
        {"type": "reasoning", "summary": [{"text": "hm"}], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "k"}]},
    ]

    roles = [openai_items.add_item(content, item) for item in items]

    assert roles == ["user", "assistant", "assistant", "tool", "assistant"]
    assert content.parts[1]["media_type"] == "image/png"
    assert content.parts[3:5] == [
        {"type": "tool_call", "id": "c1", "name": "f", "arguments": {"a": 1}},
        {"type": "tool_result", "call_id": "c1", "content": "done"},
    ]


def test_an_address_that_is_no_data_is_kept_and_not_fetched() -> None:
    content = Content()
    openai_items.add(content, [{"type": "image_url", "image_url": {"url": "https://a.example/x"}}])

    assert content.parts == [{"type": "image_url", "image_url": {"url": "https://a.example/x"}}]


def test_a_tool_of_the_provider_is_called_by_its_kind() -> None:
    content = Content()
    items: list[dict[str, Any]] = [
        {"type": "web_search_call", "id": "w1", "action": {"query": "tides"}},
        {"type": "local_shell_call", "call_id": "s1", "action": {"command": ["ls"]}},
        {"type": "mcp_call", "id": "m1", "name": "look", "arguments": '{"at": "sea"}'},
        {"type": "web_search_call", "status": "completed"},
    ]

    roles = [openai_items.add_item(content, item) for item in items]

    assert roles == ["assistant"] * 4
    called = [(part["id"], part["name"], part["arguments"]) for part in content.parts[:3]]
    assert called == [
        ("w1", "web_search", {"query": "tides"}),
        ("s1", "local_shell", {"command": ["ls"]}),
        ("m1", "look", {"at": "sea"}),
    ]
    assert content.parts[3] == items[3]


def image() -> dict[str, str]:
    return {"type": "base64", "media_type": "image/png", "data": PIXEL_TEXT}
