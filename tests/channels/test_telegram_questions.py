"""Questions on Telegram: inline keyboards, callback queries, and the message that shows who decided."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessionary.channels.telegram import outbound
from sessionary.engine.ports import PressResult, Sent
from sessionary.errors import BadInput
from sessionary.model.question import Card, MessageEdit, NewQuestion, QuestionKind
from sessionary.model.source import Channel, ChatType, Source
from sessionary.store.database import Store
from sessionary.testing.channel_world import (
    ChannelWorld,
    RecordingIntake,
    delivery_to,
    run_adapter,
    until,
)
from tests.channels.test_telegram_bot import OneFileServices
from tests.support.fake_telegram import FakeTelegram, PostingTelegram
from tests.support.question_suite import (
    HIDDEN_ARGUMENTS,
    HIDDEN_SHOWN,
    ApprovalRunner,
    QuestionSuite,
    ask_in_home,
    asking_world,
    the_question,
    until_card,
)

TOKEN = "0123456789abcdef0123456789abcdef"
LABELS = ("Approve", "Deny", "Always in this session", "Always for this person")
CARD = Card("q1", TOKEN, LABELS, "K7QD")
DM = {"id": 7, "type": "private"}
GROUP = {"id": -100, "type": "supergroup", "title": "The team"}
BOT = {"id": 4242, "is_bot": True, "first_name": "Clerk"}


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as made:
        yield made


class TestTelegramQuestions(QuestionSuite):
    @pytest.fixture
    async def platform(self) -> AsyncIterator[FakeTelegram]:
        async with FakeTelegram() as fake:
            yield fake


class TestPostingTelegramQuestions(QuestionSuite):
    @pytest.fixture
    async def platform(self) -> AsyncIterator[PostingTelegram]:
        async with PostingTelegram() as fake:
            yield fake


# The card


async def send(fake: FakeTelegram, text: str, card: Card = CARD, *, chat: str = "7") -> Sent:
    adapter = fake.adapter()
    try:
        return await adapter.send(delivery_to(Channel.parse(f"telegram:{chat}"), text, card.part()))
    finally:
        await adapter.close()


async def test_a_card_is_one_message_with_a_button_for_each_option(fake: FakeTelegram) -> None:
    sent = await send(fake, "May **send** be called?", chat="-100:3")

    (form,) = fake.sent()
    assert json.loads(form.pop("reply_markup")) == {
        "inline_keyboard": [
            [
                {"text": "Approve", "callback_data": f"q.{TOKEN}.1"},
                {"text": "Deny", "callback_data": f"q.{TOKEN}.2"},
            ],
            [{"text": "Always in this session", "callback_data": f"q.{TOKEN}.3"}],
            [{"text": "Always for this person", "callback_data": f"q.{TOKEN}.4"}],
        ]
    }
    assert form == {
        "chat_id": "-100",
        "message_thread_id": "3",
        "text": r"May *send* be called?",
        "parse_mode": "MarkdownV2",
    }
    assert sent.platform_message_id == str(next(iter(fake.offered)))


@pytest.mark.parametrize(
    ("labels", "rows"),
    [
        (("Yes", "No"), [["Yes", "No"]]),
        (tuple("abcdefgh"), [list("abcdefgh")]),
        (("Tomorrow morning", "Never"), [["Tomorrow morning"], ["Never"]]),
        (("Yes", "Tomorrow morning"), [["Yes"], ["Tomorrow morning"]]),
        (("a\u202eb", "two\nlines"), [[r"a\u202eb", "two lines"]]),
        (("x" * 41, "No"), [[f"1. {'x' * 36}…"], ["2. No"]]),
    ],
)
def test_short_labels_share_a_row(labels: tuple[str, ...], rows: list[list[str]]) -> None:
    made = outbound.button_rows(Card("q1", TOKEN, labels, "K7QD"))

    assert [[label for label, _ in row] for row in made] == rows
    carried = [data for row in made for _, data in row]
    assert carried == [f"q.{TOKEN}.{number}" for number in range(1, len(labels) + 1)]
    assert all(len(data.encode()) <= 64 for data in carried)


async def test_labels_that_are_too_long_for_a_button_are_in_the_text(fake: FakeTelegram) -> None:
    await send(fake, "Which one?", Card("q1", TOKEN, ("x" * 60, "y" * 200), "K7QD"))

    (shown,) = fake.cards()
    assert f"1. {'x' * 60}\n2. {'y' * 200}" in shown


async def test_the_buttons_of_a_long_question_are_below_its_end(fake: FakeTelegram) -> None:
    text = "```\n" + "\n".join(f"line {number}" for number in range(800)) + "\n```"

    sent = await send(fake, text)

    assert [("reply_markup" in form) for form in fake.sent()] == [False, True]
    assert list(fake.offered) == [int(sent.platform_message_id or 0)]
    assert "line 799" in fake.cards()[0]


async def test_in_halves_the_buttons_are_below_the_second_one(fake: FakeTelegram) -> None:
    for _ in range(2):
        fake.refuse_with(400, "Bad Request: message is too long")

    sent = await send(fake, "one two " * 40)

    assert len(fake.seen()) == 2
    assert fake.cards() == fake.seen()[1:]
    assert list(fake.offered) == [int(sent.platform_message_id or 0)]


async def test_a_card_that_telegram_cannot_parse_goes_out_plain_with_its_buttons(
    fake: FakeTelegram,
) -> None:
    fake.refuse_with(400, "Bad Request: can't parse entities: it is Tuesday")

    await send(fake, "**hm** 1.")

    assert fake.cards() == ["**hm** 1."]


async def test_arguments_cannot_pretend_to_be_anything_else(
    store: Store, fake: FakeTelegram
) -> None:
    asked = NewQuestion(
        name="1", kind=QuestionKind.APPROVAL, text="", tool="se*`nd", arguments=HIDDEN_ARGUMENTS
    )
    world = asking_world(store, fake, ApprovalRunner(asked))
    async with world.running() as engine:
        await fake.says("go", number=1)
        await until_card(world)
        await world.settle(engine)

    (form,) = fake.sent()
    code = HIDDEN_SHOWN.replace("\\", "\\\\").replace("`", "\\`")
    assert form["text"] == f"May the tool *se nd* be called?\n\n```\n{code}\n```"
    assert form["parse_mode"] == "MarkdownV2"
    assert fake.seen() == [f"May the tool se nd be called?\n\n{HIDDEN_SHOWN}"]
    (buttons,) = fake.offered.values()
    assert list(buttons) == list(LABELS)


# Presses


class PressIntake(RecordingIntake):
    """An intake that answers presses as a test wants it."""

    def __init__(self, *answers: str | Exception) -> None:
        super().__init__()
        self.answers = list(answers)
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def press(self, source: Source, data: str, /) -> PressResult:
        await super().press(source, data)
        await self.may_go_on.wait()
        answer = self.answers.pop(0) if self.answers else "Approved by Ada."
        if isinstance(answer, Exception):
            raise answer
        return PressResult(answer, is_changed="Nothing was changed" not in answer)


async def press(fake: FakeTelegram, intake: RecordingIntake, **query: Any) -> None:
    """Let a button be pressed, and wait until Telegram knows that it was received."""
    number = max(fake.messages)
    given = {"data": f"q.{TOKEN}.1", **query}
    async with run_adapter(fake.adapter(), intake):
        fake.press_data(given.pop("data"), number, **given)
        await until(lambda: fake.is_all_acknowledged, "it was not acknowledged")


async def test_telegram_is_asked_for_presses(fake: FakeTelegram) -> None:
    await send(fake, "hm?")
    await press(fake, RecordingIntake())
    async with PostingTelegram() as posting, run_adapter(posting.adapter(), RecordingIntake()):
        await until(lambda: "url" in posting.webhook, "no webhook was set")

    wanted = [fake.sent("getUpdates")[0], posting.webhook]
    assert all("callback_query" in json.loads(each["allowed_updates"]) for each in wanted)


async def test_a_press_says_who_pressed_and_where(fake: FakeTelegram) -> None:
    await send(fake, "hm?", chat="-100:3")
    intake = RecordingIntake()

    await press(fake, intake, person="8")

    ((source, data),) = intake.pressed
    assert data == f"q.{TOKEN}.1"
    assert source.channel == Channel("telegram", "-100", "3")
    assert (source.user_id, source.user_name, source.chat_type) == ("8", "Ada 8", ChatType.GROUP)
    assert fake.toasts == [("Noted 1.", False)]
    assert fake.sent("answerCallbackQuery") == [
        {"callback_query_id": "query-1", "text": "Noted 1."}
    ]


async def test_a_press_below_a_message_that_telegram_has_forgotten_counts(
    fake: FakeTelegram,
) -> None:
    await send(fake, "hm?")
    intake = RecordingIntake()

    await press(fake, intake, message={"message_id": 5, "date": 0, "chat": DM})

    assert intake.pressed[0][0].channel == fake.chat


@pytest.mark.parametrize(
    "query",
    [
        {"data": "another-program"},
        {"data": "q."},
        {"data": f"q.{TOKEN}.0"},
        {"data": f"q.{TOKEN}.1 "},
        {"message": None},
        {"game_short_name": "chess", "data": ""},
    ],
)
async def test_a_button_that_is_not_ours_is_answered_and_ignored(
    fake: FakeTelegram, query: dict[str, Any]
) -> None:
    await send(fake, "hm?")
    intake = RecordingIntake()

    await press(fake, intake, **query)

    assert intake.pressed == []
    assert fake.toasts == [("", False)]


async def test_a_press_is_durable_before_it_is_acknowledged(fake: FakeTelegram) -> None:
    await send(fake, "hm?")
    intake = PressIntake()
    intake.may_go_on.clear()
    async with run_adapter(fake.adapter(), intake):
        fake.press_data(f"q.{TOKEN}.1", max(fake.messages))
        await until(lambda: len(intake.pressed) == 1, "the press did not come")
        assert not fake.is_all_acknowledged
        assert fake.toasts == []
        intake.may_go_on.set()
        await until(lambda: fake.is_all_acknowledged, "it was not acknowledged")

    assert fake.toasts == [("Approved by Ada.", False)]


async def test_what_changes_nothing_must_be_closed_by_whoever_pressed(fake: FakeTelegram) -> None:
    await send(fake, "hm?")
    said = f"Denied by Ada: {'no ' * 80}. Nothing was changed."

    await press(fake, PressIntake(said))

    ((text, must_close),) = fake.toasts
    assert must_close
    assert (len(text), text[:18]) == (200, "Denied by Ada: no ")


async def test_a_press_that_can_never_be_used_does_not_block_what_comes_after(
    fake: FakeTelegram,
) -> None:
    await send(fake, "hm?")
    intake = PressIntake(BadInput("The id of this person is too long."))

    await press(fake, intake)

    assert fake.toasts == [("The id of this person is too long. Nothing was changed.", True)]


async def test_a_press_that_telegram_no_longer_wants_to_be_answered_counts(
    fake: FakeTelegram,
) -> None:
    await send(fake, "hm?")
    fake.takes_answers = False
    intake = RecordingIntake()
    async with run_adapter(fake.adapter(), intake) as task:
        fake.press_data(f"q.{TOKEN}.1", max(fake.messages))
        await fake.says("hello", number=2)
        await until(lambda: fake.is_all_acknowledged, "they were not acknowledged")
        assert not task.done()

    assert (len(intake.pressed), intake.texts) == (1, ["hello"])


# Edits


async def test_the_message_shows_who_decided_and_has_no_buttons_any_more(
    store: Store, fake: FakeTelegram
) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, fake, runner)
    async with world.running() as engine:
        await fake.says("go", number=1)
        await until_card(world)
        fake.presses("Approve")
        await world.until(lambda: len(fake.seen()) == 2, "it did not go on")
        await world.settle(engine)

    assert fake.sent("editMessageText") == [
        {
            "chat_id": "7",
            "message_id": str(next(iter(fake.offered))),
            "text": ("May the tool *send* be called?\n\n```\nto: Ann\n```\n\nApproved by Ada 7\\."),
            "parse_mode": "MarkdownV2",
        }
    ]
    assert fake.cards() == []
    assert fake.toasts == [("Approved by Ada 7.", False)]


class SentBefore(OneFileServices):
    """Delivery services that know the message of an earlier delivery."""

    def __init__(self, message_id: str) -> None:
        super().__init__(b"")
        self.known = message_id

    async def message_id(self, delivery_id: str) -> str | None:
        return self.known

    async def moved(self, old: str, new: str) -> None:
        """Nothing is stored."""


async def edit(fake: FakeTelegram, number: int, *, chat: str = "7", times: int = 1) -> None:
    """Let the message of a card show an outcome; where it cannot be edited, another says it."""
    adapter = fake.adapter()
    adapter.attach(SentBefore(str(number)))
    part = MessageEdit("delivery-0", "Denied by Ada.").part()
    for attempt in range(times):
        delivery = delivery_to(Channel("telegram", chat), "hm?\n\nDenied by Ada.", part)
        assert await adapter.send(delivery) == Sent(None) or times == 1, attempt
    await adapter.close()


async def test_an_edit_that_was_made_already_is_no_error(fake: FakeTelegram) -> None:
    await send(fake, "hm?")

    await edit(fake, max(fake.messages), times=2)

    assert fake.seen() == ["hm?\n\nDenied by Ada."]
    assert len(fake.sent("editMessageText")) == 2


async def test_where_a_message_cannot_be_edited_another_says_it(fake: FakeTelegram) -> None:
    await send(fake, "hm?")
    for _ in range(2):
        fake.refuse_with(400, "Bad Request: message can't be edited")

    await edit(fake, max(fake.messages))

    assert fake.seen() == ["hm?", "Denied by Ada."]


async def test_a_deleted_card_does_not_come_back(fake: FakeTelegram) -> None:
    await send(fake, "hm?")
    number = max(fake.messages)
    fake.forget()

    await edit(fake, number)

    assert fake.seen() == ["Denied by Ada."]


async def test_a_message_of_the_group_with_the_same_number_is_not_edited_after_a_move(
    fake: FakeTelegram,
) -> None:
    await send(fake, "hm?", chat="-100")
    number = max(fake.messages)
    fake.migrated["-100"] = -1009

    await edit(fake, number, chat="-100")
    adapter = fake.adapter()
    adapter.attach(SentBefore(str(number)))
    await adapter.send(delivery_to(Channel("telegram", "-100"), "Other news.", id="1"))
    part = MessageEdit("delivery-0", "Approved by Ada.").part()
    await adapter.send(delivery_to(Channel("telegram", "-100"), "Approved by Ada.", part, id="2"))
    await adapter.close()

    assert fake.seen("-100") == ["hm?"]
    assert fake.seen("-1009") == ["Denied by Ada.", "Other news.", "Approved by Ada."]


# Replies that are typed


def quoting(fake: FakeTelegram, text: str, *, number: int, chat: dict[str, Any] = DM) -> None:
    """Somebody replies to the last card."""
    card = {"message_id": max(fake.offered), "text": fake.cards()[-1]}
    replied = {**card, "date": 1, "from": BOT, "chat": chat}
    message = fake.message(text, number=number, chat=chat, reply_to_message=replied)
    fake.update("message", message)


@pytest.mark.parametrize(
    "mark",
    [
        {"forward_origin": {"type": "hidden_user", "date": 1, "sender_user_name": "Eve"}},
        {"forward_date": 1},
    ],
)
async def test_a_forwarded_yes_approves_nothing(
    store: Store, fake: FakeTelegram, mark: dict[str, Any]
) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, fake, runner)
    async with world.running():
        await fake.says("go", number=1)
        await until_card(world)
        fake.update("message", fake.message("yes", number=2, chat=DM, **mark))
        await world.until(lambda: "waits" in fake.seen()[-1], "it does not wait")
        assert (await the_question(world)).is_open
        assert runner.ran == []


async def test_a_reply_that_quotes_the_card_answers(store: Store, fake: FakeTelegram) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, fake, runner)
    async with world.running() as engine:
        await fake.says("go", number=1)
        await until_card(world)
        quoting(fake, "1", number=2)
        await world.until(lambda: len(runner.ran) == 1, "it was no answer")
        await world.settle(engine)


async def test_a_reply_that_quotes_a_yes_and_says_something_else_answers_nothing(
    store: Store, fake: FakeTelegram
) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, fake, runner)
    async with world.running():
        await fake.says("go", number=1)
        await until_card(world)
        replied = {"message_id": 1, "date": 1, "from": BOT, "text": "yes", "chat": DM}
        said = fake.message("what?", number=2, chat=DM, reply_to_message=replied)
        fake.update("message", said)
        await world.until(lambda: "waits" in fake.seen()[-1], "it does not wait")
        assert (await the_question(world)).is_open


async def test_a_reply_in_the_owners_own_chat_answers(store: Store, fake: FakeTelegram) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, fake, runner)
    async with world.running() as engine:
        # The owner's chat has a session of its own, in which no turn waits.
        await fake.says("plain", number=3)
        await world.until_seen("Nothing to ask.")
        await ask_in_home(world)
        quoting(fake, "1", number=2)
        await world.until(lambda: len(runner.ran) == 1, "it was no answer")
        await world.settle(engine)


async def test_in_a_group_the_owner_answers_and_others_do_not(
    store: Store, fake: FakeTelegram
) -> None:
    runner = ApprovalRunner()
    world: ChannelWorld = asking_world(store, fake, runner)
    mention = [{"type": "mention", "offset": 0, "length": 10}]
    async with world.running() as engine:
        asked = fake.message("@clerk_bot go", number=1, chat=GROUP, entities=mention)
        fake.update("message", asked)
        await until_card(world)
        fake.presses("Approve", person="8", id=1)
        await world.until(lambda: len(fake.told()) == 1, "they could approve it")
        quoting(fake, "1", number=2, chat=GROUP)
        await world.until(lambda: len(runner.ran) == 1, "it was no answer")
        await world.settle(engine)

    assert fake.cards() == []
