"""What is particular to Signal beyond its texts: files, groups, and a daemon that forgets."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessionary.actions import outbox
from sessionary.actions.sessions import lists, read
from sessionary.channels import base, registry
from sessionary.channels.signal import inbound
from sessionary.channels.signal.inbound import SignalOptions
from sessionary.clock import Moment
from sessionary.errors import (
    BadInput,
    NotAllowed,
    RetryLater,
    SessionaryError,
    StoreUnavailable,
    Unreachable,
)
from sessionary.model.message import Attachment, Message, Text
from sessionary.model.source import Channel, Source
from sessionary.store.database import Store, Tx
from sessionary.testing.channel_world import (
    TIMEOUT_SECONDS,
    ChannelWorld,
    RecordingIntake,
    delivery_to,
    run_adapter,
    until,
)
from tests.support.fake_signal import (
    ACCOUNT,
    GROUP,
    OUR_MENTION,
    FakeSignal,
    data_message,
    envelope,
)


@pytest.fixture(params=["tcp", "http"])
async def platform(request: pytest.FixtureRequest) -> AsyncIterator[FakeSignal]:
    async with FakeSignal(request.param) as fake:
        yield fake


# What comes in


async def test_a_deleted_message_is_mentioned_with_the_next_one(platform: FakeSignal) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        gone = data_message(None, number=2, remoteDelete={"timestamp": 1_700_000_000_001})
        platform.tell(envelope(dataMessage=gone))
        await platform.says("hello", number=3)
        await until(lambda: len(intake.messages) == 1, "the message did not come")

    assert "Ada: (took back 1700000000001)" in intake.texts[0]


async def test_group_messages_to_others_are_attached_if_configured(platform: FakeSignal) -> None:
    platform.options = SignalOptions(observe=True)
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        for number, text in enumerate(["lunch?", "/whoami", "\ufffc where?"], 1):
            mentions = [OUR_MENTION] if text.startswith("\ufffc") else []
            data = data_message(text, number=number, groupInfo=GROUP, mentions=mentions)
            platform.tell(envelope(dataMessage=data))
        await until(lambda: len(intake.messages) == 2, "the messages did not come")

    # A command takes no buffered messages along; they wait for the next message.
    assert intake.texts[0] == "/whoami"
    assert intake.texts[1].startswith("where?\n(Said here before, not to you")
    assert "lunch?" in intake.texts[1]


# Files


async def test_a_file_comes_in_with_its_bytes(platform: FakeSignal) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await platform.says("look", number=1, file=b"%PDF-1.7")
        await until(lambda: len(intake.messages) == 1, "the file did not come")

    name = hashlib.sha256(b"%PDF-1.7").hexdigest()
    assert intake.messages[0].parts == (
        Text("look"),
        Attachment(name, "application/pdf", "a.pdf", 8),
    )
    assert list(intake.files[0]) == [b"%PDF-1.7"]


async def test_a_file_that_is_gone_is_mentioned(platform: FakeSignal) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        gone = {"id": "gone", "contentType": "image/jpeg", "size": 3}
        platform.tell(envelope(dataMessage=data_message("x", number=1, attachments=[gone])))
        await until(lambda: len(intake.messages) == 1, "the message did not come")

    assert (
        "“image/jpeg” could not be fetched and was left out: signal-cli: Could not find attachment"
        in intake.texts[0]
    )
    assert list(intake.files[0]) == []


async def test_a_long_text_that_comes_as_a_file_is_read(platform: FakeSignal) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        long = platform.keep("слово ".encode() * 900, inbound.LONG_TEXT, "long.txt")
        platform.tell(envelope(dataMessage=data_message("", number=1, attachments=[long])))
        await until(lambda: len(intake.messages) == 1, "the message did not come")

    assert intake.texts == ["слово " * 900]


async def test_a_file_of_a_delivery_is_sent_without_a_common_disk(
    store: Store, platform: FakeSignal
) -> None:
    world = ChannelWorld(store, platform)
    async with world.running() as engine:
        await platform.says("keep this", number=1, file=b"sums")
        await world.until(lambda: len(platform.sent) == 1, "an answer")
        await world.settle(engine)
        await store.write(_send_back, world)
        await world.until(lambda: len(platform.sent) == 2, "the file was not sent")

    data = base64.b64encode(b"sums").decode()
    uri = f"data:application/pdf;filename=a.pdf;base64,{data}"
    assert platform.sent[1]["attachments"] == [uri]


# What goes out


@pytest.mark.parametrize(
    ("code", "message", "result", "kind", "words"),
    [
        (-1, "Failed", {"type": "UNREGISTERED_FAILURE"}, Unreachable, "not registered"),
        (-4, "Failed", {"type": "IDENTITY_FAILURE"}, Unreachable, "safety number has changed"),
        (-4, "due to untrusted identities", None, Unreachable, "signal-cli trust"),
        (-1, "Invalid group id", None, Unreachable, "Invalid group id"),
        (-5, "x", {"type": "RATE_LIMIT_FAILURE", "token": "t"}, RetryLater, "captcha"),
        (-5, "due to rate limiting", None, RetryLater, "rate limiting"),
        (-1, "Failed", {"type": "NETWORK_FAILURE"}, RetryLater, "cannot be reached"),
        (-3, "[401] Authorization failed!", None, NotAllowed, "register or link"),
        (-3, "timeout (SocketTimeoutException)", None, SessionaryError, "timeout"),
    ],
)
async def test_an_error_of_signal_cli_says_what_to_do(
    platform: FakeSignal,
    code: int,
    message: str,
    result: dict[str, Any] | None,
    kind: type[SessionaryError],
    words: str,
) -> None:
    adapter = platform.adapter()
    platform.refuse_with(code, message, result)

    with pytest.raises(kind) as caught:
        await adapter.send(delivery_to(platform.chat, "hello"))

    assert type(caught.value) is kind
    assert words in str(caught.value)
    await adapter.close()


async def test_a_group_is_written_to_by_its_internal_id(platform: FakeSignal) -> None:
    adapter = platform.adapter()
    group = Channel("signal", f"group:{GROUP['groupId']}")
    await adapter.typing(group)
    sent = await adapter.send(delivery_to(group, "hello"))
    await adapter.close()

    assert platform.sent == [{"groupId": GROUP["groupId"], "message": "hello"}]
    assert platform.typing == [{"groupId": GROUP["groupId"]}]
    assert sent.platform_message_id == "1700000000001"


async def test_many_calls_at_once_each_get_their_own_answer(platform: FakeSignal) -> None:
    adapter = platform.adapter()
    deliveries = [delivery_to(platform.chat, f"word-{n}", id=f"d{n}") for n in range(20)]
    sent = await asyncio.gather(*(adapter.send(each) for each in deliveries))
    await adapter.close()

    times = {f"word-{n}": each.platform_message_id for n, each in enumerate(sent)}
    assert [times[text] for text in platform.seen()] == [
        str(1_700_000_000_001 + n) for n in range(20)
    ]


# The daemon


async def test_a_message_is_retried_while_the_store_is_busy(platform: FakeSignal) -> None:
    intake = RecordingIntake(_busy_twice)
    async with run_adapter(platform.adapter(), intake):
        await platform.says("hello", number=1)
        await platform.says("there", number=2)
        await until(lambda: intake.texts[-1:] == ["there"], "the messages did not come")

    assert intake.texts == ["hello", "hello", "hello", "there"]


class BusyIntake(RecordingIntake):
    """An intake whose store is unavailable when access is checked."""

    async def admits(self, source: Source, /) -> bool:
        await super().admits(source)
        if len(self.asked) < 3:
            raise StoreUnavailable("the database is restarted")
        return True


async def test_a_message_is_retried_while_access_cannot_be_checked(
    platform: FakeSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "STORE_WAIT_SECONDS", 0.01)
    intake = BusyIntake()
    async with run_adapter(platform.adapter(), intake):
        await platform.says("look", number=1, file=b"%PDF-1.7")
        await platform.says("there", number=2)
        await until(lambda: intake.texts[-1:] == ["there"], "the messages did not come")

    assert intake.texts == ["look", "there"]
    assert list(intake.files[0]) == [b"%PDF-1.7"]


async def test_a_message_being_handled_is_stored_before_a_planned_stop(
    platform: FakeSignal,
) -> None:
    """F2: the daemon does not tell of it again."""
    may_go_on = asyncio.Event()
    intake = RecordingIntake(lambda _: asyncio.wait_for(may_go_on.wait(), TIMEOUT_SECONDS))
    async with run_adapter(platform.adapter(), intake) as task:
        await platform.says("hello", number=1)
        await until(lambda: intake.texts == ["hello"], "the message did not come")
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        may_go_on.set()
        await asyncio.gather(task, return_exceptions=True)

    assert intake.kept == 1


async def test_a_deletion_by_a_stranger_is_ignored(platform: FakeSignal) -> None:
    """P16: neither their name nor what they did reaches the agent."""
    intake = RecordingIntake()
    intake.is_open = False
    async with run_adapter(platform.adapter(), intake):
        deleted = {"timestamp": 1_700_000_000_001}
        gone = data_message(None, number=2, groupInfo=GROUP, remoteDelete=deleted)
        platform.tell(envelope("666", dataMessage=gone))
        data = data_message("\ufffc hi", number=3, groupInfo=GROUP, mentions=[OUR_MENTION])
        platform.tell(envelope(dataMessage=data))
        await until(lambda: len(intake.messages) == 1, "the message did not come")

    assert intake.texts == ["hi"]


async def test_a_connection_that_is_cut_is_made_again(
    platform: FakeSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await platform.says("one", number=1)
        await until(lambda: intake.texts == ["one"], "the first did not come")
        await platform.cut()
        await platform.says("two", number=2)
        await until(lambda: intake.texts[-1:] == ["two"], "the second did not come")

    assert sorted(set(intake.texts)) == ["one", "two"]
    assert platform.listeners <= 1


async def test_after_a_cut_connection_the_last_stored_event_id_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeSignal("http") as platform:
        intake = RecordingIntake(_wait_at_second)
        async with run_adapter(platform.adapter(), intake):
            await platform.says("one", number=1)
            await until(lambda: intake.texts == ["one"], "the first did not come")
            await platform.says("two", number=2)
            await until(lambda: intake.texts == ["one", "two"], "the second did not come")
            await platform.cut()
            await until(lambda: len(platform.last_event_ids) == 2, "it did not connect again")

    assert platform.last_event_ids == [None, "2"]


async def test_an_account_that_signal_forgot_stops_the_channel(
    store: Store, platform: FakeSignal
) -> None:
    world = ChannelWorld(store, platform)
    async with world.running() as engine:
        await platform.says("hello", number=1)
        await world.until_seen("hello")
        platform.revoke()
        await world.post("still there?")
        state = "channel signal"
        await world.until(lambda: engine.states[state].startswith("stopped"), "it goes on")

    assert "not registered" in engine.states[state]


async def test_an_event_without_a_sender_is_ignored(platform: FakeSignal) -> None:
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        platform.tell({"dataMessage": {"message": "from nobody", "timestamp": 1}})
        await platform.says("hello", number=1)
        await until(lambda: len(intake.messages) == 1, "the message did not come")

    assert intake.texts == ["hello"]


# Its configuration


async def test_the_check_names_the_account(platform: FakeSignal) -> None:
    given = {"account": ACCOUNT, "address": platform.address}
    adapter = registry.build("signal", given, {})

    assert await adapter.check() == f"Signal knows this account as {ACCOUNT} (signal-cli 0.13.24)."
    await adapter.close()


async def test_the_check_of_a_daemon_that_is_away_says_so() -> None:
    adapter = registry.build("signal", {"account": ACCOUNT, "address": "tcp://127.0.0.1:1"}, {})

    with pytest.raises(RetryLater, match="daemon is not there"):
        await adapter.check()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "account"),
        ({"account": "0151"}, "account"),
        ({"account": ACCOUNT, "address": "127.0.0.1:8080"}, "address"),
        ({"account": ACCOUNT, "address": "tcp://:99999999"}, "address"),
    ],
)
def test_a_setting_that_is_wrong_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        registry.build("signal", given, {})


async def _busy_twice(count: int) -> None:
    if count <= 2:
        raise RetryLater("the store is busy", after=0.01)


async def _wait_at_second(count: int) -> None:
    if count == 2:
        await asyncio.sleep(0.02)


def _send_back(tx: Tx, world: ChannelWorld) -> None:
    """Send the first file that was received."""
    head = lists.list_sessions(tx, lists.SessionFilters(), profile="main").items[0]
    body = read.read_transcript(tx, head.id, profile="main")[0].body
    assert isinstance(body, Message)
    moment = Moment(world.clock.now(), world.ids)
    to = world.platform.chat
    outbox.enqueue(tx, to, body.parts[1:], profile="main", moment=moment, session_no=head.no)
