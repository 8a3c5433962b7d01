"""Which conversation a source belongs to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.model.source import (
    Isolation,
    SessionKey,
    Source,
    explain,
    is_shared,
    key_for,
    validate_profile,
)

any_text = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("/=:%\x00\n \u202e\ud800é語57"),
    min_size=1,
    max_size=8,
)
few_texts = st.sampled_from(["5", "7", "a/b", "a", "chat=5", "5/thread=7", "%", "%25", "é", "x:y"])
texts = few_texts | any_text
keys = st.builds(
    SessionKey,
    profile=st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,5}", fullmatch=True),
    platform=texts,
    chat_type=st.sampled_from(["dm", "group"]) | texts,
    chat=st.none() | texts,
    thread=st.none() | texts,
    person=st.none() | texts,
)
APART = Isolation(isolate_people_in_threads=True)
TOGETHER = Isolation(isolate_people_in_groups=False)
LID = "8877@lid"
PHONE = "4915112345@s.whatsapp.net"


def printed(source: Source, isolation: Isolation | None = None) -> str:
    return str(key_for(source, isolation=isolation))


def test_a_dm_has_one_key_per_chat_for_all_its_writers() -> None:
    assert printed(Source("telegram", "5", user_id="7")) == "main/telegram/dm/chat=5"


def test_a_dm_has_one_key_per_thread_of_the_chat() -> None:
    assert printed(Source("telegram", "5", thread_id="9")) == "main/telegram/dm/chat=5/thread=9"


@pytest.mark.parametrize(
    ("source", "key"),
    [
        (Source("email", user_id="ann", thread_id="9"), "main/email/dm/person=ann"),
        (Source("signal", user_id="+49", user_id_alt="u1"), "main/signal/dm/person=u1"),
        (Source("email", thread_id="9"), "main/email/dm/thread=9"),
        (Source("email"), "main/email/dm"),
        (Source("email", "", user_id="ann"), "main/email/dm/person=ann"),
    ],
)
def test_a_dm_without_a_chat_id_goes_by_person_then_thread(source: Source, key: str) -> None:
    assert printed(source) == key


@pytest.mark.parametrize("chat_type", ["group", "channel", "forum"])
def test_people_in_a_group_have_a_key_each_while_isolation_is_on(chat_type: str) -> None:
    source = Source("telegram", "-100", chat_type=chat_type, user_id="7")

    assert printed(source) == f"main/telegram/{chat_type}/chat=-100/person=7"
    assert printed(source, TOGETHER) == f"main/telegram/{chat_type}/chat=-100"


def test_people_in_a_thread_share_a_key_unless_threads_isolate_too() -> None:
    source = Source("telegram", "-100", chat_type="group", thread_id="7", user_id="8")

    assert printed(source) == "main/telegram/group/chat=-100/thread=7"
    assert printed(source, APART) == "main/telegram/group/chat=-100/thread=7/person=8"


def test_a_chat_that_is_itself_a_thread_counts_as_inside_a_thread() -> None:
    source = Source("discord", "33", chat_type="thread", user_id="8")

    assert printed(source) == "main/discord/thread/chat=33"
    assert printed(source, APART) == "main/discord/thread/chat=33/person=8"


def test_the_alternative_id_is_the_person_when_there_is_one() -> None:
    source = Source("signal", "g", chat_type="group", user_id="+49", user_id_alt="uuid-1")

    assert key_for(source).person == "uuid-1"


@pytest.mark.parametrize("chat_type", ["dm", "group", "channel", "thread"])
def test_without_identifiers_there_is_one_key_per_platform_and_chat_type(chat_type: str) -> None:
    assert printed(Source("irc", chat_type=chat_type)) == f"main/irc/{chat_type}"


@given(keys)
def test_a_printed_key_reads_back_as_itself(key: SessionKey) -> None:
    assert SessionKey.parse(str(key)) == key


@given(keys, keys)
def test_no_two_different_keys_print_alike(one: SessionKey, other: SessionKey) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(keys)
def test_a_printed_key_is_plain_printable_text(key: SessionKey) -> None:
    text = str(key)

    text.encode()
    assert text.isprintable()
    assert " " not in text


@given(st.text(st.sampled_from("main/telegramdm=%25chat5") | st.characters(), max_size=30))
def test_any_text_is_a_key_as_printed_or_is_refused(text: str) -> None:
    try:
        key = SessionKey.parse(text)
    except BadInput:
        return
    assert str(key) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "main/telegram",
        "main//dm",
        "main/telegram/",
        "Main/telegram/dm",
        "main/telegram/dm/",
        "main/telegram/dm/chat=",
        "main/telegram/dm/chat",
        "main/telegram/dm/room=5",
        "main/telegram/dm/chat=5/chat=6",
        "main/telegram/dm/thread=7/chat=5",
        "main/telegram/dm/chat=a=b",
        "main/telegram/dm/chat=%41",
        "main/telegram/dm/chat=%c3%a9",
        "main/telegram/dm/chat=%FF",
        "main/telegram/dm/chat=a b",
    ],
)
def test_a_text_that_no_key_prints_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        SessionKey.parse(text)


def test_look_alike_sources_have_different_keys() -> None:
    group = "group"
    alike = [
        Source("t", "5"),
        Source("t", thread_id="5"),
        Source("t", user_id="5"),
        Source("t", "5", chat_type=group),
        Source("t", chat_type=group, thread_id="5"),
        Source("t", chat_type=group, user_id="5"),
        Source("t", "5/thread=7", chat_type=group),
        Source("t", "5", chat_type=group, thread_id="7"),
        Source("t", "5", chat_type=group, user_id="7"),
        Source("t", "!room:example.org"),
        Source("t", "!room", thread_id="example.org"),
    ]

    assert len({printed(source) for source in alike}) == len(alike)


def test_a_matrix_room_id_stays_readable_in_a_key() -> None:
    assert printed(Source("matrix", "!r:a.org")) == "main/matrix/dm/chat=!r:a.org"


def test_the_profile_is_the_first_label() -> None:
    key = key_for(Source("web", "alice"), profile="work")

    assert str(key) == "work/web/dm/chat=alice"


@pytest.mark.parametrize("name", ["main", "a", "0", "team-2.x_y", "a" * 64])
def test_a_good_profile_name_is_given_back(name: str) -> None:
    assert validate_profile(name) == name


@pytest.mark.parametrize("name", ["", "Main", "-a", ".a", "a/b", "a b", "é", "a\n", "a" * 65])
def test_a_profile_name_that_could_hide_or_escape_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="1 to 64"):
        validate_profile(name)
    with pytest.raises(BadInput):
        key_for(Source("web", "alice"), profile=name)


@pytest.mark.parametrize(
    "notation",
    [
        PHONE,
        "4915112345:12@s.whatsapp.net",
        "4915112345_1:12@s.whatsapp.net",
        "4915112345@c.us",
        "4915112345:3@C.US",
        "+4915112345",
        "4915112345",
        "+4915112345@s.whatsapp.net",
    ],
)
def test_the_notations_of_one_whatsapp_person_give_one_key(notation: str) -> None:
    assert key_for(Source("whatsapp", notation)) == key_for(Source("whatsapp", PHONE))
    group = Source("whatsapp", "1@g.us", chat_type="group", user_id=notation)
    assert key_for(group).person == PHONE


def test_a_whatsapp_lid_loses_its_device_but_is_no_phone_number() -> None:
    assert key_for(Source("whatsapp", "8877:12@lid")).chat == LID
    assert key_for(Source("whatsapp", "8877@s.whatsapp.net")).chat != LID


@pytest.mark.parametrize(
    "source",
    [
        Source("whatsapp", LID, chat_id_alt=PHONE),
        Source("whatsapp", PHONE, chat_id_alt=LID),
        Source("whatsapp", "8877:2@lid", chat_id_alt="+4915112345"),
        Source("whatsapp", LID, user_id=LID, user_id_alt=PHONE),
        Source("whatsapp", LID, user_id=PHONE, user_id_alt=LID),
    ],
)
def test_a_lid_becomes_the_phone_number_that_comes_with_it(source: Source) -> None:
    assert key_for(source) == key_for(Source("whatsapp", PHONE))


@pytest.mark.parametrize(("user_id", "alt"), [(LID, PHONE), (PHONE, LID), (PHONE, None)])
def test_a_group_member_with_lid_and_phone_is_one_person(user_id: str, alt: str | None) -> None:
    source = Source("whatsapp", "1@g.us", chat_type="group", user_id=user_id, user_id_alt=alt)

    assert key_for(source).person == PHONE


@pytest.mark.parametrize(
    "chat_id", ["120363-1600@g.us", "120363@g.us", "status@broadcast", "5@newsletter", "7"]
)
def test_a_whatsapp_group_keeps_its_id(chat_id: str) -> None:
    assert key_for(Source("whatsapp", chat_id, chat_type="group")).chat == chat_id


def test_ids_of_other_platforms_are_never_rewritten() -> None:
    assert key_for(Source("signal", "+4915112345")).chat == "+4915112345"


@pytest.mark.parametrize(
    ("source", "isolation", "shared"),
    [
        (Source("telegram", "5", user_id="7"), Isolation(), False),
        (Source("email", user_id="7"), Isolation(), False),
        (Source("email"), Isolation(), True),
        (Source("terminal"), Isolation(), False),
        (Source("t", "5", chat_type="group", user_id="7"), Isolation(), False),
        (Source("t", "5", chat_type="group", user_id="7"), TOGETHER, True),
        (Source("t", "5", chat_type="group"), Isolation(), True),
        (Source("t", "5", chat_type="group", user_id="7", thread_id="1"), Isolation(), True),
        (Source("t", "5", chat_type="group", user_id="7", thread_id="1"), APART, False),
    ],
)
def test_a_key_is_shared_when_several_people_may_be_behind_it(
    source: Source, isolation: Isolation, shared: bool
) -> None:
    assert is_shared(source, isolation) is shared


@given(
    st.builds(
        Source,
        st.sampled_from(["telegram", "whatsapp"]),
        st.none() | texts,
        chat_type=st.sampled_from(["dm", "group", "thread", "forum"]),
        user_id=st.none() | texts,
        thread_id=st.none() | texts,
    ),
    st.builds(Isolation, st.booleans(), st.booleans()),
)
def test_the_explanation_ends_with_the_key_that_the_rule_gives(
    source: Source, isolation: Isolation
) -> None:
    lines = explain(source, profile="work", isolation=isolation)

    assert lines[-1] == f"key: {key_for(source, profile='work', isolation=isolation)}"
    assert all(line.isprintable() for line in lines)


def test_the_explanation_names_the_setting_that_decided() -> None:
    source = Source("telegram", "-100", chat_type="group", thread_id="7", user_id="8")

    assert explain(source) == [
        "profile main, platform telegram",
        "group: one key per chat",
        "it has a thread id: one key per thread",
        "in a thread, isolate_people_in_threads is off: people share the key",
        "key: main/telegram/group/chat=-100/thread=7",
    ]
