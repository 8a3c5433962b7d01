"""Trees of messages as the ways through them, each from its root to a leaf."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from sessionary.importers.base.events import Branch, Compacted, MessageEvent, Skipped

# So many messages all ways together may have; a tree of more is told by its current way alone.
MOST = 1_000_000


def ways(
    parents: Mapping[str, str | None], *, current: str | None = None
) -> tuple[list[list[str]], list[str]]:
    """The ways to the leaves that are not current, and the way that is.

    `parents` stands in the order in which the messages were said. Without a current message the
    last leaf is. A parent that is not there is none, and no cycle is followed.
    """
    has_child = {parent for parent in parents.values() if parent in parents}
    leaves = [each for each in parents if each not in has_child]
    if current not in parents:
        current = next(reversed(leaves or list(parents)), None)
    if current is None:
        return [], []
    way = way_to(parents, current)
    rest: list[list[str]] = []
    left = MOST - len(way)
    for leaf in leaves:
        if leaf == current:
            continue
        other = way_to(parents, leaf)
        left -= len(other)
        if left < 0:
            break
        rest.append(other)
    return rest, way


def way_to(parents: Mapping[str, str | None], leaf: str) -> list[str]:
    """From the root to a message."""
    way: dict[str, None] = {}
    here: str | None = leaf
    while here is not None and here in parents and here not in way:
        way[here] = None
        here = parents[here]
    return list(reversed(way))


def without(parents: Mapping[str, str | None], gone: set[str]) -> dict[str, str | None]:
    """The tree without some of its nodes; their children hang on the next above them."""
    kept: dict[str, str | None] = {}
    for each, parent in parents.items():
        if each in gone:
            continue
        seen = {each}
        here = parent
        while here in gone and here not in seen:
            seen.add(here)
            here = parents.get(here)
        kept[each] = None if here in seen else here
    return kept


def is_line(parents: Mapping[str, str | None]) -> bool:
    """Whether each message answers the one before it."""
    return all(parents[after] == before for before, after in pairwise(parents))


def branches(
    parents: Mapping[str, str | None],
    said: Mapping[str, Sequence[MessageEvent | Compacted]],
    *,
    current: str | None = None,
    where: str = "tree",
) -> Iterator[Branch | Skipped]:
    """The tree as its ways, the current one last; what stands on none of them is told."""
    rest, way = ways(parents, current=current)
    told = {id for each in (*rest, way) for id in each}
    if len(told) < len(parents):
        missing = len(parents) - len(told)
        yield Skipped(where=where, why=f"{missing:,} of its messages stand on no branch")
    for number, each in enumerate([*rest, way]):
        items = [item for id in each for item in said.get(id, ())]
        yield Branch(items=items, is_current=number == len(rest))
