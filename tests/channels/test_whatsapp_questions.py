"""Questions on WhatsApp: reply buttons, a list, or numbers; and what a press does."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessionary.channels.base import ReceivedMessage
from sessionary.channels.whatsapp import inbound
from sessionary.channels.whatsapp.adapter import buttons_of
from sessionary.channels.whatsapp.inbound import ButtonReply
from sessionary.engine.ports import PressResult, Sent
from sessionary.errors import RetryLater, Unreachable
from sessionary.model.question import Card, NewQuestion, QuestionKind
from sessionary.model.source import Channel
from sessionary.store.database import Store
from sessionary.testing.channel_world import RecordingIntake, delivery_to, run_adapter, until
from tests.support.fake_whatsapp import KNOWN, NUMBER, NUMBER_ID, FakeWhatsApp, payload
from tests.support.question_suite import (
    HIDDEN_ARGUMENTS,
    HIDDEN_SHOWN,
    OTHER,
    ApprovalRunner,
    QuestionSuite,
    asking_world,
    the_question,
    until_card,
    until_delivered,
)

TOKEN = "0123456789abcdef0123456789abcdef"
LABELS = ("Approve", "Deny", "Always in this session", "Always for this person")
CARD = Card("q1", TOKEN, LABELS, "K7QD")
GROUP = "Y2FwaV9ncm91cA"


@pytest.fixture
async def platform() -> AsyncIterator[FakeWhatsApp]:
    async with FakeWhatsApp() as fake:
        yield fake


class TestWhatsAppQuestions(QuestionSuite):
    # A stranger gets no answer at all.
    tells_strangers = False


# The card


async def send(
    platform: FakeWhatsApp, text: str, card: Card = CARD, *, chat: str = KNOWN, attempts: int = 1
) -> Sent:
    adapter = platform.made or platform.adapter()
    channel = Channel("whatsapp", chat)
    return await adapter.send(delivery_to(channel, text, card.part(), attempts=attempts))


def button(number: int) -> str:
    return f"q.{TOKEN}.{number}"


async def test_an_approval_is_a_list_of_its_options(platform: FakeWhatsApp) -> None:
    sent = await send(platform, "May **send** be called?")

    assert platform.posts == [
        {
            "messaging_product": "whatsapp",
            "biz_opaque_callback_data": "delivery-1",
            "recipient_type": "individual",
            "to": KNOWN,
            "type": "interactive",
            "interactive": {
                "type": "list",
                "body": {"text": "May *send* be called?"},
                "action": {
                    "button": "Answer",
                    "sections": [
                        {
                            "title": "Answers",
                            "rows": [
                                {"id": button(number), "title": label}
                                for number, label in enumerate(LABELS, 1)
                            ],
                        }
                    ],
                },
            },
        }
    ]
    assert sent.platform_message_id == "wamid.out-1"


async def test_a_few_short_options_are_buttons(platform: FakeWhatsApp) -> None:
    await send(platform, "When?", Card("q1", TOKEN, ("Today", "To\u200bmorrow", "Never"), "K7QD"))

    assert platform.posts[0]["interactive"] == {
        "type": "button",
        "body": {"text": "When?"},
        "action": {
            "buttons": [
                {"type": "reply", "reply": {"id": button(1), "title": "Today"}},
                {"type": "reply", "reply": {"id": button(2), "title": r"To\u200bmorrow"}},
                {"type": "reply", "reply": {"id": button(3), "title": "Never"}},
            ]
        },
    }


async def test_a_row_that_is_too_short_for_its_option_describes_it(platform: FakeWhatsApp) -> None:
    options = ("To Ann and everybody else in the team", "To nobody")
    await send(platform, "To whom?", Card("q1", TOKEN, options, "K7QD"))

    (section,) = platform.posts[0]["interactive"]["action"]["sections"]
    assert section["rows"] == [
        {"id": button(1), "title": "1. To Ann and everybody…", "description": options[0]},
        {"id": button(2), "title": "2. To nobody", "description": options[1]},
    ]


@pytest.mark.parametrize(
    "options",
    [
        tuple(f"option {number}" for number in range(11)),
        ("x" * 73, "y"),
        ("same", "same "),
    ],
)
async def test_options_that_fit_neither_are_numbers_in_the_text(
    platform: FakeWhatsApp, options: tuple[str, ...]
) -> None:
    card = Card("q1", TOKEN, options, "K7QD")

    await send(platform, "Which one?", card)

    assert buttons_of(card) is None
    assert platform.seen() == [f"Which one?\n\n{card.lines()}"]


async def test_a_group_gets_numbers(platform: FakeWhatsApp) -> None:
    await send(platform, "May it run?", chat=GROUP)

    (post,) = platform.posts
    assert (post["recipient_type"], post["type"]) == ("group", "text")
    assert post["text"]["body"] == f"May it run?\n\n{CARD.lines()}"


ABOVE = "Please answer the question above."


@pytest.mark.parametrize(
    ("length", "messages", "is_above"),
    [(1024, 1, False), (1025, 2, True), (5000, 2, False), (8000, 3, True)],
)
async def test_the_buttons_are_below_the_end_of_a_long_question(
    platform: FakeWhatsApp, length: int, messages: int, is_above: bool
) -> None:
    text = "word " * (length // 5) + "x" * (length % 5)

    sent = await send(platform, text)

    assert [post["type"] for post in platform.posts] == ["text"] * (messages - 1) + ["interactive"]
    assert sent.platform_message_id == f"wamid.out-{messages}"
    assert (platform.cards() == [ABOVE]) is is_above
    assert " ".join(each for each in platform.seen() if each != ABOVE).split() == text.split()


async def test_buttons_that_are_sent_later_follow_a_text_that_is_not_sent_again(
    platform: FakeWhatsApp,
) -> None:
    text = "word " * 1600
    platform.adapter()
    await send(platform, text)
    whole = platform.seen()
    platform.posts.clear()
    for _ in whole[:-1]:
        platform.let_pass()
    platform.refuse(429)
    with pytest.raises(RetryLater):
        await send(platform, text)

    sent = await send(platform, text, attempts=2)

    assert platform.seen() == whole
    assert sent.platform_message_id == f"wamid.out-{len(whole)}"


async def test_where_whatsapp_accepts_no_buttons_the_question_is_a_text(
    platform: FakeWhatsApp,
) -> None:
    platform.adapter()
    platform.refuse_with(131051)

    sent = await send(platform, "May it run?")

    assert platform.seen() == [f"May it run?\n\n{CARD.lines()}"]
    assert sent.platform_message_id == "wamid.out-1"


async def test_after_24_hours_a_question_is_not_delivered(platform: FakeWhatsApp) -> None:
    platform.adapter()
    platform.refuse_with(131047, times=2)

    with pytest.raises(Unreachable, match="24 hours"):
        await send(platform, "May it run?")
    assert platform.posts == []


async def test_arguments_cannot_pretend_to_be_anything_else(
    store: Store, platform: FakeWhatsApp
) -> None:
    asked = NewQuestion(
        name="1", kind=QuestionKind.APPROVAL, text="", tool="se*`nd", arguments=HIDDEN_ARGUMENTS
    )
    world = asking_world(store, platform, ApprovalRunner(asked))
    async with world.running() as engine:
        await platform.says("go", number=1)
        await until_card(world)
        await world.settle(engine)

    (post,) = platform.posts
    body = f"May the tool *se nd* be called?\n\n```\n{HIDDEN_SHOWN}\n```"
    assert post["interactive"]["body"]["text"] == body
    (section,) = post["interactive"]["action"]["sections"]
    assert [row["title"] for row in section["rows"]] == list(LABELS)


# Presses


def reply(form: str, id: str = button(1), **more: Any) -> dict[str, Any]:
    about = {"type": form, form: {"id": id, "title": "Approve"}}
    base = {"from": KNOWN, "id": "wamid.1", "timestamp": "1", "type": "interactive"}
    return {**base, "interactive": about, **more}


@pytest.mark.parametrize("form", ["button_reply", "list_reply"])
def test_a_press_says_who_pressed_and_where(form: str) -> None:
    (event,) = inbound.events(payload(reply(form)), NUMBER_ID)

    assert isinstance(event, ButtonReply)
    assert event.data == button(1)
    assert event.source.channel == Channel("whatsapp", KNOWN)
    assert (event.source.user_id, event.source.user_name) == (KNOWN, f"Ada {KNOWN}")


@pytest.mark.parametrize(
    "message",
    [
        reply("button_reply", id="another-program"),
        reply("list_reply", id="q.1"),
        reply("nfm_reply"),
        reply("button_reply", context={"forwarded": True}),
        reply("list_reply", context={"frequently_forwarded": True}),
    ],
)
def test_anything_else_is_a_message_that_answers_nothing(message: dict[str, Any]) -> None:
    (event,) = inbound.events(payload(message), NUMBER_ID)

    assert isinstance(event, ReceivedMessage)
    # The engine takes only a text that stands alone as an answer.
    assert len(event.parts) == 2


class PressIntake(RecordingIntake):
    """An intake that says that each press changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def press(self, source: Any, data: str, /) -> PressResult:
        await super().press(source, data)
        await self.may_go_on.wait()
        return PressResult("Denied by Ada. Nothing was changed.")


async def test_a_press_is_durable_before_it_is_acknowledged(platform: FakeWhatsApp) -> None:
    intake = PressIntake()
    intake.may_go_on.clear()
    async with run_adapter(platform.adapter(), intake):
        await send(platform, "May it run?")
        platform.presses("Approve")
        await until(lambda: len(intake.pressed) == 1, "the press did not come")
        assert not platform.is_all_acknowledged
        intake.may_go_on.set()
        await until(lambda: platform.is_all_acknowledged, "it was not acknowledged")


async def test_a_press_that_is_posted_again_is_answered_once(platform: FakeWhatsApp) -> None:
    intake = PressIntake()
    async with run_adapter(platform.adapter(), intake):
        await send(platform, "May it run?")
        for _ in range(2):
            platform.presses("Approve")
            await until(lambda: platform.is_all_acknowledged, "it was not acknowledged")

    assert len(intake.pressed) == 2
    assert platform.posts[1:] == [
        {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": KNOWN,
            "type": "text",
            "text": {"body": "Denied by Ada. Nothing was changed.", "preview_url": False},
        }
    ]


async def test_a_person_who_cannot_be_told_does_not_block_what_comes_after(
    platform: FakeWhatsApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with run_adapter(platform.adapter(), PressIntake()):
        await send(platform, "May it run?")
        platform.refuse_with(131026)
        platform.presses("Approve")
        await until(lambda: platform.is_all_acknowledged, "it was not acknowledged")

    assert platform.told() == []
    assert "could not be told" in caplog.text


async def test_typing_is_shown_under_a_press(platform: FakeWhatsApp) -> None:
    adapter = platform.adapter()
    async with run_adapter(adapter, RecordingIntake()):
        await send(platform, "May it run?")
        platform.presses("Approve", id=5)
        await until(lambda: platform.is_all_acknowledged, "it was not acknowledged")
        await adapter.typing(platform.chat)

    assert platform.typing == ["wamid.press-5"]


async def test_a_post_with_two_presses_and_a_message_is_handled_in_order(
    store: Store, platform: FakeWhatsApp
) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, platform, runner)
    async with world.running() as engine:
        await platform.says("go", number=1)
        await until_card(world)
        presses = [platform.pressed(label, id=id) for id, label in ((1, "Deny"), (2, "Approve"))]
        posted = payload(*presses, platform.message("plain", number=9))
        assert await platform.post(posted) == 200
        await world.until(lambda: platform.seen()[-1] == "Nothing to ask.", "no answer")
        await world.settle(engine)

    assert runner.ran == []
    assert platform.told() == [f"Denied by Ada {KNOWN}. Nothing was changed."]


async def test_whoever_did_not_decide_is_told_who_did(store: Store, platform: FakeWhatsApp) -> None:
    """A message of WhatsApp cannot be edited: where somebody else has answered, another message says it."""
    runner = ApprovalRunner()
    world = asking_world(store, platform, runner, owners=frozenset({KNOWN, OTHER}))
    async with world.running() as engine:
        await platform.says("go", number=1)
        await until_card(world)
        platform.presses("Approve", person=OTHER)
        await world.until(lambda: len(platform.seen()) == 3, "they were not told")
        await world.settle(engine)

    outcome = f"Approved by Ada {OTHER}."
    assert sorted(platform.seen()[1:]) == [outcome, f"Result: {outcome}"]
    assert platform.told() == []


# Replies that are typed


@pytest.mark.parametrize("mark", ["forwarded", "frequently_forwarded"])
async def test_a_forwarded_yes_approves_nothing(
    store: Store, platform: FakeWhatsApp, mark: str
) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, platform, runner)
    async with world.running():
        await platform.says("go", number=1)
        await until_card(world)
        message = platform.message("yes", number=2) | {"context": {mark: True}}
        assert await platform.post(payload(message)) == 200
        await world.until(lambda: "waits" in platform.seen()[-1], "it does not wait")
        assert (await the_question(world)).is_open
        assert runner.ran == []


async def test_a_reply_to_the_card_answers(store: Store, platform: FakeWhatsApp) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, platform, runner)
    async with world.running() as engine:
        await platform.says("go", number=1)
        await until_card(world)
        context = {"from": NUMBER, "id": "wamid.out-1"}
        message = platform.message("1", number=2) | {"context": context}
        assert await platform.post(payload(message)) == 200
        await world.until(lambda: len(runner.ran) == 1, "it was no answer")
        await world.settle(engine)


async def test_in_a_group_the_owner_answers_with_a_number(
    store: Store, platform: FakeWhatsApp
) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, platform, runner)
    async with world.running() as engine:
        asked = platform.message(f"@{NUMBER} go", number=1) | {"group_id": GROUP}
        await world.until(lambda: _is_open(platform), "it is not open")
        assert await platform.post(payload(asked)) == 200
        await world.until(lambda: len(platform.posts) == 1, "no card was sent")
        await until_delivered(world)
        for number, person in enumerate((OTHER, KNOWN), 2):
            about = {"group_id": GROUP, "context": {"from": NUMBER, "id": "wamid.out-1"}}
            message = platform.message("1", number=number, person=person) | about
            assert await platform.post(payload(message)) == 200
        await world.until(lambda: len(runner.ran) == 1, "it was no answer")
        await world.settle(engine)

    (answered,) = runner.ran
    assert answered.by is not None
    assert answered.by.id == KNOWN


def _is_open(platform: FakeWhatsApp) -> bool:
    return platform.made is not None and platform.made._receive is not None
