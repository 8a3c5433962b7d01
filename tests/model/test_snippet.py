"""The stretch of a message that shows why it was found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.model.query import parse
from sessionary.model.snippet import CLOSE, OPEN, snippet, spans_in


@pytest.mark.parametrize(
    ("text", "typed", "shown"),
    [
        ("The quick brown fox", "quick", "The ⟦quick⟧ brown fox"),
        ("The quick brown fox", '"quick brown"', "The ⟦quick brown⟧ fox"),
        ("don't panic", "don't", "⟦don't⟧ panic"),
        ("I write C++ daily", "C++", "I write ⟦C++⟧ daily"),
        ("call getUserName()", "user", "call get⟦User⟧Name()"),
        ("a => b", "=>", "a ⟦=>⟧ b"),
        ("数据库连接", "据库", "数⟦据库⟧连接"),
        ("naïve Café", "CAFE", "naïve ⟦Café⟧"),
        ("two\nlines\there", "lines", "two ⟦lines⟧ here"),
        ("nothing of it", "else", "nothing of it"),
        ("reading and readers", "read*", "⟦reading⟧ and ⟦readers⟧"),
    ],
)
def test_the_words_that_were_found_are_marked(text: str, typed: str, shown: str) -> None:
    assert snippet(text, parse(typed)) == shown


def test_a_long_text_is_cut_around_the_match() -> None:
    text = "start " + "filler " * 500 + "the needle is here " + "filler " * 500

    found = snippet(text, parse("needle"))

    assert f"{OPEN}needle{CLOSE}" in found
    assert found.startswith("…")
    assert found.endswith("…")
    assert len(found) < 200


@given(st.text(max_size=300), st.text(max_size=20))
def test_a_snippet_of_anything_is_one_line(text: str, typed: str) -> None:
    found = snippet(text, parse(typed))

    assert "\n" not in found
    assert found.count(OPEN) - text.count(OPEN) <= len(found)


@given(st.text(max_size=200))
def test_spans_are_in_order_and_within_the_text(text: str) -> None:
    spans = spans_in(text, parse(text[:40]))

    assert all(0 <= begin < end <= len(text) for begin, end in spans)
    assert spans == sorted(spans)
