"""What is particular to Signal beyond its words: files, groups, and a daemon that forgets."""

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


async def test_a_message_taken_back_is_told_with_the_next_one(platform: FakeSignal) -> None:
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        gone = data_message(None, number=2, remoteDelete={"timestamp": 1_700_000_000_001})
        platform.tell(envelope(dataMessage=gone))
        await platform.says("hello", number=3)
        await until(lambda: len(door.said) == 1, "the message did not come")

    assert "Ada: (took back 1700000000001)" in door.texts[0]


async def test_what_is_said_in_a_group_meanwhile_is_told_when_wished(platform: FakeSignal) -> None:
    platform.options = SignalOptions(observe=True)
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        for number, text in enumerate(["lunch?", "/whoami", "\ufffc where?"], 1):
            mentions = [OUR_MENTION] if text.startswith("\ufffc") else []
            data = data_message(text, number=number, groupInfo=GROUP, mentions=mentions)
            platform.tell(envelope(dataMessage=data))
        await until(lambda: len(door.said) == 2, "the messages did not come")

    # A command takes nothing along: what was said before it waits for the next message.
    assert door.texts[0] == "/whoami"
    assert door.texts[1].startswith("where?\n(Said here before, not to you")
    assert "lunch?" in door.texts[1]


# Files


async def test_a_file_comes_in_with_its_bytes(platform: FakeSignal) -> None:
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        await platform.says("look", number=1, file=b"%PDF-1.7")
        await until(lambda: len(door.said) == 1, "the file did not come")

    name = hashlib.sha256(b"%PDF-1.7").hexdigest()
    assert door.said[0].parts == (
        Text("look"),
        Attachment(name, "application/pdf", "a.pdf", 8),
    )
    assert list(door.files[0]) == [b"%PDF-1.7"]


async def test_a_file_that_is_gone_is_spoken_of(platform: FakeSignal) -> None:
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        gone = {"id": "gone", "contentType": "image/jpeg", "size": 3}
        platform.tell(envelope(dataMessage=data_message("x", number=1, attachments=[gone])))
        await until(lambda: len(door.said) == 1, "the message did not come")

    assert (
        "“image/jpeg” could not be fetched and was left out: signal-cli: Could not find attachment"
        in door.texts[0]
    )
    assert list(door.files[0]) == []


async def test_a_long_text_that_comes_as_a_file_is_read(platform: FakeSignal) -> None:
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        long = platform.keep("слово ".encode() * 900, inbound.LONG_TEXT, "long.txt")
        platform.tell(envelope(dataMessage=data_message("", number=1, attachments=[long])))
        await until(lambda: len(door.said) == 1, "the message did not come")

    assert door.texts == ["слово " * 900]


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


async def test_a_message_waits_in_hand_while_the_store_is_busy(platform: FakeSignal) -> None:
    door = RecordingIntake(_busy_twice)
    async with run_adapter(platform.adapter(), door):
        await platform.says("hello", number=1)
        await platform.says("there", number=2)
        await until(lambda: door.texts[-1:] == ["there"], "the messages did not come")

    assert door.texts == ["hello", "hello", "hello", "there"]


class BusyDoor(RecordingIntake):
    """A house whose store is away when it is asked who may enter."""

    async def admits(self, source: Source, /) -> bool:
        await super().admits(source)
        if len(self.asked) < 3:
            raise StoreUnavailable("the database is restarted")
        return True


async def test_a_message_waits_in_hand_while_nobody_knows_who_may_enter(
    platform: FakeSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "STORE_WAIT_SECONDS", 0.01)
    door = BusyDoor()
    async with run_adapter(platform.adapter(), door):
        await platform.says("look", number=1, file=b"%PDF-1.7")
        await platform.says("there", number=2)
        await until(lambda: door.texts[-1:] == ["there"], "the messages did not come")

    assert door.texts == ["look", "there"]
    assert list(door.files[0]) == [b"%PDF-1.7"]


async def test_a_message_in_hand_is_stored_before_a_planned_stop(platform: FakeSignal) -> None:
    """F2: the daemon does not tell of it again."""
    may_go_on = asyncio.Event()
    door = RecordingIntake(lambda _: asyncio.wait_for(may_go_on.wait(), 20))
    async with run_adapter(platform.adapter(), door) as task:
        await platform.says("hello", number=1)
        await until(lambda: door.texts == ["hello"], "the message did not come")
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        may_go_on.set()
        await asyncio.gather(task, return_exceptions=True)

    assert door.kept == 1


async def test_a_stranger_who_takes_something_back_is_not_heard(platform: FakeSignal) -> None:
    """P16: neither their name nor what they did reaches the agent."""
    door = RecordingIntake()
    door.is_open = False
    async with run_adapter(platform.adapter(), door):
        deleted = {"timestamp": 1_700_000_000_001}
        gone = data_message(None, number=2, groupInfo=GROUP, remoteDelete=deleted)
        platform.tell(envelope("666", dataMessage=gone))
        data = data_message("\ufffc hi", number=3, groupInfo=GROUP, mentions=[OUR_MENTION])
        platform.tell(envelope(dataMessage=data))
        await until(lambda: len(door.said) == 1, "the message did not come")

    assert door.texts == ["hi"]


async def test_a_connection_that_is_cut_is_made_again(
    platform: FakeSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        await platform.says("one", number=1)
        await until(lambda: door.texts == ["one"], "the first did not come")
        await platform.cut()
        await platform.says("two", number=2)
        await until(lambda: door.texts[-1:] == ["two"], "the second did not come")

    assert sorted(set(door.texts)) == ["one", "two"]
    assert platform.listeners <= 1


async def test_after_a_cut_the_daemon_is_told_what_was_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeSignal("http") as platform:
        door = RecordingIntake(_wait_at_second)
        async with run_adapter(platform.adapter(), door):
            await platform.says("one", number=1)
            await until(lambda: door.texts == ["one"], "the first did not come")
            await platform.says("two", number=2)
            await until(lambda: door.texts == ["one", "two"], "the second did not come")
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


async def test_nobody_forges_a_line_that_is_no_message(platform: FakeSignal) -> None:
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        platform.tell({"dataMessage": {"message": "from nobody", "timestamp": 1}})
        await platform.says("hello", number=1)
        await until(lambda: len(door.said) == 1, "the message did not come")

    assert door.texts == ["hello"]


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
    """The house sends the file that came in first."""
    head = lists.list_sessions(tx, lists.SessionFilters(), profile="main").items[0]
    said = read.read_transcript(tx, head.id, profile="main")[0].body
    assert isinstance(said, Message)
    moment = Moment(world.clock.now(), world.ids)
    to = world.platform.chat
    outbox.enqueue(tx, to, said.parts[1:], profile="main", moment=moment, session_no=head.no)
