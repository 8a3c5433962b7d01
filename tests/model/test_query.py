"""What people type is understood, and can be shown back."""

from datetime import UTC, datetime

import pytest

from sessionary.model.query import Filters, literal, parse

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("apple pear", "apple, pear"),
        ('"red apple" pear', "“red apple”, pear"),
        ("apple OR pear plum", "apple or pear, plum"),
        ("apple -pear", "apple, not pear"),
        ("app*", "app…"),
        ("-apple", "apple"),
        ("OR", "OR"),
        ("apple OR", "apple, OR"),
        ("-5 --flag", "-5, --flag"),
        ("=>", "=>"),
        ("role:user apple", "apple, role user"),
        ("apple -from:ann", "apple, not “from:ann”"),
        ("apple NOT from:ann", "apple, not “from:ann”"),
        ("role:nobody", "“role:nobody”"),
        ("source:web in:Shed tool:shell", "source web, project Shed, tool shell"),
        ('in:"My Shed" x', "x, project My Shed"),
        ("before:2026-01-31 x", "x, before 2026-01-31 00:00"),
        ("after:7d x", "x, after 2026-02-23 12:00"),
        ("before:yesterday", "“before:yesterday”"),
        ('he said "never" twice', "he, said, never, twice"),
        ('5" pipe', '5", pipe'),
        ("", "nothing to look for"),
        (" \t\n", "nothing to look for"),
    ],
)
def test_a_query_is_shown_back_in_words(typed: str, text: str) -> None:
    assert parse(typed, now=NOW).describe() == text


def test_only_what_looks_like_operators_is_also_read_to_the_letter() -> None:
    assert literal(parse("plain words")) is None
    read = literal(parse("role:user -x"))
    assert read is not None
    assert read.filters == Filters()
    assert [word.text for word in read.groups[0][0].words] == ["role", "user", "x"]


def test_a_very_long_query_is_cut_between_words() -> None:
    asked = parse("word " * 5_000)

    assert len(asked.text) <= 4_096
    assert asked.text.endswith("word")
    assert len(asked.groups) <= 32


def test_relaxed_means_any_of_the_words() -> None:
    assert parse("a b c -d").relaxed().describe() == "a or b or c, not d"
