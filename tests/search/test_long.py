"""Long messages: more words than a vector of PostgreSQL has places for."""

import random

from tests.search.conftest import Library


def test_a_phrase_is_found_wherever_it_stands_in_a_long_message(library: Library) -> None:
    filler = " ".join(f"word{number}" for number in range(17_000))
    library.sessions_with(f"{filler} needle in the haystack", f"needle {filler} haystack in the")

    found = library.hits('"needle in the haystack"')

    assert len(found) == 1
    assert found[0].text.startswith("word0")
    assert "haystack" in library.hits('"word16998 word16999"')[0].snippet
    assert library.hits('"word16999 word16998"') == []


def test_a_phrase_is_found_behind_many_repeats(library: Library) -> None:
    library.sessions_with("the cat " * 400 + "the dog barks", "the dog " * 400 + "the cat sleeps")

    assert len(library.hits('"the dog barks"')) == 1
    assert len(library.hits('"the cat sleeps"')) == 1
    assert library.hits('"dog sleeps"') == []
    assert len(library.hits("dog cat")) == 2
    assert library.hits("dog -sleeps -barks") == []


def test_every_word_is_found_in_a_message_with_more_words_than_a_vector_holds(
    library: Library,
) -> None:
    rng = random.Random(3)
    words = [f"{rng.randrange(16**8):08x}" for _ in range(60_000)]
    library.sessions_with(" ".join(words), "something else")

    for at in (0, 1, 20_000, 40_000, 59_996):
        assert len(library.hits(words[at])) == 1
        assert len(library.hits(f'"{words[at]} {words[at + 1]} {words[at + 2]}"')) == 1
        assert len(library.hits(f"{words[at][:7]}*")) == 1
    assert library.hits('"nothing of the kind"') == []
    assert library.hits("ffffffffff") == []


def test_a_very_long_quotation_finds_its_message(library: Library) -> None:
    text = " ".join(f"term{number}" for number in range(3_000))
    library.sessions_with(text)

    assert len(library.hits(f'"{text}"')) == 1
    assert len(library.hits(text)) == 1


def test_a_word_without_end_is_found_by_its_beginning(library: Library) -> None:
    library.sessions_with("x" * 5_000 + " end", "data:image/png;base64," + "QUJD" * 2_000)

    assert len(library.hits("x" * 5_000)) == 1
    assert len(library.hits("x" * 70)) == 1
    assert len(library.hits("base64")) == 1
