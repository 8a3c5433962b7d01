"""The pieces that several importers share: times, contents, model calls."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from hansard.formats import anthropic_blocks, openai_items
from hansard.importers import calls, times
from hansard.importers.content import Content
from hansard.model.usage import CostStatus

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PIXEL = b"\x89PNG\r\n\x1a\n not much of a picture"
PIXEL_TEXT = base64.b64encode(PIXEL).decode()


@pytest.mark.parametrize(
    "written",
    [
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:00:00.000Z",
        "2026-03-01 12:00:00",
        "2026-03-01T14:00:00+02:00",
        NOON.timestamp(),
        int(NOON.timestamp() * 1000),
        int(NOON.timestamp() * 1_000_000),
        str(int(NOON.timestamp())),
    ],
)
def test_a_time_is_understood_however_it_is_written(written: object) -> None:
    assert times.of(written) == NOON


@pytest.mark.parametrize(
    "rubbish",
    [None, "", "soon", True, -1, 0, 1e300, float("nan"), [], "99999-01-01", "inf", 10**40],
)
def test_what_is_no_time_is_none(rubbish: object) -> None:
    assert times.of(rubbish) is None


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
    told = [{"type": "text", "text": "a"}, {"type": "image", "source": image()}]
    block = {"type": "tool_result", "tool_use_id": "t1", "content": told, "is_error": True}
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


def test_a_call_that_counted_nothing_is_no_call() -> None:
    assert calls.one("tool", "1", input=None, output="many", dollars=0) == ()


def test_what_a_tool_thinks_a_call_cost_is_an_estimate() -> None:
    (used,) = calls.one("tool", "1", model="m", input=10, output=5, dollars=0.25)

    assert (used.cost_microusd, used.cost_status) == (250_000, CostStatus.ESTIMATED)
    assert (used.call_id, used.input_tokens, used.output_tokens) == ("tool:1", 10, 5)


def image() -> dict[str, str]:
    return {"type": "base64", "media_type": "image/png", "data": PIXEL_TEXT}
