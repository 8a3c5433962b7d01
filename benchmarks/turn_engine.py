"""The whole engine with an agent that echoes: from a message that comes to its reply that goes."""

import asyncio
import importlib
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import populate
from benchmarks.goals import at_least, at_most
from benchmarks.measure import Case, Contestant, Goal, Results, Sample, Scale, attempts, repeat
from benchmarks.postgres import CONNECTIONS, Bare, closing_server
from benchmarks.raw import TEXT, RawLog
from sessionary.agents import registry
from sessionary.channels.base import ChannelAdapter, ChannelOptions
from sessionary.clock import RandomIds, SystemClock
from sessionary.config.engine import AccessPolicy, AgentTable, EngineSettings
from sessionary.engine.context import EngineContext
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Capabilities, Receive, Sent
from sessionary.model.message import message
from sessionary.model.turn import Delivery
from sessionary.store.database import Store
from sessionary.store.open import open_store

PLATFORM = "telegram"
EVERY = 4  # every fourth session of the populated store is on that platform
CONCURRENT = (1, 16, 64)
# received and begun, ended with its reply, marked as sent
COMMITS = 3
# Half the floor's rate on one core, from the profiles: by how many are at once.
MOST_CPU_MS = {16: 0.98, 64: 0.45}
SHORT, LONG = 10, 1_000
CHATS = 16
# The messages of a long conversation must not make a turn more expensive.
MOST_BY_LENGTH = 1.2
FIRST_WORD_COMMITS = 1
OURS = "sessionary"
FLOOR = f"raw SQLite, {COMMITS} commits"
BARE = f"a bare insert loop, {COMMITS} commits"
MOST_ROUND_TRIPS = 9
FIRST_FLOOR = f"raw SQLite, {FIRST_WORD_COMMITS} commits"


class Wire(ChannelAdapter):
    """A platform without a network, which notifies the caller that waits for a reply."""

    platform = PLATFORM
    capabilities = Capabilities()

    def __init__(self) -> None:
        super().__init__(ChannelOptions())
        self._waiting: dict[str, asyncio.Future[None]] = {}

    def reply(self, chat_id: str) -> "asyncio.Future[None]":
        """The next reply in a chat."""
        self._waiting[chat_id] = asyncio.get_running_loop().create_future()
        return self._waiting[chat_id]

    async def run(self, receive: Receive) -> None:
        """Messages are handed to the engine."""
        await asyncio.Event().wait()

    async def send(self, delivery: Delivery) -> Sent:
        """Notify the caller that waits."""
        waiting = self._waiting.pop(delivery.channel.chat_id, None)
        if waiting is not None:
            waiting.set_result(None)
        return Sent()


class Talk:
    """People who write, wait for the reply, and write again, each time in a session chosen by chance."""

    def __init__(
        self,
        store: Store,
        sessions: int,
        *,
        before: Callable[[], object] = lambda: None,
        after: Callable[[int], object] = lambda _: None,
        poll_seconds: float = 1.0,
    ) -> None:
        self._store = store
        self._numbers = range(0, sessions, EVERY)
        self._random = random.Random(1)
        # Called before the first turn and after the last, while the engine runs.
        self._before = before
        self._after = after
        self._settings = EngineSettings(
            access={PLATFORM: AccessPolicy(everyone=True)},
            most_turns=max(CONCURRENT),
            poll_seconds=poll_seconds,
        )

    def replies(self, concurrent: int, *, begun_before: bool = False) -> Callable[[float], Sample]:
        """Let this many people write at once, each until the reply is sent.

        With `begun_before`, every chat has had a turn before, as in a server that runs.
        """
        return lambda seconds: asyncio.run(
            self._run(concurrent, seconds, self._until_reply, begun_before=begun_before)
        )

    def replies_in(
        self, groups: Iterator[range], concurrent: int = CHATS
    ) -> Callable[[float], Sample]:
        """The same in the chats of the next group, each of which has had a turn before that."""

        def run(seconds: float) -> Sample:
            self._numbers = next(groups)
            return asyncio.run(self._run(concurrent, seconds, self._until_reply, begun_before=True))

        return run

    def first_words(self, seconds: float) -> Sample:
        """One after the other, until the first word of the agent."""
        return asyncio.run(self._run(1, seconds, self._until_first_word))

    async def _run(
        self,
        concurrent: int,
        seconds: float,
        turn: Callable[[Engine, Wire, int], Awaitable[float]],
        *,
        begun_before: bool = False,
    ) -> Sample:
        wire = Wire()
        engine = Engine(self._parts(wire))
        await engine.start()
        if begun_before:
            await asyncio.gather(*(turn(engine, wire, number) for number in self._numbers))
        self._before()
        latencies: list[float] = []
        cpu_began = time.process_time()
        began = time.perf_counter()

        async def talk(numbers: range) -> None:
            for asked in attempts(began, seconds):
                finished = await turn(engine, wire, self._random.choice(numbers))
                latencies.append(finished - asked)

        # Each has sessions of their own; nothing here takes longer in a larger store.
        shares = [self._numbers[place::concurrent] for place in range(concurrent)]
        await asyncio.gather(*(talk(share) for share in shares if share))
        took = time.perf_counter() - began
        used = time.process_time() - cpu_began
        self._after(len(latencies))
        await engine.stop()
        return Sample(len(latencies), took, latencies, used)

    async def _until_reply(self, engine: Engine, wire: Wire, number: int) -> float:
        source = populate.source_of(number)
        reply = wire.reply(source.chat_id or "")
        await engine.receive(source, message("user", TEXT))
        await reply
        return time.perf_counter()

    async def _until_first_word(self, engine: Engine, wire: Wire, number: int) -> float:
        source = populate.source_of(number)
        reply = wire.reply(source.chat_id or "")
        with engine.context.bus.listen() as events:
            await engine.receive(source, message("user", TEXT))
            while (live := await events.get()) is None or live.kind != "delta":
                pass
            finished = time.perf_counter()
        await reply
        return finished

    def _parts(self, wire: Wire) -> EngineContext:
        agent = registry.build(AgentTable(name="echo", kind="echo"), environ={})
        return EngineContext(
            store=self._store,
            clock=SystemClock(),
            ids=RandomIds(),
            holder="bench",
            agent_for=lambda _, __: agent,
            system_prompt=registry.assemble,
            priced=lambda used: used,
            adapters={PLATFORM: wire},
            deliverable=frozenset({PLATFORM}),
            settings=self._settings,
        )


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """At 1, 16 and 64 sessions; then how long the first word takes."""
    sessions = scale.sizes[1]
    with ExitStack() as stack:
        store = stack.enter_context(closing(populate.opened(populate.build(folder, sessions))))
        raw = stack.enter_context(closing(RawLog(folder / "raw-engine.db", sessions=1000)))
        talk = Talk(store, sessions)
        for concurrent in CONCURRENT:
            yield Case(
                f"message to reply, {concurrent} at once",
                (
                    Contestant(OURS, "product", talk.replies(concurrent, begun_before=True)),
                    Contestant(FLOOR, "floor", _floor(raw, concurrent, COMMITS)),
                ),
                (
                    at_least(
                        0.5, "of the floor", lambda got: got.ratio(OURS, FLOOR), only_slow=True
                    ),
                    *_cpu_goals(concurrent),
                ),
            )
        chats = stack.enter_context(closing(populate.opened(folder / "chats.db")))
        yield _by_length(chats, raw, runs=scale.rounds + 1)
        yield _on_postgres(stack)
        yield Case(
            "message to first word, 1 at once",
            (
                Contestant(OURS, "product", talk.first_words),
                Contestant(FIRST_FLOOR, "floor", _floor(raw, 1, FIRST_WORD_COMMITS)),
            ),
            # The agent says its word at once: all of it is ours.
            (at_most(10, "ms", lambda got: got.percentile(OURS, 95) * 1000, of="p95"),),
            by="p50",
        )


def _cpu_goals(concurrent: int) -> Iterator[Goal]:
    if concurrent in MOST_CPU_MS:
        yield at_most(MOST_CPU_MS[concurrent], "ms of CPU", lambda got: got.cpu_ms(OURS))


def _by_length(store: Store, raw: RawLog, *, runs: int) -> Case:
    """Turns in short and in long conversations. Each run has chats of its own: they grow with each turn."""

    def name(length: int) -> str:
        return f"{OURS}, {length:,} messages before"

    def groups(place: int, length: int) -> Iterator[range]:
        """Chats with `length` messages each, others for each run."""
        size = CHATS * EVERY
        for run in range(place * runs, (place + 1) * runs):
            numbers = range(run * size, (run + 1) * size, EVERY)
            populate.open_many(store, range(run * size, (run + 1) * size))
            for number in numbers:
                store.write(populate.fill, populate.id_of(number), 1, length - 1).result()
            yield numbers

    def longer(got: Results) -> float:
        return got.cpu_ms(name(LONG)) / got.cpu_ms(name(SHORT))

    talk = Talk(store, 0)
    contestants = [
        Contestant(name(length), "product", talk.replies_in(iter(list(groups(place, length)))))
        for place, length in enumerate((SHORT, LONG))
    ]
    return Case(
        f"message to reply, {CHATS} at once, by length of the conversation",
        (*contestants, Contestant(FLOOR, "floor", _floor(raw, CHATS, COMMITS))),
        (at_most(MOST_BY_LENGTH, "times the CPU of a short one", longer, of="a long one"),),
    )


def _on_postgres(stack: ExitStack) -> Case:
    """Turns on a server of our own, and how often one waits for the server."""
    # Loaded here only: these are for tests, and an extra.
    testing = importlib.import_module("tests.support.postgres")
    psycopg = importlib.import_module("psycopg")
    server = stack.enter_context(closing_server(testing.start_own_server(durable=True)))
    url = server.create_database()
    sessions = EVERY * CONNECTIONS
    with _on(url) as store:
        populate.open_many(store, range(sessions))
    round_trips = _round_trips(url, sessions)
    talk = Talk(stack.enter_context(_on(url)), sessions)
    bare = stack.enter_context(closing(Bare(psycopg, url)))

    def floor(seconds: float) -> Sample:
        sample = bare.threads(CONNECTIONS)(seconds)
        count = max(1, sample.count // COMMITS)
        return Sample(count, sample.seconds, [late * COMMITS for late in sample.latencies])

    return Case(
        f"message to reply on PostgreSQL, {CONNECTIONS} at once",
        (
            Contestant(OURS, "product", talk.replies(CONNECTIONS)),
            Contestant(BARE, "floor", floor),
        ),
        (at_most(MOST_ROUND_TRIPS, "round trips", lambda _: round_trips, of="a turn"),),
    )


def _on(url: str) -> closing[Store]:
    return closing(open_store(url, create=True, clock=SystemClock(), ids=RandomIds()))


def _round_trips(url: str, sessions: int) -> float:
    """The round trips of a turn in a chat that has had one, counted by a proxy."""
    testing = importlib.import_module("tests.support.statement_counter")
    counter = testing.StatementCounter()
    counted: list[float] = []
    with testing.counted_postgres(url, counter) as counted_url, _on(counted_url) as store:
        talk = Talk(
            store,
            sessions,
            before=counter.clear,
            after=lambda turns: counted.append(counter.round_trips / turns),
            poll_seconds=10,
        )
        chats = range(0, sessions, EVERY)
        for _ in range(2):  # the first one prepares statements
            talk.replies_in(iter([chats]), concurrent=1)(0.5)
    return counted[-1]


def _floor(raw: RawLog, concurrent: int, commits: int) -> Callable[[float], Sample]:
    def turn() -> int:
        for _ in range(commits):
            raw.append(concurrent)
        return concurrent

    return repeat(turn)
