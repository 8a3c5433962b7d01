"""The long-term store for LangGraph, compared with the SDK's own store in memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from sessionary import BadInput, Sessionary
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.integrations.langgraph import SessionaryStore
from sessionary.model.usage import Usage
from sessionary.store.copy_store import copy_store
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.support.postgres import Server

ANN = ("users", "ann")


@dataclass
class Later:
    """A client whose clock can be set."""

    client: Sessionary
    shift: timedelta = timedelta(0)

    @property
    def store(self) -> Store:
        return self.client.store

    @property
    def profile(self) -> str:
        return self.client.profile

    @property
    def holder(self) -> str:
        return self.client.holder

    def moment(self) -> Moment:
        now = self.client.moment()
        return Moment(now.now + self.shift, now.ids)

    def priced(self, used: Usage | None, *, at: datetime | None) -> Usage | None:
        return self.client.priced(used, at=at)


# The same operations have the same results.

labels = st.sampled_from(["a", "b", "a-b", "a b", "c", "ab", "é"])
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
keys = st.sampled_from(["1", "2", "3", "", "a\x00b", "\ud800", "x" * 300])
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["x", "y", "\x00"])
)
values = st.dictionaries(
    st.sampled_from(["p", "q", "r"]),
    st.one_of(leaves, st.lists(leaves, max_size=2), st.dictionaries(st.just("s"), leaves)),
    max_size=3,
)
comparisons = st.one_of(
    st.builds(lambda v: {"$eq": v}, leaves), st.builds(lambda v: {"$ne": v}, leaves)
)
filters = st.one_of(
    st.none(),
    st.dictionaries(
        st.sampled_from(["p", "q"]), st.one_of(values, leaves, comparisons), max_size=2
    ),
)
wild = st.lists(st.one_of(labels, st.just("*")), min_size=1, max_size=3).map(tuple)
conditions = st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), wild)
operations = st.one_of(
    st.tuples(namespaces, keys, st.one_of(st.none(), values)).map(lambda given: PutOp(*given)),
    st.tuples(namespaces, keys, values).map(lambda given: PutOp(*given)),
    st.tuples(namespaces, keys).map(lambda given: GetOp(*given)),
    st.tuples(
        st.lists(labels, max_size=2).map(tuple),
        filters,
        st.integers(0, 4),
        st.integers(0, 2),
    ).map(lambda given: SearchOp(*given)),
    st.tuples(
        st.one_of(st.none(), st.lists(conditions, max_size=2).map(tuple)),
        st.one_of(st.none(), st.integers(1, 3)),
        st.integers(0, 4),
        st.integers(0, 2),
    ).map(lambda given: ListNamespacesOp(*given)),
)


def plain(result: Any) -> Any:
    """A result without its times."""
    if isinstance(result, list):
        return [plain(each) for each in result]
    if result is None or isinstance(result, tuple):
        return result
    return (result.namespace, result.key, result.value, getattr(result, "score", None))


class Reference:
    """The SDK's store, but for the order of namespaces, and those that have nothing."""

    def __init__(self) -> None:
        self.store = InMemoryStore()

    def batch(self, ops: Sequence[Any]) -> list[Any]:
        results = self.store.batch(ops)
        for number, op in enumerate(ops):
            if isinstance(op, SearchOp):  # by namespace, not by when the namespace was first named
                whole = self.store.batch([op._replace(limit=10_000, offset=0)])[0]
                assert isinstance(whole, list)
                ordered = sorted(whole, key=lambda each: each.namespace)
                results[number] = ordered[op.offset : op.offset + op.limit]  # type: ignore[assignment]
            if isinstance(op, ListNamespacesOp):  # without those that have nothing
                results[number] = self._namespaces(op)
        return results

    def _namespaces(self, op: ListNamespacesOp) -> Any:
        whole = SearchOp((), None, 10_000)
        filled = {each.namespace for each in self.store.batch([whole])[0]}  # type: ignore[union-attr]
        fresh = InMemoryStore()
        for namespace in filled:
            fresh.put(namespace, "k", {})
        return fresh.batch([op])[0]


def one_by_one(store: Any, ops: Sequence[Any], size: int) -> list[Any]:
    """The results of operations in batches of this size; reads come alone, as they see what was before their batch."""
    results = []
    batch: list[Any] = []
    for op in ops:
        if isinstance(op, PutOp):
            batch.append(op)
            if len(batch) < size:
                continue
        if batch:
            store.batch(batch)
            batch = []
        if not isinstance(op, PutOp):
            results += [plain(each) for each in store.batch([op])]
    if batch:
        store.batch(batch)
    return results


@pytest.fixture(scope="module")
def fresh_store(migrated: str, postgres: Server) -> Iterator[Callable[[str], SessionaryStore]]:
    """Gives a store of its own, as a profile of one database of each kind."""
    url = postgres.create_database(template=migrated)
    clients = {"postgres": Sessionary(url), "sqlite": Sessionary("sqlite::memory:")}
    made = iter(range(1_000_000))
    yield lambda kind: SessionaryStore(clients[kind], profile=f"p{next(made)}")
    for each in clients.values():
        each.close()
    postgres.drop_database(url)


@given(st.lists(operations, max_size=25), st.integers(1, 4))
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_operations_have_the_same_results_as_with_the_sdk_s_store(
    fresh_store: Callable[[str], SessionaryStore], kind: str, ops: list[Any], size: int
) -> None:
    assert one_by_one(fresh_store(kind), ops, size) == one_by_one(Reference(), ops, size)


async def test_a_batch_reads_before_it_writes_and_the_last_value_counts(
    client: Sessionary,
) -> None:
    ops = (
        PutOp(ANN, "food", {"likes": "fish"}),
        GetOp(ANN, "food"),
        PutOp(ANN, "food", {"likes": "rice"}),
        SearchOp(ANN),
    )
    ours, theirs = SessionaryStore(client), InMemoryStore()
    for _ in range(2):
        assert [plain(each) for each in await ours.abatch(ops)] == [
            plain(each) for each in await theirs.abatch(ops)
        ]
    item = await ours.aget(ANN, "food")
    assert item is not None
    assert item.value == {"likes": "rice"}


def test_an_item_keeps_the_time_at_which_it_was_made(client: Sessionary) -> None:
    later = Later(client)
    store = SessionaryStore(later)
    store.put(ANN, "food", {"likes": "fish"})
    later.shift = timedelta(hours=1)
    store.put(ANN, "food", {"likes": "rice"})

    item = store.get(ANN, "food")
    assert item is not None
    assert item.updated_at - item.created_at >= timedelta(hours=1)


def test_comparisons_leave_out_what_is_no_number(client: Sessionary) -> None:
    store = SessionaryStore(client)
    for key, age in (("a", 3), ("b", 5.5), ("c", "7"), ("d", "old"), ("e", None)):
        store.put(ANN, key, {"age": age})
    store.put(ANN, "f", {})

    def found(**bounds: Any) -> list[str]:
        wanted = {f"${name}": value for name, value in bounds.items()}
        return [each.key for each in store.search(ANN, filter={"age": wanted})]

    assert found(gt=3) == ["b", "c"]
    assert found(gte=3, lt=7) == ["a", "b"]
    assert found(lte=3) == ["a"]
    with pytest.raises(BadInput, match="no operator '\\$like'"):
        found(like="x")


def test_a_query_without_embeddings_puts_items_with_its_words_first(client: Sessionary) -> None:
    store = SessionaryStore(client)
    store.put(ANN, "1", {"text": "She has a dog."})
    store.put(ANN, "2", {"text": "Coffee", "more": [{"text": "No DESSERT for lunch, please"}]})
    store.put(ANN, "3", {"text": "Lunch at noon", "number": 3})
    store.put(ANN, "4", {"dessert": "lunch is only in a name"})
    store.put(("users", "bob"), "5", {"text": "dessert, lunch and more"})

    found = store.search(ANN, query="dessert or lunch?")

    assert [(each.key, each.score) for each in found] == [
        ("2", 2 / 3),
        ("3", 1 / 3),
        ("4", 1 / 3),
        ("1", None),
    ]
    assert [each.key for each in store.search(ANN, query="lunch", limit=1, offset=1)] == ["3"]
    assert [each.key for each in store.search(ANN, query="?!", limit=1)] == ["1"]
    assert [each.key for each in store.search(("users",), query="lunch", limit=3)] == [
        "2",
        "3",
        "4",
    ]


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Counts letters: enough to tell texts apart, the same every time."""
    return [
        [float(text.count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts
    ]


async def test_a_query_with_embeddings_finds_what_the_sdk_s_store_finds(client: Sessionary) -> None:
    index: Any = {"dims": 26, "embed": embed, "fields": ["text", "parts[*].text"]}
    ours, theirs = SessionaryStore(client, index=index), InMemoryStore(index=index)
    words = ("harbour", "abba", "zebra crossing", "lisbon", "the quick brown fox", "mmmm")
    for store in (ours, theirs):
        for number, word in enumerate(words):
            value = {
                "text": word,
                "parts": [{"text": word[::2]}, {"text": word[1:]}],
                "n": number % 2,
            }
            await store.aput(ANN, str(number), value)
        await store.aput(ANN, "unembedded", {"text": "abba"}, index=False)
        await store.aput(ANN, "other", {"text": "x", "name": "abba"}, index=["name"])

    def results(store: BaseStore, query: str, **more: Any) -> list[Any]:
        return [
            (each.key, each.score and round(each.score, 5), each.value)
            for each in store.search(ANN, query=query, **more)
        ]

    for query in ("abba", "a brown zebra", "mm"):
        assert results(ours, query, limit=20) == results(theirs, query, limit=20)
        assert results(ours, query, limit=2, offset=1) == results(theirs, query, limit=2, offset=1)
        wanted = {"filter": {"n": 1}, "limit": 3}
        assert results(ours, query, **wanted) == results(theirs, query, **wanted)
    # An item that is written again is found by its new words only.
    await ours.aput(ANN, "1", {"text": "zzz"})
    (best,) = await ours.asearch(ANN, query="zzz", limit=1)
    assert best.key == "1"
    ours.delete(ANN, "1")
    assert "1" not in [each.key for each in ours.search(ANN, query="zzz", limit=20)]


def test_embeddings_of_another_model_are_not_compared(client: Sessionary) -> None:
    short: Any = {"dims": 2, "embed": lambda texts: [[1.0, float(len(each))] for each in texts]}
    SessionaryStore(client, index={"dims": 26, "embed": embed}).put(ANN, "old", {"text": "ab"})
    store = SessionaryStore(client, index=short)
    store.put(ANN, "new", {"text": "b"})

    found = store.search(ANN, query="ab")

    assert [(each.key, each.score is None) for each in found] == [("new", False), ("old", True)]


async def test_items_expire_and_live_on_when_they_are_read(client: Sessionary) -> None:
    later = Later(client)
    store = SessionaryStore(later, ttl={"default_ttl": 10})
    store.put(ANN, "default", {})
    store.put(ANN, "long", {}, ttl=60)
    store.put(ANN, "ever", {}, ttl=None)

    def at(minutes: float) -> list[str]:
        later.shift = timedelta(minutes=minutes)
        return [each.key for each in store.search(ANN, refresh_ttl=False)]

    assert at(9) == ["default", "long", "ever"]
    store.get(ANN, "default")
    assert at(18) == ["default", "long", "ever"]
    await store.aget(ANN, "default", refresh_ttl=False)
    assert at(20) == ["long", "ever"]
    assert store.get(ANN, "default") is None
    store.search(ANN)
    assert at(79) == ["long", "ever"]
    store.put(ANN, "default", {"again": True})
    assert at(81) == ["ever", "default"]
    assert store.sweep_ttl() == 1
    later.shift = timedelta(days=1)
    store.put(("other",), "k", {}, ttl=None)
    assert store.sweep_ttl() == 0  # the write has deleted it
    store.delete(("other",), "k")
    assert at(24 * 60) == ["ever"]
    assert store.list_namespaces() == [ANN]
    store.put(ANN, "ages", {}, ttl=1e15)
    store.delete(ANN, "ages")
    never_refreshed = SessionaryStore(later, ttl={"refresh_on_read": False})
    never_refreshed.put(ANN, "short", {}, ttl=1)
    assert never_refreshed.get(ANN, "short") is not None
    assert "short" not in at(24 * 60 + 1.1)


def test_what_cannot_be_stored_is_refused_and_nothing_is_written(client: Sessionary) -> None:
    store = SessionaryStore(client)
    circle: dict[str, Any] = {}
    circle["self"] = circle
    refused: tuple[tuple[Any, str, Any], ...] = (
        (("a\x01",), "k", {}),
        (("\ud800",), "k", {}),
        (("x" * 2000,), "k", {}),
        (ANN, "k" * 2000, {}),
        (ANN, "k", {"f": object()}),
    )
    for ttl in (float("nan"), float("inf")):
        with pytest.raises(BadInput, match="othing was written"):
            store.put(ANN, "k", {}, ttl=ttl)
    for namespace, key, value in refused:
        with pytest.raises(BadInput, match="othing was written"):
            store.batch([PutOp(ANN, "good", {}), PutOp(namespace, key, value)])
    for bad in ((), ("a.b",), ("",), ("langgraph",), ("a\x00",)):
        with pytest.raises(InvalidNamespaceError):
            store.put(bad, "k", {})
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("a.b",), "k", {})])
    with pytest.raises((RecursionError, BadInput)):
        store.put(ANN, "k", circle)
    with pytest.raises(BadInput, match="no operation str"):
        store.batch(["get"])  # type: ignore[list-item]
    assert store.search(()) == []
    assert store.search(("nobody",), limit=-1) == []


def test_profiles_have_memories_of_their_own(client: Sessionary) -> None:
    ours, theirs = (SessionaryStore(client, profile=name) for name in ("main", "other"))
    ours.put(ANN, "k", {"a": 1})

    assert theirs.get(ANN, "k") is None
    assert theirs.search(()) == []
    assert theirs.list_namespaces() == []
    theirs.delete(ANN, "k")
    assert ours.get(ANN, "k") is not None


def test_a_node_of_a_graph_uses_the_store(client: Sessionary) -> None:
    def remember(state: dict[str, Any], *, store: BaseStore) -> dict[str, Any]:
        store.put(ANN, "name", {"name": state["name"]})
        return {"name": store.search(ANN)[0].value["name"] + "!"}

    plan: Any = StateGraph(dict[str, Any])
    plan.add_node("remember", remember)
    plan.add_edge(START, "remember")

    done = plan.compile(store=SessionaryStore(client)).invoke({"name": "Ann"})

    assert done == {"name": "Ann!"}
    found = SessionaryStore(client).get(ANN, "name")
    assert found is not None
    assert found.value == {"name": "Ann"}


def test_memories_move_with_their_store(new_url: Callable[[str], str]) -> None:
    index: Any = {"dims": 26, "embed": embed}
    url = new_url("sqlite")
    with Sessionary(url) as client:
        SessionaryStore(client, index=index).put(ANN, "a", {"text": "abba"}, ttl=5)
        SessionaryStore(client, index=index).put(ANN, "b", {"text": "zebra"})
    for kind in ("postgres", "sqlite"):
        target = new_url(kind)
        with Sessionary(url) as client:
            opened = open_store(target, create=True, clock=SystemClock(), ids=RandomIds())
            copy_store(client.store, opened)
            opened.close()
        url = target

    with Sessionary(url) as client:
        store = SessionaryStore(client, index=index)
        store.put(ANN, "c", {"text": "other"})
        found = store.search(ANN, query="zzebra", limit=1)
        assert [each.key for each in found] == ["b"]
        assert len(store.search(ANN)) == 3
