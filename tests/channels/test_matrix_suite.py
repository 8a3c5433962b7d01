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
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        await until(lambda: bool(door.texts), "the invitation was not accepted")

    assert door.texts == ["said before you came"]
    assert door.sources[0].chat_id == room


async def test_a_thread_is_answered_in_the_thread(platform: MatrixPlatform) -> None:
    root = platform.put({"msgtype": "m.text", "body": "root"})
    relation = {"rel_type": "m.thread", "event_id": root}
    platform.put({"msgtype": "m.text", "body": "below", "m.relates_to": relation})
    door = RecordingIntake()
    async with run_adapter(adapter := platform.adapter(), door):
        await until(lambda: len(door.texts) == 2, "two messages")
        channel_of_thread = door.sources[1].channel
        assert channel_of_thread is not None
        await adapter.send(delivery_to(channel_of_thread, "answer", id="in-thread"))

    assert channel_of_thread.thread_id == root
    assert platform.written()[-1]["m.relates_to"]["event_id"] == root


async def test_a_correction_is_something_new_that_was_said(platform: MatrixPlatform) -> None:
    event = platform.put({"msgtype": "m.text", "body": "teh"})
    replaced = {
        "msgtype": "m.text",
        "body": "* the",
        "m.new_content": {"msgtype": "m.text", "body": "the"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": event},
    }
    platform.put(replaced)
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        await until(lambda: len(door.texts) == 2, "two messages")

    assert "corrected" in door.texts[1]
    assert door.texts[1].endswith("the")


async def test_in_a_room_of_many_only_what_is_addressed_is_answered(
    platform: MatrixPlatform,
) -> None:
    _, bob = platform.synapse.register(f"bob-{platform.bot[5:13]}")
    room = platform.make_room(platform.ada, preset="public_chat", is_direct=False, name="Kitchen")
    platform.join(room, bob)
    platform.put({"msgtype": "m.text", "body": "tea is ready"}, room=room, token=bob)
    mention = {"m.mentions": {"user_ids": [platform.bot]}}
    platform.put({"msgtype": "m.text", "body": "what is ready?", **mention}, room=room)
    door = RecordingIntake()
    async with run_adapter(platform.adapter(observe=True), door):
        await until(lambda: bool(door.texts), "the mention")

    assert len(door.texts) == 1
    assert door.texts[0].startswith("what is ready?")
    assert "tea is ready" in door.texts[0]
    assert (door.sources[0].chat_type, door.sources[0].chat_name) == ("group", "Kitchen")


async def test_a_picture_comes_in_with_its_bytes(platform: MatrixPlatform) -> None:
    await platform.says("a cat", number=1, file=b"meow")
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        await until(lambda: bool(door.said), "the picture")

    _, picture = door.said[0].parts
    assert door.said[0].text.startswith("a cat")
    assert isinstance(picture, Attachment)
    assert (picture.name, picture.size, door.files[0]) == ("picture.png", 4, (b"meow",))


async def test_an_encrypted_room_gets_one_clear_notice(platform: MatrixPlatform) -> None:
    secret = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    room = platform.make_room(platform.ada, initial_state=[secret])
    for _ in range(2):
        platform.put_encrypted(room)
    async with run_adapter(platform.adapter(), RecordingIntake()):
        await until(lambda: bool(platform.written(room)), "the notice")
    platform.put_encrypted(room)
    await platform.says("hello", number=1)
    door = RecordingIntake()
    async with run_adapter(platform.adapter(), door):
        await until(lambda: bool(door.texts), "another message")

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


async def heard_at_last(platform: MatrixPlatform, door: RecordingIntake, count: int) -> list[str]:
    """What is heard by an adapter that is started again when it gives up, a few times."""
    adapter = platform.adapter()
    for _ in range(10):
        task = asyncio.ensure_future(adapter.run(door))
        await until(partial(_is_over, task, door, count), "a message")
        task.cancel()
        (error,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(error, RetryLater | asyncio.CancelledError), error
        if len(door.texts) >= count:
            break
    await adapter.close()
    return door.texts


def _is_over(task: "asyncio.Task[None]", door: RecordingIntake, count: int) -> bool:
    return task.done() or len(door.texts) >= count


async def test_a_homeserver_that_is_busy_does_not_make_us_forget_our_place(
    platform: MatrixPlatform,
) -> None:
    """What was said before our own last word would be taken for answered."""
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


async def test_a_bot_without_a_name_is_at_work_all_the_same(platform: MatrixPlatform) -> None:
    platform.ill = {"/displayname": [(404, {"errcode": "M_NOT_FOUND", "error": "no profile"})]}
    await platform.says("hello", number=1)

    assert await heard_at_last(platform, RecordingIntake(), 1) == ["hello"]


async def test_a_file_that_never_comes_holds_up_nothing(platform: MatrixPlatform) -> None:
    """Its homeserver may be gone; ours says so with an error that might pass."""
    platform.ill = {"/download/": [(502, {"errcode": "M_UNKNOWN", "error": "no route"})] * 20}
    await platform.says("look", number=1, file=b"meow")
    await platform.says("well?", number=2)

    first, second = await heard_at_last(platform, RecordingIntake(), 2)

    assert "“picture.png” could not be fetched" in first
    assert second == "well?"


async def test_a_message_that_is_refused_for_ever_holds_up_nothing(
    platform: MatrixPlatform,
) -> None:
    async def refuse_first(count: int) -> None:
        if count == 1:
            raise BadInput("too long")

    await platform.says("bad", number=1)
    await platform.says("good", number=2)

    assert await heard_at_last(platform, RecordingIntake(refuse_first), 2) == ["bad", "good"]


async def test_an_invitation_to_a_server_that_is_gone_holds_up_nothing(
    platform: MatrixPlatform,
) -> None:
    platform.make_room(platform.ada, join=False)
    platform.ill = {"/join": [(502, {"errcode": "M_UNKNOWN", "error": "no route"})] * 20}
    await platform.says("hello", number=1)

    assert await heard_at_last(platform, RecordingIntake(), 1) == ["hello"]
