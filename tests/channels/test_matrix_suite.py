"""The adapter of Matrix against a real homeserver."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from sessionary.errors import BadInput, NotAllowed, RetryLater, Unreachable
from sessionary.model.message import Attachment
from sessionary.model.source import Channel
from sessionary.testing.adapter_suite import AdapterSuite
from sessionary.testing.channel_world import RecordingIntake, delivery_to, run_adapter, until
from tests.support.homeserver import MatrixPlatform
from tests.support.synapse import Synapse


@pytest.fixture
async def platform(synapse: Synapse) -> AsyncIterator[MatrixPlatform]:
    async with MatrixPlatform(synapse) as homeserver:
        yield homeserver


class TestMatrix(AdapterSuite):
    """Everything that an adapter keeps to."""


async def test_an_invitation_is_accepted_only_from_those_who_may(platform: MatrixPlatform) -> None:
    _, stranger = platform.synapse.register(f"eve-{platform.bot[5:13]}")
    platform.put(
        {"msgtype": "m.text", "body": "psst"},
        token=stranger,
        room=platform.make_room(stranger, join=False),
    )
    room = platform.make_room(platform.ada, join=False)
    platform.put({"msgtype": "m.text", "body": "said before you came"}, room=room)
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await until(lambda: bool(intake.texts), "the invitation was not accepted")

    assert intake.texts == ["said before you came"]
    assert intake.sources[0].chat_id == room


async def test_a_thread_is_answered_in_the_thread(platform: MatrixPlatform) -> None:
    root = platform.put({"msgtype": "m.text", "body": "root"})
    relation = {"rel_type": "m.thread", "event_id": root}
    platform.put({"msgtype": "m.text", "body": "below", "m.relates_to": relation})
    intake = RecordingIntake()
    async with run_adapter(adapter := platform.adapter(), intake):
        await until(lambda: len(intake.texts) == 2, "two messages")
        channel_of_thread = intake.sources[1].channel
        assert channel_of_thread is not None
        await adapter.send(delivery_to(channel_of_thread, "answer", id="in-thread"))

    assert channel_of_thread.thread_id == root
    assert platform.written()[-1]["m.relates_to"]["event_id"] == root


async def test_an_edit_is_received_as_a_new_message(platform: MatrixPlatform) -> None:
    event = platform.put({"msgtype": "m.text", "body": "teh"})
    replaced = {
        "msgtype": "m.text",
        "body": "* the",
        "m.new_content": {"msgtype": "m.text", "body": "the"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": event},
    }
    platform.put(replaced)
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await until(lambda: len(intake.texts) == 2, "two messages")

    assert "corrected" in intake.texts[1]
    assert intake.texts[1].endswith("the")


async def test_in_a_room_of_many_only_what_is_addressed_is_answered(
    platform: MatrixPlatform,
) -> None:
    _, bob = platform.synapse.register(f"bob-{platform.bot[5:13]}")
    room = platform.make_room(platform.ada, preset="public_chat", is_direct=False, name="Kitchen")
    platform.join(room, bob)
    platform.put({"msgtype": "m.text", "body": "tea is ready"}, room=room, token=bob)
    mention = {"m.mentions": {"user_ids": [platform.bot]}}
    platform.put({"msgtype": "m.text", "body": "what is ready?", **mention}, room=room)
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(observe=True), intake):
        await until(lambda: bool(intake.texts), "the mention")

    assert len(intake.texts) == 1
    assert intake.texts[0].startswith("what is ready?")
    assert "tea is ready" in intake.texts[0]
    assert (intake.sources[0].chat_type, intake.sources[0].chat_name) == ("group", "Kitchen")


async def test_a_picture_comes_in_with_its_bytes(platform: MatrixPlatform) -> None:
    await platform.says("a cat", number=1, file=b"meow")
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await until(lambda: bool(intake.messages), "the picture")

    _, picture = intake.messages[0].parts
    assert intake.messages[0].text.startswith("a cat")
    assert isinstance(picture, Attachment)
    assert (picture.name, picture.size, intake.files[0]) == ("picture.png", 4, (b"meow",))


async def test_an_encrypted_room_gets_one_clear_notice(platform: MatrixPlatform) -> None:
    secret = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    room = platform.make_room(platform.ada, initial_state=[secret])
    for _ in range(2):
        platform.put_encrypted(room)
    async with run_adapter(platform.adapter(), RecordingIntake()):
        await until(lambda: bool(platform.written(room)), "the notice")
    platform.put_encrypted(room)
    await platform.says("hello", number=1)
    intake = RecordingIntake()
    async with run_adapter(platform.adapter(), intake):
        await until(lambda: bool(intake.texts), "another message")

    assert [each["msgtype"] for each in platform.written(room)] == ["m.notice"]


async def test_a_room_that_we_are_not_in_is_unreachable(platform: MatrixPlatform) -> None:
    room = platform.make_room(platform.ada, join=False)
    adapter = platform.adapter()

    with pytest.raises(Unreachable):
        await adapter.send(delivery_to(Channel("matrix", room), "hi"))
    await adapter.close()


async def test_checking_says_who_the_bot_is(platform: MatrixPlatform) -> None:
    assert platform.bot in await platform.adapter().check()
    platform.revoke()
    with pytest.raises(NotAllowed, match="token"):
        await platform.adapter().check()


async def heard_at_last(platform: MatrixPlatform, intake: RecordingIntake, count: int) -> list[str]:
    """What an adapter receives that is restarted a few times when it gives up."""
    adapter = platform.adapter()
    for _ in range(10):
        task = asyncio.ensure_future(adapter.run(intake))
        await until(partial(_is_over, task, intake, count), "a message")
        task.cancel()
        (error,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(error, RetryLater | asyncio.CancelledError), error
        if len(intake.texts) >= count:
            break
    await adapter.close()
    return intake.texts


def _is_over(task: "asyncio.Task[None]", intake: RecordingIntake, count: int) -> bool:
    return task.done() or len(intake.texts) >= count


async def test_a_busy_homeserver_does_not_lose_our_sync_position(
    platform: MatrixPlatform,
) -> None:
    """Messages before our own last one would be taken for answered."""
    await platform.says("one", number=1)
    async with run_adapter(platform.adapter(), RecordingIntake()):
        await until(lambda: platform.places > 0, "the place was not kept")
    await platform.says("two", number=2)
    adapter = platform.adapter()
    await adapter.send(delivery_to(platform.chat, "an answer to one"))
    await adapter.close()
    busy = {"errcode": "M_LIMIT_EXCEEDED", "error": "slow down", "retry_after_ms": 1}
    platform.ill = {"/account_data/": [(429, busy), (500, {})]}

    assert await heard_at_last(platform, RecordingIntake(), 1) == ["two"]


async def test_a_bot_without_a_display_name_works(platform: MatrixPlatform) -> None:
    platform.ill = {"/displayname": [(404, {"errcode": "M_NOT_FOUND", "error": "no profile"})]}
    await platform.says("hello", number=1)

    assert await heard_at_last(platform, RecordingIntake(), 1) == ["hello"]


async def test_a_file_that_cannot_be_fetched_does_not_block_its_message(
    platform: MatrixPlatform,
) -> None:
    """Its homeserver may be gone; ours says so with an error that might pass."""
    platform.ill = {"/download/": [(502, {"errcode": "M_UNKNOWN", "error": "no route"})] * 20}
    await platform.says("look", number=1, file=b"meow")
    await platform.says("well?", number=2)

    first, second = await heard_at_last(platform, RecordingIntake(), 2)

    assert "“picture.png” could not be fetched" in first
    assert second == "well?"


async def test_a_message_that_is_always_refused_does_not_block_the_others(
    platform: MatrixPlatform,
) -> None:
    async def refuse_first(count: int) -> None:
        if count == 1:
            raise BadInput("too long")

    await platform.says("bad", number=1)
    await platform.says("good", number=2)

    assert await heard_at_last(platform, RecordingIntake(refuse_first), 2) == ["bad", "good"]


async def test_an_invitation_to_a_server_that_is_gone_does_not_block_messages(
    platform: MatrixPlatform,
) -> None:
    platform.make_room(platform.ada, join=False)
    platform.ill = {"/join": [(502, {"errcode": "M_UNKNOWN", "error": "no route"})] * 20}
    await platform.says("hello", number=1)

    assert await heard_at_last(platform, RecordingIntake(), 1) == ["hello"]
