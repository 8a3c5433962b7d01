"""Lines of the log: every body goes to JSON and back."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.model import codec
from sessionary.model import message as entry
from sessionary.model.message import (
    Body,
    Compaction,
    Entry,
    Message,
    Retraction,
    Role,
    Text,
    ToolCall,
    Unknown,
    message,
)
from sessionary.model.source import Person
from tests.model.test_part import JSON, PARTS, TEXT

PEOPLE = st.builds(
    Person, st.text(min_size=1, max_size=5), alt_id=st.none() | st.just("u"), name=st.none() | TEXT
)
MESSAGES = st.builds(
    Message,
    st.sampled_from(Role),
    st.lists(PARTS, max_size=3).map(tuple),
    person=st.none() | PEOPLE,
    model=st.none() | TEXT,
    finish_reason=st.none() | TEXT,
    token_count=st.none() | st.integers(0, 9),
    platform_message_id=st.none() | TEXT,
    extra=st.dictionaries(TEXT, JSON, max_size=2),
)
BODIES: st.SearchStrategy[Body] = st.one_of(
    MESSAGES,
    st.builds(Compaction, TEXT, st.integers(1, 9), st.booleans()),
    st.builds(Retraction, st.integers(0, 9), TEXT),
)


@given(BODIES)
def test_a_body_goes_to_json_and_back(body: Body) -> None:
    role = body.role if isinstance(body, Message) else None
    text = codec.encode(entry.body_to_json(body))

    again = entry.body_from_json(entry.kind_of(body), role, codec.decode(text))

    assert again == body
    assert type(again) is type(body)


@given(MESSAGES)
def test_a_message_that_was_read_is_as_frozen_as_one_that_was_made(
    made: Message,
) -> None:
    data = entry.body_to_json(made)
    again = entry.body_from_json("message", made.role, data)

    with pytest.raises(AttributeError):
        again.role = Role.TOOL  # type: ignore[misc, union-attr]
    assert repr(again) == repr(made)


def test_an_entry_s_name_never_changes() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)

    assert Entry("abc", 7, at, message("user", "x")).id == "abc-7"


@pytest.mark.parametrize("role", ["", "User", "robot", None])
def test_an_unknown_role_is_refused(role: Any) -> None:
    with pytest.raises(BadInput, match="user, assistant, system, tool"):
        message(role, "x")


@pytest.mark.parametrize("content", [None, 7, {"type": "text"}, b"x"])
def test_a_message_is_a_text_or_parts(content: Any) -> None:
    with pytest.raises(BadInput, match="list of parts"):
        message("user", content)


def test_a_message_is_made_of_what_callers_have() -> None:
    made = message("assistant", [{"type": "text", "text": "a"}, Text("b"), {"odd": 1}], model="m")

    assert made.parts == (Text("a"), Text("b"), Unknown({"odd": 1}))
    assert (made.text, made.model, made.tool_calls) == ("a\nb", "m", 0)
    assert message("assistant", [ToolCall("1", "x"), ToolCall("2", "y")]).tool_calls == 2


def test_an_unknown_kind_of_entry_is_refused() -> None:
    with pytest.raises(BadInput, match="poem"):
        entry.body_from_json("poem", None, {})


def test_an_old_retraction_without_a_reason_was_an_undo() -> None:
    assert entry.body_from_json("retraction", None, {"after": 3}) == Retraction(3, "undo")


@pytest.mark.parametrize(
    "parts",
    [({"type": "text", "text": "hi"},), [Text("hi")], "hi", (None,)],
    ids=["dictionaries", "a list", "a text", "nothing"],
)
def test_a_message_of_something_else_than_parts_fails_where_it_is_made(parts: Any) -> None:
    with pytest.raises(BadInput, match="parts of a Message"):
        Message(Role.USER, parts)


def test_a_message_whose_role_is_a_text_fails_where_it_is_made() -> None:
    with pytest.raises(BadInput, match="not 'user'"):
        Message("user", (Text("hi"),))  # type: ignore[arg-type]
