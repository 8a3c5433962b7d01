"""Whatever is typed is legal; whatever is quoted is found; both databases find the same."""

import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionary.model import query as queries
from sessionary.model.query import Filters
from tests.search import oracle
from tests.search.conftest import KINDS, Library, Maker

MESSAGES = 160
SOME_TEXT = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(oracle.WORDS), max_size=30).map(" ".join),
    st.lists(st.text(alphabet='ab "-:*O R\n+', max_size=8), max_size=12).map(" ".join),
)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = random.Random(7)
    found = dict.fromkeys(oracle.text(rng) for _ in range(MESSAGES))
    return [each for each in found if each.strip()]


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, make_library: Maker, texts: list[str]) -> Library:
    library = make_library(request.param)
    library.sessions_with(*texts)
    return library


@settings(max_examples=400)
@given(SOME_TEXT, st.data())
def test_three_words_that_follow_each_other_find_their_message(
    text: str, data: st.DataObject
) -> None:
    words = text.split()
    at = data.draw(st.integers(0, max(0, len(words) - 3)))
    typed = " ".join(words[at : at + 3])

    assert oracle.finds(typed, text) or _says_nothing(typed)


@settings(max_examples=400)
@given(SOME_TEXT, st.data())
def test_whole_words_in_quotation_marks_find_their_message(text: str, data: st.DataObject) -> None:
    words = text.split()
    first = data.draw(st.integers(0, len(words)))
    last = data.draw(st.integers(first, len(words)))
    typed = f'"{" ".join(words[first:last])}"'

    assert oracle.finds(typed, text) or _says_nothing(typed.strip('"'))


def _says_nothing(typed: str) -> bool:
    """Whether there is nothing in it that could be looked for."""
    return queries.parse(typed).is_empty or not typed.strip()


@given(st.text())
def test_every_text_is_a_query_that_can_be_shown_in_words(text: str) -> None:
    asked = queries.parse(text, now=oracle.NOW)

    assert asked.describe()
    assert asked.is_empty == (not asked.groups and asked.filters == Filters())
    assert asked.relaxed().describe()


def test_any_three_words_of_any_message_find_it(folder: Library, texts: list[str]) -> None:
    rng = random.Random(8)
    for text in texts:
        words = text.split()
        at = rng.randrange(max(1, len(words) - 2))
        typed = " ".join(words[at : at + 3])

        assert _says_nothing(typed) or text in folder.texts_of(typed), typed


def test_any_quoted_words_of_any_message_find_it(folder: Library, texts: list[str]) -> None:
    rng = random.Random(9)
    for text in texts:
        words = text.split()
        first = rng.randrange(len(words))
        last = rng.randrange(first, len(words)) + 1
        typed = f'"{" ".join(words[first:last])}"'

        assert _says_nothing(typed.strip('"')) or text in folder.texts_of(typed), typed


def test_an_index_finds_what_reading_every_text_finds(folder: Library, texts: list[str]) -> None:
    rng = random.Random(10)
    for _ in range(300):
        typed = oracle.query(rng)
        if queries.parse(typed, now=oracle.NOW).filters != Filters():
            continue
        found = folder.find(typed, all_hits=True, limit=200)

        assert found.relaxed or {hit.text for hit in found} == oracle.expected(typed, texts), typed


def test_strings_of_punctuation_are_answered_and_never_fail(folder: Library) -> None:
    rng = random.Random(11)
    signs = (
        string.punctuation + ' \t\n\x00\x1b\'""**--' + "“”‘’«»…—·、。！？\u200b\u202e\ufffd\ud800"
    )
    for _ in range(10_000 if folder.store.url.startswith("sqlite::") else 1_000):
        typed = "".join(rng.choices(signs, k=rng.randrange(1, 12)))

        assert folder.find(typed).words


@settings(max_examples=10_000)
@given(st.text(alphabet=string.punctuation + " \x00“”—。\ud800", min_size=1, max_size=12))
def test_ten_thousand_strings_of_punctuation_can_be_read(typed: str) -> None:
    assert queries.parse(typed, now=oracle.NOW).describe()


@given(SOME_TEXT)
@settings(max_examples=60)
def test_any_text_can_be_asked(library_in_memory: Library, typed: str) -> None:
    found = library_in_memory.find(typed)

    assert found.total >= len(found.hits)


@pytest.fixture(scope="module")
def library_in_memory(make_library: Maker, texts: list[str]) -> Library:
    library = make_library("sqlite-memory")
    library.sessions_with(*texts[:40])
    return library
