"""The checkpointer for LangGraph: the SDK's conformance suite, real graphs, kills, and what belongs to a session."""

import asyncio
import json
import operator
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from sessionary import AsyncSessionary, BadInput, Conflict, Sessionary
from sessionary.actions.retention import erase
from sessionary.actions.retention.erase import ErasureSubject
from sessionary.clock import RandomIds, SystemClock
from sessionary.integrations.langgraph import SessionaryCheckpointer, SessionaryRecorder
from sessionary.model.source import Person
from sessionary.store.copy_store import copy_store
from sessionary.store.database import RaceLost, Store, Tx
from sessionary.store.open import open_store
from sessionary.store.tables import checkpoints
from tests.integrations.sdk_programs import ROOT, Urls, broken, environ
from tests.support.statement_counter import counted_sqlite_steps

USED: Any = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107}
MODEL = {"model_name": "gpt-4o-mini"}
TABLES = (
    "checkpoint_threads",
    "checkpoint_namespaces",
    "checkpoints",
    "checkpoint_values",
    "checkpoint_writes",
)


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    steps: Annotated[list[str], operator.add]


def where(name: str = "alice", **more: Any) -> Any:
    return {"configurable": {"thread_id": name, **more}}


def say(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


def talker(saver: BaseCheckpointSaver[Any], *names: str) -> Any:
    """A graph of nodes that each say something."""

    def speaker(name: str) -> Callable[[Talk], dict[str, Any]]:
        return lambda state: {
            "messages": [
                AIMessage(
                    f"{name} {len(state['messages'])}", usage_metadata=USED, response_metadata=MODEL
                )
            ],
            "steps": [name],
        }

    plan: Any = StateGraph(Talk)
    last = START
    for name in names or ("one", "two"):
        plan.add_node(name, speaker(name))
        plan.add_edge(last, name)
        last = name
    return plan.compile(checkpointer=saver)


def texts(messages: Sequence[Any]) -> list[str]:
    return [each.content for each in messages]


def logged(client: Sessionary, name: str | None = None) -> list[str]:
    """What the only session has, or the one with a chat of this name."""
    heads = [
        head for head in client.sessions().items if name is None or head.source.chat_id == name
    ]
    (head,) = heads
    return [each.text for each in client.find(head.id).messages()]


def counts(client: Sessionary) -> dict[str, int]:
    """How many rows the tables have."""

    def count(tx: Tx) -> dict[str, int]:
        return {
            name: len(tx.all(f"copy_page_{name}", limit=100_000, **after))
            for name, after in FIRST.items()
        }

    return client.store.read(count).result()


FIRST: dict[str, dict[str, Any]] = {
    "checkpoint_threads": {"after_no": 0},
    "checkpoint_namespaces": {"after_no": 0},
    "checkpoints": {"after_namespace_no": 0, "after_id": ""},
    "checkpoint_values": {"after_namespace_no": 0, "after_name": ""},
    "checkpoint_writes": {
        "after_namespace_no": 0,
        "after_checkpoint_id": "",
        "after_task_id": "",
        "after_idx": -(2**62),
    },
}
NOTHING = dict.fromkeys(FIRST, 0)


@pytest.mark.parametrize("messages", ["messages", None])
async def test_the_sdk_s_conformance_suite_is_complete(url: str, messages: str | None) -> None:
    @checkpointer_test(name="sessionary")
    async def ours() -> AsyncIterator[SessionaryCheckpointer]:
        async with AsyncSessionary(url) as client:
            yield SessionaryCheckpointer(client, messages=messages)

    report = await validate(ours)

    assert [name for name, each in report.results.items() if not each.passed] == []
    assert len(report.results) == 8
    assert sum(each.tests_passed for each in report.results.values()) >= 81


async def test_an_interrupted_graph_that_is_killed_is_resumed_in_another_process(
    urls: Urls, tmp_path: Path
) -> None:
    async def run(url: str, log: Path, die: str = "", answer: str | None = None) -> Any:
        given = {"url": url, "log": str(log), "die": die, "answer": answer}
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integrations.programs.checkpoints",
            json.dumps(given),
            cwd=ROOT,
            env=environ(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
        if die:
            assert child.returncode == -signal.SIGKILL, err.decode()
            return None
        assert child.returncode == 0, err.decode()
        return json.loads(out)

    async def once(number: int, url: str) -> None:
        log = tmp_path / f"log-{number}"
        for point in ("while it waits", "before the tool", "after the tool"):
            await run(url, log, die=point, answer="yes")

        said = await run(url, log, answer="yes")

        expected = ["I need a trip.", "I would book Lisbon.", "Booked: yes.", "Have a good trip."]
        assert said == expected
        assert log.read_text() == "yes\n"
        with Sessionary(url) as client:
            assert logged(client) == expected
            assert broken(client) == []

    await asyncio.gather(*(once(number, url) for number, url in enumerate(urls)))


async def test_after_a_kill_every_checkpoint_is_whole_and_its_messages_are_in_the_session(
    urls: Urls,
) -> None:
    for times in (1, 3):
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integrations.programs.checkpoint_writer",
            json.dumps(urls),
            cwd=ROOT,
            env=environ(),
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout is not None
        runs = Counter[str]()
        while min(runs[url] for url in urls) < times:
            line = await child.stdout.readline()
            assert line
            runs[line.decode().strip()] += 1
        child.kill()
        await child.communicate()

        for url in urls:
            with Sessionary(url) as client:
                found = list(SessionaryCheckpointer(client).list(where()))
                for each in found:
                    # A branch is taken once: the channel that says so is empty afterwards.
                    versions = {
                        name for name in each.checkpoint["channel_versions"] if ":" not in name
                    } - {"__start__"}
                    assert set(each.checkpoint["channel_values"]) >= versions
                newest = found[0].checkpoint["channel_values"].get("messages", [])
                assert logged(client) == texts(newest)
                assert broken(client) == []


def test_a_graph_travels_in_time_as_with_the_sdk_s_own_saver(client: Sessionary) -> None:
    def live(saver: BaseCheckpointSaver[Any]) -> list[Any]:
        graph = talker(saver, "one", "two", "three")
        graph.invoke(say("hello"), where())
        graph.invoke(say("again"), where())
        history = list(graph.get_state_history(where()))
        past = next(each for each in history if each.next == ("two",))
        forked = graph.update_state(past.config, {"steps": ["changed"]})
        went_on = graph.invoke(None, forked)
        replayed = graph.invoke(None, past.config)
        return [
            [(each.next, texts(each.values.get("messages", ())), each.metadata) for each in states]
            for states in (
                history,
                list(graph.get_state_history(where())),
                list(graph.get_state_history(where(), limit=3)),
                list(graph.get_state_history(where(), before=past.config)),
                list(graph.get_state_history(where(), filter={"source": "input"})),
            )
        ] + [went_on["steps"], replayed["steps"], graph.get_state(where()).values["steps"]]

    assert live(SessionaryCheckpointer(client)) == live(InMemorySaver())


async def test_every_method_answers_the_same_in_both_kinds(url: str, client: Sessionary) -> None:
    saver = SessionaryCheckpointer(client)
    graph = talker(saver)
    await graph.ainvoke(say("hello"), where())
    state = await graph.aget_state(where())
    assert texts(state.values["messages"]) == ["hello", "one 1", "two 2"]

    assert await saver.aget_tuple(where()) == saver.get_tuple(where())
    for config in (None, where(), where(checkpoint_ns=""), state.config):
        assert [each async for each in saver.alist(config)] == list(saver.list(config))
        assert [each async for each in saver.alist(config, limit=2)] == list(
            saver.list(config, limit=2)
        )
    assert len(list(saver.list(state.config))) == 1
    assert list(saver.list(where(), limit=0)) == []
    saver.copy_thread("alice", "bob")
    await saver.acopy_thread("alice", "carol")
    saver.prune(["bob"])
    await saver.aprune(["carol"])
    for name in ("bob", "carol"):
        assert len(list(saver.list(where(name)))) == 1
        found = saver.get_tuple(where(name))
        assert found is not None
        assert texts(found.checkpoint["channel_values"]["messages"]) == ["hello", "one 1", "two 2"]
    saver.delete_thread("bob")
    await saver.adelete_thread("carol")
    assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == {"alice"}
    assert broken(client) == []


def test_graphs_inside_a_graph_have_checkpoints_of_their_own_in_the_thread(
    client: Sessionary,
) -> None:
    class Inner(TypedDict):
        steps: Annotated[list[str], operator.add]

    def ask(_: Inner) -> dict[str, Any]:
        return {"steps": [interrupt("May I?")]}

    inner: Any = StateGraph(Inner)
    inner.add_node("first", lambda _: {"steps": ["inner"]})
    inner.add_node("ask", ask)
    inner.add_edge(START, "first")
    inner.add_edge("first", "ask")
    outer: Any = StateGraph(Talk)
    outer.add_node("inside", inner.compile())
    outer.add_node("after", lambda _: {"steps": ["outer"]})
    outer.add_edge(START, "inside")
    outer.add_edge("inside", "after")
    saver = SessionaryCheckpointer(client)
    graph = outer.compile(checkpointer=saver)
    graph.invoke(say("hello"), where())
    waiting = graph.get_state(where(), subgraphs=True)
    assert waiting.tasks[0].state.values["steps"] == ["inner"]
    places = {each.config["configurable"]["checkpoint_ns"] for each in saver.list(where())}
    assert "" in places
    assert len(places) == 2
    ids = [each.config["configurable"]["checkpoint_id"] for each in saver.list(where())]
    assert ids == sorted(ids, reverse=True)

    # Another object, as in another process.
    again = outer.compile(checkpointer=SessionaryCheckpointer(client))
    done = again.invoke(Command(resume="yes"), where())

    assert done["steps"] == ["inner", "yes", "outer"]
    assert logged(client) == ["hello"]
    saver.delete_thread("alice")
    assert counts(client) == NOTHING


HOSTILE = (
    "a/b/../c",
    "a\x00b",
    "a\ufffdb",
    "%00%2F",
    "ﷺ" * 3000,
    "ﷺ" * 3000 + "x",
    "\ud800",
    "🧵 — naïve",
    " ",
    "'; DROP TABLE checkpoints; --",
)


def test_threads_may_have_any_name(client: Sessionary) -> None:
    saver = SessionaryCheckpointer(client)
    graph = talker(saver, "one")
    for number, name in enumerate(HOSTILE):
        graph.invoke(say(f"hello {number}"), where(name))

    for number, name in enumerate(HOSTILE):
        again = talker(SessionaryCheckpointer(client), "one")
        done = again.invoke(say("again"), where(name))
        assert texts(done["messages"]) == [f"hello {number}", "one 1", "again", "one 3"]
    assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == set(HOSTILE)
    assert len(client.sessions().items) == len(HOSTILE)
    assert client.search("again").items
    assert broken(client) == []
    for name in HOSTILE:
        saver.delete_thread(name)
    assert counts(client) == NOTHING


def test_namespaces_and_channels_may_have_any_name_and_ids_are_checked(client: Sessionary) -> None:
    saver = SessionaryCheckpointer(client)
    made = empty_checkpoint()
    # The SDK cannot serialize half a pair of surrogates.
    for name in [each for each in HOSTILE if each != "\ud800"]:
        made["channel_values"] = {name: name.encode()}
        made["channel_versions"] = {name: 1.5}
        at = where(checkpoint_ns=name)
        saver.put(at, made, {"source": "loop", "step": 1}, {name: 1.5})
        saver.put_writes(
            where(checkpoint_ns=name, checkpoint_id=made["id"]), [(name, [1])], "task", name
        )
        found = saver.get_tuple(at)
        assert found is not None
        assert found.checkpoint["channel_values"] == made["channel_values"]
        assert found.pending_writes == [("task", name, [1])]
    for bad in ("", "a\x00", "\ud800", "x" * 501):
        with pytest.raises(BadInput, match="nothing was written"):
            saver.put_writes(where(checkpoint_id=bad), [("c", 1)], "task")
        with pytest.raises(BadInput, match="nothing was written"):
            saver.put(where(), {**made, "id": bad}, {}, {})
    assert saver.get_tuple(where(checkpoint_id="a\x00")) is None
    nobody: Any
    for nobody in ({"configurable": {}}, where(""), {"configurable": {"thread_id": None}}):
        with pytest.raises(BadInput, match="name of a thread"):
            saver.get_tuple(nobody)
    with pytest.raises(BadInput, match="keep_latest or delete"):
        saver.prune(["alice"], strategy="everything")


BIG = "x" * 1000


def putting(saver: SessionaryCheckpointer, number: int, name: str = "long") -> Iterator[Any]:
    """Put checkpoints of a thread, each with one channel that changes and one that does not."""
    made, parent = empty_checkpoint(), where(name, checkpoint_ns="")
    version = saver.get_next_version(None, None)
    for step in range(number):
        made = {**made, "id": f"{step:08}"}
        made["channel_values"] = {"step": step, "big": BIG}
        versions: Any = {"step": f"{step + 1:032}.a", "big": version}
        made["channel_versions"] = versions
        new = versions if step == 0 else {"step": versions["step"]}
        parent = saver.put(parent, made, {"source": "loop", "step": step}, new)
        yield parent


def test_reading_the_newest_of_10_000_checkpoints_takes_as_many_steps_as_of_10(
    tmp_path: Path,
) -> None:
    with (
        counted_sqlite_steps() as steps,
        Sessionary(f"sqlite:///{tmp_path}/s.db") as client,
    ):
        saver = SessionaryCheckpointer(client)

        def taken(work: Callable[[], Any]) -> int:
            work()
            before = steps()
            work()
            return steps() - before

        def measured(name: str) -> list[int]:
            newest = saver.get_tuple(where(name))
            assert newest is not None
            return [
                taken(lambda: saver.get_tuple(where(name))),
                taken(lambda: saver.get_tuple(newest.config)),
                taken(lambda: list(saver.list(where(name, checkpoint_ns=""), limit=5))),
                taken(lambda: list(saver.list(where(name), limit=5))),
                taken(lambda: saver.put_writes(newest.config, [("step", 1)], "task")),
            ]

        list(putting(saver, 10, "short"))
        few = measured("short")
        client.store.write(_fill, saver, 10_000).result()
        many = measured("long")
        assert len(list(saver.list(where("long")))) == 10_000

        assert many == few
        # What did not change was written once.
        assert client.store.read(_value_count, "long").result() == 10_001


def _fill(tx: Tx, saver: SessionaryCheckpointer, number: int) -> None:
    """Put many checkpoints in one transaction, by what the checkpointer itself runs."""

    class Here:
        def write(self, action: Any, *args: Any, **kwargs: Any) -> Any:
            value = action(tx, *args, **kwargs)

            class Done:
                def result(self) -> Any:
                    return value

            return Done()

    inside = SessionaryCheckpointer(saver._client)
    inside._client = type(
        "InTransaction",
        (),
        {"store": Here(), "moment": lambda _: saver._client.moment(), "profile": "main"},
    )()
    list(putting(inside, number))


def _value_count(tx: Tx, name: str) -> int:
    place = checkpoints.find_place(tx, name, "", profile="main")
    assert place is not None
    rows = tx.all("copy_page_checkpoint_values", limit=100_000, after_namespace_no=0, after_name="")
    return sum(row[0] == place.namespace_no for row in rows)


# The thread is a session.


def test_messages_and_their_costs_are_in_the_session_once_with_a_recorder_beside_or_not(
    client: Sessionary,
) -> None:
    saver = SessionaryCheckpointer(client)
    talker(saver).invoke(say("hello"), where())
    with_both = {**where(), "callbacks": [SessionaryRecorder(client)]}
    talker(SessionaryCheckpointer(client)).invoke(say("again"), with_both)

    assert logged(client) == ["hello", "one 1", "two 2", "again", "one 4", "two 5"]
    (head,) = client.sessions().items
    assert (head.usage.calls, head.source.platform) == (4, "langgraph")
    assert head.usage.cost_microusd
    assert client.search("again").items
    assert broken(client) == []


def test_a_message_that_was_rewritten_or_erased_is_not_written_again(client: Sessionary) -> None:
    graph = talker(SessionaryCheckpointer(client), "one")
    graph.invoke({"messages": [HumanMessage("hello", id="1")]}, where())
    other = talker(SessionaryCheckpointer(client), "one")

    other.invoke({"messages": [HumanMessage("good morning", id="1")]}, where())

    assert logged(client) == ["hello", "one 1", "one 2"]


def test_a_graph_without_messages_has_checkpoints_and_no_session(client: Sessionary) -> None:
    plan: Any = StateGraph(Talk)
    plan.add_node("one", lambda _: {"steps": ["one"]})
    plan.add_edge(START, "one")
    graph = plan.compile(checkpointer=SessionaryCheckpointer(client))
    graph.invoke({"steps": ["zero"]}, where())

    assert graph.get_state(where()).values["steps"] == ["zero", "one"]
    assert list(client.sessions().items) == []
    silent = talker(SessionaryCheckpointer(client, messages=None), "one")
    silent.invoke(say("hello"), where("bob"))
    assert list(client.sessions().items) == []


def test_a_session_in_the_trash_hides_its_thread_until_it_is_restored(client: Sessionary) -> None:
    graph = talker(SessionaryCheckpointer(client), "one")
    graph.invoke(say("hello"), where())
    (head,) = client.sessions().items
    client.find(head.id).trash()
    assert graph.get_state(where()).created_at is None
    assert list(graph.get_state_history(where())) == []
    client.find(head.id).restore()
    assert texts(graph.get_state(where()).values["messages"]) == ["hello", "one 1"]
    client.find(head.id).trash()

    graph.invoke(say("a new beginning"), where())

    assert logged(client) == ["a new beginning", "one 1"]
    assert texts(graph.get_state(where()).values["messages"]) == ["a new beginning", "one 1"]
    assert counts(client)["checkpoint_threads"] == 2


def test_the_same_message_begins_a_new_session_when_the_one_it_was_in_is_over(
    client: Sessionary,
) -> None:
    graph = talker(SessionaryCheckpointer(client), "one")
    first = {"messages": [HumanMessage("hello", id="1")]}
    graph.invoke(first, where())
    (head,) = client.sessions().items
    client.find(head.id).end()

    graph.invoke(first, where())

    (newer,) = [each for each in client.sessions().items if each.id != head.id]
    assert [each.text for each in client.find(newer.id).messages()] == ["hello", "one 1"]


class RacingStore:
    """A store in which another transaction is first, once in each write."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def write(self, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        runs = 0

        def losing(tx: Tx) -> Any:
            nonlocal runs
            runs += 1
            value = action(tx, *args, **kwargs)
            if runs == 1:
                raise RaceLost
            return value

        return self.store.write(losing)

    def read(self, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.store.read(action, *args, **kwargs)


def test_a_transaction_that_is_run_again_writes_the_same(client: Sessionary) -> None:
    class Racing:
        store = RacingStore(client.store)
        profile = client.profile
        holder = client.holder
        moment = staticmethod(client.moment)
        priced = staticmethod(client.priced)

    graph = talker(SessionaryCheckpointer(cast(Any, Racing())), "one")
    first = {"messages": [HumanMessage("hello", id="1")]}
    for _ in range(2):
        graph.invoke(first, where())
        (head,) = [each for each in client.sessions().items if each.is_open]
        assert [each.text for each in client.find(head.id).messages()] == ["hello", "one 1"]
        assert head.usage.calls == 1
        client.find(head.id).end()


def test_a_purged_session_takes_its_checkpoints_along_and_no_others(client: Sessionary) -> None:
    graph = talker(SessionaryCheckpointer(client), "one")
    graph.invoke(say("hello"), where())
    alone = counts(client)
    graph.invoke(say("hello"), where("bob"))
    bob = next(each for each in client.sessions().items if each.source.chat_id == "bob")
    client.find(bob.id).purge()

    assert counts(client) == alone
    assert graph.get_state(where("bob")).created_at is None
    assert texts(graph.get_state(where()).values["messages"]) == ["hello", "one 1"]
    assert broken(client) == []


def link(tx: Tx, name: str, session_no: int) -> None:
    place = checkpoints.find_place(tx, name, "", profile="main")
    assert place is not None
    checkpoints.link_session(tx, place.thread_no, session_no)


def test_erasing_a_person_deletes_the_checkpoints_that_have_their_words(client: Sessionary) -> None:
    graph = talker(SessionaryCheckpointer(client), "one")
    graph.invoke(say("hello"), where())
    session = client.find(client.sessions().items[0].id)
    session.append("user", "I am Ann.", person=Person("ann"))
    # The thread goes on in a fork, which has inherited the message.
    fork = session.fork()
    assert fork.id is not None
    client.store.write(link, "alice", client.find(fork.id).head().no).result()

    erase.erase(
        client.store, ErasureSubject("langgraph", "ann"), profile="main", moment=client.moment()
    )

    assert counts(client) == NOTHING
    assert [each.text for each in client.find(fork.id).messages()] == ["hello", "one 1", ""]


def test_erasing_a_person_purges_the_threads_that_are_theirs_with_their_checkpoints(
    client: Sessionary,
) -> None:
    def person(config: Any) -> Person | None:
        name = config["configurable"].get("user_id")
        return name and Person(name)

    graph = talker(SessionaryCheckpointer(client, person=person), "one")
    graph.invoke(say("hello"), where())
    alone = counts(client)
    for name in ("first", "second"):
        graph.invoke(say("I am Ann."), where(name, user_id="ann"))
    saver = SessionaryCheckpointer(client)
    saver.copy_thread("second", "copy")

    receipt = erase.erase(
        client.store, ErasureSubject("langgraph", "ann"), profile="main", moment=client.moment()
    )

    assert receipt.sessions_purged == 3
    assert counts(client) == alone
    assert graph.get_state(where("first", user_id="ann")).created_at is None
    assert logged(client) == ["hello", "one 1"]


def test_a_copied_thread_has_a_session_of_its_own_that_cost_nothing(client: Sessionary) -> None:
    saver = SessionaryCheckpointer(client)
    graph = talker(saver, "one")
    graph.invoke(say("hello"), where())
    saver.copy_thread("alice", "bob")
    with pytest.raises(Conflict, match="nothing was copied"):
        saver.copy_thread("alice", "bob")
    with pytest.raises(BadInput, match="nothing was copied"):
        saver.copy_thread("alice", "alice")

    talker(SessionaryCheckpointer(client), "one").invoke(say("again"), where("bob"))

    assert logged(client, "alice") == ["hello", "one 1"]
    assert logged(client, "bob") == ["hello", "one 1", "again", "one 3"]
    assert sum(head.usage.calls for head in client.sessions().items) == 2
    assert texts(graph.get_state(where()).values["messages"]) == ["hello", "one 1"]


def test_a_deleted_thread_is_gone_and_its_messages_are_in_the_trash(client: Sessionary) -> None:
    saver = SessionaryCheckpointer(client)
    graph = talker(saver, "one")
    graph.invoke(say("hello"), where())
    saver.delete_thread("alice")

    assert counts(client) == NOTHING
    assert list(client.sessions().items) == []
    assert len(client.sessions(folder="trash").items) == 1
    graph.invoke(say("hello"), where())
    assert logged(client) == ["hello", "one 1"]


def test_profiles_do_not_see_each_other_s_threads(client: Sessionary) -> None:
    ours, theirs = (SessionaryCheckpointer(client, profile=name) for name in ("main", "other"))
    talker(ours, "one").invoke(say("hello"), where())

    assert theirs.get_tuple(where()) is None
    assert list(theirs.list(None)) == []
    found = ours.get_tuple(where())
    assert found is not None
    theirs.delete_for_runs([str(found.metadata.get("run_id"))])
    theirs.delete_thread("alice")
    theirs.prune(["alice"], strategy="delete")
    assert ours.get_tuple(where()) == found


def test_threads_and_writers_at_once_lose_nothing(url: str) -> None:
    with Sessionary(url) as one, Sessionary(url) as two:
        graphs = [talker(SessionaryCheckpointer(each), "one") for each in (one, two)]
        errors: list[BaseException] = []

        def live(number: int) -> None:
            try:
                for _ in range(3):
                    graphs[number % 2].invoke(say("hello"), where(f"t{number % 3}"))
            except BaseException as error:
                errors.append(error)
                raise

        workers = [threading.Thread(target=live, args=(number,)) for number in range(6)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()

        assert errors == []
        assert counts(one)["checkpoint_threads"] == 3
        assert len(one.sessions().items) == 3
        for head in one.sessions().items:
            said = [each.text for each in one.find(head.id).messages()]
            assert said.count("hello") == 6
        assert broken(one) == []


def test_pruning_takes_nothing_from_a_thread_that_is_written_to_at_the_same_time(url: str) -> None:
    with Sessionary(url) as one, Sessionary(url) as two:
        saver, pruner = SessionaryCheckpointer(one), SessionaryCheckpointer(two)
        is_over = threading.Event()

        def prune() -> int:
            times = 0
            while not is_over.is_set():
                pruner.prune(["long"])
                times += 1
            return times

        with ThreadPoolExecutor(1) as pool:
            pruning = pool.submit(prune)
            try:
                for step, _ in enumerate(putting(saver, 150)):
                    newest = saver.get_tuple(where("long"))
                    assert newest is not None
                    assert newest.checkpoint["channel_values"] == {"step": step, "big": BIG}
            finally:
                is_over.set()
        assert pruning.result() > 1
        assert len(list(saver.list(where("long")))) <= 150


def test_what_follows_a_checkpoint_that_was_pruned_meanwhile_has_all_of_its_values(
    client: Sessionary,
) -> None:
    saver = SessionaryCheckpointer(client)
    first, second, _ = putting(saver, 3)
    saver.put_writes(where("long", checkpoint_ns="", checkpoint_id="00000003"), [("step", 9)], "t")
    saver.prune(["long"])
    made = {**empty_checkpoint(), "id": "00000003"}
    versions: Any = {"step": saver.get_next_version("2", None), "big": "other", "gone": "2"}
    made["channel_values"] = {"step": 7, "big": "another branch"}
    made["channel_versions"] = versions

    saver.put(first, cast(Any, made), {}, {"step": versions["step"]})

    found = saver.get_tuple(where("long"))
    assert found is not None
    assert found.checkpoint["channel_values"] == made["channel_values"]
    assert found.pending_writes == [("t", "step", 9)]
    made["id"], made["channel_versions"] = "00000004", {"step": versions["step"]}
    saver.put(second, cast(Any, made), {}, {"step": versions["step"]})  # nothing to take over


def test_a_checkpoint_and_its_messages_are_written_together_or_not_at_all(
    client: Sessionary,
) -> None:
    saver = SessionaryCheckpointer(client)
    graph = talker(saver, "one")
    graph.invoke(say("hello"), where())
    before, session = counts(client), client.find(client.sessions().items[0].id)

    made = empty_checkpoint()
    made["channel_values"] = {"messages": [HumanMessage("again", id="2")]}
    made["channel_versions"] = {"messages": "9"}
    with session.turn("I am busy."), pytest.raises(Conflict):
        saver.put(where(checkpoint_ns=""), made, {}, {"messages": "9"})
    assert counts(client) == before
    assert "again" not in logged(client)

    saver.put(where(checkpoint_ns=""), made, {}, {"messages": "9"})
    assert counts(client)["checkpoints"] == before["checkpoints"] + 1
    assert logged(client)[-1] == "again"


# Channels that are rebuilt from what was written.


def merge(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(each for write in writes for each in write)]


class Notes(TypedDict):
    notes: Annotated[list[str], DeltaChannel(merge, snapshot_frequency=4)]


def noter(saver: BaseCheckpointSaver[Any]) -> Any:
    plan: Any = StateGraph(Notes)
    plan.add_node("a", lambda state: {"notes": [f"a{len(state['notes'])}"]})
    plan.add_node("b", lambda state: {"notes": [f"b{len(state['notes'])}"]})
    plan.add_node("c", lambda state: {"notes": [f"c{len(state['notes'])}"]})
    plan.add_edge(START, "a")
    plan.add_edge(START, "b")
    plan.add_edge(["a", "b"], "c")
    return plan.compile(checkpointer=saver)


async def test_a_channel_of_deltas_is_rebuilt_as_by_the_sdk(client: Sessionary) -> None:
    saver, reference = SessionaryCheckpointer(client), InMemorySaver()
    for each in (saver, reference):
        for number in range(5):
            noter(each).invoke({"notes": [f"given {number}"]}, where())

    expected = noter(reference).get_state(where()).values
    assert noter(saver).get_state(where()).values == expected
    assert (await noter(saver).aget_state(where())).values == expected
    for config in [each.config for each in saver.list(where())]:
        channels = ["notes", "unknown"]
        plain = BaseCheckpointSaver.get_delta_channel_history(
            saver, config=config, channels=channels
        )
        assert saver.get_delta_channel_history(config=config, channels=channels) == plain
        assert await saver.aget_delta_channel_history(config=config, channels=channels) == plain
    nothing: Any = {"notes": {"writes": []}}
    assert saver.get_delta_channel_history(config=where("nobody"), channels=["notes"]) == nothing

    before = len(list(saver.list(where())))
    saver.prune(["alice"])
    assert noter(saver).get_state(where()).values == expected
    assert 1 < len(list(saver.list(where()))) < before
    noter(saver).invoke({"notes": ["more"]}, where())
    noter(reference).invoke({"notes": ["more"]}, where())
    assert noter(saver).get_state(where()).values == noter(reference).get_state(where()).values


def test_what_follows_a_pruned_checkpoint_is_refused_if_it_would_be_rebuilt_from_that(
    client: Sessionary,
) -> None:
    saver = SessionaryCheckpointer(client)
    for number in range(5):
        noter(saver).invoke({"notes": [f"given {number}"]}, where())
    older = list(saver.list(where()))[-2]
    assert "notes" not in older.checkpoint["channel_values"]
    saver.prune(["alice"])
    before = counts(client)
    made: Any = {**older.checkpoint, "id": "z"}

    with pytest.raises(Conflict, match="nothing was written"):
        saver.put(older.config, made, older.metadata, {})

    assert counts(client) == before


def test_a_run_that_later_checkpoints_are_rebuilt_from_is_not_deleted(client: Sessionary) -> None:
    saver = SessionaryCheckpointer(client)
    for run in ("first", "second"):
        noter(saver).invoke({"notes": [run]}, {**where(), "metadata": {"run_id": run}})
    state = noter(saver).get_state(where()).values

    with pytest.raises(Conflict, match="nothing was deleted"):
        saver.delete_for_runs(["first"])

    assert noter(saver).get_state(where()).values == state
    saver.delete_for_runs(["first", "second"])
    assert noter(saver).get_state(where()).values == {}
    assert counts(client)["checkpoint_values"] == 0


def test_the_runs_of_a_plain_graph_are_deleted_with_their_values(client: Sessionary) -> None:
    saver = SessionaryCheckpointer(client)
    for run in ("first", "second"):
        talker(saver, "one").invoke(say(run), {**where(), "metadata": {"run_id": run}})
    state = talker(saver, "one").get_state(where()).values
    before = counts(client)
    saver.delete_for_runs(["first", "nobody"])

    assert talker(saver, "one").get_state(where()).values == state
    assert {each.metadata["run_id"] for each in saver.list(where())} == {"second"}
    after = counts(client)
    assert all(after[name] < before[name] for name in ("checkpoints", "checkpoint_values"))


def test_messages_of_a_channel_of_deltas_are_recorded_with_its_snapshots(
    client: Sessionary,
) -> None:
    class Deltas(TypedDict):
        messages: Annotated[list[AnyMessage], DeltaChannel(merge, snapshot_frequency=2)]

    plan: Any = StateGraph(Deltas)
    plan.add_node("one", lambda _: {"messages": [AIMessage("hi", id="2")]})
    plan.add_edge(START, "one")
    graph = plan.compile(checkpointer=SessionaryCheckpointer(client))
    graph.invoke({"messages": [HumanMessage("hello", id="1")]}, where())

    assert logged(client) == ["hello", "hi"]


class Cipher:
    """Turns bits around."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "turned", bytes(255 - each for each in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "turned"
        return bytes(255 - each for each in ciphertext)


def test_an_encrypting_serializer_encrypts_all_that_is_kept_of_a_state(client: Sessionary) -> None:
    saver = SessionaryCheckpointer(
        client, messages=None, serde=EncryptedSerializer(Cipher(), JsonPlusSerializer())
    )
    graph = talker(saver, "one")
    for name in ("hello-secret", "more-secret"):
        graph.invoke(say(name), {**where(), "metadata": {"of": "secret", "run_id": name}})

    def stored(tx: Tx) -> str:
        return repr([tx.all(f"copy_page_{name}", limit=1000, **FIRST[name]) for name in FIRST])

    assert "secret" not in client.store.read(stored).result()
    assert len(list(saver.list(where(), filter={"of": "secret"}))) == 6
    saver.delete_for_runs(["hello-secret"])
    saver.prune(["alice"])
    assert texts(graph.get_state(where()).values["messages"])[::2] == [
        "hello-secret",
        "more-secret",
    ]


# Copies of the whole store.


@pytest.mark.parametrize("kinds", [("sqlite", "postgres"), ("postgres", "sqlite")])
def test_a_store_that_moved_goes_on_with_its_threads(
    new_url: Callable[[str], str], kinds: tuple[str, str]
) -> None:
    source, target = map(new_url, kinds)
    with Sessionary(source) as client:
        saver = SessionaryCheckpointer(client)
        talker(saver).invoke(say("hello"), where())
        noter(saver).invoke({"notes": ["x"]}, where("notes"))
        before = counts(client)
        history = list(saver.list(None))
        opened = open_store(target, create=True, clock=SystemClock(), ids=RandomIds())
        try:
            copy_store(client.store, opened)
        finally:
            opened.close()

    with Sessionary(target) as client:
        saver = SessionaryCheckpointer(client)
        assert counts(client) == before
        assert list(saver.list(None)) == history
        done = talker(saver).invoke(say("again"), where())
        assert texts(done["messages"]) == ["hello", "one 1", "two 2", "again", "one 4", "two 5"]
        talker(saver).invoke(say("new"), where("new"))
        assert counts(client)["checkpoint_threads"] == 3
        assert broken(client) == []
