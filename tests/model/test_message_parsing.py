"""The fast parser of a message gives what the full one gives, or leaves it to the full one."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.model import codec
from sessionary.model.message import (
    Entry,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    body_from_json,
    body_to_json,
    encode_body,
    message_entry,
    reader,
)
from sessionary.model.source import Person, Source, source_as_stored

AT = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
words = st.text(st.characters(codec="utf-8"), max_size=30)
maybe = st.none() | words
messages = st.builds(
    Message,
    st.sampled_from(Role),
    st.lists(st.builds(Text, words), max_size=3).map(tuple),
    person=st.none() | st.builds(Person, words.filter(bool), maybe, maybe),
    model=maybe,
    finish_reason=maybe,
    token_count=st.none() | st.integers(0, 2**60),
    platform_message_id=maybe,
    extra=st.dictionaries(words, words, max_size=2),
)


@given(messages, maybe)
def test_both_ways_read_the_same_entry(message: Message, turn_id: str | None) -> None:
    text = codec.encode(body_to_json(message))

    quick = message_entry("s", 7, AT, turn_id, role=message.role, body=reader().decode(text))
    slow = Entry("s", 7, AT, body_from_json("message", message.role, codec.decode(text)), turn_id)

    assert quick == slow
    assert type(quick) is Entry
    assert type(quick.body) is Message


@given(messages)
def test_both_ways_write_the_same_text(message: Message) -> None:
    assert encode_body(message) == codec.encode(body_to_json(message))


def test_a_text_that_has_no_utf_8_form_is_written_in_escapes() -> None:
    message = Message(Role.USER, (Text("\ud800"),))

    assert encode_body(message) == '{"parts":[{"type":"text","text":"\\ud800"}]}'


@pytest.mark.parametrize(
    "message",
    [
        Message(Role.ASSISTANT, (Text("a"), ToolCall("1", "look"))),
        Message(Role.ASSISTANT, (Reasoning("hm"),)),
        Message(Role.USER, (Text("a", {"colour": "red"}),)),
    ],
)
def test_what_is_more_than_text_takes_the_long_way(message: Message) -> None:
    decode, failure = reader()

    with pytest.raises(failure):
        decode(codec.encode(body_to_json(message)))


def test_a_value_read_quickly_is_as_frozen_as_any_other() -> None:
    body = reader().decode('{"parts":[{"type":"text","text":"a"}]}')
    entry = message_entry("s", 1, AT, None, role="user", body=body)

    with pytest.raises(AttributeError):
        entry.seq = 2  # type: ignore[misc]


@given(st.builds(Source, words.filter(bool), maybe, chat_name=maybe, user_id=maybe))
def test_a_stored_source_is_the_source(source: Source) -> None:
    assert source_as_stored(source.to_json()) == Source.from_json(source.to_json()) == source
