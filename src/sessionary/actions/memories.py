"""The long-term store of graphs: items that are found by their namespace, by what is in them, and by their words."""

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

from msgspec import Struct

from sessionary.errors import BadInput
from sessionary.model import codec, tokenizer
from sessionary.store.database import Tx
from sessionary.store.tables import memories
from sessionary.store.tables.memories import END_OF_LABEL, MemoryRow

# A namespace and a key together: an index has to hold them.
MAX_NAME_BYTES = 2000
# How many items that have expired a write deletes.
SWEPT = 100
_SCORED_PAGE = 200


class NewMemory(Struct, frozen=True):
    """An item to be written; without a value it is deleted."""

    namespace: tuple[str, ...]
    key: str
    value: str | None
    ttl_micros: int | None = None
    vectors: "tuple[array[float], ...]" = ()


class FoundMemory(NamedTuple):
    """An item, and how well it matches; None if it was not compared."""

    row: MemoryRow
    value: dict[str, Any]
    score: float | None = None


class MemorySearch(Struct, frozen=True):
    """What is searched: `matches` is asked about each value; `words` or a `vector` say what comes first."""

    prefix: tuple[str, ...]
    limit: int
    offset: int = 0
    matches: Callable[[Mapping[str, Any]], bool] | None = None
    words: frozenset[str] = frozenset()
    vector: "array[float] | None" = None


def check_namespace(labels: Sequence[str], key: str = "") -> None:
    """Refuse what an index cannot hold."""
    for label in labels:
        if END_OF_LABEL in label or codec.storable_text(label) != label:
            raise BadInput(
                f"A label of a namespace has a character that cannot be stored: {label!r:.80}. Nothing was written."
            )
    size = len(f"{memories.namespace_text(labels)}{codec.encode(key)}".encode())
    if size > MAX_NAME_BYTES:
        raise BadInput(
            f"A namespace and a key may have {MAX_NAME_BYTES:,} bytes together, these have {size:,}. "
            "Nothing was written."
        )


def get(
    tx: Tx, namespace: Sequence[str], key: str, *, profile: str, now: int
) -> FoundMemory | None:
    """Return an item."""
    row = memories.get(tx, namespace, key, profile=profile, now=now)
    return None if row is None else FoundMemory(row, codec.decode(row.value))


def search(tx: Tx, wanted: MemorySearch, *, profile: str, now: int) -> list[FoundMemory]:
    """Return the items under a prefix that match.

    With words or a vector those that fit best come first, then those that could not be compared. This reads all items
    under the prefix; without, as many as are returned.
    """
    if wanted.limit <= 0:
        return []
    last = wanted.offset + wanted.limit
    if wanted.vector is None and not wanted.words:
        page = memories.PAGE if wanted.matches else min(last, memories.PAGE)
        rows = memories.walk(tx, wanted.prefix, profile=profile, now=now, page=page)
        return list(islice(_matching(rows, wanted), wanted.offset, last))
    # The best so far, the worst of them first; of equals the earlier is better.
    best: list[tuple[float, int, FoundMemory]] = []
    plain: list[FoundMemory] = []
    for number, each in enumerate(_scored(tx, wanted, profile=profile, now=now)):
        if each.score is None:
            if len(plain) < last:
                plain.append(each)
        elif len(best) < last:
            heapq.heappush(best, (each.score, -number, each))
        else:
            heapq.heappushpop(best, (each.score, -number, each))
    ranked = [each for _, _, each in sorted(best, key=lambda each: each[:2], reverse=True)]
    return [*ranked, *plain][wanted.offset : last]


def _matching(rows: Iterable[MemoryRow], wanted: MemorySearch) -> Iterator[FoundMemory]:
    for row in rows:
        value = codec.decode(row.value)
        if wanted.matches is None or wanted.matches(value):
            yield FoundMemory(row, value)


def _scored(tx: Tx, wanted: MemorySearch, *, profile: str, now: int) -> Iterator[FoundMemory]:
    found = _matching(memories.walk(tx, wanted.prefix, profile=profile, now=now), wanted)
    if wanted.vector is None:
        for each in found:
            there = wanted.words.intersection(tokenizer.words(" ".join(_texts(each.value))))
            yield each._replace(score=len(there) / len(wanted.words) if there else None)
        return
    while page := list(islice(found, _SCORED_PAGE)):
        vectors = memories.vectors_of(tx, [each.row.no for each in page])
        for each in page:
            # One of another length was made by another model.
            scores = [
                _product(wanted.vector, vector)
                for vector in vectors.get(each.row.no, ())
                if len(vector) == len(wanted.vector)
            ]
            yield each._replace(score=max(scores, default=None))


def _product(one: "array[float]", other: "array[float]") -> float:
    """The cosine of the angle between two vectors of length 1."""
    return sum(map(float.__mul__, one, other))


def unit_vector(numbers: Sequence[float]) -> "array[float]":
    """A vector of length 1 in this direction."""
    length = sum(each * each for each in numbers) ** 0.5
    return array("f", [each / length if length else 0.0 for each in numbers])


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value."""
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)


def list_namespaces(
    tx: Tx,
    prefix: Sequence[str],
    matches: Callable[[tuple[str, ...]], bool],
    *,
    max_depth: int | None,
    limit: int,
    offset: int,
    profile: str,
    now: int,
) -> list[tuple[str, ...]]:
    """Return the namespaces under a prefix that match, sorted, cut to a depth, each once."""
    found = memories.namespaces(tx, prefix, profile=profile, now=now)
    cut = (each[:max_depth] for each in found if matches(each))
    # They are sorted: those that are the same when cut follow each other.
    once = (each for each, _ in groupby(cut))
    return list(islice(once, offset, offset + max(0, limit)))


def put(tx: Tx, items: Iterable[NewMemory], *, profile: str, now: int) -> None:
    """Write items or delete them, and delete some that have expired."""
    for item in items:
        if item.value is None:
            memories.delete(tx, item.namespace, item.key, profile=profile)
            continue
        memories.put(
            tx,
            item.namespace,
            item.key,
            item.value,
            profile=profile,
            now=now,
            ttl_micros=item.ttl_micros,
            vectors=item.vectors,
        )
    sweep(tx, now=now)


def refresh(tx: Tx, rows: Iterable[MemoryRow], *, now: int) -> None:
    """Let items that were read live on for as long as they may."""
    for row in rows:
        if row.ttl_micros is not None:
            memories.refresh(tx, row.no, expires_at=now + row.ttl_micros)


def sweep(tx: Tx, *, now: int) -> int:
    """Delete some items that have expired; return how many."""
    return memories.delete_expired(tx, now=now, limit=SWEPT)
