"""Parts of a message: every one goes to JSON and back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.model import message
from sessionary.model.message import (
    Attachment,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)

TEXT = st.text(max_size=8)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
EXTRA = st.dictionaries(st.sampled_from(["cache", "citations", "x"]), JSON, max_size=2)
PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, TEXT, extra=EXTRA),
    st.builds(Reasoning, TEXT, details=JSON, extra=EXTRA),
    st.builds(ToolCall, TEXT, TEXT, arguments=JSON, extra=EXTRA),
    st.builds(ToolResult, TEXT, JSON, st.none() | TEXT, is_error=st.booleans(), extra=EXTRA),
    st.builds(Attachment, TEXT, TEXT, st.none() | TEXT, st.none() | st.integers(0), extra=EXTRA),
)
ANYTHING = st.dictionaries(
    st.sampled_from(["type", "text", "id", "name", "call_id", "blob", "size", "is_error", "z"]),
    JSON | st.sampled_from(["text", "reasoning", "tool_call", "tool_result", "attachment"]),
)


@given(PARTS)
def test_a_part_goes_to_json_and_back(made: Part) -> None:
    """0, null, false and empty included."""
    again = message.from_json(message.to_json(made))

    assert again == made
    assert type(again) is type(made)


@given(ANYTHING)
def test_whatever_dictionary_comes_in_goes_out_again(data: dict[str, Any]) -> None:
    """Unknown data round-trips."""
    made = message.from_json(data)
    out = message.to_json(made)

    assert message.from_json(out) == made
    if isinstance(made, Unknown):
        assert out == data
    else:
        assert all(data[name] == out.get(name, data[name]) for name in data)


@pytest.mark.parametrize(
    "data",
    [
        {"type": "hologram"},
        {"no": "type"},
        {"type": 7, "text": "x"},
        {"type": ["text"], "text": "x"},
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "tool_call", "id": 1, "name": "x"},
        {"type": "tool_result", "call_id": "c", "is_error": "yes"},
        {"type": "attachment", "blob": "x", "size": "large"},
    ],
)
def test_what_does_not_fit_is_kept_as_it_came(data: dict[str, Any]) -> None:
    assert message.from_json(data) == Unknown(data)


@pytest.mark.parametrize("data", ["text", 7, None, ["text"]])
def test_what_is_no_object_is_refused(data: Any) -> None:
    with pytest.raises(BadInput, match="JSON object"):
        message.from_json(data)


def test_the_words_of_a_message_are_its_texts() -> None:
    parts = (Text("a"), Reasoning("thinking"), ToolCall("1", "x"), Text("b"), Unknown({}))

    assert message.text_of(parts) == "a\nb"
