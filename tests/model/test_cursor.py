"""A place in a list."""

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.model.session import Cursor

TIMES = st.integers(-(2**62), 2**62)


@given(TIMES, st.integers(0, 2**62))
def test_printing_and_parsing_are_inverse(at: int, no: int) -> None:
    text = str(Cursor(at, no))

    assert Cursor.parse(text) == Cursor(at, no)
    assert text.isascii()
    assert "=" not in text


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.integers(0, 2**62))
def test_a_place_behind_a_name_is_printed_and_parsed_too(name: str, no: int) -> None:
    assert Cursor.parse(str(Cursor(name, no))) == Cursor(name, no)


@given(st.text())
def test_whatever_is_typed_is_a_cursor_or_refused(text: str) -> None:
    parsed = None
    with contextlib.suppress(BadInput):
        parsed = Cursor.parse(text)

    assert parsed is None or Cursor.parse(str(parsed)) == parsed


@pytest.mark.parametrize("plain", ["9223372036854775808.1", "1.9223372036854775808", "1", "a.b"])
def test_a_number_no_database_holds_is_refused(plain: str) -> None:
    text = base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")

    with pytest.raises(BadInput):
        Cursor.parse(text)


def test_the_beginning_is_before_everything_and_a_time_excludes_itself() -> None:
    assert (Cursor.first().at, Cursor.first().no) > (2**61, 2**61)
    until = Cursor.first(until=100)
    assert (99, 2**61) < (until.at, until.no) < (100, 1)
