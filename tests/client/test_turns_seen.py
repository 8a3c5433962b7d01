"""Turns, what the model was sent, and pins, in Python."""

from pathlib import Path

import pytest

from sessionary import AsyncSessionary, Conflict, NotFound, Sessionary


def test_turns_and_what_the_model_was_sent(tmp_path: Path) -> None:
    with Sessionary(home=str(tmp_path), create=True) as s:
        chat = s.session("capitals")
        assert list(chat.turns()) == []
        for text in ("one", "two", "three"):
            with chat.turn(text) as turn:
                turn.append("assistant", f"re: {text}", model="m-1")

        listed = list(chat.turns(limit=2))
        newest = listed[0].turn.id
        [call] = chat.model_calls(newest)
        sent = chat.sent_context(newest)

        assert [each.calls for each in listed] == [1, 1, 1]
        assert (call.number, call.answer_seq, call.model) == (1, 6, "m-1")
        assert [chat["content"] for chat in sent.messages] == [
            "one",
            "re: one",
            "two",
            "re: two",
            "three",
        ]
        assert chat.context_size().used > 0
        with pytest.raises(NotFound):
            chat.sent_context("nonsense")
        with pytest.raises(NotFound):
            chat.sent_context(newest, call=2)


def test_messages_are_pinned_and_unpinned(tmp_path: Path) -> None:
    with Sessionary(home=str(tmp_path), create=True) as s:
        chat = s.session("capitals")
        assert chat.pinned_messages() == []
        chat.append("user", "The door code is 4711.")
        chat.append("assistant", "Noted.")
        chat.pin_message(2)
        chat.pin_message(1)

        assert [each.text for each in chat.pinned_messages()] == [
            "The door code is 4711.",
            "Noted.",
        ]
        chat.unpin_message(2)
        assert [each.seq for each in chat.pinned_messages()] == [1]
        with pytest.raises(NotFound):
            chat.unpin_message(2)
        with chat.turn(), pytest.raises(Conflict):
            chat.unpin_message(1)


async def test_the_same_asynchronously(tmp_path: Path) -> None:
    async with AsyncSessionary(home=str(tmp_path), create=True) as s:
        chat = s.session("capitals")
        async with chat.turn("one") as turn:
            await turn.append("assistant", "re: one")
        [listed] = [each async for each in chat.turns()]
        sent = await chat.sent_context(listed.turn.id, call=1)
        await chat.pin_message(1)

        assert [each["content"] for each in sent.messages] == ["one"]
        assert [each.seq for each in await chat.pinned_messages()] == [1]
        assert len(await chat.model_calls(listed.turn.id)) == 1
        assert (await chat.context_size()).compaction is None
