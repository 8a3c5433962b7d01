"""Slack's library against our fake, then our adapter against the same fake, both ways in."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from sessionary.actions.files import read_blob
from sessionary.actions.sessions import read
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from sessionary.channels import registry
from sessionary.channels.slack import adapter as slack_adapter
from sessionary.channels.slack import inbound
from sessionary.channels.slack.adapter import SlackAdapter, SlackKeys
from sessionary.channels.slack.inbound import SlackOptions
from sessionary.config.secret import Secret
from sessionary.errors import BadInput, NotAllowed, RetryLater, Unreachable
from sessionary.model.message import Attachment, Message
from sessionary.model.source import Channel
from sessionary.store.database import Store
from sessionary.testing.adapter_suite import AdapterSuite, SignedSuite, StreamingSuite, giving
from sessionary.testing.channel_world import (
    TIMEOUT_SECONDS,
    ChannelWorld,
    RecordingIntake,
    delivery_to,
    run_adapter,
    until,
)
from tests.support.fake_slack import (
    ADA,
    APP_TOKEN,
    ARCHIVED,
    BOT,
    GENERAL,
    SIGNING_SECRET,
    TOKEN,
    FakeSlack,
)

PLACE = Channel("slack", GENERAL)
# A connection without an answer for four times as long is given up, and what came on it comes again.
PING_SECONDS = 15.0


class SlackPlatform(FakeSlack):
    """The fake as the suite wants to see a platform; messages come by the socket."""

    name = "slack"
    known = ADA
    chat = Channel("slack", FakeSlack.direct(ADA))
    acknowledges = True
    largest_file: int | None = 1000
    largest_sent = 1000

    def adapter(self, **rules: Any) -> SlackAdapter:
        keys = SlackKeys(Secret(TOKEN), app_token=Secret(APP_TOKEN))
        return SlackAdapter(
            keys,
            SlackOptions(largest_file=1000, largest_sent=1000, pause_seconds=0.1, **rules),
            api=self.api,
            ping_seconds=PING_SECONDS,
        )

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        files = {} if file is None else {"files": [self.attach("file.txt", file)]}
        await self.writes(text, number=number, user=person or ADA, **files)

    def acknowledged(self, number: int) -> bool:
        return self.acknowledged_ts(self.ts(number))

    def seen(self) -> list[str]:
        return self.texts(self.chat.chat_id)

    def given(self) -> list[tuple[str, bytes]]:
        return [(name, data) for chat, name, data in self.gifts if chat == self.chat.chat_id]

    def fetched(self) -> int:
        return self.downloads


class PostingPlatform(SlackPlatform):
    """The same, but messages are posted to the bot's address, signed."""

    def adapter(self, **rules: Any) -> SlackAdapter:
        keys = SlackKeys(Secret(TOKEN), signing_secret=Secret(SIGNING_SECRET))
        adapter = SlackAdapter(
            keys,
            SlackOptions(largest_file=1000, largest_sent=1000, pause_seconds=0.1, **rules),
            api=self.api,
            ping_seconds=PING_SECONDS,
        )
        self.webhook_handler = adapter.webhook
        return adapter

    async def forges(self, text: str, *, number: int) -> int:
        return await self._posted(text, number, secret="another", age=0)

    async def replays_late(self, text: str, *, number: int) -> int | None:
        return await self._posted(text, number, secret=SIGNING_SECRET, age=301)

    async def _posted(self, text: str, number: int, *, secret: str, age: float) -> int:
        event = {"type": "message", "channel": self.chat.chat_id, "channel_type": "im"}
        event |= {"user": ADA, "text": text, "ts": self.ts(number)}
        assert self.webhook_handler is not None
        status = await self.posts_to(
            self.webhook_handler, self.event(event), age=age, secret=secret
        )
        assert isinstance(status, int)
        return status


@pytest.fixture
async def platform(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlackPlatform]:
    prepare(monkeypatch)
    async with SlackPlatform() as fake:
        yield fake


@pytest.fixture
async def posting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostingPlatform]:
    prepare(monkeypatch)
    async with PostingPlatform() as fake:
        fake.by_post = True
        yield fake


@pytest.fixture
def world(store: Store, platform: SlackPlatform) -> ChannelWorld:
    return ChannelWorld(store, platform)


class GrowingSlack(SlackPlatform):
    """The same, with answers that grow."""

    def adapter(self, **rules: Any) -> SlackAdapter:
        return super().adapter(stream=True, show_seconds=0.01, **rules)


class TestSlackGrows(StreamingSuite):
    """Everything that an adapter keeps to that lets answers grow."""

    @pytest.fixture
    async def platform(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GrowingSlack]:
        prepare(monkeypatch)
        async with GrowingSlack() as fake:
            yield fake


class TestSlackBySocket(AdapterSuite):
    """Everything that every adapter keeps to."""


class TestSlackByPost(AdapterSuite, SignedSuite):
    """The same, and what those keep to who are posted to."""

    @pytest.fixture
    async def platform(self, posting: PostingPlatform) -> PostingPlatform:
        return posting


async def test_the_official_library_works_against_the_fake_slack(platform: SlackPlatform) -> None:
    received: asyncio.Queue[SocketModeRequest] = asyncio.Queue()
    web = AsyncWebClient(TOKEN, base_url=platform.api)
    socket = SocketModeClient(APP_TOKEN, web_client=web, ping_interval=PING_SECONDS)

    async def listen(_: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        received.put_nowait(request)
        answer = SocketModeResponse(envelope_id=request.envelope_id)
        await socket.send_socket_mode_response(answer)

    socket.socket_mode_request_listeners.append(listen)
    await socket.connect()  # type: ignore[no-untyped-call]
    await platform.says("hello", number=1)
    request = await asyncio.wait_for(received.get(), TIMEOUT_SECONDS)
    await web.chat_postMessage(channel=request.payload["event"]["channel"], text="re: hello")
    await until(lambda: platform.acknowledged(1), "an acknowledgement")
    await socket.close()  # type: ignore[no-untyped-call]

    assert (await web.auth_test())["user_id"] == BOT
    assert platform.seen() == ["re: hello"]
    with pytest.raises(SlackApiError, match="invalid_auth"):
        await AsyncWebClient("another", base_url=platform.api).auth_test()


async def test_in_a_channel_only_messages_to_the_agent_are_received(
    platform: SlackPlatform,
) -> None:
    listener = RecordingIntake()
    async with run_adapter(platform.adapter(), listener):
        await platform.writes("among ourselves", channel=GENERAL)
        ts = await platform.writes(f"<@{BOT}> hello", channel=GENERAL)
        await platform.writes("and?", channel=GENERAL, thread_ts="5.0", parent_user_id=BOT)
        await platform.writes("a bot", channel=GENERAL, bot_id="B9")
        await platform.writes("secretly")
        await until(lambda: len(listener.messages) == 3, "three messages")

    assert listener.texts == ["hello", "and?", "secretly"]
    question, within, direct = listener.sources
    assert question.channel == Channel("slack", GENERAL, ts)
    assert (question.chat_type, question.chat_name) == ("channel", "#general")
    assert (question.chat_topic, question.user_name) == ("All sorts", "Ada")
    assert within.thread_id == "5.0"
    assert (direct.chat_type, direct.thread_id) == ("dm", None)


async def test_a_question_in_a_channel_is_answered_in_its_thread(
    platform: SlackPlatform, world: ChannelWorld
) -> None:
    async with world.running() as engine:
        ts = await platform.writes(f"<@{BOT}> hello", channel=GENERAL)
        await world.until(lambda: platform.texts(GENERAL) == ["[Ada] hello"], "an answer")
        await world.settle(engine)

    assert platform.posts[0].body["thread_ts"] == ts


async def test_a_mention_that_comes_as_two_events_is_answered_once(
    platform: SlackPlatform, world: ChannelWorld
) -> None:
    async with world.running() as engine:
        for kind in ("app_mention", "message"):
            await platform.writes(f"<@{BOT}> hello", number=7, channel=GENERAL, type=kind)
        # Messages that wait together are answered together: the next one comes after the answer.
        await world.until(lambda: len(platform.posts) >= 1, "the first answer")
        await platform.writes(f"<@{BOT}> bye", number=8, channel=GENERAL)
        await world.until(lambda: len(platform.posts) >= 2, "two answers")
        await world.settle(engine)

    assert platform.texts(GENERAL) == ["[Ada] hello", "[Ada] bye"]


async def test_messages_to_others_are_attached_to_the_next_message_to_the_agent(
    platform: SlackPlatform,
) -> None:
    listener = RecordingIntake()
    async with run_adapter(platform.adapter(observe=True), listener):
        await platform.writes("lunch at noon?", channel=GENERAL)
        await platform.writes(f"<@{BOT}> when is lunch?", channel=GENERAL)
        await until(lambda: len(listener.messages) == 1, "a message")

    assert listener.messages[0].text.startswith("when is lunch?\n(Said here before, not to you")
    assert "> Ada: lunch at noon?" in listener.messages[0].text


@pytest.mark.parametrize(
    ("command", "text"), [("/new", "holidays"), ("/sessionary", "new holidays")]
)
async def test_a_slash_command_is_one_of_ours(
    platform: SlackPlatform, world: ChannelWorld, command: str, text: str
) -> None:
    async with world.running() as engine:
        await platform.gives_command(command, text)
        await world.until(lambda: bool(platform.posts), "an answer")
        await world.settle(engine)

    assert "called holidays" in platform.texts(GENERAL)[0]


async def test_a_connection_that_slack_closes_is_made_again(platform: SlackPlatform) -> None:
    listener = RecordingIntake()
    async with run_adapter(platform.adapter(), listener):
        await platform.says("before", number=1)
        await until(lambda: platform.acknowledged(1), "an acknowledgement")
        await platform.hang_up()
        await platform.says("after", number=2)
        await until(lambda: platform.acknowledged(2), "another")

    assert listener.texts == ["before", "after"]


async def test_a_slack_that_disconnects_at_once_is_not_asked_again_without_pause(
    platform: SlackPlatform,
) -> None:
    """It lets an app connect a few times a minute; one that asks more often is blocked."""
    platform.hangs_up_at_once = True
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await asyncio.sleep(1.0)
        asked = platform.asked.count("apps.connections.open")
        platform.hangs_up_at_once = False
        await platform.says("hello", number=1)
        await until(lambda: intake.texts == ["hello"], "the message did not come")

    assert asked <= 8


async def test_a_connection_that_slack_wants_renewed_is_renewed(platform: SlackPlatform) -> None:
    listener = RecordingIntake()
    async with run_adapter(platform.adapter(), listener):
        await until(lambda: bool(platform.sockets), "a bot at the socket")
        (first,) = platform.sockets
        await platform.asks_to_reconnect()
        await until(lambda: bool(platform.sockets - {first}), "another connection")
        await platform.says("after", number=1)
        await until(lambda: platform.acknowledged(1), "an acknowledgement")

    assert set(listener.texts) == {"after"}


async def test_a_file_comes_in_with_its_message(
    platform: SlackPlatform, world: ChannelWorld
) -> None:
    async with world.running() as engine:
        await platform.says("look", number=1, file=b"at this")
        await world.until(lambda: bool(platform.seen()), "an answer")
        await world.settle(engine)

    (head,) = (await world.store.read(list_sessions, SessionFilters(), profile="main")).items
    entries = await world.store.read(read.read_transcript, head.id, profile="main")
    body = entries[0].body
    assert isinstance(body, Message)
    (file,) = (part for part in body.parts if isinstance(part, Attachment))
    assert (file.name, file.size) == ("file.txt", 7)
    assert await world.store.read(read_blob, file.blob, session_no=head.no) == b"at this"


async def test_our_token_goes_to_slack_and_nowhere_else(platform: SlackPlatform) -> None:
    listener = RecordingIntake()
    elsewhere = {"name": "trap", "size": 3, "url_private": "http://127.0.0.1:9/trap"}
    async with run_adapter(platform.adapter(), listener):
        await platform.writes("look", files=[elsewhere])
        await until(lambda: len(listener.messages) == 1, "a message")

    assert "could not be fetched" in listener.messages[0].text


async def test_blocks_that_slack_refuses_become_plain_text(platform: SlackPlatform) -> None:
    adapter = platform.adapter()
    platform.refuses_blocks = True

    await adapter.send(delivery_to(PLACE, "**bold** & <more>"))
    await adapter.close()

    assert platform.texts(GENERAL) == ["**bold** & <more>"]
    assert platform.posts[0].body["mrkdwn"] in (False, 0, "0")


async def test_a_long_text_that_is_refused_half_way_goes_on_there(platform: SlackPlatform) -> None:
    adapter = platform.adapter()
    sending = delivery_to(PLACE, "```\n" + "x = 1\n" * 1000 + "```")
    platform.let_pass(1)
    platform.refuse(429, retry_after=9)

    with pytest.raises(RetryLater) as caught:
        await adapter.send(sending)
    assert caught.value.after == 9
    await adapter.send(sending)
    await adapter.close()

    pieces = platform.texts(GENERAL)
    assert len(pieces) == 3
    assert all(each.startswith("```\n") and each.endswith("```") for each in pieces)
    assert sum(each.count("x = 1") for each in pieces) == 1000


@pytest.mark.parametrize("chat", [ARCHIVED, "C0NOWHERE"])
async def test_a_place_that_cannot_be_written_to_is_unreachable(
    platform: SlackPlatform, chat: str
) -> None:
    adapter = platform.adapter()

    with pytest.raises(Unreachable, match=chat):
        await adapter.send(delivery_to(Channel("slack", chat), "hello"))
    await adapter.close()


async def test_a_token_that_is_revoked_while_we_listen_stops_the_channel(
    platform: SlackPlatform,
) -> None:
    adapter = platform.adapter()
    running = asyncio.ensure_future(adapter.run(RecordingIntake()))
    await until(lambda: bool(platform.sockets), "a bot at the socket")

    platform.revoke()
    await platform.hang_up()

    with pytest.raises(NotAllowed, match="invalid_auth"):
        await asyncio.wait_for(running, TIMEOUT_SECONDS)
    await adapter.close()


async def test_slack_gets_its_challenge_back(posting: PostingPlatform) -> None:
    posting.adapter()
    assert posting.webhook_handler is not None
    challenge = {"type": "url_verification", "challenge": "3eZbrw1a"}

    assert (
        await posting.posts_to(posting.webhook_handler, challenge, secret=SIGNING_SECRET)
        == "3eZbrw1a"
    )
    assert await posting.posts_to(posting.webhook_handler, challenge, secret="another") == 401


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"{" * 100_000])
async def test_rubbish_that_is_signed_is_refused(posting: PostingPlatform, body: bytes) -> None:
    adapter = posting.adapter()

    assert await _posted(adapter, body) == 400


async def test_a_message_before_the_adapter_runs_is_refused_and_posted_again(
    posting: PostingPlatform,
) -> None:
    adapter = posting.adapter()
    event = posting.event({"type": "message", "ts": "1.0", "user": ADA, "channel": "D1"})

    assert await _posted(adapter, json.dumps(event).encode()) == 503


async def test_a_message_can_be_edited(platform: SlackPlatform) -> None:
    adapter = platform.adapter()
    sent = await adapter.send(delivery_to(PLACE, "hel"))
    assert sent.platform_message_id is not None

    await adapter.edit_text(PLACE, sent.platform_message_id, "hello")
    await adapter.typing(PLACE)
    await adapter.close()

    assert platform.edits == [(sent.platform_message_id, "hello")]


async def test_the_bot_says_who_it_is(platform: SlackPlatform) -> None:
    adapter = platform.adapter()

    found = await adapter.check()
    await adapter.close()

    assert found == f"Slack knows this bot as sessionary (id {BOT}) in The Team."


@pytest.mark.parametrize("more", [{}, {"app_token_env": "T", "signing_secret_env": "T"}])
def test_one_way_in_must_be_chosen(more: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="not both"):
        registry.build("slack", {"token_env": "T"} | more, {"T": "secret"})


def test_without_a_signing_secret_the_webhook_is_refused() -> None:
    socket = {"token_env": "T", "app_token_env": "T"}
    events = {"token_env": "T", "signing_secret_env": "T"}

    assert registry.build("slack", socket, {"T": "secret"}).webhook is None
    assert registry.build("slack", events, {"T": "secret"}).webhook is not None


async def _posted(adapter: SlackAdapter, body: bytes) -> int | str:
    at = str(int(adapter._now()))
    headers = {
        "X-Slack-Request-Timestamp": at,
        "X-Slack-Signature": inbound.sign(SIGNING_SECRET, at, body),
    }
    assert adapter.webhook is not None
    return await adapter.webhook(headers, body)


def prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine it takes longer than one second to ask for a name.
    monkeypatch.setattr(slack_adapter, "LOOKUP_SECONDS", TIMEOUT_SECONDS)
    # The library would send even loopback to a proxy.
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


async def test_without_the_scope_for_files_the_words_come_and_the_file_is_named(
    store: Store, platform: SlackPlatform
) -> None:
    platform.may_give = False
    world = ChannelWorld(store, platform, agent_for=giving(b"bytes"))
    async with world.running() as engine:
        await platform.says("hello", number=1)
        await world.until(lambda: len(platform.seen()) == 2, "two messages")
        await world.settle(engine)

    assert platform.seen()[0] == "Here it is."
    assert "files:write" in platform.seen()[1]
