"""People's ids and phone numbers, hidden from the model."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.model.redact import Redactor
from sessionary.model.source import Source

any_text = st.text(st.characters(exclude_categories=()), min_size=1, max_size=12)


REDACTOR = Redactor("salt")


def hashed(text: str) -> str:
    return sha256(f"salt{text}".encode()).hexdigest()[:12]


def test_a_user_id_becomes_user_and_twelve_hex_digits() -> None:
    assert REDACTOR.user_id("4915112345") == f"user_{hashed('4915112345')}"


def test_a_chat_id_keeps_its_prefix_up_to_the_first_colon() -> None:
    assert REDACTOR.chat_id("group:49:15") == f"group:{hashed('49:15')}"
    assert REDACTOR.chat_id("-100") == hashed("-100")


@pytest.mark.parametrize(
    "name", ["+4915112345", "4915112345", "+49 151-12 345", "\u202a+49 151 12345\u202c", " 1234567"]
)
def test_a_name_that_is_a_phone_number_is_hashed(name: str) -> None:
    assert REDACTOR.name(name) == REDACTOR.user_id(name)


@pytest.mark.parametrize("name", ["Ann", "123456", "Agent 0071234567", "+", "12-34", ""])
def test_a_name_that_is_no_phone_number_stays(name: str) -> None:
    assert REDACTOR.name(name) == name


@given(any_text)
def test_redaction_takes_any_text_and_is_always_the_same(text: str) -> None:
    for redact in (REDACTOR.user_id, REDACTOR.chat_id, REDACTOR.name):
        assert redact(text) == redact(text)


def test_a_redacted_source_shows_no_id_no_number_and_no_unknown_field() -> None:
    source = Source(
        "whatsapp",
        "4915112345@s.whatsapp.net",
        chat_id_alt="8877@lid",
        chat_name="+49 151 12345",
        user_id="4915112345@s.whatsapp.net",
        user_id_alt="8877@lid",
        user_name="4915112345@s.whatsapp.net",
        chat_topic="4915112345",
        extra={"push_number": "4915112345"},
    )

    redacted = REDACTOR.source(source)

    assert redacted.platform == "whatsapp"
    assert redacted.user_id == REDACTOR.user_id("4915112345@s.whatsapp.net")
    shown = f"{redacted!r} {redacted.description}"
    assert "12345" not in shown
    assert "8877" not in shown


def test_redaction_leaves_names_and_missing_fields_as_they_are() -> None:
    redacted = REDACTOR.source(Source("telegram", user_name="Ann", chat_name="Club", thread_id="7"))

    assert redacted == Source("telegram", user_name="Ann", chat_name="Club", thread_id="7")


def test_another_salt_gives_another_name() -> None:
    other = Redactor("another")

    assert other.user_id("4915112345") != REDACTOR.user_id("4915112345")
    assert other.key("main/signal/dm/chat=1") != REDACTOR.key("main/signal/dm/chat=1")


def test_redacting_gives_a_new_source_and_routing_keeps_the_old_one() -> None:
    source = Source("telegram", "5", user_id="7")

    REDACTOR.source(source)

    assert (source.chat_id, source.user_id) == ("5", "7")
