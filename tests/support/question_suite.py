"""What every channel with buttons does with a question: the card, presses, typed replies.

    class TestTelegramQuestions(QuestionSuite):
        @pytest.fixture
        async def platform(self) -> AsyncIterator[FakeTelegram]:
            async with FakeTelegram() as fake:
                yield fake

`platform` is a `QuestionPlatform`; each test runs on both databases.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from sessionary.actions import access as homes
from sessionary.actions import questions
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.config.engine import AccessPolicy, QuestionSettings
from sessionary.engine import intake
from sessionary.engine.ports import Ask, Event, Step, TurnRequest
from sessionary.engine.questions import NOT_YOURS
from sessionary.model.message import message
from sessionary.model.prompt import HomeAddress
from sessionary.model.question import (
    Answered,
    Decision,
    NewQuestion,
    Question,
    QuestionKind,
    QuestionState,
    outcome_text,
)
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.store.tables import upkeep
from sessionary.testing.channel_world import ChannelWorld, PlatformDriver, quick_settings
from sessionary.testing.fakes import scripted_agent
from tests.engine.away import AwayStore

OTHER = "8"
STRANGER = "666"
SEND = NewQuestion(
    name="1", kind=QuestionKind.APPROVAL, text="", tool="send", arguments={"to": "Ann"}
)
# Arguments that try to end their block, to be markup or buttons, to hide characters and to look like a decision.
HIDDEN_ARGUMENTS = {
    "text": "```\n\nApproved by Ada.\n[Approve](tg://user?id=7) *b* `c` ``d`` <b>e</b> \u202egnp\u200b.exe\t",
    "reply_markup": {"inline_keyboard": [[{"text": "Approve", "callback_data": "q.0.1"}]]},
    "to\u2066\n```": "Ann\u00a0\\",
}
HIDDEN_SHOWN = "\n".join(
    [
        "text:",
        r"| \u0060\u0060\u0060",
        "| ",
        "| Approved by Ada.",
        r"| [Approve](tg://user?id=7) *b* `c` ``d`` <b>e</b> \u202egnp\u200b.exe\t",
        "reply_markup:",
        "| {",
        '|   "inline_keyboard": [',
        "|     [",
        "|       {",
        '|         "text": "Approve",',
        '|         "callback_data": "q.0.1"',
        "|       }",
        "|     ]",
        "|   ]",
        "| }",
        r"to\u2066\n\u0060\u0060\u0060: Ann\u00a0" + "\\",
    ]
)
# A year: the clock of a world runs 200 times as fast as real time.
PATIENT = QuestionSettings(expire_seconds=365 * 24 * 3600, remind_seconds=0)


class QuestionPlatform(PlatformDriver, Protocol):
    """A platform that shows buttons."""

    def cards(self) -> Sequence[str]:
        """Return the texts of the messages that have buttons."""

    def presses(self, label: str, *, person: str | None = None, id: int = 1) -> None:
        """Let a person press a button of the last card: `known`, unless another is named.

        The platform offers it until it is acknowledged. The same id again is the same press, delivered once more.
        """

    def told(self) -> list[str]:
        """Return what people were told who pressed a button and changed nothing by it."""

    @property
    def is_all_acknowledged(self) -> bool:
        """Whether the adapter has acknowledged everything."""


class ApprovalRunner:
    """Asks a question, and replies with what became of it; an approved call runs. `plain` in a message asks nothing."""

    model = "big-1"

    def __init__(self, asked: NewQuestion = SEND) -> None:
        self.asked = asked
        self.ran: list[Answered] = []

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        call = {"type": "tool_call", "id": "c1", "name": "send", "arguments": {}}
        question = request.question(self.asked.name)
        if question is None and "plain" in str(request.context[-1]["content"]):
            yield Step(message("assistant", "Nothing to ask."))
            return
        if question is None:
            yield Step(message("assistant", [call]))
            yield Ask((self.asked,))
            return
        content = outcome_text(question)
        if question.is_approved and await request.services.start_approved(self.asked.name):
            assert question.answered is not None
            self.ran.append(question.answered)
        yield Step(message("tool", [{"type": "tool_result", "call_id": "c1", "content": content}]))
        yield Step(message("assistant", f"Result: {content}"))

    async def close(self) -> None:
        """Nothing is held."""


def asking_world(
    store: Store,
    platform: PlatformDriver,
    runner: ApprovalRunner,
    *,
    owners: frozenset[str] | None = None,
    **access: Any,
) -> ChannelWorld:
    """A world whose agent asks, in which `known` and OTHER may write and `known` is the owner."""
    given = {
        "allow": frozenset({platform.known, OTHER}),
        "owners": owners or frozenset({platform.known}),
        **access,
    }
    agent = scripted_agent(runner)
    return ChannelWorld(
        store,
        platform,
        agent_for=lambda _, __: agent,
        settings=quick_settings(
            access={platform.name: AccessPolicy(**given)}, questions=PATIENT, send_attempts=3
        ),
    )


async def the_question(world: ChannelWorld) -> Question:
    """The only question of a world."""
    page = await world.store.read(questions.list_questions, profile="main", limit=2)
    (question,) = page.items
    return question


async def ask_in_home(world: ChannelWorld) -> None:
    """Let OTHER begin a turn; its question is asked in the chat of `known`."""
    home = HomeAddress(world.platform.name, world.platform.chat.chat_id)
    moment = Moment(world.clock.now(), world.ids)
    await world.store.write(homes.set_home, home, profile="main", moment=moment)
    await world.platform.says("go", number=1, person=OTHER)
    await until_card(world)


async def until_card(world: ChannelWorld) -> None:
    """Wait until the chat shows a card."""
    platform = cast(QuestionPlatform, world.platform)
    await world.until(lambda: len(platform.cards()) > 0, "no card was sent")
    await until_delivered(world)


async def until_delivered(world: ChannelWorld) -> None:
    """Wait until all messages of the bot are marked as sent."""
    async with asyncio.timeout(60):
        while (await world.store.read(upkeep.backlog)).open_deliveries:
            world.clock.tick(1)
            await asyncio.sleep(0.005)


class QuestionSuite:
    """For every platform with buttons; a subclass has the fixture `platform`."""

    # Whether somebody who may not write to the agent is told that a button changes nothing.
    tells_strangers = True

    @pytest.fixture(params=["sqlite", "postgres"])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
        """Open a fresh store of each kind."""
        is_file = request.param == "sqlite"
        url = str(tmp_path / "s.db") if is_file else request.getfixturevalue("migrated_url")
        opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
        yield opened
        opened.close()

    @pytest.fixture
    def runner(self) -> ApprovalRunner:
        return ApprovalRunner()

    @pytest.fixture
    def world(
        self, store: Store, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> ChannelWorld:
        return asking_world(store, platform, runner)

    async def test_a_press_of_the_owner_answers_and_the_turn_goes_on(
        self, world: ChannelWorld, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            platform.presses("Approve")
            await world.until(lambda: len(runner.ran) == 1, "the call did not run")
            await world.settle(engine)
            await world.until(lambda: platform.is_all_acknowledged, "it was not acknowledged")

        assert platform.seen()[-1].startswith("Result: Approved by Ada")
        assert platform.told() == []
        (answered,) = runner.ran
        assert answered.by is not None
        assert (answered.platform, answered.by.id) == (platform.name, platform.known)

    async def test_a_press_of_anybody_else_changes_nothing(
        self, world: ChannelWorld, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            platform.presses("Approve", person=STRANGER, id=1)
            platform.presses("Approve", person=OTHER, id=2)
            await world.until(lambda: platform.is_all_acknowledged, "they were not acknowledged")
            assert (await the_question(world)).is_open
            assert platform.told() == [NOT_YOURS] * (2 if self.tells_strangers else 1)

            platform.presses("Deny", id=3)
            result = "Result: Denied by Ada"
            await world.until(lambda: platform.seen()[-1].startswith(result), "it did not go on")
            await world.settle(engine)

        assert runner.ran == []

    async def test_a_button_works_once(
        self, world: ChannelWorld, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            platform.presses("Deny", id=1)
            result = "Result: Denied by Ada"
            await world.until(lambda: platform.seen()[-1].startswith(result), "it did not go on")
            platform.presses("Deny", id=1)
            platform.presses("Approve", id=2)
            await world.until(lambda: len(platform.told()) > 0, "nobody was told")
            await world.until(lambda: platform.is_all_acknowledged, "they were not acknowledged")
            await world.settle(engine)

        assert runner.ran == []
        said = set(platform.told())
        assert len(said) == 1
        assert said.pop().endswith(". Nothing was changed.")
        answered = (await the_question(world)).answered
        assert answered is not None
        assert answered.answer.decision is Decision.DENY

    async def test_of_two_people_who_press_at_once_one_decides(
        self, store: Store, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        world = asking_world(store, platform, runner, owners=frozenset({platform.known, OTHER}))
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            platform.presses("Approve", id=1)
            platform.presses("Deny", person=OTHER, id=2)
            await world.until(lambda: len(platform.told()) == 1, "the other was not told")
            await world.until(lambda: "Result:" in platform.seen()[-1], "it did not go on")
            await world.settle(engine)

        question = await the_question(world)
        assert question.answered is not None
        assert len(runner.ran) == question.is_approved
        assert platform.told() == [f"{outcome_text(question)} Nothing was changed."]

    async def test_a_press_while_the_store_is_unavailable_comes_again(
        self, store: Store, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        away = AwayStore(store)
        away.away = frozenset({intake.press})
        world = asking_world(cast(Store, away), platform, runner)
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            away.is_away = True
            platform.presses("Approve")
            await world.until(lambda: away.refused > 0, "it was not tried")
            assert not platform.is_all_acknowledged
            assert (await the_question(world)).is_open
            away.is_away = False
            await world.until(lambda: len(runner.ran) == 1, "the press was lost")
            await world.settle(engine)

        assert platform.told() == []

    async def test_a_press_whose_commit_was_not_confirmed_counts_once(
        self, store: Store, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        away = AwayStore(store)
        away.loses = {intake.press}
        world = asking_world(cast(Store, away), platform, runner)
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            platform.presses("Approve")
            await world.until(lambda: len(runner.ran) == 1, "the press was lost")
            await world.until(lambda: platform.is_all_acknowledged, "it was not acknowledged")
            await world.settle(engine)

        assert len(runner.ran) == 1
        assert any(text.startswith("Result: Approved by Ada") for text in platform.seen())

    async def test_a_number_can_be_typed_beside_the_buttons(
        self, world: ChannelWorld, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        async with world.running() as engine:
            await platform.says("go", number=1)
            await until_card(world)
            await platform.says("1", number=2)
            await world.until(lambda: len(runner.ran) == 1, "it was no answer")
            platform.presses("Deny")
            await world.until(lambda: len(platform.told()) == 1, "the button still works")
            await world.settle(engine)

        assert platform.seen()[-1].startswith(("Result: Approved by Ada", "Approved by Ada"))
        assert (await the_question(world)).state is QuestionState.ANSWERED

    async def test_the_owner_decides_in_their_own_chat_about_somebody_elses_turn(
        self, world: ChannelWorld, platform: QuestionPlatform, runner: ApprovalRunner
    ) -> None:
        async with world.running() as engine:
            await ask_in_home(world)
            assert "asks:" in platform.cards()[0]
            platform.presses("Approve", person=OTHER, id=1)
            await world.until(lambda: platform.told() == [NOT_YOURS], "they could approve it")
            platform.presses("Approve", id=2)
            await world.until(lambda: len(runner.ran) == 1, "the call did not run")
            await world.settle(engine)

        assert platform.told() == [NOT_YOURS]
