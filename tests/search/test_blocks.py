"""On PostgreSQL a search names the blocks of documents that it concerns, newest first, as many as it takes."""

from typing import Any

from sessionary.model import query as queries
from sessionary.model.search_text import session_facet
from sessionary.store.search import tsquery
from sessionary.store.search.tsquery import DocBlocks

LIMIT = 700


def blocks_of(params: dict[str, Any]) -> int:
    return str(params["match"]).count("block")


def asked(
    blocks: DocBlocks, *finds: int, facets: list[list[str]] | None = None
) -> list[dict[str, Any]]:
    """The queries of a search, one after the other, until they have found enough."""
    search = tsquery.match_params(
        queries.parse("walrus"), facets or [], without=(), blocks=blocks, below=None, limit=LIMIT
    )
    made = [next(search)]
    for found in finds:
        try:
            made.append(search.send(found))
        except StopIteration:
            break
    return made


def test_a_word_that_is_not_in_the_newest_blocks_is_looked_up_in_more_and_then_everywhere() -> None:
    made = asked(DocBlocks(range(99, -1, -1)), 0, 0, 5)

    assert [blocks_of(each) for each in made] == [2, 32, 0]
    assert made[1]["below"] == 98 << tsquery.BLOCK_BITS
    assert made[2]["below"] == 66 << tsquery.BLOCK_BITS


def test_how_common_a_word_is_tells_how_many_blocks_are_searched_next() -> None:
    _, second, *_ = asked(DocBlocks(range(999, -1, -1)), 70)

    assert 2 * 9 <= blocks_of(second) <= 2 * 9 * 2


def test_a_search_in_few_blocks_is_one_query() -> None:
    assert [blocks_of(each) for each in asked(DocBlocks(range(3, -1, -1)), 0)] == [0]


def test_a_search_by_time_names_only_the_blocks_of_that_time() -> None:
    made = asked(DocBlocks([7, 6, 3], frozenset([6])), 0)

    assert [blocks_of(each) for each in made] == [3]
    assert made[0]["is_sure"] is False
    assert [each["is_sure"] for each in asked(DocBlocks([6], frozenset([6])), 0)] == [True]


def test_of_many_sessions_those_of_the_blocks_are_words_of_the_query() -> None:
    many = [session_facet(number) for number in range(1, 501)]
    places = [(number // 5, number) for number in range(1, 501)]

    first, second = asked(DocBlocks(range(200)).of_sessions(places), 400, facets=[many])

    assert first["match"].count("\ue000no") == 16
    assert session_facet(500) in first["match"]
    assert 10 <= second["match"].count("\ue000no") <= 20
    assert first["is_sure"]
    assert second["below"] == first["above"]


def test_a_rare_word_in_many_sessions_is_looked_up_once_and_its_sessions_are_compared() -> None:
    many = [session_facet(number) for number in range(1, 501)]
    places = [(number // 5, number) for number in range(1, 501)]

    made = asked(DocBlocks(range(200)).of_sessions(places), 0, 1, facets=[many])

    assert len(made) == 2
    assert "\ue000no" not in made[1]["match"]
    assert made[1]["sessions"].endswith("500}")
    assert made[1]["is_sure"] is False


def test_a_word_of_many_sessions_that_is_not_rare_is_searched_in_parts() -> None:
    many = [session_facet(number) for number in range(1, 501)]
    places = [(number // 5, number) for number in range(1, 501)]

    made = asked(DocBlocks(range(200)).of_sessions(places), 60, 60, 60, facets=[many])

    counts = [each["match"].count("\ue000no") for each in made]
    assert len(counts) == 4
    assert all(16 <= count <= tsquery.MOST_WORDS for count in counts)
