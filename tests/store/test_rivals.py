"""Two programs want the same title, purge, delivery or count. PostgreSQL shows what SQLite hides."""

from collections.abc import Callable
from typing import Any

import pytest

from sessionary.actions import access, credentials, outbox, sweep, usage
from sessionary.actions.retention import purge
from sessionary.actions.sessions import edit, read, titles
from sessionary.errors import Conflict, NotFound, RetryLater, SessionaryError
from sessionary.model.message import Text
from sessionary.model.prompt import HomeAddress
from sessionary.model.session import SessionHead
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import retention
from sessionary.store.tables import usage as usage_table
from tests.store.concurrent import ROUNDS, at_once, clean
from tests.support.world import World


def test_one_of_two_who_want_a_title_gets_it(worlds: list[World]) -> None:
    for number in range(ROUNDS):
        ids = [world.session("a") for world in worlds]

        given = at_once(
            *(
                lambda w=w, s=s: w.write(edit.rename, s, f"plan {number}", profile="main")  # noqa: B023
                for w, s in zip(worlds, ids, strict=True)
            )
        )

        refusals = [each for each in given if isinstance(each, SessionaryError)]
        assert [type(each) for each in refusals] == [Conflict]
        assert any(each in str(refusals[0]) for each in ids)


def test_automatic_titles_never_fail_in_a_race(worlds: list[World]) -> None:
    session = worlds[0].session("a")
    worlds[0].write(edit.rename, session, "plan", profile="main")

    forks = at_once(*(lambda w=w: w.fork(session) for w in worlds * 4))

    named = sorted(str(each.title) for each in forks if isinstance(each, SessionHead))
    assert named == sorted(f"plan #{number}" for number in range(2, 10))


def test_sessions_that_begin_with_the_same_words_at_once_all_get_a_title(
    worlds: list[World],
) -> None:
    count = 24
    sessions = [worlds[number % 2].session("hello") for number in range(count)]

    def name(tx: Tx, session: str) -> str | None:
        return titles.name_automatically(tx, read.get_head(tx, session, profile="main"), "hello")

    named = at_once(
        *(
            lambda world=worlds[number % 2], session=session: world.write(name, session)
            for number, session in enumerate(sessions)
        )
    )

    assert set(named) == {"hello", *(f"hello #{number}" for number in range(2, count + 1))}


def test_an_agent_never_overwrites_the_title_that_a_person_gives_at_the_same_time(
    worlds: list[World],
) -> None:
    one, two = worlds

    def name(tx: Tx, session: str, text: str) -> str | None:
        return titles.name_automatically(tx, read.get_head(tx, session, profile="main"), text)

    for number in range(ROUNDS * 2):
        session = one.session("a")

        at_once(
            lambda: one.write(edit.rename, session, f"mine {number}", profile="main"),  # noqa: B023
            lambda: two.write(name, session, f"the agent's {number}"),  # noqa: B023
        )

        assert one.head(session).title == f"mine {number}"


def test_a_purge_and_a_fork_agree(worlds: list[World]) -> None:
    """The fork has all of it, or there is none."""
    one, two = worlds
    for _ in range(ROUNDS):
        session = one.session("a", "b")

        purged, fork = at_once(lambda: one.purge(session), lambda: two.fork(session))  # noqa: B023

        assert isinstance(purged, purge.PurgeResult)
        if isinstance(fork, SessionHead):
            assert purged.kept_for_others == 2
            assert two.texts(fork.id) == ["a", "b"]
        else:
            assert isinstance(fork, NotFound)
    assert clean(one)


def test_two_purges_leave_nothing_to_each_other(worlds: list[World]) -> None:
    """What an ancestor keeps for both goes with the last of them."""
    one, two = worlds
    for _ in range(ROUNDS):
        parent = one.session("a", "b")
        no = one.head(parent).no
        forks = [one.fork(parent).id for _ in range(2)]
        one.purge(parent)

        at_once(lambda: one.purge(forks[0]), lambda: two.purge(forks[1]))  # noqa: B023

        assert one.read(retention.log_size, no) == (0, 0)


def test_a_parent_and_its_fork_purged_at_once_leave_nothing(worlds: list[World]) -> None:
    one, two = worlds
    for _ in range(ROUNDS):
        parent = one.session("a", "b")
        no = one.head(parent).no
        fork = one.fork(parent).id

        at_once(lambda: one.purge(parent), lambda: two.purge(fork))  # noqa: B023

        assert one.read(retention.log_size, no) == (0, 0)


def test_two_sweeps_empty_the_trash_between_them(worlds: list[World]) -> None:
    one = worlds[0]
    for _ in range(ROUNDS):
        ids = [one.session("a") for _ in range(3)]
        for id in ids:
            one.write(edit.trash, id, profile="main", moment=one.moment())
        worlds[1].clock.set(one.clock.tick(days=purge.TRASH_DAYS + 1))

        swept = at_once(
            *(lambda w=w: w.write(sweep.empty_trash, moment=w.moment()) for w in worlds)
        )

        purged = [each for each in swept if isinstance(each, list)]
        assert len(purged) == len(worlds)
        assert sorted(id for each in purged for id in each) == sorted(ids)


def test_what_is_restored_while_the_trash_is_emptied_stays(worlds: list[World]) -> None:
    """P1: an acknowledged restore is there."""
    one, two = worlds
    for _ in range(ROUNDS):
        session = one.session("a")
        one.write(edit.trash, session, profile="main", moment=one.moment())
        two.clock.set(one.clock.tick(days=purge.TRASH_DAYS + 1))

        restored, swept = at_once(
            lambda: one.write(edit.restore, session, profile="main"),  # noqa: B023
            lambda: two.write(sweep.empty_trash, moment=two.moment()),
        )

        assert isinstance(swept, list)
        if isinstance(restored, SessionHead):
            assert one.texts(session) == ["a"]
        else:
            assert isinstance(restored, NotFound)
            assert swept == [session]


def test_running_totals_and_calls_add_up_in_a_race(worlds: list[World]) -> None:
    one, two = worlds
    session = one.session("a")
    no = one.head(session).no

    def set_total(world: World) -> None:
        used = Usage("total", 100)
        world.write(usage.set_running_total, no, used, profile="main", moment=world.moment())

    def record(world: World) -> None:
        for _ in range(5):
            world.write(usage.record, no, Usage("m", 1), profile="main", moment=world.moment())

    for _ in range(3):
        at_once(
            lambda: set_total(one), lambda: record(two), lambda: set_total(two), lambda: record(one)
        )

    assert one.head(session).usage.input_tokens == 130
    assert clean(one)


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_call_only_grows_in_any_order_of_its_reports(worlds: list[World], many: bool) -> None:
    """Two programs read a tool's record, one of them sees more of it."""
    one = worlds[0]
    session = one.session("a")
    no, at = one.head(session).no, one.clock.now()

    def tell(tx: Tx, used: Usage) -> None:
        if many:
            usage_table.raise_all(
                tx, [usage_table.call_of(used, at=at)], profile="main", session_no=no
            )
        else:
            usage_table.raise_to(tx, used, profile="main", session_no=no, at=at)

    for number in range(ROUNDS):
        calls = [Usage("m", 1, tokens, call_id=f"call {number}") for tokens in (5, 20, 10)]
        one.write(tell, calls[0])
        one.write(usage_table.sum_up, no)

        at_once(
            *(lambda w=w, c=c: w.write(tell, c) for w, c in zip(worlds, calls[1:], strict=True))
        )

        assert one.head(session).usage.output_tokens == 20 * (number + 1)
    assert clean(one)


def test_two_senders_never_claim_the_same_delivery(worlds: list[World]) -> None:
    one, two = worlds
    for number in range(20):
        channel = Channel("telegram", str(number))
        one.write(outbox.enqueue, channel, (Text("x"),), profile="main", moment=one.moment())
    now = one.clock.tick()

    claimed = at_once(
        *(
            lambda w=w: w.write(outbox.claim, holder=w.name, seconds=60, now=now, limit=5)
            for w in worlds * 4
        )
    )

    numbers = [each.no for some in claimed if isinstance(some, list) for each in some]
    assert len(numbers) == len(set(numbers))
    rest = two.write(outbox.claim, holder="rest", seconds=60, now=now, limit=50)
    assert len(numbers) + len(rest) == 20


def elsewhere(world: World, id: str) -> str:
    given: dict[str, Any] = {"profile": "main", "moment": world.moment(), "platforms": ("slack",)}
    return world.write(outbox.redirect, id, Channel("slack", "home", world.name), **given).id


@pytest.fixture
def home(worlds: list[World]) -> None:
    """A channel that every delivery may be redirected to, in whatever thread."""
    world = worlds[0]
    world.write(
        access.set_home, HomeAddress("slack", "home"), profile="main", moment=world.moment()
    )


@pytest.mark.usefixtures("home")
def test_what_two_redirect_at_once_is_sent_once(worlds: list[World]) -> None:
    """P8: no copy but after an answer that was unclear."""
    one, channel = worlds[0], Channel("telegram", "1")
    for _ in range(ROUNDS):
        id = one.write(outbox.enqueue, channel, (Text("x"),), profile="main", moment=one.moment())
        one.write(outbox.abandon, id, reason="gone")

        made = at_once(*(lambda w=w: elsewhere(w, id) for w in worlds))  # noqa: B023

        assert [type(each) for each in made if isinstance(each, SessionaryError)] == [Conflict]
        now = one.clock.tick()
        sent = one.write(outbox.claim, holder="a", seconds=9, now=now, platform="slack")
        assert [each.id for each in sent] == [each for each in made if isinstance(each, str)]
        for each in sent:
            one.write(outbox.mark_sent, each.id, holder="a", at=now)


@pytest.mark.usefixtures("home")
def test_what_is_redirected_while_it_is_claimed_is_sent_once(worlds: list[World]) -> None:
    one, two = worlds
    for number in range(ROUNDS):
        channel = Channel("telegram", str(number))
        id = one.write(outbox.enqueue, channel, (Text("x"),), profile="main", moment=one.moment())
        now = one.clock.tick()

        claimed, made = at_once(
            lambda: one.write(outbox.claim, holder="a", seconds=9, now=now, platform="telegram"),  # noqa: B023
            lambda: elsewhere(two, id),  # noqa: B023
        )

        assert isinstance(claimed, list)
        assert [each.id for each in claimed] == ([id] if isinstance(made, Conflict) else [])
        one.write(outbox.mark_sent, id, holder="a", at=now)


@pytest.mark.parametrize("verb", [outbox.retry, outbox.abandon_by_owner])
def test_what_its_owner_changes_while_it_is_claimed_is_sent_at_most_once(
    worlds: list[World], verb: Callable[..., Delivery]
) -> None:
    """P8: either the sender has it, and the owner's request is refused, or the owner was first."""
    one, two = worlds
    for number in range(ROUNDS):
        channel = Channel("telegram", str(number))
        id = one.write(outbox.enqueue, channel, (Text("x"),), profile="main", moment=one.moment())
        now = one.clock.tick()

        claimed, done = at_once(
            lambda: one.write(outbox.claim, holder="a", seconds=9, now=now, platform="telegram"),  # noqa: B023
            lambda: two.write(verb, id, profile="main", moment=two.moment()),  # noqa: B023
        )

        assert isinstance(claimed, list)
        taken = [each.id for each in claimed]
        if isinstance(done, Conflict):
            assert taken == [id]
        elif verb is outbox.abandon_by_owner:
            assert taken == []
        again = two.write(outbox.claim, holder="b", seconds=9, now=now, platform="telegram")
        copies = taken + [each.id for each in again]
        assert len(copies) <= 1
        for each in copies:
            assert one.write(outbox.mark_sent, each, holder="a" if taken else "b", at=now)


def test_wrong_passwords_at_once_are_counted_one_by_one(worlds: list[World]) -> None:
    """A guess must not be cheaper because others guess at the same moment."""
    one, now = worlds[0], worlds[0].clock.now()
    few = credentials.WRONG_PASSWORDS - 1
    for _ in range(ROUNDS):
        one.write(credentials.count_guess, profile="main", right=True, now=now)

        at_once(
            *(
                lambda w=w: w.write(
                    credentials.count_guess, profile="main", right=False, now=now, most=few + 1
                )
                for w in (worlds * few)[:few]
            )
        )

        one.read(credentials.check_login_guard, profile="main", now=now)
        one.write(credentials.count_guess, profile="main", right=False, now=now, most=few + 1)
        with pytest.raises(RetryLater):
            one.read(credentials.check_login_guard, profile="main", now=now)
