"""Conversations that are continued by sending them again."""

from collections.abc import Sequence

import pytest

from sessionary.actions.retention import purge
from sessionary.actions.sessions import edit, prefixes
from sessionary.actions.sessions.prefixes import KnownPrefix
from sessionary.model.message import Message, Role, Text
from sessionary.model.prefix import prefix_digests
from sessionary.model.session import Lineage, Opening, SessionHead
from tests.support.suite import Suite
from tests.support.world import ANN, World

CLIENT = "token-1"
TALK = ("hello", "hi", "how are you?", "fine")


def said(*texts: str) -> list[Message]:
    """A conversation: the user begins, and both take turns."""
    roles = (Role.USER, Role.ASSISTANT)
    return [Message(roles[n % 2], (Text(text),)) for n, text in enumerate(texts)]


def recorded(world: World, *texts: str, client: str = CLIENT) -> str:
    """The id of a session with this conversation, noted after each reply."""
    messages = said(*texts)
    session = world.write(edit.open_session, Opening("main", ANN), moment=world.moment())
    for message in messages:
        world.append(session, message)
        if message.role is Role.ASSISTANT:
            head = world.head(session)
            digest = prefix_digests(messages[: head.last_seq])[-1]
            world.write(prefixes.note, digest, head, seq=head.last_seq, client=client)
    return session


def find(world: World, messages: Sequence[Message], client: str = CLIENT) -> KnownPrefix | None:
    """What is known of the beginning of a conversation."""
    digests = prefix_digests(messages)
    return world.read(prefixes.find, digests, profile="main", client=client)


def continued(world: World, messages: Sequence[Message]) -> SessionHead:
    """The session that a client which sends these messages goes on in."""
    known = find(world, messages)
    assert known is not None
    head = world.write(prefixes.continue_at, known, profile="main", moment=world.moment())
    assert head is not None
    return head


class PrefixSuite(Suite):
    """A client without a memory sends everything again, and continues one session."""

    def test_a_conversation_that_is_sent_again_is_continued_in_its_session(
        self, world: World
    ) -> None:
        session = recorded(world, *TALK)

        messages = said(*TALK, "and now?")

        assert continued(world, messages).id == session
        known = find(world, messages)
        assert known is not None
        assert known.length == len(TALK)

    def test_system_messages_and_white_space_make_no_difference(self, world: World) -> None:
        session = recorded(world, *TALK)

        messages = [Message(Role.SYSTEM, (Text("It is noon."),)), *said(*TALK[:3], " fine\n", "x")]

        assert continued(world, messages).id == session

    def test_a_conversation_that_is_changed_before_its_end_is_forked_there(
        self, world: World
    ) -> None:
        session = recorded(world, *TALK)

        fork = continued(world, said(*TALK[:2], "what else?"))

        assert fork.lineage is Lineage.FORK
        assert world.texts(fork.id) == list(TALK[:2])
        assert world.texts(session) == list(TALK)

    def test_an_ended_conversation_is_continued_in_a_fork(self, world: World) -> None:
        session = recorded(world, *TALK)
        world.write(edit.end, session, profile="main", moment=world.moment())

        fork = continued(world, said(*TALK, "still there?"))

        assert fork.id != session
        assert world.texts(fork.id) == list(TALK)

    def test_of_two_conversations_that_began_alike_the_later_is_continued(
        self, world: World
    ) -> None:
        recorded(world, *TALK)
        later = recorded(world, *TALK)

        assert continued(world, said(*TALK, "more")).id == later

    def test_a_conversation_is_not_continued_by_another_client(self, world: World) -> None:
        recorded(world, *TALK)

        assert find(world, said(*TALK, "more"), client="token-2") is None

    def test_a_conversation_with_another_beginning_is_not_known(self, world: World) -> None:
        recorded(world, *TALK)

        assert find(world, said("hello", "hello to you", "how are you?")) is None

    def test_a_change_far_back_in_a_long_conversation_is_found(self, world: World) -> None:
        texts = [f"line {n}" for n in range(160)]
        session = recorded(world, *texts)

        known = find(world, said(*texts[:20], *(f"other {n}" for n in range(140))))

        assert known == KnownPrefix(world.head(session).no, 20, 20)

    @pytest.mark.parametrize("is_purged", [False, True])
    def test_a_deleted_conversation_is_not_continued(self, world: World, is_purged: bool) -> None:
        session = recorded(world, *TALK)
        known = find(world, said(*TALK, "more"))
        world.write(edit.trash, session, profile="main", moment=world.moment())
        if is_purged:
            world.write(purge.purge, session, profile="main", moment=world.moment())
            assert find(world, said(*TALK, "more")) is None

        assert known is not None
        assert (
            world.write(prefixes.continue_at, known, profile="main", moment=world.moment()) is None
        )
