"""Which documents can be from between two times, by what their blocks say."""

from hypothesis import given
from hypothesis import strategies as st

from sessionary.store.search.fts5 import BLOCK_BITS, MAX_RANGES, Block, DocRange, ranges_between

SIZE = 1 << BLOCK_BITS


def test_times_that_grow_with_the_numbers_make_one_range_and_its_edges() -> None:
    blocks = [Block(no, no * 10, no * 10 + 9) for no in range(20)]

    found = ranges_between(blocks, 45, 83)

    assert found == [
        DocRange(8 * SIZE, 9 * SIZE, is_inside=False),
        DocRange(5 * SIZE, 8 * SIZE, is_inside=True),
        DocRange(4 * SIZE, 5 * SIZE, is_inside=False),
    ]
    assert [each.is_long for each in found] == [False, True, False]


def test_what_was_imported_among_newer_ones_is_a_range_of_its_own() -> None:
    blocks = [Block(0, 100, 200), Block(1, 5, 8), Block(2, 200, 300)]

    assert ranges_between(blocks, 0, 50) == [DocRange(SIZE, 2 * SIZE, is_inside=True)]


def test_nothing_of_a_time_is_no_range() -> None:
    assert ranges_between([Block(0, 100, 200)], 300, 400) == []
    assert ranges_between([Block(0, 100, 200)], 0, 100) == []


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=30),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_every_document_of_the_times_is_in_a_range(
    times: list[list[int]], after: int, before: int
) -> None:
    blocks = [Block(no, min(each), max(each)) for no, each in enumerate(times)]

    found = ranges_between(blocks, after, before)

    assert len(found) <= MAX_RANGES
    assert found == sorted(found, reverse=True)
    for no, each in enumerate(times):
        around = [one for one in found if one.above <= no * SIZE < one.below]
        assert len(around) == 1 or (not around and not any(after <= time < before for time in each))
        if around and around[0].is_inside:
            assert all(after <= time < before for time in each)
