"""Reads of the search index, and of the log around what was found."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from sessionary.store.database import Tx
from sessionary.store.queries import pg_array_literal

if TYPE_CHECKING:
    from sessionary.model.query import Query

# A document's number, its score, and 1 if its words have no positions and the text must be checked.
FoundDoc = tuple[int, float, int]


class SearchDoc(NamedTuple):
    """A document of the index; `folder` is None when its session's row is missing."""

    no: int
    entry_no: int
    at: int
    length: int
    folder: str | None


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
) -> list[FoundDoc]:
    """Return the newest documents that match, with numbers below one; scores only where asked for.

    Documents of areas after `last_area` are only counted by the caller and need no score.
    """
    exact, filtered = (
        ("find_scored", "find_scored_filtered")
        if scored
        else ("find_newest", "find_newest_filtered")
    )
    after, before = filters.between or (-_FAR, _FAR)
    rows: list[FoundDoc] = []
    for params in tx.match(
        query, filters.facets, without=filters.without, between=filters.between, below=below
    ):
        params |= {"limit": limit - len(rows), "last_area": last_area}
        if params.pop("is_sure") and filters.is_exact:
            rows += tx.all(exact, **params)
        else:
            rows += tx.all(
                filtered,
                **params,
                profile=filters.profile,
                after=after,
                before=before,
                projects=filters.projects,
            )
        if len(rows) >= limit:
            break
    return rows


def docs(tx: Tx, numbers: Iterable[int]) -> dict[int, SearchDoc]:
    """Return documents by their numbers, as far as they are there."""
    rows = tx.all("get_docs", numbers=pg_array_literal(numbers))
    return {row[0]: SearchDoc(*row) for row in rows}


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
