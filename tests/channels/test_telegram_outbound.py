"""How Markdown becomes MarkdownV2, and how long texts become several messages."""

import hypothesis
import pytest
from hypothesis import strategies

from sessionary.channels.base import CardPiece, printable, utf16_units
from sessionary.channels.telegram import TelegramSettings, outbound
from sessionary.channels.telegram.adapter import TelegramAdapter
from sessionary.config.secret import Secret
from sessionary.engine.outbox import split_text
from sessionary.model.message import Attachment, Part, Reasoning, Text
from sessionary.model.source import Channel
from sessionary.testing.channel_world import delivery_to
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
    assert outbound.render(written) == sent
    telegram.shown(outbound.render(written), "MarkdownV2")


@hypothesis.given(strategies.text(alphabet="ab _*[]()~`>#+-=|{}.!\\\n1&<:", max_size=60))
def test_telegram_takes_every_rendering(text: str) -> None:
    telegram.shown(outbound.render(text), "MarkdownV2")


def split(text: str) -> list[str]:
    return split_text(text, outbound.LONGEST, measure=utf16_units)


@hypothesis.given(strategies.text(max_size=200))
def test_every_word_is_still_there(text: str) -> None:
    for piece in split(printable(text)):
        assert piece.strip()
        piece.encode()


def test_a_long_text_is_cut_into_messages_that_fit() -> None:
    text = "\n\n".join(f"paragraph {number} " + "word " * 50 for number in range(60))

    pieces = split(text)

    assert len(pieces) > 3
    assert all(utf16_units(piece) <= outbound.LONGEST for piece in pieces)
    assert " ".join(pieces).split() == text.split()


def test_a_fence_that_is_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line({number})" for number in range(1000))

    pieces = split(f"See:\n```python\n{code}\n```")

    assert len(pieces) > 1
    for piece in pieces:
        assert piece.count("```") == 2
        markup = outbound.markup_of(piece)
        assert markup is not None
        telegram.shown(markup, "MarkdownV2")
    assert pieces[1].startswith("```python\n")


def test_emoji_are_counted_as_telegram_counts_them() -> None:
    pieces = split("😀" * 3000)

    assert [utf16_units(piece) <= 4096 for piece in pieces] == [True] * len(pieces)
    assert "".join(pieces) == "😀" * 3000


def pieces_of(*parts: Part | str) -> list[str | CardPiece | Attachment]:
    adapter = TelegramAdapter(TelegramSettings(token=Secret("t")))
    return adapter.pieces(delivery_to(Channel("telegram", "7"), *parts))


@pytest.mark.parametrize("text", ["", "  \n ", "\x01", "\n\n"])
def test_an_empty_text_is_not_sent(text: str) -> None:
    assert pieces_of(text) == []


def test_half_a_character_is_replaced_visibly() -> None:
    assert pieces_of("a\ud800b") == ["a\ufffdb"]


def test_thoughts_are_not_sent_and_files_come_last() -> None:
    file = Attachment("0" * 64, name="a.pdf")

    assert pieces_of(Reasoning("hm"), file, Text("see")) == ["see", file]


def test_a_piece_that_was_too_long_comes_in_halves() -> None:
    piece = split("word " * 500)[0]

    halves = outbound.halves(piece)

    assert len(halves) == 2
    assert " ".join(halves).split() == piece.split()
