"""Questions on Discord: buttons, the interactions that they cause, and the message that shows who decided."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sessionary.channels import base
from sessionary.channels.discord import adapter as discord_adapter
from sessionary.channels.discord.adapter import DiscordAdapter
from sessionary.engine import intake
from sessionary.engine.ports import PressResult, Sent
from sessionary.errors import RetryLater
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
from tests.channels.test_discord import DiscordPlatform, point_at
from tests.engine.away import AwayStore
from tests.support.fake_discord import ADA, BOT, GENERAL, GUILD, THREAD
from tests.support.question_suite import (
    HIDDEN_ARGUMENTS,
    HIDDEN_SHOWN,
    ApprovalRunner,
    QuestionSuite,
    asking_world,
    the_question,
    until_card,
)

TOKEN = "0123456789abcdef0123456789abcdef"
LABELS = ("Approve", "Deny", "Always in this session", "Always for this person")
CARD = Card("q1", TOKEN, LABELS, "K7QD")
SECONDARY, SUCCESS, DANGER = 2, 3, 4
MESSAGE, DEFERRED = 4, 5


@pytest.fixture
async def platform(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DiscordPlatform]:
    monkeypatch.setattr(base, "STORE_WAIT_SECONDS", 0.01)
    async with DiscordPlatform() as fake:
        point_at(fake, monkeypatch)
        yield fake


class TestDiscordQuestions(QuestionSuite):
    """Everything that a channel with buttons does with a question."""

    @pytest.fixture
    async def platform(self, platform: DiscordPlatform) -> DiscordPlatform:
        return platform


# The card


async def send(
    platform: DiscordPlatform, text: str, card: Card = CARD, *, chat: str = GENERAL
) -> Sent:
    adapter = platform.adapter()
    try:
        return await adapter.send(delivery_to(Channel.parse(f"discord:{chat}"), text, card.part()))
    finally:
        await adapter.close()


async def test_a_card_is_one_message_with_a_button_for_each_option(
    platform: DiscordPlatform,
) -> None:
    sent = await send(platform, "May **send** be called?", chat=f"{GENERAL}:{THREAD}")

    (post,) = platform.posts
    body = post.body
    assert (post.channel, sent.platform_message_id) == (THREAD, post.id)
    assert body["content"] == "May **send** be called?"
    assert body["allowed_mentions"] == {"parse": []}
    styles = [SUCCESS, DANGER, SECONDARY, SECONDARY]
    (row,) = body["components"]
    assert row == {
        "type": 1,
        "components": [
            {
                "type": 2,
                "style": style,
                "label": label,
                "custom_id": f"q.{TOKEN}.{number}",
                "disabled": False,
            }
            for number, (style, label) in enumerate(zip(styles, LABELS, strict=True), 1)
        ],
    }


async def test_twenty_options_are_in_rows_of_five(platform: DiscordPlatform) -> None:
    options = tuple(f"option {number}" for number in range(20))

    await send(platform, "Which one?", Card("q1", TOKEN, options, "K7QD"))

    rows = platform.posts[0].body["components"]
    assert [len(row["components"]) for row in rows] == [5] * 4
    assert list(platform.offered.popitem()[1]) == list(options)


async def test_options_that_are_too_long_for_a_button_are_in_the_text(
    platform: DiscordPlatform,
) -> None:
    await send(platform, "Which one?", Card("q1", TOKEN, ("x" * 60, "a\u202eb"), "K7QD"))

    (post,) = platform.posts
    assert post.text.startswith(f"Which one?\n\n1. {'x' * 60}\n2. ")
    assert list(platform.offered[post.id]) == [f"1. {'x' * 36}…", r"2. a\u202eb"]


async def test_the_buttons_of_a_long_question_are_below_its_last_piece(
    platform: DiscordPlatform,
) -> None:
    await send(platform, "```\n" + "to: @everyone\n" * 300 + "```")

    *first, last = platform.posts
    assert len(first) == 2
    assert platform.with_buttons == [last.id]
    assert all(post.text.startswith("```\n") for post in platform.posts)
    assert all(post.text.endswith("```") for post in platform.posts)
    assert all(post.body["allowed_mentions"] == {"parse": []} for post in platform.posts)


async def test_a_question_without_options_says_how_to_answer(platform: DiscordPlatform) -> None:
    await send(platform, "What is your name?", Card("q1", TOKEN, (), "K7QD"))

    (post,) = platform.posts
    assert platform.offered == {}
    assert "write it after K7QD in any chat" in post.text
    assert post.body["allowed_mentions"] == {"parse": []}


async def test_arguments_can_neither_hide_nor_notify_nor_look_like_a_decision(
    store: Store, platform: DiscordPlatform
) -> None:
    arguments = {
        **HIDDEN_ARGUMENTS,
        "more": f"@everyone @here <@{ADA}> <@&{GUILD}> <https://x|y> [a](https://x) ||b||\n# c",
    }
    asked = NewQuestion(
        name="1", kind=QuestionKind.APPROVAL, text="", tool="a*b@everyone", arguments=arguments
    )
    world = asking_world(store, platform, ApprovalRunner(asked))
    async with world.running():
        await platform.says("go", number=1)
        await until_card(world)

    (post,) = platform.posts
    head, _, rest = post.text.partition("\n\n```\n")
    shown, _, end = rest.rpartition("\n```")
    assert (head, end) == ("May the tool **a b@everyone** be called?", "")
    assert shown.startswith(HIDDEN_SHOWN)
    assert shown.removeprefix(HIDDEN_SHOWN).split("\n") == [
        "",
        "more:",
        f"| @everyone @here <@{ADA}> <@&{GUILD}> <https://x|y> [a](https://x) ||b||",
        "| # c",
    ]
    # Nothing within the block ends it, so nothing within it is markup.
    assert "```" not in shown
    assert post.body["allowed_mentions"] == {"parse": []}


# Presses


class PressIntake(RecordingIntake):
    """Stores a press when it may, and then says something."""

    def __init__(self, said: str | Exception = "Approved by Ada.") -> None:
        super().__init__()
        self.said = said
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def press(self, source: Source, data: str, /) -> PressResult:
        self.pressed.append((source, data))
        await self.may_go_on.wait()
        if isinstance(self.said, Exception):
            raise self.said
        return PressResult(self.said, is_changed=True)


async def press(platform: DiscordPlatform, intake: RecordingIntake, **given: Any) -> None:
    """Let the first button of the last card be pressed, and wait until the person is told."""
    async with run_adapter(platform.adapter(), intake):
        await platform.bot_is_connected()
        platform.presses("Approve", **given)
        await until(lambda: platform.is_all_acknowledged, "nobody was told")


@pytest.mark.parametrize(
    ("chat", "kind"),
    [
        (GENERAL, ChatType.CHANNEL),
        (f"{GENERAL}:{THREAD}", ChatType.THREAD),
        (DiscordPlatform.direct(ADA), ChatType.DM),
    ],
)
async def test_a_press_comes_from_the_same_person_and_channel_as_a_message(
    platform: DiscordPlatform, chat: str, kind: ChatType
) -> None:
    await send(platform, "hm?", chat=chat)
    intake = RecordingIntake()
    channel = Channel.parse(f"discord:{chat}")
    is_direct = kind is ChatType.DM
    async with run_adapter(platform.adapter(), intake):
        await platform.bot_is_connected()
        room = None if is_direct else channel.thread_id or channel.chat_id
        await platform.writes(f"<@{BOT}> hello", channel=room)
        platform.presses("Approve")
        await until(lambda: platform.is_all_acknowledged, "nobody was told")
        await until(lambda: len(intake.messages) == 1, "no message came")

    ((source, data),), (written,) = intake.pressed, intake.sources
    assert data == f"q.{TOKEN}.1"
    assert source.channel == written.channel == channel
    assert source.person == written.person
    assert source.chat_type == written.chat_type == kind
    assert source.extra == written.extra


async def test_the_person_is_told_at_once_what_became_of_it_and_nobody_else(
    platform: DiscordPlatform,
) -> None:
    await send(platform, "hm?")

    await press(platform, PressIntake())

    assert platform.whispers == ["Approved by Ada."]
    assert list(platform.responses.values()) == [[MESSAGE]]
    assert len(platform.posts) == 1


async def test_a_press_is_durable_before_the_person_is_told(platform: DiscordPlatform) -> None:
    await send(platform, "hm?")
    intake = PressIntake()
    intake.may_go_on.clear()
    async with run_adapter(platform.adapter(), intake):
        await platform.bot_is_connected()
        platform.presses("Approve")
        await until(lambda: len(intake.pressed) == 1, "the press did not come")
        assert platform.whispers == []
        assert not platform.is_all_acknowledged
        intake.may_go_on.set()
        await until(lambda: platform.is_all_acknowledged, "nobody was told")

    assert platform.whispers == ["Approved by Ada."]


async def test_a_press_that_is_not_stored_within_discords_time_is_promised_and_told_later(
    platform: DiscordPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord_adapter, "DEFER_SECONDS", 0.0)
    await send(platform, "hm?")
    intake = PressIntake()
    intake.may_go_on.clear()
    async with run_adapter(platform.adapter(), intake):
        await platform.bot_is_connected()
        platform.presses("Approve")
        await until(lambda: list(platform.responses.values()) == [[DEFERRED]], "no promise came")
        assert platform.whispers == []
        intake.may_go_on.set()
        await until(lambda: platform.is_all_acknowledged, "the promise was not kept")

    assert platform.whispers == ["Approved by Ada."]
    assert list(platform.responses.values()) == [[DEFERRED, MESSAGE]]


async def test_a_press_while_the_store_is_unavailable_is_promised_and_counts_later(
    store: Store, platform: DiscordPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord_adapter, "DEFER_SECONDS", 0.0)
    away = AwayStore(store)
    away.away = frozenset({intake.press})
    runner = ApprovalRunner()
    world = asking_world(cast(Store, away), platform, runner)
    async with world.running() as engine:
        await platform.says("go", number=1)
        await until_card(world)
        away.is_away = True
        platform.presses("Approve")
        await until(lambda: list(platform.responses.values()) == [[DEFERRED]], "no promise came")
        assert platform.whispers == []
        away.is_away = False
        await world.until(lambda: len(runner.ran) == 1, "the press was lost")
        await world.until(lambda: platform.is_all_acknowledged, "nobody was told")
        await world.settle(engine)

    assert platform.whispers == ["Approved by Ada."]


async def test_a_press_outlives_the_connection_on_which_it_came(
    platform: DiscordPlatform,
) -> None:
    busy = PressIntake(RetryLater("the store is busy", after=0.001))
    await send(platform, "hm?")
    adapter = platform.adapter()
    running = asyncio.ensure_future(adapter.run(busy))
    await platform.bot_is_connected()
    platform.presses("Approve")
    await until(lambda: len(busy.pressed) > 1, "it was not tried")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    ready = PressIntake()
    async with run_adapter(adapter, ready):
        await until(lambda: len(ready.pressed) == 1, "it was forgotten")

    assert ready.pressed[0] == busy.pressed[0]
    assert platform.whispers == []


async def test_a_press_that_discord_offers_again_after_it_was_told_is_only_logged(
    platform: DiscordPlatform, caplog: pytest.LogCaptureFixture
) -> None:
    await send(platform, "hm?")
    intake = PressIntake()
    async with run_adapter(platform.adapter(), intake) as task:
        await platform.bot_is_connected()
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                platform.presses("Approve", id=1)
            await until(lambda: "is not shown" in caplog.text, "nothing was logged")
        await platform.writes("hello")
        await until(lambda: intake.texts == ["hello"], "it does not go on")
        assert not task.done()

    assert platform.whispers == ["Approved by Ada."]
    assert len(intake.pressed) == 2


# Edits


async def test_the_message_shows_who_decided_and_has_no_buttons_any_more(
    store: Store, platform: DiscordPlatform
) -> None:
    world = asking_world(store, platform, ApprovalRunner())
    async with world.running() as engine:
        await platform.says("go", number=1)
        await until_card(world)
        (card,) = platform.offered
        platform.presses("Approve")
        await world.until(lambda: len(platform.seen()) == 2, "it did not go on")
        await world.settle(engine)

    assert platform.cards() == []
    (body,) = platform.edit_bodies
    text = "May the tool **send** be called?\n\n```\nto: Ann\n```\n\nApproved by Ada."
    assert platform.edits == [(card, text)]
    assert (body["content"], body["components"]) == (text, [])
    assert body["allowed_mentions"] == {"parse": []}


class SentBefore:
    """Delivery services that know the message of an earlier delivery."""

    def __init__(self, message_id: str) -> None:
        self.known = message_id

    async def message_id(self, delivery_id: str) -> str | None:
        """Return the message."""
        return self.known


async def edit(adapter: DiscordAdapter, message_id: str, outcome: str) -> Sent:
    adapter.attach(cast(Any, SentBefore(message_id)))
    part = MessageEdit("delivery-0", outcome).part()
    try:
        return await adapter.send(
            delivery_to(Channel("discord", GENERAL), f"hm?\n\n{outcome}", part, id="delivery-2")
        )
    finally:
        await adapter.close()


async def test_a_deleted_card_is_replaced_by_a_message_that_notifies_nobody(
    platform: DiscordPlatform,
) -> None:
    await send(platform, "hm?")
    (card,) = platform.posts
    platform.forget()

    await edit(platform.adapter(), card.id, f"Denied by <@{ADA}>.")

    (post,) = platform.posts
    assert (post.text, post.body["allowed_mentions"]) == (f"Denied by <@{ADA}>.", {"parse": []})


async def test_an_edit_that_discord_refuses_for_now_is_made_later(
    platform: DiscordPlatform,
) -> None:
    await send(platform, "hm?")
    (card,) = platform.posts
    platform.refuse(429, retry_after=9)

    with pytest.raises(RetryLater) as caught:
        await edit(platform.adapter(), card.id, "Denied by Ada.")
    assert await edit(platform.adapter(), card.id, "Denied by Ada.") == Sent(None)

    assert caught.value.after == 9
    assert platform.texts(GENERAL) == ["hm?\n\nDenied by Ada."]


# Forwarded messages


async def test_a_forwarded_yes_approves_nothing(store: Store, platform: DiscordPlatform) -> None:
    runner = ApprovalRunner()
    world = asking_world(store, platform, runner)
    async with world.running():
        await platform.says("go", number=1)
        await until_card(world)
        await platform.writes("", **forwarding("yes", platform))
        await world.until(lambda: "waits" in platform.seen()[-1], "it does not wait")
        assert (await the_question(world)).is_open

    assert runner.ran == []


async def test_a_forwarded_message_arrives_with_its_file_and_is_no_command(
    platform: DiscordPlatform,
) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await platform.bot_is_connected()
        file = platform.attach("notes.txt", b"see")
        await platform.writes("", **forwarding("/new", platform, attachments=[file]))
        await until(lambda: len(intake.messages) == 1, "it did not come")

    (message,) = intake.messages
    assert message.extra == {"forwarded": True}
    assert message.text == "(A forwarded message:)\n/new"
    assert intake.files == [(b"see",)]


def forwarding(text: str, platform: DiscordPlatform, **more: Any) -> dict[str, Any]:
    """The fields of a message that forwards another one."""
    original = platform._message("5", GENERAL, text, {}) | more
    link = {"type": 1, "message_id": "5", "channel_id": GENERAL, "guild_id": GUILD}
    return {
        "flags": 1 << 14,
        "message_reference": link,
        "message_snapshots": [{"message": original}],
        "attachments": [],
    }


async def test_in_a_server_the_owner_decides_and_others_do_not(
    store: Store, platform: DiscordPlatform
) -> None:
    runner = ApprovalRunner()
    world: ChannelWorld = asking_world(store, platform, runner)
    async with world.running() as engine:
        await platform.bot_is_connected()
        await platform.writes(f"<@{BOT}> go", channel=THREAD)
        await until_card(world)
        platform.presses("Approve", person="8", id=1)
        await world.until(lambda: len(platform.told()) == 1, "they could approve it")
        platform.presses("Approve", id=2)
        await world.until(lambda: len(runner.ran) == 1, "it was no answer")
        await world.settle(engine)

    assert platform.cards() == []
    assert platform.texts(THREAD)[-1] == "Result: Approved by Ada."
