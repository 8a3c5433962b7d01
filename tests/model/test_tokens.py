"""An estimate of tokens: monotone, never zero, and about right where it is known."""

from hypothesis import given
from hypothesis import strategies as st

from sessionary.model.tokens import estimate


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(text: str, more: str) -> None:
    """An estimate, marked as one elsewhere."""
    assert 1 <= estimate(text) <= estimate(text + more) + 1


def test_english_has_about_four_letters_a_token_and_chinese_about_one() -> None:
    assert estimate("The quick brown fox jumps over the lazy dog. " * 100) == 1126
    assert 90 <= estimate("敏捷的棕色狐狸跳过懒狗。" * 10) <= 140


def test_a_structure_is_counted_with_what_holds_it_together() -> None:
    chats = [{"role": "user", "content": "hello"}]
    assert estimate(chats) > estimate("hello")
