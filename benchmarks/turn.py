"""Whole turns: received, begun, ended, delivered; one and many at once, in stores of any size."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import populate
from benchmarks.goals import at_least
from benchmarks.measure import Case, Contestant, Results, Sample, Scale, attempts, repeat
from benchmarks.raw import TEXT, IndexFile, RawLog
from sessionary.actions import inbox, outbox, turns
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.model.message import Text, message
from sessionary.model.reset import ResetPolicy
from sessionary.model.usage import Usage
from sessionary.store.database import Store

# received, begun, ended, claimed for sending, marked as sent
COMMITS = 5
CONCURRENT = 16
OURS = "sessionary"
FLOOR = f"raw SQLite, {COMMITS} commits"
INDEX = "index file rewritten per message"
HOLDER = "bench"
NEVER = ResetPolicy()


class Turns:
    """Takes turns in the sessions of a store; an outbox loop sends what they leave."""

    def __init__(self, store: Store, sessions: int) -> None:
        self._store = store
        self._sessions = sessions
        self._clock = SystemClock()
        self._ids = RandomIds()
        self._random = random.Random(1)

    def run(self, concurrent: int) -> Callable[[float], Sample]:
        """So many sessions at once."""
        return lambda seconds: asyncio.run(self._run(concurrent, seconds))

    async def _run(self, concurrent: int, seconds: float) -> Sample:
        latencies: list[float] = []
        sent: dict[str, asyncio.Future[None]] = {}
        came = asyncio.Event()
        outbox = asyncio.create_task(self._send_forever(sent, came))
        began = time.perf_counter()
        numbers = self._random.sample(range(self._sessions), min(concurrent, self._sessions))

        async def talk(number: int) -> None:
            for asked in attempts(began, seconds):
                await self._turn(number, sent, came)
                latencies.append(time.perf_counter() - asked)

        await asyncio.gather(*(talk(number) for number in numbers))
        outbox.cancel()
        return Sample(len(latencies), time.perf_counter() - began, latencies)

    def _moment(self) -> Moment:
        return Moment(self._clock.now(), self._ids)

    async def _turn(
        self, number: int, sent: dict[str, asyncio.Future[None]], came: asyncio.Event
    ) -> None:
        source, key = populate.source_of(number), populate.key_of(number)
        new_message = message("user", TEXT)
        await self._store.write(inbox.receive, key, source, new_message, moment=self._moment())
        claim = turns.Claim(HOLDER, 30)
        begun = await self._store.write(
            turns.begin, key, policy=NEVER, claim=claim, moment=self._moment()
        )
        assert begun is not None
        channel = source.channel
        assert channel is not None
        ending = turns.Ending(
            messages=(message("assistant", TEXT),),
            usage=(Usage("model", input_tokens=900, output_tokens=80, cost_microusd=1200),),
            replies=(turns.TurnReply(channel, (Text(TEXT),)),),
        )
        delivered = sent[begun.lease.turn_id] = asyncio.get_running_loop().create_future()
        await self._store.write(
            turns.end, begun.lease, ending, profile=populate.PROFILE, moment=self._moment()
        )
        came.set()
        await delivered

    async def _send_forever(
        self, sent: dict[str, asyncio.Future[None]], came: asyncio.Event
    ) -> None:
        while True:
            await came.wait()
            came.clear()
            now = self._clock.now()
            claimed = await self._store.write(
                outbox.claim, holder=HOLDER, seconds=30, now=now, limit=CONCURRENT
            )
            marks = [
                self._store.write(outbox.mark_sent, each.id, holder=HOLDER, at=now)
                for each in claimed
            ]
            for each, mark in zip(claimed, marks, strict=True):
                await mark
                sent.pop(each.turn_id or "").set_result(None)


def cases(folder: Path, scale: Scale) -> Iterator[Case]:
    """At one and at sixteen sessions; then the same work in stores of growing size."""
    with ExitStack() as stack:
        ours = {}
        for size in scale.sizes:
            store = populate.opened(populate.build(folder, size))
            ours[size] = Turns(stack.enter_context(closing(store)), size)
        raw = stack.enter_context(closing(RawLog(folder / "raw-turn.db", sessions=1000)))
        middle = scale.sizes[1]
        for concurrent in (1, CONCURRENT):
            yield Case(
                f"{concurrent} at once, {middle:,} sessions",
                (
                    Contestant(OURS, "product", ours[middle].run(concurrent)),
                    Contestant(FLOOR, "floor", _floor(raw, concurrent)),
                    _index_file(folder, middle, f"{concurrent}"),
                ),
                (
                    at_least(
                        0.5, "of the floor", lambda got: got.ratio(OURS, FLOOR), only_slow=True
                    ),
                ),
            )
        yield _by_size(folder, ours, scale)


def _floor(raw: RawLog, concurrent: int) -> Callable[[float], Sample]:
    def turn() -> int:
        for _ in range(COMMITS):
            raw.append(concurrent)
        return concurrent

    return repeat(turn)


def _index_file(folder: Path, size: int, name: str) -> Contestant:
    index = IndexFile(folder / f"index-{size}-{name}", sessions=size)

    def turn() -> None:
        index.append()
        index.append()

    return Contestant(f"{INDEX}, {size:,}", "peer", repeat(turn))


def _by_size(folder: Path, ours: dict[int, Turns], scale: Scale) -> Case:
    def name(size: int) -> str:
        return f"{OURS}, {size:,} sessions"

    def kept(got: Results) -> float:
        return got.ratio(name(scale.largest), name(scale.sizes[1]))

    # Ten sessions have fewer than sixteen at once; the comparison is among those with enough.
    sizes = [Contestant(name(size), "product", ours[size].run(10)) for size in scale.sizes]
    peers = [_index_file(folder, min(size, 10_000), "size") for size in scale.sizes[:3]]
    goal = at_least(0.9, "of the rate at the second size", kept, of="the largest")
    return Case("10 at once, by size of the store", (*sizes, *peers), (goal,))
