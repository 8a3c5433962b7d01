"""How a text is cut into words: the same for both databases."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessionary.model import tokenizer
from sessionary.model.tokenizer import GAP


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("Don't PANIC", ["don", "t", "panic"]),
        ("src/app/main.py", ["src", "app", "main", "py"]),
        ("snake_case_name", ["snake", "case", "name"]),
        ("a@b.com", ["a", "b", "com"]),
        ("naïve Straße", ["naive", "strasse"]),
        ("İstanbul", ["istanbul"]),
        ("ﬁnal oﬃce", ["final", "office"]),
        ("数据库", ["数据", "据库", "库"]),
        ("数", ["数"]),
        ("Python数据x", ["python", "数据", "据", "x"]),
        ("한국어", ["한국", "국어", "어"]),
        ("हिन्दी", ["हिन्दी"]),
        ("مُحَمَّد", ["محمد"]),
        ("مـحـمـد", ["محمد"]),
        ("😀👍🏽", ["😀", "👍", "🏽"]),
        ("Foo™ bar", ["foo", "bar"]),
        ("ＦＵＬＬ", ["full"]),
        ("x" * 100, ["x" * 64]),
        ("... --- !!!", []),
        ("", []),
    ],
)
def test_a_text_is_cut_into_words(text: str, cut: list[str]) -> None:
    assert tokenizer.words(text) == cut


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("getUserName", ["get", "user", "name", GAP]),
        ("HTTPServer", ["http", "server", GAP]),
        ("utf8Decoder2Go", ["utf", "8", "decoder", "2", "go", GAP]),
        ("Plain Words HERE 42", []),
    ],
)
def test_names_written_in_one_are_found_by_their_parts(text: str, parts: list[str]) -> None:
    assert tokenizer.name_parts(text) == parts


def test_signs_behind_a_word_and_signs_alone_are_extras_behind_a_gap() -> None:
    extras = tokenizer.extras("C++ is => 50% ... ok")

    assert extras[0] == GAP
    assert [tokenizer.display_form(each) for each in extras[1:]] == ["c++", "50%", "=>", "..."]
    assert tokenizer.extras("plain words, nothing else.") == []


@given(st.text())
def test_no_word_has_a_sign_that_a_database_would_trip_over(text: str) -> None:
    for word in (*tokenizer.words(text), *tokenizer.extras(text)):
        assert word
        word.encode()
        assert not any(char.isascii() and not char.isalnum() for char in word)
        assert not any(char.isspace() for char in word)


@given(st.text(), st.text())
def test_words_of_two_texts_are_the_words_of_both_together(one: str, other: str) -> None:
    assert tokenizer.words(f"{one}\n{other}") == tokenizer.words(one) + tokenizer.words(other)


@given(st.text(st.characters(max_codepoint=127)))
@example("getUserName - readURL2Go... ??? a-b -- C++ x=>y => HTTPServer _")
@example("x" * 200 + "Y" * 70 + " 1a2B")
def test_ascii_is_cut_as_it_is_beside_another_letter(text: str) -> None:
    beside = text + " \u00e9"

    assert [*tokenizer.words(text), "e"] == tokenizer.words(beside)
    assert tokenizer.name_parts(text) == tokenizer.name_parts(beside)
    assert tokenizer.punctuation(text) == tokenizer.punctuation(beside)


@given(st.text())
def test_folding_twice_is_folding_once(text: str) -> None:
    once = tokenizer.fold(text)

    assert tokenizer.words(once) == tokenizer.words(text)


@given(st.text())
def test_what_is_wanted_of_a_text_is_in_it(text: str) -> None:
    found = tokenizer.words(text)

    for word in tokenizer.query_words(text):
        assert any(
            each.startswith(word.text) if word.is_prefix else each == word.text for each in found
        )
