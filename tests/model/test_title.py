"""Titles and previews."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.model.terminal import is_hidden
from sessionary.model.title import (
    MAX_PREVIEW,
    MAX_TITLE,
    beginnings,
    clean_title,
    derive_title,
    matches_continuation,
    next_number,
    numbered_base,
    preview,
    with_number,
)

any_text = st.text(
    st.characters(exclude_categories=()) | st.sampled_from(" \t\n#3\u200b\u202e\ud800*`é語"),
    max_size=140,
)
titles = st.one_of(
    any_text.map(lambda text: clean_title(text[:MAX_TITLE])),
    st.integers(80, 100).map(lambda length: "x" * length),
    st.builds("{} #{}".format, st.sampled_from(["a", "b c"]), st.integers(0, 10**10)),
).filter(lambda title: title is not None)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("  two\t words \n here ", "two words here"),
        ("a\x00b\x1b[31mc\x7f\x9b", "ab[31mc"),
        ("zero\u200bwidth\ufeff\u2060", "zerowidth"),
        ("\u202egpj.exe\u2066\u200f", "gpj.exe"),
        ("a \u200b b", "a b"),
        ("line\u2028separator", "line separator"),
        ("tag\U000e0041\U000e007f", "tag"),
        ("half \ud83d emoji", "half \ufffd emoji"),
        ("plain ❤️ 東京", "plain ❤️ 東京"),
    ],
)
def test_a_title_keeps_only_what_can_be_seen_on_one_line(text: str, title: str) -> None:
    assert clean_title(text) == title


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u200b\u202e", "\x00"])
def test_a_title_with_nothing_to_see_is_none(text: str) -> None:
    assert clean_title(text) is None


def test_a_title_is_counted_after_cleaning_and_refused_with_the_count() -> None:
    assert clean_title(" " + "x\u200b" * 100) == "x" * 100
    with pytest.raises(BadInput, match="101"):
        clean_title("x" * 101)


@given(any_text)
def test_cleaning_a_clean_title_changes_nothing(text: str) -> None:
    title = clean_title(text[:MAX_TITLE])

    assert title is None or clean_title(title) == title


@given(any_text)
def test_a_title_and_a_preview_hide_nothing(text: str) -> None:
    for shown in (clean_title(text[:MAX_TITLE]), preview(text), derive_title(text)):
        assert not any(map(is_hidden, shown or ""))
        assert shown is None or shown == " ".join(shown.split())


@pytest.mark.parametrize(
    ("title", "parts"),
    [
        ("name", ("name", None)),
        ("name #3", ("name", 3)),
        ("name #2 #3", ("name #2", 3)),
        ("name #007", ("name", 7)),
        ("name #", ("name #", None)),
        ("name #3a", ("name #3a", None)),
        ("name #٣", ("name #٣", None)),
        ("name #1234567890", ("name #1234567890", None)),
        ("name#3", ("name#3", None)),
        ("#3", ("#3", None)),
    ],
)
def test_only_digits_after_a_space_and_a_hash_number_a_title(
    title: str, parts: tuple[str, int | None]
) -> None:
    assert numbered_base(title) == parts


@pytest.mark.parametrize(
    ("title", "number"),
    [
        ("bug #12", 12),
        ("bug #12 crash notes", None),
        ("bug", None),
        ("bugs #2", None),
        ("a bug #2", None),
        ("Bug #2", None),
    ],
)
def test_a_name_means_its_numbered_continuations_and_nothing_else(
    title: str, number: int | None
) -> None:
    assert matches_continuation("bug", title) == number


def next_title(title: str, taken: Collection[str]) -> str:
    return with_number(title, next_number(title, taken))


@pytest.mark.parametrize(
    ("title", "taken", "expected"),
    [
        ("name", [], "name #2"),
        ("name", ["name"], "name #2"),
        ("name", ["name", "name #2", "name #7"], "name #8"),
        ("name #2", [], "name #3"),
        ("name #2", ["name #9", "other #40", "name #50 x"], "name #10"),
        ("x" * 100, [], "x" * 97 + " #2"),
        ("x" * 96 + " #99", [], "x" * 95 + " #100"),
        ("x" * 96 + " y", [], "x" * 96 + " #2"),
        ("x" * 99 + "y", ["x" * 97 + " #2"], "x" * 97 + " #3"),
        ("name", ["name #999999999"], "name #1000000000"),
        ("name", ["name #007"], "name #8"),
    ],
)
def test_the_next_title_has_the_next_number_and_a_base_that_fits(
    title: str, taken: list[str], expected: str
) -> None:
    assert next_title(title, taken) == expected


@given(titles, st.lists(titles, max_size=8))
def test_the_next_title_is_clean_short_and_free(title: str, others: list[str]) -> None:
    taken = {title, *others}
    for _ in range(12):
        following = next_title(title, taken)
        assert following not in taken
        assert clean_title(following) == following
        taken.add(following)


@given(titles, st.lists(titles, max_size=8), st.lists(st.integers(1, 10**9 - 1), max_size=8))
def test_the_last_with_each_number_of_digits_tells_the_next(
    title: str, others: list[str], numbers: list[int]
) -> None:
    base, _ = numbered_base(title)
    taken = [*others, *(with_number(title, number) for number in numbers)]
    last = [
        max(found)
        for beginning, fewest, most in beginnings(base)
        for digits in range(fewest, most + 1)
        if (found := [each for each in taken if _has(each, beginning, digits)])
    ]

    assert next_title(title, last) == next_title(title, taken)


def _has(title: str, beginning: str, digits: int) -> bool:
    number = title.removeprefix(beginning)
    is_number = number.isascii() and number.isdigit() and len(number) == digits
    return title.startswith(beginning) and is_number


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello there", "Hello there"),
        ("\n\n# Plan for May\n\nFirst we", "Plan for May"),
        ("- **Buy milk**\n- bread", "Buy milk"),
        ("```python\nprint(1)\n```\nwhy?", "print(1)"),
        ("```", "```"),
        ("", None),
        (" \u200b\n", None),
        (
            "Please explain to me why the sky is blue and the sea is green at noon",
            "Please explain to me why the sky is blue and the sea is…",
        ),
        ("x" * 200, "x" * 59 + "…"),
        ("a" * 5 + " " + "b" * 200, "a" * 5 + " " + "b" * 53 + "…"),
    ],
)
def test_a_derived_title_is_the_first_words_of_the_message(text: str, title: str | None) -> None:
    assert derive_title(text) == title


@given(any_text)
def test_a_derived_title_is_always_one_that_a_person_could_have_set(text: str) -> None:
    """An automatic title never fails."""
    title = derive_title(text)

    assert title is None or clean_title(title) == title


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("two\n lines", "two lines"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("\n" * 10_000 + "late", "late"),
        ("bad \ud800 half", "bad \ufffd half"),
        ("\x1b]0;own\x07ed", "]0;owned"),
    ],
)
def test_a_preview_is_the_first_words_on_one_line(text: str, shown: str) -> None:
    assert preview(text) == shown


@given(any_text)
def test_a_preview_is_never_longer_than_its_sixty_characters(text: str) -> None:
    assert len(preview(text)) <= MAX_PREVIEW
    preview(text).encode()
