"""A person is erased: their words are nowhere any more, and nobody else lost any."""

from pathlib import Path

import pytest

from sessionary.actions import files, verify
from sessionary.actions.retention import erase
from sessionary.actions.retention.erase import ErasureSubject
from sessionary.actions.search import search
from sessionary.actions.search.search import SearchOptions
from sessionary.actions.sessions import edit, model_calls, read, revise
from sessionary.errors import NotFound
from sessionary.model.message import Attachment, Message, Role, Text
from sessionary.model.source import Person, Source
from sessionary.store.database import Store
from sessionary.store.tables import blobs, exchanges, retention, upkeep
from tests.support.transfer import asks_a_model, request_record
from tests.support.world import ANN, World

GROUP = Source("telegram", "group-chat", chat_type="group", chat_name="All")
EVA, BEN = Person("ann", name="Ann"), Person("ben", name="Ben")
SHE = ErasureSubject("telegram", "ann")


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def message_by(person: Person, text: str) -> Message:
    return Message(Role.USER, (Text(text),), person=person)


def shared(world: World) -> str:
    """A group in which two people and the agent spoke."""
    made = world.session("platypus opens the talk", source=GROUP)
    world.append(made, message_by(EVA, "okapi from Ann"))
    world.append(made, message_by(BEN, "giraffe from Ben"))
    world.append_text(made, "an answer", role="assistant")
    return made


def finds(world: World, word: str) -> int:
    found = world.store.search(
        search.search, word, profile="main", options=SearchOptions(), now=world.clock.now()
    ).result()
    return len(found.hits)


def erased(world: World) -> erase.Receipt:
    return erase.erase(world.store, SHE, profile="main", moment=world.moment())


def test_sessions_with_only_their_messages_are_purged(world: World) -> None:
    own = world.talk("my okapi", "nice!", source=ANN)
    other = shared(world)

    receipt = erased(world)

    assert (receipt.sessions_purged, receipt.sessions_changed) == (1, 1)
    assert own in receipt.sessions
    assert world.texts(other) == ["platypus opens the talk", "", "giraffe from Ben", "an answer"]
    assert verify.verify(world.store).broken == ()


def test_their_words_are_not_found_and_others_are(world: World) -> None:
    world.talk("my okapi", "nice!", source=ANN)
    shared(world)
    assert finds(world, "okapi") == 2

    erased(world)

    assert finds(world, "okapi") == 0
    assert finds(world, "giraffe") == 1


def test_their_words_are_in_no_file(tmp_path: Path, world: World) -> None:
    """Not in a free page, not in the index: true erasure."""
    world.talk("my okapi is unique", "nice!", source=ANN)
    shared(world)
    erased(world)
    finds(world, "giraffe")
    world.store.close()

    for file in filter(Path.is_file, tmp_path.rglob("*")):
        assert b"okapi" not in file.read_bytes(), file


def test_their_files_go_with_their_words(world: World) -> None:
    made = shared(world)
    name = world.write(blobs.add, b"a picture of Ann")
    world.append(made, Message(Role.USER, (Attachment(name),), person=EVA))

    erased(world)

    assert not world.read(blobs.exists, name)


def test_files_that_a_program_keeps_for_them_go_too(world: World) -> None:
    made = shared(world)
    new = files.NewFile(b"a letter of Ann", "letter.txt", "text/plain", "user_data")
    kept = world.write(
        files.keep_file, new, profile="main", token_id="token", moment=world.moment()
    )
    world.append(made, Message(Role.USER, (Attachment(kept.hash),), person=EVA))

    erased(world)

    assert not world.read(blobs.exists, kept.hash)
    with pytest.raises(NotFound):
        world.read(files.get_file, kept.id, profile="main", now=world.clock.now())


def test_what_passed_the_proxy_for_them_and_is_not_in_the_log_yet_goes_too(world: World) -> None:
    now = world.clock.now()
    for person in ("ann", "ben"):
        found = exchanges.StoredExchange(
            id=f"of-{person}",
            profile="main",
            state=exchanges.DONE,
            holder="a proxy",
            began_at=now,
            done_at=now,
            facts={},
            person_id=person,
        )
        world.write(exchanges.put, found, expires_at=now)

    she = ErasureSubject(exchanges.PLATFORM, "ann")
    erase.erase(world.store, she, profile="main", moment=world.moment())

    assert [left.id for left in world.read(exchanges.next_done)] == ["of-ben"]
    assert world.read(exchanges.count) == {exchanges.DONE: 1}


def test_what_the_model_was_sent_goes_too(world: World) -> None:
    made = asks_a_model(world, GROUP)
    world.append(made, message_by(EVA, "okapi from Ann"))
    world.append(made, message_by(BEN, "giraffe from Ben"))
    world.write(edit.set_system_prompt, made, "Be brief.", profile="main")
    fork = world.fork(made)
    begun = world.begin_in(fork.id, "And here?")
    world.finish(begun, "Ann.", request=request_record("You talk with Ann in a fork."))
    before = world.read(upkeep.stats).blobs

    erased(world)

    assert before == 4
    assert world.read(upkeep.stats).blobs == 1
    assert world.read(read.get_system_prompt, world.head(made)) == "Be brief."
    [listed] = world.read(model_calls.list_turns, made, profile="main").items
    sent = world.read(model_calls.read_sent_context, listed.turn.id, profile="main")
    assert sent.system_prompt is None
    assert verify.verify(world.store).broken == ()


def test_a_purge_deletes_what_the_model_was_sent(world: World) -> None:
    alone = asks_a_model(world)
    needed = asks_a_model(world)
    heir = world.fork(needed)

    world.purge(alone)
    world.purge(needed)

    assert world.read(upkeep.stats).blobs == 0
    assert world.texts(heir.id)[0] == "Who is there?", "its history is kept for the fork"


def test_a_summary_of_their_words_goes_too(world: World) -> None:
    made = shared(world)
    summary, now = "Ann spoke of an okapi", world.clock.now()
    world.write(revise.compact, made, summary, through=4, profile="main", at=now)

    erased(world)

    assert "okapi" not in str(world.context(made))


def test_who_speaks_is_named_as_before_when_a_summary_was_erased(world: World) -> None:
    made = shared(world)
    now = world.clock.now()
    world.write(revise.compact, made, "so far", through=4, profile="main", at=now)
    world.append(made, message_by(BEN, "and now?"))
    assert world.context(made)[-1]["content"] == "[Ben] and now?"

    erased(world)

    assert world.context(made)[-1]["content"] == "[Ben] and now?"


def test_a_fork_of_their_conversation_keeps_the_answers_only(world: World) -> None:
    own = world.talk("my okapi", "nice!", source=ANN)
    branch = world.fork(own, 2).id
    world.append_text(branch, "go on", role="assistant")

    erased(world)

    assert world.read(retention.receipts, profile="main")[0]["messages_erased"] == 1
    assert "okapi" not in str(world.everything())


def test_the_receipt_does_not_name_them(world: World) -> None:
    world.talk("my okapi", "nice!", source=ANN)

    receipt = erased(world)

    assert "ann" not in str(world.read(retention.receipts, profile="main"))
    assert receipt.person == SHE.digest


def test_a_look_changes_nothing(world: World) -> None:
    world.talk("my okapi", "nice!", source=ANN)
    shared(world)
    before = world.everything()

    found = list(erase.find_content(world.store, SHE, profile="main"))

    assert [(share.is_whole, len(share.seqs)) for share in found] == [(True, 1), (False, 1)]
    assert world.everything() == before
