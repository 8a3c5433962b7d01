"""A large list is read item by item, however its bytes come."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import files

texts = st.text(alphabet='ab"\\[]{},é\u2028 \n', max_size=8)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


class Drops:
    """A file that gives so many bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file = io.BytesIO(data)
        self._size = size

    def read(self, _: int) -> bytes:
        return self._file.read(self._size)


@given(st.lists(st.lists(values, max_size=3), max_size=4), st.integers(1, 9), st.booleans())
def test_items_are_the_same_in_drops_of_any_size(
    items: list[Any], size: int, is_wide: bool
) -> None:
    data = b"\xef\xbb\xbf" + json.dumps(items, indent=2 if is_wide else None).encode()
    first = data[:4]

    class WithMark(Drops):
        def read(self, _: int) -> bytes:
            nonlocal first
            if first:
                pending, first = first, b""
                return pending
            return super().read(_)

    found = list(files.json_items(WithMark(data[4:], size)))  # type: ignore[arg-type]

    assert [each.data for each in found] == items


def test_a_list_that_ends_too_soon_is_reported() -> None:
    for text, why in (
        (b"[{}, {}", "after 2 whole items"),
        (b'[{"a": "', "middle of an item"),
        (b"[7", "middle of an item"),
        (b"7", "not a list"),
        (b"", "not a list"),
    ):
        with pytest.raises(BadInput, match=why):
            list(files.json_items(io.BytesIO(text)))


def test_a_document_that_is_one_object_has_one_item() -> None:
    (found,) = files.json_items(io.BytesIO(b' {"a": [1]}'))

    assert found.data == {"a": [1]}


def test_what_would_fill_the_memory_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coerce, "LARGE", 1024)
    monkeypatch.setattr(coerce, "_HEAVY", 64 * 1024)
    heavy = b"[" + b"[]," * 1200 + b"[]]"
    path = tmp_path / "heavy.json"
    path.write_bytes(heavy)

    (item,) = files.json_items(io.BytesIO(b"[" + heavy + b"]"))
    (line,) = files.json_lines(io.BytesIO(b'{"a":' + heavy + b"}\n"))

    assert (item.data, item.why) == (None, "too large")
    assert line.data is None
    with pytest.raises(BadInput, match="too many values"):
        files.read_json(path)


def test_an_item_that_is_too_large_is_passed_over() -> None:
    text = b'[{"a":"' + b"x" * 3000 + b'"},{"b":1}]'

    found = list(files.json_items(io.BytesIO(text), max_item=1000))

    assert [(each.data, each.why) for each in found] == [(None, "too large"), ({"b": 1}, None)]
