"""The whole engine with an agent that echoes: from a message that comes to its reply that goes."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import populate
from benchmarks.goals import at_least, at_most
from benchmarks.measure import Case, Contestant, Sample, Scale, attempts, repeat
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

PLATFORM = "telegram"
EVERY = 4  # every fourth session of the populated store is on that platform
CONCURRENT = (1, 16, 64)
# received and begun, ended, claimed for sending; the reply is a row from the second on
COMMITS = 3
FIRST_WORD_COMMITS = 1
OURS = "sessionary"
FLOOR = f"raw SQLite, {COMMITS} commits"
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

    def __init__(self, store: Store, sessions: int) -> None:
        self._store = store
        self._numbers = range(0, sessions, EVERY)
        self._random = random.Random(1)

    def replies(self, concurrent: int) -> Callable[[float], Sample]:
        """So many at once, until their reply is sent."""
        return lambda seconds: asyncio.run(self._run(concurrent, seconds, self._until_reply))

    def first_words(self, seconds: float) -> Sample:
        """One after the other, until the first word of the agent."""
        return asyncio.run(self._run(1, seconds, self._until_first_word))

    async def _run(
        self, concurrent: int, seconds: float, turn: Callable[[Engine, Wire, int], Awaitable[float]]
    ) -> Sample:
        wire = Wire()
        engine = Engine(self._parts(wire))
        await engine.start()
        latencies: list[float] = []
        began = time.perf_counter()

        async def talk(numbers: range) -> None:
            for asked in attempts(began, seconds):
                finished = await turn(engine, wire, self._random.choice(numbers))
                latencies.append(finished - asked)

        # Each has sessions of their own; nothing here takes longer in a larger store.
        shares = [self._numbers[place::concurrent] for place in range(concurrent)]
        await asyncio.gather(*(talk(share) for share in shares if share))
        took = time.perf_counter() - began
        await engine.stop()
        return Sample(len(latencies), took, latencies)

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
            settings=EngineSettings(
                access={PLATFORM: AccessPolicy(everyone=True)}, most_turns=max(CONCURRENT)
            ),
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
                    Contestant(OURS, "product", talk.replies(concurrent)),
                    Contestant(FLOOR, "floor", _floor(raw, concurrent, COMMITS)),
                ),
                (
                    at_least(
                        0.5, "of the floor", lambda got: got.ratio(OURS, FLOOR), only_slow=True
                    ),
                ),
            )
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


def _floor(raw: RawLog, concurrent: int, commits: int) -> Callable[[float], Sample]:
    def turn() -> int:
        for _ in range(commits):
            raw.append(concurrent)
        return concurrent

    return repeat(turn)
