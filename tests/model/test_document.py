"""JSON as we keep it: any Unicode goes in and comes back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.model import codec

ANY_TEXT = st.text(st.characters(codec=None, categories=None, exclude_categories=()))
SURROGATES = st.text(st.sampled_from('a\x00é\ud800\udbff\udc00\udfff🫠\\"\u2028'))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT
    | SURROGATES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


def joined(value: object) -> object:
    """The value with every high and low surrogate that stand together as the character they are."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        case list():
            return [joined(each) for each in value]
        case dict():
            return {joined(name): joined(each) for name, each in value.items()}
    return value


@given(VALUES)
def test_what_goes_in_comes_back(value: object) -> None:
    """Two halves that stand together are one character to everyone who reads JSON."""
    text = codec.encode(value)

    assert codec.decode(text) in (value, joined(value))
    assert codec.decode(text.encode()) == codec.decode(text)


@given(VALUES)
def test_a_document_is_one_line_that_any_column_and_any_reader_takes(value: object) -> None:
    text = codec.encode(value)

    assert "\n" not in text
    assert "\x00" not in text
    assert codec.storable_text(text) == text
    assert json.loads(text) == codec.decode(text)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**40])
def test_a_number_of_any_size_comes_back(number: int) -> None:
    assert codec.decode(codec.encode({"n": number})) == {"n": number}


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "\ud800", '{"a":1}x'])
def test_what_is_not_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        codec.decode(text)


@given(ANY_TEXT | SURROGATES)
def test_a_storable_text_fits_any_column(text: str) -> None:
    stored = codec.storable_text(text)

    assert "\x00" not in stored
    assert len(stored) == len(text)
    assert stored.encode().decode() == stored
    assert codec.storable_text(stored) == stored


def test_an_ordinary_text_is_storable_as_it_is() -> None:
    assert codec.storable_text("Émile 🫠\n") == "Émile 🫠\n"
