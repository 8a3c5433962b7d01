"""A query in PostgreSQL's tsquery language. Words are letters and digits only: quoting is safe."""

from collections.abc import Iterable, Sequence
from typing import Any

from sessionary.model.query import Query, Term
from sessionary.store.search.indexer import HASHED, PLACES, hashed

BLOCK_BITS = 14
_FAR = 2**62
# How many blocks are asked at a time, newest first; a common word has enough matches in the first.
_STEPS = (2, 6, 24)


def match_params(
    query: Query,
    facets: Sequence[Sequence[str]],
    *,
    without: Sequence[str],
    newest: int | None,
    below: int | None,
) -> list[dict[str, Any]]:
    """The parameters of the question: first about the newest blocks, at last about everything.

    GIN finds all matches before it gives one. With a block as one more word it finds few. `newest`
    is the last position of the feed.
    """
    last = (_FAR if below is None else below) - 1
    below = last + 1
    questions = []
    if newest is not None:
        block = min((newest + 1) * PLACES - 1, last) >> BLOCK_BITS
        for step in _STEPS:
            if block < 2 * step:
                break  # the rest is hardly more
            blocks = _blocks(range(block, block - step, -1))
            questions.append(_question(query, [*facets, blocks], without) | {"below": last + 1})
            block -= step
            below = min(last + 1, (block + 1) << BLOCK_BITS)
    return [*questions, _question(query, facets, without) | {"below": below}]


def _question(
    query: Query, facets: Sequence[Sequence[str]], without: Sequence[str]
) -> dict[str, Any]:
    given = [_any(map(_quoted, group)) for group in facets]
    given += [f"!{_quoted(word)}" for word in without]
    wanted = [_any(map(_term, group)) for group in query.groups]
    unwanted = [f"!{_term(term)}" for term in query.unwanted]
    # Words of a long text have no places: whoever finds them looks at the text itself.
    loose = [_any(map(_loose, group)) for group in query.groups]
    return {
        "match": " & ".join([*wanted, *unwanted, *given]),
        "loose": " & ".join([*loose, *given]),
        "rank": " & ".join(wanted) or " & ".join(given),
    }


def _blocks(numbers: Iterable[int]) -> list[str]:
    return [f"\ue000block{number}" for number in numbers]


def _term(term: Term) -> str:
    words = [_quoted(word.text) for word in term.words]
    if term.is_open_ended:
        words[-1] += ":*"
    found = " <-> ".join(words)
    return f"({found})" if term.sticky is None else f"({found} & {_quoted(term.sticky)})"


def _loose(term: Term) -> str:
    words = [_either(word.text) for word in term.words]
    if term.is_open_ended:
        words[-1] = f"({_quoted(term.words[-1].text)}:* | {_quoted(HASHED)})"
    if term.sticky is not None:
        words.append(_either(term.sticky))
    return f"({' & '.join(words)})"


def _either(word: str) -> str:
    return f"({_quoted(word)} | {_quoted(hashed(word))})"


def _any(alternatives: Iterable[str]) -> str:
    return f"({' | '.join(alternatives)})"


def _quoted(word: str) -> str:
    return f"'{word}'"
