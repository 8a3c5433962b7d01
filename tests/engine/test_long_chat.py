"""A chat that never ends, with a model that reads little: it is compacted, and no turn fails for length."""

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from dataclasses import replace as replace_setting
from random import Random

import pytest
from msgspec.structs import replace

from sessionary.actions.search.search import SearchOptions, search
from sessionary.actions.sessions import read
from sessionary.actions.sessions.pins import pin_message
from sessionary.actions.verify import verify
from sessionary.engine.engine import Engine
from sessionary.model.message import Compaction, Entry, Message
from sessionary.model.transcript import SUMMARY_HEADING
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from tests.support.engine_world import EngineWorld
from tests.support.model_agent import TOOLS, is_summary, model_engine
from tests.support.model_server import Ask, Call, ModelServer, Reply
from tests.support.statement_counter import counted_sqlite_steps

WINDOW = 3_000
THRESHOLD = WINDOW * 70 // 100
FIRST = "The word of the first message is quagmire."
# How many rounds are compared, at the beginning and at the end of a chat.
SAMPLE = 300


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """All 3,000 on SQLite, and on PostgreSQL with SESSIONARY_TEST_LONG=1."""
    is_sqlite = request.node.callspec.params["store"] == "sqlite"
    return 3_000 if is_sqlite or os.environ.get("SESSIONARY_TEST_LONG") else 600


@pytest.fixture
def sqlite_steps() -> Iterator[Callable[[], int]]:
    """How many steps SQLite has taken. A test must ask for it before its store; on PostgreSQL it tells nothing."""
    with counted_sqlite_steps() as steps:
        yield steps


def words_of(number: int) -> str:
    """What a person writes in a round: most is short, some is long; every tenth time they want a tool to be used."""
    rng = Random(number)
    words = " ".join(rng.choice(("tea-leaves", "kettles", "hot-water")) * 3 for _ in range(12))
    match number % 100:
        case 0 if number == 0:
            return FIRST
        case 57:
            return f"round {number}: {words * 10}"  # about 700 tokens
        case 23:
            return f"round {number}: read 600 lines"  # more than the window
        case last if last % 10 == 3:
            return f"round {number}: read {rng.randrange(5, 40)} lines"
        case _:
            return f"round {number}: {words}"


def answer(ask: Ask) -> Reply:
    """What the model answers: it calls the tool where it was asked to, and its summaries are longer than allowed."""
    if is_summary(ask):
        return Reply(f"So-far-it-was-about-tea-and-kettles-{'and-more-' * 20} " * 15)
    wanted = re.fullmatch(r"round \d+: read (\d+) lines", texts_of(ask)[-1])
    if wanted:
        # Some providers use the same ids again and again.
        return Reply(calls=(Call("read_lines", {"count": int(wanted[1])}, id="call_1"),))
    # Long words: the server streams a word at a time.
    return Reply("The-tea-is-ready-in-the-kitchen. " * Random(len(ask.raw)).randrange(1, 16))


def texts_of(ask: Ask) -> list[str]:
    """The texts of a request in Anthropic's format; a tool's output is a text, too."""
    contents = [message["content"] for message in ask.messages]
    blocks = [[content] if isinstance(content, str) else content for content in contents]
    return [
        each if isinstance(each, str) else str(each.get("text") or each)
        for block in blocks
        for each in block
    ]


def priced(used: Usage) -> Usage:
    """A dollar for a million tokens in, four for a million out."""
    return replace(used, cost_microusd=used.input_tokens + 4 * used.output_tokens)


@dataclass
class Chat:
    """One person writes to an engine with a model agent, and waits for each answer."""

    world: EngineWorld
    engine: Engine
    server: ModelServer
    rounds: int = 0
    # For each round: the CPU seconds, and where its requests begin.
    seconds: list[float] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)

    async def say(self, text: str) -> str:
        """Say something; return the answer."""
        sent = self.world.adapter.sent
        before, began = len(sent), time.process_time()
        self.begins.append(len(self.server.requests))
        await self.world.says(self.engine, text, number=f"r{self.rounds}")
        await self.world.until(lambda: len(sent) > before and not self.engine.turns.turns)
        self.seconds.append(time.process_time() - began)
        self.rounds += 1
        return sent[-1][1]

    def requests(self, first: int, last: int) -> list[Ask]:
        """The requests of some rounds, summaries included."""
        ends = [*self.begins[1:], len(self.server.requests)]
        return self.server.requests[self.begins[first] : ends[last - 1]]

    async def compactions(self) -> list[Compaction]:
        """The compactions in the log."""
        head = await self.world.head()
        log: list[Entry] = []
        while page := await self.world.store.read(
            read.read_log, head.id, profile="main", after=log[-1].seq if log else 0
        ):
            log += page
        return [entry.body for entry in log if isinstance(entry.body, Compaction)]

    async def failed(self) -> list[str | None]:
        """Why turns failed."""
        turns = await self.world.turns()
        return [turn.reason for turn in turns if turn.state is not TurnState.DONE]


def is_refused(server: ModelServer, ask: Ask) -> bool:
    return server.window is not None and ask.tokens > server.window


async def text_of_entry(world: EngineWorld, seq: int) -> str:
    head = await world.head()
    window = await world.store.read(read.read_window, head.id, profile="main", around=seq, limit=10)
    body = next(entry.body for entry in window.entries if entry.seq == seq)
    assert isinstance(body, Message)
    return body.text


@pytest.mark.timeout(900)
async def test_a_chat_of_thousands_of_rounds_never_fails_for_length(
    sqlite_steps: Callable[[], int],
    world: EngineWorld,
    rounds: int,
    record_property: Callable[[str, object], None],
) -> None:
    world.use(priced=priced)
    async with (
        ModelServer(window=WINDOW) as server,
        model_engine(world, server, wire="anthropic", window=WINDOW, tools=(TOOLS,)) as engine,
    ):
        server.otherwise = answer
        chat = Chat(world, engine, server)
        last_pinned = 0
        steps: list[int] = []
        for number in range(rounds):
            steps.append(sqlite_steps())
            await chat.say(words_of(number))
            if number == 10:
                head, moment = await world.head(), engine.context.moment()
                last_pinned = head.last_seq - 1
                for seq in (1, head.last_seq - 1):
                    await world.store.write(
                        pin_message, head.id, seq, profile="main", by=None, moment=moment
                    )
        pinned = await text_of_entry(world, last_pinned)
        last = [ask for ask in server.requests if not is_summary(ask)][-1]
    head = await world.head()
    compactions = await chat.compactions()
    found = await world.store.search(
        search,
        "quagmire",
        profile="main",
        options=SearchOptions(all_hits=True),
        now=world.clock.now(),
    )
    checked = await asyncio.to_thread(verify, world.store)

    asked = [ask.tokens for ask in server.requests if not is_summary(ask)]
    summaries = [ask.tokens for ask in server.requests if is_summary(ask)]
    refused = [ask for ask in server.requests if is_refused(server, ask)]
    begin = min(100, rounds // 4)
    early, late = (begin, begin + SAMPLE), (rounds - SAMPLE, rounds)
    sizes = [sum(len(ask.raw) for ask in chat.requests(*part)) / SAMPLE for part in (early, late)]
    costs = [sum(ask.tokens for ask in chat.requests(*part)) / SAMPLE for part in (early, late)]
    work = [(steps[part[1] - 1] - steps[part[0]]) / SAMPLE for part in (early, late)]
    times = [1000 * sum(chat.seconds[slice(*part)]) / SAMPLE for part in (early, late)]
    record_property(
        "long chat",
        f"{rounds} rounds, {len(await chat.failed())} failed; largest request {max(asked)} tokens of {THRESHOLD} "
        f"(window {WINDOW}), largest summary request {max(summaries)}; {len(compactions)} compactions, "
        f"{len(summaries)} summaries, {len(refused)} refused as too long; tokens sent per round {costs[0]:.0f} at "
        f"first, {costs[1]:.0f} at last; CPU per round {times[0]:.1f} ms at first, {times[1]:.1f} ms at last; "
        + (
            f"SQLite's steps per round {work[0]:.0f} at first, {work[1]:.0f} at last; "
            if any(work)
            else ""
        )
        + f"cost {head.usage.known_cost_microusd / 1e6:.2f} USD",
    )
    assert await chat.failed() == []
    assert refused == []
    assert max(asked) <= THRESHOLD
    assert max(summaries) <= WINDOW
    assert rounds // 40 < len(compactions) < rounds // 3
    assert sizes[1] < 1.25 * sizes[0]
    assert costs[1] < 1.25 * costs[0]
    assert work[1] <= 1.25 * work[0]
    # The first message is found and shown, the pinned ones are still read by the model.
    assert (head.id, 1) in [(hit.session.id, hit.seq) for hit in found.hits]
    assert await text_of_entry(world, 1) == FIRST
    summary, *rest = texts_of(last)
    assert summary.startswith(SUMMARY_HEADING)
    assert rest[:2] == [FIRST, pinned]
    assert checked.broken == ()
    assert 0 < head.context_tokens <= THRESHOLD
    assert head.message_count >= 2 * rounds


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
async def test_a_window_that_is_smaller_than_known_costs_no_turn(
    world: EngineWorld, wire: str
) -> None:
    """Then the provider's refusal is what compacts; where it names its window, once is enough."""
    async with (
        ModelServer(window=WINDOW) as server,
        model_engine(world, server, wire=wire, window=20_000) as engine,
    ):
        server.otherwise = lambda ask: Reply("So-far-tea." if is_summary(ask) else "tea " * 20)
        chat = Chat(world, engine, server)
        for number in range(60):
            await chat.say(f"round {number}: {'kettle ' * 40}")
    compactions = await chat.compactions()

    assert await chat.failed() == []
    refused = [at for at, ask in enumerate(server.requests) if is_refused(server, ask)]
    assert len(refused) == 1 or wire == "openai-responses"
    assert 1 <= len(refused) <= len(compactions)
    for at in refused:
        begin = max(begin for begin in chat.begins if begin <= at)
        same_turn = server.requests[at + 1 : min([*(b for b in chat.begins if b > begin), 10**6])]
        assert same_turn, "it was tried again in its turn"
        assert not is_refused(server, same_turn[-1])


async def test_without_a_threshold_only_a_refused_context_is_compacted(world: EngineWorld) -> None:
    world.settings = replace_setting(world.settings, compact_at_percent=0)
    async with (
        ModelServer(window=WINDOW) as server,
        model_engine(world, server, wire="anthropic", window=WINDOW) as engine,
    ):
        server.otherwise = lambda ask: Reply("So-far-tea." if is_summary(ask) else "tea " * 20)
        chat = Chat(world, engine, server)
        for number in range(40):
            await chat.say(f"round {number}: {'kettle ' * 40}")
    compactions = await chat.compactions()

    refused = [ask for ask in server.requests if is_refused(server, ask)]
    assert await chat.failed() == []
    assert 1 <= len(refused) == len(compactions)


async def test_a_message_longer_than_the_window_fails_in_one_line_and_the_chat_goes_on(
    world: EngineWorld,
) -> None:
    async with (
        ModelServer(window=WINDOW) as server,
        model_engine(world, server, window=WINDOW) as engine,
    ):
        server.otherwise = lambda ask: Reply("So far tea." if is_summary(ask) else "Tea.")
        chat = Chat(world, engine, server)
        await chat.say("hello")
        told = await chat.say("kettle " * WINDOW)
        first = await chat.say("hello again")
        await chat.say("and again")
    head = await world.head()

    [reason] = await chat.failed()
    assert reason == (
        "The message is longer than m can read at once (3,000 tokens), with what belongs to it: send less at a time, "
        "or begin a new conversation."
    )
    assert reason in told
    assert first == "Tea."
    assert server.requests[-1].tokens < THRESHOLD
    assert (await text_of_entry(world, 3)).startswith("kettle"), "people still read it"
    assert 0 < head.context_tokens < THRESHOLD


@pytest.mark.parametrize("at_once", [1, 5])
async def test_the_tools_of_one_turn_may_return_more_than_the_window(
    world: EngineWorld, at_once: int
) -> None:
    task = "Read all of it, and count the kettles."
    left = 15

    def answer(ask: Ask) -> Reply:
        nonlocal left
        if is_summary(ask):
            return Reply("Some was read.")
        if not left:
            return Reply("There are 7 kettles.")
        left -= at_once
        calls = [Call("read_lines", {"count": 40}, id=f"call_{left}_{n}") for n in range(at_once)]
        return Reply(calls=tuple(calls))

    async with (
        ModelServer(window=WINDOW) as server,
        model_engine(world, server, window=WINDOW, tools=(TOOLS,)) as engine,
    ):
        server.otherwise = lambda ask: Reply("So far tea." if is_summary(ask) else "Tea.")
        chat = Chat(world, engine, server)
        for number in range(5):
            await chat.say(f"round {number}: {'kettle ' * 40}")
        server.otherwise = answer
        told = await chat.say(task)
    turns = await world.turns()
    compactions = await chat.compactions()

    assert told == "There are 7 kettles."
    assert await chat.failed() == []
    assert len(turns) == 6
    outputs = [each for each in await world.messages(turns[-1].session_id) if each.role == "tool"]
    assert sum(len(str(each.parts)) for each in outputs) > 4 * WINDOW
    assert compactions
    asked = [ask for ask in chat.requests(5, 6) if not is_summary(ask)]
    assert all(task in str(ask.messages) for ask in asked)
    assert not any(is_refused(server, ask) for ask in asked)
