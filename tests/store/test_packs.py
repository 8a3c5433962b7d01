"""What is old takes less room, and is read, found, forked, exported and deleted as before."""

from datetime import timedelta

import pytest

from sessionary.actions import verify
from sessionary.actions.retention import erase, pack
from sessionary.actions.retention.erase import ErasureSubject
from sessionary.actions.search import search
from sessionary.actions.search.search import SearchOptions
from sessionary.actions.sessions import read
from sessionary.errors import Damaged
from sessionary.model.message import Attachment, Message, Role, Text, ToolCall, ToolResult
from sessionary.store.database import Row, Store, Tx
from sessionary.store.tables import blobs, retention
from tests.support.transfer import HOSTILE, exported
from tests.support.world import ANN, World

LARGE = "a large text with a wombat " * 3000


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def filled(world: World) -> str:
    """A session with something of everything."""
    made = world.session(*(f"message {n} about a numbat" for n in range(300)), source=ANN)
    picture = world.write(blobs.add, b"a picture")
    world.append(made, Message(Role.USER, (Text(LARGE), Attachment(picture))))
    world.append(made, Message(Role.ASSISTANT, (ToolCall("c", "f", {"$blob": "mine"}),)))
    world.append(made, Message(Role.TOOL, (ToolResult("c", {"$blob": 7}),)))
    world.append_text(made, HOSTILE)
    return made


def packed(world: World) -> pack.PackResult:
    before = world.clock.now() + timedelta(days=1)
    return pack.pack(world.store, profile="main", before=before)


def finds(world: World, word: str) -> int:
    found = world.store.search(
        search.search,
        word,
        profile="main",
        options=SearchOptions(all_hits=True),
        now=world.clock.now(),
    ).result()
    return len(found.hits)


def packs(tx: Tx) -> int:
    row = tx.one("size_of_packs")
    assert row is not None
    return int(row[0])


def test_a_packed_session_reads_as_before_and_takes_less_room(world: World) -> None:
    made = filled(world)
    before, export = world.everything(), exported(world.store)

    done = packed(world)

    assert (done.sessions, done.messages) == (1, 304)
    assert done.after * 4 < done.before
    assert world.everything() == before
    assert exported(world.store) == export
    assert len(world.context(made)) > 300
    assert verify.verify(world.store).broken == ()


def test_packing_again_packs_only_what_is_new(world: World) -> None:
    made = filled(world)
    packed(world)
    world.append_text(made, "one more")

    assert packed(world).messages == 1
    assert packed(world) == pack.PackResult()


def test_packed_messages_are_found_and_the_index_can_be_rebuilt(world: World) -> None:
    filled(world)
    packed(world)

    assert finds(world, "wombat") == 1
    world.store.rebuild_index().result()
    assert finds(world, "wombat") == 1


def test_a_recently_active_session_is_left_alone(world: World) -> None:
    filled(world)

    before = world.clock.now() - timedelta(days=1)

    assert pack.pack(world.store, profile="main", before=before) == pack.PackResult()


def test_unpacking_gives_back_the_log_as_it_was(world: World) -> None:
    filled(world)
    before = world.everything()
    packed(world)

    world.write(retention.unpack, 1)

    assert world.everything() == before
    assert world.read(packs) == 0
    assert verify.verify(world.store).broken == ()


def test_a_fork_of_a_packed_session_outlives_it(world: World) -> None:
    made = filled(world)
    branch = world.fork(made, 10).id
    world.append_text(branch, "on my own")
    packed(world)

    world.purge(made)

    assert world.texts(branch)[-2:] == ["message 9 about a numbat", "on my own"]
    assert "wombat" not in str(world.everything())
    assert verify.verify(world.store).broken == ()


def test_an_erased_person_is_in_no_pack(world: World) -> None:
    filled(world)
    packed(world)

    erase.erase(
        world.store, ErasureSubject("telegram", "ann"), profile="main", moment=world.moment()
    )

    assert world.read(packs) == 0
    assert finds(world, "numbat") == 0


def rows(tx: Tx) -> list[Row]:
    return tx.all("read_entries", first=0, last=2**62, limit=1000)


def lose_blob(tx: Tx, name: str) -> None:
    tx.run("delete_blob_refs", first=0, last=2**62)
    tx.run("delete_blob_if_unused", hash=name)


def test_a_session_that_lacks_a_large_text_is_left_as_it_is_and_the_others_are_packed(
    world: World,
) -> None:
    """Its first messages had been packed before the damage was met: they are put back."""
    good, bad, last = world.session("a numbat"), filled(world), world.session("another numbat")
    name = blobs.hash_of_text(LARGE)
    world.write(lose_blob, name)
    before = world.read(rows)

    done = packed(world)

    after = world.read(rows)
    assert (done.sessions, done.messages) == (2, 2)
    assert [(each.session_id, name in each.reason) for each in done.damaged] == [(bad, True)]
    assert [row for row in after if row not in before] == [after[0], after[-1]]
    assert (world.texts(good), world.texts(last)) == (["a numbat"], ["another numbat"])
    assert world.read(read.read_window, bad, profile="main", after=0, limit=100).entries


def test_a_pack_that_is_damaged_is_named(world: World) -> None:
    made = filled(world)
    packed(world)
    world.write(lambda tx: tx.run("delete_pack", no=1))

    with pytest.raises(Damaged, match="Pack 1 is missing"):
        world.texts(made)
