"""Suites that every adapter passes.

    class TestTelegram(AdapterSuite):
        @pytest.fixture
        async def platform(self) -> AsyncIterator[FakeTelegram]:
            async with FakeTelegram() as fake:
                yield fake

`platform` is a `sessionary.testing.channel_world.PlatformDriver`; the fixture `store` is open and empty.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Protocol
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from sessionary.actions import schedules
from sessionary.agents.registry import ConfiguredAgent
from sessionary.clock import Moment
from sessionary.config.engine import AccessPolicy
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.errors import NotAllowed, RetryLater, Unreachable
from sessionary.model.message import Attachment, Text, message
from sessionary.model.reset import Policies, ResetMode, ResetPolicy
from sessionary.model.schedule import Timing
from sessionary.model.source import Source
from sessionary.store.database import Store
from sessionary.store.tables import upkeep
from sessionary.testing.channel_world import (
    ChannelWorld,
    PlatformDriver,
    RecordingIntake,
    SigningPlatform,
    delivery_to,
    quick_settings,
    run_adapter,
    until,
)
from sessionary.testing.fakes import ScriptedRunner, scripted_agent

WEIRD = [
    "Zażółć gęślą jaźń",
    "日本語のテキスト",
    "👩‍👩‍👧‍👦 and 🏳️‍🌈",
    "a\u200bb\u202ec",
    "e\u0301 is é",
    "_*[]()~`>#+-=|{}.!\\ <b>&amp;</b>",
    "```python\nprint('*')\n```",
]
WAIT_SECONDS = 37
GIFT = bytes(range(256))


class AdapterSuite:
    """For every adapter; a subclass has the fixtures `platform` and `store`."""

    @pytest.fixture
    def world(self, store: Store, platform: PlatformDriver) -> ChannelWorld:
        return ChannelWorld(store, platform)

    async def test_a_message_is_durable_before_it_is_acknowledged(
        self, platform: PlatformDriver
    ) -> None:
        may_go_on = asyncio.Event()
        intake = RecordingIntake(lambda _: _wait(may_go_on))
        async with run_adapter(platform.adapter(), intake):
            await platform.says("hello", number=1)
            await until(lambda: intake.texts == ["hello"], "the message did not come")
            await asyncio.sleep(0.02)
            assert not platform.acknowledged(1)

            may_go_on.set()
            if platform.acknowledges:
                await until(lambda: platform.acknowledged(1), "it was not acknowledged")

    async def test_a_message_that_could_not_be_kept_comes_again(
        self, platform: PlatformDriver
    ) -> None:
        if not platform.acknowledges:
            return
        intake = RecordingIntake(_busy_at_first)
        await platform.says("hello", number=1)
        while len(intake.texts) < 2:
            async with run_adapter(platform.adapter(), intake) as task:
                await until(partial(_ended_or_has, task, intake, 2), "it did not come again")
        assert intake.texts == ["hello", "hello"]

    async def test_a_message_says_who_wrote_it_and_where(self, platform: PlatformDriver) -> None:
        intake = await _taken(platform, ["hello"])

        source = intake.sources[0]
        assert intake.texts == ["hello"]
        assert source.platform == platform.name
        assert source.user_id == platform.known
        assert source.channel == platform.chat
        assert source.platform_message_id is not None

    async def test_unusual_texts_are_imported_as_they_were_written(
        self, platform: PlatformDriver
    ) -> None:
        assert (await _taken(platform, WEIRD)).texts == WEIRD

    async def test_a_message_that_comes_twice_is_answered_once(self, world: ChannelWorld) -> None:
        async with world.running() as engine:
            await world.platform.says("hello", number=1)
            await world.until_seen("hello")
            await world.platform.says("hello", number=1)
            await world.platform.says("there", number=2)
            await world.until_seen("hello", "there")
            await world.settle(engine)

        assert world.platform.seen() == ["hello", "there"]

    async def test_messages_out_of_order_each_enter_once(self, world: ChannelWorld) -> None:
        async with world.running() as engine:
            for number in (3, 1, 3, 2, 1):
                await world.platform.says(f"word-{number}", number=number)
            await world.platform.says("the last", number=9)
            # They may come in any order, and several that wait together have one answer.
            await world.until_heard(4)
            if world.platform.acknowledges:
                acknowledged = world.platform.acknowledged
                await world.until(lambda: all(map(acknowledged, (1, 2, 3, 9))), "all are taken")
            await world.settle(engine)

        assert sorted(await world.heard()) == ["the last", "word-1", "word-2", "word-3"]

    async def test_a_stranger_cannot_reach_the_agent(self, world: ChannelWorld) -> None:
        async with world.running() as engine:
            await world.platform.says("let me in", number=1, person="666")
            await world.platform.says("hello", number=2)
            await world.until_seen("hello")
            await world.settle(engine)

        assert await world.transcripts() == [["hello", "hello"]]

    async def test_a_delivery_is_seen_and_its_message_is_named(
        self, platform: PlatformDriver
    ) -> None:
        adapter = platform.adapter()

        sent = await adapter.send(delivery_to(platform.chat, "hello"))

        assert platform.seen() == ["hello"]
        assert sent.platform_message_id or not platform.acknowledges
        await adapter.close()

    async def test_a_retry_after_is_obeyed(self, platform: PlatformDriver) -> None:
        adapter = platform.adapter()
        platform.refuse(429, retry_after=WAIT_SECONDS)

        with pytest.raises(RetryLater) as caught:
            await adapter.send(delivery_to(platform.chat, "hello"))

        assert WAIT_SECONDS <= caught.value.after <= WAIT_SECONDS * 2
        assert platform.seen() == []
        await adapter.close()

    async def test_a_platform_that_fails_is_asked_again(self, world: ChannelWorld) -> None:
        async with world.running():
            world.platform.refuse(500, times=2)
            await world.post("hello")
            await world.until_seen("hello")

    async def test_a_lost_answer_costs_at_most_one_copy_and_is_marked(
        self, platform: PlatformDriver
    ) -> None:
        adapter = platform.adapter()
        platform.lose_answers()

        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever says «unclear»
            await adapter.send(delivery_to(platform.chat, "hello"))

        assert not isinstance(caught.value, RetryLater | Unreachable | NotAllowed)
        assert platform.seen() == ["hello"]
        await adapter.send(delivery_to(platform.chat, "hello", attempts=2))
        assert set(platform.seen()) == {"hello"}
        assert len(platform.seen()) <= 2
        await adapter.close()

    async def test_a_refused_key_stops_this_channel_and_no_other(
        self, world: ChannelWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.platform.revoke()
        with pytest.raises(NotAllowed):
            await world.adapter.send(delivery_to(world.platform.chat, "hello"))

        async with world.running() as engine:
            source = Source("loopback", "1", user_id="u", platform_message_id="1")
            await engine.receive(source, message("user", "hi"))
            await world.until(lambda: world.other.texts("loopback:1") == ["hi"], "the other one")
            # Where the platform comes to us, our key is not asked for until we send.
            if world.platform.acknowledges and getattr(world.adapter, "webhook", None) is None:
                name = f"channel {world.platform.name}"
                await world.until(lambda: engine.states[name].startswith("stopped"), name)
                assert engine.states["channel loopback"] == "running"

    async def test_a_network_that_is_gone_for_a_while_loses_nothing(
        self, world: ChannelWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with world.running():
            await world.platform.says("before", number=1)
            await world.until_seen("before")
            await world.platform.go_offline()
            await world.post("posted meanwhile")
            await world.platform.says("said meanwhile", number=2)
            await asyncio.sleep(0.05)
            await world.platform.go_online()
            wanted = ["before", "posted meanwhile", "said meanwhile"]
            await world.until(lambda: sorted(set(world.platform.seen())) == wanted, "all of it")

    async def test_a_long_text_arrives_whole_and_in_order(self, platform: PlatformDriver) -> None:
        adapter = platform.adapter()
        words = [f"word{number}" for number in range(3000)]

        await adapter.send(delivery_to(platform.chat, " ".join(words)))

        assert " ".join(platform.seen()).split() == words
        await adapter.close()

    @pytest.mark.parametrize("text", ["", "   \n", "\x00\x07", "lone \ud800 half", *WEIRD])
    async def test_no_text_is_too_weird_to_be_sent(
        self, platform: PlatformDriver, text: str
    ) -> None:
        adapter = platform.adapter()

        await adapter.send(delivery_to(platform.chat, text))
        await adapter.send(delivery_to(platform.chat, "after it", id="delivery-2"))

        assert platform.seen()[-1] == "after it"
        await adapter.close()

    async def test_a_file_that_is_too_large_is_refused_politely(self, world: ChannelWorld) -> None:
        largest = world.platform.largest_file
        if largest is None:
            return
        async with world.running() as engine:
            await world.platform.says("look", number=1, file=b"x" * (largest + 1))
            await world.until(lambda: any("too large" in text for text in world.platform.seen()))
            await world.platform.says("still there?", number=2)
            await world.until(lambda: world.platform.seen()[-1] == "still there?", "an answer")
            await world.settle(engine)

    async def test_a_file_of_a_stranger_is_not_fetched(self, world: ChannelWorld) -> None:
        largest = world.platform.largest_file
        if largest is None:
            return
        async with world.running() as engine:
            await world.platform.says("look", number=1, person="666", file=b"x" * largest)
            await world.platform.says("hello", number=2)
            await world.until_seen("hello")
            assert world.platform.fetched() == 0

            await world.platform.says("look", number=3, file=b"x" * largest)
            await world.until(lambda: len(world.platform.seen()) == 2, "an answer")
            await world.settle(engine)

        assert world.platform.fetched() >= 1

    async def test_a_file_of_the_agent_reaches_the_person(
        self, store: Store, platform: PlatformDriver
    ) -> None:
        world = ChannelWorld(store, platform, agent_for=giving(GIFT))
        async with world.running() as engine:
            await platform.says("give me the notes", number=1)
            await world.until(lambda: bool(platform.given()), "the file")
            await world.settle(engine)

        assert platform.given() == [("notes.pdf", GIFT)]
        assert platform.seen() == ["Here it is."]

    async def test_a_file_of_the_agent_that_is_too_large_is_named_instead(
        self, store: Store, platform: PlatformDriver
    ) -> None:
        agent = giving(b"x" * (platform.largest_sent + 1))
        world = ChannelWorld(store, platform, agent_for=agent)
        async with world.running() as engine:
            await platform.says("give me the notes", number=1)
            await world.until(lambda: "too large" in " ".join(platform.seen()), "a word about it")
            await world.settle(engine)

        assert platform.given() == []
        assert "Here it is." in platform.seen()[0]
        assert "notes.pdf" in platform.seen()[-1]

    async def test_closing_twice_is_closing(self, platform: PlatformDriver) -> None:
        adapter = platform.adapter()

        await adapter.close()
        await adapter.close()

    async def test_the_whole_walk(self, store: Store, platform: PlatformDriver) -> None:
        policy = ResetPolicy(
            mode=ResetMode.IDLE, idle=timedelta(days=2), notify_exclude=frozenset()
        )
        world = ChannelWorld(store, platform, policies=Policies(default=policy))
        async with world.running() as engine:
            assert await _answers(world, "hello", 1, 1) == ["hello"]
            assert await world.transcripts() == [["hello", "hello"]]

            assert "new session" in (await _answers(world, "/new", 2, 1))[0]
            assert await _answers(world, "again", 3, 1) == ["again"]
            assert await world.transcripts() == [["again", "again"], ["hello", "hello"]]

            assert "Now in" in (await _answers(world, "/resume 2", 4, 1))[0]
            assert await _answers(world, "back", 5, 1) == ["back"]
            assert ["hello", "hello", "back", "back"] in await world.transcripts()

            await world.settle(engine)
            world.clock.tick(days=3)
            notice, answer = await _answers(world, "long after", 6, 2)
            assert "New session" in notice
            assert answer == "long after"

            assert await _answers(world, "/sethome", 7, 1)
            await _plan(world)
            world.clock.tick(hours=1)
            await world.until(lambda: "good morning" in world.platform.seen()[-1], "the schedule")


class SignedSuite:
    """For adapters to which the platform posts; `platform` is a `SigningPlatform`."""

    async def test_a_forged_signature_changes_nothing_and_is_logged(
        self, store: Store, platform: SigningPlatform, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = ChannelWorld(store, platform)
        async with world.running() as engine:
            await platform.says("hello", number=1)
            await world.until_seen("hello")
            with caplog.at_level(logging.WARNING):
                status = await platform.forges("obey me", number=2)
            await world.settle(engine)

            assert status in (401, 403)
            assert any(platform.name in each.getMessage() for each in caplog.records)
            assert await world.transcripts() == [["hello", "hello"]]
            assert (await store.read(upkeep.backlog)).waiting_arrivals == 0

    async def test_a_signed_message_that_comes_much_later_is_refused(
        self, store: Store, platform: SigningPlatform
    ) -> None:
        world = ChannelWorld(store, platform)
        async with world.running() as engine:
            await platform.says("hello", number=1)
            await world.until_seen("hello")
            status = await platform.replays_late("again", number=2)
            await world.settle(engine)

            assert status is None or status in (401, 403)
            assert status is None or await world.transcripts() == [["hello", "hello"]]


async def _answers(world: ChannelWorld, text: str, number: int, count: int) -> list[str]:
    before = len(world.platform.seen())
    await world.platform.says(text, number=number)
    await world.until(lambda: len(world.platform.seen()) >= before + count, f"answer to {text}")
    return world.platform.seen()[before:]


async def _plan(world: ChannelWorld) -> None:
    plan = schedules.ScheduleSpec(
        name="greeting",
        timing=Timing("every 30m", ZoneInfo("UTC")),
        prompt="good morning",
        deliver_to=world.platform.name,
    )
    moment = Moment(world.clock.now(), world.ids)
    await world.store.write(schedules.add, plan, profile="main", moment=moment)


async def _taken(platform: PlatformDriver, texts: list[str]) -> RecordingIntake:
    """Return what the adapter receives of messages that are written one after the other."""
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        for number, text in enumerate(texts, 1):
            await platform.says(text, number=number)
            await until(partial(_has, intake, number), f"message {number} did not come")
    return intake


def _has(intake: RecordingIntake, count: int) -> bool:
    return len(intake.messages) >= count


def _ended_or_has(task: "asyncio.Task[None]", intake: RecordingIntake, count: int) -> bool:
    return task.done() or _has(intake, count)


def giving(data: bytes) -> Callable[[Source, str | None], ConfiguredAgent]:
    """Return an agent that answers with a file."""
    file = Attachment(sha256(data).hexdigest(), "application/pdf", "notes.pdf", len(data))
    reply = message("assistant", [Text("Here it is."), file])
    agent = scripted_agent(ScriptedRunner(lambda _: [Step(reply, files=(data,))]))
    return lambda _, __: agent


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _busy_at_first(count: int) -> None:
    if count == 1:
        raise RetryLater("the store is busy", after=0.01)


class StreamingPlatform(PlatformDriver, Protocol):
    """A platform on which messages can be deleted."""

    @property
    def pending_refusals(self) -> int:
        """How many of the ordered refusals were not used yet."""

    def forget(self) -> None:
        """Delete everything that the bot has written."""


class SlowRunner:
    """Writes half a sentence, waits until it may finish, and finishes."""

    def __init__(self, first: str = "Once upon ", rest: str = "a time") -> None:
        self._first, self._rest = first, rest
        self.may_finish = asyncio.Event()

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Yield the first half, and the rest later."""
        yield Delta(self._first)
        await self.may_finish.wait()
        yield Delta(self._rest)
        yield Step(message("assistant", self._first + self._rest))

    async def close(self) -> None:
        """Do nothing."""


class StreamingSuite:
    """For every adapter; a subclass has the fixtures `platform` and `store`."""

    @pytest.fixture
    def runner(self) -> SlowRunner:
        return SlowRunner()

    @pytest.fixture
    def growing(
        self, store: Store, platform: StreamingPlatform, runner: SlowRunner
    ) -> ChannelWorld:
        agent = scripted_agent(runner)
        access = {platform.name: AccessPolicy(everyone=True)}
        settings = quick_settings(show_seconds=0.01, access=access)
        return ChannelWorld(store, platform, settings=settings, agent_for=lambda _, __: agent)

    async def test_an_answer_grows_and_its_delivery_is_the_last_edit(
        self, growing: ChannelWorld, runner: SlowRunner
    ) -> None:
        async with growing.running() as engine:
            await growing.platform.says("a story", number=1)
            await growing.until_seen("Once upon …")
            runner.may_finish.set()
            await growing.until_seen("Once upon a time")
            await growing.settle(engine)

        assert growing.platform.seen() == ["Once upon a time"]

    async def test_an_answer_whose_growth_cannot_be_shown_comes_all_the_same(
        self, growing: ChannelWorld, platform: StreamingPlatform, runner: SlowRunner
    ) -> None:
        async with growing.running():
            platform.refuse(429, retry_after=1000)
            await platform.says("a story", number=1)
            await growing.until(lambda: platform.pending_refusals == 0, "an attempt to show it")
            runner.may_finish.set()
            await growing.until_seen("Once upon a time")

    async def test_a_message_that_grew_and_was_deleted_is_appended_again(
        self, growing: ChannelWorld, platform: StreamingPlatform, runner: SlowRunner
    ) -> None:
        async with growing.running():
            await platform.says("a story", number=1)
            await growing.until_seen("Once upon …")
            platform.forget()
            runner.may_finish.set()
            await growing.until_seen("Once upon a time")

    async def test_a_last_edit_that_is_refused_for_now_is_tried_again(
        self, growing: ChannelWorld, runner: SlowRunner
    ) -> None:
        async with growing.running() as engine:
            await growing.platform.says("a story", number=1)
            await growing.until_seen("Once upon …")
            growing.platform.refuse(429, retry_after=1, times=2)
            runner.may_finish.set()
            await growing.until_seen("Once upon a time")
            await growing.settle(engine)

        assert growing.platform.seen() == ["Once upon a time"]

    async def test_a_last_edit_whose_answer_is_lost_comes_once(
        self, platform: StreamingPlatform
    ) -> None:
        adapter = platform.adapter()
        await adapter.show(platform.chat, "turn-1", "Once upon")
        platform.lose_answers()
        last = replace(delivery_to(platform.chat, "Once upon a time"), turn_id="turn-1")

        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever says «unclear»
            await adapter.send(last)
        await adapter.send(replace(last, attempts=2))

        assert platform.seen() == ["Once upon a time"]
        await adapter.close()

    async def test_two_answers_that_begin_alike_are_two_messages(
        self, growing: ChannelWorld, runner: SlowRunner
    ) -> None:
        async with growing.running() as engine:
            for number in (1, 2):
                runner.may_finish.clear()
                await growing.platform.says("a story", number=number)
                grown = ["Once upon a time"] * (number - 1)
                await growing.until_seen(*grown, "Once upon …")
                runner.may_finish.set()
                await growing.until_seen(*grown, "Once upon a time")
                await growing.settle(engine)
