"""The rule that both indexes implement."""

import pytest

from sessionary.model.query import matches, parse


@pytest.mark.parametrize(
    ("typed", "text", "does"),
    [
        ("apple", "An APPLE a day", True),
        ("app", "apple", False),
        ("app*", "apple", True),
        ('"a b"', "a, b", True),
        ('"a b"', "b a", False),
        ('"a b"', "a c b", False),
        ("a b", "b c a", True),
        ("a -b", "a b", False),
        ("a OR b", "b", True),
        ("C++", "plain C", False),
        ("C++", "modern C++17", True),
        ("user name", "getUserName", True),
        ('"user name"', "getUserName", True),
        ('"name get"', "getUserName getOther", False),
        ("数", "大数据", True),
        ("数据", "大数据", True),
        ("据数", "大数据", False),
        ("=>", "a => b", True),
        ("=>", "a =>b", False),
    ],
)
def test_a_query_matches_a_text_or_not(typed: str, text: str, does: bool) -> None:
    assert matches(parse(typed), text) is does
