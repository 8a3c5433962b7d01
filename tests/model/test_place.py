"""Where messages come from and go to."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.model.source import Channel, ChatType, Person, Source, escape, unescape

any_char = st.characters(exclude_categories=())
any_text = st.text(any_char | st.sampled_from("/=:%\x00\n \u202e\ud800\udc00é語"), max_size=12)
some_text = any_text.filter(bool)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KNOWN = [
    "chat_name",
    "user_id",
    "user_name",
    "thread_id",
    "chat_topic",
    "user_id_alt",
    "chat_id_alt",
    "platform_message_id",
]
sources = st.builds(
    Source,
    platform=some_text,
    chat_id=st.none() | any_text,
    chat_type=st.sampled_from(["dm", "group", "channel", "thread", "forum"]) | some_text,
    extra=st.dictionaries(
        st.text(max_size=8).filter(lambda name: name not in {*KNOWN, "platform", "chat_id"}),
        json_values,
        max_size=3,
    ),
    **{name: st.none() | any_text for name in KNOWN},
)


@given(any_text, st.sampled_from(["", ":", "#/=$*,"]))
def test_escaped_text_is_visible_valid_utf8_and_comes_back(text: str, keep: str) -> None:
    printed = escape(text, keep=keep)

    assert printed.isprintable()
    assert not any(char.isspace() for char in printed)
    printed.encode()
    assert unescape(printed) == text


def test_letters_of_any_script_stay_readable_when_escaped() -> None:
    assert escape("Zürich-東京_Ωμ.कि") == "Zürich-東京_Ωμ.कि"


@pytest.mark.parametrize("char", "\u200b\u202e\u3164\u00a0\u2028\ufeff\ufe0f\U000e0041\x9b")
def test_a_character_nobody_can_see_is_escaped(char: str) -> None:
    assert escape(char).isascii()


@pytest.mark.parametrize("text", ["%", "%4", "50%", "%zz", "%FF", "a%C3"])
def test_a_broken_escape_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        unescape(text)


@given(st.builds(Channel, some_text, some_text, st.none() | some_text))
def test_a_printed_channel_reads_back_as_itself(channel: Channel) -> None:
    assert Channel.parse(str(channel)) == channel


@pytest.mark.parametrize(
    ("text", "channel"),
    [
        ("telegram:-100", Channel("telegram", "-100")),
        ("telegram:-100:7", Channel("telegram", "-100", "7")),
        ("slack:#general", Channel("slack", "#general")),
        ("matrix:!room%3Aexample.org", Channel("matrix", "!room:example.org")),
    ],
)
def test_a_channel_reads_and_prints_as_platform_chat_thread(text: str, channel: Channel) -> None:
    assert Channel.parse(text) == channel
    assert str(channel) == text


def test_a_channel_typed_with_plain_signs_needs_no_escapes() -> None:
    assert Channel.parse("email:Ann <ann@example.org>").chat_id == "Ann <ann@example.org>"


@pytest.mark.parametrize("text", ["", "telegram", "telegram:", ":5", "a:b:", "a::c", "a:b:c:d"])
def test_a_channel_with_a_part_missing_or_too_many_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        Channel.parse(text)


def test_a_number_given_as_an_id_becomes_text() -> None:
    assert Source.from_json({"platform": "telegram", "chat_id": -1001234567890123}).chat_id == (
        "-1001234567890123"
    )
    assert Source("telegram", 5).chat_id == "5"  # type: ignore[arg-type]
    assert Source.from_json({"platform": "x", "user_id": 7.0}).user_id == "7"
    assert Channel("telegram", 5, 0).thread_id == "0"  # type: ignore[arg-type]
    assert Person(5).id == "5"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [True, False, 1.5, 2.0**60, float("nan"), float("inf"), [1], {}, b"5", 10**100]
)
def test_what_cannot_be_an_id_is_refused(value: Any) -> None:
    with pytest.raises(BadInput):
        Source.from_json({"platform": "telegram", "chat_id": value})


@pytest.mark.parametrize("platform", [None, "", 5, True, ["telegram"]])
def test_a_source_must_name_its_platform(platform: Any) -> None:
    with pytest.raises(BadInput):
        Source.from_json({"platform": platform})


@pytest.mark.parametrize("data", [None, [], "telegram", 5])
def test_a_source_and_a_person_are_json_objects(data: Any) -> None:
    with pytest.raises(BadInput):
        Source.from_json(data)
    with pytest.raises(BadInput):
        Person.from_json(data)


@given(sources)
def test_a_source_round_trips_through_json_text(source: Source) -> None:
    assert Source.from_json(json.loads(json.dumps(source.to_json()))) == source


def test_two_halves_of_a_character_are_the_character_before_and_after_json() -> None:
    assert Source("web", "\ud83d\ude00") == Source("web", "😀")


@given(st.builds(Person, some_text, st.none() | any_text, st.none() | any_text))
def test_a_person_round_trips_through_json_text(person: Person) -> None:
    assert Person.from_json(json.loads(json.dumps(person.to_json()))) == person


def test_unknown_platforms_chat_types_and_fields_are_kept() -> None:
    data = {"platform": "carrier-pigeon", "chat_type": "loft", "wind": {"knots": 7}, "extra": [1]}

    assert Source.from_json(data).to_json() == data


def test_fields_without_a_value_are_left_out_of_the_json() -> None:
    source = Source(platform="web", chat_id="alice", user_name="")

    assert source.to_json() == {"platform": "web", "chat_id": "alice", "chat_type": "dm"}


def test_an_extra_field_cannot_stand_in_for_a_known_one() -> None:
    with pytest.raises(BadInput):
        Source("web", extra={"chat_id": "other"})


def test_changing_the_mapping_that_was_given_does_not_change_the_source() -> None:
    extra = {"wind": 7}
    source = Source("web", extra=extra)

    extra["wind"] = 8

    assert source.extra == {"wind": 7}


def test_equal_sources_hash_alike() -> None:
    assert len({Source("web", "a", extra={"n": 1}), Source("web", "a", extra={"n": 1})}) == 1


@pytest.mark.parametrize(
    ("source", "description"),
    [
        (Source("terminal", "cli", thread_id="5"), "terminal"),
        (Source("telegram", "5", user_name="Ann", user_id="7"), "DM with Ann"),
        (Source("telegram", "5", user_id="7"), "DM with 7"),
        (Source("telegram", "5"), "DM with user"),
        (Source("telegram", "5", user_name="Ann", thread_id="9"), "DM with Ann, thread: 9"),
        (Source("telegram", "5", chat_type=ChatType.GROUP, chat_name="Club"), "group: Club"),
        (Source("telegram", "5", chat_type="group"), "group: 5"),
        (Source("slack", "C1", chat_type="channel", chat_name="ops"), "channel: ops"),
        (Source("slack", "C1", chat_type="channel", thread_id="1.2"), "channel: C1, thread: 1.2"),
        (Source("discord", "5", chat_type="thread", chat_name="bugs"), "bugs"),
        (Source("discord", "5", chat_type="forum"), "5"),
        (Source("discord", chat_type="group"), "group: discord"),
    ],
)
def test_a_source_describes_itself_for_people(source: Source, description: str) -> None:
    assert source.description == description


def test_a_source_gives_its_channel_and_its_person() -> None:
    source = Source(
        "signal", "+49", user_id="+49", user_id_alt="uuid-1", user_name="Ann", thread_id="3"
    )

    assert source.channel == Channel("signal", "+49", "3")
    assert source.person == Person("+49", "uuid-1", "Ann")
    assert source.person.stable_id == "uuid-1"


def test_a_source_without_ids_has_neither_channel_nor_person_but_a_speaker() -> None:
    source = Source("webhook", user_name="Ann")

    assert source.channel is None
    assert source.person is None
    assert source.speaker == "Ann"


def test_a_person_known_by_the_alternative_id_only_has_that_id() -> None:
    assert Source("signal", user_id_alt="uuid-1").person == Person("uuid-1", "uuid-1")
