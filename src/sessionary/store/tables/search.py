"""Reads of the search index, and of the log around what was found."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from sessionary.store.database import Tx
from sessionary.store.queries import pg_array_literal

if TYPE_CHECKING:
    from sessionary.model.query import Query

# Each further occurrence of a word counts less.
_SATURATION = 1.2
_SCORES = [times / (times + _SATURATION) for times in range(64)]


class FoundDocs(NamedTuple):
    """Documents that match, newest first: number and score. `unsure`: those whose text must be checked."""

    scores: list[tuple[int, float]]
    unsure: frozenset[int] = frozenset()


# A document of the index: its number, its entry's, its time, its length in words, and the folder of its session,
# which is None when the session's row is missing.
SearchDoc = tuple[int, int, int, int, str | None]


class DocFilters(Struct, frozen=True):
    """What a document must meet. Facets hold words of the index: one of each group must be there."""

    profile: str
    facets: Sequence[Sequence[str]]
    without: Sequence[str]
    between: tuple[int, int] | None
    # The numbers of projects between commas; empty for any.
    projects: str
    # Whether facets and `without` say all of this, so that no session's row needs to be read.
    is_exact: bool


class HiddenSessions(NamedTuple):
    """The sessions in the trash that no fork continues, and whether other profiles have sessions."""

    numbers: list[int]
    has_other_profiles: bool


_FAR = 2**62


def find_docs(
    tx: Tx,
    query: "Query",
    filters: DocFilters,
    *,
    scored: bool,
    below: int | None,
    last_area: int,
    limit: int,
) -> FoundDocs:
    """Return the newest documents that match, with numbers below one; scores only where asked for.

    Documents of areas after `last_area` are only counted by the caller and need no score.
    """
    after, before = filters.between or (-_FAR, _FAR)
    found: list[tuple[int, float]] = []
    unsure: set[int] = set()
    asked = tx.match(
        query,
        filters.facets,
        without=filters.without,
        between=filters.between,
        below=below,
        limit=limit,
    )
    params = next(asked, None)
    while params is not None:
        # Where one word or phrase is looked for, SQLite says how often it occurs, and the score is made here.
        is_counted = params.pop("is_counted", False) and scored
        exact, filtered = (
            ("find_counted", "find_counted_filtered")
            if is_counted
            else ("find_scored", "find_scored_filtered")
            if scored
            else ("find_newest", "find_newest_filtered")
        )
        params |= {"limit": limit - len(found), "last_area": last_area}
        is_exact = params.pop("is_sure") and filters.is_exact
        if not is_exact:
            params |= {
                "profile": filters.profile,
                "after": after,
                "before": before,
                "projects": filters.projects,
            }
        rows = tx.all(exact if is_exact else filtered, **params)
        if is_counted:
            found += [(no, _SCORES[n] if n < 64 else saturated(n)) for no, n in rows]
        elif rows and len(rows[0]) == 3:  # from PostgreSQL, where long texts have no positions
            found += [(no, score) for no, score, _ in rows]
            unsure.update(no for no, _, is_long in rows if is_long)
        else:
            found += rows
        if len(found) >= limit:
            break
        try:
            params = asked.send(len(rows))
        except StopIteration:
            break
    return FoundDocs(found, frozenset(unsure))


def saturated(times: int) -> float:
    """The score of a word that occurs so often."""
    return times / (times + _SATURATION)


def docs(tx: Tx, numbers: Iterable[int]) -> dict[int, SearchDoc]:
    """Return documents by their numbers, as far as they are there."""
    rows = tx.all("get_docs", numbers=pg_array_literal(numbers))
    return {row[0]: row for row in rows}


def entries_around(
    tx: Tx, numbers: Sequence[int], *, distance: int
) -> dict[int, dict[int, tuple[str | None, str]]]:
    """Return, for each entry number, the role and stored body of it and of messages near it."""
    found: dict[int, dict[int, tuple[str | None, str]]] = {number: {} for number in numbers}
    for number, other, role, body in tx.all(
        "read_around", numbers=pg_array_literal(numbers), distance=distance
    ):
        found[number][other] = (role, body)
    return found


def hidden_sessions(tx: Tx, *, profile: str, limit: int) -> HiddenSessions:
    """Return up to `limit` sessions of a profile that a search must not show."""
    numbers = [no for (no,) in tx.all("hidden_sessions", profile=profile, limit=limit)]
    hidden = [no for no in numbers if no]  # 0 stands for the sessions of other profiles
    return HiddenSessions(hidden, len(hidden) < len(numbers))


def words_near(tx: Tx, beginning: str, *, shortest: int, longest: int) -> list[str]:
    """Return words of the index that begin so, for suggesting another spelling."""
    rows = tx.all(
        "near_words",
        first=beginning,
        beyond=beginning + "\U0010ffff",
        shortest=shortest,
        longest=longest,
        limit=3000,
    )
    return [row[0] for row in rows]
