"""Sums of tokens and cost that pass the largest number: they stop there, and nothing fails."""

import pytest

from sessionary.actions import usage, verify
from sessionary.actions.transfer import export, jsonl_import
from sessionary.model.usage import MAX_COST_MICROUSD, MAX_TOKENS, TOKEN_FIELDS, Usage
from sessionary.store.database import Store
from sessionary.store.tables import access
from sessionary.store.tables import usage as usage_table
from tests.store.conftest import Opener, opened
from tests.store.raw import execute
from tests.support.world import World

LARGEST = 2**53 - 1
CALLS = 1200


@pytest.fixture
def store(open_again: Opener) -> Store:
    return open_again()


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def fill_as_an_earlier_version(world: World, session: str) -> None:
    """Calls that used to be taken, and the head's sums as SQLite left them: past 2^63, as a float."""
    no = world.head(session).no
    names = ", ".join(TOKEN_FIELDS)
    values = ", ".join([str(LARGEST)] * len(TOKEN_FIELDS))
    rows = ", ".join(
        f"('main', 'call {n}', {no}, {n}, {values}, {LARGEST}, 'reported')" for n in range(CALLS)
    )
    execute(
        world.store.url,
        f"INSERT INTO usage (profile, call_id, session_no, at, {names}, cost_microusd, cost_status)"
        f" VALUES {rows}",
        trusting=True,
    )
    if world.store.url.startswith("sqlite"):
        sums = ", ".join(f"{name} = 1.08e19" for name in (*TOKEN_FIELDS, "cost_microusd"))
        execute(world.store.url, f"UPDATE sessions SET calls = {CALLS}, {sums}", trusting=True)


@pytest.mark.parametrize("group", usage_table.GROUPS)
def test_a_report_over_absurd_calls_says_the_largest_sum(world: World, group: str) -> None:
    fill_as_an_earlier_version(world, world.session("a"))

    [total] = world.read(usage.sum_usage, group, profile="main")

    assert total.calls == CALLS
    assert {getattr(total, name) for name in TOKEN_FIELDS} == {LARGEST}
    assert total.known_cost_microusd == LARGEST


def test_verify_reports_the_sums_of_an_earlier_version_and_rebuild_makes_them_right(
    world: World,
) -> None:
    session = world.session("a")
    fill_as_an_earlier_version(world, session)

    found = [each.invariant for each in verify.verify(world.store).broken]
    assert "usage" in found
    assert verify.rebuild(world.store) == 1
    assert verify.verify(world.store).broken == ()
    assert world.head(session).usage.input_tokens == LARGEST
    world.append_text(session, "writing goes on")
    assert world.texts(session) == ["a", "writing goes on"]


def test_one_more_call_on_top_of_the_largest_sum_is_counted(world: World) -> None:
    session = world.session("a")
    fill_as_an_earlier_version(world, session)
    verify.rebuild(world.store)
    used = Usage("m", input_tokens=MAX_TOKENS, cost_microusd=MAX_COST_MICROUSD)

    no = world.head(session).no
    assert world.write(usage.record, no, used, profile="main", moment=world.moment())

    total = world.head(session).usage
    assert (total.calls, total.input_tokens, total.cost_microusd) == (CALLS + 1, LARGEST, LARGEST)
    assert verify.verify(world.store).broken == ()


def test_small_calls_are_summed_to_the_last_token(world: World) -> None:
    no = world.head(world.session("a")).no
    for tokens in (MAX_TOKENS, 1, 67_108_863, 67_108_864, 3):
        used = Usage("m", input_tokens=tokens, cost_microusd=tokens)
        world.write(usage.record, no, used, profile="main", moment=world.moment())

    [total] = world.read(usage.sum_usage, "model", profile="main")
    assert total.input_tokens == MAX_TOKENS + 1 + 67_108_863 + 67_108_864 + 3
    assert total.known_cost_microusd == total.input_tokens
    assert verify.verify(world.store).broken == ()


def test_spending_against_a_budget_stops_at_the_largest_sum(world: World) -> None:
    for _ in range(3):
        world.write(
            access.add_spending,
            "person:x",
            "2026",
            profile="main",
            tokens=LARGEST,
            cost_microusd=LARGEST,
        )

    spent = world.read(access.get_budget_use, "person:x", "2026", profile="main")
    assert (spent.tokens, spent.cost_microusd) == (LARGEST, LARGEST)


def test_absurd_calls_of_an_earlier_version_can_be_exported_and_imported(world: World) -> None:
    fill_as_an_earlier_version(world, world.session("a"))
    lines = [line.encode() for line in export.export_jsonl(world.store, profile="main")]

    other = opened("sqlite::memory:")
    done = jsonl_import.import_jsonl(other, lines, profile="main", moment=world.moment())

    assert done.added == 1
    [total] = other.read(usage.sum_usage, "model", profile="main").result()
    assert (total.calls, total.input_tokens) == (CALLS, LARGEST)
    other.close()
