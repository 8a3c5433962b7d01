"""Queries in PostgreSQL's tsquery language. Words are letters and digits only, so quoting is safe."""

from collections.abc import Iterable, Sequence
from typing import Any

from sessionary.model.query import Query, Term
from sessionary.store.search.indexer import DOCS_PER_CHANGE, HASHED, hashed

BLOCK_BITS = 14
_FAR = 2**62
# How many blocks are searched at a time, newest first; a common word has enough matches in the first.
_STEPS = (2, 6, 24)


def match_params(
    query: Query,
    facets: Sequence[Sequence[str]],
    *,
    without: Sequence[str],
    newest: int | None,
    below: int | None,
) -> list[dict[str, Any]]:
    """The parameters of the queries to run: first on the newest blocks, at last on everything.

    GIN finds all matches before it returns one; with a block as one more word it finds few. `newest`
    is the last position of the feed.
    """
    last = (_FAR if below is None else below) - 1
    below = last + 1
    found = []
    if newest is not None:
        block = min((newest + 1) * DOCS_PER_CHANGE - 1, last) >> BLOCK_BITS
        for step in _STEPS:
            if block < 2 * step:
                break  # there are hardly more blocks than in this step
            blocks = _blocks(range(block, block - step, -1))
            found.append(_params(query, [*facets, blocks], without) | {"below": last + 1})
            block -= step
            below = min(last + 1, (block + 1) << BLOCK_BITS)
    return [*found, _params(query, facets, without) | {"below": below}]


def _params(
    query: Query, facets: Sequence[Sequence[str]], without: Sequence[str]
) -> dict[str, Any]:
    given = [_any(map(_quoted, group)) for group in facets]
    given += [f"!{_quoted(word)}" for word in without]
    wanted = [_any(map(_term, group)) for group in query.groups]
    unwanted = [f"!{_term(term)}" for term in query.unwanted]
    # The words of a long text have no positions: a match must be confirmed in the text itself.
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
    return f"({found})" if term.with_signs is None else f"({found} & {_quoted(term.with_signs)})"


def _loose(term: Term) -> str:
    words = [_either(word.text) for word in term.words]
    if term.is_open_ended:
        words[-1] = f"({_quoted(term.words[-1].text)}:* | {_quoted(HASHED)})"
    if term.with_signs is not None:
        words.append(_either(term.with_signs))
    return f"({' & '.join(words)})"


def _either(word: str) -> str:
    return f"({_quoted(word)} | {_quoted(hashed(word))})"


def _any(alternatives: Iterable[str]) -> str:
    return f"({' | '.join(alternatives)})"


def _quoted(word: str) -> str:
    return f"'{word}'"
