"""How Markdown becomes MarkdownV2, and how long texts become several messages."""

import hypothesis
import pytest
from hypothesis import strategies

from sessionary.channels.split import utf16_units
from sessionary.channels.telegram import markdown, outbound
from sessionary.model.message import Attachment, Part, Reasoning, Text
from tests.support import fake_telegram_text as telegram


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("hello", "hello"),
        ("1 + 1 = 2!", r"1 \+ 1 \= 2\!"),
        ("**bold** and *it* and ~~gone~~", "*bold* and _it_ and ~gone~"),
        ("# A **big** one.", r"*A big one\.*"),
        ("`a\\b`", "`a\\\\b`"),
        ("```python\nx = '`'\n```", "```python\nx = '\\`'\n```"),
        ("```c++ title=x\ny\n```", "```c++\ny\n```"),
        ("Run this:\n```ls -l\n```", "Run this:\n\n```\nls -l\n```"),
        ("- a\n- b\n  - c", "• a\n• b\n  • c"),
        ("3. a\n4. b", "3\\. a\n4\\. b"),
        ("[a_b](http://x/(y))", r"[a\_b](http://x/(y\))"),
        ("> said\n> twice", ">said\n>twice"),
        ("a\n\nb\nc", "a\n\nb\nc"),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("<b>&amp;</b>", r"<b\>&</b\>"),
        ("    indented", "indented"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```"),
        ("![cat](http://x)", r"cat \(http://x\)"),
        ("***both***", "_*both*_"),
    ],
)
def test_markdown_as_telegram_writes_it(written: str, sent: str) -> None:
    assert markdown.render(written) == sent
    telegram.shown(markdown.render(written), "MarkdownV2")


@hypothesis.given(strategies.text(alphabet="ab _*[]()~`>#+-=|{}.!\\\n1&<:", max_size=60))
def test_telegram_takes_every_rendering(text: str) -> None:
    telegram.shown(markdown.render(text), "MarkdownV2")


@hypothesis.given(strategies.text(max_size=200))
def test_every_word_is_still_there(text: str) -> None:
    for piece in outbound.texts(text):
        assert piece.plain.strip()
        piece.plain.encode()


def test_a_long_text_is_cut_into_messages_that_fit() -> None:
    text = "\n\n".join(f"paragraph {number} " + "word " * 50 for number in range(60))

    pieces = outbound.texts(text)

    assert len(pieces) > 3
    assert all(utf16_units(piece.plain) <= outbound.LONGEST for piece in pieces)
    assert " ".join(piece.plain for piece in pieces).split() == text.split()


def test_a_fence_that_is_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line({number})" for number in range(1000))

    pieces = outbound.texts(f"See:\n```python\n{code}\n```")

    assert len(pieces) > 1
    for piece in pieces:
        assert piece.plain.count("```") == 2
        assert piece.markup is not None
        telegram.shown(piece.markup, "MarkdownV2")
    assert pieces[1].plain.startswith("```python\n")


def test_emoji_are_counted_as_telegram_counts_them() -> None:
    pieces = outbound.texts("😀" * 3000)

    assert [utf16_units(piece.plain) <= 4096 for piece in pieces] == [True] * len(pieces)
    assert "".join(piece.plain for piece in pieces) == "😀" * 3000


@pytest.mark.parametrize("text", ["", "  \n ", "\x00\x01", "\n\n"])
def test_what_says_nothing_is_not_sent(text: str) -> None:
    assert outbound.texts(text) == []


def test_half_a_character_is_replaced_visibly() -> None:
    assert outbound.texts("a\ud800b")[0].plain == "a\ufffdb"


def test_thoughts_are_not_sent_and_files_come_last() -> None:
    file = Attachment("0" * 64, name="a.pdf")
    parts: tuple[Part, ...] = (Reasoning("hm"), file, Text("see"))

    assert outbound.pieces(parts) == [*outbound.texts("see"), file]


def test_a_piece_that_was_too_long_comes_in_halves() -> None:
    piece = outbound.texts("word " * 500)[0]

    halves = outbound.halves(piece)

    assert len(halves) == 2
    assert " ".join(half.plain for half in halves).split() == piece.plain.split()
