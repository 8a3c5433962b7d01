"""Who may reach the agent, how strangers are paired, and what budgets do."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from sessionary.actions import access
from sessionary.config.engine import AccessPolicy, Budget, EngineSettings, Strangers
from sessionary.engine.intake import NOBODY
from sessionary.errors import RetryLater
from sessionary.model.access import Permit
from sessionary.model.message import message
from sessionary.model.source import Person
from sessionary.store.database import Store
from sessionary.store.tables import upkeep
from sessionary.testing.fakes import FakeClock, SequentialIds, moment_of
from tests.support.engine_world import QUICK, EngineWorld

CODE = access.make_code(12345)
PAIRING = AccessPolicy(strangers=Strangers.PAIR)


def world_with(store: Store, policy: AccessPolicy | None, **settings: Any) -> EngineWorld:
    access = {} if policy is None else {"loopback": policy}
    return EngineWorld(store, settings=replace(QUICK, access=access, **settings))


def code_in(text: str) -> str:
    return text.rpartition(" ")[2]


# --- admission


@pytest.mark.parametrize(
    ("policy", "fields", "is_admitted"),
    [
        (None, {}, False),
        (AccessPolicy(), {}, False),
        (AccessPolicy(everyone=True), {}, True),
        (AccessPolicy(everyone=True), {"user_id": None}, True),
        (AccessPolicy(allow=frozenset({"u"})), {}, True),
        (AccessPolicy(allow=frozenset({"u"})), {"chat_type": "group"}, True),
        (AccessPolicy(allow=frozenset({"v"})), {}, False),
        (AccessPolicy(allow=frozenset({"u"})), {"user_id": None, "user_name": "u"}, False),
        (AccessPolicy(allow=frozenset({"+49"})), {"user_id": "+49", "user_id_alt": "uuid"}, True),
        (AccessPolicy(allow=frozenset({"uuid"})), {"user_id": "+49", "user_id_alt": "uuid"}, True),
        (AccessPolicy(allow=frozenset({"U"})), {}, False),
    ],
)
async def test_only_people_named_in_the_configuration_are_admitted(
    store: Store, policy: AccessPolicy | None, fields: dict[str, Any], is_admitted: bool
) -> None:
    """P16: by id, never by name; a platform without a policy admits nobody."""
    world = world_with(store, policy)
    engine = await world.started()
    received = await world.says(engine, "hello", **fields)
    await world.settle(engine)
    await engine.stop()

    assert (received.arrival_id is not None) is is_admitted
    assert bool(world.runner.requests) is is_admitted


@pytest.mark.parametrize("chat_type", ["dm", "group", "channel", "thread"])
@pytest.mark.parametrize("text", ["hello", "/new", "/sethome", "/resume", "/help"])
async def test_a_stranger_costs_nothing_and_changes_nothing(
    store: Store, chat_type: str, text: str
) -> None:
    """P16, S9: no model call, no session, no row, no answer; commands neither."""
    world = world_with(store, None)
    engine = await world.started()
    before = await store.read(upkeep.stats)
    await world.says(engine, text, chat_type=chat_type)
    await world.settle(engine)
    await engine.stop()

    after = await store.read(upkeep.stats)
    assert structs.replace(after, sizes=()) == structs.replace(before, sizes=())
    assert await store.read(access.list_homes, profile="main") == []
    assert await store.read(access.list_pairings, profile="main", now=world.clock.now()) == []
    assert world.runner.requests == []
    assert world.adapter.sent == []


async def test_a_revoked_permission_applies_at_once(store: Store) -> None:
    world = world_with(store, AccessPolicy())
    moment = moment_of(world.clock, world.ids)
    await store.write(access.permit, "loopback", "u", profile="main", moment=moment)
    engine = await world.started()
    assert await world.asks(engine, "hello") == ["re: hello"]
    assert await store.write(access.revoke, "loopback", "u", profile="main")
    assert await world.asks(engine, "again") == []
    await engine.stop()


async def test_who_was_let_in_elsewhere_is_a_stranger_here(store: Store) -> None:
    """Another platform, another profile."""
    world = world_with(store, AccessPolicy())
    moment = moment_of(world.clock, world.ids)
    await store.write(access.permit, "other", "u", profile="main", moment=moment)
    await store.write(access.permit, "loopback", "u", profile="elsewhere", moment=moment)
    engine = await world.started()
    assert await world.asks(engine, "hello") == []
    await engine.stop()


# --- pairing


async def test_a_stranger_is_paired_and_then_answered(store: Store) -> None:
    """The code goes to the stranger, the owner gives it back."""
    world = world_with(store, PAIRING)
    engine = await world.started()
    (reply,) = await world.asks(engine, "hello")
    waiting = await store.read(access.list_pairings, profile="main", now=world.clock.now())
    typed = f" {code_in(reply)[:4].lower()}-{code_in(reply)[4:]} "

    permit = await store.write(
        access.approve_pairing, typed, profile="main", moment=moment_of(world.clock, world.ids)
    )
    answered = await world.asks(engine, "hello again")
    await engine.stop()

    assert [(each[0], each[1], each[2]) for each in waiting] == [("loopback", "u", "Ada")]
    assert permit is not None
    assert (permit.platform, permit.person_id) == ("loopback", "u")
    assert answered == ["re: hello again"]
    assert len(world.runner.requests) == 1
    row = await store.read(lambda tx: tx.all("list_pairings", profile="main", now=0))
    assert row == [], "a code is good once"


@pytest.mark.parametrize("chat_type", ["group", "channel", "thread"])
async def test_strangers_in_groups_get_no_code(store: Store, chat_type: str) -> None:
    """Nothing at all."""
    world = world_with(store, PAIRING)
    engine = await world.started()
    assert await world.asks(engine, "hello", chat_type=chat_type) == []
    await engine.stop()
    assert await store.read(access.list_pairings, profile="main", now=world.clock.now()) == []


def test_a_code_has_eight_characters_without_look_alikes() -> None:
    codes = {access.make_code(number * 7919**5) for number in range(2000)}

    assert {len(code) for code in codes} == {8}
    assert not set("".join(codes)) & set("01OIL")
    assert len(codes) == 2000


def asks_in(store: Store, clock: FakeClock, person: str, code: str = CODE) -> bool:
    moment = moment_of(clock, SequentialIds(person))
    return store.write(
        access.request_pairing, "loopback", Person(person), profile="main", code=code, moment=moment
    ).result()


def approves(store: Store, clock: FakeClock, code: str) -> Permit | None:
    moment = moment_of(clock, SequentialIds("owner"))
    return store.write(access.approve_pairing, code, profile="main", moment=moment).result()


def test_a_person_asks_once_in_ten_minutes(store: Store) -> None:
    clock = FakeClock()
    assert asks_in(store, clock, "u")
    clock.tick(599)
    assert not asks_in(store, clock, "u")
    clock.tick(1)
    assert asks_in(store, clock, "u")


def test_three_wait_for_a_platform_and_no_more(store: Store) -> None:
    """Until one is let in or runs out."""
    clock = FakeClock()
    assert [asks_in(store, clock, who, access.make_code(ord(who))) for who in "abcd"] == [
        True, True, True, False,
    ]  # fmt: skip
    assert approves(store, clock, access.make_code(ord("b"))) is not None
    assert asks_in(store, clock, "d", access.make_code(ord("d")))
    assert not asks_in(store, clock, "e")
    clock.tick(3600)
    assert asks_in(store, clock, "e")


def test_strangers_cannot_keep_the_places_from_others(store: Store) -> None:
    """S10: however often they ask, a newcomer gets a place after ten minutes, and they get none meanwhile."""
    clock = FakeClock()
    for stranger in "abc":
        assert asks_in(store, clock, stranger, access.make_code(ord(stranger)))
    clock.tick(599)
    assert not asks_in(store, clock, "guest")
    clock.tick(1)
    # They renew their codes; that does not renew their places.
    assert [asks_in(store, clock, each, access.make_code(ord(each))) for each in "abc"] == [
        True
    ] * 3
    assert asks_in(store, clock, "guest")
    waiting = store.read(access.list_pairings, profile="main", now=clock.now()).result()
    again = [asks_in(store, clock, "a") for _ in range(3)]
    gone = approves(store, clock, access.make_code(ord("a")))
    let_in = approves(store, clock, CODE)
    clock.tick(3000)

    assert sorted(each[1] for each in waiting) == ["b", "c", "guest"]
    assert again == [False] * 3, "who lost a place waits for the end of the hour"
    assert gone is None
    assert let_in is not None
    assert let_in.person_id == "guest"
    assert asks_in(store, clock, "a"), "a new hour"


def test_the_owner_can_admit_someone_although_all_places_are_taken(store: Store) -> None:
    """S10: by id, without a code, even while wrong codes lock the approval."""
    clock = FakeClock()
    moment = moment_of(clock, SequentialIds("owner"))
    for stranger in "abc":
        assert asks_in(store, clock, stranger, access.make_code(ord(stranger)))
    for _ in range(access.WRONG_CODES):
        assert approves(store, clock, "WRONG234") is None
    with pytest.raises(RetryLater):
        approves(store, clock, CODE)

    store.write(access.permit, "loopback", "guest", profile="main", moment=moment).result()

    guest = Person("guest")
    assert store.read(access.is_permitted, "loopback", guest, profile="main").result()


async def test_each_platform_has_places_of_its_own(store: Store) -> None:
    clock = FakeClock()
    moment = moment_of(clock, SequentialIds("x"))
    for stranger in "abc":
        assert asks_in(store, clock, stranger)

    elsewhere = await store.write(
        access.request_pairing,
        "telegram",
        Person("guest"),
        profile="main",
        code=CODE,
        moment=moment,
    )

    assert elsewhere
    assert not asks_in(store, clock, "guest")


def test_a_code_is_good_for_an_hour(store: Store) -> None:
    clock = FakeClock()
    asks_in(store, clock, "u")
    clock.tick(3600)
    assert approves(store, clock, CODE) is None


def test_five_wrong_codes_lock_for_an_hour_and_the_count_survives(store: Store) -> None:
    """Meanwhile the right one is refused too; a right one before that resets the count."""
    clock = FakeClock()
    asks_in(store, clock, "a", access.make_code(1))
    for _ in range(4):
        assert approves(store, clock, "WRONG234") is None
    assert approves(store, clock, access.make_code(1)) is not None
    clock.tick(1800)
    asks_in(store, clock, "b")
    for _ in range(5):
        assert approves(store, clock, "WRONG234") is None
    with pytest.raises(RetryLater, match="60 minutes"):
        approves(store, clock, CODE)
    clock.tick(1799)
    with pytest.raises(RetryLater):
        approves(store, clock, CODE)
    asks_in(store, clock, "b")
    clock.tick(1801)
    assert approves(store, clock, CODE) is not None


def test_wrong_codes_at_the_same_time_are_all_counted(store: Store) -> None:
    """Two who guess at once do not share a try."""
    clock = FakeClock()
    asks_in(store, clock, "u")
    moment = moment_of(clock, SequentialIds("owner"))
    tries = [
        store.write(access.approve_pairing, "WRONG234", profile="main", moment=moment)
        for _ in range(5)
    ]
    assert [each.result() for each in tries] == [None] * 5
    with pytest.raises(RetryLater):
        approves(store, clock, CODE)


# --- budgets


def spending(world: EngineWorld, **used: Any) -> None:
    """Let every call of the agent use so much."""
    world.use(priced=lambda found: structs.replace(found, **used))


@pytest.mark.parametrize(
    ("budget", "says", "begins"),
    [
        ({"person": Budget(tokens=10)}, "person for the day", "2026-03-03"),
        (
            {"person:loopback:u": Budget(per="month", tokens=10)},
            "person for the month",
            "2026-04-01",
        ),
        ({"channel": Budget(microusd=200)}, "channel for the day", "2026-03-03"),
        (
            {"channel:loopback:1": Budget(per="month", microusd=200)},
            "channel for the month",
            "2026-04-01",
        ),
    ],
)
async def test_a_used_up_budget_is_reported_and_costs_no_call(
    store: Store, budget: dict[str, Budget], says: str, begins: str
) -> None:
    """Budgets: compared before a turn starts, counted with the ledger."""
    world = world_with(store, AccessPolicy(everyone=True), budgets=budget)
    spending(world, cost_microusd=100)
    engine = await world.started()
    first = await world.asks(engine, "one")  # 11 tokens, 200 microdollars
    second = await world.asks(engine, "two")
    world.clock.tick(days=40)
    third = await world.asks(engine, "three")
    await engine.stop()

    assert [text for text in first if "%" not in text] == ["re: one"]
    assert second == [
        (
            f"The budget of this {says} is used up; your message was not answered. "
            f"It begins again on {begins} at 00:00 UTC."
        )
    ]
    assert "re: three" in third
    assert len(world.runner.requests) == 2
    assert "two" not in await world.texts()


async def test_a_day_ends_and_a_month_goes_on(store: Store) -> None:
    """Budgets: by day and by month, in UTC."""
    budgets = {"person": Budget(per="month", tokens=20), "channel": Budget(per="day", tokens=10)}
    world = world_with(store, AccessPolicy(everyone=True), budgets=budgets)
    engine = await world.started()
    assert "re: one" in await world.asks(engine, "one")
    assert "channel for the day" in (await world.asks(engine, "two"))[0]
    world.clock.tick(days=1)
    assert "re: three" in await world.asks(engine, "three")
    world.clock.tick(days=1)
    assert "person for the month" in (await world.asks(engine, "four"))[0]
    await engine.stop()


async def test_who_has_used_up_theirs_does_not_shut_others_out(store: Store) -> None:
    """Budgets: people who share a conversation have budgets of their own."""
    world = world_with(store, AccessPolicy(everyone=True), budgets={"person": Budget(tokens=10)})
    thread = {"chat_type": "group", "thread_id": "t"}
    engine = await world.started()
    await world.says(engine, "mine", number="1", **thread)
    await world.settle(engine)
    await engine.stop()
    silent = await world.started()
    await silent.stop()
    for number, (who, text) in enumerate([("u", "more"), ("v", "hers"), ("u", "and more")]):
        await silent.intake.receive(
            world.source("1", f"w{number}", user_id=who, user_name=who, **thread),
            message("user", text),
        )
    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    texts = [text for text in await world.texts(**thread) if text]
    assert texts[0::2] == ["mine", "hers"]
    notices = [text for _, text in world.adapter.sent if text.startswith("The budget")]
    assert len(notices) == 1


async def test_a_command_is_carried_out_whatever_the_budget(store: Store) -> None:
    """It costs nothing."""
    world = world_with(store, AccessPolicy(everyone=True), budgets={"person": Budget(tokens=1)})
    engine = await world.started()
    await world.asks(engine, "one")
    assert (await world.asks(engine, "/usage"))[0].startswith("1 model call,")
    await engine.stop()


async def test_an_unknown_price_is_counted_in_tokens_only(store: Store) -> None:
    """Unknown is not 0 in the ledger, and does not stop a budget of money."""
    world = world_with(store, AccessPolicy(everyone=True), budgets={"person": Budget(microusd=1)})
    engine = await world.started()
    await world.asks(engine, "one")
    assert await world.asks(engine, "two") == ["re: two"]
    await engine.stop()


def test_a_platform_without_settings_admits_nobody() -> None:
    """P16."""
    assert EngineSettings().access == {}
    assert AccessPolicy(everyone=False, allow=frozenset()) == NOBODY


@pytest.mark.parametrize("id", ["a\x00b", "half \udcff"])
async def test_a_person_with_an_impossible_id_is_answered(world: EngineWorld, id: str) -> None:
    """What is counted against them must not keep their turn from ending."""
    engine = await world.started()
    assert await world.asks(engine, "hello", user_id=id) == ["re: hello"]
    await engine.stop()
