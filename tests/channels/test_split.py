"""Cutting long texts: nothing is lost, fences stay whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.channels.base import utf16_units
from sessionary.engine.outbox import split_text

WORDS = st.lists(st.text(alphabet="abc😀é", min_size=1, max_size=30), max_size=80)


@given(WORDS, st.integers(40, 120), st.sampled_from([" ", "\n", "\n\n"]))
def test_every_word_arrives_in_order_and_every_piece_fits(
    words: list[str], longest: int, sign: str
) -> None:
    pieces = split_text(sign.join(words), longest, measure=utf16_units)

    assert "".join("".join(pieces).split()) == "".join(words)
    assert all(utf16_units(piece) <= longest for piece in pieces)


@given(st.lists(st.text(alphabet="xyz(){}", max_size=20), min_size=1, max_size=60))
def test_code_that_is_cut_is_code_in_every_piece(lines: list[str]) -> None:
    code = "\n".join(lines)

    pieces = split_text(f"```py\n{code}\n```", 100)

    assert all(len(piece) <= 100 for piece in pieces)
    if len(pieces) > 1:
        assert all(piece.startswith("```py\n") and piece.endswith("```") for piece in pieces)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("\n\n", []),
        ("short", ["short"]),
        ("x" * 45, ["x" * 22, "x" * 23]),
        ("one two three four five six seven", ["one two three four", "five six seven"]),
        ("first paragraph here\n\nthe second one", ["first paragraph here", "the second one"]),
    ],
)
def test_a_text_is_cut_where_a_reader_would_pause(text: str, pieces: list[str]) -> None:
    assert split_text(text, 30) == pieces


def test_a_character_of_two_units_is_never_torn() -> None:
    pieces = split_text("😀" * 50, 21, measure=utf16_units)

    assert "".join(pieces) == "😀" * 50
    assert all(utf16_units(piece) <= 21 for piece in pieces)


@pytest.mark.parametrize(
    "fence",
    ["```", "~~~", "```{ls}```", "```" + "x" * 5000, "~~~" + "y" * 300, "`" * 400, "```ls -l```\n"],
)
def test_an_odd_fence_neither_repeats_nor_loses_text(fence: str) -> None:
    """What stands beside the marks may be the code itself, in one line of any length."""
    words = [f"word{number}" for number in range(1500)]

    pieces = split_text(f"{fence}{' '.join(words)}\n```\nafter it", 1000)

    assert len(pieces) < 40
    assert all(len(piece) <= 1000 for piece in pieces)
    joined = " ".join(pieces)
    assert all(joined.count(f"{word} ") + joined.count(f"{word}\n") == 1 for word in words)


def test_what_opens_and_closes_in_one_line_is_no_fence() -> None:
    line = "```" + "x" * 30 + " " + "y" * 30 + "```"

    pieces = split_text(f"{line}\n{'word ' * 40}", 60)

    assert not any(piece.startswith("```\n") for piece in pieces)
