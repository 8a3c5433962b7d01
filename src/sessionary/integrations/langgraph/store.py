"""The long-term store of LangGraph, beside the sessions.

graph = plan.compile(checkpointer=SessionaryCheckpointer(client), store=SessionaryStore(client))
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from sessionary.actions import memories
from sessionary.actions.memories import FoundMemory, MemorySearch, NewMemory
from sessionary.clock import from_micros, to_micros
from sessionary.errors import BadInput
from sessionary.integrations.base import SessionaryClient, require_extra, wait_for_write
from sessionary.model import codec, tokenizer
from sessionary.store.database import Pending, Tx
from sessionary.store.tables.memories import MemoryRow

with require_extra("langgraph", "The store for LangGraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
        tokenize_path,
        validate_op_namespace,
    )

_MINUTE = 60 * 1_000_000
# Thousands of years; the sum with a time fits into a column.
_LONGEST = 2**60


class SessionaryStore(BaseStore):
    """Stores what graphs remember across threads, in the same database as the sessions.

    A batch is one transaction: what is read is read before anything is written. With `index`, values are embedded and a
    query compares all items under the prefix with it; without, items that have words of the query come first.
    """

    supports_ttl = True

    def __init__(
        self,
        client: SessionaryClient,
        *,
        profile: str | None = None,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self._client = client
        self._profile = profile or client.profile
        self.ttl_config = ttl
        self.index_config = index
        self._embeddings = None if index is None else ensure_embeddings(index.get("embed"))
        fields = None if index is None else index.get("fields")
        self._fields = [(each, tokenize_path(each)) for each in fields or ["$"]]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations together; their results are in the same order."""
        batch = self._batch(ops)
        if self._embeddings is not None:
            if batch.texts:
                batch.embed(self._embeddings.embed_documents(batch.texts))
            for query in batch.queries:
                batch.embedded_queries[query] = memories.unit_vector(
                    self._embeddings.embed_query(query)
                )
        results, read = self._running(batch).result()
        if read:
            self._refreshing(read).result()
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Like `batch`."""
        batch = self._batch(ops)
        if self._embeddings is not None:
            if batch.texts:
                batch.embed(await self._embeddings.aembed_documents(batch.texts))
            for query in batch.queries:
                batch.embedded_queries[query] = memories.unit_vector(
                    await self._embeddings.aembed_query(query)
                )
        running = self._running(batch)
        results, read = await (wait_for_write(running) if batch.puts else running)
        if read:
            await wait_for_write(self._refreshing(read))
        return results

    def sweep_ttl(self) -> int:
        """Delete all items that have expired, and return how many. Each write deletes some of them too."""
        total = 0
        while swept := self._client.store.write(memories.sweep, now=self._now()).result():
            total += swept
        return total

    def _batch(self, ops: Iterable[Op]) -> "_Operations":
        made = _Operations(list(ops))
        for op in made.ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                memories.check_namespace(op.namespace, op.key)
                made.puts[op.namespace, op.key] = op
            elif isinstance(op, SearchOp) and op.query and self._embeddings is not None:
                made.queries.append(op.query)
            elif not isinstance(op, GetOp | SearchOp | ListNamespacesOp):
                raise BadInput(f"A store has no operation {type(op).__name__}; nothing was done.")
        if self._embeddings is not None:
            for place, op in made.puts.items():
                made.add_texts(place, self._texts(op))
        return made

    def _texts(self, op: PutOp) -> list[str]:
        if op.value is None or op.index is False:
            return []
        fields = (
            self._fields if op.index is None else [(each, tokenize_path(each)) for each in op.index]
        )
        value = dict(op.value)
        return [
            text
            for path, tokens in fields
            for text in get_text_at_path(value, path if path == "$" else tokens)
        ]

    def _running(self, batch: "_Operations") -> "Pending[tuple[list[Result], list[MemoryRow]]]":
        now = self._now()
        if not batch.puts:
            return self._client.store.read(self._read, batch, now=now)
        items = [_new_memory(op, batch.vectors.get(place, ())) for place, op in batch.puts.items()]
        return self._client.store.write(self._write, batch, items, now=now)

    def _refreshing(self, rows: Sequence[MemoryRow]) -> Pending[None]:
        return self._client.store.write(memories.refresh, rows, now=self._now())

    def _now(self) -> int:
        return to_micros(self._client.moment().now)

    def _write(
        self, tx: Tx, batch: "_Operations", items: Sequence[NewMemory], *, now: int
    ) -> tuple[list[Result], list[MemoryRow]]:
        results, read = self._read(tx, batch, now=now)
        memories.refresh(tx, read, now=now)
        memories.put(tx, items, profile=self._profile, now=now)
        return results, []

    def _read(
        self, tx: Tx, batch: "_Operations", *, now: int
    ) -> tuple[list[Result], list[MemoryRow]]:
        """The results of a batch, and the items whose time begins again because they were read."""
        results: list[Result] = []
        read: dict[int, MemoryRow] = {}
        for op in batch.ops:
            found: list[FoundMemory] = []
            match op:
                case GetOp():
                    one = memories.get(tx, op.namespace, op.key, profile=self._profile, now=now)
                    found = [] if one is None else [one]
                    results.append(None if one is None else _item(one))
                case SearchOp():
                    wanted = self._search(op, batch)
                    found = memories.search(tx, wanted, profile=self._profile, now=now)
                    results.append([_search_item(each) for each in found])
                case ListNamespacesOp():
                    results.append(self._list(tx, op, now=now))
                case _:
                    results.append(None)
            if isinstance(op, GetOp | SearchOp) and op.refresh_ttl:
                read.update(
                    (each.row.no, each.row) for each in found if each.row.ttl_micros is not None
                )
        return results, list(read.values())

    def _search(self, op: SearchOp, batch: "_Operations") -> MemorySearch:
        query = op.query or ""
        is_embedded = self._embeddings is not None
        return MemorySearch(
            op.namespace_prefix,
            op.limit,
            op.offset,
            matches=_matcher(op.filter) if op.filter else None,
            words=frozenset[str]() if is_embedded else frozenset(tokenizer.words(query)),
            vector=batch.embedded_queries.get(query) if query else None,
        )

    def _list(self, tx: Tx, op: ListNamespacesOp, *, now: int) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        return memories.list_namespaces(
            tx,
            _literal_prefix(conditions),
            lambda namespace: all(_is_like(each, namespace) for each in conditions),
            max_depth=op.max_depth,
            limit=op.limit,
            offset=op.offset,
            profile=self._profile,
            now=now,
        )


Place = tuple[tuple[str, ...], str]


@dataclass(slots=True)
class _Operations:
    """Operations, the items that they write, each once, and what has to be embedded for them."""

    ops: list[Op]
    puts: dict[Place, PutOp] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    embedded_queries: "dict[str, array[float]]" = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    vectors: "dict[Place, tuple[array[float], ...]]" = field(default_factory=dict)
    _places: list[Place] = field(default_factory=list)

    def add_texts(self, place: Place, texts: Sequence[str]) -> None:
        """Note what of an item is embedded."""
        self.texts += texts
        self._places += [place] * len(texts)

    def embed(self, embeddings: Sequence[Sequence[float]]) -> None:
        """Take the embeddings of the texts."""
        for place, numbers in zip(self._places, embeddings, strict=True):
            vector = memories.unit_vector(numbers)
            self.vectors[place] = (*self.vectors.get(place, ()), vector)


def _new_memory(op: PutOp, vectors: "tuple[array[float], ...]") -> NewMemory:
    if op.value is None:
        return NewMemory(op.namespace, op.key, None)
    try:
        value = codec.encode(dict(op.value))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            f"The value of {op.key!r:.80} is no JSON object ({error}); nothing was written."
        ) from error
    if op.ttl is None:
        return NewMemory(op.namespace, op.key, value, None, vectors)
    if not isfinite(op.ttl):
        raise BadInput(f"An item cannot live for {op.ttl} minutes; nothing was written.")
    return NewMemory(op.namespace, op.key, value, min(round(op.ttl * _MINUTE), _LONGEST), vectors)


def _item(found: FoundMemory) -> Item:
    row = found.row
    return Item(
        value=found.value,
        key=row.key,
        namespace=row.labels,
        created_at=from_micros(row.created_at),
        updated_at=from_micros(row.updated_at),
    )


def _search_item(found: FoundMemory) -> SearchItem:
    row = found.row
    return SearchItem(
        row.labels,
        row.key,
        found.value,
        from_micros(row.created_at),
        from_micros(row.updated_at),
        found.score,
    )


# Filters, as the SDK's own store understands them.


def _matcher(wanted: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda value: all(_is_wanted(value.get(name), each) for name, each in wanted.items())


def _is_wanted(value: Any, wanted: Any) -> bool:
    match wanted:
        case Mapping() if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, name, each) for name, each in wanted.items())
        case Mapping():
            return isinstance(value, Mapping) and all(
                _is_wanted(value.get(name), each) for name, each in wanted.items()
            )
        case list() | tuple():
            return (
                isinstance(value, list)
                and len(value) == len(wanted)
                and all(map(_is_wanted, value, wanted))
            )
    return bool(value == wanted)


_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "$gt": lambda value, bound: value > bound,
    "$gte": lambda value, bound: value >= bound,
    "$lt": lambda value, bound: value < bound,
    "$lte": lambda value, bound: value <= bound,
}


def _compares(value: Any, operator: str, wanted: Any) -> bool:
    if operator == "$eq":
        return bool(value == wanted)
    if operator == "$ne":
        return bool(value != wanted)
    comparison = _COMPARISONS.get(operator)
    if comparison is None:
        known = ", ".join(("$eq", "$ne", *_COMPARISONS))
        raise BadInput(f"A filter has no operator {operator!r:.40}; there are {known}.")
    try:
        return comparison(float(value), float(wanted))
    except (TypeError, ValueError):
        return False  # what is no number is neither more nor less


def _literal_prefix(conditions: Sequence[MatchCondition]) -> tuple[str, ...]:
    """What all namespaces that match begin with."""
    known: tuple[str, ...] = ()
    for each in conditions:
        if each.match_type == "prefix":
            labels = list(each.path)
            literal = tuple(labels[: labels.index("*")] if "*" in labels else labels)
            known = max(known, literal, key=len)
    return known


def _is_like(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=False))
