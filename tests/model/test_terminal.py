"""Text that others wrote, made safe to show (S19)."""

import pytest
import wcwidth
from hypothesis import given
from hypothesis import strategies as st

from sessionary.model.terminal import display_width, fit, is_hidden, one_line, safe_terminal

JOINERS = "\u200c\u200d"
any_text = st.text(
    st.characters(exclude_categories=())
    | st.sampled_from("\x1b[]\x07\r\n\t\x9b\u202e\u2066\ud800語e\u0301👩\u200d"),
    max_size=40,
)


@given(any_text, st.booleans())
def test_nothing_that_steers_a_terminal_gets_through(text: str, keep_newlines: bool) -> None:
    """S19."""
    shown = safe_terminal(text, keep_newlines=keep_newlines)

    allowed = JOINERS + ("\n" if keep_newlines else "")
    assert not any(is_hidden(char) for char in shown if char not in allowed)
    shown.encode()


@pytest.mark.parametrize(
    "char", "\x00\x7f\x9b\u00ad\u034f\u061c\u200b\u2028\u3164\ufe00\U000e0041\U000e0080\U000e0100"
)
def test_a_character_that_shows_nothing_is_hidden(char: str) -> None:
    """S16, S19."""
    assert is_hidden(char)


@pytest.mark.parametrize("char", "a é語\u0301\ufe0f😀\u00a0\ue000")
def test_a_character_that_shows_something_is_not_hidden(char: str) -> None:
    assert not is_hidden(char)


@given(any_text, st.booleans())
def test_making_safe_text_safe_changes_nothing(text: str, keep_newlines: bool) -> None:
    """S19."""
    shown = safe_terminal(text, keep_newlines=keep_newlines)

    assert safe_terminal(shown, keep_newlines=keep_newlines) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x9b31m", "<U+009B>31m"),
        ("a\x7fb\x00", "a␡b␀"),
        ("over\rwrite", "over␍write"),
        ("two\nlines", "two␊lines"),
        ("a\tb", "a b"),
        ("\u202egpj.exe", "<U+202E>gpj.exe"),
        ("zero\u200bwidth\U000e0041", "zerowidth"),
        ("half\ud800", "half\ufffd"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d🚀 ❤️ 東京", "👩\u200d🚀 ❤️ 東京"),
    ],
)
def test_what_would_steer_is_shown_as_a_sign_or_left_out(text: str, shown: str) -> None:
    """S19."""
    assert safe_terminal(text) == shown


def test_newlines_and_indentation_stay_when_asked_for() -> None:
    """S19."""
    text = "if x:\r\n\treturn\rno\u2028yes"

    assert safe_terminal(text, keep_newlines=True) == "if x:\n    return␍no<U+2028>yes"


@given(any_text, st.integers(1, 20))
def test_one_line_is_visible_text_within_its_limit(text: str, limit: int) -> None:
    """S16."""
    line = one_line(text, limit)

    assert len(line) <= limit
    assert not any(map(is_hidden, line))
    assert one_line(line, limit) == line


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("abc", 3),
        ("東京", 4),
        ("e\u0301", 1),
        ("ｱ", 1),
        ("Ａ", 2),
        ("\u200b", 0),
        ("한", 2),
        ("", 0),
        ("Übung…", 6),
        ("❤️", 2),
        ("👍🏽", 2),
        ("🇩🇪", 2),
        ("👨\u200d👩\u200d👧\u200d👦", 2),
        ("a\nb", 2),
    ],
)
def test_the_width_of_text_is_counted_in_columns(text: str, columns: int) -> None:
    assert display_width(text) == columns


def test_the_fast_way_to_count_columns_agrees_with_the_library() -> None:
    for char in map(chr, range(0x2100)):
        if char.isprintable():
            assert display_width(char) == wcwidth.width(char, control_codes="ignore"), hex(
                ord(char)
            )


@pytest.mark.parametrize(
    ("text", "width", "cell"),
    [
        ("ab", 4, "ab  "),
        ("abcd", 4, "abcd"),
        ("abcde", 4, "abc…"),
        ("東京都", 4, "東… "),
        ("e\u0301tude", 3, "e\u0301t…"),
        ("👨\u200d👩\u200d👧\u200d👦 ab", 4, "👨\u200d👩\u200d👧\u200d👦 …"),
        ("a👍🏽b", 3, "a… "),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("\x1b[2J", 5, "␛[2J "),
    ],
)
def test_a_cell_is_padded_or_cut_to_its_columns(text: str, width: int, cell: str) -> None:
    assert fit(text, width) == cell


@given(any_text, st.integers(0, 30))
def test_every_cell_has_exactly_its_columns(text: str, width: int) -> None:
    assert display_width(fit(text, width)) == width
