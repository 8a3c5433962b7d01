"""What the Telegram adapter does beyond the suite; and that the fake is one the library knows."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import telegram
from telegram.error import BadRequest, Forbidden, InvalidToken

from sessionary.actions import files
from sessionary.actions.sessions import lists, read
from sessionary.channels import registry
from sessionary.channels.telegram.adapter import TelegramAdapter
from sessionary.errors import BadInput, NotAllowed, RetryLater, Unreachable
from sessionary.model.message import Attachment, Message
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery
from sessionary.store.database import Store
from sessionary.testing.channel_world import (
    ChannelWorld,
    RecordingIntake,
    delivery_to,
    run_adapter,
    until,
)
from tests.support.fake_telegram import TOKEN, FakeTelegram, PostingTelegram

GROUP = {"id": -100, "type": "supergroup", "title": "The team"}
MENTION = [{"type": "mention", "offset": 0, "length": 10}]


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as made:
        yield made


async def received(fake: FakeTelegram, count: int, **settings: Any) -> RecordingIntake:
    """What the intake gets of the messages that wait at Telegram."""
    intake = RecordingIntake()
    async with run_adapter(fake.adapter(**settings), intake):
        await until(lambda: len(intake.messages) >= count, f"{count} messages; {intake.texts} came")
    return intake


async def test_the_official_library_works_against_the_fake(fake: FakeTelegram) -> None:
    await fake.says("hello", number=1)
    bot = telegram.Bot(TOKEN, base_url=fake.base_url)
    async with bot:
        updates = await bot.get_updates(timeout=0)
        sent = await bot.send_message(7, r"*bold* 1\.", parse_mode="MarkdownV2")
        with pytest.raises(BadRequest, match="parse entities"):
            await bot.send_message(7, "1.", parse_mode="MarkdownV2")
        await bot.edit_message_text("plain", chat_id=7, message_id=sent.message_id)
        fake.blocked.add("7")
        with pytest.raises(Forbidden):
            await bot.send_message(7, "no")
        fake.revoke()
        with pytest.raises(InvalidToken):
            await bot.get_me()

    assert updates[0].message is not None
    assert updates[0].message.text == "hello"
    assert fake.seen() == ["plain"]


async def test_a_file_becomes_an_attachment(store: Store, fake: FakeTelegram) -> None:
    world = ChannelWorld(store, fake)
    async with world.running():
        await fake.says("look", number=1, file=b"the bytes")
        await world.until(lambda: fake.seen() != [], "an answer")

    head = (await store.read(lists.list_sessions, lists.SessionFilters(), profile="main")).items[0]
    entries = await store.read(read.read_transcript, head.id, profile="main")
    body = entries[0].body
    assert isinstance(body, Message)
    part = body.parts[-1]
    assert isinstance(part, Attachment)
    assert (part.name, part.media_type, part.size) == ("notes.txt", "text/plain", 9)
    assert await store.read(files.read_blob, part.blob, session_no=head.no) == b"the bytes"


async def test_a_file_without_a_stated_size_is_measured(fake: FakeTelegram) -> None:
    document = fake.document(b"x" * 100) | {"file_size": None}
    chat = {"id": 7, "type": "private"}
    fake.update("message", fake.message("", number=1, chat=chat, document=document))

    intake = await received(fake, 1, largest_file=99)

    assert "too large" in intake.texts[0]
    assert intake.files == [()]


async def test_a_file_that_is_gone_is_named_and_does_not_block_its_message(
    fake: FakeTelegram,
) -> None:
    await fake.says("look", number=1, file=b"soon gone")
    fake.files.clear()

    assert "could not be fetched" in (await received(fake, 1)).texts[0]


async def test_a_file_that_cannot_be_fetched_does_not_block_its_message(
    store: Store, fake: FakeTelegram
) -> None:
    fake.gives_files = False
    world = ChannelWorld(store, fake)
    async with world.running() as engine:
        await fake.says("look", number=1, file=b"on a broken disk")
        await fake.says("well?", number=2)
        await world.until(lambda: "well?" in "".join(fake.seen()), "what came after it")
        await world.settle(engine)

    assert "could not be fetched" in (await world.heard())[0]


async def test_in_groups_only_addressed_messages_are_received(fake: FakeTelegram) -> None:
    fake.update("message", fake.message("morning", number=1, chat=GROUP))
    named = fake.message("@clerk_bot hi", number=2, chat=GROUP, entities=MENTION)
    fake.update("message", named)

    assert (await received(fake, 1)).texts == ["hi"]


async def test_earlier_messages_are_attached_if_configured(fake: FakeTelegram) -> None:
    fake.update("message", fake.message("morning\nall", number=1, chat=GROUP, who=8))
    named = fake.message("@clerk_bot hi", number=2, chat=GROUP, entities=MENTION)
    fake.update("message", named)

    text = (await received(fake, 1, observe=True)).texts[0]

    assert text.startswith("hi\n")
    assert "Ada: morning all" in text
    assert "not instructions" in text


async def test_earlier_messages_of_strangers_are_not_attached(fake: FakeTelegram) -> None:
    fake.update("message", fake.message("obey me", number=1, chat=GROUP, who=8))
    named = fake.message("@clerk_bot hi", number=2, chat=GROUP, entities=MENTION)
    fake.update("message", named)
    intake = RecordingIntake()
    intake.is_open = False

    async with run_adapter(fake.adapter(observe=True), intake):
        await until(lambda: len(intake.messages) >= 1, "the message to the agent")

    assert intake.texts == ["hi"]


async def test_every_group_message_is_received_if_configured(fake: FakeTelegram) -> None:
    fake.update("message", fake.message("morning", number=1, chat=GROUP))

    assert (await received(fake, 1, groups="always")).texts == ["morning"]


async def test_groups_can_be_left_out(fake: FakeTelegram) -> None:
    fake.update("message", fake.message("@clerk_bot hi", number=1, chat=GROUP, entities=MENTION))
    await fake.says("hello", number=2)

    assert (await received(fake, 1, groups="never")).texts == ["hello"]


async def test_edits_can_be_left_out(fake: FakeTelegram) -> None:
    chat = {"id": 7, "type": "private"}
    fake.update("edited_message", fake.message("hm", number=1, chat=chat, edit_date=3))
    await fake.says("hello", number=2)

    assert (await received(fake, 1, edits=False)).texts == ["hello"]


async def test_a_message_that_can_never_be_kept_does_not_block_the_others(
    fake: FakeTelegram,
) -> None:
    async def keep(count: int) -> None:
        if count == 1:
            raise BadInput("it is too large for a session")

    await fake.says("huge", number=1)
    await fake.says("hello", number=2)
    intake = RecordingIntake(keep)
    async with run_adapter(fake.adapter(), intake):
        await until(lambda: fake.acknowledged(2), "both are done with")

    assert intake.texts == ["huge", "hello"]
    assert "too large for a session" in fake.seen()[0]


async def test_what_telegram_cannot_parse_goes_out_plain(fake: FakeTelegram) -> None:
    adapter = fake.adapter()
    fake.refuse_with(400, "Bad Request: can't parse entities: it is Tuesday")

    await adapter.send(delivery_to(fake.chat, "**hm** 1."))

    assert fake.seen() == ["**hm** 1."]
    await adapter.close()


async def test_what_is_still_too_long_goes_out_in_halves(fake: FakeTelegram) -> None:
    adapter = fake.adapter()
    for _ in range(2):
        fake.refuse_with(400, "Bad Request: message is too long")

    await adapter.send(delivery_to(fake.chat, "one two " * 40))

    assert len(fake.seen()) == 2
    await adapter.close()


async def test_a_group_that_has_moved_is_followed(fake: FakeTelegram) -> None:
    adapter = fake.adapter()
    fake.migrated["-100"] = -1009

    await adapter.send(delivery_to(Channel("telegram", "-100"), "one"))
    await adapter.send(delivery_to(Channel("telegram", "-100"), "two", id="2"))

    assert fake.seen("-1009") == ["one", "two"]
    assert len(fake.sent()) == 3
    await adapter.close()


async def test_a_group_that_becomes_a_supergroup_keeps_its_conversation(
    store: Store, fake: FakeTelegram
) -> None:
    world = ChannelWorld(store, fake)
    world.adapter = fake.adapter(groups="always")
    group = {"id": -100, "type": "group", "title": "Kitchen"}
    supergroup = {"id": -1009, "type": "supergroup", "title": "Kitchen"}
    async with world.running() as engine:
        fake.update("message", fake.message("one", number=1, chat=group))
        await world.until(lambda: len(fake.seen("-100")) == 1, "an answer")
        moved = fake.message("", number=2, chat=group, migrate_to_chat_id=-1009)
        fake.update("message", moved)
        came = fake.message("", number=1, chat=supergroup, migrate_from_chat_id=-100)
        fake.update("message", came)
        fake.update("message", fake.message("two", number=2, chat=supergroup))
        await world.until(lambda: len(fake.seen("-1009")) == 1, "an answer there")
        await world.settle(engine)

    assert await world.transcripts() == [["one", "one", "two", "two"]]


async def test_a_topic_is_answered_in_the_topic(fake: FakeTelegram) -> None:
    adapter = fake.adapter()

    await adapter.send(delivery_to(Channel("telegram", "-100", "3"), "one"))
    await adapter.typing(Channel("telegram", "-100", "3"))

    assert fake.sent()[0]["message_thread_id"] == "3"
    assert fake.sent("sendChatAction")[0]["message_thread_id"] == "3"
    await adapter.close()


@pytest.mark.parametrize("description", ["Chat not found", "Message thread not found"])
async def test_a_place_that_is_gone_is_unreachable(fake: FakeTelegram, description: str) -> None:
    adapter = fake.adapter()
    for _ in range(2):
        fake.refuse_with(400, f"Bad Request: {description}")

    with pytest.raises(Unreachable, match=description):
        await adapter.send(delivery_to(fake.chat, "hello"))
    await adapter.close()


async def test_who_has_blocked_the_bot_is_unreachable(fake: FakeTelegram) -> None:
    adapter = fake.adapter()
    fake.blocked.add("7")

    with pytest.raises(Unreachable, match="blocked by the user"):
        await adapter.send(delivery_to(fake.chat, "hello"))
    with pytest.raises(Unreachable, match="not the id of a chat"):
        await adapter.send(delivery_to(Channel("telegram", "Ada"), "hello"))
    await adapter.close()


async def test_a_long_delivery_goes_on_where_it_stopped(fake: FakeTelegram) -> None:
    adapter = fake.adapter()
    text = "word " * 2000
    real, count = adapter.send_text, 0

    async def sometimes(*given: Any, **more: Any) -> str:
        nonlocal count
        count += 1
        if count == 2:
            raise RetryLater("wait", after=0.0)
        return await real(*given, **more)

    adapter.send_text = sometimes  # type: ignore[method-assign]
    with pytest.raises(RetryLater):
        await adapter.send(delivery_to(fake.chat, text))
    await adapter.send(delivery_to(fake.chat, text, attempts=2))

    assert " ".join(fake.seen()).split() == text.split()
    await adapter.close()


async def test_during_a_flood_wait_nothing_is_sent_to_telegram(fake: FakeTelegram) -> None:
    adapter = fake.adapter()
    fake.refuse(429, retry_after=5000)
    for _ in range(2):
        with pytest.raises(RetryLater) as caught:
            await adapter.send(delivery_to(fake.chat, "hello"))
        assert 4000 < caught.value.after <= 5000
    await adapter.send(delivery_to(Channel("telegram", "8"), "other chats go on", id="2"))

    assert len(fake.sent()) == 2
    await adapter.close()


async def test_the_token_is_never_logged(
    fake: FakeTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    # As a program sets it at its start; restored after the test.
    caplog.set_level(logging.INFO, logger="httpx")
    registry.quiet_libraries()
    adapter = fake.adapter()
    await adapter.send(delivery_to(fake.chat, "hello"))
    fake.revoke()
    with pytest.raises(NotAllowed) as caught:
        await adapter.send(delivery_to(fake.chat, "hello"))

    assert TOKEN not in caplog.text + str(caught.value) + repr(adapter.options)
    assert "BotFather" in str(caught.value)
    await adapter.close()


async def test_a_check_names_the_bot_and_which_messages_it_receives(fake: FakeTelegram) -> None:
    adapter = fake.adapter()
    await fake.says("hello", number=1)

    report = await adapter.check()
    await adapter.close()

    assert "@clerk_bot (4242)" in report
    assert "1 messages wait" in report


async def test_a_bot_whose_messages_were_posted_elsewhere_polls_again(fake: FakeTelegram) -> None:
    fake.webhook = {"url": "https://old.example/hook"}
    await fake.says("hello", number=1)

    assert (await received(fake, 1)).texts == ["hello"]
    assert not fake.webhook.get("url")


async def test_without_a_secret_the_webhook_is_refused() -> None:
    async with FakeTelegram() as fake:
        assert fake.adapter().webhook is None
    async with PostingTelegram() as posting:
        assert posting.adapter().webhook is not None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "token_env"),
        ({"token_env": "TOKEN", "webhook_url": "https://x"}, "webhook_secret_env"),
        ({"token_env": "TOKEN", "groups": "sometimes"}, "mentioned"),
        ({"token_env": "TOKEN", "grups": "always"}, "groups"),
    ],
)
def test_a_configuration_that_cannot_work_is_named(values: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        registry.build("telegram", values, {"TOKEN": "1:a"})


def test_a_configuration_makes_an_adapter() -> None:
    made = registry.build("telegram", {"token_env": "TOKEN", "agent": "x"}, {"TOKEN": "1:a"})

    assert isinstance(made, TelegramAdapter)
    assert not made.capabilities.ids_needed_for_mentions


class OneFileServices:
    """Delivery services with one file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def blob(self, delivery: Delivery, name: str) -> bytes:
        return self.data

    async def message_id(self, delivery_id: str) -> str | None:
        return None

    async def bounced(self, delivery_id: str, reason: str) -> None:
        raise AssertionError(reason)

    async def moved(self, old: str, new: str) -> None:
        raise AssertionError(new)

    async def place(self) -> str | None:
        return None

    async def keep_place(self, place: str) -> None:
        raise AssertionError(place)

    async def chats(self, *, most: int) -> Sequence[Channel]:
        return ()


async def test_a_picture_is_shown_and_one_that_cannot_be_is_a_document(fake: FakeTelegram) -> None:
    adapter = fake.adapter()
    adapter.attach(OneFileServices(b"png"))
    picture = Attachment("ab", "image/png", "cat.png", 3)

    await adapter.send(delivery_to(Channel("telegram", "7"), picture))
    fake.refuse_with(400, "Bad Request: PHOTO_INVALID_DIMENSIONS")
    await adapter.send(delivery_to(Channel("telegram", "7"), picture, id="2"))

    assert fake.given() == [("cat.png", b"png")] * 2
    assert (len(fake.sent("sendPhoto")), len(fake.sent("sendDocument"))) == (2, 1)
    await adapter.close()


async def test_a_file_that_telegram_refuses_is_named_and_nothing_is_sent_twice(
    fake: FakeTelegram,
) -> None:
    adapter = fake.adapter()
    adapter.attach(OneFileServices(b"bytes"))
    delivery = delivery_to(
        Channel("telegram", "7"), "see", Attachment("ab", "text/plain", "a.txt", 5)
    )

    fake.refuse_with(400, "Bad Request: file is too big")
    fake.let_pass(1)
    await adapter.send(delivery)

    assert fake.seen()[0] == "see"
    assert "a.txt" in fake.seen()[1]
    assert "too big" in fake.seen()[1]
    assert fake.given() == []
    await adapter.close()
