"""The storage of agent SDKs and ours under the same SDK: adding items, and reading them again.

The SDKs' own classes are the peers: `SQLiteSession` and `SQLAlchemySession` of the OpenAI Agents
SDK, and LangGraph's `SqliteSaver`, which writes the whole state of a thread with each message. Our
checkpointer does the same work as `SqliteSaver`, once with the messages as a session and once without.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import apsw
from agents.extensions.memory import SQLAlchemySession
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from agents import SQLiteSession
from benchmarks.goals import at_least, at_most
from benchmarks.measure import Case, Contestant, Goal, Results, Sample, Scale, attempts, repeat
from benchmarks.raw import TEXT, RawLog
from benchmarks.texts import sql
from sessionary import Sessionary
from sessionary.integrations.langgraph import SessionaryCheckpointer
from sessionary.integrations.openai_agents import SessionarySession

SESSIONS = 64
LAST = 200
OURS = "sessionary"
SQLITE = "OpenAI SQLiteSession"
ALCHEMY = "OpenAI SQLAlchemySession"
LANGGRAPH = "LangGraph SqliteSaver"
ONLY_CHECKPOINTS = "sessionary, without the session"
SHARED = "raw SQLite, one fsync for all"
ALONE = "raw SQLite, one fsync each"
READ = "raw SQLite, rows and JSON"
# A thread of LangGraph begins again when it has this many messages: each checkpoint holds them all.
THREAD_MESSAGES = 20
# What else the state of a graph has: texts that it has read, and that stay the same.
DOCUMENTS = [f"{number} {TEXT}" for number in range(100)]
CHECKPOINTS = 1000
Make = Callable[[str], Any]


def item(number: int = 0) -> Any:
    """What is added: a message of a person."""
    return {"role": "user", "content": f"{number} {TEXT}"}


class Threads:
    """LangGraph's storage, doing what a graph does with it after each message."""

    def __init__(self, saver: SqliteSaver) -> None:
        self._saver = saver
        self._number = count()
        self._said: list[HumanMessage] = []

    def add(self, name: str) -> None:
        """One more message of a thread."""
        at = next(self._number)
        self._said = self._said[: at % THREAD_MESSAGES]
        self._said.append(HumanMessage(TEXT, id=str(at)))
        self.put(f"{name}-{at // THREAD_MESSAGES}", self._said)

    def put(self, name: str, messages: Sequence[Any]) -> None:
        """A checkpoint with these messages."""
        made = empty_checkpoint()
        made["channel_values"] = {"messages": list(messages)}
        made["channel_versions"] = {"messages": "1"}
        where: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self._saver.put(where, made, {"source": "loop", "step": 1}, {"messages": "1"})

    def get(self, name: str) -> Sequence[Any]:
        """The messages of the last checkpoint."""
        where: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        found = self._saver.get_tuple(where)
        assert found is not None
        messages: Sequence[Any] = found.checkpoint["channel_values"]["messages"]
        return messages


class Graph:
    """What a graph does with its checkpointer: a step reads the newest checkpoint, or stores the next one."""

    def __init__(self, saver: BaseCheckpointSaver[Any], name: str) -> None:
        self._saver = saver
        self._name = name
        self._number = count()
        self._last: dict[str, Any] = {}
        self._made = empty_checkpoint()
        self._said: list[HumanMessage] = []

    def put(self) -> None:
        """Store a checkpoint with one more message, and what its task has written."""
        at = next(self._number)
        thread, step = divmod(at, THREAD_MESSAGES)
        self._store(f"{self._name}-{thread}", step, at)

    def fill(self, number: int) -> None:
        """Store this many checkpoints of one thread."""
        for step in range(number):
            self._store(self._name, step % THREAD_MESSAGES, step, is_first=step == 0)

    def get(self) -> None:
        """Read the newest checkpoint."""
        found = self._saver.get_tuple({"configurable": {"thread_id": self._name}})
        assert found is not None
        assert len(found.checkpoint["channel_values"]["documents"]) == len(DOCUMENTS)

    def _store(self, name: str, step: int, at: int, *, is_first: bool | None = None) -> None:
        saver = self._saver
        made, new = self._next(name, step, at, is_first=is_first)
        self._last = saver.put(self._last, made, {"source": "loop", "step": at}, new)  # type: ignore[arg-type, assignment]
        saver.put_writes(self._last, [("messages", self._said[-1])], "task")  # type: ignore[arg-type]

    async def add_items(self, _: Sequence[Any]) -> None:
        """Like `put`."""
        saver, at = self._saver, next(self._number)
        thread, step = divmod(at, THREAD_MESSAGES)
        made, new = self._next(f"{self._name}-{thread}", step, at)
        self._last = await saver.aput(self._last, made, {"source": "loop", "step": at}, new)  # type: ignore[arg-type, assignment]
        await saver.aput_writes(self._last, [("messages", self._said[-1])], "task")  # type: ignore[arg-type]

    def _next(
        self, name: str, step: int, at: int, *, is_first: bool | None = None
    ) -> tuple[Any, Any]:
        saver = self._saver
        if step == 0 if is_first is None else is_first:
            self._last = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
            self._made = empty_checkpoint()
        self._said = [*self._said[:step], HumanMessage(TEXT, id=f"{name}-{at}")]
        before = self._made["channel_versions"]
        new: Any = {"messages": saver.get_next_version(before.get("messages"), None)}
        if "documents" not in before:
            new["documents"] = saver.get_next_version(None, None)
        made = empty_checkpoint()
        made["channel_values"] = {"messages": self._said, "documents": DOCUMENTS}
        made["channel_versions"] = {**before, **new}
        self._made = made
        return made, new


class Field:
    """Everyone who takes part, each on a file of its own, on one event loop."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.loop = stack.enter_context(asyncio.Runner())
        client = stack.enter_context(Sessionary(folder / "sdk.db", home=str(folder)))
        client.store.index_in_background()
        saver = stack.enter_context(SqliteSaver.from_conn_string(str(folder / "langgraph.db")))
        engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'alchemy.db'}")
        stack.callback(lambda: self.loop.run(engine.dispose()))
        self.raw = stack.enter_context(closing(RawLog(folder / "raw.db", sessions=SESSIONS)))
        self.threads = Threads(saver)
        opened = AsyncSqliteSaver.from_conn_string(str(folder / "langgraph-async.db"))
        self.async_saver = self.loop.run(opened.__aenter__())
        stack.callback(lambda: self.loop.run(opened.__aexit__(None, None, None)))
        self.savers: dict[str, BaseCheckpointSaver[Any]] = {
            OURS: SessionaryCheckpointer(client),
            ONLY_CHECKPOINTS: SessionaryCheckpointer(client, messages=None),
            LANGGRAPH: saver,
        }
        self.ours: Make = lambda name: SessionarySession(name, client)
        self.sqlite: Make = lambda name: _closing(stack, SQLiteSession(name, folder / "openai.db"))
        self.alchemy: Make = lambda name: _alchemy(name, engine)

    def together(self, sessions: Sequence[Any]) -> Callable[[float], Sample]:
        """All sessions at once, each adding one item after the other."""
        return lambda seconds: self.loop.run(_together(sessions, seconds))

    def waiting(self, work: Callable[[], Awaitable[Any]]) -> Callable[[float], Sample]:
        """One call after the other."""

        async def once() -> None:
            await work()

        return repeat(lambda: self.loop.run(once()))


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """Every case, on files of its own."""
    with ExitStack() as stack:
        field = Field(folder, stack)
        yield _many(field, min(SESSIONS, scale.messages // 30))
        yield _alone(field)
        names = _fill(field, folder, scale.messages)
        yield _whole(field, names, scale.messages)
        yield _last(field, names)
        yield _step(field)
        yield _steps(field, min(SESSIONS, scale.messages // 30))
        yield _newest(field, min(CHECKPOINTS, scale.messages // 10))


def _many(field: Field, sessions_at_once: int) -> Case:
    def sessions(make: Make) -> list[Any]:
        return [make(f"s{number}") for number in range(sessions_at_once)]

    return Case(
        f"{sessions_at_once} sessions add an item",
        (
            Contestant(OURS, "product", field.together(sessions(field.ours))),
            Contestant(SHARED, "floor", repeat(lambda: field.raw.append(sessions_at_once))),
            Contestant(SQLITE, "peer", field.together(sessions(field.sqlite))),
            Contestant(ALCHEMY, "peer", field.together(sessions(field.alchemy))),
            Contestant(LANGGRAPH, "peer", repeat(lambda: field.threads.add("many"))),
        ),
        (
            at_least(5000, "a second with the index on", lambda got: got.rate(OURS)),
            _times(40, SQLITE),
            _times(40, LANGGRAPH),
            at_least(0.6, "of the floor", lambda got: got.ratio(OURS, SHARED), only_slow=True),
        ),
    )


def _times(factor: int, peer: str) -> Goal:
    return at_least(factor, f"times {peer}", lambda got: got.ratio(OURS, peer), only_slow=True)


def _alone(field: Field) -> Case:
    ours, sqlite, alchemy = (make("one") for make in (field.ours, field.sqlite, field.alchemy))
    return Case(
        "1 session adds an item",
        (
            Contestant(OURS, "product", field.together([ours])),
            Contestant(ALONE, "floor", repeat(lambda: field.raw.append(1))),
            Contestant(SQLITE, "peer", field.together([sqlite])),
            Contestant(ALCHEMY, "peer", field.together([alchemy])),
            Contestant(LANGGRAPH, "peer", repeat(lambda: field.threads.add("one"))),
        ),
        (at_least(0.9, "of the floor", lambda got: got.ratio(OURS, ALONE), only_slow=True),),
    )


def _fill(field: Field, folder: Path, messages: int) -> dict[str, Any]:
    """A long session for everyone, among others that were written at the same time."""
    items = [item(number) for number in range(messages)]
    made: dict[str, Any] = {
        OURS: field.ours("long"),
        SQLITE: field.sqlite("long"),
        ALCHEMY: field.alchemy("long"),
    }
    for session in made.values():
        for at in range(0, messages, 500):
            field.loop.run(session.add_items(items[at : at + 500]))
    field.threads.put("long", [HumanMessage(each["content"], id=each["content"]) for each in items])
    made[READ] = _raw_session(folder / "read.db", items)
    return made


def _whole(field: Field, names: dict[str, Any], messages: int) -> Case:
    return Case(
        f"read a session of {messages:,} items",
        (
            Contestant(OURS, "product", field.waiting(names[OURS].get_items)),
            Contestant(READ, "floor", repeat(lambda: _read_raw(names[READ], messages))),
            Contestant(SQLITE, "peer", field.waiting(names[SQLITE].get_items)),
            Contestant(ALCHEMY, "peer", field.waiting(names[ALCHEMY].get_items)),
            Contestant(LANGGRAPH, "peer", repeat(lambda: _said(field.threads.get("long")))),
        ),
        (at_most(2, "times the floor", lambda got: got.ratio(OURS, READ, "p50")),),
        by="p50",
    )


def _last(field: Field, names: dict[str, Any]) -> Case:
    return Case(
        f"read the last {LAST} items",
        (
            Contestant(OURS, "product", field.waiting(lambda: names[OURS].get_items(LAST))),
            Contestant(READ, "floor", repeat(lambda: _read_raw(names[READ], LAST))),
            Contestant(SQLITE, "peer", field.waiting(lambda: names[SQLITE].get_items(LAST))),
            Contestant(ALCHEMY, "peer", field.waiting(lambda: names[ALCHEMY].get_items(LAST))),
        ),
        (at_most(2, "ms", lambda got: got.p50(OURS) * 1000),),
        by="p50",
    )


def _step(field: Field) -> Case:
    ours, plain, theirs = (
        repeat(Graph(saver, f"step {name}").put) for name, saver in field.savers.items()
    )
    return Case(
        "a graph stores a checkpoint and a write",
        (
            Contestant(OURS, "product", ours),
            Contestant(ONLY_CHECKPOINTS, "product", plain),
            Contestant(ALONE, "floor", repeat(lambda: field.raw.append(1))),
            Contestant(LANGGRAPH, "peer", theirs),
        ),
        (at_least(0.9, f"times {LANGGRAPH}", _ratio, only_slow=True),),
    )


def _steps(field: Field, graphs_at_once: int) -> Case:
    savers = {**field.savers, LANGGRAPH: field.async_saver}

    def graphs(saver: str) -> list[Graph]:
        numbers = range(graphs_at_once)
        return [Graph(savers[saver], f"steps {saver} {number}") for number in numbers]

    return Case(
        f"{graphs_at_once} graphs at once store a checkpoint and a write",
        (
            Contestant(OURS, "product", field.together(graphs(OURS))),
            Contestant(ONLY_CHECKPOINTS, "product", field.together(graphs(ONLY_CHECKPOINTS))),
            Contestant(SHARED, "floor", repeat(lambda: field.raw.append(graphs_at_once))),
            Contestant(LANGGRAPH, "peer", field.together(graphs(LANGGRAPH))),
        ),
        (at_least(2, f"times {LANGGRAPH}", _ratio, only_slow=True),),
    )


def _ratio(got: Results) -> float:
    return got.ratio(OURS, LANGGRAPH)


def _newest(field: Field, number: int) -> Case:
    graphs = {name: Graph(saver, f"newest {name}") for name, saver in field.savers.items()}
    for each in graphs.values():
        each.fill(number)
    return Case(
        f"read the newest of {number:,} checkpoints",
        tuple(
            Contestant(name, "peer" if name == LANGGRAPH else "product", repeat(graphs[name].get))
            for name in (OURS, LANGGRAPH)
        ),
        (at_most(1, "ms", lambda got: got.p50(OURS) * 1000),),
        by="p50",
    )


async def _together(sessions: Sequence[Any], seconds: float) -> Sample:
    latencies: list[float] = []
    began = time.perf_counter()

    async def talk(session: Any) -> None:
        for asked in attempts(began, seconds):
            await session.add_items([item()])
            latencies.append(time.perf_counter() - asked)

    await asyncio.gather(*map(talk, sessions))
    return Sample(len(latencies), time.perf_counter() - began, latencies)


def _alchemy(name: str, engine: AsyncEngine) -> SQLAlchemySession:
    return SQLAlchemySession(name, engine=engine, create_tables=True)


def _closing(stack: ExitStack, session: SQLiteSession) -> SQLiteSession:
    stack.callback(session.close)
    return session


def _raw_session(path: Path, items: Sequence[Any]) -> apsw.Connection:
    log = RawLog(path, sessions=1)
    with log.connection:
        for seq, each in enumerate(items):
            row = (1 << 24 | seq, "user", 1, json.dumps(each))
            log.connection.execute(sql()["floor_entry"], row)
    return log.connection


def _read_raw(connection: Any, wanted: int) -> None:
    (last,) = connection.execute(sql()["floor_end"]).fetchall()[0]
    rows = connection.execute(sql()["floor_load"], (last - wanted + 1, last)).fetchall()
    assert len([json.loads(row[-1]) for row in rows]) == wanted


def _said(messages: Sequence[Any]) -> None:
    assert messages
