"""The log is append-only; damage is found by verify, and rebuild makes the folds again."""

import apsw
import psycopg
import pytest

from sessionary.actions import sweep, verify
from sessionary.actions.retention import pack
from sessionary.actions.sessions import edit
from sessionary.actions.sessions.lists import SessionFilters, SortOrder, list_sessions
from sessionary.actions.verify import Broken
from sessionary.errors import Damaged
from sessionary.store.database import Store
from tests.store.conftest import Opener
from tests.store.raw import execute
from tests.support.transfer import exported, imported
from tests.support.world import ANN, World

REFUSED = (apsw.ConstraintError, psycopg.errors.RaiseException)


@pytest.fixture
def store(open_again: Opener) -> Store:
    return open_again()


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def broken(world: World) -> list[str]:
    return [each.invariant for each in verify.verify(world.store).broken]


def spoil(world: World, statement: str) -> None:
    execute(world.store.url, statement, trusting=True)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = '{}'",
        "UPDATE entries SET at = 0",
        "DELETE FROM entries",
        "DELETE FROM entries WHERE entry_no IN (SELECT MAX(entry_no) FROM entries)",
    ],
)
def test_the_log_refuses_to_be_changed(world: World, statement: str) -> None:
    """By trigger, for every writer."""
    session = world.session("a", "b")
    before = world.everything()

    with pytest.raises(REFUSED, match="append-only"):
        execute(world.store.url, statement)

    assert world.everything() == before
    assert world.texts(session) == ["a", "b"]


def test_the_repeat_of_a_message_that_an_older_export_lacks_is_no_damage(world: World) -> None:
    session = world.session("a")
    earlier = exported(world.store, [session])
    world.append_text(session, "b", idempotency_key="once")
    world.purge(session)
    assert imported(world.store, earlier).added == 1

    assert world.append_text(session, "b", idempotency_key="once").repeated

    assert world.store.damage is None
    assert world.texts(session) == ["a"]


def test_a_purge_deletes_only_its_own_entries(world: World) -> None:
    kept, gone = world.session("a"), world.session("b")

    world.purge(gone)

    assert execute(world.store.url, "SELECT COUNT(*) FROM entries") == [(1,)]
    assert world.texts(kept) == ["a"]


HEADS = {
    "message_count = 7": "counters",
    "tool_call_count = 7": "counters",
    "preview = 'something else'": "counters",
    "last_reply_seq = 1": "counters",
    "compacted_seq = 1": "counters",
    "last_seq = 1": "sequence",
    "last_seq = 9": "sequence",
    "last_active_at = 5": "activity",
    "last_active_at = last_active_at + 1": "activity",
    "folder = 'archive'": "folder",
    "input_tokens = 5": "usage",
    "cost_microusd = 5": "usage",
    "running_turn = 'ghost'": "one turn",
}


@pytest.mark.parametrize(("change", "invariant"), HEADS.items(), ids=HEADS.keys())
def test_a_wrong_session_head_is_found_and_rebuilt(
    world: World, change: str, invariant: str
) -> None:
    session = world.talk("a")
    world.talk("b")
    before = world.everything()
    assert broken(world) == []

    spoil(world, f"UPDATE sessions SET {change}")

    assert invariant in broken(world)
    assert verify.rebuild(world.store) == 1
    assert broken(world) == []
    assert world.everything() == before
    assert world.talk("c") == session


ORDERS = {
    "a lost place": "DELETE FROM session_orders WHERE session_no = {no}",
    "another folder": "UPDATE session_orders SET folder = 'trash' WHERE session_no = {no}",
    "another name": "UPDATE session_orders SET name = 'zebra' WHERE session_no = {no}",
    "another profile": "UPDATE session_orders SET profile = 'bob' WHERE session_no = {no}",
    "another time": "UPDATE session_orders SET began_at = 5 WHERE session_no = {no}",
    "another cost": "UPDATE session_orders SET cost_microusd = 5 WHERE session_no = {no}",
}


def listed(world: World) -> list[list[str]]:
    orders = (SortOrder.CREATED, SortOrder.TITLE, SortOrder.COST)
    pages = [
        world.read(list_sessions, SessionFilters(order=order), profile="main") for order in orders
    ]
    return [[head.id for head in page.items] for page in pages]


@pytest.mark.parametrize("change", ORDERS.values(), ids=ORDERS.keys())
def test_a_session_that_lists_show_elsewhere_is_found_and_put_back(
    world: World, change: str
) -> None:
    """P11: a list in another order than activity must not lose a session either."""
    ids = [world.session(text) for text in ("Apple", "Éclair", "bread")]
    before = listed(world)
    assert before[1] == [ids[0], ids[2], ids[1]]

    spoil(world, change.format(no=world.head(ids[0]).no))

    found = verify.verify(world.store).broken
    assert [(each.invariant, each.where) for each in found] == [("order", ids[0])]
    assert verify.rebuild(world.store) == 1
    assert broken(world) == []
    assert listed(world) == before


def test_a_purged_session_that_a_list_still_names_is_found_and_forgotten(world: World) -> None:
    gone = world.session("a")
    no = world.head(gone).no
    world.purge(gone)
    assert broken(world) == []
    spoil(
        world,
        f"UPDATE session_orders SET folder = 'chats', name = 'a' WHERE session_no = {no}",
    )

    assert broken(world) == ["order"]
    assert verify.rebuild(world.store) == 1
    assert listed(world) == [[], [], []]
    assert broken(world) == []


def test_a_place_in_lists_without_a_session_stands_in_nobodys_way(world: World) -> None:
    no = world.head(world.session("a")).no
    spoil(world, f"INSERT INTO session_orders VALUES ({no + 1}, 'main', 'chats', 1, 'b', 0)")

    assert broken(world) == ["order"]
    assert verify.rebuild(world.store) == 1
    assert broken(world) == []
    assert world.head(world.session("b")).no == no + 1


@pytest.mark.parametrize("many", [1, 25])
def test_damaged_sessions_in_the_trash_stand_in_nobodys_way(world: World, many: int) -> None:
    kept, gone = [world.session("a", "b") for _ in range(many)], world.session("c")
    pack.pack(world.store, profile="main", before=world.clock.tick())
    for session in kept:
        world.fork(session)
    for session in (*kept, gone):
        world.write(edit.trash, session, profile="main", moment=world.moment())
    spoil(world, "UPDATE packs SET data = ''")
    world.clock.tick(days=31)

    assert world.write(sweep.empty_trash, moment=world.moment()) == [gone]
    assert all(world.head(session).trashed_at is not None for session in kept)


def test_a_turn_that_the_head_forgot_is_found_and_ends(world: World) -> None:
    world.arrive(ANN, "a")
    begun = world.begin(ANN)
    assert begun is not None
    spoil(world, "UPDATE sessions SET running_turn = NULL")

    assert broken(world) == ["one turn"]
    assert verify.rebuild(world.store) == 1
    assert world.finish(begun, "hi")
    assert broken(world) == []


def test_a_missing_entry_is_found(world: World) -> None:
    session = world.session("a", "b", "c")
    no = world.head(session).no

    spoil(world, f"DELETE FROM entries WHERE entry_no = {(no << 24) + 2}")

    found = verify.verify(world.store).broken
    assert (
        Broken("sequence", session, "2 entries from 1 to 3, expected from 1 without gaps") in found
    )


def test_an_entry_that_cannot_be_read_is_found_and_named(world: World) -> None:
    session = world.session("a", "b")
    other = world.session("c")
    no = world.head(session).no
    spoil(world, f"UPDATE entries SET body = '{{\"parts' WHERE entry_no = {(no << 24) + 2}")

    (found,) = verify.verify(world.store).broken

    assert (found.invariant, found.where) == ("readable", session)
    assert "Entry 2" in found.what
    assert verify.rebuild(world.store) == 0
    with pytest.raises(Damaged, match="Entry 2"):
        world.texts(session)
    assert world.texts(other) == ["c"]


@pytest.mark.parametrize("change", ["DELETE FROM blobs", "UPDATE blobs SET data = 'other'"])
def test_a_blob_that_is_lost_or_swapped_is_found(world: World, change: str) -> None:
    """P11: damage is never silent."""
    session = world.session("x" * 50_000)

    spoil(world, change)

    assert "readable" in broken(world)
    with pytest.raises(Damaged):
        world.texts(session)


def test_a_ledger_that_lost_a_row_is_found(world: World) -> None:
    session = world.session("a")
    no = world.head(session).no
    spoil(
        world,
        "INSERT INTO usage (profile, call_id, session_no, at, input_tokens, output_tokens,"
        " cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_status)"
        f" VALUES ('main', 'x', {no}, 1, 5, 0, 0, 0, 0, 'unknown')",
    )

    assert broken(world) == ["usage"]
    assert verify.rebuild(world.store) == 1
    assert world.head(session).usage.input_tokens == 5


def test_a_session_that_is_its_own_ancestor_is_found(world: World) -> None:
    """Cycle-safe."""
    first = world.session("a")
    second = world.fork(first).id
    numbers = {each: world.head(each).no for each in (first, second)}

    spoil(
        world,
        f"UPDATE sessions SET parent_no = {numbers[second]}, lineage = 'fork'"
        f" WHERE no = {numbers[first]}",
    )

    assert "lineage" in broken(world)
    assert world.texts(second) == ["a"]


def test_a_binding_of_a_purged_session_is_found(world: World) -> None:
    session = world.session("a")
    no = world.head(session).no
    world.purge(session)
    spoil(
        world,
        "INSERT INTO bindings (profile, key, session_no, bound_at)"
        f" VALUES ('main', 'main/telegram/dm/chat=9', {no}, 1)",
    )

    assert broken(world) == ["one open"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sessions SET ended_at = began_at - 1, end_reason = 'x'",
        "UPDATE sessions SET ended_at = began_at",
        "UPDATE sessions SET message_count = -1",
        "UPDATE sessions SET last_seq = -1",
        "UPDATE sessions SET parent_no = no, lineage = 'fork'",
        "UPDATE sessions SET kind = 'poem'",
        "UPDATE sessions SET title = 'same'",
        "UPDATE sessions SET key = 'same'",
        "INSERT INTO bindings (profile, key, session_no, bound_at) VALUES ('main', 'k', 99, 1)",
    ],
)
def test_the_schema_refuses_what_can_never_be(world: World, change: str) -> None:
    """Rules that hold for every writer."""
    world.session("a")
    world.session("b")

    with pytest.raises((apsw.ConstraintError, psycopg.errors.IntegrityError)):
        execute(world.store.url, change)


def test_two_turns_cannot_run_in_one_session(world: World) -> None:
    """By a unique index."""
    world.begin_in(world.session("a"))

    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        execute(
            world.store.url,
            "INSERT INTO turns (id, session_no, state, epoch, holder, lease_until, began_at,"
            " first_seq) SELECT 'x', session_no, state, epoch, holder, lease_until, began_at,"
            " first_seq FROM turns",
        )
