"""The tables of the long-term store of graphs: items under a namespace and a key, and their embeddings."""

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sessionary.model import codec
from sessionary.store import queries
from sessionary.store.database import Tx

# Behind each label of a namespace: it sorts before all that a label may contain.
END_OF_LABEL = "\x01"
_LAST = "\U0010ffff"
_FIRST_NO = -1
# How many items or namespaces are read at once.
PAGE = 200


class MemoryRow(NamedTuple):
    """An item as it is stored."""

    no: int
    namespace: str
    key: str
    value: str
    created_at: int
    updated_at: int
    ttl_micros: int | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its namespace."""
        return labels_of(self.namespace)


def namespace_text(labels: Sequence[str]) -> str:
    """A namespace as it is stored."""
    return "".join(f"{label}{END_OF_LABEL}" for label in labels)


def labels_of(namespace: str) -> tuple[str, ...]:
    """The inverse of `namespace_text`."""
    return tuple(namespace.split(END_OF_LABEL)[:-1])


def get(tx: Tx, labels: Sequence[str], key: str, *, profile: str, now: int) -> MemoryRow | None:
    """An item by its key."""
    row = tx.one("get_memory", **_which(labels, key, profile), now=now)
    return None if row is None else _row(row)


def walk(
    tx: Tx, prefix: Sequence[str], *, profile: str, now: int, page: int = PAGE
) -> Iterator[MemoryRow]:
    """The items under a prefix: by their namespaces, and in each in the order in which they came."""
    first, beyond = _between(prefix)
    after = (first, _FIRST_NO)
    while rows := tx.all(
        "page_of_memories",
        profile=profile,
        after_namespace=after[0],
        after_no=after[1],
        beyond=beyond,
        now=now,
        limit=page,
    ):
        yield from map(_row, rows)
        if len(rows) < page:
            return
        after = (rows[-1][1], rows[-1][0])


def namespaces(
    tx: Tx, prefix: Sequence[str], *, profile: str, now: int
) -> Iterator[tuple[str, ...]]:
    """The namespaces under a prefix that have an item, sorted."""
    first, beyond = _between(prefix)
    # The prefix itself is one of them: the search begins just before it.
    after = first[:-1]
    while rows := tx.all(
        "page_of_memory_namespaces",
        profile=profile,
        after=after,
        beyond=beyond,
        now=now,
        limit=PAGE,
    ):
        for (namespace,) in rows:
            if namespace >= first:
                yield labels_of(namespace)
        if len(rows) < PAGE:
            return
        after = rows[-1][0]


def vectors_of(tx: Tx, numbers: Sequence[int]) -> dict[int, list["array[float]"]]:
    """The embeddings of items by their numbers."""
    found: dict[int, list[array[float]]] = {}
    for no, packed in tx.all("vectors_of_memories", numbers=queries.pg_array_literal(numbers)):
        vector = array("f")
        vector.frombytes(packed)
        if sys.byteorder == "big":
            vector.byteswap()
        found.setdefault(no, []).append(vector)
    return found


def put(
    tx: Tx,
    labels: Sequence[str],
    key: str,
    value: str,
    *,
    profile: str,
    now: int,
    ttl_micros: int | None,
    vectors: Sequence["array[float]"],
) -> None:
    """Write an item; one with the same key keeps its number and the time at which it was made."""
    which = _which(labels, key, profile)
    found = tx.one("find_memory", **which)
    if found is not None:
        no, expires_at = found
        if expires_at is not None and expires_at <= now:
            delete_items(tx, [no])
        else:
            tx.run("delete_memory_vectors", numbers=queries.pg_array_literal([no]))
    expires = None if ttl_micros is None else now + ttl_micros
    row = tx.one(
        "put_memory", **which, value=value, now=now, ttl_micros=ttl_micros, expires_at=expires
    )
    assert row is not None
    for position, vector in enumerate(vectors):
        packed = vector[:]
        if sys.byteorder == "big":
            packed.byteswap()
        tx.run("put_memory_vector", item_no=row[0], position=position, vector=packed.tobytes())


def delete(tx: Tx, labels: Sequence[str], key: str, *, profile: str) -> None:
    """Delete an item."""
    found = tx.one("find_memory", **_which(labels, key, profile))
    if found is not None:
        delete_items(tx, [found[0]])


def delete_items(tx: Tx, numbers: Sequence[int]) -> None:
    """Delete items by their numbers."""
    text = queries.pg_array_literal(numbers)
    tx.run("delete_memory_vectors", numbers=text)
    tx.run("delete_memories", numbers=text)


def delete_expired(tx: Tx, *, now: int, limit: int) -> int:
    """Delete items that have expired; return how many."""
    numbers = [no for (no,) in tx.all("expired_memories", now=now, limit=limit)]
    if numbers:
        delete_items(tx, numbers)
    return len(numbers)


def refresh(tx: Tx, no: int, *, expires_at: int) -> None:
    """Let an item expire at another time."""
    tx.run("refresh_memory", no=no, expires_at=expires_at)


def _which(labels: Sequence[str], key: str, profile: str) -> dict[str, str]:
    return {
        "profile": profile,
        "namespace": namespace_text(labels),
        "key": codec.encode(key),
    }


def _row(row: Sequence[object]) -> MemoryRow:
    no, namespace, key, *rest = row
    return MemoryRow(no, namespace, codec.decode(str(key)), *rest)  # type: ignore[arg-type]


def _between(prefix: Sequence[str]) -> tuple[str, str]:
    """What all namespaces under a prefix lie between: from the first, below the second."""
    first = namespace_text(prefix)
    return first, f"{first}{_LAST}"
